"""The statistics of a table of the embedded lake from its metadata files alone, without Java."""

from __future__ import annotations

from driftline.core.planning.rest import rest_column
from driftline.core.schema.table_name import QUARANTINE
from driftline.formats.lakes import OfflineTable
from driftline.operations.history import history
from driftline.settings import from_properties
from driftline.stats.build import StatisticsInputs, build
from driftline.stats.model import Stats
from driftline.stats.samples import by_bounds
from driftline.stats.shares import drifted


def stats(table: OfflineTable) -> Stats | None:
    """The statistics as `driftline.stats.stats` gives them.

    None if Spark is needed: for values to look up as samples, records in quarantine, or values in the rest.
    """
    state = table.load()
    statistics = table.statistics(state.schema)
    if statistics is None or not table.is_empty(table.name + QUARANTINE) or rest_column(state.schema.struct):
        return None
    schema, mark = state.schema, from_properties(state.properties).mark
    fields = list(drifted(schema, mark))
    samples, missing = by_bounds(fields, statistics)
    if missing:
        return None
    inputs = StatisticsInputs(statistics, history(table), samples=samples)
    return build(table.name, schema, mark, fields, inputs)
