"""Runs one batch: observe, plan, convert, write, commit, report."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.convert import LOST, Lost
from driftline.core.changes import AddColumn
from driftline.core.history.batch_properties import BatchIsInError, Token, by_batch, first_seen, place_of
from driftline.core.history.entries import of_batch
from driftline.core.planning.own_columns import rest_column
from driftline.core.planning.plan import Plan, same_rows
from driftline.core.planning.shape import without_excluded
from driftline.core.schema.types import Path
from driftline.core.settings.fields import excluded_paths
from driftline.core.settings.properties import as_properties, creation
from driftline.errors import DataError, DriftlineError
from driftline.formats.base import CatalogTable, CommitConflict, Moved, State, Transaction
from driftline.formats.commit import Progress, Retry, commit, is_conflict
from driftline.ingest.accept import accepted
from driftline.ingest.batch import (
    AGAIN,
    BatchRequest,
    Listener,
    Once,
    Planned,
    RecentBatches,
    heard,
    outcome,
    paths_of_rest,
    rest_of,
)
from driftline.ingest.result import Result, result
from driftline.ingest.rewrite import beside, check_readable, lossy_rewrites, rows_anew
from driftline.ingest.upsert import Changes, check_possible
from driftline.keys.remembered import LastTruncate
from driftline.keys.settle import KeyCounts
from driftline.keys.slices import Slices
from driftline.quarantine import table as quarantine
from driftline.readers.envelopes.messages import SNAPSHOT_TAKEN
from driftline.runtime.failure import explained, java_ended
from driftline.runtime.spark_conf import configured
from driftline.sources.files import changed, stamps
from driftline.sources.scan import BatchScan, Observed, Source
from driftline.write import BatchFolder, TaskResult, folder_of_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OFTEN = 2  # conflicts per batch
# Concurrent ALTERs take the ids in between, and files that are already written stay valid.
_ROOM = 1000  # ids of columns


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a batch.

    Attributes:
        settings: the batch's settings, which take precedence over the table's.
        token: set if the batch is a micro-batch of a capture, which enters the table once, however often it
            is sent.
        endless: wait for other writers without end, instead of `retry.PATIENCE` seconds.
        progress: called with each phase (observing, planning, writing, quarantining, committing, committed),
            and with the reason of each wait for other writers.
        listener: notified of the batch, unless it is only planned.
        again: ingest files that the table has already ingested.
        recent: previous batches, which this one may resemble.
    """

    settings: Mapping[str, str] | None = None
    token: Token | None = None
    endless: bool = False
    progress: Progress = lambda _: None
    listener: Listener | None = None
    again: bool = False
    recent: RecentBatches = field(default_factory=RecentBatches)


def ingest(
    table: CatalogTable, source: Source, options: Options | None = None, *, dry_run: bool = False
) -> Result:
    """Ingest one batch into the table.

    Args:
        table: the table, which need not exist.
        source: the records.
        options: see `Options`.
        dry_run: only plan the batch.
    """
    options = options or Options()
    token, progress = options.token, options.progress
    created, properties = creation(as_properties(options.settings or {}))
    batch = uuid.uuid4().hex if token is None else token.batch
    files = stamps(source.files)
    retry = Retry(table.name, progress, options.endless)
    once = Once() if token is not None else Once.of(source, files, again=options.again, dry_run=dry_run)
    taken = BatchRequest(
        table, source, batch, properties, token, progress, retry, files, created, once, options.recent
    )
    with configured(table.spark, source.conf):
        if dry_run or options.listener is None:
            return _ingest(taken, dry_run=dry_run)
        return heard(taken, options.listener, partial(_ingest, dry_run=False))


def _ingest(batch: BatchRequest, *, dry_run: bool) -> Result:
    return batch.retry.run(_Attempts(batch, dry_run).next)


