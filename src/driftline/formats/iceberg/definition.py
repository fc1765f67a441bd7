"""What an Iceberg table is defined as, out of a version of its metadata."""

from __future__ import annotations

import json
from typing import Any

from driftline.core.definition import Definition
from driftline.core.layout import PartitionField, SortField, Transform
from driftline.core.schema_json import from_json


def definition(jvm: Any, metadata: Any) -> Definition:
    """The definition that a Java ``TableMetadata`` holds."""
    iceberg = jvm.org.apache.iceberg
    return Definition(
        from_json(json.loads(iceberg.SchemaParser.toJson(metadata.schema()))),
        partition_fields(json.loads(iceberg.PartitionSpecParser.toJson(metadata.spec()))),
        _sort_fields(json.loads(iceberg.SortOrderParser.toJson(metadata.sortOrder()))),
        dict(metadata.properties()),
        int(metadata.formatVersion()),
        int(metadata.lastColumnId()),
    )


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
