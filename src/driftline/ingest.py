"""One batch down the road: observe, plan, apply, route, append, report."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from driftline import quarantine
from driftline.core.plan import Plan, Settings, plan
from driftline.engine import configured
from driftline.errors import DataError
from driftline.formats.iceberg import CommitConflict, IcebergTable, State, Transaction
from driftline.observe.observation import Observation
from driftline.report.result import Result, result
from driftline.settings import as_properties, from_properties
from driftline.source.base import Source

ATTEMPTS = 5

Progress = Callable[[str], None]


def ingest(
    table: IcebergTable,
    source: Source,
    *,
    settings: Mapping[str, str] | None = None,
    dry_run: bool = False,
    progress: Progress = lambda _: None,
) -> Result:
    """Takes one batch into the table; with ``dry_run`` only plans it.

    All or nothing: after an error the table is as it was. Planned anew, up to `ATTEMPTS` times, where another
    writer changed the table meanwhile. Raises DataError where the data or the table says no.
    """
    properties = as_properties(settings or {})
    for _ in range(ATTEMPTS):
        state = table.load()
        wanted = from_properties({**state.properties, **properties})
        progress("observing")
        seen = source.observe(state.schema, wanted)
        progress("planning")
        planned = plan(state.schema, seen.shape, wanted)
        batch = uuid.uuid4().hex
        if dry_run:
            return result(table.name, batch, seen, planned, 0, 0, None)
        progress("writing")
        try:
            with configured(table.spark, source.conf):
                return _write(table, state, source, seen, planned, wanted, properties, batch)
        except CommitConflict as conflict:
            last = conflict
    raise DataError(f"{last}", hint="other writers keep changing this table: try again")


def _write(
    table: IcebergTable,
    state: State,
    source: Source,
    seen: Observation,
    planned: Plan,
    settings: Settings,
    properties: Mapping[str, str],
    batch: str,
) -> Result:
    if not planned.schema.struct.fields:
        return _no_columns(table, source, seen, planned, settings, batch)
    while True:
        transaction = table.transaction(state, planned.schema)
        staged: list[Transaction] = []
        try:
            if state.exists:
                transaction.evolve(planned.changes)
            written = _append(transaction, source, seen, planned, settings, batch)
            rejected = source.rejected()
            quarantined = 0
            if rejected is not None:
                kept, quarantined = quarantine.stage(table, rejected, batch)
                staged.append(kept)
            if written + quarantined != seen.tally.records + seen.tally.malformed:
                raise _Misread(
                    f"{seen.tally.records + seen.tally.malformed} records were observed, {written} were written and "
                    f"{quarantined} quarantined"
                )
            transaction.set({**properties, "driftline.batch": batch})
            # Quarantine first: a crash between the two leaves a copy too many there, never one too few.
            for kept in staged:
                kept.commit()
            snapshot = transaction.snapshot if written else None
            transaction.commit()
            return result(table.name, batch, seen, planned, written, quarantined, snapshot)
        except BaseException as error:
            for pending in (transaction, *staged):
                pending.abandon()
            if _misread(error) and source.be_careful():
                continue
            if isinstance(error, _Misread):
                raise DataError(
                    f"{table.name}: {error}", hint="did a file change while it was read? try again"
                ) from error
            raise


class _Misread(Exception):
    """Spark read the records otherwise than they were observed."""


def _append(
    transaction: Transaction, source: Source, seen: Observation, planned: Plan, settings: Settings, batch: str
) -> int:
    if not seen.tally.records:
        return 0
    rows = source.rows(planned, transaction.schema.struct, settings)
    return transaction.append(rows, {"driftline.batch": batch})


def _no_columns(
    table: IcebergTable, source: Source, seen: Observation, planned: Plan, settings: Settings, batch: str
) -> Result:
    """A table cannot be made without a column: the records wait in quarantine (2.4)."""
    quarantined = 0
    if seen.tally.records + seen.tally.malformed:
        source.be_careful()
        source.rows(planned, planned.schema.struct, settings)
        rejected = source.rejected(everything="no columns yet")
        assert rejected is not None
        kept, quarantined = quarantine.stage(table, rejected, batch)
        kept.commit()
    return result(table.name, batch, seen, planned, 0, quarantined, None)


def _misread(error: BaseException) -> bool:
    return isinstance(error, _Misread) or "MALFORMED_RECORD_IN_PARSING" in str(error)