@dataclass(slots=True)
class _Attempts:
    """The attempts to ingest one batch.

    Attributes:
        again: an attempt has begun.
        tried: the quarantine has the batch from an attempt that did not end.
        reread: the files were read again because they had changed.
        scan: the last scan.
        observed: the last observation of all records.
    """

    batch: BatchRequest
    dry_run: bool
    again: bool = False
    tried: bool = False
    reread: bool = False
    scan: BatchScan | None = None
    observed: Observed | None = None

    def next(self) -> Result:
        """Make one attempt.

        Raises:
            CommitConflict: another writer was faster.
            DataError: another attempt is useless.
            SetupError: Java has ended.
        """
        try:
            return self._take()
        except (_Misread, Lost, PySparkException, Py4JError, OSError) as error:
            if is_conflict(error):
                raise
            message, hint = _explained(self.batch, error)
            # A file that has changed meanwhile is taken as it is now, if it stays so.
            if self.reread or not (_misread(error) and changed(self.batch.files)):
                raise java_ended(error) or DataError(f"{self.batch.table.name}: {message}", hint) from error
        self.reread, self.scan, self.observed = True, None, None
        return self.next()

    def _take(self) -> Result:
        state = self.batch.load()
        notes = self.batch.once.notes(self.batch.table, state)  # before the table has the files
        ended = self._ended(state)
        return replace(ended, hints=(*ended.hints, *notes))

    def _ended(self, state: State) -> Result:
        batch, table = self.batch, self.batch.table
        if not self.again and batch.token is not None and batch.token.tried:
            self.tried = quarantine.forget(table, batch.token)
        scan = self._open(state)
        if not (self.dry_run or self.again):
            guessed = _speculated(batch, state, scan)
            self.again = True
            if guessed is not None:
                try:
                    return _write(guessed, tried=self.tried, guessed=True)
                except SpeculationFailed as failed:
                    self.observed = failed.observed
            scan = self._open(state)
        before = self.observed if self.observed and self.observed.answers(scan.request) else None
        observed, plan = accepted(scan, batch.recent, batch.progress, partial(_lossy, table), before)
        self.observed = observed
        planned = Planned(batch, state, observed, batch.with_own(plan, observed.observation))
        batch.made_as(state, planned.plan)  # that it can be
        check_possible(planned)
        if self.dry_run:
            return replace(outcome(planned, 0, 0, None, paths_of_rest(planned.plan)), dry_run=True)
        return _write(planned, tried=self.tried)

    def _open(self, state: State) -> BatchScan:
        """Open the batch in its present state for the table."""
        batch = self.batch
        batch.progress("observing")
        self.scan = batch.source.open(batch.open(state), batch.settings(state), self.scan)
        return self.scan


class SpeculationFailed(Exception):
    """The batch does not match the speculated plan; read it again by a plan for what was ``observed``."""

    def __init__(self, observed: Observed) -> None:
        super().__init__("the batch does not match the speculated plan")
        self.observed = observed


def _speculated(batch: BatchRequest, state: State, scan: BatchScan) -> Planned | None:
    """Guess the batch's observation and a plan, so that one read may do; None if there is no likely guess."""
    observed = scan.guess(batch.recent.observation(scan))
    if observed is None:
        return None
    batch.progress("planning")
    planned = _plan_of(batch, observed)
    if planned.conflicts or planned.rewrites or not planned.schema.struct.fields:
        return None
    try:
        batch.made_as(state, planned)
    except DriftlineError:  # all of the batch may have what its beginning lacks
        return None
    return Planned(batch, state, observed, planned)


def _plan_of(batch: BatchRequest, observed: Observed) -> Plan:
    scan, observation = observed.scan, observed.observation
    shape = without_excluded(observation.shape, scan.settings.contract)
    return batch.with_own(batch.recent.plan(scan.schema, shape, scan.settings), observation)


