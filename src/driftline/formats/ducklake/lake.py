"""A DuckLake on a Spark session."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from driftline.formats.ducklake.catalog import CatalogDatabase, Connection
from driftline.formats.ducklake.offline import tables
from driftline.formats.ducklake.spark_sql import sql
from driftline.formats.ducklake.table import DuckLakeTable
from driftline.formats.lakes import BY_DUCKDB, Orphan
from driftline.formats.leftovers import bare, listed
from driftline.runtime.disk import Bounds, delete_by_hadoop
from driftline.runtime.file_io import settings
from driftline.runtime.stores import is_stored
from driftline.sql.quoting import name as quoted
from driftline.write import STAGED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Files of rows, whole or in the making, and the checksums that Hadoop puts beside them.
_OURS = re.compile(rf"\.parquet(\.crc)?$|/_temporary/|{STAGED.pattern}")
_PLACES = ("ducklake_data_file", "ducklake_delete_file")


def orphans(spark: SparkSession, catalog: CatalogDatabase, older_than: float) -> list[Orphan]:
    """The unregistered files that last changed more than ``older_than`` seconds ago.

    A younger file may belong to a batch that has yet to commit.
    """
    if not catalog.exists():
        return []
    # Listed first: what is registered after that is younger than any file of the list.
    folder = catalog.read(lambda connection: connection.data_path)
    bounds = _bounds(catalog)
    files = listed(spark, folder, time.time() - older_than)
    ours = [file for file in files if _OURS.search(file.path) and bounds.hold(file.path)]
    known = {bare(path) for path in catalog.read(registered)}
    return [f for f in ours if _of(bare(f.path)) not in known]


def clean(spark: SparkSession, catalog: CatalogDatabase, older_than: float) -> list[Orphan]:
    """Delete the orphans, and the folders that they leave empty; returns them."""
    gone = orphans(spark, catalog, older_than)
    if gone:
        catalog.sync()  # which may be another process's, that has yet to do so
    for orphan in gone:
        delete_by_hadoop(spark, orphan.path, _bounds(catalog), empty_folders=True)
    return gone


def _bounds(catalog: CatalogDatabase) -> Bounds:
    """The lake's own folder of files, as its settings name it: the catalog may name another lake's."""
    return Bounds((catalog.data,))


def _of(path: str) -> str:
    """The file that a checksum belongs to; the file itself."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else path


def registered(connection: Connection) -> list[str]:
    """The paths of all files that the catalog knows, of all snapshots,
    and of those that wait for deletion.
    """
    base = connection.data_path
    folders = {
        int(table): (path if not relative else (schema if not of_lake else base + schema) + path)
        for table, path, relative, schema, of_lake in connection.rows(
            "SELECT t.table_id, t.path, CAST(t.path_is_relative AS BOOLEAN), s.path, CAST(s.path_is_relative AS BOOLEAN) "
            "FROM meta.ducklake_table t JOIN meta.ducklake_schema s ON s.schema_id = t.schema_id"
        )
    }
    out = []
    for place in _PLACES:
        for table, path, relative in connection.rows(
            f"SELECT table_id, path, CAST(path_is_relative AS BOOLEAN) FROM meta.{place}"
        ):
            out.append(folders.get(int(table), base) + path if relative else path)
    for path, relative in connection.rows(
        "SELECT path, CAST(path_is_relative AS BOOLEAN) FROM meta.ducklake_files_scheduled_for_deletion"
    ):
        out.append(base + path if relative else path)
    return out


@dataclass(frozen=True, slots=True)
class DuckLakeLocation:
    """A DuckLake by its catalog's database, without Spark."""

    catalog: CatalogDatabase

    @classmethod
    def of(cls, text: str, folder: str | os.PathLike[str], *, durable: bool = True) -> DuckLakeLocation:
        """The lake of a setting: ``duckdb``, ``sqlite``, either with ``:PATH``, or ``postgres:…``.

        ``folder``: the lake's, or its URI; ``durable`` False: it is written without syncs. Raises UsageError
        for any other text.
        """
        return cls(CatalogDatabase.of(text, folder, durable=durable))

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

    def settings(self) -> dict[str, str]:
        """Spark's settings by which it reaches the store of the files; none for those on a disk."""
        return settings(self.catalog.data) if is_stored(self.catalog.data) else {}

    def open(self, spark: SparkSession) -> DuckLake:
        """The lake's tables, on a Spark session."""
        # A session that runs already has not begun with them.
        for key, value in self.settings().items():
            spark.conf.set(key.removeprefix("spark.hadoop."), value)
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
    def durable(self) -> bool:
        """False if the lake is written without syncs."""
        return self.catalog.durable

    @property
    def writes(self) -> str:
        """The engine that runs statements that write."""
        return BY_DUCKDB

    @property
    def has_views(self) -> bool:
        """A DuckLake keeps no views of Spark's."""
        return False

    def sync_view(self, _: str) -> None:
        """Nothing: it has none."""

    def sql_name(self, name: str) -> str:
        """A table by ``namespace.table``, quoted for Spark SQL."""
        return ".".join(map(quoted, name.split(".")))

    def on(self, spark: SparkSession) -> DuckLake:
        """Open the lake in another session of the running Spark."""
        return replace(self, spark=spark)

    def table(self, name: str) -> DuckLakeTable:
        """A table by ``namespace.table``. Raises UsageError for an impossible name."""
        return DuckLakeTable(self.spark, self.catalog, name)

    def sql(self, query: str) -> DataFrame:
        """Run a statement that reads: Spark's SQL cannot write a DuckLake. Raises UsageError for another."""
        return sql(self.spark, self.catalog, query)

    def tables(self) -> list[str]:
        """The names of all tables of the lake."""
        return [".".join(parts) for parts in tables(self.catalog)]

    def check_writable(self) -> None:
        """Raise UsageError if the lake is a copy of another, or was moved."""
        self.catalog.check_writable()

    def clean(self, older_than: float, *, dry_run: bool) -> list[Orphan]:
        """Delete the files that no snapshot has, last touched more than
        ``older_than`` seconds ago; returns them.
        """
        self.check_writable()
        return (orphans if dry_run else clean)(self.spark, self.catalog, older_than)
