"""A DuckLake on a Spark session."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.orphans import clean, orphans
from driftline.formats.ducklake.query import sql, tables
from driftline.formats.ducklake.table import DuckLakeTable
from driftline.formats.lakes import Orphan
from driftline.sql.quoting import name as quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class DuckLakeLocation:
    """A DuckLake by its catalog's database, without Spark."""

    catalog: CatalogDatabase

    @classmethod
    def of(cls, text: str, folder: Path) -> DuckLakeLocation:
        """``text``: ``duckdb``, ``sqlite``, either with ``:PATH``, or
        ``postgres:…``. Raises UsageError for any other.
        """
        return cls(CatalogDatabase.of(text, folder))

    @property
    def shown(self) -> str:
        """The catalog for people, without a password."""
        return self.catalog.shown

    def engine(self) -> str:
        """The DuckDB and its extensions. Raises SetupError if one of them is missing."""
        return self.catalog.engine()

    def exists(self) -> bool:
        """True if there is a database; a server's is not asked."""
        return self.catalog.exists()

    def tables(self) -> list[str]:
        """The names of the lake's tables."""
        return [".".join(parts) for parts in tables(self.catalog)]

    def open(self, spark: SparkSession) -> DuckLake:
        """The lake's tables, on a Spark session."""
        return DuckLake(spark, self.catalog)


@dataclass(frozen=True, slots=True)
class DuckLake:
    """The tables of a DuckLake. ``catalog``: its database."""

    spark: SparkSession
    catalog: CatalogDatabase

    @property
    def folder(self) -> str:
        """The folder of the lake's files."""
        return self.catalog.data.rstrip("/").rpartition("/")[0]

    @property
    def writes(self) -> str:
        """The engine that runs statements that write."""
        return "DuckDB runs it"

    @property
    def has_views(self) -> bool:
        """A DuckLake keeps no views of Spark's."""
        return False

    def sql_name(self, name: str) -> str:
        """A table by ``namespace.table``, quoted for Spark SQL."""
        return ".".join(map(quoted, name.split(".")))

    def on(self, spark: SparkSession) -> DuckLake:
        """The same lake in another session of the same Spark."""
        return replace(self, spark=spark)

    def table(self, name: str) -> DuckLakeTable:
        """A table by ``namespace.table``. Raises UsageError for an impossible name."""
        return DuckLakeTable(self.spark, self.catalog, name)

    def sql(self, query: str) -> DataFrame:
        """Runs a statement that reads: Spark's SQL cannot write a DuckLake. Raises UsageError for another."""
        return sql(self.spark, self.catalog, query)

    def tables(self) -> list[str]:
        """The names of all tables of the lake."""
        return [".".join(parts) for parts in tables(self.catalog)]

    def clean(self, older_than: float, *, dry_run: bool) -> list[Orphan]:
        """Deletes the files that no snapshot has, last touched more than
        ``older_than`` seconds ago; returns them.
        """
        return (orphans if dry_run else clean)(self.spark, self.catalog, older_than)
