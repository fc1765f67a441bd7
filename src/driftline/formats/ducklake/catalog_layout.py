"""Partition and sort keys of a table, as the catalog has them and as Spark writes by them.

DuckLake 1.0 has the transforms identity, year, month, day, hour and bucket; the parts of a
date are those of the calendar. A sort key is an expression of DuckDB's; Spark sorts by the
columns that come before the first other one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.core.schema.definition import Laid, PartitionField, SortKey, Transform
from driftline.core.schema.types import Field, Primitive, Schema
from driftline.errors import DataError
from driftline.formats.ducklake.snapshot import LIVE, live
from driftline.formats.ducklake.sorting import expression_of, key_of, top_column

if TYPE_CHECKING:
    from driftline.core.schema.definition import Definition
    from driftline.formats.ducklake.catalog import Connection

TRANSFORMS = ("identity", "year", "month", "day", "hour", "bucket")
# What Iceberg's bucket function and DuckLake's give the same number for.
BUCKETED = ("int", "long", "string", "date", "timestamp")
_BUCKET = re.compile(r"bucket\((\d+)\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CatalogLayout:
    """A table's layout. ``expressions``: the sort keys as the catalog has them. ``partition_id``: the
    catalog's, None where the table is not partitioned.
    """

    partition: tuple[PartitionField, ...] = ()
    sort: tuple[SortKey, ...] = ()
    partition_id: int | None = None
    expressions: tuple[str, ...] = ()

    def changed(self, after: Definition, table: str) -> CatalogLayout:
        """The layout of ``after``. Raises DataError for what DuckLake has not."""
        for f in after.partition:
            text_of(f.transform, top_column(after.schema, f.source, table), table)
        return CatalogLayout(
            after.partition,
            after.sort,
            self.partition_id,
            _expressions(after.sort, after.schema, table),
        )


def layout(connection: Connection, table: int, snapshot: int, schema: Schema) -> CatalogLayout:
    """The layout of the table's new files at a snapshot."""
    current = next(
        iter(_specs(connection, table, schema, f"AND {live('i')}", [snapshot, snapshot]).items()), None
    )
    keys = tuple(
        key_of(str(expression), direction == "DESC", nulls == "NULLS_FIRST", schema)
        for expression, direction, nulls in connection.rows(
            "SELECT e.expression, e.sort_direction, e.null_order FROM meta.ducklake_sort_info i "
            "JOIN meta.ducklake_sort_expression e ON e.sort_id = i.sort_id AND e.table_id = i.table_id "
            f"WHERE i.table_id = ? AND {live('i')} ORDER BY e.sort_key_index",
            [table, snapshot, snapshot],
        )
    )
    spec, partition = current or (None, ())
    return CatalogLayout(partition, keys, spec, _expressions(keys, schema, str(table)))


def partition_id_of(connection: Connection, table: int, snapshot: int) -> int | None:
    """The catalog's id of the partition spec of the table's new files; None if it is not partitioned."""
    row = connection.one(
        f"SELECT partition_id FROM meta.ducklake_partition_info WHERE table_id = ? AND {LIVE}",
        [table, snapshot, snapshot],
    )
    return int(row[0]) if row else None


def laid(connection: Connection, table: int, snapshot: int, schema: Schema) -> list[Laid]:
    """The table's data files by partition spec; spec 0: not partitioned. Specs without files are left out,
    but for the current one. Rows that are in the catalog itself are in no file.
    """
    specs: dict[int, tuple[PartitionField, ...]] = {0: (), **_specs(connection, table, schema)}
    current = partition_id_of(connection, table, snapshot) or 0
    counts = {
        int(spec): (int(files), int(records), int(size))
        for spec, files, records, size in connection.rows(
            "SELECT coalesce(partition_id, 0), count(*), sum(record_count), sum(file_size_bytes) "
            f"FROM meta.ducklake_data_file WHERE table_id = ? AND {LIVE} GROUP BY 1",
            [table, snapshot, snapshot],
        )
    }
    return [
        Laid(spec, fields, *counts.get(spec, (0, 0, 0)), spec == current)
        for spec, fields in sorted(specs.items())
        if spec in counts or spec == current
    ]


def _expressions(keys: Sequence[SortKey], schema: Schema, table: str) -> tuple[str, ...]:
    return tuple(expression_of(key, schema, table) for key in keys)


