"""Statistics of a whole table, which DuckDB's optimizer believes: exact, or not there at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.core.schema.types import Primitive
from driftline.formats.ducklake.files import ColumnStats, DataFile, order_of

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The known values of a column in all files. ``low`` and ``high`` None: it holds only nulls."""

    nulls: bool
    low: str | None
    high: str | None


def add_statistics(
    connection: Connection,
    table: int,
    files: Sequence[DataFile],
    columns: Mapping[str, tuple[int, Primitive]],
) -> int:
    """Adds the files to the table's statistics; returns the row id that their first row gets."""
    rows, size = sum(f.rows for f in files), sum(f.size for f in files)
    known = connection.one("SELECT next_row_id FROM meta.ducklake_table_stats WHERE table_id = ?", [table])
    types = dict(columns.values())
    if known is None:
        connection.insert(
            "ducklake_table_stats",
            [{"table_id": table, "record_count": rows, "next_row_id": rows, "file_size_bytes": size}],
        )
        known_of = {i: of_files(files, i, type_) for i, type_ in types.items()}
        _insert(connection, table, {i: k for i, k in known_of.items() if k is not None})
        return 0
    connection.execute(
        f"UPDATE meta.ducklake_table_stats SET record_count = record_count + {rows}, "
        f"next_row_id = next_row_id + {rows}, file_size_bytes = file_size_bytes + {size} WHERE table_id = {table}"
    )
    before = {
        int(i): ColumnBounds(bool(nulls), low, high)
        for i, nulls, low, high in connection.rows(
            "SELECT column_id, CAST(contains_null AS BOOLEAN), min_value, max_value "
            "FROM meta.ducklake_table_column_stats WHERE table_id = ? AND contains_null IS NOT NULL "
            "AND contains_nan IS NULL AND extra_stats IS NULL",
            [table],
        )
    }
    after = {}
    for i, old in before.items():
        new = of_files(files, i, types[i]) if i in types else None
        if new is not None:
            after[i] = both(old, new, types[i])
    # Of a column without a row DuckDB believes nothing; it adds none by itself.
    connection.execute(f"DELETE FROM meta.ducklake_table_column_stats WHERE table_id = {table}")
    _insert(connection, table, after)
    return int(known[0])


def _insert(connection: Connection, table: int, known: Mapping[int, ColumnBounds]) -> None:
    connection.insert(
        "ducklake_table_column_stats",
        [
            {
                "table_id": table,
                "column_id": i,
                "contains_null": k.nulls,
                "min_value": k.low,
                "max_value": k.high,
            }
            for i, k in known.items()
        ],
    )


def of_files(files: Sequence[DataFile], column: int, type_: Primitive) -> ColumnBounds | None:
    """The statistics of a column over all files; None if one of them has none."""
    out = ColumnBounds(False, None, None)
    for file in files:
        stats = file.stats.get(column)
        known = None if stats is None else _of(stats)
        if known is None:
            return None
        out = both(out, known, type_)
    return out


def _of(stats: ColumnStats) -> ColumnBounds | None:
    if stats.nulls is None or (stats.values and (stats.low is None or stats.high is None)):
        return None
    return ColumnBounds(stats.nulls > 0, stats.low, stats.high)


def both(a: ColumnBounds, b: ColumnBounds, type_: Primitive) -> ColumnBounds:
    """Two parts of a column together."""
    order = order_of(type_)
    lows = [x for x in (a.low, b.low) if x is not None]
    highs = [x for x in (a.high, b.high) if x is not None]
    return ColumnBounds(
        a.nulls or b.nulls, min(lows, key=order, default=None), max(highs, key=order, default=None)
    )
