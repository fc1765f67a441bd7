"""Runs one batch: open, speculate, observe, plan, write, confirm, quarantine, commit, report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from driftline.core.changes import AddColumn
from driftline.core.columns.statistics import violated
from driftline.core.history.batch_properties import FEED, WAITED, BatchIsInError, first_seen
from driftline.core.history.entries import of_batch
from driftline.core.planning.own_columns import rest_column
from driftline.core.planning.plan import Plan, same_rows
from driftline.core.planning.shape import RecordShape, without_excluded
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError, DriftlineError
from driftline.files.whole import StagedRows
from driftline.formats.base import CommitConflict, Moved, State, Transaction
from driftline.formats.commit import commit_all
from driftline.ingest.accept import accepted, fail_of_expectation, unreadable
from driftline.ingest.batch import BatchRequest, Planned, outcome, paths_of_rest, rest_of
from driftline.ingest.compaction import compact_behind
from driftline.ingest.result import Result, result
from driftline.ingest.rewrite import lossy, rewritten
from driftline.keys.settle import KeyCounts
from driftline.quarantine import table as quarantine
from driftline.quarantine.replays import is_replay
from driftline.sources.scan import BatchScan, Observed
from driftline.write import BatchFolder, TaskResult, WrittenFile, folder_of_batch

_OFTEN = 2  # conflicts per batch
# Concurrent ALTERs take the ids in between, and files that are already written stay valid.
_ROOM = 1000  # ids of columns
# A look at all of its files takes a while, so a table is looked at each time that it has so many more.
_MANY_FILES = 8


class SpeculationFailed(Exception):
    """The batch does not match the speculated plan; read it again by a plan for what was ``observed``."""

    def __init__(self, observed: Observed) -> None:
        super().__init__("the batch does not match the speculated plan")
        self.observed = observed


class Misread(Exception):
    """The records written differ from the records observed."""


@dataclass(frozen=True, slots=True)
class Written:
    """Rows that are written but not yet committed.

    Attributes:
        rows: their number; of a table with a key, that of the changes.
        results: of the tasks that made them; None if Spark handed the rows over.
    """

    rows: int
    results: Sequence[TaskResult[Any]] | None = None

    @property
    def diverged(self) -> bool:
        """True if a task met records that its plan does not cover, and stopped making rows."""
        return any(result.diverged for result in self.results or ())

    @property
    def waiting(self) -> Counter[str] | None:
        """The number of values by path in the rest; None unless the tasks wrote the table's files."""
        counts: Counter[str] = Counter()
        for task in self.results or ():
            if not isinstance(task.files, list) or not all(isinstance(f, WrittenFile) for f in task.files):
                return None
            for file in task.files:
                counts.update(file.waiting)
        return None if self.results is None else counts


