"""One batch down the road: observe, plan, apply, route, append, report."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline import quarantine
from driftline.accept import accepted
from driftline.capture.token import BatchIsInError, Token
from driftline.core.closed import closed
from driftline.core.metadata import with_own
from driftline.core.plan import plan
from driftline.core.record import of_batch
from driftline.core.routes import Plan, Settings
from driftline.core.types import Path, Schema, Struct
from driftline.engine import configured
from driftline.errors import DataError
from driftline.failure import explained
from driftline.formats.base import CommitConflict, State, Table, Transaction
from driftline.observe.observation import Observation
from driftline.report.result import Result, result
from driftline.rewrite import check_readable, lossy_rewrites, rewrites, rewritten_rows
from driftline.route.columns import LOST
from driftline.settings import as_properties, from_properties
from driftline.source.base import Guessing, Source
from driftline.source.files import Stamp, changed, stamps

ATTEMPTS = 10  # of planning, where others change the table's schema or settings meanwhile
COMMITS = 50  # of what is planned and written, where others only add to the table
_WAIT = 0.05  # seconds, more at each try and not the same for two writers

Progress = Callable[[str], None]


def ingest(
    table: Table,
    source: Source,
    *,
    settings: Mapping[str, str] | None = None,
    dry_run: bool = False,
    token: Token | None = None,
    progress: Progress = lambda _: None,
) -> Result:
    """Takes one batch into the table; with ``dry_run`` only plans it.

    All or nothing: after an error the table is as it was. Planned anew, up to `ATTEMPTS` times, where another
    writer changed the table meanwhile. Raises DataError where the data or the table says no.

    ``token``: the batch is a micro-batch of a capture, and enters the table once, however often it is brought;
    raises BatchIsInError where it is there.
    ``progress`` is told what comes next: observing, planning, writing, quarantining, committing, committed.
    """
    properties = as_properties(settings or {})
    batch = uuid.uuid4().hex if token is None else token.batch
    files = stamps(getattr(source, "files", ()))
    with configured(table.spark, source.conf):
        return _ingest(_Batch(table, source, batch, properties, token, progress, files), dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is the same at each try. ``properties``: settings that come with it; ``files``: as they were before."""

    table: Table
    source: Source
    id: str
    properties: Mapping[str, str]
    token: Token | None
    progress: Progress
    files: Mapping[str, Stamp]

    @property
    def marks(self) -> dict[str, str]:
        """The table properties that the batch sets."""
        return {
            **self.properties,
            "driftline.batch": self.id,
            **(self.token.properties if self.token is not None else {}),
        }

    def check(self, state: State) -> None:
        if self.token is not None:
            self.token.check(self.table.name, state.uuid, state.properties)


def _ingest(batch: _Batch, *, dry_run: bool) -> Result:
    table, source = batch.table, batch.source
    tried, cause = False, None
    hint: str | None
    for attempt in range(ATTEMPTS):
        state = table.load()
        batch.check(state)
        if attempt == 0 and batch.token is not None and batch.token.tried:
            tried = quarantine.forget(table, batch.token)
        wanted = from_properties({**state.properties, **batch.properties})
        try:
            guessed = None if dry_run or attempt else _guessed(batch, state, wanted)
            if guessed is not None:
                batch.progress("writing")
                with suppress(_Misguess):
                    return _write(batch, state, *guessed, wanted, tried=tried, guessed=True)
            seen, planned = accepted(
                source, _open(table, state), wanted, batch.progress, partial(_lossy, table)
            )
            if seen.tally.records:
                planned = with_own(planned, getattr(source, "columns", ()))
            if dry_run:
                return result(table.name, batch.id, seen, planned, 0, 0, None)
            batch.progress("writing")
            return _write(batch, state, seen, planned, wanted, tried=tried)
        except CommitConflict as conflict:
            last, hint = str(conflict), "other writers keep changing this table: try again"
            _wait(attempt)
        except (_Misread, PySparkException, Py4JError, OSError) as error:
            (last, hint), cause = _explained(batch, error), error
            if not (_misread(error) and source.be_careful()):
                break
    raise DataError(f"{table.name}: {last}", hint) from cause


def _open(table: Table, state: State) -> Schema:
    """The table's schema as the batch is planned for it."""
    return closed(state.schema, table.fillable(state.schema))


class _Misguess(Exception):
    """The batch turned out to be otherwise than its first lines."""


def _guessed(batch: _Batch, state: State, settings: Settings) -> tuple[Observation, Plan] | None:
    """What the batch is likely to be, and its plan, where the source can read by it in one go."""
    source = batch.source
    if not isinstance(source, Guessing):
        return None
    batch.progress("observing")
    schema = _open(batch.table, state)
    seen = source.guess(schema, settings)
    if seen is None:
        return None
    batch.progress("planning")
    planned = plan(schema, seen.shape, settings)
    if planned.conflicts or rewrites(planned.changes):
        return None
    possible = source.reading(planned, planned.schema.struct, settings) is not None
    return (seen, planned) if possible else None


def _confirmed(
    batch: _Batch, state: State, guessed: Plan, struct: Struct, settings: Settings
) -> tuple[Observation, Plan]:
    """What the batch was, and its plan, after it was read by the one that was guessed.

    Raises _Misguess where that plan would have made other columns, or other rows.
    """
    source = batch.source
    assert isinstance(source, Guessing)
    schema = _open(batch.table, state)
    seen = source.observe(schema, settings)
    planned = plan(schema, seen.shape, settings)
    if seen.tally.malformed or planned.conflicts or planned.schema != guessed.schema:
        raise _Misguess
    wanted, was = (source.reading(p, struct, settings) for p in (planned, guessed))
    if wanted is None or was is None or not wanted.makes_the_rows_of(was):
        raise _Misguess
    return seen, planned


