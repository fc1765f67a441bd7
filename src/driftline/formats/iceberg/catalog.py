"""An Iceberg catalog of a Spark session."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import UnsupportedOperationException

from driftline.config import DURABILITY
from driftline.core.history.entries import EXPIRING, LEDGER
from driftline.core.schema.naming import QUARANTINE
from driftline.errors import DataError, DriftlineError, SetupError, UsageError, no_table
from driftline.formats.home import DisplacedLake, Relocation
from driftline.formats.iceberg.commit import SyncedCommit, is_durable
from driftline.formats.iceberg.dropped import record
from driftline.formats.iceberg.expiry import IcebergExpiry
from driftline.formats.iceberg.files import data_folders, files_in, in_store, is_ours
from driftline.formats.iceberg.gateway import items, java_errors, short
from driftline.formats.iceberg.handle import IcebergHandle
from driftline.formats.iceberg.offline import OfflineIcebergTable, located
from driftline.formats.iceberg.reader import metadata_table, place
from driftline.formats.iceberg.relocating import CATALOG, TableCopy, displaced_lake
from driftline.formats.iceberg.seen import WRITTEN_NOTE, notes_of
from driftline.formats.iceberg.table import IcebergTable
from driftline.formats.iceberg.unread import unreadable
from driftline.formats.lakes import BY_PYTHON, DroppedTables, Orphan
from driftline.formats.leftovers import bare, listed
from driftline.runtime.disk import (
    Bounds,
    copy_file,
    delete_by_file_io,
    delete_by_hadoop,
    on_disk,
    replace_file,
    sync,
)
from driftline.runtime.failure import ASK_DOCTOR
from driftline.runtime.read_only import must_read
from driftline.runtime.session import embedded_lake
from driftline.runtime.spark_version import java_type
from driftline.runtime.stores import is_stored
from driftline.sql.quoting import name as quoted
from driftline.write import STAGED

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


_AT_ONCE = 8  # files that are copied side by side
_NUMBERED = re.compile(r"/v?(\d+)[-.][^/]*metadata\.json$")  # a metadata file, by its version
_ASCII_NAMES = re.compile(r"\A(hive|glue)\Z|\.(Hive|Glue)Catalog\Z")  # types and classes of such catalogs
_LOG = logging.getLogger("driftline")


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
    def ascii_names(self) -> bool:
        """True for a Hive Metastore and Glue, which refuse other letters in a table's name."""
        catalog = f"spark.sql.catalog.{self.name}"
        named = [self.spark.conf.get(f"{catalog}.{key}", None) for key in ("type", "catalog-impl")]
        return any(name and _ASCII_NAMES.search(name) for name in named)

    @property
    def commits_together(self) -> bool:
        """False: each table has snapshots of its own, and few catalogs change several tables at once."""
        return False

    @property
    def commits_at_once(self) -> int:
        """A few: each table has metadata of its own."""
        return 4

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

    def drop(
        self, name: str, *, purge: bool, dry_run: bool, before: Callable[[], None] = lambda: None
    ) -> DroppedTables:
        """Take a table and its quarantine out of the catalog. ``purge``: delete the files below their
        locations. ``before``: called before anything changes.

        Raises UsageError if there is neither, or if a file of another table may lie there.
        """
        self.check_writable()
        loaded = {handle: handle.java() for handle in map(self._handle, (name, name + QUARANTINE))}
        tables = {handle: java for handle, java in loaded.items() if java is not None}
        if not tables:
            raise no_table(name)
        if purge:
            self._check_alone(tables)
        # Listed while the catalog has the tables: what is told of them is that of a dry run, too.
        files_of = {handle: _below(self.spark, java) for handle, java in tables.items()}
        if not dry_run:
            before()
            for handle, java in tables.items():
                if handle.lake is not None:
                    record(handle.lake, handle.name, str(java.location()))
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

    def expiry(self, name: str) -> IcebergExpiry:
        """The end of the older snapshots of a table."""
        return IcebergExpiry(self._handle(name))

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

    def adopt(self, lake: tuple[Path, str], name: str, *, dry_run: bool) -> Relocation:
        """Copy a table of an embedded lake, its folder and its catalog's name, into this catalog, and its
        quarantine, with all that their metadata know. ``dry_run``: write nothing.

        The quarantine is registered first, so that there is no table without its rejects. Raises UsageError
        if there is no such table, or one here; DataError if it lacks a file, or others write to it meanwhile.
        """
        self.check_writable()
        sources = self._sources(lake, name)
        copies = [self._copied(source, dry_run=dry_run) for source in sources]
        # All are compared before the first is registered, which others see.
        for source in sources:
            if located(*lake, source.name) != source.load().version:
                raise DataError(
                    f"{source.name} has changed while it was copied: nothing was registered",
                    "stop what writes to it, and run it again: only what is new is copied then",
                )
        for source, (copy, registration) in zip(sources, copies, strict=True):
            if registration is not None:
                registration.register(copy.now(source.load().version))
        return Relocation(
            self.folder or self.name,
            str(lake[0]),
            is_copy=True,
            tables=tuple(sorted(source.name for source in sources)),
            files=sum(len(copy.files) for copy, _ in copies),
            is_done=not dry_run,
            copied=sum(len(copy.copied) for copy, _ in copies),
            bytes=sum(file.stat().st_size for copy, _ in copies for file in copy.copied.values()),
        )

    def _copied(self, source: OfflineIcebergTable, *, dry_run: bool) -> tuple[TableCopy, Registration | None]:
        """Copy a table's files to where this catalog has such a table; None: it is a ``dry_run``."""
        log = (version["metadata-file"] for version in source.metadata.get("metadata-log", ()))
        versions = {path.rpartition("/")[2] for path in (*log, source.load().version)}
        registration = None if dry_run else Registration(self.table(source.name), versions)
        place, put = ("", None) if registration is None else (registration.location, registration.put)
        copy = TableCopy(source.name, source.metadata, place, put)
        copy.table(source.load().version)
        if registration is not None:
            registration.copy(copy.copied)
        return copy, registration

    def _sources(self, lake: tuple[Path, str], name: str) -> list[OfflineIcebergTable]:
        """The table and its quarantine, as far as the lake has them and this catalog does not."""
        names = [part for part in (f"{name}{QUARANTINE}", name) if located(*lake, part) is not None]
        if not names:
            raise no_table(name)
        out: list[OfflineIcebergTable] = []
        for part in names:
            source, present = OfflineIcebergTable.of(*lake, part), self._handle(part).java()
            if source is None:
                raise DataError(f"the metadata of {part} cannot be read on this machine")
            if present is None:
                out.append(source)
            # A quarantine that is there as it is here was registered by a run that was broken off.
            elif part == names[-1] or not _is_copy(present, source):
                raise UsageError(
                    f"there is a table {part} in {self.folder or self.name} already, which nothing replaces",
                    "drop it there, or rename one of the two: driftline alter 'alter table … rename to …'",
                )
        return out

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


