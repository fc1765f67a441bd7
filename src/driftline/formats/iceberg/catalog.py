"""An Iceberg catalog of a Spark session."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import UnsupportedOperationException

from driftline.config import DURABILITY
from driftline.core.history.entries import LEDGER
from driftline.core.schema.naming import QUARANTINE
from driftline.errors import DataError, DriftlineError, UsageError, no_table
from driftline.formats.iceberg.commit import SyncedCommit
from driftline.formats.iceberg.files import WRITTEN_BY_SPARK, data_folders, in_store, listed_orphans
from driftline.formats.iceberg.gateway import items
from driftline.formats.iceberg.handle import IcebergHandle
from driftline.formats.iceberg.offline import located
from driftline.formats.iceberg.reader import WRITTEN_LEDGER, metadata_table, place
from driftline.formats.iceberg.relocating import CATALOG, displaced_lake
from driftline.formats.iceberg.table import IcebergTable
from driftline.formats.iceberg.unread import unreadable
from driftline.formats.lakes import BY_PYTHON, DroppedTables, Orphan
from driftline.formats.leftovers import bare, listed
from driftline.runtime.disk import Bounds, delete_by_file_io, delete_by_hadoop, on_disk, sync
from driftline.runtime.read_only import must_read
from driftline.runtime.session import embedded_lake
from driftline.runtime.spark_version import java_type
from driftline.runtime.stores import is_stored
from driftline.sql.quoting import name as quoted
from driftline.write import STAGED, WRITTEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.formats.home import DisplacedLake


@dataclass(frozen=True, slots=True)
class IcebergCatalog:
    """The tables of a catalog. ``name``: its name in the Spark session."""

    spark: SparkSession
    name: str

    @property
    def folder(self) -> str | None:
        """The catalog's warehouse; None if it names none, or only by a name of its own."""
        catalog = f"spark.sql.catalog.{self.name}"
        warehouse = self.spark.conf.get(f"{catalog}.warehouse", None)
        by_name = self.spark.conf.get(f"{catalog}.type", None) == "rest" and "/" not in (warehouse or "")
        return None if by_name else warehouse

    @property
    def durable(self) -> bool:
        """False if the catalog says that its files are written without syncs."""
        return self.spark.conf.get(f"spark.sql.catalog.{self.name}.{DURABILITY}", None) != "off"

    @property
    def writes(self) -> str:
        """The way to run a statement that writes, for errors about one in a query."""
        return BY_PYTHON

    @property
    def has_views(self) -> bool:
        """True: most Iceberg catalogs also keep Spark's views."""
        return True

    @property
    def own_views(self) -> None:
        """No views in DuckDB's SQL."""

    def sql_name(self, name: str) -> str:
        """A table or view by ``namespace.table``, quoted for Spark SQL."""
        return ".".join(map(quoted, (self.name, *name.split("."))))

    def on(self, spark: SparkSession) -> IcebergCatalog:
        """Open the catalog in another session of the running Spark."""
        return replace(self, spark=spark)

    def table(self, name: str) -> IcebergTable:
        """A table by ``namespace.table``. Raises UsageError for an impossible name."""
        return IcebergTable(self._handle(name))

    def _handle(self, name: str) -> IcebergHandle:
        return IcebergHandle.of(self.spark, self.name, name)

    def sql(self, query: str) -> DataFrame:
        """Run any statement of Spark's SQL. Raises DataError where a
        table has a column that Spark cannot read; UsageError for a statement that writes into a copied lake.
        """
        if (elsewhere := self._displaced()) is not None:
            try:
                must_read(self.spark, query, self.writes)
            except UsageError as error:
                raise elsewhere.refusal() from error
        try:
            return self._handle("any.table").recovering(lambda: self.spark.sql(query))
        except UnsupportedOperationException as error:
            raise self._unreadable(query) or error from error

    def sync_view(self, name: str) -> None:
        """Sync the file of a view of an embedded catalog, and the catalog. Raises SetupError."""
        lake = embedded_lake(self.spark, self.name)
        if lake is None or not self.durable:
            return
        location = located(lake, self.name, name, views=True)
        sync([lake / CATALOG, *filter(None, [on_disk(location or "")])], lake)

    def clean(self, older_than: float, *, dry_run: bool) -> list[Orphan]:
        """Delete the files that driftline's tasks wrote and no snapshot has, last changed more than
        ``older_than`` seconds ago; returns them.
        """
        self.check_writable()
        return clean(self.spark, self.folder, map(self._handle, self.tables()), older_than, dry_run=dry_run)

    def drop(self, name: str, *, purge: bool, dry_run: bool) -> DroppedTables:
        """Take a table and its quarantine out of the catalog. ``purge``: delete the files below their
        locations.

        Raises UsageError if there is neither, or if a file of another table may lie there.
        """
        self.check_writable()
        loaded = {handle: handle.java() for handle in map(self._handle, (name, name + QUARANTINE))}
        tables = {handle: java for handle, java in loaded.items() if java is not None}
        if not tables:
            raise no_table(name)
        if purge:
            self._check_alone(tables)
        files_of = {handle: _below(self.spark, java) for handle, java in tables.items()}
        if not dry_run:
            for handle in tables:
                # Never a purge of the catalog's own: it deletes what the metadata name, wherever that lies.
                self.spark.sql(f"DROP TABLE {self.sql_name(handle.name)}")
            if purge:
                for handle, files in files_of.items():
                    _purge(self.spark, tables[handle], files)
        files = [file for listing in files_of.values() for file in listing]
        return DroppedTables(
            tuple(handle.name for handle in tables),
            tuple(str(java.location()) for java in tables.values()),
            len(files),
            sum(file.size for file in files),
        )

    def _check_alone(self, tables: Mapping[IcebergHandle, Any]) -> None:
        """Raise UsageError if another table of the catalog may have files below the locations of these."""
        names = {handle.name for handle in tables}
        within = Bounds(tuple(str(java.location()) for java in tables.values()))
        for other in map(self._handle, self.tables()):
            java = None if other.name in names else other.java()
            if java is None:
                continue
            if any(within.hold(f"{folder}/any") for folder in (str(java.location()), *_folders(java))):
                raise UsageError(
                    f"the files of {other.name} lie in the folder of {' or '.join(sorted(names))}",
                    hint="drop it without --purge",
                )

    def check_writable(self) -> None:
        """Raise UsageError if the lake is a copy of another, or was moved."""
        if (elsewhere := self._displaced()) is not None:
            raise elsewhere.refusal()

    def _displaced(self) -> DisplacedLake | None:
        lake = embedded_lake(self.spark, self.name)
        return None if lake is None else displaced_lake(lake)

    def tables(self) -> list[str]:
        """The names of all tables of the catalog."""
        namespace = java_type(self.spark._jvm, "org.apache.iceberg.catalog.Namespace")
        any_table = self._handle("any.table")
        plugin, java = any_table.plugin, any_table.java_catalog
        names: list[str] = []
        # Spark's plugin knows the namespaces; Iceberg's own catalog does not where it caches.
        waiting = [*plugin.listNamespaces()]
        while waiting:
            parts = waiting.pop()
            waiting += plugin.listNamespaces(parts)
            names += [str(table.toString()) for table in items(java.listTables(namespace.of(parts)))]
        return names

    def _unreadable(self, query: str) -> DataError | None:
        """The reason Spark cannot read a table of the query; None if it can read all."""
        session: Any = self.spark._jsparkSession
        plan = str(session.sessionState().sqlParser().parsePlan(query))
        for relation in re.findall(r"UnresolvedRelation \[(.*?)\]", plan):
            parts = relation.split(", ")
            name = ".".join(parts[1:] if parts[0] == self.name else parts)
            with suppress(DriftlineError):
                error = unreadable(name, self._handle(name).load().schema)
                if error is not None:
                    return error
        return None


