"""The sizes of a DuckLake table's data files, by partition, from its catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core.columns.file_sizes import (
    LARGEST,
    MANY,
    FileSizes,
    PartitionSize,
    partition_name,
    small_below,
)
from driftline.formats.ducklake.layout import specs_of
from driftline.formats.ducklake.snapshot import LIVE, LakeState, TableRow

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection

TARGET = 512 * 2**20  # bytes of a file, as DuckDB has it
_TARGET_KEY = "target_file_size"  # of the catalog's settings
_FILES = f"(SELECT * FROM meta.ducklake_data_file WHERE table_id = ? AND {LIVE})"


def target_of(connection: Connection, table: TableRow) -> int:
    """The bytes that a file should have, by the setting of the table, its namespace or the lake."""
    sizes = {
        scope: int(value)
        for scope, value in connection.rows(
            f"SELECT scope, value FROM meta.ducklake_metadata WHERE key = '{_TARGET_KEY}' AND (scope IS NULL "
            f"OR (scope = 'schema' AND scope_id = {table.schema_id}) OR (scope = 'table' AND scope_id = {table.id}))"
        )
    }
    return next((sizes[scope] for scope in ("table", "schema", None) if scope in sizes), TARGET)


def sizes_of(connection: Connection, state: LakeState) -> FileSizes:
    """Sum the sizes of the files by partition, in the catalog's database."""
    assert state.table is not None
    table, target = state.table.id, target_of(connection, state.table)
    specs = {0: (), **specs_of(connection, table, state.schema)}
    rows = connection.rows(
        f"""SELECT spec, place, files, size, CASE WHEN small >= {MANY} OR small_size >= {target}
            THEN small ELSE 0 END AS gathered, count(*) OVER (), sum(gathered) OVER ()
            FROM (SELECT coalesce(f.partition_id, 0) AS spec, v.place, count(*) AS files, sum(f.file_size_bytes) AS size,
                count(*) FILTER (f.file_size_bytes < {small_below(target)}) AS small,
                coalesce(sum(f.file_size_bytes) FILTER (f.file_size_bytes < {small_below(target)}), 0) AS small_size
                FROM {_FILES} f LEFT JOIN (SELECT data_file_id, list(partition_value ORDER BY partition_key_index) AS place
                    FROM meta.ducklake_file_partition_value WHERE table_id = {table} GROUP BY 1) v
                    ON v.data_file_id = f.data_file_id GROUP BY 1, 2)
            ORDER BY size DESC LIMIT {LARGEST}""",
        [table, state.snapshot, state.snapshot],
    )
    places, small = (int(rows[0][5]), int(rows[0][6])) if rows else (0, 0)
    if not any(specs.values()):
        return FileSizes(small)
    largest = (
        PartitionSize(partition_name(specs.get(spec, ()), place or ()), int(files), int(size), int(gathered))
        for spec, place, files, size, gathered, *_ in rows
    )
    return FileSizes(small, places, tuple(largest))
