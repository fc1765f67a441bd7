"""Ingests a batch, again after each conflict with another writer, and explains its errors."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.convert import LOST, Lost
from driftline.core.history.batch_properties import Token
from driftline.core.schema.types import Schema, Struct
from driftline.core.settings.properties import as_properties, creation, of_one_batch
from driftline.errors import DataError, DriftlineError
from driftline.formats.base import CatalogTable, Moved, State, Transaction
from driftline.formats.commit import Progress, Retry, is_conflict
from driftline.formats.lakes import Catalog
from driftline.ingest.batch import (
    AGAIN,
    BatchRequest,
    FileFingerprints,
    Listener,
    RecentBatches,
    notify_listener,
)
from driftline.ingest.pattern import Pattern
from driftline.ingest.pipeline import BatchRun, Misread, Prepared
from driftline.ingest.result import AuditError, Result, Violation
from driftline.ingest.splitting import advice
from driftline.ingest.upsert import KeyedBatchRun
from driftline.quarantine import table as quarantine
from driftline.runtime.failure import explained, java_ended
from driftline.runtime.spark_conf import configured
from driftline.sources.files import changed, stamps
from driftline.sources.json_files import JsonFiles
from driftline.sources.scan import BatchScan, Observed, Source

OnAudit: TypeAlias = Literal["stop", "quarantine"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DealtShares:
    """The shares of a source that the tables of a pattern are to get.

    Attributes:
        prepared: their batches.
        elsewhere: tables that have their share, or whose share waits.
    """

    catalog: Catalog
    pattern: Pattern
    source: Source
    prepared: Sequence[Prepared]
    elsewhere: Collection[str]


Check: TypeAlias = Callable[[Prepared], Sequence[Violation]]
ShareChecks: TypeAlias = Callable[[DealtShares], AbstractContextManager[Check]]


@dataclass(frozen=True, slots=True)
class Audit:
    """The checks that a batch has to pass between its writing and its commit.

    Attributes:
        checks: each returns what it finds wrong with the prepared batch.
        on_failure: the fate of a batch that fails: an `AuditError`, or its records wait whole in quarantine.
        precheck: raises UsageError, before anything is read, if a check cannot be made for the table.
        of_shares: opens a further check, of what the tables of a pattern get of a source; None without one.
    """

    checks: Sequence[Check] = ()
    on_failure: OnAudit = "stop"
    precheck: Callable[[BatchRun], None] = lambda _: None
    of_shares: ShareChecks | None = None

    def violations(self, prepared: Prepared) -> tuple[Violation, ...]:
        """Make the checks; after an error, what is prepared is taken back."""
        if not self.checks:
            return ()
        # A check may fail by itself, as where a file that it reads is gone: nothing of the batch stays
        # then, either.
        with prepared.abandoned_on_error():
            prepared.planned.batch.progress("auditing")
            return tuple(violation for check in self.checks for violation in check(prepared))

    def passed(self, run: BatchRun, prepared: Prepared, violations: Sequence[Violation]) -> Prepared:
        """Return what is to be committed: what ``run`` has prepared, or its records in quarantine.

        Raises AuditError if there are ``violations``, and records are not to wait in quarantine.
        """
        if not violations:
            return prepared
        prepared.abandon()
        if self.on_failure == "stop":
            raise AuditError(failed(prepared, violations))
        return run.set_aside(prepared.planned)


def failed(prepared: Prepared, violations: Sequence[Violation]) -> Result:
    """The result that a batch would have had, with what its audit found."""
    result = replace(prepared.preview(), rows_written=0, rows_quarantined=0, by_key=None)
    return replace(result, dry_run=True, audit=tuple(violations))


NO_AUDIT = Audit()
# A table that cannot be loaded.
UNKNOWN = State(Schema(Struct(())), {}, None, exists=False)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a batch.

    Attributes:
        settings: of this batch, before those of the table.
        token: the batch is a micro-batch of a capture, and enters the table once, however often it is sent.
        endless: wait for other writers without end, instead of `commit.PATIENCE` seconds.
        progress: called with each phase (observing, planning, writing, quarantining, committing, committed),
            and with the reason of each wait for other writers.
        listener: notified of the batch unless it is only planned.
        reingest: ingest files once more that the table has.
        recent: the batches before, which this one may be like.
        keep: later batches get the settings, too; else those that can count for one batch do so for this one.
        audit: the checks before the commit.
        properties: further properties that the table gets with the batch.
    """

    settings: Mapping[str, str] | None = None
    token: Token | None = None
    endless: bool = False
    progress: Progress = lambda _: None
    listener: Listener[Result] | None = None
    reingest: bool = False
    recent: RecentBatches = field(default_factory=RecentBatches)
    keep: bool = True
    audit: Audit = NO_AUDIT
    properties: Mapping[str, str] = field(default_factory=dict)