def clean(
    spark: SparkSession,
    warehouse: str | None,
    handles: Iterable[IcebergHandle],
    older_than: float,
    *,
    dry_run: bool,
) -> list[Orphan]:
    """Delete the files that no snapshot has, last changed over ``older_than`` seconds ago; returns them.

    ``warehouse``: the catalog's folder, if it names one; ``handles``: of all tables of the catalog. Folders
    of a table's files that lie outside its `bounds` are left alone.
    """
    before = time.time() - older_than
    loaded = ((handle, handle.java()) for handle in handles)
    tables = {handle: table for handle, table in loaded if table is not None}
    owners: dict[str, list[IcebergHandle]] = {}
    for handle, table in tables.items():
        for folder in _folders(table):
            owners.setdefault(folder, []).append(handle)
    by_path: dict[str, Orphan] = {}
    stores: dict[str, Any] = {}  # the FileIO of what lies in one
    limits: dict[str, Bounds] = {}
    if warehouse is not None and not is_stored(warehouse):
        # A table that was never made would be there, too.
        by_path |= {bare(f.path): f for f in listed(spark, warehouse, before) if STAGED.search(f.path)}
        limits |= dict.fromkeys(by_path, Bounds((warehouse,)))
    for folder, sharing in owners.items():
        table = tables[sharing[0]]
        within = Bounds.either(handle.bounds(tables[handle]) for handle in sharing)
        remote = in_store(table, folder)
        files = listed_orphans(table, folder, before) if remote else listed(spark, folder, before)
        # Listed first: what is committed after that is younger than any file of the list.
        ours = (f for f in files if _is_ours(f.path, remote=remote) and within.hold(f.path))
        written = {bare(f.path): f for f in ours}
        _leave_out({handle: tables[handle] for handle in sharing}, written)
        by_path |= written
        stores |= dict.fromkeys(written, table.io()) if remote else {}
        limits |= dict.fromkeys(written, within)
    # A table may lie in another's folder, or have had its files where others have theirs.
    _leave_out(tables, by_path)
    if by_path and not dry_run:
        _sync(tables)
        for path, file in by_path.items():
            if path in stores:
                delete_by_file_io(stores[path], file.path, limits[path])
            else:
                delete_by_hadoop(spark, file.path, limits[path], empty_folders=True)
    return [by_path[path] for path in sorted(by_path)]


