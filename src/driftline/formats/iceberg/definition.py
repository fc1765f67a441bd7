"""What an Iceberg table is defined as, out of a version of its metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from driftline.core.definition import Definition
from driftline.core.layout import PartitionField, SortField, Transform
from driftline.core.schema_json import from_json


def definition(jvm: Any, metadata: Any) -> Definition:
    """The definition that a Java ``TableMetadata`` holds."""
    return of_json(json.loads(jvm.org.apache.iceberg.TableMetadataParser.toJson(metadata)))


def of_json(metadata: Mapping[str, Any]) -> Definition:
    """The definition that a metadata file holds (Iceberg spec, "Table Metadata")."""
    schema = _of_id(metadata["schemas"], "schema-id", metadata["current-schema-id"])
    spec = _of_id(metadata["partition-specs"], "spec-id", metadata["default-spec-id"])
    order = _of_id(metadata["sort-orders"], "order-id", metadata["default-sort-order-id"])
    return Definition(
        from_json(schema),
        partition_fields(spec),
        _sort_fields(order),
        metadata.get("properties", {}),
        metadata["format-version"],
        metadata["last-column-id"],
    )


def _of_id(found: list[dict[str, Any]], key: str, wanted: int) -> dict[str, Any]:
    return next(one for one in found if one[key] == wanted)


def partition_fields(spec: Any) -> tuple[PartitionField, ...]:
    """The fields of a partition spec in Iceberg's JSON form."""
    return tuple(
        PartitionField(f["name"], int(f["source-id"]), Transform.read(f["transform"])) for f in spec["fields"]
    )


def _sort_fields(order: Any) -> tuple[SortField, ...]:
    return tuple(
        SortField(
            int(f["source-id"]),
            Transform.read(f["transform"]),
            f["direction"] == "desc",
            f["null-order"] == "nulls-first",
        )
        for f in order["fields"]
    )