def ingest(
    table: CatalogTable, source: Source, options: Options | None = None, *, dry_run: bool = False
) -> Result:
    """Ingest one batch into the table; with ``dry_run`` only plan it."""
    options = options or Options()
    request = _request(table, source, options, dry_run=dry_run)
    with configured(table.spark, source.conf):
        if dry_run or options.listener is None:
            return _ingest(request, options.audit, dry_run=dry_run)
        return notify_listener(
            request, options.listener, partial(_ingest, audit=options.audit, dry_run=False)
        )


def prepare(table: CatalogTable, source: Source, options: Options) -> PreparedBatch:
    """Write one batch of several that are to be committed together, visible to nobody."""
    began = time.monotonic()
    request = _request(table, source, options, dry_run=False)
    attempts = Attempts(request, dry_run=False, audit=options.audit)
    try:
        with configured(table.spark, source.conf):
            ready = request.retry.run(attempts.prepare)
    except BaseException as error:
        PreparedBatch(attempts, None, options.listener, 0.0).tell(error)
        raise
    return PreparedBatch(attempts, ready, options.listener, time.monotonic() - began)


def set_aside(table: CatalogTable, source: Source, options: Options, error: DriftlineError) -> PreparedBatch:
    """Write the records of a batch whole into the quarantine of its table, whose ``error`` keeps them out."""
    request = _request(table, source, replace(options, audit=NO_AUDIT), dry_run=False)
    attempts = Attempts(request, dry_run=False, audit=NO_AUDIT, error=error)
    with configured(table.spark, source.conf):
        return PreparedBatch(attempts, request.retry.run(attempts.prepare), None, 0.0)


def _request(table: CatalogTable, source: Source, options: Options, *, dry_run: bool) -> BatchRequest:
    token, progress = options.token, options.progress
    created, properties = creation(as_properties(options.settings or {}))
    alone = {} if options.keep else of_one_batch(properties)
    kept = {key: text for key, text in properties.items() if key not in alone}
    batch = uuid.uuid4().hex if token is None else token.batch
    files = stamps(source.files)
    retry = Retry(table.name, progress, options.endless)
    fingerprints = (
        FileFingerprints()
        if token is not None
        else FileFingerprints.of(source, files, reingest=options.reingest, dry_run=dry_run)
    )
    return BatchRequest(
        table,
        source,
        batch,
        kept,
        token,
        progress,
        retry,
        files,
        created,
        fingerprints,
        options.recent,
        alone,
        options.properties,
    )


def _ingest(batch: BatchRequest, audit: Audit, *, dry_run: bool) -> Result:
    return batch.retry.run(Attempts(batch, dry_run, audit).next)


@dataclass(frozen=True, slots=True)
class Ready:
    """An attempt that has prepared its batch, with notes for a person.

    Attributes:
        violations: found by the audit; None if it was not made yet.
    """

    run: BatchRun
    prepared: Prepared
    notes: Sequence[str]
    violations: Sequence[Violation] | None = None


