"""Ends older snapshots of an Iceberg table, and deletes the files that only they had.

The metadata name a list of all files of before, in the very commit that ends the snapshots: whatever dies
after it, the next run finds by the list what is left to delete.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from driftline.core.history.entries import EXPIRING
from driftline.core.history.retention import DELETES_BRANCH, Expirable, RetentionLimit, expirable
from driftline.errors import SetupError, UsageError
from driftline.formats.base import UnknownError
from driftline.formats.iceberg.commit import (
    GC,
    SyncedCommit,
    accounted,
    begin,
    delete_files,
    is_durable,
    java_list,
    replace_metadata,
)
from driftline.formats.iceberg.files import files_in, in_store
from driftline.formats.iceberg.gateway import java_errors, metadata_json, short, text_map
from driftline.formats.iceberg.offline import named_in
from driftline.formats.iceberg.reader import read_file, write_beside
from driftline.formats.iceberg.unread import partial as metadata_rows
from driftline.formats.lakes import EndedSnapshots, Orphan
from driftline.formats.leftovers import bare, check_deleted, sync_deletions
from driftline.runtime.disk import delete_all_by_file_io, on_disk
from driftline.runtime.spark_version import java_type

if TYPE_CHECKING:
    from driftline.formats.iceberg.handle import IcebergHandle


@dataclass(frozen=True, slots=True)
class IcebergExpiry:
    """The end of the older snapshots of one table."""

    table: IcebergHandle

    @property
    def of_lake(self) -> bool:
        """False: each table has snapshots of its own."""
        return False

    def check(self) -> None:
        """Raise UsageError where the table's files are not to be deleted."""
        metadata = self._metadata()
        if metadata.get("properties", {}).get(GC, "true").lower() != "true":
            raise UsageError(
                f"{self.table.name} has {GC} = false: its files are not to be deleted",
                f"ALTER TABLE {self.table.name} SET TBLPROPERTIES ('{GC}' = 'true')",
            )

    def check_unheld(self) -> None:
        """Raise UsageError for a branch or tag."""
        for name, ref in self._metadata().get("refs", {}).items():
            if name not in ("main", DELETES_BRANCH):
                kind = str(ref["type"]).upper()
                raise UsageError(
                    f"{self.table.name}: the {kind.lower()} {name} holds older rows",
                    f"drop it first: ALTER TABLE {self.table.name} DROP {kind} `{name}`",
                )

    def expirable(self, limit: RetentionLimit | None = None) -> Expirable:
        """The snapshots that would end."""
        return _expirable(self._metadata(), limit)

    def _metadata(self) -> Any:
        return self.table.metadata(self.table.existing())

    def has_removed_rows(self) -> bool:
        """True if the present snapshot has files of deletes."""
        snapshot = self.table.existing().currentSnapshot()
        summary = {} if snapshot is None else text_map(self.table.jvm, snapshot.summary())
        # A writer may leave the count out.
        return snapshot is not None and summary.get("total-delete-files", "1") != "0"

    def remembers_deletes(self) -> bool:
        """True if there is a branch of the deletes that the table remembers."""
        return self.table.existing().refs().containsKey(DELETES_BRANCH) is True

    def run(self, limit: RetentionLimit | None = None) -> EndedSnapshots:
        """End the snapshots and delete the files that only they had."""
        before = self._delete_listed()
        gone = self._end(limit)
        return before + EndedSnapshots(gone) + self._delete_listed()

    def unnamed(self) -> list[Orphan]:
        """The files below the table's location that it does not have."""
        java = self.table.existing()
        named = {bare(path) for path in _named(self.table, java)}
        return [file for file in _below(self.table, java) if bare(file.path) not in named]

    def _end(self, limit: RetentionLimit | None) -> int:
        """Commit metadata without the snapshots, and the list; returns the number that ended."""
        table, java = self.table, self.table.existing()
        transaction = begin(table, java)
        base = transaction.startMetadata()
        metadata = metadata_json(table.jvm, base)
        gone = _expirable(metadata, limit).ids
        if not gone:
            return 0
        path = write_beside(java, json.dumps(sorted(_named(table, java))).encode())
        builder = java_type(table.jvm, "org.apache.iceberg.TableMetadata").buildFrom(base)
        builder.removeSnapshots(java_list(table.jvm, map(base.snapshot, gone)))
        builder.setProperties({**accounted(metadata, gone), EXPIRING: path})
        try:
            replace_metadata(
                table,
                transaction.underlyingOps(),
                base,
                builder.build(),
                lambda now: now.properties().get(EXPIRING) == path,
                [path],
            )
        except UnknownError:
            raise
        except BaseException:
            delete_files(java.io(), [path], table.bounds(java))
            raise
        return len(gone)

    def _delete_listed(self) -> EndedSnapshots:
        """Delete the files of the list that the metadata name, but for those that the table has."""
        table, java = self.table, self.table.existing()
        path = java.properties().get(EXPIRING)
        if path is None:
            return EndedSnapshots()
        operations, within = java.operations(), table.bounds(java)
        current = operations.current()
        # Another process may have yet to sync the metadata that name these files no more.
        SyncedCommit(table, operations, current, current).base()
        named = {bare(name) for name in _named(table, java)}
        spare = [name for name in _listed_in(java, str(path)) if bare(name) not in named]
        outside = tuple(name for name in spare if not within.hold(name))
        delete_all_by_file_io(table.jvm, java.io(), spare, within)
        staying = {bare(file.path) for file in _below(table, java)} & set(map(bare, spare)) - set(
            map(bare, outside)
        )
        check_deleted(table.name, staying)
        if is_durable(table.jvm, java.io()):
            sync_deletions(map(on_disk, spare))
        self._forget(str(path))
        return EndedSnapshots(0, len(spare) - len(outside), outside)

    def _forget(self, path: str) -> None:
        """Commit metadata that do not name the list, and delete it."""
        table, java = self.table, self.table.existing()
        transaction = begin(table, java)
        base = transaction.startMetadata()
        if base.property(EXPIRING, None) == path:
            builder = java_type(table.jvm, "org.apache.iceberg.TableMetadata").buildFrom(base)
            names = java_type(table.jvm, "java.util.HashSet")(java_list(table.jvm, [EXPIRING]))
            replace_metadata(
                table,
                transaction.underlyingOps(),
                base,
                builder.removeProperties(names).build(),
                lambda now: now.properties().get(EXPIRING) != path,
            )
        delete_files(java.io(), [path], table.bounds(java))


