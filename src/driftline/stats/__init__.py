"""Statistics of a table: its contents and evolution, column by column.

Read from the table's metadata at once, or counted exactly by a scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from driftline.core.history.batch_properties import rest_since
from driftline.core.planning.own_columns import rest_column
from driftline.core.schema.naming import MARK
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Schema
from driftline.core.settings.properties import from_properties
from driftline.errors import DataError, no_table
from driftline.operations.history import history
from driftline.sql.lost import waiting as rest
from driftline.stats.build import StatisticsInputs, build, watched
from driftline.stats.exact import Siblings, drifted, samples
from driftline.stats.exact import exact as scan
from driftline.stats.model import ColumnStatistics, DriftedField, Stats

if TYPE_CHECKING:
    from driftline.formats.base import CatalogTable

__all__ = ["ColumnStatistics", "DriftedField", "Stats", "stats"]


def stats(
    table: CatalogTable,
    *,
    exact: bool = False,
    over_time: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Stats:
    """The statistics of a table.

    Args:
        exact: with a scan of its rows.
        over_time: with the values of drifted fields by period.
        progress: called with each step.

    A table all of whose records wait in quarantine does not exist yet, and has only their numbers. Raises
    UsageError if there is neither.
    """
    # Whoever reads metadata files alone needs none of these, and starts without Spark.
    from driftline.quarantine import table as quarantine
    from driftline.stats import waiting_records

    state = table.load()
    if not state.exists:
        if not quarantine.of(table).load().exists:
            raise no_table(table.name)
        inputs = StatisticsInputs(quarantine.with_feed(table, state).properties)
        inputs.waiting = waiting_records.by_spark(table, over_time=over_time)
        return replace(build(table.name, state.schema, MARK, [], inputs), records=0)
    mark = from_properties(state.properties).mark
    fields = list(drifted(state.schema, mark))
    progress("reading metadata")
    statistics = table.statistics(state.schema, watched(fields) if over_time else frozenset())
    inputs = StatisticsInputs(state.properties, statistics)
    inputs.samples = samples(table, state.schema, fields, statistics)
    progress("reading the log")
    inputs.history = history(table)
    if exact:
        readable = table.readable(state.schema)
        _countable(table.name, readable, fields)
        inputs.exact = scan(table.read_readable(), readable, fields, progress)
    progress("looking into quarantine")
    inputs.waiting = waiting_records.by_spark(table, over_time=over_time)
    if rest_column(state.schema.struct) is not None:
        progress("looking into the rest")
        inputs.rest = tuple(
            replace(entry, first=rest_since(state.properties, entry.path))
            for entry in rest(table.read_readable(), state.schema, mark)
        )
    return build(table.name, state.schema, mark, fields, inputs)


def _countable(table: str, readable: Schema, fields: Sequence[Siblings]) -> None:
    """Check that the values of drifted fields can be divided by types. Raises DataError."""
    ids = {f.id for _, f in readable.walk()}
    for column in (c for siblings in fields for c in siblings.columns):
        if column.id not in ids:
            raise DataError(
                f"{table}: {column.name} is one of its field's columns, and Spark cannot read a {type_name(column.type)}",
                "stats without --exact go by metadata",
            )
