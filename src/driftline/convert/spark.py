"""Rows of a table as Spark takes them from Arrow: it has no uuid, and no bytes of a fixed length."""

from __future__ import annotations

import pyarrow as pa

from driftline.convert.kernels import convert
from driftline.core.types import STRING, UUID, List, Map, Primitive, Schema, Struct, Type

_APART = ("uuid", "fixed")  # types that Spark has otherwise than Arrow


def as_spark(batch: pa.RecordBatch, struct: Struct) -> pa.RecordBatch:
    """The rows with a uuid as its text, and fixed as plain bytes. ``struct``: the table's columns."""
    if not any(isinstance(f.type, Primitive) and f.type.name in _APART for _, f in Schema(struct).walk()):
        return batch
    columns = [_turned(column, f.type) for column, f in zip(batch.columns, struct.fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, [f.name for f in struct.fields])


def _turned(array: pa.Array, type_: Type) -> pa.Array:
    match type_:
        case Primitive("uuid"):
            return convert(array, UUID, STRING)
        case Primitive("fixed"):
            return array.cast(pa.binary())
        case Struct(fields):
            inner = [_turned(array.field(i), f.type) for i, f in enumerate(fields)]
            return pa.StructArray.from_arrays(inner, [f.name for f in fields], mask=array.is_null())
        case List(element):
            items = _turned(array.values, element)
            return pa.ListArray.from_arrays(_offsets(array), items, mask=array.is_null())
        case Map(key, value):
            keys, items = _turned(array.keys, key), _turned(array.items, value)
            return pa.MapArray.from_arrays(_offsets(array), keys, items, mask=array.is_null())
        case _:
            return array


def _offsets(array: pa.Array) -> pa.Array:
    """Where the lists begin among all items; a copy, as Arrow takes no slice beside a mask."""
    return pa.array(array.offsets.to_numpy())
