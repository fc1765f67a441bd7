"""`replan`: the columns that a table would have, had all of its records come in one batch.

The records are its rows, turned back into JSON, with what waits in the rest and in quarantine. They go the
way of any batch, observed in tasks and planned for an empty table, so there is no second set of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from driftline.convert.records import RowRecords, is_declared
from driftline.convert.spark import from_spark
from driftline.core.columns.replanning import (
    ReplannedField,
    replanned,
    roles,
    settings_of_rows,
)
from driftline.core.planning.own_columns import field_of, keys_of
from driftline.core.planning.plan import Plan
from driftline.core.planning.policies import policy_of
from driftline.core.schema.naming import data_key
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import (
    List,
    Path,
    Schema,
    Struct,
    Type,
    children,
    dotted,
    mark_unwritable,
)
from driftline.core.settings.properties import from_properties
from driftline.core.settings.table import TableSettings
from driftline.core.support import as_json
from driftline.errors import UsageError, no_table
from driftline.formats.base import CatalogTable, State
from driftline.ingest.accept import accepted
from driftline.ingest.batch import RecentBatches
from driftline.ingest.rewrite import check_readable
from driftline.operations.replay import explaining
from driftline.operations.split_columns import Counts, counted_values
from driftline.quarantine.pending import Pending, quarantined
from driftline.readers.json.rows import JsonRows, Run
from driftline.readers.rejects import Origin, Origins, Reject
from driftline.runtime.shown import Shown
from driftline.runtime.spark_conf import FILES, LOOK, configured
from driftline.sources.scan import BatchScan, Observed, ScanRequest
from driftline.sources.texts import PlainTexts, TextReader, Texts
from driftline.sql.lost import waiting
from driftline.sql.quoting import name
from driftline.tasks.run import FrameTasks, numbered

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from driftline.observe.json_lines import Why
    from driftline.observe.observation import Observation


class PlannedColumnJson(TypedDict):
    """A column that a field would have."""

    path: str
    type: str


class HeldColumnJson(PlannedColumnJson):
    """A column that a field has, with the number of its values."""

    values: int


class ReplannedFieldJson(TypedDict):
    """A field that would have other columns. ``waiting``: the number of its values in the rest."""

    field: str
    now: list[HeldColumnJson]
    then: list[PlannedColumnJson]
    waiting: int
    why: str


class ReplanJson(TypedDict):
    """The columns of a table, had all of it come in one batch. ``stay``: fields that keep theirs, and why."""

    table: str
    dry_run: bool
    rows: int
    quarantined: int
    fields: list[ReplannedFieldJson]
    stay: list[ReplannedFieldJson]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class CountedField:
    """A field that would have other columns than now.

    Attributes:
        values: the number of values in each of its columns of now.
        waiting: the number of its values in the rest.
    """

    field: ReplannedField
    values: tuple[int, ...]
    waiting: int = 0

    def to_dict(self) -> ReplannedFieldJson:
        """The form that `--json` prints."""
        field = self.field
        columns = zip(field.now, self.values, strict=True)
        return {
            "field": dotted(field.path),
            "now": [{"path": dotted(c.path), "type": type_name(c.type), "values": n} for c, n in columns],
            "then": [{"path": dotted(c.path), "type": type_name(c.type)} for c in field.then],
            "waiting": self.waiting,
            "why": field.why,
        }


@dataclass(frozen=True, slots=True, repr=False)
class Replan(Shown):
    """The columns of a table, had all of its records come in one batch.

    Attributes:
        rows: their number.
        quarantined: the number of records that wait in quarantine and are records.
        fields: those that would have other columns.
        stay: those that would, but keep theirs, and why.
    """

    table: str
    dry_run: bool
    rows: int
    quarantined: int
    fields: tuple[CountedField, ...]
    stay: tuple[CountedField, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> ReplanJson:
        """The form that `--json` prints."""
        return as_json(ReplanJson, self, fields=self.fields, stay=self.stay)


def replan(
    table: CatalogTable,
    paths: Sequence[str] = (),
    *,
    narrow: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Replan:
    """Plan all records of a table at once, by the rules, settings and hints of today; nothing is written.

    Args:
        table: the table.
        paths: the fields to show, with all below them; all fields by default.
        narrow: types may become narrower than now.
        progress: called with each phase.

    Raises:
        UsageError: there is no such table, or a path is none.
        DataError: Spark cannot read its rows.
    """
    try:
        chosen = [keys_of(field_of(path)) for path in paths]
    except ValueError as error:
        raise UsageError(str(error), "driftline schema shows the fields") from error
    state = table.load()
    if not state.exists:
        raise no_table(table.name)
    with configured(table.spark, {**FILES, **LOOK}), explaining(table.name):
        check_readable(table, state.schema)
        return _ReplanRun.of(table, state, progress).run(chosen, narrow=narrow)


@dataclass(frozen=True, slots=True)
class _ReplanRun:
    """One replan.

    Attributes:
        settings: those of the table.
        rows: its rows.
        quarantined: what waits in its quarantine, with the reader of its texts; None if nothing does.
    """

    table: CatalogTable
    state: State
    settings: TableSettings
    rows: DataFrame
    quarantined: tuple[DataFrame, Texts] | None
    progress: Callable[[str], None]

    @classmethod
    def of(cls, table: CatalogTable, state: State, progress: Callable[[str], None]) -> _ReplanRun:
        """Open a table."""
        settings = replace(from_properties(state.properties), as_text=table.as_text)
        waiting_records = None if _opens_envelopes(settings) else _waiting_records(table)
        return cls(table, state, settings, table.read(), waiting_records, progress)

    def run(self, chosen: Sequence[Path], *, narrow: bool) -> Replan:
        """Plan, compare, and count."""
        schema = mark_unwritable(self.state.schema, self.table.fillable(self.state.schema))
        fixed = self._fixed()
        outcome = replanned(schema, self.settings.mark, fixed, is_declared, self._plan, narrow=narrow)
        fields = [f for f in outcome.fields if _is_chosen(f.path, chosen)]
        stay = [f for f in outcome.stay if _is_chosen(f.path, chosen)]
        self.progress("counting")
        counts = counted_values(*self._columns_of([*fields, *stay]))[0]
        waits = waiting(self.rows, self.state.schema, self.settings.mark)
        waiting_values = [(keys_of(field_of(values.path)), values.values) for values in waits]
        counted_fields = [_counted(field, counts, waiting_values) for field in (*fields, *stay)]
        return Replan(
            self.table.name,
            True,
            counts.get((), 0),
            0 if self.quarantined is None else self.quarantined[0].count(),
            tuple(counted_fields[: len(fields)]),
            tuple(counted_fields[len(fields) :]),
            tuple(self._notes(outcome.plan)),
        )

    def _fixed(self) -> dict[Path, str]:
        """The fields that keep their columns, by keys of the data, and why."""
        uses = self.table.definition().column_uses()
        fields = dict(_fields_by_id(self.state.schema.struct, self.settings.mark))
        settings = self.settings.fields
        policies = {path: settings.at(path).policy for path in fields.values()}
        return {
            **{fields[id_]: use.why for id_, use in uses.items() if id_ in fields},
            **{path: f"it is part of the {role}" for path, role in roles(settings)},
            **{path: f"its policy is {p}" for path, p in policies.items() if not policy_of(p).makes_columns},
        }

    def _plan(self, before: Schema) -> Plan:
        """Plan all records for a table with these columns."""
        self.progress("observing")
        request = ScanRequest(before, settings_of_rows(self.settings))
        rows = RowRecords(self.state.schema.struct, self.settings.mark)
        frames: list[tuple[DataFrame, Texts]] = [(numbered(self.rows), _RecordsOfRows(rows))]
        if self.quarantined is not None:
            frames.append(self.quarantined)
        _, planned = accepted(
            _ReplanScan(request, request.terms, tuple(frames)), RecentBatches(), self.progress
        )
        return planned

    def _columns_of(self, fields: Sequence[ReplannedField]) -> tuple[DataFrame, Struct]:
        """The rows with the columns that the fields are in."""
        names = {column.path[0] for field in fields for column in field.now}
        struct = Struct(tuple(f for f in self.state.schema.struct.fields if f.name in names))
        return self.rows.select(*(name(f.name) for f in struct.fields)), struct

    def _notes(self, planned: Plan) -> Iterator[str]:
        """Notes on what one batch would not take."""
        for conflict in planned.conflicts:
            yield f"records are left out that one batch would refuse: {conflict.in_words} ({conflict.why})"
        if _opens_envelopes(self.settings) and _waiting_records(self.table) is not None:
            yield "what waits in quarantine is left out: it is messages, not records"


def _opens_envelopes(settings: TableSettings) -> bool:
    return settings.row_key is not None and bool(settings.row_key.envelope)


def _waiting_records(table: CatalogTable) -> tuple[DataFrame, Texts] | None:
    """The records that wait in the quarantine; None if there is none."""
    pending = Pending.of(table)
    if pending is None:
        return None
    rows = pending.rows().where(pending.waits).where(pending.ready)
    scan = quarantined(rows).open(Schema(), TableSettings())
    return scan.frame, scan.texts


def _is_chosen(path: Path, chosen: Sequence[Path]) -> bool:
    return not chosen or any(
        path[: len(prefix)] == prefix or prefix[: len(path)] == path for prefix in chosen
    )


def _counted(
    field: ReplannedField, counts: Counts, waiting_values: Sequence[tuple[Path, int]]
) -> CountedField:
    """A field with the numbers of its values."""
    keys = keys_of(field.path)
    waits = sum(count for path, count in waiting_values if path[: len(keys)] == keys)
    return CountedField(field, tuple(counts.get(column.path, 0) for column in field.now), waits)


def _fields_by_id(type_: Type, mark: str, path: Path = ()) -> Iterator[tuple[int, Path]]:
    """Yield the ids of columns, each with its field's path by keys of the data."""
    for f in children(type_):
        key = data_key(f, mark) if isinstance(type_, Struct) else f.name
        field_path = path if isinstance(type_, List) else (*path, key)
        yield f.id, field_path
        yield from _fields_by_id(f.type, mark, field_path)


@dataclass(frozen=True, slots=True)
class _RecordsOfRows(PlainTexts):
    """The records of rows, as texts."""

    records: RowRecords

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The records of a batch."""
        rows = from_spark(batch, self.records.struct)
        for reading in self.records.readings():
            lines = reading.lines(rows)
            yield Run(lines, "", 1, partial(_reject, lines), None, Origins(Origin()))


def _reject(lines: Sequence[bytes], place: int, why: Why) -> Reject:
    return Reject(Origin(), lines[place], why)


@dataclass(frozen=True, slots=True)
class _ReplanScan(BatchScan):
    """Rows and quarantined records, to be observed together.

    Attributes:
        frames: each with the reader of its texts.
    """

    frames: Sequence[tuple[DataFrame, Texts]]

    def _guess(self, last: Observation | None) -> Observed | None:
        return None

    def _tasks(self, conversion: JsonRows | None) -> FrameTasks:
        return FrameTasks([(frame, TextReader(texts, self.terms)) for frame, texts in self.frames])