def _specs(
    connection: Connection, table: int, schema: Schema, where: str = "", parameters: Sequence[int] = ()
) -> dict[int, tuple[PartitionField, ...]]:
    """Partition specs by the catalog's id."""
    names = {f.id: f.name for f in schema.struct.fields}
    out: dict[int, tuple[PartitionField, ...]] = {}
    for spec, column, transform in connection.rows(
        "SELECT i.partition_id, c.column_id, c.transform FROM meta.ducklake_partition_info i "
        "JOIN meta.ducklake_partition_column c ON c.partition_id = i.partition_id AND c.table_id = i.table_id "
        f"WHERE i.table_id = ? {where} ORDER BY i.partition_id, c.partition_key_index",
        [table, *parameters],
    ):
        parsed = _read(str(transform))
        field = PartitionField(parsed.field_name(names.get(int(column), "")), int(column), parsed)
        out[int(spec)] = (*out.get(int(spec), ()), field)
    return out


def _read(text: str) -> Transform:
    match = _BUCKET.fullmatch(text)
    return Transform("bucket", int(match[1])) if match else Transform.read(text.lower())


def text_of(transform: Transform, field: Field, table: str) -> str:
    """The transform as the catalog has it. Raises DataError for one that DuckLake has not."""
    if transform.name not in TRANSFORMS:
        raise DataError(
            f"{table}: DuckLake has no partition transform {transform.name}",
            hint=f"it has {', '.join(TRANSFORMS)}",
        )
    if not isinstance(field.type, Primitive):
        raise DataError(f"{table}: DuckLake does not partition by {field.name}, which is nested")
    if transform.name == "bucket":
        if field.type.name not in BUCKETED:
            raise DataError(
                f"{table}: a bucket of {field.type} is not the same number in Spark and in DuckDB"
            )
        return f"bucket({transform.n})"
    return transform.name


@dataclass(frozen=True, slots=True)
class LayoutUpdate:
    """The layout of a table ``before`` and ``after`` a snapshot.

    ``schema``: its columns; ``table``, ``snapshot``: the ids for its rows in the catalog; ``name``: the
    table's.
    """

    table: int
    snapshot: int
    before: CatalogLayout
    after: CatalogLayout
    schema: Schema
    name: str


def set_layout(connection: Connection, change: LayoutUpdate, catalog_id: int) -> int:
    """Write what changed; returns the next free catalog id."""
    before, after = change.before, change.after
    if [(f.source, f.transform) for f in before.partition] != [
        (f.source, f.transform) for f in after.partition
    ]:
        catalog_id = _set_partition(connection, change, catalog_id)
    if (before.sort, before.expressions) != (after.sort, after.expressions):
        catalog_id = _set_sort(connection, change, catalog_id)
    return catalog_id


def _set_partition(connection: Connection, change: LayoutUpdate, catalog_id: int) -> int:
    connection.end("ducklake_partition_info", change.snapshot, f"table_id = {change.table}")
    if not change.after.partition:
        return catalog_id
    row = {"partition_id": catalog_id, "table_id": change.table, "begin_snapshot": change.snapshot}
    connection.insert("ducklake_partition_info", [row])
    columns = [
        {
            "partition_id": catalog_id,
            "table_id": change.table,
            "partition_key_index": i,
            "column_id": f.source,
            "transform": text_of(f.transform, top_column(change.schema, f.source, change.name), change.name),
        }
        for i, f in enumerate(change.after.partition)
    ]
    connection.insert("ducklake_partition_column", columns)
    return catalog_id + 1


def _set_sort(connection: Connection, change: LayoutUpdate, catalog_id: int) -> int:
    connection.end("ducklake_sort_info", change.snapshot, f"table_id = {change.table}")
    if not change.after.sort:
        return catalog_id
    row = {"sort_id": catalog_id, "table_id": change.table, "begin_snapshot": change.snapshot}
    connection.insert("ducklake_sort_info", [row])
    keys = [
        {
            "sort_id": catalog_id,
            "table_id": change.table,
            "sort_key_index": i,
            "expression": expression,
            "dialect": "duckdb",
            "sort_direction": "DESC" if key.descending else "ASC",
            "null_order": "NULLS_FIRST" if key.nulls_first else "NULLS_LAST",
        }
        for i, (key, expression) in enumerate(zip(change.after.sort, change.after.expressions, strict=True))
    ]
    connection.insert("ducklake_sort_expression", keys)
    return catalog_id + 1