def _expirable(metadata: Mapping[str, Any], limit: RetentionLimit | None) -> Expirable:
    return expirable(metadata, time.time_ns() // 1_000_000, limit)


def _named(table: IcebergHandle, java: Any) -> set[str]:
    """The paths of all files that the metadata of a Java table name, at any snapshot, and of their log."""
    metadata = metadata_json(table.jvm, java.operations().current())
    paths = {str(java.operations().current().metadataFileLocation()), *named_in(metadata)}
    # By this Java table, and not by its name: a catalog of Spark's may have an earlier state in its cache.
    schema = table.state(java.operations().current()).schema
    for kind, column in (("all_files", "file_path"), ("all_manifests", "path")):
        rows = metadata_rows(table.spark, java, table.name, schema, kind)
        paths |= {row[0] for row in rows.select(column).distinct().collect()}
    return paths


def _below(table: IcebergHandle, java: Any) -> Iterator[Orphan]:
    """All files below a Java table's location, without the checksums of Hadoop."""
    location = str(java.location())
    files = files_in(table.spark, java, location, float("inf"))
    if in_store(java, location):
        return files
    return (file for file in files if not file.path.endswith(".crc"))


def _listed_in(java: Any, path: str) -> list[str]:
    """The paths in a list. Raises SetupError if it cannot be read."""
    try:
        with java_errors():
            return list(json.loads(read_file(path, java.io())))
    except Py4JJavaError as error:
        raise SetupError(f"{path} cannot be read: {short(error)}") from error
