"""Commits metadata versions, settles commits that ended in an error, and prunes old snapshots.

Clients repeat a request whose answer was lost: if the first one came through, the second is refused, since
the table has changed. So no error of a catalog proves that nothing was committed. Iceberg's own
`commitTransaction` believes a refusal, and deletes manifests that the table has by then.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from driftline.config import DURABILITY
from driftline.core.history import entries, retention
from driftline.core.history.entries import EXPIRED, EXPIRED_COMPACTIONS
from driftline.core.history.retention import BEHIND, FEW, MIN_SNAPSHOTS
from driftline.core.schema.schema_json import from_json
from driftline.core.schema.types import dotted
from driftline.errors import DataError, SetupError
from driftline.formats.base import CommitConflict, UnknownError
from driftline.formats.iceberg.gateway import (
    failure,
    hives_refusal,
    items,
    java_class,
    java_errors,
    metadata_json,
    schema_of,
    short,
    text_map,
)
from driftline.formats.iceberg.manifests import manifests_of
from driftline.formats.iceberg.relocating import CATALOG
from driftline.formats.iceberg.unread import telling
from driftline.runtime.disk import NEW, Bounds, delete_all_by_file_io, delete_by_file_io, on_disk, sync
from driftline.runtime.spark_version import java_type

if TYPE_CHECKING:
    from driftline.formats.iceberg.handle import IcebergHandle

# Milliseconds; Iceberg takes times that are up to a minute earlier than the last
_CLOCKS_DIFFER = 30_000
_DATED = ("snapshots", "snapshot-log", "metadata-log")
_DELETES_LOG = "write.metadata.delete-after-commit.enabled"
_LOGGED = re.compile(r"file=(.*?)\}(?:, MetadataLogEntry\{|\]$)")  # in the text of Java's list
# The name of a metadata file, which begins with the version
_NUMBERED = re.compile(r"(\d{5,})-[^/]*$")
# REST's errors that are no answers of the server; answers have classes of their own.
_UNKNOWN = ("CommitStateUnknownException", "RESTException", "ServiceFailureException", "InterruptedException")


def begin(table: IcebergHandle, java: Any) -> Any:
    """Begin a Java transaction on a freshly loaded Java table.

    Raises CommitConflict if the table is gone, SetupError if its catalog does not answer.
    """
    try:
        with java_errors():
            _date_before_now(table, java.operations())
            return java.newTransaction()
    except Py4JJavaError as error:
        raise _not_loaded(table, error) from error


# Iceberg's `commitTransaction` would apply a stale append to whatever the table has become, and after a
# repeated request it deletes the manifests of the live snapshot: the table could no longer be read.
def commit(table: IcebergHandle, java: Any, has: Callable[[Any], bool], files: Iterable[str] = ()) -> None:
    """Commit a Java transaction to the very version of the table that it began on.

    Args:
        table: The table.
        java: The transaction.
        has: True if the Java table, as it is after an error, has the transaction.
        files: The files that it has written, beside manifests.

    Raises:
        CommitConflict: Someone else was faster.
        UnknownError: The outcome is unknown.
    """
    replace_metadata(table, java.underlyingOps(), java.startMetadata(), java.currentMetadata(), has, files)
    # The commit is in. What fails from here on leaves files behind, which `clean` finds.
    with suppress(Py4JJavaError), java_errors():
        if merged := _merged_away(java):
            delete_files(java.table().io(), set(merged) - set(telling(java.table())), NEW)


def replace_metadata(
    table: IcebergHandle,
    operations: Any,
    base: Any,
    metadata: Any,
    has: Callable[[Any], bool],
    files: Iterable[str] = (),
) -> None:
    """Commit ``metadata`` in place of ``base``, as `commit` does; ``base`` None: the table is created."""
    synced = SyncedCommit(table, operations, base, metadata)
    if base is not None:
        version = check_unchanged(table, operations, base)
        metadata = _dated_after(table, base, metadata)
        metadata = without_foreign_log(table, version, base, metadata)
    # A version may be visible only once all that it names is on the disk.
    synced.before(files)
    try:
        with java_errors():
            operations.commit(base, metadata)
    except Py4JJavaError as error:
        # The catalog's client may have repeated a request whose answer was lost; then the refusal is of our
        # own commit. So the table is asked before a file is deleted.
        if not _landed(table, error, has):
            raise failure(error, table.name) from error
    synced.after()


class SyncedCommit:
    """The files of one commit to a table whose metadata are on a disk, which a power cut must not take.

    Iceberg writes the new metadata file and changes the catalog's row in one go, so the file can be synced
    only behind the row: a row that names a cut file is of a commit that was never acknowledged, and
    `recovered` goes back to the one before it. All else is on the disk by then.
    """

    def __init__(self, table: IcebergHandle, operations: Any, base: Any, metadata: Any) -> None:
        self._table, self._operations, self._base, self._metadata = table, operations, base, metadata
        self._within: Path | None = None
        self._catalog: Path | None = None
        folder = on_disk(str(operations.temp(metadata).metadataFileLocation("_")))
        self._folder = None if folder is None else folder.parent
        if self._folder is not None:
            self._catalog = None if table.lake is None else table.lake / CATALOG
            if not is_durable(table.jvm, operations.io()):
                self._folder = None
        if self._folder is not None and base is not None:
            self._within = on_disk(str(base.location()))

    def before(self, files: Iterable[str] = ()) -> None:
        """Sync what the new metadata name: manifests, and these ``files``. Raises SetupError."""
        if self._folder is not None:
            if self._base is None:  # by this folder `recovered` knows a table that was being made
                self._folder.mkdir(parents=True, exist_ok=True)
                files = [*files, str(self._folder)]
            self.base([*files, *_manifests(self._metadata)])

    # One step back must suffice, so each commit makes sure of the step before it.
    def base(self, files: Iterable[str] = ()) -> None:
        """Sync the metadata that the commit begins on, and these ``files``. Raises SetupError.

        `recovered` would go back to that version, and another process may have yet to sync it.
        """
        if self._folder is not None:
            before = [] if self._base is None else [str(self._base.metadataFileLocation())]
            sync(filter(None, map(on_disk, [*files, *before])), self._within)

    def after(self) -> None:
        """Sync the metadata file that the catalog names now, and the catalog. Raises UnknownError."""
        if self._folder is None:
            return
        try:
            sync(filter(None, [on_disk(self._metadata_file())]), self._within)
            self.catalog()
        except SetupError as error:
            raise UnknownError(f"table {self._table.name}: {error.message}") from error

    def catalog(self) -> None:
        """Sync the catalog, with its folder: a journal that came back there would roll the commit back."""
        if self._folder is not None and self._catalog is not None:
            sync([self._catalog], self._catalog.parent)

    def _metadata_file(self) -> str:
        """Return the metadata file of the new version."""
        assert self._folder is not None
        before = "" if self._base is None else str(self._base.metadataFileLocation())
        number = _NUMBERED.search(before)
        if self._base is None or number is not None:
            version = 0 if number is None else int(number[1]) + 1
            # To have Java load it once more takes longer than to sync it.
            files = list(self._folder.glob(f"{version:05d}-*.metadata.json"))
            if len(files) == 1:  # else another writer was too late
                return str(files[0])
        return str(self._operations.refresh().metadataFileLocation())


def _manifests(metadata: Any) -> Iterator[str]:
    """Yield the manifest lists and manifests of the snapshots that are new in metadata."""
    for change in items(metadata.changes()):
        if str(change.getClass().getSimpleName()) == "AddSnapshot":
            snapshot = change.snapshot()
            listed = str(snapshot.manifestListLocation())
            yield listed
            if on_disk(listed) is not None:
                yield from manifests_of(listed, int(snapshot.snapshotId()))


def is_durable(jvm: Any, io: Any) -> bool:
    """False if the catalog that a FileIO belongs to says that files are written without syncs."""
    try:
        with java_errors():
            return text_map(jvm, io.properties()).get(DURABILITY) != "off"
    except Py4JJavaError:  # it tells nothing of its catalog
        return True


def check_head(table: IcebergHandle, java: Any) -> None:
    """Raise DataError if the newest rows have columns that the table's schema never had.

    Iceberg's `fast_forward` and `publish_changes` bring a branch's rows to main, and leave its schema behind.
    The next record with such a field would make a second column, and the values would stay unread.
    """
    metadata = java.operations().current()
    head, schemas = metadata.currentSnapshot(), metadata.schemasById()
    if head is None:
        return
    # A snapshot that was published has a new id, and names the one that it was.
    source = head.summary().get("source-snapshot-id")
    origin = (metadata.snapshot(int(source)) if source else None) or head
    number = origin.schemaId()
    if number is None or int(number) == int(metadata.currentSchemaId()) or schemas.get(number) is None:
        return
    has = {field.id for _, field in schema_of(table.jvm, metadata.schema()).walk()}
    rows_have = schema_of(table.jvm, schemas.get(number)).walk()
    lacking = [dotted(path) for path, field in rows_have if field.id not in has]
    # The schema of the newest snapshot alone proves nothing: Iceberg takes an earlier equal schema again
    # where the last column is dropped.
    if lacking and not _was_current(table, java, metadata, int(number), int(head.snapshotId())):
        raise DataError(
            f"{table.name}: its newest rows came from a branch, by fast_forward or publish_changes, without their "
            f"columns: {', '.join(lacking)}; to write now would leave these values unread",
            f"bring the columns in first: driftline undo {table.name} --to {number}",
        )


def _was_current(table: IcebergHandle, java: Any, metadata: Any, schema: int, head: int) -> bool:
    """True if a schema was the table's own since, or before, its present ``head`` came: columns were dropped.

    True as well where the log of versions does not tell.
    """
    if [int(entry.snapshotId()) for entry in items(metadata.snapshotLog())].count(head) != 1:
        return True  # main went back to it
    parser = java_type(table.jvm, "org.apache.iceberg.TableMetadataParser")
    later = int(metadata.currentSchemaId())
    for entry in reversed(items(metadata.previousFiles())):
        try:
            with java_errors():
                version = parser.read(java.io(), entry.file())
        except Py4JJavaError:
            return True
        if int(version.currentSchemaId()) == schema:
            return True
        snapshot = version.currentSnapshot()
        if snapshot is None or int(snapshot.snapshotId()) != head:
            # A change of ours may write rows by a schema that the same version replaces, as `resolve` does.
            return int(version.currentSchemaId()) != later
        later = int(version.currentSchemaId())
    return True


def _date_before_now(table: IcebergHandle, operations: Any) -> None:
    """Have Java's copy of a table's metadata say that all of it was written before now.

    Iceberg refuses each change of a table whose last one is over a minute ahead of the clock, as where a
    clock was wrong once. `_dated_after` restores the times, and dates the change behind the last one. Raises
    DataError where a server keeps the metadata.
    """
    base, now = operations.current(), time.time_ns() // 1_000_000
    last = int(base.lastUpdatedMillis())
    if last <= now + _CLOCKS_DIFFER:
        return
    cached = _cached_metadata(operations)
    if cached is None:
        until = datetime.fromtimestamp((last - _CLOCKS_DIFFER) / 1000, UTC)
        raise DataError(
            f"{table.name}: the time of its last change is ahead of this machine's clock, "
            f"and its catalog takes no earlier one before {until:%Y-%m-%d %H:%M:%S} UTC",
            "set this machine's clock if it is behind; otherwise try again then",
        )
    text = metadata_json(table.jvm, base)
    table.dated_ahead[str(base.metadataFileLocation())] = deepcopy(text)
    for key in _DATED:
        for dated in text.get(key, ()):
            dated["timestamp-ms"] = min(dated["timestamp-ms"], now)
    text["last-updated-ms"] = now
    parser = java_type(table.jvm, "org.apache.iceberg.TableMetadataParser")
    # Otherwise a clock that was wrong once would lock the table until that time has come.
    cached.set(operations, parser.fromJson(base.metadataFileLocation(), json.dumps(text)))


def _cached_metadata(operations: Any) -> Any:
    """The field of Java's in which a catalog's client keeps metadata; None where it sends changes only."""
    kind = operations.getClass()
    while kind is not None:
        for field in kind.getDeclaredFields():
            if field.getName() == "currentMetadata":
                field.setAccessible(True)
                return field
        kind = kind.getSuperclass()
    return None


def _dated_after(table: IcebergHandle, base: Any, metadata: Any) -> Any:
    """Give the ``metadata`` the true times of its ``base``, and the next ones for what is new.

    They stay as they are if `_date_before_now` left them so.
    """
    location, now = str(base.metadataFileLocation()), int(base.lastUpdatedMillis())
    before = table.dated_ahead.get(location)
    if before is None:
        return metadata
    after, moment = metadata_json(table.jvm, metadata), before["last-updated-ms"] + 1
    log = {
        (e["snapshot-id"], min(e["timestamp-ms"], now)): e["timestamp-ms"]
        for e in before.get("snapshot-log", ())
    }
    snapshots = {e["snapshot-id"]: e["timestamp-ms"] for e in before.get("snapshots", ())}
    files = {e["metadata-file"]: e["timestamp-ms"] for e in before.get("metadata-log", ())} | {
        location: moment - 1
    }
    for entry in after.get("snapshot-log", ()):
        entry["timestamp-ms"] = log.get((entry["snapshot-id"], entry["timestamp-ms"]), moment)
    for entry in after.get("snapshots", ()):
        entry["timestamp-ms"] = snapshots.get(entry["snapshot-id"], moment)
    for entry in after.get("metadata-log", ()):
        entry["timestamp-ms"] = files.get(entry["metadata-file"], moment)
    after["last-updated-ms"] = moment
    return java_type(table.jvm, "org.apache.iceberg.TableMetadataParser").fromJson(json.dumps(after))


def check_unchanged(table: IcebergHandle, operations: Any, base: Any) -> str:
    """Raise CommitConflict if the table is no longer ``base``: a REST catalog compares only parts of it.

    Returns the path of its metadata file.
    """
    try:
        with java_errors():
            now = operations.refresh()
    except Py4JJavaError as error:
        raise _not_loaded(table, error) from error
    version = str(base.metadataFileLocation())
    if now.metadataFileLocation() != version:
        raise CommitConflict(f"{table.name} was changed by another writer")
    return version


def without_foreign_log(table: IcebergHandle, version: str, base: Any, metadata: Any) -> Any:
    """Return the ``metadata``, by which Iceberg deletes no old metadata file outside the table's bounds.

    With a commit Iceberg deletes the oldest files of the log, wherever they lie. Java is asked once in a
    process.
    """
    folder = version.rpartition("/")[0]
    if folder in _checked_logs():
        return metadata
    log = _LOGGED.findall(str(base.previousFiles().toString()))
    if all(map(table.bounds(base).hold, [version, *log])):
        _checked_logs().add(folder)
        return metadata
    builder = java_type(table.jvm, "org.apache.iceberg.TableMetadata").buildFrom(metadata)
    return builder.setProperties({_DELETES_LOG: "false"}).build()


@cache
def _checked_logs() -> set[str]:
    """Return the folders of metadata files of tables whose logs name no file elsewhere."""
    return set()


def _not_loaded(table: IcebergHandle, error: Py4JJavaError) -> Exception:
    refusal = failure(error, table.name)
    if isinstance(refusal, CommitConflict):
        return refusal
    return SetupError(f"table {table.name} cannot be loaded: {short(error)}")


def _landed(table: IcebergHandle, error: Py4JJavaError, has: Callable[[Any], bool]) -> bool:
    """True if a commit that ended in an error is in the table all the same.

    Raises UnknownError if that cannot be found out: its files must then stay.
    """
    unknown = _may_land(error)
    try:
        now = table.java()
    # A catalog that does not respond proves nothing.
    except SetupError:
        unknown = True
    else:
        if now is not None and has(now):
            return True
    if unknown:
        raise UnknownError(f"table {table.name}: {short(error)}") from error
    return False


def _may_land(error: Py4JJavaError) -> bool:
    """True if a commit that ended in an error may still be under way.

    That is so if a catalog's server was asked, and the connection was lost or timed out. SQLite is no server,
    and commits nothing later.
    """
    if java_class(error).endswith("UncheckedSQLException"):
        return "SQLite" not in str(error.java_exception.getCause())
    return java_class(error).endswith(_UNKNOWN) and not hives_refusal(error)


def _merged_away(java: Any) -> list[str]:
    """The manifests that a transaction wrote and then merged into larger ones; Iceberg does not list them."""
    field = java.getClass().getDeclaredField("deletedFiles")
    field.setAccessible(True)
    return [str(path) for path in items(field.get(java))]


def delete_files(io: Any, paths: Iterable[str], within: Bounds) -> None:
    """Delete as many of the files as possible: those that remain are orphans."""
    for path in paths:
        with suppress(Py4JJavaError), java_errors():
            delete_by_file_io(io, path, within)


SCHEMAS = 100
# A table of 3,000 columns that changes with each batch would otherwise have 129 MB of metadata.
_MANY_COLUMNS = 50_000  # over all schemas that are kept
GC = "gc.enabled"


@dataclass(frozen=True, slots=True)
class Dispensable:
    """Ids of snapshots and schemas that a table can do without."""

    snapshots: tuple[int, ...] = ()
    schemas: tuple[int, ...] = ()


def upkeep(table: IcebergHandle, current: Any) -> None:
    """Remove dispensable snapshots and schemas if there are enough to be worth a commit. Never fails.

    ``current``: Java's metadata of the table after a commit. If the removal meets a concurrent commit, a
    later one does it.
    """
    try:
        if _may_be_due(current):
            _let_go(table)
    # The commit is in: whatever a catalog or a store throws, the next may have more luck.
    except Exception as error:
        logging.getLogger(__name__).debug("upkeep of %s: %s", table.name, error)


def dispensable(metadata: Mapping[str, Any], now: int) -> Dispensable:
    """Return the snapshots and schemas that metadata in JSON form can do without; none if there are few.

    ``now``: in milliseconds.
    """
    properties = metadata.get("properties", {})
    if properties.get(GC, "true").lower() != "true":
        return Dispensable()
    thinned = max(FEW, _MANY_COLUMNS // max(metadata["last-column-id"], 1))
    snapshots = retention.dispensable(metadata, now, thinned)
    return Dispensable(snapshots, _schemas(metadata, frozenset(snapshots)))


def _allowed(columns: int) -> int:
    """The number of changes that keep their schemas: smaller for a wide table, whose schemas are large."""
    return min(SCHEMAS, max(FEW, _MANY_COLUMNS // max(columns, 1)))


def _schemas(metadata: Mapping[str, Any], gone: frozenset[int]) -> tuple[int, ...]:
    """Return the ids of schemas that no kept snapshot and no remembered change needs."""
    allowed = _allowed(metadata["last-column-id"])
    if len(metadata["schemas"]) <= 2 * allowed:
        return ()
    needed = {metadata["current-schema-id"]}
    needed |= {s.get("schema-id") for s in metadata.get("snapshots", ()) if s["snapshot-id"] not in gone}
    for change in entries.last_changes(metadata.get("properties", {}))[-allowed:]:
        needed |= {ids.schema for ids in (change.step.before, change.step.after) if ids is not None}
    worth = max(FEW, allowed // 2)
    if sum(s["schema-id"] not in needed for s in metadata["schemas"]) < worth:
        return ()
    columns = {s["schema-id"]: {f.id for _, f in from_json(s).walk()} for s in metadata["schemas"]}
    spare = tuple(columns.keys() - _with_widest(needed, columns))
    return spare if len(spare) >= worth else ()


def _with_widest(needed: Iterable[int | None], columns: Mapping[int, set[int]]) -> set[int]:
    """Add, for each column of the schemas, the last schema that has it: undo needs the widest type it had."""
    last = {column: schema for schema in sorted(columns) for column in columns[schema]}
    staying: set[int] = set()
    to_add = columns.keys() & needed
    while to_add:
        staying |= to_add
        to_add = {last[column] for schema in to_add for column in columns[schema]} - staying
    return staying


def _may_be_due(metadata: Any) -> bool:
    """True if upkeep may be due, by a first look that costs next to nothing."""
    main, setting = metadata.ref("main"), metadata.property(MIN_SNAPSHOTS, None)
    least = retention.least_of_main(
        None if main is None else main.minSnapshotsToKeep(),
        {} if setting is None else {MIN_SNAPSHOTS: setting},
    )
    thinned = metadata.property(BEHIND, "").count(" ")
    many = int(metadata.snapshots().size()) >= least + thinned + retention.worth(least)
    return many or int(metadata.schemas().size()) > 2 * _allowed(int(metadata.lastColumnId()))


def _let_go(table: IcebergHandle) -> None:
    jvm = table.jvm
    java = table.java()
    operations = java.operations()
    base = operations.current()
    metadata = metadata_json(jvm, base)
    spare = dispensable(metadata, time.time_ns() // 1_000_000)
    if spare == Dispensable():
        return
    builder = java_type(jvm, "org.apache.iceberg.TableMetadata").buildFrom(base)
    gone = [base.snapshot(id_) for id_ in spare.snapshots]
    if gone:
        builder.removeSnapshots(java_list(jvm, gone)).setProperties(accounted(metadata, spare.snapshots))
    if spare.schemas:
        ids = java_type(jvm, "java.util.HashSet")(java_list(jvm, spare.schemas))
        java_type(jvm, "org.apache.iceberg.MetadataUpdate$RemoveSchemas")(ids).applyTo(builder)
    removed = builder.build()
    removed = without_foreign_log(table, check_unchanged(table, operations, base), base, removed)
    synced = SyncedCommit(table, operations, base, removed)
    synced.before()
    operations.commit(base, removed)
    # Before anything is deleted that the version before still names
    synced.after()
    if gone:
        _delete_manifests(jvm, operations, gone, _far(metadata, spare.snapshots), table.bounds(java))


def accounted(metadata: Mapping[str, Any], gone: Collection[int]) -> dict[str, str]:
    """The properties that account for removed snapshots: how many, by kind, and those behind gaps."""
    branch = retention.main(metadata)
    remaining = [s for s in branch if s["snapshot-id"] not in gone]
    batches = [
        sum(map(retention.is_counted, line[: retention.first_gap(line) + 1])) for line in (branch, remaining)
    ]
    properties = metadata["properties"]
    counts = {EXPIRED: int(properties.get(EXPIRED, 0)) + batches[0] - batches[1]}
    if compactions := sum(s["snapshot-id"] in gone for s in branch if retention.is_compaction(s)):
        counts[EXPIRED_COMPACTIONS] = int(properties.get(EXPIRED_COMPACTIONS, 0)) + compactions
    behind = retention.behind(remaining)
    accounts = {name: str(count) for name, count in counts.items()}
    return accounts | ({BEHIND: behind} if behind or BEHIND in properties else {})


def _far(metadata: Mapping[str, Any], gone: Collection[int]) -> set[int]:
    """Select the snapshots of the main branch whose manifests need no look.

    Each snapshot has manifests of the one before it, and new ones: these share none with one that is gone,
    unless a nearer one has it too.
    """
    ids = [s["snapshot-id"] for s in retention.main(metadata)]
    at_rim = [
        id_ in gone or any(near in gone for near in ids[max(0, i - 1) : i + 2]) for i, id_ in enumerate(ids)
    ]
    return {id_ for id_, near in zip(ids, at_rim, strict=True) if not near}


def _delete_manifests(
    jvm: Any, operations: Any, gone: list[Any], far: Collection[int], within: Bounds
) -> None:
    """Delete the manifest lists of snapshots that are gone, and manifests that no other has."""
    io = operations.io()
    manifests = java_type(jvm, "java.util.HashSet")()
    for snapshot in gone:
        manifests.addAll(snapshot.allManifests(io))
    for snapshot in items(operations.refresh().snapshots()):
        if int(snapshot.snapshotId()) not in far:
            manifests.removeAll(snapshot.allManifests(io))
    lists = [snapshot.manifestListLocation() for snapshot in gone]
    paths = [*(manifest.path() for manifest in items(manifests)), *filter(None, lists)]
    delete_all_by_file_io(jvm, io, map(str, paths), within)


def java_list(jvm: Any, values: Iterable[Any]) -> Any:
    """Return a Java list of the values."""
    out = java_type(jvm, "java.util.ArrayList")()
    for value in values:
        out.add(value)
    return out
