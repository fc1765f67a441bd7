"""The outcome of a batch: its result, from the plan and the rows written."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.core.planning.own_columns import spelled_field
from driftline.core.planning.plan import Plan
from driftline.core.settings.properties import newly_kept
from driftline.core.settings.row_key import late_hint
from driftline.errors import DriftlineError
from driftline.formats.base import Transaction
from driftline.ingest.batch import Planned
from driftline.ingest.result import Result, result
from driftline.sql.lost import waiting


def outcome(
    planned: Planned, written: int, quarantined: int, snapshot: int | None, rest: Mapping[str, int | None]
) -> Result:
    """The result of a committed batch.

    ``written``, ``quarantined``: numbers of records; ``snapshot``: the table's; ``rest``: the number of
    values that went there, by path.
    """
    batch, state = planned.batch, planned.state
    counted = result(batch.table.name, batch.id, planned.observation, planned.plan, written, quarantined)
    counted = counted.with_rest(rest, planned.settings.contract)
    made_as = batch.made_as(state, planned.plan) if batch.creation else None
    differences: tuple[str, ...] = ()
    with suppress(DriftlineError, PySparkException, Py4JError):  # the batch may be in
        differences = batch.differences(state)
    hints = (*counted.hints, *planned.notes, *differences, *_late(planned))
    kept = newly_kept(state.properties if state.exists else None, batch.properties)
    return replace(
        counted, snapshot=snapshot, made_as=made_as, hints=hints, by_key=planned.counts, settings=kept
    )


def _late(planned: Planned) -> list[str]:
    """A hint at a source whose positions went back."""
    row_key, counts = planned.settings.row_key, planned.counts
    if row_key is None or counts is None:
        return []
    hint = late_hint(planned.batch.table.name, row_key, counts.late, counts.total)
    return [hint] if hint else []


def rest_of(transaction: Transaction, planned: Planned) -> Mapping[str, int | None]:
    """The number of values that went to the rest, by path.

    The batch is already committed: if this cannot be read, only the paths are known.
    """
    if not planned.plan.route.has_rest:
        return {}
    with suppress(DriftlineError, PySparkException, Py4JError):
        rows = transaction.read_written()
        if rows is not None:
            values = waiting(rows, planned.plan.schema, planned.settings.mark)
            return {path_values.path: path_values.values for path_values in values}
    return paths_of_rest(planned.plan)


def paths_of_rest(planned: Plan) -> Mapping[str, int | None]:
    """The paths whose values the plan sends to the rest."""
    paths = (path for field in planned.route.fields for path in field.rest_paths((field.key,)))
    return {spelled_field(path): None for path in paths}
