"""The table formats, behind what the tests of both ask of them."""

from __future__ import annotations

from pyspark.sql.types import StructType

from driftline.core.changes import AddColumn, apply
from driftline.core.schema.types import Schema
from driftline.lake import Table
from driftline.source.typed import core_struct

FORMATS = ("iceberg", "ducklake")


def declare(table: Table, columns: str) -> None:
    """Makes the table with these columns, as Spark's DDL, before any data."""
    if table.lake.ducklake is None:
        namespace = table.name.split(".")[0]
        table.lake.sql(f"create namespace if not exists lake.{namespace}")
        table.lake.sql(f"create table lake.{table.name} ({columns}) using iceberg")
        return
    struct = core_struct(StructType.fromDDL(columns))
    schema = apply(Schema(), [AddColumn((), f) for f in struct.fields])
    table.format.transaction(table.format.load(), schema).commit()
