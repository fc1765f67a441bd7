"""In how many rows a column is null, as the statistics of a DuckLake's catalog tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core.changes import NullCount
from driftline.core.schema.types import Field
from driftline.formats.ducklake.inlined import inlined_rows
from driftline.formats.ducklake.snapshot import LIVE

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection


def nulls(connection: Connection, table: int, at: int, column: Field) -> NullCount:
    """Of a column at the top of the table, at a snapshot: in its files, and
    in the rows that the catalog keeps itself.
    """
    (null_rows, older_rows, unknown_rows), *_ = connection.rows(
        f"""SELECT coalesce(sum(s.null_count), 0),
        coalesce(sum(f.record_count) FILTER (s.null_count IS NULL AND f.begin_snapshot < c.added), 0),
        coalesce(sum(f.record_count) FILTER (s.null_count IS NULL AND f.begin_snapshot >= c.added), 0)
        FROM (SELECT * FROM meta.ducklake_data_file WHERE table_id = ? AND {LIVE}) f
        CROSS JOIN (SELECT coalesce(min(begin_snapshot), {at + 1}) AS added FROM meta.ducklake_column
                    WHERE table_id = ? AND column_id = ?) c
        LEFT JOIN meta.ducklake_file_column_stats s ON s.data_file_id = f.data_file_id AND s.column_id = ?""",
        [table, at, at, table, column.id, column.id],
    )
    absent = int(older_rows)  # rows that are older than the column
    count = NullCount(int(null_rows), int(unknown_rows))
    for rows in inlined_rows(connection, table, at):
        if column.id in {row.id for row in rows.columns}:
            count += NullCount(rows.rows.column(f"__f{column.id}").null_count)
        else:
            absent += rows.rows.num_rows
    return count + NullCount(absent if column.initial_default is None else 0)