@dataclass(slots=True)
class BatchRun:
    """One attempt to ingest a batch into its table as it was loaded.

    Nothing is visible before `Prepared.commit`.

    Attributes:
        batch: what is the same at each attempt.
        state: the table as it was loaded.
        settings: of the batch, for that table.
        tried: the quarantine had the batch from an attempt that did not end.
        scan: the last scan of the batch, parts of which the next one may use.
        observed: the last observation of all records, in this attempt or one before it.
    """

    batch: BatchRequest
    state: State
    settings: TableSettings
    tried: bool = False
    scan: BatchScan | None = None
    observed: Observed | None = None

    def prepare(self, *, speculates: bool) -> Prepared:
        """Write the batch and its rejects, visible to nobody.

        Args:
            speculates: read the batch once, by a likely plan, if there is one.
        """
        if speculates:
            try:
                if (planned := self.speculate(self.open())) is not None:
                    return self.write(planned, speculated=True)
            except SpeculationFailed as failed:
                # Its observation is of all records, so only the rows are left to be read for.
                self.observed = failed.observed
        return self.write(self.plan(self.open()))

    def dry_run(self) -> Result:
        """Plan the batch, and write nothing."""
        planned = self.plan(self.open())
        return replace(outcome(planned, 0, 0, None, paths_of_rest(planned.plan)), dry_run=True)

    def open(self) -> BatchScan:
        """Open the batch in its present state for the table."""
        batch, state = self.batch, self.state
        batch.progress("observing")
        self.scan = batch.source.open(batch.open(state), self.settings, self.scan)
        return self.scan

    def speculate(self, scan: BatchScan) -> Planned | None:
        """Plan the batch by a likely observation; None if there is none."""
        batch = self.batch
        observed = scan.guess(batch.recent.observation(scan))
        if observed is None:
            return None
        batch.progress("planning")
        plan = self._plan_of(observed)
        if plan.conflicts or plan.rewrites or not plan.schema.struct.fields:
            return None
        if scan.with_declared_values(plan.schema) is not None:  # it has to be observed again
            return None
        try:
            batch.new_definition(self.state, plan)
        except DriftlineError:  # all of the batch may have what its beginning lacks
            return None
        return Planned(batch, self.state, observed, plan)

    def plan(self, scan: BatchScan) -> Planned:
        """Observe the batch, and plan it without the records that are refused.

        Raises:
            DataError: the batch cannot go into the table.
        """
        batch = self.batch
        before = self.observed if self.observed and self.observed.answers(scan.request) else None
        self.observed, plan = accepted(
            scan, batch.recent, batch.progress, partial(lossy, batch.table), before
        )
        planned = Planned(batch, self.state, self.observed, batch.with_own(plan, self.observed.observation))
        batch.new_definition(self.state, planned.plan)  # that it can be made
        self.check(planned)
        return planned

    def _plan_of(self, observed: Observed) -> Plan:
        """Plan all that was observed, with nothing refused."""
        scan, observation = observed.scan, observed.observation
        shape = without_excluded(observation.shape, scan.settings.fields)
        recent = self.batch.recent
        return self.batch.with_own(recent.plan(scan.schema, shape, scan.settings), observation)

    def check(self, planned: Planned) -> None:
        """Raise DataError for a plan that the table cannot take; a table without a key takes any."""

    def write(self, planned: Planned, *, speculated: bool = False) -> Prepared:
        """Write the batch's rows, and its rejects into the quarantine.

        Args:
            planned: the batch with its plan.
            speculated: the plan is to be confirmed.

        Raises:
            SpeculationFailed: the speculated plan is wrong.
            Misread: other records were read than observed.
        """
        batch = self.batch
        batch.progress("writing")
        if not planned.plan.schema.struct.fields:
            return self._without_columns(planned)
        if planned.is_empty:
            return Prepared(planned)
        planned, transaction = _begin(planned)
        prepared = PreparedRows(planned, run=self, transaction=transaction)
        with prepared.abandoned_on_error():
            if transaction.base is not None:
                # Even a mere append commits to no other state: a `resolve` in between leaves other columns.
                if transaction.base.version != planned.state.version:
                    batch.check(transaction.base)
                transaction.evolve(planned.plan.changes, _ids_after(planned))
            with folder_of_batch(batch.table.spark, transaction) as folder:
                written = self.write_rows(transaction, planned, folder)
                if speculated:
                    planned = self.confirm(planned, written)
                prepared.planned = planned = self.settle(transaction, planned)
                prepared.waiting = written.waiting
                prepared.rejects = self.quarantine(planned, written)
            if planned.is_empty:
                transaction.abandon()
                return Prepared(planned)
            prepared.rows = written.rows
            prepared.check_counts()
        return prepared

    def write_rows(self, transaction: Transaction, planned: Planned, folder: BatchFolder | None) -> Written:
        """Have the source's tasks write the batch's rows, through the ``folder``."""
        if planned.plan.rewrites:
            return Written(rewritten(transaction, planned, summary(planned)))
        if planned.brings_nothing:
            return Written(0)
        tasks = planned.tasks(transaction.row_type)
        return Written(transaction.write(tasks, folder, summary(planned)), tasks.results)

    def confirm(self, speculated: Planned, written: Written) -> Planned:
        """Plan the batch again from everything that the tasks observed while they wrote rows.

        Raises:
            SpeculationFailed: the speculated plan would have made other columns or other rows.
        """
        batch, scan = self.batch, speculated.observed.scan
        # A guess costs at most a second read. It never decides: the plan from all records does.
        observed = scan.observe() if written.results is None else scan.merged(written.results)
        batch.recent.remember(observed)
        plan, tally = self._plan_of(observed), observed.observation.tally
        if tally.violations:
            fail_of_expectation(observed.observation, speculated.settings)
        fails = tally.rejected and speculated.settings.on_conflict == "fail"
        if (
            written.diverged
            or plan.conflicts
            or (fails and unreadable(observed.observation, speculated.settings))
        ):
            raise SpeculationFailed(observed)
        if plan.schema != speculated.plan.schema or not same_rows(plan.route, speculated.plan.route):
            raise SpeculationFailed(observed)
        if written.rows != tally.records:  # a file has changed meanwhile
            raise SpeculationFailed(observed)
        confirmed = replace(speculated, observed=observed, plan=plan)
        self.check(confirmed)
        return confirmed

    def settle(self, transaction: Transaction, planned: Planned) -> Planned:
        """Do nothing: each record of a table without a key is a row."""
        return planned

    def quarantine(self, planned: Planned, written: Written) -> quarantine.Staged | None:
        """Write the rejects into the quarantine; None if there are none."""
        if not planned.observation.tally.rejected:
            return None
        # If tasks reported no rejects, the whole batch is read again for them.
        scan, results = planned.observed.scan, written.results
        rejected = scan.rejected() if results is None else scan.rejects(results)
        return quarantine.stage(self.batch.table, rejected, self.batch.id, self.batch.token)

    def properties(self, planned: Planned) -> dict[str, str]:
        """The table properties that the batch sets, besides that it is in and who brought it."""
        since: Mapping[str, str] = {}
        if paths := paths_of_rest(planned.plan):
            begins = rest_column(planned.state.schema.struct) is None
            since = first_seen(planned.state.properties, paths, self.batch.id, begins=begins)
        return {**since, **self._violated(planned)}

    def _violated(self, planned: Planned) -> dict[str, str]:
        """The properties that count records which are not as expected."""
        tally = planned.observation.tally
        # A record counts in the batch that it came with.
        if not tally.violations or is_replay(self.batch.id):
            return {}
        counts = {name: found.count for name, found in tally.violations.items()}
        return violated(planned.state.properties, self.batch.id, tally.records + tally.rejected, counts)

    def feed(self, planned: Planned) -> dict[str, str]:
        """The properties that a table without a column yet will have."""
        batch = self.batch
        return {
            **planned.state.properties,
            **batch.properties,
            **batch.beside,
            **self._violated(planned),
            **({WAITED: "true"} if batch.fingerprints.files else {}),
        }

    def _without_columns(self, planned: Planned) -> Prepared:
        """A table cannot be made without a column: the records wait in quarantine (2.4), and with them what
        the table will have.
        """
        feed, tally = self.feed(planned), planned.observation.tally
        if self.batch.token is not None and is_replay(self.batch.id):
            feed |= self.batch.token.properties
        is_told = not planned.state.exists and feed != planned.state.properties
        # Messages that are no change, such as heartbeats, bring no record, but are read by the settings.
        if planned.brings_nothing and not (is_told and tally.control_messages):
            return Prepared(planned, notes=planned.notes)
        rejects = _all_rejected(planned, "no columns yet", feed)
        return Prepared(planned, rejects, (*planned.notes, *([_NO_VALUE] if tally.records else ())))

    def set_aside(self, planned: Planned) -> Prepared:
        """Write all records of a micro-batch into the quarantine, because it failed its audit.

        Raises DataError for a truncate, which is no record and cannot wait there.
        """
        batch = self.batch
        self._must_be_records(planned)
        # A line that is no record stays one, whatever the batch is, so it keeps its own reason.
        # As a batch that changes nothing, of which each record is refused.
        nothing = batch.recent.plan(planned.plan.before, RecordShape(), planned.settings)
        nothing = replace(nothing, conflicts=planned.plan.conflicts)
        planned = replace(planned, plan=nothing, counts=planned.counts and KeyCounts())
        prepared, feed = Prepared(planned, notes=planned.notes), self.feed(planned)
        if planned.state.exists:
            planned, transaction = _begin(planned)
            prepared = PreparedRows(planned, run=self, transaction=transaction)
        elif batch.token is not None:
            # It waits, too: else a replay and another attempt could each bring the records.
            feed |= batch.token.table_properties(planned.state.properties)
        with prepared.abandoned_on_error():
            prepared.rejects = _all_rejected(planned, quarantine.AUDIT, feed)
            prepared.check_counts()
        return prepared

    def set_aside_unplanned(self) -> Prepared:
        """Write all records into the quarantine, as the table itself cannot take them."""
        batch, scan = self.batch, self.open()
        nothing = batch.recent.plan(scan.schema, RecordShape(), scan.settings)
        planned = Planned(batch, self.state, scan.observe(), nothing)
        self._must_be_records(planned)
        prepared = Prepared(planned, notes=planned.notes)
        if planned.brings_nothing:
            return prepared
        with prepared.abandoned_on_error():
            rejected = planned.observed.scan.rejected(everything=quarantine.TABLE)
            prepared.rejects = quarantine.stage(batch.table, rejected, batch.id)
            # In the commit of the records: whoever runs the command again, or another attempt at the
            # micro-batch, finds by it that they wait, and brings them no second time.
            prepared.rejects.transaction.remember(batch.remembered(self.state, {}))
            prepared.rejects.transaction.set(summary(planned) | (batch.token.waiting if batch.token else {}))
            # Where the table is gone, a replay makes one that is the pattern's again.
            kept = quarantine.of(batch.table).load().properties.get(FEED, "{}")
            prepared.rejects.transaction.set({FEED: json.dumps(json.loads(kept) | batch.beside)})
            prepared.check_counts()
        return prepared

    def _must_be_records(self, planned: Planned) -> None:
        """Raise DataError for a truncate, which is no record and cannot wait in quarantine."""
        if planned.observation.tally.truncated:
            raise DataError(
                f"{self.batch.table.name}: the batch truncates the table, so it cannot wait in quarantine",
                "let the batch fail instead: nothing then goes on behind it",
            )