def _confirmed(guessed: Planned, written: Written) -> Planned:
    """Plan the batch again from all that its tasks observed while they wrote by the speculated plan.

    Raises SpeculationFailed if that plan would have made other columns or other rows.
    """
    batch, scan = guessed.batch, guessed.observed.scan
    # A guess costs at most a second read. It never decides: the plan from all records does.
    observed = scan.observe() if written.results is None else scan.merged(written.results)
    batch.recent.remember(observed)
    planned, tally = _plan_of(batch, observed), observed.observation.tally
    if written.diverged or planned.conflicts or (tally.malformed and guessed.settings.on_conflict == "fail"):
        raise SpeculationFailed(observed)
    if planned.schema != guessed.plan.schema or not same_rows(planned.route, guessed.plan.route):
        raise SpeculationFailed(observed)
    if written.rows != tally.records:  # a file has changed meanwhile
        raise SpeculationFailed(observed)
    confirmed = replace(guessed, observed=observed, plan=planned)
    check_possible(confirmed)
    return confirmed


def _write(planned: Planned, *, tried: bool, guessed: bool = False) -> Result:
    """Write the batch, and its rejects into the quarantine, and commit both.

    ``tried``: the quarantine has this batch from an attempt that did not end. ``guessed``: the observation
    and the plan are speculated; raises SpeculationFailed if they are wrong.
    """
    batch = planned.batch
    batch.progress("writing")
    if not planned.plan.schema.struct.fields:
        return _no_columns(planned)
    if planned.is_empty:
        return _without_rows(planned)
    planned, transaction = _begun(planned)
    rejects: quarantine.Staged | None = None
    try:
        if transaction.base is not None:
            # Even a mere append commits to no other state: a `resolve` in between leaves other columns.
            if transaction.base.version != planned.state.version:
                batch.check(transaction.base)
            transaction.evolve(planned.plan.changes, _ids_after(planned))
        planned, written, rejects = _data(transaction, planned, guessed=guessed)
        if planned.is_empty:
            transaction.abandon()
            return _without_rows(planned)
        quarantined = 0 if rejects is None else rejects.rows
        _check_counts(planned, written, quarantined)
        batch.check_files()
        location = transaction.home
        planned = _commit(transaction, planned, rejects)
    except BaseException as error:
        transaction.abandon()
        if rejects is not None and isinstance(error, BatchIsInError):
            # Another process was faster, and its rejects are in quarantine, unless they were forgotten here.
            rejects.withdraw(tried=tried)
        elif rejects is not None and transaction.uncommitted:
            rejects.undo()
        raise
    changed = written
    if (counts := planned.counts) is not None:
        written, changed = counts.written, counts.written + counts.deleted + counts.truncated
    snapshot = transaction.snapshot if changed else None
    batch.progress("committed")
    transaction.upkeep()
    if rejects is not None:
        rejects.transaction.upkeep()
    # The counts of the rest are read from the files, or the tasks of every source would report them.
    ended = outcome(planned, written, quarantined, snapshot, rest_of(transaction, planned))
    files, size = transaction.added
    return replace(ended, location=location if written else "", files_written=files, bytes_written=size)


def _commit(transaction: Transaction, planned: Planned, rejects: quarantine.Staged | None) -> Planned:
    """Make the batch visible; returns it as planned for the table state that it was committed to."""
    batch = planned.batch

    def now() -> State:
        """Load the table anew, and check that the plan holds for it."""
        nonlocal planned
        planned = planned.on(batch.load())
        batch.progress("committing")
        return planned.state

    marks = batch.marks(planned.state)
    transaction.remember(batch.remembered(planned.state, marks))
    records = {} if planned.counts is None else planned.counts.outcomes
    if records and rejects is not None:
        records["quarantined"] = rejects.rows
    author = of_batch(batch.id, planned.plan.changes, records)
    # Only the messages of change streams tell of truncates, and their table has a key.
    truncated = {} if planned.settings.row_key is None else _truncated(planned)
    transaction.set({**marks, **author, **truncated, **_since(planned)})
    # Quarantine first: a crash between the two leaves a copy too many there, never one too few.
    # Iceberg has no commit over two tables. A DuckLake includes the quarantine in its own.
    if rejects is not None and not transaction.include(rejects.transaction):
        batch.progress("quarantining")
        rejects.commit(batch.retry)
    batch.progress("committing")
    commit(transaction, now, batch.retry)
    return planned


def _since(planned: Planned) -> dict[str, str]:
    """Return the properties that record when values of each path first went to the rest."""
    begins = rest_column(planned.state.schema.struct) is None
    paths = paths_of_rest(planned.plan)
    return first_seen(planned.state.properties, paths, planned.batch.id, begins=begins)