def _below(spark: SparkSession, java: Any) -> list[Orphan]:
    """All files below a Java table's location."""
    location, now = str(java.location()), float("inf")
    return list(
        listed_orphans(java, location, now) if in_store(java, location) else listed(spark, location, now)
    )


def _purge(spark: SparkSession, java: Any, files: Iterable[Orphan]) -> None:
    """Delete the files below a Java table's location, and the folders that they leave empty."""
    location = str(java.location()).rstrip("/")
    remote = in_store(java, location)
    # The location itself goes too, once it is empty.
    parent = Bounds((location.rpartition("/")[0],))
    for file in files:
        if remote:
            delete_by_file_io(java.io(), file.path, Bounds((location,)))
        else:
            delete_by_hadoop(spark, file.path, parent, empty_folders=True)


def _sync(tables: Mapping[IcebergHandle, Any]) -> None:
    """Sync the metadata of the Java ``tables``, which another process may have yet to do: nothing is deleted
    that a power cut could bring back.
    """
    for handle, table in tables.items():
        current = table.operations().current()
        SyncedCommit(handle, table.operations(), current, current).base()


def _is_ours(path: str, *, remote: bool) -> bool:
    patterns = (WRITTEN, WRITTEN_BY_SPARK, WRITTEN_LEDGER, *([STAGED] if remote else []))
    return any(pattern.search(path) for pattern in patterns)


def _folders(table: Any) -> Iterator[str]:
    """The possible folders of the table's data files, and that of its ledger."""
    yield from data_folders(table)
    yield place(table, "any").rpartition("/")[0]


def _leave_out(tables: Mapping[IcebergHandle, Any], files: dict[str, Orphan]) -> None:
    """Take those out of the ``files``, by their bare paths, that one of the Java ``tables`` has in any
    snapshot; of a table that cannot be read, all in its folders.
    """
    for handle, table in tables.items():
        files.pop(bare(str(table.properties().get(LEDGER) or "")), None)
        if not files:
            return
        try:
            for row in metadata_table(handle, "all_files").select("file_path").collect():
                files.pop(bare(row[0]), None)
        except (PySparkException, Py4JError):
            theirs = tuple(f"{bare(folder).rstrip('/')}/" for folder in _folders(table))
            for path in [path for path in files if path.startswith(theirs)]:
                del files[path]
