"""Readers of an Iceberg table in a Spark session, and its ledger of the source files that it has."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError

from driftline.core.history.entries import COMPACTED, LEDGER
from driftline.core.history.retention import DELETES_BRANCH, rolled_back
from driftline.errors import SetupError, UsageError, no_table
from driftline.files.whole import StagedRows
from driftline.formats.base import REMEMBERED
from driftline.formats.iceberg.gateway import items, java_class, java_errors, metadata_json, short
from driftline.formats.iceberg.seen import note_of
from driftline.formats.iceberg.unread import frame_of, partial, readable, unreadable
from driftline.runtime.disk import on_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.core.columns.statistics import SeenNote
    from driftline.core.schema.types import Schema
    from driftline.formats.base import State
    from driftline.formats.iceberg.handle import IcebergHandle

# `remove_orphan_files` spares names that begin so. Snapshot summaries would grow and expire, and statistics
# files belong to one snapshot.
_PREFIX, _SUFFIX = "_driftline-files-", ".bin"
WRITTEN_LEDGER = re.compile(rf"/{_PREFIX}[0-9a-f]{{32}}\{_SUFFIX}$")
_ENTRY = struct.Struct("<qq")  # a file's fingerprint, the snapshot's id


def read_ledger(path: str, io: Callable[[], Any]) -> dict[int, int]:
    """Read a ledger: the snapshot that took each file, by fingerprint, the oldest first.

    Args:
        path: of the ledger, which is empty if it is gone.
        io: returns the table's FileIO.
    """
    return dict(_ENTRY.iter_unpack(_content(path, io) or b""))


def _content(path: str, io: Callable[[], Any]) -> bytes | None:
    """Read a file; None if it is gone. ``io``: returns the table's FileIO. Raises SetupError."""
    disk = on_disk(path)
    try:
        with java_errors():
            # From a disk without Java: py4j carries bytes as text.
            return disk.read_bytes() if disk is not None and disk.exists() else read_file(path, io())
    except Py4JJavaError as error:
        if "NotFound" in java_class(error):
            return None
        raise SetupError(f"{path} cannot be read: {short(error)}") from error


def note_in(table: IcebergHandle, metadata: Mapping[str, Any]) -> SeenNote | None:
    """Read the note of first and last batches that a table's ``metadata``, in JSON form, name."""
    java = table.existing()
    return note_of(metadata, lambda name: _content(place(java, name), java.io))


def place(table: Any, name: str) -> str:
    """Return the path of a file of this name next to the metadata of a Java ``table``."""
    return str(table.operations().metadataFileLocation(name))


def read_file(path: str, io: Any) -> bytes:
    """Read a file by a Java FileIO. Raises Java's errors."""
    stream = io.newInputFile(path).newStream()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def write_ledger(table: Any, entries: Mapping[int, int]) -> str:
    """Write the last entries into a new file next to the metadata of a Java ``table``; returns its path."""
    content = b"".join(_ENTRY.pack(*entry) for entry in list(entries.items())[-REMEMBERED:])
    return write_beside(table, content)


def write_beside(table: Any, content: bytes) -> str:
    """Write a new file of a ledger's name next to the metadata of a Java ``table``; returns its path.

    Unless the table's properties name it, `clean` deletes it. Raises SetupError.
    """
    path = place(table, f"{_PREFIX}{uuid4().hex}{_SUFFIX}")
    write_file(table, path, content)
    return path


def write_file(table: Any, path: str, content: bytes) -> None:
    """Write a file of a Java ``table``. Raises SetupError."""
    disk = on_disk(path)
    try:
        # Hadoop would put a checksum beside it, which would have to be synced and deleted, too.
        if disk is not None and disk.parent.is_dir():
            disk.write_bytes(content)
        else:
            with java_errors():
                _write(path, content, table.io())
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror}") from error
    except Py4JJavaError as error:
        raise SetupError(f"{path} cannot be written: {short(error)}") from error


def _write(path: str, content: bytes, io: Any) -> None:
    stream = io.newOutputFile(path).create()
    try:
        stream.write(content)
    finally:
        stream.close()


