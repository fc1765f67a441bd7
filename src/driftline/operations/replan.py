"""`replan`: the columns that a table would have, had all of its records come in one batch.

The records are its rows, turned back into JSON, with what waits in the rest and in quarantine. They go the
way of any batch, observed in tasks and planned for an empty table, so there is no second set of rules.

To apply it, the rows are written with the new columns beside the old ones, which are dropped in the same
commit, so `undo` restores them like any dropped column.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.records import RowRecords, is_declared
from driftline.convert.replanner import ColumnSwap, Replanner
from driftline.convert.types import DEEPEST
from driftline.convert.witnesses import Witnesses, needed_rows
from driftline.core.changes import apply, diff
from driftline.core.columns.replanning import (
    Replanned,
    ReplannedField,
    ReplanRequest,
    fills,
    fixed_fields,
    replanned,
    settings_of_rows,
)
from driftline.core.history.entries import of_replan
from driftline.core.planning.own_columns import field_of, keys_of, rest_column
from driftline.core.planning.plan import Plan
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Path, Schema, dotted, mark_unwritable
from driftline.core.settings.condition import Expectation
from driftline.core.settings.fields import spelled_path
from driftline.core.settings.properties import from_properties
from driftline.core.settings.table import TableSettings
from driftline.core.support import as_json, deep_recursion
from driftline.errors import UsageError, no_table
from driftline.formats.base import CatalogTable, Moved, State
from driftline.formats.commit import Retry, rewriting
from driftline.ingest.accept import accepted
from driftline.ingest.batch import RecentBatches
from driftline.ingest.rewrite import check_readable
from driftline.operations.replay import explaining, replay
from driftline.operations.split_columns import Counts, ValueCounter, counted_values
from driftline.operations.table_rows import RowSource
from driftline.quarantine.pending import Pending, quarantined
from driftline.readers.json.rows import JsonRows, Run
from driftline.readers.rejects import Origin, Origins, Reject
from driftline.runtime.shown import Shown
from driftline.runtime.spark_conf import FILES, LOOK, configured
from driftline.sources.scan import BatchScan, Observed, ScanRequest
from driftline.sources.texts import PlainTexts, TextReader, Texts
from driftline.sql.lost import waiting
from driftline.sql.quoting import any_value
from driftline.tasks.run import Batches, FrameTasks, converted
from driftline.write.positions import CHANGED, ROW_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.keys.anew import RowsLeft
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
    replayed: int
    fields: list[ReplannedFieldJson]
    stay: list[ReplannedFieldJson]
    snapshot: int | None
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
        replayed: the number of quarantined records that the table has taken since.
    """

    table: str
    dry_run: bool
    rows: int
    quarantined: int
    fields: tuple[CountedField, ...]
    stay: tuple[CountedField, ...]
    notes: tuple[str, ...] = ()
    replayed: int = 0
    snapshot: int | None = None

    def to_dict(self) -> ReplanJson:
        """The form that `--json` prints."""
        return as_json(ReplanJson, self, fields=self.fields, stay=self.stay)


