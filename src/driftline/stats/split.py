"""The field that would split a table best, by some of its rows.

It is looked for where a table is wide and most cells are empty, as far as metadata tell. No other table pays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from driftline.core.schema.types import Primitive
from driftline.core.settings.properties import from_properties
from driftline.errors import DriftlineError
from driftline.ingest import split_by_field
from driftline.runtime.duckdb import identifier
from driftline.stats.model import Stats

if TYPE_CHECKING:
    import pyarrow as pa

    from driftline.formats.base import CatalogTable, State
    from driftline.formats.open import EmbeddedLake

_RECORDS = 200  # of fewer, their number says little
# Of a larger table the first rows have to do, as any others would be looked for in all of its files.
_CELLS = 300_000_000

Rows = Callable[[int, float], "pa.Table | None"]


def split_of(measured: Stats, load: Callable[[], State], rows: Rows) -> split_by_field.SplitByField | None:
    """The field that would split a table, if that saves half of the cells.

    Args:
        measured: the table's statistics.
        load: loads the state of the table.
        rows: reads at most so many rows of the table, if they can be read: of all by chance this share of
            them, or the first ones if the share is 1.
    """
    if measured.route is not None or not _is_sparse(measured):
        return None
    state = load()
    settings = from_properties(state.properties)
    if settings.row_key is not None:
        return None
    sampled = rows(split_by_field.FIRST, _share(measured))
    if sampled is None or not sampled.num_rows:
        return None
    from driftline.operations.split_columns import (
        best_split_of,  # late: where there is no split, none needs it
    )

    return best_split_of(sampled, state.schema.struct, settings.mark)


def _share(measured: Stats) -> float:
    """The share of the rows that are looked at, from all over the table; 1 for the first ones."""
    records = measured.records or 0
    if records <= split_by_field.FIRST or records * measured.leaves > _CELLS:
        return 1
    return split_by_field.FIRST / records


def _is_sparse(measured: Stats) -> bool:
    """True if a split may save half of the cells: those that have a value stay in any."""
    records = measured.records or 0
    if measured.leaves < split_by_field.FEW or records < _RECORDS:
        return False
    plain = (column for column in measured.columns if isinstance(column.type, Primitive))
    # How many rows have a value in a list, metadata do not tell.
    return sum(column.numbers.values or 0 for column in plain if column.numbers.of == records) <= (
        split_by_field.SAVED * records * measured.leaves
    )


def rows_by_duckdb(lake: EmbeddedLake, table: str) -> Rows:
    """Read rows of a table without Spark; none where DuckDB is not installed, or does not read the table."""

    def rows(count: int, share: float) -> pa.Table | None:
        """Some rows."""
        from driftline.operations.duckdb_query import query  # late: without a split to find nothing needs it

        # The same ones each time, as far as the table stays the same.
        sampling = f"USING SAMPLE reservoir({count} ROWS) REPEATABLE (1)" if share < 1 else f"LIMIT {count}"
        sql = f"SELECT * FROM {'.'.join(map(identifier, table.split('.')))} {sampling}"
        try:
            with query(lake.in_duckdb(sql), sql) as batches:
                return batches.read_all()
        except DriftlineError:  # the statistics are worth more than this advice
            return None

    return rows


def rows_by_spark(table: CatalogTable) -> Rows:
    """Read rows of a table with Spark."""
    from driftline.runtime import spark_conf, spark_version  # late: as Spark

    def rows(count: int, share: float) -> pa.Table:
        """Some rows."""
        with spark_conf.configured(table.spark, spark_conf.INTERPRETED):
            stored = table.read_readable()
            sampled = stored.sample(share, seed=1) if share < 1 else stored
            return spark_version.as_arrow(sampled.limit(count))

    return rows
