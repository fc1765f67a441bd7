"""Statistics as plain values, column by column, for text, JSON and page alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import translate
from re import match
from typing import Literal, TypedDict

from driftline.core.columns.file_sizes import FileSizes, PartitionSizeJson
from driftline.core.columns.statistics import (
    CommittedBatch,
    CommittedBatchJson,
    CountedBatch,
    Numbers,
    SeenIn,
    SeenInJson,
    Value,
    iso,
)
from driftline.core.schema.schema_json import outline
from driftline.core.schema.types import Path, Type, children, dotted
from driftline.core.settings.condition import Action
from driftline.core.support import as_json
from driftline.ingest.route import Route
from driftline.ingest.split_by_field import SplitByField, SplitByFieldJson
from driftline.runtime.shown import Shown
from driftline.sql.lost import WaitingValues as Rest
from driftline.sql.lost import WaitingValuesJson


def fits(text: str, pattern: str) -> bool:
    """True if a path contains the pattern, in any letter case.

    With ``*``, any text, the whole path must match.

    >>> fits("who.id", "ID"), fits("who.id", "who.*"), fits("who.id", "id*"), fits("who.id", "")
    (True, True, False, False)
    """
    text, pattern = text.casefold(), pattern.casefold()
    if "*" not in pattern:
        return bool(pattern) and pattern in text
    plain = "".join(f"[{c}]" if c in "?[" else c for c in pattern)  # of fnmatch's signs, * only is one here
    return bool(text) and match(translate(plain), text) is not None


class ColumnJson(TypedDict):
    """A column, at any depth.

    Attributes:
        evolved_from: the field whose values it holds.
    """

    path: str
    id: int
    type: str
    evolved_from: str | None
    values: int | None
    of: int | None
    at_least: bool
    density: float | None
    null_share: float | None
    distinct: int | None
    min: Value | None
    max: Value | None
    min_cut: bool
    max_cut: bool
    sample: str | None
    first_seen: SeenInJson | None
    last_seen: SeenInJson | None
    trend: list[float | None]


class TypeShareJson(TypedDict):
    """The values of a field that came as one type."""

    type: str
    columns: list[str]
    records: int | None
    about: bool
    at_least: bool
    share: float | None
    sample: str | None
    first_seen: SeenInJson | None
    rule: str | None
    seen_in: str | None


class DriftedFieldJson(TypedDict):
    """A field whose values came in several types."""

    field: str
    types: list[TypeShareJson]


class ChangeTextJson(TypedDict):
    """A change of the schema, in words."""

    text: str
    action: str
    path: str
    field: str | None
    rule: str | None
    seen_in: str | None
    sample: str | None


class EventJson(TypedDict):
    """A new version of the schema."""

    at: str | None
    schema: int
    by: str
    who: str
    changes: list[ChangeTextJson]


class WaitingRecordsJson(TypedDict):
    """Records in quarantine for one reason."""

    reason: str
    records: int
    sample: str
    seen_in: str
    last: str


class CountedBatchJson(TypedDict):
    """The records of a batch that do not meet an expectation. ``batch`` null: all such batches of a day."""

    at: str
    batch: str | None
    records: int
    violations: int
    share: float


# ``condition`` null: the table expects it no more.
ExpectationJson = TypedDict(
    "ExpectationJson",
    {
        "name": str,
        "condition": str | None,
        "else": Literal["warn", "quarantine", "fail"] | None,
        "violations": int,
        "records": int,
        "share": float | None,
        "last": CountedBatchJson | None,
        "batches": list[CountedBatchJson],
    },
)


class StatsJson(TypedDict):
    """The statistics of a table.

    Attributes:
        small_files: those that a compaction gathers.
        partitions: with files; 0 if the table has none.
        pattern: that made the table, and ``named_by``: the values that named it.
    """

    table: str
    schema: int
    at: str | None
    exact: bool
    records: int | None
    records_at_most: bool
    leaf_columns: int
    files: int | None
    bytes: int | None
    small_files: int | None
    partitions: int | None
    largest_partitions: list[PartitionSizeJson]
    deleted_rows: int
    batches: int
    recent_batches: list[CommittedBatchJson]
    drifted: list[DriftedFieldJson]
    columns: list[ColumnJson]
    changes: list[EventJson]
    history_is_whole: bool
    quarantined: int
    quarantine: list[WaitingRecordsJson]
    expectations: list[ExpectationJson]
    rest: list[WaitingValuesJson]
    pattern: str | None
    named_by: list[list[str | None]]
    split: SplitByFieldJson | None


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """A column, at any depth.

    Attributes:
        key: that of the data whose values it holds, if it evolved from it.
    """

    path: Path
    id: int
    type: Type
    key: str | None = None
    numbers: Numbers = field(default_factory=Numbers)

    @property
    def nested(self) -> bool:
        """True if other columns are inside."""
        return bool(children(self.type))

    def to_dict(self) -> ColumnJson:
        """The form that `--json` prints."""
        n = self.numbers
        density = n.density
        return {
            "path": dotted(self.path),
            "id": self.id,
            "type": outline(self.type),
            "evolved_from": origin(self),
            "values": n.values,
            "of": n.of,
            "at_least": n.at_least,
            "density": density,
            "null_share": None if density is None or n.at_least else 1 - density,
            "distinct": n.distinct,
            "min": n.low,
            "max": n.high,
            "min_cut": n.low_cut,
            "max_cut": n.high_cut,
            "sample": n.sample,
            "first_seen": n.first.to_dict() if n.first else None,
            "last_seen": n.last.to_dict() if n.last else None,
            "trend": list(n.trend),
        }


@dataclass(frozen=True, slots=True)
class TypeShare:
    """The values of a field that came as one type.

    ``columns``: where they are, several if these cannot be distinguished. ``records`` None: not known;
    ``about``: approximately; ``at_least``: that many or more. ``share``: of the field's values. ``rule`` and
    ``seen_in``: why the column was made, and the file or offset that caused it.
    """

    columns: tuple[Path, ...]
    types: tuple[Type, ...]
    records: int | None = None
    about: bool = False
    at_least: bool = False
    share: float | None = None
    sample: str | None = None
    first: SeenIn | None = None
    rule: str | None = None
    seen_in: str | None = None

    @property
    def name(self) -> str:
        """The types as people read them; several if they cannot be distinguished."""
        return " or ".join(outline(t) for t in self.types)

    def to_dict(self) -> TypeShareJson:
        """The form that `--json` prints."""
        columns = [dotted(path) for path in self.columns]
        return as_json(TypeShareJson, self, type=self.name, columns=columns, first_seen=self.first)


@dataclass(frozen=True, slots=True)
class DriftedField:
    """A field whose values came in several types, by its column's path with its own key as the last step.

    Attributes:
        keys: its path by keys of the data, which it may share with another place.
        periods: by period of the table's `time_axes`, the values of each part, None where that is not known;
            under None: those of batches that are no longer known.
    """

    path: Path
    parts: tuple[TypeShare, ...]
    keys: Path = ()
    periods: Mapping[int | None, tuple[int | None, ...]] = field(default_factory=dict, hash=False)

    def to_dict(self) -> DriftedFieldJson:
        """The form that `--json` prints."""
        return as_json(DriftedFieldJson, self, field=dotted(self.path), types=self.parts)


@dataclass(frozen=True, slots=True)
class ChangeText:
    """One change of the schema, in words.

    Attributes:
        field: the field of the data, if the column has another name.
    """

    text: str
    action: str
    path: str
    field: str | None = None
    rule: str | None = None
    seen_in: str | None = None
    sample: str | None = None

    def to_dict(self) -> ChangeTextJson:
        """The form that `--json` prints."""
        return as_json(ChangeTextJson, self)


@dataclass(frozen=True, slots=True)
class Event:
    """A new version of the schema.

    Attributes:
        by: batch, alter, undo, outside or unknown.
        who: the batch, or the statement.
        plain: columns of new fields under their own names, and of driftline itself.
        steps: the changes worth a look.
    """

    at: int | None
    schema: int
    by: str
    who: str
    plain: tuple[ChangeText, ...] = ()
    steps: tuple[ChangeText, ...] = ()
    makes_table: bool = False

    def to_dict(self) -> EventJson:
        """The form that `--json` prints."""
        time = None if self.at is None else iso(self.at)
        return as_json(EventJson, self, at=time, changes=(*self.plain, *self.steps))


@dataclass(frozen=True, slots=True)
class WaitingRecords:
    """Records in quarantine for one reason, with one of them."""

    reason: str
    records: int
    sample: str
    seen_in: str
    last: str

    def to_dict(self) -> WaitingRecordsJson:
        """The form that `--json` prints."""
        return as_json(WaitingRecordsJson, self)


@dataclass(frozen=True, slots=True)
class WaitingSummary:
    """The records that wait in a quarantine.

    Attributes:
        records: their number.
        reasons: those of most records first, each with a record.
        by_batch: the records of the most frequent reasons by batch; those of all others are under "".
    """

    records: int = 0
    reasons: tuple[WaitingRecords, ...] = ()
    by_batch: Mapping[str, tuple[CommittedBatch, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExpectationOverTime:
    """An expectation, and the records that did not meet it.

    Attributes:
        condition: as it is written now; None if the table expects it no more.
        action: what becomes of such records now.
        violations: their number, in all batches.
        records: all records of the batches that had any.
        batches: the last batches, oldest first: those that had any, as far as they are kept one by one or by
            day, and the later ones that had none.
    """

    name: str
    condition: str | None = None
    action: Action | None = None
    violations: int = 0
    records: int = 0
    batches: tuple[CountedBatch, ...] = ()

    @property
    def last(self) -> CountedBatch | None:
        """The last batch with a violation; None if there was none."""
        return next((batch for batch in reversed(self.batches) if batch.violations), None)

    @property
    def trend(self) -> tuple[float, ...]:
        """The share of records that did not meet it, by batch, as parts of the highest share."""
        highest = max((batch.share for batch in self.batches), default=0.0) or 1.0
        return tuple(batch.share / highest for batch in self.batches)

    @property
    def share(self) -> float | None:
        """The share of the records of batches that had a violation; None if none had."""
        return self.violations / self.records if self.records else None

    def to_dict(self) -> ExpectationJson:
        """The form that `--json` prints."""
        last = None if self.last is None else _batch_to_dict(self.last)
        batches = [_batch_to_dict(batch) for batch in self.batches]
        return as_json(ExpectationJson, self, **{"else": self.action}, last=last, batches=batches)


def _batch_to_dict(batch: CountedBatch) -> CountedBatchJson:
    return as_json(CountedBatchJson, batch, at=iso(batch.at), batch=batch.batch or None)


@dataclass(frozen=True, slots=True, repr=False)
class Stats(Shown):
    """A table's statistics.

    Attributes:
        at: the time of its last commit.
        exact: counted by a scan; otherwise read from metadata.
        leaves: the number of columns that hold plain values.
        batches: the number of commits that added records.
        recent: the last of them.
        deleted: rows that delete files hide, which the columns' numbers still count.
        at_most: ``records`` counts deleted rows too.
        whole: the history begins with the table.
        rest: the values that wait there.
        known: the batches whose files have only their own records, oldest first.
        before: the time before which all other records came.
        refused: the records in quarantine for the most frequent reasons, by batch; "" stands for all others.
        route: the pattern that made it, and the values that named it.
        split: the field whose values would make tables of half of its cells or fewer, if it was looked for.
    """

    table: str
    schema: int
    at: int | None
    exact: bool
    records: int | None
    leaves: int
    batches: int
    recent: tuple[CommittedBatch, ...]
    columns: tuple[ColumnStatistics, ...]
    drifted: tuple[DriftedField, ...]
    events: tuple[Event, ...]
    quarantined: int
    waiting: tuple[WaitingRecords, ...]
    files: int | None = None
    bytes: int | None = None
    sizes: FileSizes = field(default_factory=FileSizes)
    deleted: int = 0
    at_most: bool = False
    whole: bool = True
    rest: tuple[Rest, ...] = ()
    expectations: tuple[ExpectationOverTime, ...] = ()
    known: tuple[CommittedBatch, ...] = ()
    before: int | None = None
    refused: Mapping[str, tuple[CommittedBatch, ...]] = field(default_factory=dict, hash=False)
    route: Route | None = None
    split: SplitByField | None = None

    @property
    def pattern(self) -> str | None:
        """The pattern that made the table, if one did."""
        return None if self.route is None else self.route.pattern

    @property
    def named_by(self) -> tuple[tuple[str | None, ...], ...]:
        """The values that named the table in its pattern."""
        return () if self.route is None else self.route.values

    @property
    def drifted_fields(self) -> int:
        """The number of fields that drifted; one in two places counts once."""
        return len({field.keys or field.path for field in self.drifted})

    @property
    def waiting_values(self) -> int:
        """The number of values waiting in the rest, as far as its paths are listed."""
        return sum(entry.values for entry in self.rest)

    def only(self, *patterns: str) -> Stats:
        """The statistics of the columns whose path, or the field they evolved from, `fits` one of these."""
        columns = tuple(
            c
            for c in self.columns
            if any(fits(text, pattern) for text in (dotted(c.path), origin(c) or "") for pattern in patterns)
        )
        paths = {column.path for column in columns}
        drifted = tuple(d for d in self.drifted if any(p in paths for part in d.parts for p in part.columns))
        return replace(self, columns=columns, drifted=drifted)

    def to_dict(self) -> StatsJson:
        """The form that `--json` prints."""
        return as_json(
            StatsJson,
            self,
            at=None if self.at is None else iso(self.at),
            records_at_most=self.at_most,
            leaf_columns=self.leaves,
            small_files=None if self.files is None else self.sizes.small,
            partitions=None if self.files is None else self.sizes.partitions,
            largest_partitions=self.sizes.largest,
            deleted_rows=self.deleted,
            recent_batches=self.recent,
            changes=self.events,
            history_is_whole=self.whole,
            quarantine=self.waiting,
        )


def origin(column: ColumnStatistics) -> str | None:
    """The field of the data that an evolved column holds, with the path to it."""
    return None if column.key is None else dotted((*column.path[:-1], column.key))
