"""The statistics of a table of the embedded lake from its metadata files alone, without Java."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from driftline.core.planning.own_columns import rest_column
from driftline.core.schema.naming import MARK, QUARANTINE
from driftline.core.schema.types import Schema
from driftline.core.settings.properties import from_properties
from driftline.errors import NeedsSpark
from driftline.formats.lakes import OfflineTable
from driftline.operations.history import history
from driftline.quarantine.replays import REPLAY, last_replay
from driftline.stats.build import StatisticsInputs, build
from driftline.stats.model import Stats
from driftline.stats.samples import by_bounds
from driftline.stats.type_shares import drifted


def stats(table: OfflineTable, *, in_short: bool = False) -> Stats | None:
    """The statistics as `driftline.stats.stats` gives them.

    ``in_short``: without samples of values, and reasons of records in quarantine. None if Spark is needed:
    for one of these, or for values in the rest.
    """
    state = table.load()
    statistics = table.statistics(state.schema)
    if statistics is None or rest_column(state.schema.struct):
        return None
    try:
        quarantine = table.beside(table.name + QUARANTINE)
        quarantined = 0 if quarantine is None else _waiting(quarantine, state.properties)
    except NeedsSpark:
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
    try:
        inputs = StatisticsInputs(quarantined=_waiting(quarantine, {}))
    except NeedsSpark:
        return None
    return replace(build(name, Schema(), MARK, [], inputs), records=0)


def _waiting(quarantine: OfflineTable, properties: Mapping[str, str]) -> int:
    """The number of records in quarantine that the table with these properties has not taken since.

    Raises NeedsSpark if metadata do not tell.
    """
    state = quarantine.load()
    statistics, column = quarantine.statistics(state.schema), state.schema.find((REPLAY,))
    if statistics is None or statistics.live is None or statistics.deleted:
        raise NeedsSpark("the rows of the quarantine are to be counted")
    replayed = 0 if column is None else statistics.counts.numbers(column.id).values
    if column is None or not replayed:
        if replayed is None:
            raise NeedsSpark("the files of the quarantine do not tell which of their rows were replayed")
        return statistics.live
    last = statistics.bounds[column.id].high if column.id in statistics.bounds else None
    if not isinstance(last, int) or last > last_replay(state, properties):
        raise NeedsSpark("a replay is under way")
    return statistics.live - replayed