_NO_VALUE = (
    "no record has a value, and a table needs a column: the records wait in quarantine, to be replayed once "
    "the table has one"
)


@dataclass(slots=True)
class Prepared:
    """A batch that is written whole and visible to nobody; here one that brings the table no rows.

    Attributes:
        planned: the batch, with the plan that holds.
        rejects: in the quarantine, once they are committed.
        notes: for a person.
        rows: the number of rows written; of a table with a key, that of the changes.
    """

    planned: Planned
    rejects: quarantine.Staged | None = None
    notes: Sequence[str] = ()
    rows: int = 0

    @property
    def invisible(self) -> bool:
        """True if nothing of it is visible, and certainly not."""
        return self.rejects is None or self.rejects.transaction.visible is False

    @property
    def quarantined(self) -> int:
        """The number of rejects."""
        return 0 if self.rejects is None else self.rejects.rows

    def check_counts(self) -> None:
        """Raise Misread unless each record that was observed is written or rejected."""
        tally = self.planned.observation.tally
        observed = tally.records + tally.rejected
        # A file may have changed between observing and reading; the table must then stay as it is.
        if self.rows + self.quarantined != observed:
            raise Misread(
                f"{observed} records were observed, {self.rows} were written and {self.quarantined} quarantined"
            )

    @contextmanager
    def abandoned_on_error(self) -> Iterator[None]:
        """Take back what is not visible, if anything fails."""
        try:
            yield
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Take back what is not visible."""
        if self.rejects is not None:
            self.rejects.transaction.abandon()

    def preview(self) -> Result:
        """Build the result that the batch has once it is committed, without a snapshot."""
        batch, planned = self.planned.batch, self.planned
        ended = result(batch.table.name, batch.id, planned.observation, planned.plan, 0, self.quarantined)
        ended = ended.with_expectations(planned.settings.expect, planned.observation)
        by_key = None if planned.settings.row_key is None else KeyCounts()
        return replace(ended, by_key=by_key, hints=(*ended.hints, *self.notes))

    def staged(self) -> tuple[State, StagedRows | None]:
        """Return the table as the commit leaves it, and those of its rows that show what the batch brings.

        In a table with a key, and in one that is rewritten, these are all. None if there is no table even
        then.
        """
        planned = self.planned
        state, batch, rows = planned.state, planned.batch, None
        if state.exists:
            frame = batch.table.read_readable()
            of_batch_alone = StagedRows(frame.limit(0), tuple)
            rows = (
                of_batch_alone
                if planned.settings.row_key is None
                else StagedRows(frame, batch.table.whole_files)
            )
        return replace(state, properties={**state.properties, **batch.properties, **batch.alone}), rows

    def commit(self) -> Result:
        """Make the batch visible, and report it."""
        with self.abandoned_on_error():
            self.begin_commit()
            commit_all(self.transactions, self.rebase, self.planned.batch.retry)
        return self.report()

    @property
    def transactions(self) -> Sequence[Transaction]:
        """Those that have to commit at once, behind `begin_commit`."""
        return [] if self.rejects is None else [self.rejects.transaction]

    def begin_commit(self) -> None:
        """Do all that comes before the commit of the `transactions`."""
        if self.rejects is not None:
            self.planned.batch.progress("quarantining")

    def rebase(self) -> None:
        """After a conflict, have the batch fit what is there now.

        Raises Moved if it has to be prepared again, BatchIsInError if another process has brought it.
        """
        if self.rejects is not None:
            self.rejects.rebase()

    def report(self) -> Result:
        """Report the batch, which is visible."""
        if self.rejects is not None:
            self.planned.batch.progress("committed")
        return self.preview()


@dataclass(slots=True, kw_only=True)
class PreparedRows(Prepared):
    """A batch with rows, which its transaction makes visible.

    Attributes:
        run: the attempt.
        transaction: of the table.
        waiting: the number of values by path in the rest, where tasks have counted them.
        location: the table's, once its commit begins.
    """

    run: BatchRun
    transaction: Transaction
    waiting: Mapping[str, int] | None = None
    location: str = ""

    @property
    def invisible(self) -> bool:
        """True if no row of it is visible, and certainly not; rejects are taken back with the rows."""
        return self.transaction.visible is False

    @contextmanager
    def abandoned_on_error(self) -> Iterator[None]:
        """Take back what is not visible, if anything fails."""
        try:
            yield
        except BatchIsInError:
            self.transaction.abandon()
            if self.rejects is not None:
                # Another process was faster; its rejects are in quarantine, unless they were forgotten here.
                self.rejects.withdraw(tried=self.run.tried)
            raise
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Take back what is not visible."""
        self.transaction.abandon()
        if self.rejects is not None and self.transaction.visible is False:
            self.rejects.undo()

    def preview(self) -> Result:
        """Build the result that the batch has once it is committed, without a snapshot."""
        planned = self.planned
        written = self.rows if planned.counts is None else planned.counts.written
        return outcome(planned, written, self.quarantined, None, paths_of_rest(planned.plan))

    def staged(self) -> tuple[State, StagedRows | None]:
        """Return the table as the commit leaves it, and rows.

        Raises CommitConflict if others have changed the table, UsageError if its format cannot show the rows.
        """
        planned, batch, transaction = self.planned, self.planned.batch, self.transaction
        before = planned.state.properties
        # The settings of this batch alone, too: they say how its files were read.
        set_ = {**batch.table_properties(planned.state), **self.run.properties(planned), **batch.alone}
        state = replace(planned.state, exists=True, schema=transaction.schema, properties={**before, **set_})
        has_key = planned.settings.row_key is not None
        if planned.plan.rewrites and not has_key:
            return state, transaction.staged()._replace(earlier=transaction.read().count())
        return state, transaction.staged(whole=has_key)

    @property
    def transactions(self) -> Sequence[Transaction]:
        """That of the rows, and of the rejects if both can commit at once."""
        return [self.transaction, *([] if self._together is None else [self._together.transaction])]

    @property
    def _together(self) -> quarantine.Staged | None:
        """The rejects that commit with the rows."""
        return self.rejects if self.transaction.commits_together else None

    def begin_commit(self) -> None:
        """Check the files, and set what the commit says of the batch; make the rejects visible."""
        batch, transaction = self.planned.batch, self.transaction
        batch.check_files()
        self.location = transaction.table_location
        batch_properties = batch.table_properties(self.planned.state)
        transaction.remember(batch.remembered(self.planned.state, batch_properties))
        transaction.set({**batch_properties, **self._author(), **self.run.properties(self.planned)})
        # Quarantine first: a crash between the two leaves a copy too many there, never one too few.
        # Iceberg has no commit over two tables.
        if self.rejects is not None and self._together is None:
            batch.progress("quarantining")
            self.rejects.commit(batch.retry)
        batch.progress("committing")

    def _author(self) -> Mapping[str, str]:
        if not (changes := self.planned.plan.changes):
            return {}
        counts = {} if self.planned.counts is None else self.planned.counts.outcomes
        if counts and self.rejects is not None:
            counts["quarantined"] = self.rejects.rows
        return of_batch(self.planned.batch.id, changes, counts)

    def rebase(self) -> None:
        """Have the rows fit the table as it is now, if the plan holds for it, and the rejects with them."""
        self.planned = self.planned.on(self.planned.batch.load())
        # They count on from what the other writer has left.
        self.transaction.set(self.run.properties(self.planned))
        self.planned.batch.progress("committing")
        self.transaction.rebase(self.planned.state)
        if self._together is not None:
            self._together.rebase()

    def report(self) -> Result:
        """Build the result of the committed batch."""
        planned, transaction, written = self.planned, self.transaction, self.rows
        changed = written
        if (counts := planned.counts) is not None:
            written, changed = counts.written, counts.written + counts.deleted + counts.truncated
        snapshot = transaction.snapshot if changed else None
        planned.batch.progress("committed")
        transaction.upkeep()
        if self.rejects is not None:
            self.rejects.transaction.upkeep()
        rest = rest_of(transaction, planned, self.waiting)
        ended = outcome(planned, written, self.quarantined, snapshot, rest)
        added, batch = transaction.written, planned.batch
        if planned.settings.compacts and added.passes(_MANY_FILES):
            ended = replace(ended, hints=(*ended.hints, *compact_behind(batch.table, batch.progress)))
        location = self.location if written else ""
        return replace(ended, location=location, files_written=added.files, bytes_written=added.bytes)