def undone(jvm: Any, table: Any, entries: Mapping[int, int]) -> set[int]:
    """Select the files of the ``entries`` whose snapshots were rolled back."""
    metadata = metadata_json(jvm, table.operations().current())
    gone = rolled_back(metadata, set(entries.values()))
    return {file for file, snapshot in entries.items() if snapshot in gone}


# With these set, Iceberg writes rows that are not visible yet, to be audited first; driftline stages nothing.
_UNSEEN = ("spark.wap.id", "spark.wap.branch")


def ledger_of(table: IcebergHandle, properties: Mapping[str, str]) -> dict[int, int]:
    """Read the ledger that the properties name: the snapshot that took each source file, by fingerprint."""
    path = properties.get(LEDGER)
    if path is None:
        return {}
    # A ledger is replaced and never changed, so its path tells if it is the one that was read.
    if table.ledger[0] != path:
        table.ledger = path, read_ledger(path, lambda: table.java().io())
    return table.ledger[1]


def read_table(table: IcebergHandle, snapshot: int | None = None) -> DataFrame:
    """Read the table's rows, as they are now or were at a snapshot.

    Raises UsageError if there is no such table, DataError where Spark cannot read a column's type.
    """

    from pyspark.errors import AnalysisException, UnsupportedOperationException

    # Each session has a cache of its own, and a capture works in another session.
    # A catalog may cache what others have changed
    table.java_catalog.invalidateTable(table.identifier)
    try:
        return table.recovering(lambda: _read_table(table, snapshot))
    except UnsupportedOperationException as error:
        raise unreadable(table.name, table.load().schema) or error from error
    except AnalysisException as error:
        if "TABLE_OR_VIEW_NOT_FOUND" in str(error):
            raise no_table(table.name) from error
        raise


def _read_table(table: IcebergHandle, snapshot: int | None) -> DataFrame:
    if snapshot is not None:
        return table.spark.sql(f"select * from {table.full_name} version as of {snapshot}")
    return table.spark.table(table.full_name)


def read_readable(table: IcebergHandle) -> DataFrame:
    """Read the table's present rows, without the columns that Spark cannot read."""
    schema = table.load().schema
    if unreadable(table.name, schema) is None:
        return read_table(table)
    return partial(table.spark, table.java(), table.name, schema)


def read_deletes(table: IcebergHandle) -> DataFrame | None:
    """Read the deletes that the table remembers; None if it remembers none."""
    if not table.existing().refs().containsKey(DELETES_BRANCH):
        return None
    table.java_catalog.invalidateTable(table.identifier)
    return table.spark.sql(f"select * from {table.full_name} version as of '{DELETES_BRANCH}'")


def read_as(
    table: IcebergHandle, java: Any, schema: Schema, options: Mapping[str, str] | None = None
) -> DataFrame:
    """Read the rows as another Java table of the same files has them, of this schema."""
    if unreadable(table.name, schema) is not None:
        return partial(table.spark, java, table.name, schema, options=options)
    return frame_of(table.spark, java, options)


def staged(table: IcebergHandle, java: Any, schema: Schema, before: int | None) -> StagedRows:
    """The rows of another Java table of this schema; those alone that it appends to a snapshot ``before``."""
    snapshot = java.currentSnapshot()
    if before is None or snapshot is None:
        return StagedRows(read_as(table, java, schema), lambda: whole_files(java, schema))
    if (last := int(snapshot.snapshotId())) == before:
        return StagedRows(read_as(table, java, schema).limit(0), tuple)
    rows = read_as(table, java, schema, _between(before, last))
    return StagedRows(rows, lambda: whole_files(java, schema, after=before))


def _between(after: int, snapshot: int) -> dict[str, str]:
    """The options by which Spark reads the rows that snapshots after one appended, up to another."""
    return {"start-snapshot-id": str(after), "end-snapshot-id": str(snapshot)}


