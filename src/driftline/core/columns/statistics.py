"""Statistics of a table from its metadata, in any format: counts, bounds, and their batches; violations."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from typing import Any, TypeAlias, TypedDict

from driftline.core.columns.file_sizes import FileSizes
from driftline.core.schema.types import Primitive
from driftline.core.support import as_json

Value: TypeAlias = bool | int | float | str
TREND = 12  # of the last batches


class CommittedBatchJson(TypedDict):
    """A commit that added records. ``batch`` null: another writer made it."""

    at: str
    batch: str | None
    records: int


class SeenInJson(TypedDict):
    """The batch in which a column first or last had a value, and its commit time."""

    at: str
    batch: str | None


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """One commit that added records.

    Attributes:
        at: milliseconds.
        id: None if another writer made it.
    """

    at: int
    id: str | None
    records: int

    def to_dict(self) -> CommittedBatchJson:
        """The batch as `--json` prints it."""
        return as_json(CommittedBatchJson, self, at=iso(self.at), batch=self.id)


@dataclass(frozen=True, slots=True)
class SeenIn:
    """The batch in which a column first or last had a value, and its commit time."""

    at: int
    batch: str | None

    def to_dict(self) -> SeenInJson:
        """The batch and time as `--json` prints them."""
        return as_json(SeenInJson, self, at=iso(self.at))


@dataclass(frozen=True, slots=True)
class Seen:
    """The batches in which a column first and last had a value, where they are known."""

    first: SeenIn | None = None
    last: SeenIn | None = None


@dataclass(frozen=True, slots=True)
class SeenNote:
    """The first and the last batch of columns with values in rows whose files were written anew.

    Attributes:
        columns: by column id.
        snapshot: the commit that made the note.
    """

    columns: Mapping[int, Seen] = field(default_factory=dict)
    snapshot: int | None = None

    def having(self, batch: SeenIn | None, columns: Iterable[int]) -> SeenNote:
        """Add a batch with values in these columns; None: an unknown one, before which others may have come.

        >>> note = SeenNote().having(SeenIn(5, "b"), [1, 2]).having(SeenIn(3, "a"), [1]).having(None, [2])
        >>> note.columns[1]
        Seen(first=SeenIn(at=3, batch='a'), last=SeenIn(at=5, batch='b'))
        >>> note.columns[2]
        Seen(first=None, last=SeenIn(at=5, batch='b'))
        """
        noted = dict(self.columns)
        for id_ in columns:
            before = noted.get(id_, Seen(batch, batch))
            is_known = None not in (batch, before.first)
            lasts = [each for each in (batch, before.last) if each is not None]
            # An unknown batch is older than those that are known: it cannot be the last.
            noted[id_] = Seen(
                min(batch, before.first, key=_time) if is_known else None, max(lasts, key=_time, default=None)
            )
        return SeenNote(noted, self.snapshot)

    def of_columns(self, sources: Mapping[int, Iterable[int]]) -> SeenNote:
        """The note of other columns, each with the values of some of these.

        >>> early, late = SeenIn(3, "a"), SeenIn(5, "b")
        >>> note = SeenNote({1: Seen(early, early), 2: Seen(late, late), 3: Seen(None, late)})
        >>> moved = note.of_columns({7: [1, 2], 8: [2, 3], 9: [4]}).columns
        >>> moved == {7: Seen(early, late), 8: Seen(None, late)}
        True
        """
        columns = {}
        for id_, columns_before in sources.items():
            parts = [self.columns[before] for before in columns_before if before in self.columns]
            if parts:
                firsts, lasts = [part.first for part in parts], [part.last for part in parts]
                first = None if None in firsts else min(firsts, key=_time)
                columns[id_] = Seen(first, None if None in lasts else max(lasts, key=_time))
        return SeenNote(columns, self.snapshot)

    def to_json(self) -> bytes:
        """The note as it is stored."""
        columns = {id_: [_noted(pair.first), _noted(pair.last)] for id_, pair in self.columns.items()}
        return json.dumps({"snapshot": self.snapshot, "columns": columns}, separators=(",", ":")).encode()

    @classmethod
    def of(cls, content: bytes | str) -> SeenNote:
        """Read a stored note.

        >>> note = SeenNote({7: Seen(None, SeenIn(3, "a"))}, 9)
        >>> SeenNote.of(note.to_json()) == note
        True
        """
        stored = json.loads(content)
        columns = {
            int(id_): Seen(*(None if pair is None else SeenIn(*pair) for pair in pairs))
            for id_, pairs in stored["columns"].items()
        }
        return cls(columns, stored["snapshot"])


def _time(batch: SeenIn | None) -> int:
    assert batch is not None
    return batch.at


def _noted(batch: SeenIn | None) -> tuple[int, str | None] | None:
    return None if batch is None else (batch.at, batch.batch)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of one column; None if unknown.

    Attributes:
        values: rows with a value; in lists, elements.
        at_least: ``values`` is a lower limit.
        of: the total of records or elements.
        low: the lower bound.
        high: the upper bound.
        low_cut: the lower bound is truncated.
        high_cut: the upper bound is truncated.
        distinct: an estimate.
        trend: the share of records with a value in each of the last batches.
    """

    values: int | None = None
    of: int | None = None
    at_least: bool = False
    low: Value | None = None
    high: Value | None = None
    low_cut: bool = False
    high_cut: bool = False
    distinct: int | None = None
    sample: str | None = None
    first: SeenIn | None = None
    last: SeenIn | None = None
    trend: tuple[float | None, ...] = ()

    @property
    def density(self) -> float | None:
        """The share of rows with a value."""
        return self.values / self.of if self.values is not None and self.of else None


