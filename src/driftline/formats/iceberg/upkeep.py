"""What a table's metadata need no longer: the snapshots of batches long past, and schemas that nothing refers to.

Each commit writes all of a table's metadata anew, so a table that is fed every minute would become slower with each batch.
A snapshot goes only where driftline appended it, nothing refers to it, and the next one appended too: then that one has
all its data files, so that none becomes unreachable, and none is ever deleted here.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driftline.core import changelog
from driftline.core.record import BATCH, EXPIRED
from driftline.core.schema_json import from_json
from driftline.formats.iceberg.gateway import items, java_type

if TYPE_CHECKING:
    from driftline.formats.iceberg.table import IcebergTable

KEEP = 100  # snapshots of the main branch, where the table does not say
SCHEMAS = 100
_MANY_COLUMNS = 50_000  # over all schemas that are kept
_FEW = 10  # nothing is done for less
MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
MAX_AGE = "history.expire.max-snapshot-age-ms"
GC = "gc.enabled"


@dataclass(frozen=True, slots=True)
class Dispensable:
    """Ids of snapshots and schemas that a table can do without."""

    snapshots: tuple[int, ...] = ()
    schemas: tuple[int, ...] = ()


def upkeep(table: IcebergTable, java: Any) -> None:
    """Lets go of them, where there are so many that it is worth a commit. ``java``: the table as a transaction left it.

    Never fails: what one batch cannot do, for others commit at the same time, a later one does.
    """
    try:
        if _may_be_due(java.operations().current()):
            _let_go(table)
    except (
        Exception
    ) as error:  # the batch is in: whatever a catalog or a store throws, the next one may have more luck
        logging.getLogger(__name__).debug("upkeep of %s: %s", table.name, error)


def dispensable(metadata: Mapping[str, Any], now: int) -> Dispensable:
    """What can go of metadata in their JSON form; nothing where that is little. ``now``: in milliseconds."""
    properties = metadata.get("properties", {})
    if properties.get(GC, "true").lower() != "true":
        return Dispensable()
    snapshots = _snapshots(metadata, properties, now)
    return Dispensable(snapshots, _schemas(metadata, frozenset(snapshots)))


def _snapshots(metadata: Mapping[str, Any], properties: Mapping[str, str], now: int) -> tuple[int, ...]:
    """The oldest of the main branch, down to as many as it keeps."""
    keep = max(1, int(properties.get(MIN_SNAPSHOTS, KEEP)))
    latest = now - int(properties.get(MAX_AGE, 0))
    chain = _main(metadata)
    held = _held(metadata, {s["snapshot-id"] for s in chain})
    found = tuple(
        s["snapshot-id"]
        for child, s in zip(chain[keep - 1 :], chain[keep:], strict=False)
        if s["timestamp-ms"] <= latest
        and s["snapshot-id"] not in held
        and BATCH in s.get("summary", {})
        and _only_adds(s)
        and _only_adds(child)
    )
    return found if len(found) >= max(keep, _FEW) else ()


def _only_adds(snapshot: Mapping[str, Any]) -> bool:
    return bool(snapshot.get("summary", {}).get("operation") == "append")


def _main(metadata: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The current snapshot and those before it, as far as they are there."""
    by_id = {s["snapshot-id"]: s for s in metadata.get("snapshots", ())}
    chain, at = [], metadata.get("current-snapshot-id")
    while at in by_id:
        chain.append(by_id[at])
        at = chain[-1].get("parent-snapshot-id")
    return chain


def _held(metadata: Mapping[str, Any], main: set[int]) -> set[int]:
    """What branches and tags name, what snapshots beside the main branch were made from, what has statistics."""
    named = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    beside = {s.get("parent-snapshot-id") for s in metadata["snapshots"] if s["snapshot-id"] not in main}
    kinds = ("statistics", "partition-statistics")
    return named | beside | {s["snapshot-id"] for kind in kinds for s in metadata.get(kind, ())}


