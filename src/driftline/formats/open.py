"""The one place that knows which table formats there are.

Each is imported when a lake of it is opened: DuckDB need not be installed for Iceberg.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.formats.base import Catalog, OfflineTable
    from driftline.formats.ducklake.catalog import Catalog as DuckLakeCatalog

    __all__ = ["DuckLakeCatalog", "ducklake", "ducklake_database", "ducklake_tables", "iceberg", "offline"]


def iceberg(spark: SparkSession, name: str) -> Catalog:
    """The Iceberg catalog that the session knows by this name."""
    from driftline.formats.iceberg.catalog import IcebergCatalog

    return IcebergCatalog(spark, name)


def ducklake(spark: SparkSession, database: DuckLakeCatalog) -> Catalog:
    """The DuckLake whose catalog is in this database."""
    from driftline.formats.ducklake.lake import DuckLake

    return DuckLake(spark, database)


def ducklake_database(text: str, folder: Path) -> DuckLakeCatalog:
    """The database of a DuckLake's catalog, as a person names it: ``duckdb``, ``sqlite``, either with ``:PATH``, or
    ``postgres:`` and what libpq takes. ``folder``: where the lake is.

    Raises UsageError for any other text.
    """
    from driftline.formats.ducklake.catalog import Catalog

    return Catalog.of(text, folder)


def ducklake_tables(database: DuckLakeCatalog) -> list[str]:
    """The names of the tables of a DuckLake, without Spark."""
    from driftline.formats.ducklake.query import tables

    return [".".join(parts) for parts in tables(database)]


def offline(folder: Path, catalog: str, name: str) -> OfflineTable | None:
    """A table of an embedded Iceberg lake without Spark; None where it is not to be had so."""
    from driftline.formats.iceberg.offline import OfflineTable

    return OfflineTable.of(folder, catalog, name)
