"""The statistics of a table of the embedded lake from its metadata files alone, without Java."""

from __future__ import annotations

from dataclasses import replace

from driftline.core.planning.rest import rest_column
from driftline.core.schema.naming import MARK
from driftline.core.schema.table_name import QUARANTINE
from driftline.core.schema.types import Schema
from driftline.formats.lakes import OfflineTable
from driftline.operations.history import history
from driftline.settings import from_properties
from driftline.stats.build import StatisticsInputs, build
from driftline.stats.model import Stats
from driftline.stats.samples import by_bounds
from driftline.stats.shares import drifted


def stats(table: OfflineTable, *, in_short: bool = False) -> Stats | None:
    """The statistics as `driftline.stats.stats` gives them.

    ``in_short``: without samples of values, and reasons of records in quarantine. None if Spark is needed:
    for one of these, or for values in the rest.
    """
    state = table.load()
    statistics = table.statistics(state.schema)
    quarantined = table.rows_of(table.name + QUARANTINE)
    if statistics is None or quarantined is None or rest_column(state.schema.struct):
        return None
    schema, mark = state.schema, from_properties(state.properties).mark
    fields = list(drifted(schema, mark))
    samples, missing = by_bounds(fields, statistics)
    if not in_short and (missing or quarantined):
        return None
    inputs = StatisticsInputs(statistics, history(table), samples=samples, quarantined=quarantined)
    return build(table.name, schema, mark, fields, inputs)


def waiting_alone(name: str, quarantine: OfflineTable) -> Stats | None:
    """The statistics in short of a table that does not exist yet, because all of its records wait in
    quarantine. None if Spark is needed.
    """
    quarantined = quarantine.rows_of(quarantine.name)
    if quarantined is None:
        return None
    return replace(build(name, Schema(), MARK, [], StatisticsInputs(quarantined=quarantined)), records=0)
