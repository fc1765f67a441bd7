"""The versions of an Iceberg table, read back along its log of metadata files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from driftline.core import record
from driftline.core.history import Version
from driftline.core.layout import PartitionField
from driftline.core.schema_json import from_json
from driftline.core.types import Schema
from driftline.errors import UsageError
from driftline.formats.iceberg.definition import definition, partition_fields
from driftline.formats.iceberg.gateway import items

if TYPE_CHECKING:
    from driftline.formats.iceberg.table import IcebergTable


@dataclass(frozen=True, slots=True)
class Versions:
    """What is left of a table's past. ``versions``: one for each change of its definition, oldest first, and the current
    one; ``schemas``: all that are known, by id; ``whole``: the first version is the table's very first."""

    versions: tuple[Version, ...]
    schemas: dict[int, Schema]
    whole: bool


def versions(table: IcebergTable) -> Versions:
    """Reads the log; metadata files that are gone end it. Raises UsageError where there is no table."""
    java = table.java()
    if java is None:
        raise UsageError(f"there is no table {table.name}", "it is made by its first ingest")
    jvm: Any = table.spark._jvm
    current = java.operations().current()
    log = [str(entry.file()) for entry in items(current.previousFiles())]
    found: list[Any] = [current]
    whole = True
    for location in reversed(log):
        try:
            found.append(jvm.org.apache.iceberg.TableMetadataParser.read(java.io(), location))
        except Py4JJavaError:  # cleaned away
            whole = False
            break
    found.reverse()
    whole = whole and found[0].previousFiles().isEmpty()
    schemas: dict[int, Schema] = {}
    out: list[Version] = []
    last: tuple[int, ...] = ()
    told: dict[str, str] = {}
    for before, metadata in zip([None, *found], found, strict=False):
        ids = (
            int(metadata.currentSchemaId()),
            int(metadata.defaultSpecId()),
            int(metadata.defaultSortOrderId()),
        )
        if ids != last or metadata is current:
            if out and before is not None:
                out[-1] = _until(out[-1], before)
            out.append(_version(jvm, metadata, told))
            schemas |= _schemas(jvm, metadata, schemas)
        last, told = ids, _told(metadata)
    return Versions(tuple(out), schemas, whole)


def _version(jvm: Any, metadata: Any, before: dict[str, str]) -> Version:
    """``before``: what the version right before it tells."""
    snapshot = metadata.currentSnapshot()
    return Version(
        int(metadata.lastUpdatedMillis()),
        definition(jvm, metadata),
        None if snapshot is None else int(snapshot.snapshotId()),
        record.read(_told(metadata), before),
    )


def _until(version: Version, last: Any) -> Version:
    """The version with the properties that it had in the end."""
    end = replace(version.definition, properties=dict(last.properties()))
    return replace(version, definition=end)


def _told(metadata: Any) -> dict[str, str]:
    """The properties that tell who made a version."""
    properties = metadata.properties()
    values = {key: properties.get(key) for key in (record.PROPERTY, record.BATCH)}
    return {key: value for key, value in values.items() if value is not None}


def _schemas(jvm: Any, metadata: Any, known: dict[int, Schema]) -> dict[int, Schema]:
    """Those of a version that are not known yet."""
    parse = jvm.org.apache.iceberg.SchemaParser.toJson
    return {
        int(schema.schemaId()): from_json(json.loads(parse(schema)))
        for schema in items(metadata.schemas())
        if int(schema.schemaId()) not in known
    }


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``schema``: the version that it was written with."""

    id: int
    schema: int


def snapshots(table: IcebergTable, latest: int | None) -> Iterator[Snapshot]:
    """A snapshot and those before it, as far as they are there."""
    java = table.java()
    while latest is not None:
        snapshot = java.snapshot(latest)
        if snapshot is None:
            return
        yield Snapshot(latest, int(snapshot.schemaId() or 0))
        latest = snapshot.parentId()


def branches(table: IcebergTable) -> dict[str, set[int]]:
    """The branches beside main, each with the ids of the columns that it was written with."""
    java = table.java()
    jvm: Any = table.spark._jvm
    out = {}
    for ref_name in items(java.refs().keySet()):
        ref = java.refs().get(ref_name)
        if ref.isBranch() and ref_name != "main":
            schema = java.schemas().get(java.snapshot(ref.snapshotId()).schemaId())
            parsed = from_json(
                json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(schema or java.schema()))
            )
            out[str(ref_name)] = {f.id for _, f in parsed.walk()}
    return out


def partition_specs(table: IcebergTable) -> tuple[dict[int, tuple[PartitionField, ...]], int]:
    """All partition specs by id, and which is the current one."""
    java = table.java()
    jvm: Any = table.spark._jvm
    parse = jvm.org.apache.iceberg.PartitionSpecParser.toJson
    specs = {int(s.specId()): partition_fields(json.loads(parse(s))) for s in list(java.specs().values())}
    return specs, int(java.spec().specId())