def _allowed(columns: int) -> int:
    """How many changes keep their schemas: fewer in a wide table, whose schemas are large."""
    return min(SCHEMAS, max(_FEW, _MANY_COLUMNS // max(columns, 1)))


def _schemas(metadata: Mapping[str, Any], gone: frozenset[int]) -> tuple[int, ...]:
    """Those that no snapshot has which stays, nor one of the last changes that the table remembers."""
    allowed = _allowed(metadata["last-column-id"])
    if len(metadata["schemas"]) <= 2 * allowed:
        return ()
    needed = {metadata["current-schema-id"]}
    needed |= {s.get("schema-id") for s in metadata.get("snapshots", ()) if s["snapshot-id"] not in gone}
    for change in changelog.read(metadata.get("properties", {}))[-allowed:]:
        needed |= {ids.schema for ids in (change.step.before, change.step.after) if ids is not None}
    worth = max(_FEW, allowed // 2)
    if sum(s["schema-id"] not in needed for s in metadata["schemas"]) < worth:
        return ()
    columns = {s["schema-id"]: {f.id for _, f in from_json(s).walk()} for s in metadata["schemas"]}
    found = tuple(columns.keys() - _with_widest(needed, columns))
    return found if len(found) >= worth else ()


def _with_widest(needed: Iterable[int | None], columns: Mapping[int, set[int]]) -> set[int]:
    """The schemas, and for each of their columns the last that has it: an undo goes by the widest type there was."""
    last = {column: schema for schema in sorted(columns) for column in columns[schema]}
    kept: set[int] = set()
    more = columns.keys() & needed
    while more:
        kept |= more
        more = {last[column] for schema in more for column in columns[schema]} - kept
    return kept


def _may_be_due(metadata: Any) -> bool:
    """A first look, which costs next to nothing."""
    keep = max(1, int(metadata.propertyAsInt(MIN_SNAPSHOTS, KEEP)))
    many = int(metadata.snapshots().size()) >= keep + max(keep, _FEW)
    return many or int(metadata.schemas().size()) > 2 * _allowed(int(metadata.lastColumnId()))


def _let_go(table: IcebergTable) -> None:
    java, jvm = table.java(), table.spark._jvm
    operations = java.operations()
    base = operations.current()
    told = json.loads(java_type(jvm, "org.apache.iceberg.TableMetadataParser").toJson(base))
    found = dispensable(told, time.time_ns() // 1_000_000)
    if found == Dispensable():
        return
    gone = _list(jvm, [base.snapshot(id_) for id_ in found.snapshots])
    builder = java_type(jvm, "org.apache.iceberg.TableMetadata").buildFrom(base)
    if found.snapshots:
        expired = int(told["properties"].get(EXPIRED, 0)) + len(found.snapshots)
        builder.removeSnapshots(gone).setProperties({EXPIRED: str(expired)})
    if found.schemas:
        ids = java_type(jvm, "java.util.HashSet")(_list(jvm, found.schemas))
        java_type(jvm, "org.apache.iceberg.MetadataUpdate$RemoveSchemas")(ids).applyTo(builder)
    operations.commit(base, builder.build())
    if found.snapshots:
        _delete_manifests(jvm, operations, gone)


def _delete_manifests(jvm: Any, operations: Any, gone: Any) -> None:
    """Deletes the manifest lists of snapshots that are gone, and the manifests that none of the others has."""
    io = operations.io()
    manifests = java_type(jvm, "java.util.HashSet")()
    for snapshot in items(gone):
        manifests.addAll(snapshot.allManifests(io))
    for snapshot in items(operations.refresh().snapshots()):
        manifests.removeAll(snapshot.allManifests(io))
    lists = [snapshot.manifestListLocation() for snapshot in items(gone)]
    paths = [*(manifest.path() for manifest in items(manifests)), *filter(None, lists)]
    java_type(jvm, "org.apache.iceberg.CatalogUtil").deleteFiles(io, _list(jvm, paths), "manifest")


def _list(jvm: Any, values: Iterable[Any]) -> Any:
    out = java_type(jvm, "java.util.ArrayList")()
    for value in values:
        out.add(value)
    return out