@dataclass(slots=True)
class Attempts:
    """The attempts to ingest one batch, and what one leaves to the next.

    Attributes:
        started: one has begun.
        tried: the quarantine had the batch from an attempt that did not end.
        reread: the files were read again because they had changed.
        scan: the last one.
        observed: the last observation of all records.
        error: the table's own, for which the records wait in its quarantine; None without one.
        last: what was to be committed last.
    """

    batch: BatchRequest
    dry_run: bool
    audit: Audit
    error: DriftlineError | None = None
    last: Prepared | None = None
    started: bool = False
    tried: bool = False
    reread: bool = False
    scan: BatchScan | None = None
    observed: Observed | None = None

    def next(self) -> Result:
        """Make one attempt.

        Raises:
            CommitConflict: others were faster.
            DataError: another attempt is useless.
            SetupError: Java has ended.
        """
        return self._made(self._run)

    def prepare(self) -> Ready:
        """Make one attempt to write the batch; raises as `next` does."""
        return self._made(self._prepare)

    def violations(self, ready: Ready) -> tuple[Violation, ...]:
        """Audit what `prepare` has written; raises as `next` does."""
        return self._made(partial(self.audit.violations, ready.prepared))

    def commit(self, ready: Ready) -> Result:
        """Commit what `prepare` has written; raises as `next` does."""
        return self._made(partial(self._commit, ready))

    def _made(self, attempt: Callable[[], T]) -> T:
        try:
            return attempt()
        except (Misread, Lost, PySparkException, Py4JError, OSError) as error:
            # `Retry` waits for the other writer, and begins again.
            if is_conflict(error):
                raise
            message, hint = _explained(self.batch, error)
            # A file that has changed meanwhile is ingested as it is now, if it stays so.
            if self.reread or not (_misread(error) and changed(self.batch.files)):
                raise java_ended(error) or DataError(f"{self.batch.table.name}: {message}", hint) from error
        # Once alone: a file that is written to all the time would be read for ever.
        self.reread, self.scan, self.observed = True, None, None
        return self._made(attempt)

    def _run(self) -> Result:
        if not self.dry_run:
            return self._commit(self._prepare())
        run, notes = self._begun()
        try:
            ended = run.dry_run()
        finally:
            self.scan, self.observed = run.scan, run.observed
        source, hints = self.batch.source, [*ended.hints, *notes]
        if isinstance(source, JsonFiles):
            hints += advice(source, run.settings, self.batch.table.name, exists=run.state.exists)
        return replace(ended, hints=tuple(hints))

    def _prepare(self) -> Ready:
        if self.error is not None:
            self._forget()
            run = self._run_on(UNKNOWN)
            return Ready(run, run.set_aside_unplanned(), ())
        run, notes = self._begun()
        try:
            speculates, self.started = not self.started, True
            return Ready(run, run.prepare(speculates=speculates), notes)
        finally:
            self.scan, self.observed = run.scan, run.observed

    def _commit(self, ready: Ready) -> Result:
        run = ready.run
        try:
            ready = self._audited(ready)
            ended = ready.prepared.commit()
        finally:
            self.scan, self.observed = run.scan, run.observed
        return _noted(ended, ready)

    def _audited(self, ready: Ready) -> Ready:
        """Audit what is written, unless it was; returns what is to be committed. Raises AuditError."""
        violations = ready.violations
        if violations is None:
            violations = self.audit.violations(ready.prepared)
        elif ready.prepared is self.last:  # which is what its audit has left
            return ready
        self.last = self.audit.passed(ready.run, ready.prepared, violations)
        return replace(ready, prepared=self.last, violations=violations)

    def begin_commit(self, ready: Ready) -> Ready:
        """Do all that comes before the commit of a batch; returns what that makes visible.

        Raises as `next` does.
        """

        def begin() -> Ready:
            """Audit what is written, and begin its commit."""
            audited = self._audited(ready)
            with audited.prepared.abandoned_on_error():
                audited.prepared.begin_commit()
            return audited

        return self._made(begin)

    def rebase(self, ready: Ready) -> Ready:
        """After a conflict, have a batch fit what is there now; if need be, it is prepared again.

        Raises BatchIsInError if another process has brought it, and as `next` does.
        """
        retry, prepared = self.batch.retry, ready.prepared

        def rebase() -> Ready:
            """Keep what is written, if that can be."""
            with prepared.abandoned_on_error():
                retry.run(prepared.rebase, passing=(Moved,))
            return ready

        with suppress(Moved):
            return self._made(rebase)
        return self.begin_commit(retry.run(self.prepare))

    def report(self, ready: Ready) -> Result:
        """Report a batch that is visible; raises as `next` does."""
        return _noted(self._made(ready.prepared.report), ready)

    def _begun(self) -> tuple[BatchRun, Sequence[str]]:
        """Load the table and begin an attempt, with notes for a person."""
        batch = self.batch
        state = batch.load()
        notes = batch.fingerprints.notes(batch.table, state)  # before the table has the files
        if not self.started:
            self._forget()
        run = self._run_on(state)
        self.audit.precheck(run)
        return run, notes

    def _forget(self) -> None:
        """Take back what an earlier attempt at a micro-batch has left in the quarantine."""
        token = self.batch.token
        if token is not None and token.tried:
            self.tried = quarantine.forget(self.batch.table, token) or self.tried

    def _run_on(self, state: State) -> BatchRun:
        settings = self.batch.settings(state)
        kind = BatchRun if settings.row_key is None else KeyedBatchRun
        return kind(self.batch, state, settings, self.tried, self.scan, self.observed)


