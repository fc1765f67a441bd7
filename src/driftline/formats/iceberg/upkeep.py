"""Upkeep of a table's metadata: the snapshots of batches long past go, and schemas that nothing refers to.

Each commit writes all of a table's metadata anew, so a table that is fed every minute would become slower
with each batch. `core/history/retention.py` decides which snapshots go. No data file becomes unreachable by
it, and none is ever deleted here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driftline.core.history import entries, retention
from driftline.core.history.entries import EXPIRED
from driftline.core.history.retention import BEHIND, FEW, MIN_SNAPSHOTS
from driftline.core.schema.schema_json import from_json
from driftline.formats.iceberg.committing import SyncedCommit, check_unchanged, without_foreign_log
from driftline.formats.iceberg.gateway import items, metadata_json
from driftline.runtime.disk import delete_all_by_file_io
from driftline.runtime.spark_version import java_type

if TYPE_CHECKING:
    from driftline.formats.iceberg.loader import IcebergLoader
    from driftline.runtime.disk import Bounds

SCHEMAS = 100
_MANY_COLUMNS = 50_000  # over all schemas that are kept
GC = "gc.enabled"


@dataclass(frozen=True, slots=True)
class Dispensable:
    """Ids of snapshots and schemas that a table can do without."""

    snapshots: tuple[int, ...] = ()
    schemas: tuple[int, ...] = ()


def upkeep(table: IcebergLoader, current: Any) -> None:
    """Remove dispensable snapshots and schemas if there are enough to be worth a commit. Never fails.

    ``current``: Java's metadata of the table after a commit. If the removal meets a concurrent commit, a
    later one does it.
    """
    try:
        if _may_be_due(current):
            _let_go(table)
    except (
        Exception
    ) as error:  # the commit is in: whatever a catalog or a store throws, the next may have more luck
        logging.getLogger(__name__).debug("upkeep of %s: %s", table.name, error)


def dispensable(metadata: Mapping[str, Any], now: int) -> Dispensable:
    """The snapshots and schemas that metadata in JSON form can do without; none if there are few.

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
    """The ids of schemas that no kept snapshot and no remembered change needs."""
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
    """The schemas, and for each of their columns the last that has it:
    an undo goes by the widest type there was.
    """
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


def _let_go(table: IcebergLoader) -> None:
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
        builder.removeSnapshots(_list(jvm, gone)).setProperties(_properties(metadata, spare.snapshots))
    if spare.schemas:
        ids = java_type(jvm, "java.util.HashSet")(_list(jvm, spare.schemas))
        java_type(jvm, "org.apache.iceberg.MetadataUpdate$RemoveSchemas")(ids).applyTo(builder)
    removed = builder.build()
    removed = without_foreign_log(table, check_unchanged(table, operations, base), base, removed)
    synced = SyncedCommit(table, operations, base, removed)
    synced.before()
    operations.commit(base, removed)
    synced.after()  # before anything is deleted that the version before still names
    if gone:
        _delete_manifests(jvm, operations, gone, _far(metadata, spare.snapshots), table.bounds(java))


def _properties(metadata: Mapping[str, Any], gone: Collection[int]) -> dict[str, str]:
    """The properties that account for removed snapshots: the number of batches, and those behind gaps."""
    branch = retention.main(metadata)
    remaining = [s for s in branch if s["snapshot-id"] not in gone]
    batches = [
        sum(map(retention.keeps, line[: retention.first_gap(line) + 1])) for line in (branch, remaining)
    ]
    expired = int(metadata["properties"].get(EXPIRED, 0)) + batches[0] - batches[1]
    behind = retention.behind(remaining)
    return {EXPIRED: str(expired)} | ({BEHIND: behind} if behind or BEHIND in metadata["properties"] else {})


def _far(metadata: Mapping[str, Any], gone: Collection[int]) -> set[int]:
    """Snapshots of the main branch that share no manifest with one that is gone unless a nearer one has it
    too: each snapshot has manifests of the one before it, and new ones.
    """
    ids = [s["snapshot-id"] for s in retention.main(metadata)]
    at_rim = [
        id_ in gone or any(near in gone for near in ids[max(0, i - 1) : i + 2]) for i, id_ in enumerate(ids)
    ]
    return {id_ for id_, near in zip(ids, at_rim, strict=True) if not near}


def _delete_manifests(
    jvm: Any, operations: Any, gone: list[Any], far: Collection[int], within: Bounds
) -> None:
    """Delete the manifest lists of snapshots that are gone, and the
    manifests that none of the others has.
    """
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


def _list(jvm: Any, values: Iterable[Any]) -> Any:
    out = java_type(jvm, "java.util.ArrayList")()
    for value in values:
        out.add(value)
    return out