class Registration:
    """The place at which a catalog would make a ``table``, for the files of one that it takes as it is.

    Nobody sees them before `register`. ``versions``: the names of that one's metadata files. Raises
    DataError if those of another are there, SetupError if there cannot be such a place.
    """

    def __init__(self, table: IcebergTable, versions: Collection[str]) -> None:
        self._table = table
        staged = table.staged()
        self.location, self._io = str(staged.location()).rstrip("/"), staged.io()
        self._present = self._listed()
        self._written: list[str] = []
        # A table that was renamed keeps its folder, and two in one would take each other's files for litter.
        for path in (path for path in self._present if path.endswith(".metadata.json")):
            if path.rpartition("/")[2] not in versions:
                raise DataError(
                    f"{table.name} would lie in {self.location}, where {path} is of another table",
                    "use another name for the table, or empty that folder if nothing needs it",
                )

    def put(self, path: str, content: bytes) -> None:
        """Write a file, in place of one that an attempt before has left. Raises SetupError."""
        self._written.append(path)
        if (file := on_disk(path)) is not None:
            replace_file(file, content, durable=False)
        else:
            self._by_file_io(path, lambda stream: stream.write(content))

    def copy(self, files: Mapping[str, Path]) -> None:
        """Copy files of this machine, by their paths there, unless they are there. Raises SetupError."""
        sizes = {path: file.stat().st_size for path, file in files.items()}
        waiting = [path for path, size in sizes.items() if self._present.get(bare(path)) != size]
        self._written += files
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                for task in [pool.submit(self._copy, files[path], path) for path in waiting]:
                    task.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _copy(self, source: Path, path: str) -> None:
        if (file := on_disk(path)) is not None:
            copy_file(source, file)
            return
        # Java reads and writes by itself: bytes that pass through py4j cost four times as much.
        place = java_type(self._table.handle.jvm, "java.io.File")(str(source)).toPath()
        files = java_type(self._table.handle.jvm, "java.nio.file.Files")
        self._by_file_io(path, lambda stream: files.copy(place, stream))

    def _by_file_io(self, path: str, write: Callable[[Any], object]) -> None:
        try:
            with java_errors():
                stream = self._io.newOutputFile(path).createOrOverwrite()
                write(stream)
                stream.close()
        except Py4JJavaError as error:
            raise SetupError(f"{path} cannot be written: {short(error)}", ASK_DOCTOR) from error

    def _listed(self) -> dict[str, int]:
        """The sizes of the files that are there, by their bare paths; none where the FileIO cannot tell."""
        try:
            with java_errors():
                files = items(self._io.listPrefix(f"{self.location}/"))
        except Py4JError:  # no such folder yet, or it lists none
            return {}
        return {bare(str(file.location())): int(file.size()) for file in files}

    def register(self, metadata: str) -> None:
        """Have the catalog register the table with this metadata file. Raises SetupError, DataError."""
        table = self._table
        if is_durable(table.handle.jvm, self._io):
            sync(filter(None, map(on_disk, self._written)), table.handle.lake)
        try:
            with java_errors():
                table.handle.java_catalog.registerTable(table.handle.identifier, metadata)
        except Py4JJavaError as error:
            raise SetupError(
                f"the catalog does not register {table.name} with {metadata}: {short(error)}",
                "once the cause is gone, run it again: what is copied already stays",
            ) from error
        if table.handle.lake is not None and is_durable(table.handle.jvm, self._io):
            sync([table.handle.lake / CATALOG], table.handle.lake)


