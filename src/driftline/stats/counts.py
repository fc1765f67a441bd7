"""What data files' own metrics add up to: plain values, from which a column's numbers are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driftline.stats.model import Batch, Numbers, Seen

RECORDS = 0  # stands for a column id: the records of the files themselves


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A commit that is still known. ``born``: its files hold nothing but records that it added; ``slot``: its number
    among the last batches, None for others."""

    id: int
    schema: int | None
    batch: Batch
    born: bool
    slot: int | None = None


@dataclass(slots=True)
class Count:
    """Of one column in the files of one schema. ``first``, ``last``: places of commits whose files have values;
    ``last_born``: of those that only added; ``foreign``: values in files that others wrote anew, or of expired commits."""

    values: int = 0
    files: int = 0
    first: int | None = None
    last: int | None = None
    last_born: int | None = None
    foreign: int = 0
    slots: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counts:
    """``snapshots``: oldest first; a place is an index in them. ``of``: counts by column id, then by the schema that the
    files were written with, None where that is not known. ``ids``: the columns of each schema. ``defaulted``: columns
    that have a value in files older than themselves; ``expired``: how many batches are not among the snapshots any more."""

    snapshots: tuple[Snapshot, ...]
    of: Mapping[int, Mapping[int | None, Count]]
    ids: Mapping[int, frozenset[int]]
    defaulted: frozenset[int] = frozenset()
    expired: int = 0

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The commits that added records."""
        return tuple(s.batch for s in self.snapshots if s.born)

    @property
    def recent(self) -> tuple[Batch, ...]:
        return tuple(s.batch for s in self.snapshots if s.slot is not None)

    @property
    def files(self) -> Mapping[int | None, Count]:
        """The files themselves, by their schema: ``values`` are records."""
        return self.of.get(RECORDS, {})

    @property
    def records(self) -> int:
        return sum(c.values for c in self.files.values())

    def values(self, column: int, schema: int | None) -> int | None:
        """Rows with a value in the files written with a schema; None where the files do not tell."""
        count = self.of.get(column, {}).get(schema)
        if count is not None and count.files == self.files[schema].files:
            return count.values
        if schema is None or column in self.ids.get(schema, (column,)):
            return None
        return self.files[schema].values if column in self.defaulted else 0

    def numbers(self, column: int) -> Numbers:
        """What all files together say of a column."""
        values = [self.values(column, schema) for schema in self.files]
        known = [v for v in values if v is not None]
        if len(known) < len(values):
            return Numbers()
        first, last = self._seen(column)
        return Numbers(sum(known), self.records, first=first, last=last, trend=self._trend(column))

    def first_place(self, column: int) -> int | None:
        """The commit that brought the first value."""
        return min((c.first for c in self._counts(column) if c.first is not None), default=None)

    def _seen(self, column: int) -> tuple[Seen | None, Seen | None]:
        counts = self._counts(column)
        latest = max((c.last for c in counts if c.last is not None), default=None)
        born = max((c.last_born for c in counts if c.last_born is not None), default=None)
        # Files that were written anew may hold older values, and do not tell from when.
        first = None if any(c.foreign for c in counts) else self.first_place(column)
        return self._at(first), self._at(born if born == latest else None)

    def _at(self, place: int | None) -> Seen | None:
        if place is None:
            return None
        batch = self.snapshots[place].batch
        return Seen(batch.at, batch.id)

    def _trend(self, column: int) -> tuple[float | None, ...]:
        out: list[float | None] = []
        for slot, batch in enumerate(self.recent):
            there = sum(c.slots.get(slot, 0) for c in self.files.values())
            values = sum(c.slots.get(slot, 0) for c in self._counts(column))
            out.append(values / there if there and there == batch.records else None)
        return tuple(out)

    def _counts(self, column: int) -> list[Count]:
        return list(self.of.get(column, {}).values())