RECORDS = 0  # in place of a column id: the records of the files themselves


@dataclass(frozen=True, slots=True)
class KnownSnapshot:
    """A commit that is still known.

    Attributes:
        born: its files contain only records that it added.
        slot: its number among the last batches; None for others.
        moved: its files also contain older rows.
        noted: a note tells which batches brought their values.
    """

    id: int
    schema: int | None
    batch: CommittedBatch
    born: bool
    slot: int | None = None
    moved: bool = False
    noted: bool = False

    @property
    def accounted(self) -> bool:
        """True if it is known which batches brought the values of its files."""
        return self.born or self.noted


@dataclass(slots=True)
class Count:
    """The count of one column in the files of one schema.

    Attributes:
        first: the first commit whose files have values.
        last: the last commit whose files have values, without those that are noted.
        last_born: the last such commit that only added records.
        foreign: values in files that others rewrote, or of expired commits.
        rewritten: values in files that may hold older rows.
    """

    values: int = 0
    files: int = 0
    first: int | None = None
    last: int | None = None
    last_born: int | None = None
    foreign: int = 0
    rewritten: int = 0
    slots: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of all columns.

    Attributes:
        snapshots: the commits, oldest first; counts refer to them by index.
        by_column: counts by column id, then by the schema of the files, None if unknown.
        ids: the columns of each schema.
        defaulted: columns that have a value in files older than themselves.
        expired: the number of batches no longer among the snapshots.
        noted: by column id, the batches of values in files that were written anew.
    """

    snapshots: tuple[KnownSnapshot, ...]
    by_column: Mapping[int, Mapping[int | None, Count]]
    ids: Mapping[int, frozenset[int]]
    defaulted: frozenset[int] = frozenset()
    expired: int = 0
    noted: Mapping[int, Seen] = field(default_factory=dict)

    @property
    def batches(self) -> tuple[CommittedBatch, ...]:
        """The commits that added records."""
        return tuple(s.batch for s in self.snapshots if s.born or (s.moved and s.batch.records))

    @property
    def known(self) -> tuple[CommittedBatch, ...]:
        """The commits whose files have only their own records."""
        return tuple(s.batch for s in self.snapshots if s.born)

    @property
    def before(self) -> int | None:
        """The time before which all other records came."""
        others = [s.batch.at for s in self.snapshots if not s.born]
        return max(others, default=min((batch.at for batch in self.known), default=None))

    @property
    def recent(self) -> tuple[CommittedBatch, ...]:
        """The last batches, oldest first."""
        return tuple(s.batch for s in self.snapshots if s.slot is not None)

    @property
    def files(self) -> Mapping[int | None, Count]:
        """Counts of the files themselves, by schema: ``values`` are records."""
        return self.by_column.get(RECORDS, {})

    @property
    def records(self) -> int:
        """The number of records in all files."""
        return sum(c.values for c in self.files.values())

    def values(self, column: int, schema: int | None) -> int | None:
        """Count rows with a value in the files of a schema; None if the files do not say."""
        count = self.by_column.get(column, {}).get(schema)
        # Files without a count of the column are unknown, not empty.
        if count is not None and count.files == self.files[schema].files:
            return count.values
        if schema is None or column in self.ids.get(schema, (column,)):
            return None
        # These files are older than the column: their rows have its default, or nothing.
        return self.files[schema].values if column in self.defaulted else 0

    def holds(self, column: int, schema: int | None) -> bool:
        """True if files of a schema may have values of a column, also of one that it lacks, and that was
        dropped for that while.
        """
        count = self.by_column.get(column, {}).get(schema)
        is_of_schema = schema is None or column in self.ids.get(schema, (column,))
        return is_of_schema or (count is not None and count.values > 0)

    def numbers(self, column: int) -> Numbers:
        """Return the numbers of a column over all files."""
        values = [self.values(column, schema) for schema in self.files]
        counted = [v for v in values if v is not None]
        if len(counted) < len(values):
            return Numbers()
        batches = self._seen(column)
        return Numbers(
            sum(counted), self.records, first=batches.first, last=batches.last, trend=self._trend(column)
        )

    def first_place(self, column: int) -> int | None:
        """Return the commit that brought the first value."""
        return min((c.first for c in self._counts(column) if c.first is not None), default=None)

    def _seen(self, column: int) -> Seen:
        counts = self._counts(column)
        latest = max((c.last for c in counts if c.last is not None), default=None)
        born = max((c.last_born for c in counts if c.last_born is not None), default=None)
        in_files = Seen(self._at(self._known_first(column)), self._at(born if born == latest else None))
        noted = self.noted.get(column)
        if noted is None or not any(c.values for c in counts):
            return in_files
        if noted.first is None or in_files.first is None:
            first_seen = None
        else:
            first_seen = min(noted.first, in_files.first, key=_time)
        lasts = [batch for batch in (noted.last, in_files.last) if batch is not None]
        last_seen = max(lasts, key=_time, default=None)
        until = self._at(latest)
        # Values that others moved later may be of any batch up to then.
        is_last = last_seen is not None and (born == latest or until is None or last_seen.at >= until.at)
        return Seen(first_seen, last_seen if is_last else None)

    def _known_first(self, column: int) -> int | None:
        """Return the commit that brought the first value; None if another one may have."""
        place = self.first_place(column)
        # Rewritten files may hold older values, and do not show from when.
        if place is None or any(c.foreign for c in self._counts(column)):
            return None
        commit = self.snapshots[place]
        # What a commit only moved, and no note tells of, are defaults: no batch brought them.
        return None if commit.noted and not commit.born and column not in self.noted else place

    def _at(self, place: int | None) -> SeenIn | None:
        if place is None:
            return None
        batch = self.snapshots[place].batch
        return SeenIn(batch.at, batch.id)

    def _trend(self, column: int) -> tuple[float | None, ...]:
        out: list[float | None] = []
        for slot, batch in enumerate(self.recent):
            records = sum(c.slots.get(slot, 0) for c in self.files.values())
            values = sum(c.slots.get(slot, 0) for c in self._counts(column))
            # Where files of the batch were rewritten or deleted, the rest of it would tell a wrong share.
            out.append(values / records if records and records == batch.records else None)
        return tuple(out)

    def _counts(self, column: int) -> list[Count]:
        return list(self.by_column.get(column, {}).values())


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """The statistics of a table.

    Attributes:
        at: the time, in milliseconds.
        bytes: the size of all data files.
        bounds: bounds by column id, over all files.
        firsts: bounds by column id, in a file of the batch that brought the column's first value.
        deleted: rows that delete files hide and metrics still count.
        live: the other rows; None if unknown.
        periods: counts of the watched columns, by the periods of the batches' `time_axes`; None: in files of
            batches that are no longer known, or whose rows are older than the files.
    """

    at: int
    files: int
    bytes: int
    deleted: int
    counts: Counts
    bounds: Mapping[int, Numbers]
    firsts: Mapping[int, Numbers]
    live: int | None = None
    periods: Mapping[int | None, Counts] = field(default_factory=dict)
    sizes: FileSizes = field(default_factory=FileSizes)


# One property for each expectation, as for its condition: catalogs limit the length of one, and a batch
# writes those alone that it adds to. Properties outlive snapshots, and go back with the catalog.
VIOLATIONS = "driftline.violations."
_DAYS = 30
_DAY = 86_400_000  # milliseconds
_LENGTH = 4000  # characters of a property


@dataclass(frozen=True, slots=True)
class CountedBatch:
    """A batch with records that do not meet an expectation.

    Attributes:
        at: milliseconds.
        batch: its id; empty for all such batches of a day.
        records: the number of records that it read.
        violations: the number of those that do not meet the expectation.
    """

    at: int
    batch: str
    records: int
    violations: int

    @property
    def share(self) -> float:
        """The share of the records that do not meet the expectation."""
        return self.violations / self.records if self.records else 0.0


@dataclass(frozen=True, slots=True)
class ViolationCounts:
    """The records that did not meet an expectation, in all batches that had any.

    Attributes:
        violations: their number.
        records: the number of all records of these batches.
        batches: the last of these batches, oldest first; before them the batches of each of the last days.
    """

    violations: int = 0
    records: int = 0
    batches: tuple[CountedBatch, ...] = ()

    @classmethod
    def of(cls, text: str) -> ViolationCounts:
        """Read the value of a property."""
        value = json.loads(text)
        batches = (CountedBatch(int(at), str(batch), *counts) for at, batch, *counts in value["batches"])
        return cls(int(value["violations"]), int(value["records"]), tuple(batches))

    def properties(self, name: str) -> dict[str, str]:
        """The property that keeps the counts of the expectation ``name``; none if nothing is counted."""
        batches, text = list(self.batches), ""
        while not text or (len(text) > _LENGTH and batches):
            listed = [[b.at, b.batch, b.records, b.violations] for b in batches]
            value = {"violations": self.violations, "records": self.records, "batches": listed}
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            del batches[:1]
        return {VIOLATIONS + name: text} if self.violations else {}

    def added(self, new: CountedBatch) -> ViolationCounts:
        """Add a batch, in place of an attempt at it that did not end."""
        before = self.without(new.batch)
        days = [b for b in before.batches if not b.batch]
        batches = [*(b for b in before.batches if b.batch), new]
        # A capture makes twelve batches in minutes, so what was before them is told by day.
        for old in batches[:-TREND]:
            same_day = bool(days) and days[-1].at // _DAY == old.at // _DAY
            day = days.pop() if same_day else CountedBatch(old.at, "", 0, 0)
            days.append(
                replace(
                    old,
                    batch="",
                    records=day.records + old.records,
                    violations=day.violations + old.violations,
                )
            )
        return ViolationCounts(
            before.violations + new.violations,
            before.records + new.records,
            (*days[-_DAYS:], *batches[-TREND:]),
        )

    def without(self, batch: str) -> ViolationCounts:
        """Take a batch out, if it is one of the last."""
        gone = [b for b in self.batches if b.batch == batch]
        return ViolationCounts(
            self.violations - sum(b.violations for b in gone),
            self.records - sum(b.records for b in gone),
            tuple(b for b in self.batches if b not in gone),
        )


def violations(properties: Mapping[str, str]) -> dict[str, ViolationCounts]:
    """The counts that a table's properties keep, by the name of the expectation.

    >>> violations(violated({}, "a", 10, {"price": 2}))["price"].violations
    2
    """
    return {
        key.removeprefix(VIOLATIONS): ViolationCounts.of(text)
        for key, text in sorted(properties.items())
        if key.startswith(VIOLATIONS)
    }


def violated(
    properties: Mapping[str, str], batch: str, records: int, counts: Mapping[str, int]
) -> dict[str, str]:
    """The properties that a batch sets for the expectations that some of its records do not meet.

    Args:
        properties: those before it.
        batch: its id.
        records: the number of its records.
        counts: the number of those that are not as expected, by the name of the expectation.
    """
    at, out = time.time_ns() // 1_000_000, dict[str, str]()
    for name, count in counts.items():
        before = properties.get(VIOLATIONS + name)
        kept = ViolationCounts() if before is None else ViolationCounts.of(before)
        out |= kept.added(CountedBatch(at, batch, records, count)).properties(name)
    return out


def iso(millis: int) -> str:
    """Format milliseconds as ISO 8601.

    >>> iso(0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_minute(millis: int) -> str:
    """Format milliseconds for tables, to the minute.

    >>> to_minute(0)
    '1970-01-01 00:00Z'
    """
    return f"{iso(millis)[:16].replace('T', ' ')}Z"


def shown(value: Any, type_: Primitive) -> Value:
    """Format a value for JSON and people: instants in ISO form, decimals as text with all digits.

    >>> from driftline.core.schema.types import TIMESTAMP
    >>> shown("2026-03-02 08:00:00.25", TIMESTAMP), shown(Decimal("1.50"), Primitive("decimal", (4, 2)))
    ('2026-03-02T08:00:00.25Z', '1.5')
    """
    match type_.name:
        case "timestamp" | "timestamp_ntz":
            return str(value).replace(" ", "T") + "Z" * (type_.name == "timestamp")
        case "decimal":
            text = format(Decimal(value), "f")
            return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str) else str(value)
