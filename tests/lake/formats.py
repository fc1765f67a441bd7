"""The table formats, behind what the tests of both ask of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from driftline.core.changes import AddColumn, apply
from driftline.core.schema.types import Schema
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.lake import DuckLake
from driftline.formats.iceberg.catalog import IcebergCatalog
from driftline.formats.open import EmbeddedLake
from driftline.lake import Lake, Table
from driftline.runtime.spark_version import has_variants, installed_release
from driftline.sources.frames import core_struct
from driftline.write import PartTasks, folder_of_batch

FORMATS = ("iceberg", "ducklake")
KEEPS_STRUCTS = pytest.mark.skipif(
    installed_release().iceberg == "1.11.0",
    reason="Iceberg 1.11 reads a struct as null in files that have none of its fields",
)
VARIANTS = pytest.mark.skipif(not has_variants(), reason="Spark 3.5 has no variants")


def ducklake_at(spark: SparkSession, catalog: CatalogDatabase) -> Lake:
    """The DuckLake whose catalog is this one."""
    return Lake(spark, "lake", DuckLake(spark, catalog))


def beside(lake: Lake, session: SparkSession) -> Lake:
    """The same lake in another session."""
    if (catalog := database(lake)) is not None:
        return ducklake_at(session, catalog)
    return Lake.attach(session, catalog="lake")


def database(lake: Lake) -> Any:
    """The catalog of a DuckLake; None for a lake of another format."""
    return lake.format.catalog if isinstance(lake.format, DuckLake) else None


def catalog_file(lake: Lake) -> Path:
    """The file that is the catalog of a lake of the tests."""
    if (catalog := database(lake)) is not None:
        return Path(catalog.target)
    return Path(str(lake.spark.conf.get(f"spark.sql.catalog.{lake.catalog}.warehouse")), "catalog.db")


def without_spark(lake: Lake) -> EmbeddedLake:
    """The same lake, as processes without Spark read it."""
    if (catalog := database(lake)) is not None:
        return EmbeddedLake(Path(catalog.data).parent, f"{catalog.kind}:{catalog.target}")
    return EmbeddedLake(catalog_file(lake).parent)


def is_embedded(lake: Lake) -> bool:
    """False for a lake with `--in-catalog`, which only Spark finds tables in."""
    return database(lake) is not None or lake.spark.conf.get("spark.sql.catalog.lake.type") == "jdbc"


def declare(table: Table, columns: str) -> None:
    """Makes the table with these columns, as Spark's DDL, before any data."""
    if isinstance(table.lake.format, IcebergCatalog):
        namespace = table.name.split(".")[0]
        table.lake.sql(f"create namespace if not exists lake.{namespace}")
        table.lake.sql(f"create table lake.{table.name} ({columns}) using iceberg")
        return
    struct = core_struct(table.lake.spark.createDataFrame([], columns).schema)
    schema = apply(Schema(), [AddColumn((), f) for f in struct.fields])
    new_definition = replace(table.format.blank, schema=schema)
    table.format.transaction(table.format.load(), new_definition).commit()


def by_pyiceberg(table: Table, *columns: str) -> pa.Table:
    """The rows, or these columns of them, as pyiceberg reads them: out of the files of an Iceberg table."""
    static = StaticTable.from_metadata(table.state().version)
    return static.scan(selected_fields=columns or ("*",)).to_arrow()


def written(
    spark: SparkSession, transaction: Any, maker: Any, summary: Mapping[str, str] | None = None
) -> int:
    """Has two tasks write the rows of a maker, as a batch does; returns how many there are."""
    with folder_of_batch(spark, transaction) as folder:
        rows: int = transaction.write(PartTasks(spark, (1, 1), maker), folder, summary or {})
    return rows