def replan(
    table: CatalogTable,
    paths: Sequence[str] = (),
    *,
    narrow: bool = False,
    apply: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Replan:
    """Plan all records of a table at once, by the rules, settings and hints of today.

    Args:
        table: the table.
        paths: the fields that may get other columns, with all below them; all fields by default.
        narrow: types may become narrower than now.
        apply: give the table these columns, in one commit, and replay its quarantine behind it; else, nothing
            is written. If others change the table, it is planned again.
        progress: called with each phase.

    Raises:
        UsageError: there is no such table, or a path is none.
        DataError: Spark cannot read its rows, or one batch would refuse some of them; nothing is changed.
    """
    try:
        chosen = [keys_of(field_of(path)) for path in paths]
    except ValueError as error:
        raise UsageError(str(error), "driftline schema shows the fields") from error

    def attempt() -> Replan:
        """Plan the table as it is now."""
        state = table.load()
        if not state.exists:
            raise no_table(table.name)
        with explaining(table.name):
            check_readable(table, state.schema)
            if apply:
                return _applied(table, state, chosen, retry, narrow=narrow)
            rows = RowSource(table.read(), state.schema.struct, _live_rows(table, state))
            run = _ReplanRun.of(table, state, rows, progress)
            return run.report(run.outcome(chosen, narrow=narrow))

    retry = Retry(table.name, progress)
    with configured(table.spark, {**FILES, **LOOK}):
        outcome = retry.run(attempt)
    if not (apply and outcome.quarantined):
        return outcome
    progress("replaying")
    return replace(outcome, replayed=replay(table, progress=progress).written)


def _applied(
    table: CatalogTable, state: State, chosen: Sequence[Path], retry: Retry, *, narrow: bool
) -> Replan:
    """Give the table the columns that one batch would make, as far as they are other ones than now."""
    with rewriting(table, state, retry) as rewrite:
        rows = RowSource(rewrite.rows, state.schema.struct, rewrite.transaction.live_rows())
        run = _ReplanRun.of(table, state, rows, retry.progress)
        outcome = run.outcome(chosen, narrow=narrow)
        run.check(outcome)
        report = replace(run.report(outcome), dry_run=False)
        if not outcome.fields:
            return report
        retry.progress("writing")
        transaction = rewrite.transaction
        swap = ColumnSwap.of(state.schema, outcome.plan, outcome.fields, run.settings.mark)
        transaction.evolve(swap.added)
        between = transaction.schema
        replanner = Replanner.of(swap, outcome.plan, between, run.settings_of(outcome))
        columns = {(column.path[0],) for field in outcome.fields for column in field.now}
        columns |= {(old,) for old in (swap.rest or ())[:1] if old is not None}
        ids = table.row_ids(any_value(sorted(columns)))

        def anew(rows: DataFrame) -> DataFrame:
            """The rows with the new columns; their ids stay."""
            return converted(rows.selectExpr("*", *ids), replanner.before, replanner.rows, between.struct)

        def check(appended: DataFrame) -> None:
            """Take in rows that others appended meanwhile. Raises Moved if they need another plan."""
            nonlocal run
            all_rows = run.source.rows.unionByName(appended)
            run = replace(run, source=RowSource(all_rows, state.schema.struct), counts={})
            now = run.outcome(chosen, narrow=narrow)
            if (now.plan.schema, fills(now.plan.route)) != (outcome.plan.schema, fills(outcome.plan.route)):
                raise Moved("what others have appended meanwhile would have other columns")

        waiting_fields = [counted.field.path for counted in report.fields if counted.waiting]
        sources = swap.sources(state.schema, between, waiting_fields)
        convert = partial(_anew, replanner, tuple(sorted(top for (top,) in columns)))
        in_tasks = None if rows.live is None else (rows.live, convert)
        rewrite.replace(anew, {"driftline.replan": "true"}, check, sources, in_tasks)
        transaction.evolve(diff(between, swap.after(between)))  # type: ignore[arg-type]
        transaction.set(of_replan(" ".join(spelled_path(field.path) for field in outcome.fields)))
        retry.progress("committing")
    return replace(report, snapshot=rewrite.transaction.snapshot)


def _live_rows(table: CatalogTable, state: State) -> RowsLeft | None:
    """The rows of a table that is only read, for tasks; None if Spark alone reads them."""
    try:
        return table.transaction(state).live_rows()
    except UsageError:  # it cannot be written
        return None


def _anew(replanner: Replanner, changed: Sequence[str], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with the new columns; behind them their ids and last changes, if they have any.

    ``changed``: the columns that go; a row that has a value of one changes.
    """
    own_count = len(replanner.before.fields)
    before, beside = batch.select(range(own_count)), batch.columns[own_count:]
    rows = replanner.rows(before)
    if not beside:
        return rows
    has_value = [before.column(name).is_valid() for name in changed]
    row_ids, changes = beside
    if has_value:
        changes = pc.if_else(reduce(pc.or_, has_value), None, changes)
    return rows.append_column(ROW_ID, row_ids).append_column(CHANGED, changes)


@dataclass(frozen=True, slots=True)
class _ReplanRun:
    """One replan.

    Attributes:
        settings: those of the table.
        source: its rows.
        quarantined: what waits in its quarantine, with the reader of its texts; None if nothing does.
        counts: the numbers of values in the columns that have been compared, by path.
    """

    table: CatalogTable
    state: State
    settings: TableSettings
    source: RowSource
    quarantined: tuple[DataFrame, Texts] | None
    progress: Callable[[str], None]
    counts: dict[Path, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, table: CatalogTable, state: State, source: RowSource, progress: Callable[[str], None]
    ) -> _ReplanRun:
        """Open a table."""
        settings = replace(from_properties(state.properties), as_text=table.as_text)
        waiting_records = None if _opens_envelopes(settings) else _waiting_records(table)
        return cls(table, state, settings, source, waiting_records, progress)

    def outcome(self, chosen: Sequence[Path], *, narrow: bool) -> Replanned:
        """Plan all records."""
        schema = mark_unwritable(self.state.schema, self.table.fillable(self.state.schema))
        uses = {id_: use.why for id_, use in self.table.definition().column_uses().items()}
        fixed = fixed_fields(self.state.schema.struct, self.settings, uses)
        request = ReplanRequest(schema, self.settings.mark, fixed, is_declared, chosen, narrow)
        return replanned(request, self._plan, self._inexact)

    def report(self, outcome: Replanned) -> Replan:
        """Count the values of the fields."""
        fields, stay = outcome.fields, outcome.stay
        counts = self._counts_of([*fields, *stay])
        waits = waiting(self.source.rows, self.state.schema, self.settings.mark)
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

    def check(self, outcome: Replanned) -> None:
        """Raise DataError if one batch would refuse some row."""
        if outcome.plan.conflicts:
            settings = replace(self.settings_of(outcome), on_conflict="fail")
            self._accepted(outcome.plan.before, settings, with_quarantine=False)

    def settings_of(self, outcome: Replanned) -> TableSettings:
        """The settings by which an outcome was planned."""
        return settings_of_rows(self.settings, outcome.excluded)

    def _plan(self, before: Schema, excluded: frozenset[Path]) -> Plan:
        """Plan all records for a table with these columns, without some fields."""
        return self._accepted(before, settings_of_rows(self.settings, excluded), with_quarantine=True)

    def _accepted(self, before: Schema, settings: TableSettings, *, with_quarantine: bool) -> Plan:
        self.progress("observing")
        request = ScanRequest(before, settings)
        records = RowRecords(self.state.schema.struct, self.settings.mark, self.settings.fields)
        scan = _ReplanScan(
            request,
            request.terms,
            self.source,
            _RecordsOfRows(records, Witnesses()),
            self.quarantined if with_quarantine else None,
            self.settings.expect,
        )
        return accepted(scan, RecentBatches(), self.progress)[1]

    def _inexact(self, planned: Plan, fields: Sequence[ReplannedField]) -> set[Path]:
        """The fields with a value that would not read back as it is."""
        self.progress("comparing")
        names = {column.path[0] for field in fields for column in (*field.now, *field.then)}
        if (rest_field := rest_column(self.state.schema.struct)) is not None:
            names.add(rest_field.name)
        source = self.source.having(names)
        now = replace(self.state.schema, struct=source.struct, identifiers=frozenset())
        swap = ColumnSwap.of(now, planned, fields, self.settings.mark)
        replanner = Replanner.of(swap, planned, apply(now, swap.added), settings_of_rows(self.settings))
        with deep_recursion(DEEPEST):  # the plan is sent with the task
            frame, read = source.for_tasks()
            compared = frame.mapInArrow(partial(_compared, replanner, read), "outcome binary").collect()
        by_task = [pickle.loads(row.outcome) for row in compared]  # noqa: S301  our own bytes
        sums = Counter[Path]()
        for _, counts in by_task:
            sums.update(counts)
        self.counts.update(sums)
        return {path for paths, _ in by_task for path in paths}

    def _counts_of(self, fields: Sequence[ReplannedField]) -> Counts:
        """The numbers of values in the columns of the fields, and of the rows."""
        names = {column.path[0] for field in fields for column in field.now}
        names -= {path[0] for path in self.counts if path}
        if self.counts and not names:
            return self.counts
        self.progress("counting")
        columns = self.source.having(names)
        return {**self.counts, **counted_values(columns.rows, columns.struct)[0]}

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


def _counted(
    field: ReplannedField, counts: Counts, waiting_values: Sequence[tuple[Path, int]]
) -> CountedField:
    """A field with the numbers of its values."""
    keys = keys_of(field.path)
    waits = sum(count for path, count in waiting_values if path[: len(keys)] == keys)
    return CountedField(field, tuple(counts.get(column.path, 0) for column in field.now), waits)


def _compared(
    replanner: Replanner, read: Callable[[Batches], Batches], task_input: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the fields whose values the new columns would not hold, and all counts, once for a task."""
    paths: set[Path] = set()
    counter = ValueCounter(1)
    for batch in read(task_input):
        of_rows = np.zeros(batch.num_rows, np.int64)
        counter.add((), of_rows)
        for f, column in zip(replanner.before.fields, batch.columns, strict=True):
            counter.count(column, f.type, (f.name,), of_rows)
        paths |= replanner.faults(batch)
    counts = {path: int(by_table[0]) for path, by_table in counter.counts.items()}
    outcome = pickle.dumps((paths, counts))
    yield pa.RecordBatch.from_arrays([pa.array([outcome], pa.binary())], ["outcome"])


@dataclass(frozen=True, slots=True)
class _RecordsOfRows(PlainTexts):
    """The records of rows, as texts.

    Attributes:
        witnesses: leaves out the rows that add nothing to those before; None where each record is judged.
    """

    records: RowRecords
    witnesses: Witnesses | None

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The records of a batch."""
        rows = batch if self.witnesses is None else needed_rows(self.records, batch, self.witnesses)
        for reading in self.records.readings():
            lines = reading.lines(rows)
            yield Run(lines, "", 1, partial(_reject, lines), None, Origins(Origin()))


def _reject(lines: Sequence[bytes], place: int, why: Why) -> Reject:
    return Reject(Origin(), lines[place], why)


@dataclass(frozen=True, slots=True)
class _ReplanScan(BatchScan):
    """Rows and quarantined records, to be observed together.

    Attributes:
        rows: those of the table.
        records: reads the records of these.
        quarantined: what waits in quarantine, with the reader of its texts.
        expect: what is expected of quarantined records; rows are in the table, whatever they meet.
    """

    rows: RowSource
    records: _RecordsOfRows
    quarantined: tuple[DataFrame, Texts] | None
    expect: Sequence[Expectation] = ()

    def _guess(self, last: Observation | None) -> Observed | None:
        return None

    def _tasks(self, conversion: JsonRows | None) -> FrameTasks:
        # Where records are refused one by one, all rows are looked at.
        records = replace(self.records, witnesses=None) if self.terms.refuse else self.records
        frames = [self.rows.tasks(TextReader(records, self.terms))]
        if self.quarantined is not None:
            frame, texts = self.quarantined
            aside = tuple(expectation for expectation in self.expect if expectation.action == "quarantine")
            terms = replace(self.terms, settings=replace(self.terms.settings, expect=aside))
            frames.append((frame, TextReader(texts, terms)))
        return FrameTasks(frames)