def whole_files(java: Any, schema: Schema, after: int | None = None) -> list[str]:
    """The Parquet files of a Java table on this machine, if they alone say what its rows are; else none.

    Args:
        java: the table.
        schema: its schema.
        after: a snapshot, for the rows alone that were appended after it.
    """
    snapshot = java.currentSnapshot()
    if snapshot is None or any(f.initial_default is not None for _, f in schema.walk()):
        return []
    # Files of other writers may lack columns by which they are partitioned: their value is in the metadata.
    specs = java.specs().values()
    if any(str(field.transform()) == "identity" for spec in specs for field in items(spec.fields())):
        return []
    if (
        int(snapshot.summary().get("total-data-files" if after is None else "added-data-files") or _MANY)
        >= _MANY
    ):
        return []
    scan = java.newScan() if after is None else java.newIncrementalAppendScan().fromSnapshotExclusive(after)
    paths = []
    for task in items(scan.planFiles()):
        file = task.file()
        path = on_disk(str(file.location()))
        if path is None or not task.deletes().isEmpty() or str(file.format()) != "PARQUET":
            return []
        paths.append(str(path))
    return paths


_MANY = 500  # files: each takes some calls of Java


def read_appended(table: IcebergHandle, after: int, snapshot: int) -> DataFrame | None:
    """Read the rows that a snapshot appended; None if it did more, or if Spark cannot read all columns."""
    java = table.java()
    added = None if java is None else java.snapshot(snapshot)
    return (
        None
        if added is None or str(added.operation()) != "append"
        else _read_appended(table, after, snapshot)
    )


def _read_appended(table: IcebergHandle, after: int, snapshot: int) -> DataFrame | None:
    schema = table.load().schema
    if readable(schema) != schema:
        return None
    return table.spark.read.options(**_between(after, snapshot)).table(table.full_name)


def read_between(table: IcebergHandle, before: State, now: State) -> DataFrame | None:
    """Read the rows that others appended between two states of the table.

    Returns None if others did more than append, or if that is unknown.
    """
    java, snapshot_id = table.java(), now.snapshot
    while snapshot_id != before.snapshot:
        snapshot = None if java is None or snapshot_id is None else java.snapshot(snapshot_id)
        is_only_moved = snapshot is not None and is_compaction(snapshot)
        if snapshot is None or not (is_only_moved or str(snapshot.operation()) == "append"):
            return None
        snapshot_id = snapshot.parentId()
    if before.snapshot is None or now.snapshot is None:
        return None
    if before.snapshot == now.snapshot:
        return read_table(table).limit(0)
    # Iceberg reads what the appends between them added, and passes over other snapshots.
    return _read_appended(table, before.snapshot, now.snapshot)


def is_compaction(snapshot: Any) -> bool:
    """True if a Java snapshot only wrote files anew: the table's rows are those of the one before it."""
    return bool(snapshot.summary().containsKey(COMPACTED))


def before_compaction(java: Any) -> tuple[Any, tuple[int, ...]]:
    """Return the last snapshot of a Java table that changed rows, and the ids of those behind it."""
    snapshot, behind = java.currentSnapshot(), list[int]()
    while snapshot is not None and is_compaction(snapshot):
        behind.append(int(snapshot.snapshotId()))
        snapshot = None if snapshot.parentId() is None else java.snapshot(snapshot.parentId())
    return snapshot, tuple(behind)


def metadata_table(table: IcebergHandle, kind: str) -> DataFrame:
    """Read one of Iceberg's metadata tables: ``files``, ``entries``."""
    schema = table.load().schema
    if readable(schema) == schema:
        return table.spark.table(f"{table.full_name}.{kind}")
    return partial(table.spark, table.java(), table.name, schema, kind)


def check_seen(spark: SparkSession) -> None:
    """Raise UsageError if what this session writes would be visible to nobody."""
    for key in _UNSEEN:
        if (value := spark.conf.get(key, None)) is not None:
            raise UsageError(
                f"{key} is {value!r} in this Spark session, and driftline writes to no branch",
                hint=f'take it back first: spark.conf.unset("{key}")',
            )
