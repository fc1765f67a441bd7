"""The one place that knows which table formats there are.

Each is imported when a lake of it is opened: DuckDB need not be installed for Iceberg.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from driftline.formats.lakes import Catalog, Location, OfflineTable


def iceberg(spark: SparkSession, name: str) -> Catalog:
    """The Iceberg catalog that the session knows by this name."""
    from driftline.formats.iceberg.catalog import IcebergCatalog

    return IcebergCatalog(spark, name)


def offline(folder: Path, catalog: str, name: str) -> OfflineTable | None:
    """A table of an embedded Iceberg lake without Spark; None if that is impossible."""
    from driftline.formats.iceberg.offline import OfflineIcebergTable

    return OfflineIcebergTable.of(folder, catalog, name)


def offline_in_ducklake(catalog: str, folder: Path, name: str) -> OfflineTable | None:
    """A table of a DuckLake without Spark; None if it does not exist."""
    from driftline.formats.ducklake.catalog import CatalogDatabase  # late: as all of a format
    from driftline.formats.ducklake.offline import OfflineDuckLakeTable

    return OfflineDuckLakeTable.of(CatalogDatabase.of(catalog, folder), name)


def names_in_ducklake(catalog: str, folder: Path) -> list[str] | None:
    """The tables of a DuckLake, without Spark; None if it does not exist."""
    from driftline.formats.ducklake.catalog import CatalogDatabase  # late: as all of a format
    from driftline.formats.ducklake.offline import tables

    database = CatalogDatabase.of(catalog, folder)
    return [".".join(parts) for parts in tables(database)] if database.exists() else None


def in_duckdb(
    folder: Path, ducklake: str | None, sql: str
) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """DuckDB with the tables of a lake that the ``sql`` names. ``ducklake``: its catalog; None for the
    embedded Iceberg.
    """
    if ducklake is not None:
        from driftline.formats.ducklake.catalog import CatalogDatabase  # late: as all of a format

        return CatalogDatabase.of(ducklake, folder).queried()
    from driftline.formats.iceberg.duckdb_views import queried

    return queried(folder, "lake", sql)


def table_names(folder: Path, catalog: str, *, views: bool = True) -> list[str] | None:
    """The tables, and ``views``, of an embedded Iceberg lake, without Spark; None where its catalog is not
    read.
    """
    from driftline.formats.iceberg.offline import table_names

    return table_names(folder, catalog, views=views)


def _ducklake(catalog: str, folder: Path) -> Location:
    from driftline.formats.ducklake.lake import DuckLakeLocation

    return DuckLakeLocation.of(catalog, folder)


# Formats whose catalogs are not Spark's, by the word for them.
FORMATS: dict[str, Callable[[str, Path], Location]] = {"ducklake": _ducklake}


def located(format_: str, catalog: str, folder: Path) -> Location:
    """A lake of one of these formats. ``catalog``: as a person names it; ``folder``: where the lake is.

    Raises UsageError for a catalog that the format does not know.
    """
    return FORMATS[format_](catalog, folder)