def _is_copy(java: Any, source: OfflineIcebergTable) -> bool:
    """True if a Java table is the ``source`` in its present state, at another place."""
    current = java.operations().current()
    names = (str(current.metadataFileLocation()), source.load().version)
    return str(current.uuid()) == source.load().uuid and len({name.rpartition("/")[2] for name in names}) == 1


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
    of a table's files that lie outside its `bounds`, and those of a table that is behind, are left alone.
    """
    before = time.time() - older_than
    loaded = ((handle, handle.java()) for handle in handles)
    tables = {handle: table for handle, table in loaded if table is not None}
    owners = _owners(tables)
    for handle, table in tables.items():
        if handle.lake is None and _is_behind(handle, table):
            for folder in _folders(table):
                owners.pop(folder, None)
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
        files = files_in(spark, table, folder, before)
        # Listed first: what is committed after that is younger than any file of the list.
        ours = (f for f in files if is_ours(f.path, remote=remote) and within.hold(f.path))
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
    return list(files_in(spark, java, str(java.location()), float("inf")))


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


def _owners(tables: Mapping[IcebergHandle, Any]) -> dict[str, list[IcebergHandle]]:
    """The tables whose files may lie in each folder."""
    owners: dict[str, list[IcebergHandle]] = {}
    for handle, table in tables.items():
        for folder in _folders(table):
            owners.setdefault(folder, []).append(handle)
    return owners


# A server's catalog can be restored, or copied beside the original, and its address tells neither.
def _is_behind(handle: IcebergHandle, table: Any) -> bool:
    """True if a Java table's folder has later metadata than its catalog, which may name what looks unused."""
    current = str(table.operations().current().metadataFileLocation())
    folder, version = current.rpartition("/")[0], _version(current)
    files = files_in(handle.spark, table, folder, time.time())
    later = next((file.path for file in files if _version(file.path) > version >= 0), None)
    if later is not None:
        _LOG.warning(
            "%s: %s is later than the catalog's metadata, so its files are left alone: another catalog has the "
            "table too, or this one was restored; if neither is so, delete that file",
            handle.name,
            later,
        )
    return later is not None


def _version(path: str) -> int:
    """The version in the name of a metadata file; -1 for any other file."""
    match = _NUMBERED.search(path)
    return -1 if match is None else int(match[1])


def _sync(tables: Mapping[IcebergHandle, Any]) -> None:
    """Sync the metadata of the Java ``tables``, which another process may have yet to do: nothing is deleted
    that a power cut could bring back.
    """
    for handle, table in tables.items():
        current = table.operations().current()
        SyncedCommit(handle, table.operations(), current, current).base()


def _folders(table: Any) -> Iterator[str]:
    """The possible folders of the table's data files, and that of its ledger."""
    yield from data_folders(table.properties(), table.location())
    yield place(table, "any").rpartition("/")[0]


def _leave_out(tables: Mapping[IcebergHandle, Any], files: dict[str, Orphan]) -> None:
    """Take those out of the ``files``, by their bare paths, that one of the Java ``tables`` has in any
    snapshot; of a table that cannot be read, all in its folders.
    """
    for handle, table in tables.items():
        for key in (LEDGER, EXPIRING):
            files.pop(bare(str(table.properties().get(key) or "")), None)
        for path in notes_of(handle.metadata(table)) if any(map(WRITTEN_NOTE.search, files)) else ():
            files.pop(bare(path), None)
        if not files:
            return
        try:
            for row in metadata_table(handle, "all_files").select("file_path").collect():
                files.pop(bare(row[0]), None)
        except (PySparkException, Py4JError):
            theirs = tuple(f"{bare(folder).rstrip('/')}/" for folder in _folders(table))
            for path in [path for path in files if path.startswith(theirs)]:
                del files[path]
