"""Loads and reads one Iceberg table of a Spark session, and its ledger of ingested files."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, UnsupportedOperationException

from driftline.core.history.entries import LEDGER
from driftline.core.history.retention import rolled_back
from driftline.errors import SetupError, UsageError, no_table
from driftline.formats.base import REMEMBERED
from driftline.formats.iceberg.alterable import AlterableIcebergTable
from driftline.formats.iceberg.gateway import java_class, java_errors, metadata_json, short
from driftline.formats.iceberg.manifests import FileNulls, by_spark
from driftline.formats.iceberg.unread import frame_of, partial, readable, unreadable
from driftline.runtime.disk import on_disk
from driftline.runtime.session import embedded_lake
from driftline.runtime.spark_conf import activate
from driftline.sql.quoting import name as quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.core.schema.types import Schema
    from driftline.formats.base import State

# `remove_orphan_files` spares names that begin so. Snapshot summaries would grow and expire, and statistics
# files belong to one snapshot.
_PREFIX, _SUFFIX = "_driftline-files-", ".bin"
WRITTEN_LEDGER = re.compile(rf"/{_PREFIX}[0-9a-f]{{32}}\{_SUFFIX}$")
_ENTRY = struct.Struct("<qq")  # a file's fingerprint, the snapshot's id


def read_ledger(path: str, io: Callable[[], Any]) -> dict[int, int]:
    """The snapshot that took each file, by the file's fingerprint, the
    oldest first; empty where the ledger is gone. ``io``: gives the table's FileIO.
    """
    disk = on_disk(path)
    try:
        with java_errors():
            content = disk.read_bytes() if disk is not None and disk.exists() else _read(path, io())
    except Py4JJavaError as error:
        if "NotFound" in java_class(error):
            return {}
        raise SetupError(f"{path} cannot be read: {short(error)}") from error
    return dict(_ENTRY.iter_unpack(content))


def place(table: Any, name: str) -> str:
    """Return the path of a file of this name next to the metadata of a Java ``table``."""
    return str(table.operations().metadataFileLocation(name))


def _read(path: str, io: Any) -> bytes:
    stream = io.newInputFile(path).newStream()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def write_ledger(table: Any, entries: Mapping[int, int]) -> str:
    """Write the last entries into a new file next to the metadata of a Java ``table``; returns its path."""
    path = place(table, f"{_PREFIX}{uuid4().hex}{_SUFFIX}")
    content = b"".join(_ENTRY.pack(*entry) for entry in list(entries.items())[-REMEMBERED:])
    disk = on_disk(path)
    try:
        if disk is not None and disk.parent.is_dir():
            disk.write_bytes(content)
        else:
            with java_errors():
                _write(path, content, table.io())
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror}") from error
    except Py4JJavaError as error:
        raise SetupError(f"{path} cannot be written: {short(error)}") from error
    return path


def _write(path: str, content: bytes, io: Any) -> None:
    stream = io.newOutputFile(path).create()
    try:
        stream.write(content)
    finally:
        stream.close()


def undone(jvm: Any, table: Any, entries: Mapping[int, int]) -> set[int]:
    """The files, of those in ``entries``, whose snapshots were rolled back."""
    metadata = metadata_json(jvm, table.operations().current())
    gone = rolled_back(metadata, set(entries.values()))
    return {file for file, snapshot in entries.items() if snapshot in gone}


# With these set, Iceberg writes rows that are not visible yet, to be audited first; driftline stages nothing.
_UNSEEN = ("spark.wap.id", "spark.wap.branch")


class IcebergReader(AlterableIcebergTable):
    """Loads and reads one table of one catalog, by ``name``, ``namespace.table``."""

    def __init__(self, spark: SparkSession, catalog: str, name: str) -> None:
        gateway: Any = spark.sparkContext._gateway
        super().__init__(gateway, self._iceberg_catalog, name, embedded_lake(spark, catalog))
        self.spark = spark
        self.catalog = catalog
        self._ledger: tuple[str, dict[int, int]] = ("", {})

    @property
    def full_name(self) -> str:
        """The name for Spark SQL, quoted."""
        return ".".join(map(quoted, (self.catalog, *self.name.split("."))))

    @property
    def plugin(self) -> Any:
        """Spark's object for the catalog. Raises SetupError if the catalog does not respond."""
        session: Any = self.spark._jsparkSession
        activate(self.spark)  # what belongs to a session is looked up by the active one
        catalogs = session.sessionState().catalogManager()
        try:
            try:
                plugin = catalogs.catalog(self.catalog)
            except Exception:
                # JdbcCatalog adds a column to a new catalog without a lock: of two that do, one fails.
                plugin = catalogs.catalog(self.catalog)
            plugin.icebergCatalog()
        except Exception as error:
            raise SetupError(
                f"catalog {self.catalog!r} of this Spark session is not an Iceberg catalog, or does not respond: {short(error)}",
                hint=f"set spark.sql.catalog.{self.catalog} and its properties",
            ) from error
        return plugin

    def _iceberg_catalog(self) -> Any:
        return self.plugin.icebergCatalog()

    def ledger(self, properties: Mapping[str, str]) -> dict[int, int]:
        """The snapshot that took each source file, by the file's fingerprint, as the properties have it."""
        path = properties.get(LEDGER)
        if path is None:
            return {}
        if self._ledger[0] != path:
            self._ledger = path, read_ledger(path, lambda: self.java().io())
        return self._ledger[1]

    def read(self, snapshot: int | None = None) -> DataFrame:
        """The table's rows, as they are now or were at a snapshot.

        Raises UsageError if there is no such table, DataError where Spark cannot read a column's type.
        """
        # Each session has a cache of its own, and a capture works in another session.
        self.java_catalog.invalidateTable(self.identifier)  # a catalog may cache what others have changed
        try:
            return self.recovering(lambda: self._read(snapshot))
        except UnsupportedOperationException as error:
            raise unreadable(self.name, self.load().schema) or error from error
        except AnalysisException as error:
            if "TABLE_OR_VIEW_NOT_FOUND" in str(error):
                raise no_table(self.name) from error
            raise

    def _read(self, snapshot: int | None) -> DataFrame:
        if snapshot is not None:
            return self.spark.sql(f"select * from {self.full_name} version as of {snapshot}")
        return self.spark.table(self.full_name)

    def file_nulls(self, metadata: Mapping[str, Any], snapshot: int, column: int) -> Iterable[FileNulls]:
        """The nulls of a column, by its id, in the data files of a snapshot."""
        return by_spark(self.spark, self.full_name, column, snapshot)

    def read_as(self, java: Any, schema: Schema) -> DataFrame:
        """The rows as another Java table of the same files has them, of this schema."""
        if unreadable(self.name, schema) is not None:
            return partial(self.spark, java, self.name, schema)
        return frame_of(self.spark, java)

    def read_appended(self, after: int, snapshot: int) -> DataFrame | None:
        """The rows that a snapshot appended; None if it did more than that, or if Spark cannot read all
        columns.
        """
        schema, java = self.load().schema, self.java()
        added = None if java is None else java.snapshot(snapshot)
        if readable(schema) != schema or added is None or str(added.operation()) != "append":
            return None
        between = {"start-snapshot-id": str(after), "end-snapshot-id": str(snapshot)}
        return self.spark.read.options(**between).table(self.full_name)

    def appended(self, before: State, now: State) -> DataFrame | None:
        """The rows that others appended between two states of the table.

        None if others did more than append, or if that is unknown.
        """
        java, snapshot_id = self.java(), now.snapshot
        while snapshot_id != before.snapshot:
            snapshot = None if java is None or snapshot_id is None else java.snapshot(snapshot_id)
            if snapshot is None or str(snapshot.operation()) != "append":
                return None
            snapshot_id = snapshot.parentId()
        if before.snapshot is None or now.snapshot is None:
            return None
        if before.snapshot == now.snapshot:
            return self.read().limit(0)
        return self.read_appended(before.snapshot, now.snapshot)

    def read_readable(self) -> DataFrame:
        """The table's rows as they are now, without the columns that Spark cannot read."""
        schema = self.load().schema
        if unreadable(self.name, schema) is None:
            return self.read()
        return partial(self.spark, self.java(), self.name, schema)

    def metadata_table(self, kind: str) -> DataFrame:
        """One of Iceberg's metadata tables: ``files``, ``entries``."""
        schema = self.load().schema
        if readable(schema) == schema:
            return self.spark.table(f"{self.full_name}.{kind}")
        return partial(self.spark, self.java(), self.name, schema, kind)

    def check_seen(self) -> None:
        """Raise UsageError if what this session writes would be visible to nobody."""
        for key in _UNSEEN:
            if (value := self.spark.conf.get(key, None)) is not None:
                raise UsageError(
                    f"{key} is {value!r} in this Spark session, and driftline writes to no branch",
                    hint=f'take it back first: spark.conf.unset("{key}")',
                )
