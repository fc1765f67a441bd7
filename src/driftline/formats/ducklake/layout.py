"""Partition and sort keys of a table, as the catalog has them and as Spark writes by them.

DuckLake 1.0 has the transforms identity, year, month, day, hour and bucket; the parts of a date are those of the
calendar. A sort key is an expression of DuckDB's; one that is no plain column is DuckDB's business alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from driftline.core.layout import Laid, PartitionField, SortField, Transform
from driftline.core.types import Field, Primitive, Schema
from driftline.errors import DataError
from driftline.formats.ducklake.snapshot import LIVE, live
from driftline.formats.ducklake.sorting import SortKey, column_of, key_of, top_column

if TYPE_CHECKING:
    from driftline.core.definition import Definition
    from driftline.formats.ducklake.catalog import Connection

TRANSFORMS = ("identity", "year", "month", "day", "hour", "bucket")
# What Iceberg's bucket function and DuckLake's give the same number for.
BUCKETED = ("int", "long", "string", "date", "timestamp")
_BUCKET = re.compile(r"bucket\((\d+)\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Layout:
    """``sort``: the sort keys as far as they are columns; ``keys``: all of them, as the catalog has them.
    ``partition_id``: the catalog's, None where the table is not partitioned."""

    partition: tuple[PartitionField, ...] = ()
    sort: tuple[SortField, ...] = ()
    partition_id: int | None = None
    keys: tuple[SortKey, ...] = ()

    @property
    def foreign(self) -> bool:
        """Whether the table is sorted by more than columns."""
        return len(self.keys) > len(self.sort)

    def expressions(self, schema: Schema) -> dict[int, str]:
        """The sort keys that are no plain columns, by the id of each column that they name."""
        beyond = self.keys[len(self.sort) :]
        named = ((column_of(schema, name), key.expression) for key in beyond for name in key.columns)
        return {column.id: text for column, text in named if column is not None}

    def changed(self, now: Schema, before: Definition, after: Definition, table: str) -> Layout:
        """The layout of ``after``; the keys follow the columns' names. Raises DataError for what DuckLake has not."""
        if after.sort == before.sort:
            old = {f.id: f.name for f in before.schema.struct.fields}
            names = {old[f.id].lower(): f.name for f in now.struct.fields if old.get(f.id, f.name) != f.name}
            keys = tuple(key.renamed(names) for key in self.keys)
        else:
            keys = tuple(key_of(f, now, table) for f in after.sort)
        for f in after.partition:
            text_of(f.transform, top_column(now, f.source, table), table)
        return Layout(after.partition, after.sort, self.partition_id, keys)


def layout(connection: Connection, table: int, at: int, schema: Schema) -> Layout:
    """How the table's new files are laid out."""
    current = next(iter(_specs(connection, table, schema, f"AND {live('i')}", [at, at]).items()), None)
    keys = tuple(
        SortKey(str(expression), direction == "DESC", nulls == "NULLS_FIRST")
        for expression, direction, nulls in connection.rows(
            "SELECT e.expression, e.sort_direction, e.null_order FROM meta.ducklake_sort_info i "
            "JOIN meta.ducklake_sort_expression e ON e.sort_id = i.sort_id AND e.table_id = i.table_id "
            f"WHERE i.table_id = ? AND {live('i')} ORDER BY e.sort_key_index",
            [table, at, at],
        )
    )
    spec, partition = current or (None, ())
    columns = takewhile(lambda field: field is not None, (key.field(schema) for key in keys))
    return Layout(partition, tuple(f for f in columns if f), spec, keys)


def laid(connection: Connection, table: int, at: int, schema: Schema) -> list[Laid]:
    """The table's data files by partition spec; spec 0: not partitioned. Specs without files are left out, but for the
    current one. Rows that are in the catalog itself are in no file."""
    specs: dict[int, tuple[PartitionField, ...]] = {0: (), **_specs(connection, table, schema)}
    current = layout(connection, table, at, schema).partition_id or 0
    counts = {
        int(spec): (int(files), int(records), int(size))
        for spec, files, records, size in connection.rows(
            "SELECT coalesce(partition_id, 0), count(*), sum(record_count), sum(file_size_bytes) "
            f"FROM meta.ducklake_data_file WHERE table_id = ? AND {LIVE} GROUP BY 1",
            [table, at, at],
        )
    }
    return [
        Laid(spec, fields, *counts.get(spec, (0, 0, 0)), spec == current)
        for spec, fields in sorted(specs.items())
        if spec in counts or spec == current
    ]


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
        made = _read(str(transform))
        field = PartitionField(made.field_name(names.get(int(column), "")), int(column), made)
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


def set_layout(
    connection: Connection,
    table: int,
    snapshot: int,
    catalog_id: int,
    before: Layout,
    after: Layout,
    schema: Schema,
    name: str,
) -> int:
    """Writes what changed; returns the next free catalog id."""
    if [(f.source, f.transform) for f in before.partition] != [
        (f.source, f.transform) for f in after.partition
    ]:
        _end(connection, "ducklake_partition_info", table, snapshot)
        if after.partition:
            connection.insert(
                "ducklake_partition_info",
                [{"partition_id": catalog_id, "table_id": table, "begin_snapshot": snapshot}],
            )
            connection.insert(
                "ducklake_partition_column",
                [
                    {
                        "partition_id": catalog_id,
                        "table_id": table,
                        "partition_key_index": i,
                        "column_id": f.source,
                        "transform": text_of(f.transform, top_column(schema, f.source, name), name),
                    }
                    for i, f in enumerate(after.partition)
                ],
            )
            catalog_id += 1
    if before.keys != after.keys:
        _end(connection, "ducklake_sort_info", table, snapshot)
        if after.keys:
            connection.insert(
                "ducklake_sort_info",
                [{"sort_id": catalog_id, "table_id": table, "begin_snapshot": snapshot}],
            )
            connection.insert(
                "ducklake_sort_expression",
                [
                    {
                        "sort_id": catalog_id,
                        "table_id": table,
                        "sort_key_index": i,
                        "expression": key.expression,
                        "dialect": "duckdb",
                        "sort_direction": "DESC" if key.descending else "ASC",
                        "null_order": "NULLS_FIRST" if key.nulls_first else "NULLS_LAST",
                    }
                    for i, key in enumerate(after.keys)
                ],
            )
            catalog_id += 1
    return catalog_id


def _end(connection: Connection, place: str, table: int, snapshot: int) -> None:
    connection.execute(
        f"UPDATE meta.{place} SET end_snapshot = {snapshot} WHERE table_id = {table} AND end_snapshot IS NULL"
    )