def summary(planned: Planned) -> dict[str, str]:
    """Return the properties of the batch's snapshot."""
    return {"driftline.batch": planned.batch.id}


def _all_rejected(planned: Planned, reason: str, feed: Mapping[str, str]) -> quarantine.Staged:
    """Write all records of a batch into the quarantine; those that are refused anyway keep their own reason.

    Args:
        planned: the batch.
        reason: of all others.
        feed: the properties that the table will have, if it does not exist yet.
    """
    batch = planned.batch
    rejected = planned.observed.scan.rejected(everything=reason)
    rejects = quarantine.stage(batch.table, rejected, batch.id, batch.token)
    if not planned.state.exists and (feed != planned.state.properties or batch.fingerprints.files):
        rejects.transaction.remember(batch.remembered(planned.state, feed))
        rejects.transaction.set({FEED: json.dumps(feed)})
    return rejects


def _begin(planned: Planned) -> tuple[Planned, Transaction]:
    """Begin a transaction on the table's present state, with the plan for that state."""
    batch = planned.batch

    def begin(planned: Planned) -> tuple[Planned, Transaction]:
        """Begin a transaction for the plan."""
        definition = batch.new_definition(planned.state, planned.plan)
        return planned, batch.table.transaction(planned.state, definition)

    with suppress(CommitConflict):
        return begin(planned)
    return batch.retry.run(lambda: begin(planned.on(batch.load())), passing=(Moved,))


def _ids_after(planned: Planned) -> int:
    """Return the id after which the batch's new columns get their ids.

    If other writers keep adding columns, it leaves them room, so that files already written stay valid.
    """
    adds = any(isinstance(change, AddColumn) for change in planned.plan.changes)
    return planned.state.last_id + _ROOM if adds and planned.batch.retry.conflicts > _OFTEN else 0