def _noted(ended: Result, ready: Ready) -> Result:
    """The result with the notes of its attempt."""
    return replace(ended, hints=(*ended.hints, *ready.notes), audit=tuple(ready.violations or ()))


@dataclass(slots=True)
class PreparedBatch:
    """A batch that is written whole for its table, and visible to nobody.

    Attributes:
        ready: what is written; None once it is committed, or taken back.
        seconds: the time that it took so far.
    """

    attempts: Attempts
    ready: Ready | None
    listener: Listener[Result] | None
    seconds: float

    @property
    def table(self) -> CatalogTable:
        """The table of the batch."""
        return self.attempts.batch.table

    @property
    def retry(self) -> Retry:
        """The conflicts of the batch."""
        return self.attempts.batch.retry

    @property
    def error(self) -> DriftlineError | None:
        """The error of the table, for which the records wait in its quarantine; None without one."""
        return self.attempts.error

    @property
    def invisible(self) -> bool:
        """True if nothing of the batch is visible, and certainly not."""
        return self.attempts.last is None or self.attempts.last.invisible

    def violations(self) -> tuple[Violation, ...]:
        """Audit what is written. Raises DataError if a check cannot be made."""
        assert self.ready is not None
        violations = self.attempts.violations(self.ready)
        self.ready = replace(self.ready, violations=violations)
        return violations

    def failed(self) -> Result:
        """The result that the batch would have had, with what the audit has found."""
        assert self.ready is not None
        return failed(self.ready.prepared, self.ready.violations or ())

    def commit(self) -> Result:
        """Make the batch visible; if the table has changed meanwhile, it is prepared again.

        Raises DataError, SetupError.
        """
        batch = self.attempts.batch
        with configured(self.table.spark, batch.source.conf):
            if self.listener is None:
                return self._commit(batch)
            return notify_listener(batch, self.listener, self._commit, self.seconds)

    @property
    def transactions(self) -> Sequence[Transaction]:
        """Those that have to commit at once."""
        return () if self.ready is None else self.ready.prepared.transactions

    def begin_commit(self) -> None:
        """Do all that comes before a commit of several batches; raises as `commit` does."""
        with self._alone() as ready:
            self.ready = self.attempts.begin_commit(ready)

    def rebase(self) -> None:
        """After a conflict, have it fit what is there now; raises as `commit` does."""
        with self._alone() as ready:
            self.ready = self.attempts.rebase(ready)

    @contextmanager
    def _alone(self) -> Iterator[Ready]:
        """Lend what is written; an error in the block has taken it back."""
        ready, self.ready = self.ready, None
        assert ready is not None
        with configured(self.table.spark, self.attempts.batch.source.conf):
            yield ready

    def report(self) -> Result:
        """Report the batch, which is visible; raises as `commit` does."""
        with self._alone() as ready:
            report = partial(self.attempts.report, ready)
            if self.listener is None:
                return report()
            seconds = self.seconds + self.retry.committing
            return notify_listener(self.attempts.batch, self.listener, lambda _: report(), seconds)

    def tell(self, error: BaseException) -> None:
        """Notify the listener of an error before `report`."""
        if self.listener is not None:
            self.listener.begins(self.table.name, self.attempts.batch.id)
            self.listener.failed(error)

    def _commit(self, batch: BatchRequest) -> Result:
        return batch.retry.run(self._attempt)

    def _attempt(self) -> Result:
        # What was written is of use once: after a conflict it is either committed or abandoned.
        ready, self.ready = self.ready, None
        return self.attempts.next() if ready is None else self.attempts.commit(ready)

    def abandon(self) -> None:
        """Take back what is written and not visible."""
        ready, self.ready = self.ready, None
        if ready is not None:
            ready.prepared.abandon()


def _explained(batch: BatchRequest, error: BaseException) -> tuple[str, str | None]:
    """The message and the hint for an error of the batch."""
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
    return isinstance(error, Misread) or LOST in str(error)