@dataclass(frozen=True, slots=True)
class Written:
    """Rows that are written but not yet committed.

    Attributes:
        rows: their number.
        results: the results of the tasks that made them; None if Spark wrote the rows.
        changes: changes by key, still to be settled.
    """

    rows: int
    results: Sequence[TaskResult[Any]] | None = None
    changes: Changes | None = None

    @property
    def diverged(self) -> bool:
        """True if a task met records that its plan does not cover, and stopped making rows."""
        return any(result.diverged for result in self.results or ())


def _data(
    transaction: Transaction, planned: Planned, *, guessed: bool
) -> tuple[Planned, int, quarantine.Staged | None]:
    """Write the batch's rows, and its rejects into the quarantine.

    Returns:
        The confirmed plan, the number of rows, and the rejects.
    """
    batch = planned.batch
    with folder_of_batch(batch.table.spark, transaction) as folder:
        written = _written(transaction, planned, folder)
        if guessed:
            planned = _confirmed(planned, written)
        if planned.settings.row_key is not None:
            counts = KeyCounts()
            if written.changes is not None:
                # A guess knows of no truncate.
                changes = replace(written.changes, truncate=_truncate(planned))
                counts = changes.settle(batch.table.spark, transaction, _summary(planned))
            planned = replace(planned, counts=counts)
        if not planned.observation.tally.malformed:
            return planned, written.rows, None
        # If tasks reported no rejects, the whole batch is read again for them.
        scan, results = planned.observed.scan, written.results
        rejected = scan.rejected() if results is None else scan.rejects(results)
        return planned, written.rows, quarantine.stage(batch.table, rejected, batch.id, batch.token)


def _check_counts(planned: Planned, written: int, quarantined: int) -> None:
    tally = planned.observation.tally
    observed = tally.records + tally.malformed
    # A file may have changed between observing and reading; the table must then stay as it is.
    if written + quarantined != observed:
        raise _Misread(
            f"{observed} records were observed, {written} were written and {quarantined} quarantined"
        )


class _Misread(Exception):
    """The records written differ from the records observed."""


def _begun(planned: Planned) -> tuple[Planned, Transaction]:
    """Begin a transaction on the table's present state, with the plan for that state."""
    batch = planned.batch

    def begin(planned: Planned) -> tuple[Planned, Transaction]:
        """Begin a transaction for the plan."""
        return planned, batch.table.transaction(planned.state, batch.made_as(planned.state, planned.plan))

    with suppress(CommitConflict):
        return begin(planned)
    return batch.retry.run(lambda: begin(planned.on(batch.load())), passing=(Moved,))


def _ids_after(planned: Planned) -> int:
    """Return the id after which the batch's new columns get their ids.

    If other writers keep adding columns, it leaves them room, so that files already written stay valid.
    """
    adds = any(isinstance(change, AddColumn) for change in planned.plan.changes)
    return planned.state.last_id + _ROOM if adds and planned.batch.retry.conflicts > _OFTEN else 0


def _written(transaction: Transaction, planned: Planned, folder: BatchFolder | None) -> Written:
    """Run the source's tasks, which write the batch's rows through the ``folder``."""
    plan, tally = planned.plan, planned.observation.tally
    if plan.rewrites:
        return Written(_rewritten(transaction, planned))
    if not tally.records + tally.malformed and not tally.truncated:
        return Written(0)
    tasks = planned.tasks(transaction.row)
    row_key, table = planned.settings.row_key, planned.batch.table.name
    if row_key is None:
        rows = transaction.write(tasks, folder, _summary(planned))
        return Written(rows, tasks.results)
    slices = Slices.of(tasks, folder, table)
    excluded = list(excluded_paths(planned.settings.contract))
    changes = Changes(
        table, slices, transaction.row, row_key, planned.settings.mark, excluded, planned.batch.recent.keys
    )
    return Written(slices.rows, tasks.results, changes)