def _write(
    batch: _Batch,
    state: State,
    seen: Observation,
    planned: Plan,
    settings: Settings,
    *,
    tried: bool,
    guessed: bool = False,
) -> Result:
    """``tried``: the quarantine has had this batch before, by a try that did not end. ``guessed``: what was seen, and
    planned, is yet to be confirmed; raises _Misguess if it is not so."""
    if not planned.schema.struct.fields:
        return _no_columns(batch, seen, planned, settings)
    table, source = batch.table, batch.source
    if batch.token is not None and not seen.tally.records + seen.tally.malformed:
        return result(table.name, batch.id, seen, planned, 0, 0, None)
    # Pinned, though it may only append: a resolve meanwhile leaves other columns, and the rows would go to the old ones.
    transaction = table.transaction(state, planned.schema, pinned=True)
    kept: quarantine.Staged | None = None
    try:
        if transaction.base is not None:
            batch.check(transaction.base)
            transaction.evolve(planned.changes)
        written = _append(transaction, batch, seen, planned, settings)
        if guessed:
            seen, planned = _confirmed(batch, state, planned, transaction.row, settings)
        tally = seen.tally
        observed = tally.records + tally.malformed
        # Looking for what is no record reads the batch once more: only where observing has met some.
        rejected = source.rejected() if tally.malformed else None
        kept = None if rejected is None else quarantine.stage(table, rejected, batch.id, batch.token)
        quarantined = 0 if kept is None else kept.rows
        if written + quarantined != observed:
            raise _Misread(
                f"{observed} records were observed, {written} were written and {quarantined} quarantined"
            )
        transaction.set({**batch.marks, **of_batch(batch.id, planned.changes)})
        # Quarantine first: a crash between the two leaves a copy too many there, never one too few.
        if kept is not None and not transaction.include(kept.transaction):
            batch.progress("quarantining")
            kept.commit()
        transaction = _commit(batch, transaction)
    except BaseException as error:
        transaction.abandon()
        if kept is not None and isinstance(error, BatchIsInError):
            # Another process was faster, and its rejects are in quarantine, unless they were forgotten here.
            kept.withdraw(tried=tried)
        elif kept is not None:
            kept.undo()
        raise
    snapshot = transaction.snapshot if written else None
    batch.progress("committed")
    transaction.upkeep()
    if kept is not None:
        kept.transaction.upkeep()
    return result(table.name, batch.id, seen, planned, written, quarantined, snapshot)


class _Misread(Exception):
    """Spark read the records otherwise than they were observed."""


def _append(
    transaction: Transaction, batch: _Batch, seen: Observation, planned: Plan, settings: Settings
) -> int:
    rewritten, summary = rewrites(planned.changes), {"driftline.batch": batch.id}
    struct = transaction.schema.struct if rewritten else transaction.row
    rows = batch.source.rows(planned, struct, settings)
    if rewritten:
        check_readable(batch.table, planned.before)
        old = batch.table.read()
        there = old.count()
        return (
            transaction.replace(rewritten_rows(old, planned.before, struct, settings).union(rows), summary)
            - there
        )
    return transaction.append(rows, summary) if seen.tally.records else 0


def _lossy(table: Table, planned: Plan) -> list[Path]:
    """The columns that cannot be rewritten: a value would change, or the table's layout is made of them."""
    asked = rewrites(planned.changes)
    if not asked:
        return []
    definition = table.definition()
    columns = {change.path: planned.before.find(change.path) for change in asked}
    needed = [path for path, column in columns.items() if column and definition.use_of(column)]
    return needed + lossy_rewrites(table.read(), planned.before, planned.changes)


def _commit(batch: _Batch, transaction: Transaction) -> Transaction:
    """Commits, again where others have added to the table meanwhile; returns what was committed."""
    for attempt in range(COMMITS):
        batch.progress("committing")
        try:
            transaction.commit()
            return transaction
        except CommitConflict:
            _wait(attempt)
            batch.check(batch.table.load())
            transaction = transaction.again()
    raise CommitConflict(f"{batch.table.name}: others committed {COMMITS} times meanwhile")


def _wait(attempt: int) -> None:
    time.sleep(random.uniform(0, _WAIT * min(attempt + 1, 20)))  # noqa: S311  no secret


def _no_columns(batch: _Batch, seen: Observation, planned: Plan, settings: Settings) -> Result:
    """A table cannot be made without a column: the records wait in quarantine (2.4)."""
    quarantined = 0
    if seen.tally.records + seen.tally.malformed:
        batch.source.be_careful()
        batch.source.rows(planned, planned.schema.struct, settings)
        rejected = batch.source.rejected(everything="no columns yet")
        assert rejected is not None
        kept = quarantine.stage(batch.table, rejected, batch.id, batch.token)
        batch.progress("quarantining")
        kept.commit()
        quarantined = kept.rows
        batch.progress("committed")
    return result(batch.table.name, batch.id, seen, planned, 0, quarantined, None)


def _explained(batch: _Batch, error: BaseException) -> tuple[str, str | None]:
    """What became of the batch, and what to do."""
    if change := changed(batch.files):
        return change, "nothing of the batch is in: try again once its files are whole"
    what, hint = explained(error)
    if not _misread(error):
        return what, hint
    if batch.files:
        return what, "its files are as they were, so this is a fault of driftline's: please report it"
    return what, "data that are made anew each time may differ each time: persist() them first"


def _misread(error: BaseException) -> bool:
    return isinstance(error, _Misread) or any(sign in str(error) for sign in ("MALFORMED_RECORD", LOST))
