"""Files that tasks wrote, as Iceberg's data files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from driftline.core.planning.recent import Recent
from driftline.core.schema.types import Primitive, Schema, Type, children
from driftline.formats.iceberg.gateway import java_type
from driftline.write import Key, WrittenFile

_METRICS = "write.metadata.metrics."  # properties that say which metrics there are
_modes: Recent[tuple[Schema, str, dict[str, str]], dict[int, str]] = Recent(16)


def data_file(jvm: Any, spec: Any, file: WrittenFile, keys: Sequence[Key] = (), sort_order: int = 0) -> Any:
    """Java's data file of a written one. ``spec``: the table's partition spec, as Java has it; ``keys``: its
    fields; ``sort_order``: the id of the order in which the file's rows are.
    """
    parser = java_type(jvm, "org.apache.iceberg.ContentFileParser")
    specs = jvm.java.util.HashMap()
    specs.put(spec.specId(), spec)
    node = (
        java_type(jvm, "org.apache.iceberg.util.JsonUtil")
        .mapper()
        .readTree(_json(file, spec.specId(), keys, sort_order))
    )
    return parser.fromJson(node, specs)


def modes_of(jvm: Any, table: Any, schema: Schema, properties: Mapping[str, str]) -> dict[int, str]:
    """Which metrics a Java table of this ``schema`` and these ``properties`` wants of each leaf
    column, by its id: ``none``, ``counts``, ``truncate(n)`` or ``full``.
    """
    order = str(java_type(jvm, "org.apache.iceberg.SortOrderParser").toJson(table.sortOrder()))
    asked = schema, order, {key: value for key, value in properties.items() if key.startswith(_METRICS)}
    if (known := _modes.get(asked)) is not None:  # Java is asked twice for each column
        return known
    config = java_type(jvm, "org.apache.iceberg.MetricsConfig").forTable(table)
    out: dict[int, str] = {}

    def visit(type_: Type, name: str, id_: int) -> None:
        if isinstance(type_, Primitive):
            out[id_] = str(config.columnMode(name).toString())
        for f in children(type_):
            visit(f.type, f"{name}.{f.name}" if name else f.name, f.id)

    visit(schema.struct, "", 0)
    _modes.put(asked, out)
    return out


def _json(file: WrittenFile, spec: int, keys: Sequence[Key], sort_order: int) -> str:
    metrics = file.metrics
    return json.dumps(
        {
            "spec-id": spec,
            "content": "data",
            "file-path": file.path,
            "file-format": "parquet",
            "partition": [_partition_value(k, value) for k, value in zip(keys, file.partition, strict=True)],
            "file-size-in-bytes": file.size,
            "record-count": file.rows,
            "column-sizes": _by_id(metrics.sizes),
            "value-counts": _by_id(metrics.values),
            "null-value-counts": _by_id(metrics.nulls),
            "nan-value-counts": _by_id(metrics.nans),
            "lower-bounds": _by_id({id_: bound.hex().upper() for id_, bound in metrics.lower.items()}),
            "upper-bounds": _by_id({id_: bound.hex().upper() for id_, bound in metrics.upper.items()}),
            "split-offsets": list(file.split_offsets),
            "sort-order-id": sort_order,
        }
    )


def _by_id(values: dict[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}


def _partition_value(key: Key, value: Any) -> Any:
    """A partition value as Iceberg's JSON has it (Iceberg spec, appendix D)."""
    kind = {"identity": key.type.name, "truncate": key.type.name, "day": "date"}.get(key.transform.name)
    if value is None:
        return None
    match kind:
        case "date":
            return _moment(np.int64(value).astype("datetime64[D]"))
        case "timestamp_ntz":
            return _moment(np.int64(value).astype("datetime64[us]"))
        case "timestamp":
            return _moment(np.int64(value).astype("datetime64[us]")) + "+00:00"
        case "decimal":
            return format(value, "f")
        case "binary":
            return value.hex().upper()
        case _:
            return value


def _moment(value: Any) -> str:
    text = str(value)
    return text if text.startswith("-") or text.index("-") == 4 else f"+{text}"
