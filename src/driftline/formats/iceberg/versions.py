"""The versions of an Iceberg table, read back along its log of metadata files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from driftline.core.history import Version
from driftline.core.schema_json import from_json
from driftline.core.types import Schema
from driftline.errors import UsageError
from driftline.formats.iceberg.definition import definition
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
    for metadata in found:
        ids = (
            int(metadata.currentSchemaId()),
            int(metadata.defaultSpecId()),
            int(metadata.defaultSortOrderId()),
        )
        if ids != last or metadata is current:
            out.append(_version(jvm, metadata))
            schemas |= _schemas(jvm, metadata, schemas)
        last = ids
    return Versions(tuple(out), schemas, whole)


def _version(jvm: Any, metadata: Any) -> Version:
    snapshot = metadata.currentSnapshot()
    return Version(
        int(metadata.lastUpdatedMillis()),
        definition(jvm, metadata),
        None if snapshot is None else int(snapshot.snapshotId()),
        str(metadata.metadataFileLocation()),
    )


def _schemas(jvm: Any, metadata: Any, known: dict[int, Schema]) -> dict[int, Schema]:
    """Those of a version that are not known yet."""
    parse = jvm.org.apache.iceberg.SchemaParser.toJson
    return {
        int(schema.schemaId()): from_json(json.loads(parse(schema)))
        for schema in items(metadata.schemas())
        if int(schema.schemaId()) not in known
    }
