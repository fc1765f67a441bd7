"""The versions of an Iceberg table, read back along its log of metadata files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.protocol import Py4JJavaError

from driftline.core import record
from driftline.core.history import Version
from driftline.core.layout import Laid, PartitionField
from driftline.core.schema_json import from_json
from driftline.core.types import Schema
from driftline.errors import no_table
from driftline.formats.iceberg.definition import of_json, partition_fields
from driftline.formats.iceberg.gateway import items, java_type

if TYPE_CHECKING:
    from driftline.formats.iceberg.table import IcebergTable


Metadata: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Versions:
    """What is left of a table's past. ``versions``: one for each change of its definition, oldest first, and the current
    one; ``schemas``: all that are known, by id; ``whole``: the first version is the table's very first."""

    versions: tuple[Version, ...]
    schemas: dict[int, Schema]
    whole: bool


def versions(table: IcebergTable) -> Versions:
    """Reads the log. Raises UsageError where there is no table."""
    java = table.java()
    if java is None:
        raise no_table(table.name)
    parser = java_type(table.spark._jvm, "org.apache.iceberg.TableMetadataParser")

    def read(location: str) -> Any:
        try:
            return json.loads(parser.toJson(parser.read(java.io(), location)))
        except Py4JJavaError:  # cleaned away
            return None

    return past(json.loads(parser.toJson(java.operations().current())), read)


def past(current: Metadata, read: Callable[[str], Metadata | None]) -> Versions:
    """The versions up to a table's ``current`` metadata, in their JSON form (Iceberg spec, "Table Metadata").

    ``read`` gives that of a metadata file; None, where it is gone, ends the log.
    """
    found, whole = [current], True
    for entry in reversed(current.get("metadata-log", [])):
        earlier = read(entry["metadata-file"])
        if earlier is None:
            whole = False
            break
        found.append(earlier)
    found.reverse()
    whole = whole and not found[0].get("metadata-log")
    known: dict[int, Schema] = {}
    out: list[Version] = []
    last: tuple[int, ...] = ()
    told: dict[str, str] = {}
    for before, metadata in zip([None, *found], found, strict=False):
        ids = tuple(
            metadata[f"{part}-id"] for part in ("current-schema", "default-spec", "default-sort-order")
        )
        if ids != last or metadata is current:
            if out and before is not None:
                out[-1] = _until(out[-1], before)
            out.append(_version(metadata, told))
            known |= {
                schema["schema-id"]: from_json(schema)
                for schema in metadata["schemas"]
                if schema["schema-id"] not in known
            }
        last, told = ids, _told(metadata)
    return Versions(tuple(out), known, whole)


def _version(metadata: Metadata, before: dict[str, str]) -> Version:
    """``before``: what the version right before it tells."""
    return Version(
        metadata["last-updated-ms"],
        of_json(metadata),
        current_snapshot(metadata),
        record.read(_told(metadata), before),
    )


def current_snapshot(metadata: Metadata) -> int | None:
    """The id of the snapshot that a table has now."""
    snapshot: int | None = metadata.get("current-snapshot-id")
    return None if snapshot == -1 else snapshot


def _until(version: Version, last: Metadata) -> Version:
    """The version with the properties that it had in the end."""
    end = replace(version.definition, properties=last.get("properties", {}))
    return replace(version, definition=end)


def _told(metadata: Metadata) -> dict[str, str]:
    """The properties that tell who made a version."""
    properties = metadata.get("properties", {})
    return {key: properties[key] for key in (record.PROPERTY, record.BATCH) if key in properties}


def schemas(jvm: Any, metadata: Any) -> dict[int, Schema]:
    """The schemas that a version of the table has, by id."""
    parse = jvm.org.apache.iceberg.SchemaParser.toJson
    return {
        int(schema.schemaId()): from_json(json.loads(parse(schema))) for schema in items(metadata.schemas())
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


def laid(table: IcebergTable) -> list[Laid]:
    """The data files by partition spec; specs without files are left out, but for the current one."""
    specs, current = _partition_specs(table)
    rows = (
        table.spark.table(f"{table.full_name}.files")
        .where("content = 0")
        .groupBy("spec_id")
        .agg({"*": "count", "record_count": "sum", "file_size_in_bytes": "sum"})
        .selectExpr(
            "spec_id", "`count(1)` as files", "`sum(record_count)` as n", "`sum(file_size_in_bytes)` as size"
        )
    )
    counts = {row.spec_id: (row.files, row.n, row.size) for row in rows.collect()}
    return [
        Laid(spec, fields, *counts.get(spec, (0, 0, 0)), spec == current)
        for spec, fields in sorted(specs.items())
        if spec in counts or spec == current
    ]


def _partition_specs(table: IcebergTable) -> tuple[dict[int, tuple[PartitionField, ...]], int]:
    """All partition specs by id, and which is the current one."""
    java = table.java()
    jvm: Any = table.spark._jvm
    parse = jvm.org.apache.iceberg.PartitionSpecParser.toJson
    specs = {int(s.specId()): partition_fields(json.loads(parse(s))) for s in list(java.specs().values())}
    return specs, int(java.spec().specId())