def _truncate(planned: Planned) -> LastTruncate:
    """Return the last truncate of the source's table."""
    row_key, tally = planned.settings.row_key, planned.observation.tally
    sent = 0 if row_key is None else row_key.epoch, tally.truncated
    is_snapshot = SNAPSHOT_TAKEN in tally.marks and "truncate" not in tally.marks
    return LastTruncate.of(place_of(planned.state.properties), sent, updates=is_snapshot)


def _truncated(planned: Planned) -> dict[str, str]:
    """Return the property that records a new truncate."""
    truncate = _truncate(planned)
    place = truncate.epoch, truncate.position
    return by_batch(planned.state.properties, place, planned.batch.id) if truncate.new else {}


def _summary(planned: Planned) -> dict[str, str]:
    """Return the properties of the batch's snapshot."""
    return {"driftline.batch": planned.batch.id}


def _rewritten(transaction: Transaction, planned: Planned) -> int:
    """Rewrite the table with the batch's rows; returns their number."""
    batch, before, settings = planned.batch, planned.plan.before, planned.settings
    struct = transaction.schema.struct
    check_readable(batch.table, before)
    old = transaction.read()
    rows = planned.tasks(struct).frame(struct)
    anew = partial(rows_anew, batch.table, planned.plan, struct, settings)

    def carry(appended: DataFrame) -> DataFrame:
        """Rewrite rows that others appended meanwhile. Raises Moved if they do not fit the new types."""
        if lossy_rewrites(appended, planned.plan):
            raise Moved("what others have appended meanwhile does not fit the new types")
        return anew(appended)

    written = transaction.replace(beside(anew(old), rows), _summary(planned), carry)
    return written - old.count()


def _lossy(table: CatalogTable, planned: Plan) -> list[Path]:
    """Find the columns that cannot be rewritten: a value would change, or the table's layout uses them."""
    if not planned.rewrites:
        return []
    definition = table.definition()
    columns = {change.path: planned.before.find(change.path) for change in planned.rewrites}
    needed = [path for path, column in columns.items() if column and definition.use_of(column)]
    return needed + lossy_rewrites(table.read(), planned)


def _no_columns(planned: Planned) -> Result:
    """Keep the records of a table without columns in quarantine (2.4).

    The settings and the truncate for the future table are kept with them.
    """
    batch, tally, quarantined = planned.batch, planned.observation.tally, 0
    if tally.records + tally.malformed or tally.truncated:
        rejected = planned.observed.scan.rejected(everything="no columns yet")
        rejects = quarantine.stage(batch.table, rejected, batch.id, batch.token)
        feed = {**planned.state.properties, **batch.properties, **_truncated(planned)}
        if feed and not planned.state.exists:
            rejects.transaction.set({quarantine.FEED: json.dumps(feed)})
        batch.progress("quarantining")
        rejects.commit(batch.retry)
        quarantined = rejects.rows
        batch.progress("committed")
    ended = _without_rows(planned, quarantined)
    return replace(ended, hints=(*ended.hints, *planned.notes))


def _without_rows(planned: Planned, quarantined: int = 0) -> Result:
    """Return the result of a batch that adds no rows to the table."""
    batch, by_key = planned.batch, planned.settings.row_key is not None
    ended = result(batch.table.name, batch.id, planned.observation, planned.plan, 0, quarantined)
    return replace(ended, by_key=KeyCounts() if by_key else None)


def _explained(batch: BatchRequest, error: BaseException) -> tuple[str, str | None]:
    """Return the message and the hint for an error of the batch."""
    if change := changed(batch.files):
        return change, AGAIN
    message, hint = explained(error)
    if not _misread(error):
        is_unnamed = batch.files and not any(file in message for file in batch.files)
        place = batch.source.at_fault() if is_unnamed and java_ended(error) is None else None
        return f"{place}: cannot be read: {message}" if place else message, hint
    if batch.files:
        return message, "its files are as they were, so this is a bug in driftline: please report it"
    return message, "data that are made anew each time may differ each time: persist() them first"


def _misread(error: BaseException) -> bool:
    return isinstance(error, _Misread) or LOST in str(error)
