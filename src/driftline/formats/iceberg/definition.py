"""The definition of an Iceberg table, read from a version of its metadata; the properties of a new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.core.history.entries import Ids, Step
from driftline.core.schema.definition import VOID, Definition, PartitionField, SortField, Transform
from driftline.core.schema.schema_json import from_json
from driftline.core.schema.types import Schema
from driftline.formats.iceberg.gateway import metadata_json

_FIRST_FIELD = 1000  # Iceberg's id of a partition field
# By default Iceberg writes the metrics of 100 columns, driftline those of all.
PREFIX = "write.metadata.metrics."
LIMIT = PREFIX + "max-inferred-column-defaults"
_BY_DEFAULT = 100  # columns that have metrics unless a property says otherwise
_ALL = "1000000"


def definition(jvm: Any, metadata: Any) -> Definition:
    """The definition that a Java ``TableMetadata`` holds."""
    return of_json(metadata_json(jvm, metadata))


def step(before: Any, after: Any) -> Step:
    """The step between two Java ``TableMetadata``; ``before`` None: the table was created."""
    snapshot = after.currentSnapshot()
    return Step(
        None if before is None else _ids(before),
        _ids(after),
        None if snapshot is None else int(snapshot.snapshotId()),
        1 if before is None else int(before.lastSequenceNumber()) + 1,
    )


def _ids(metadata: Any) -> Ids:
    return Ids(
        int(metadata.currentSchemaId()), int(metadata.defaultSpecId()), int(metadata.defaultSortOrderId())
    )


def ids_of_json(metadata: Mapping[str, Any]) -> Ids:
    """The ids of the schema, partition spec and sort order that a metadata file makes current."""
    return Ids(metadata["current-schema-id"], metadata["default-spec-id"], metadata["default-sort-order-id"])


def of_json(metadata: Mapping[str, Any]) -> Definition:
    """The definition that a metadata file holds (Iceberg spec, "Table Metadata")."""
    now = ids_of_json(metadata)
    schema = _of_id(metadata["schemas"], "schema-id", now.schema)
    spec = _of_id(metadata["partition-specs"], "spec-id", now.spec)
    order = _of_id(metadata["sort-orders"], "order-id", now.order)
    return Definition(
        from_json(schema),
        partition_fields(spec, metadata["format-version"]),
        sort_fields(order),
        metadata.get("properties", {}),
        metadata["format-version"],
        metadata["last-column-id"],
    )


def _of_id(parts: list[dict[str, Any]], key: str, id_: int) -> dict[str, Any]:
    return next(part for part in parts if part[key] == id_)


def partition_fields(spec: Any, format_version: int) -> tuple[PartitionField, ...]:
    """The fields of a partition spec in Iceberg's JSON form.

    Fields that a table of format v1 no longer has are void ones in its specs, and are left out.
    """
    fields = (
        PartitionField(f["name"], int(f["source-id"]), Transform.read(f["transform"])) for f in spec["fields"]
    )
    return tuple(f for f in fields if format_version > 1 or f.transform != VOID)


def spec_json(definition: Definition) -> dict[str, Any]:
    """A table's first partition spec in Iceberg's JSON form."""
    fields = [
        {"name": f.name, "transform": str(f.transform), "source-id": f.source, "field-id": _FIRST_FIELD + i}
        for i, f in enumerate(definition.partition)
    ]
    return {"spec-id": 0, "fields": fields}


def order_json(definition: Definition) -> dict[str, Any]:
    """A table's first sort order in Iceberg's JSON form."""
    fields = [
        {
            "transform": str(key.transform),
            "source-id": key.source,
            "direction": "desc" if key.descending else "asc",
            "null-order": "nulls-first" if key.nulls_first else "nulls-last",
        }
        for key in definition.sort
        if isinstance(key, SortField)
    ]
    return {"order-id": 1 if fields else 0, "fields": fields}


def sort_fields(order: Any) -> tuple[SortField, ...]:
    """The fields of a sort order in Iceberg's JSON form."""
    return tuple(
        SortField(
            int(f["source-id"]),
            Transform.read(f["transform"]),
            f["direction"] == "desc",
            f["null-order"] == "nulls-first",
        )
        for f in order["fields"]
    )


def metrics_of_all(schema: Schema, properties: Mapping[str, str]) -> dict[str, str]:
    """The property with which files have metrics of all columns of ``schema``; none where Iceberg's default
    does, or where ``properties`` of the table say anything of metrics.
    """
    owner_decides = any(key.startswith(PREFIX) for key in properties)
    wide = sum(1 for _ in schema.walk()) > _BY_DEFAULT  # with what is nested, as Iceberg counts
    return {LIMIT: _ALL} if wide and not owner_decides else {}
