"""Table rows in the Arrow form that Spark accepts, without uuid and fixed-length types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa

from driftline.convert.declared import Declared
from driftline.convert.json_values import texts_as
from driftline.convert.kernels import convert
from driftline.convert.types import arrow_type
from driftline.core.schema.types import STRING, UUID, VARIANT, List, Map, Primitive, Schema, Struct, Type

Turn: TypeAlias = Callable[[pa.Array, Primitive], pa.Array]

_UUIDS = ("uuid", "duckdb_uuid")
_SIGNED = {
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
}
_APART = ("fixed", "variant", *_UUIDS, *_SIGNED)  # types that Spark has otherwise than Arrow


def as_spark(batch: pa.RecordBatch, struct: Struct) -> pa.RecordBatch:
    """The rows with uuids as text, fixed as plain bytes, numbers without a sign in types that have one, and
    nothing null within a VARIANT.

    Args:
        struct: the table's columns; others behind them are left out.
    """
    rows = batch.select(range(len(struct.fields)))
    return _each(rows, struct, _to_spark) if _stand_apart(struct) else rows


def from_spark(batch: pa.RecordBatch, struct: Struct) -> pa.RecordBatch:
    """Rows that Spark has read, by position, with the Arrow types of the table's columns."""
    rows = Declared(batch.schema).read(batch.columns)
    return _each(rows, struct, _to_arrow) if _stand_apart(struct) else rows


def _stand_apart(struct: Struct) -> bool:
    return any(isinstance(f.type, Primitive) and f.type.name in _APART for _, f in Schema(struct).walk())


def _to_spark(array: pa.Array, type_: Primitive) -> pa.Array:
    if type_.name in _UUIDS:
        return convert(array, UUID, STRING)
    if type_.name in _SIGNED:
        return array.cast(_SIGNED[type_.name])
    if type_ == VARIANT:
        # Spark takes neither part as nullable, so there may be no null in them even below a null VARIANT.
        parts = [array.field(number).fill_null(b"") for number in range(2)]
        return pa.StructArray.from_arrays(parts, fields=list(array.type), mask=array.is_null())
    return array.cast(pa.binary())


def _to_arrow(array: pa.Array, type_: Primitive) -> pa.Array:
    if type_ == VARIANT:
        return array
    return texts_as(array, UUID, UUID, None) if type_.name in _UUIDS else array.cast(arrow_type(type_))


def _each(batch: pa.RecordBatch, struct: Struct, turn: Turn) -> pa.RecordBatch:
    columns = [_turned(column, f.type, turn) for column, f in zip(batch.columns, struct.fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, [f.name for f in struct.fields])


def _turned(array: pa.Array, type_: Type, turn: Turn) -> pa.Array:
    match type_:
        case Primitive(name) if name in _APART:
            return turn(array, type_)
        case Struct(fields):
            children = [_turned(array.field(i), f.type, turn) for i, f in enumerate(fields)]
            return pa.StructArray.from_arrays(children, [f.name for f in fields], mask=array.is_null())
        case List(element):
            items = _turned(array.values, element, turn)
            return pa.ListArray.from_arrays(_offsets(array), items, mask=array.is_null())
        case Map(key, value):
            keys, items = _turned(array.keys, key, turn), _turned(array.items, value, turn)
            return pa.MapArray.from_arrays(_offsets(array), keys, items, mask=array.is_null())
        case _:
            return array


def _offsets(array: pa.Array) -> pa.Array:
    """Copy the offsets of lists among all items, because Arrow takes no slice together with a mask."""
    return pa.array(array.offsets.to_numpy())
