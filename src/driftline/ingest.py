"""One batch down the road: observe, plan, apply, route, append, report."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline import quarantine
from driftline.accept import accepted
from driftline.core.routes import Plan, Settings
from driftline.engine import configured
from driftline.errors import DataError
from driftline.formats.iceberg import CommitConflict, IcebergTable, State, Transaction, short
from driftline.observe.observation import Observation
from driftline.report.result import Result, result
from driftline.route.columns import LOST
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
    with configured(table.spark, source.conf):
        return _ingest(table, source, as_properties(settings or {}), dry_run=dry_run, progress=progress)


def _ingest(
    table: IcebergTable, source: Source, properties: Mapping[str, str], *, dry_run: bool, progress: Progress
) -> Result:
    batch = uuid.uuid4().hex
    for _ in range(ATTEMPTS):
        state = table.load()
        wanted = from_properties({**state.properties, **properties})
        seen, planned = accepted(source, state.schema, wanted, progress)
        if dry_run:
            return result(table.name, batch, seen, planned, 0, 0, None)
        progress("writing")
        try:
            return _write(table, state, source, seen, planned, wanted, properties, batch)
        except CommitConflict as conflict:
            last, hint = str(conflict), "other writers keep changing this table: try again"
        except (_Misread, PySparkException, Py4JError) as error:
            last, hint = short(error), "did a file change while it was read? try again"
            if not (_misread(error) and source.be_careful()):
                break
    raise DataError(f"{table.name}: {last}", hint)


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
    observed = seen.tally.records + seen.tally.malformed
    transaction = table.transaction(state, planned.schema)
    kept: quarantine.Staged | None = None
    try:
        if state.exists:
            transaction.evolve(planned.changes)
        written = _append(transaction, source, seen, planned, settings, batch)
        # Looking for what is no record reads the batch once more: only where observing has met some.
        rejected = source.rejected() if seen.tally.malformed else None
        kept = None if rejected is None else quarantine.stage(table, rejected, batch)
        quarantined = 0 if kept is None else kept.rows
        if written + quarantined != observed:
            raise _Misread(
                f"{observed} records were observed, {written} were written and {quarantined} quarantined"
            )
        transaction.set({**properties, "driftline.batch": batch})
        snapshot = transaction.snapshot if written else None
        # Quarantine first: a crash between the two leaves a copy too many there, never one too few.
        if kept is not None:
            kept.commit()
        transaction.commit()
    except BaseException:
        transaction.abandon()
        if kept is not None:
            kept.undo()
        raise
    return result(table.name, batch, seen, planned, written, quarantined, snapshot)


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
        kept = quarantine.stage(table, rejected, batch)
        kept.commit()
        quarantined = kept.rows
    return result(table.name, batch, seen, planned, 0, quarantined, None)


def _misread(error: BaseException) -> bool:
    return isinstance(error, _Misread) or any(sign in str(error) for sign in ("MALFORMED_RECORD", LOST))
