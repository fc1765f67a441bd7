"""Plain values in binary Avro as columns, equal to those that `driftline.convert.avro` reads one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from fastavro.read import LOGICAL_READERS

from driftline.convert.avro_cursors import Cursors, Undecodable
from driftline.convert.nodes import LeafNode
from driftline.convert.types import arrow_type

Read: TypeAlias = Callable[[Cursors], pa.Array]  # of one column

_INT = (-(2**31), 2**31 - 1)
_DAY, _MICRO = (-719_162, 2_932_896), (-62_135_596_800_000_000, 253_402_300_799_999_999)  # as Python has them
_DECIMAL = 16  # bytes


def _boolean(cursors: Cursors) -> pa.Array:
    byte = cursors.windows(1)[:, 0]
    cursors.check(byte <= 1)
    return pa.array(byte == 1)


def _float(cursors: Cursors) -> pa.Array:
    return pa.array(cursors.windows(4).view("<f4")[:, 0])


def _double(cursors: Cursors) -> pa.Array:
    return pa.array(cursors.windows(8).view("<f8")[:, 0])


def _binary(cursors: Cursors) -> pa.Array:
    return cursors.bytes(cursors.longs())


def text(cursors: Cursors) -> pa.Array:
    array = _binary(cursors)
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        cursors.check(np.array([_is_text(value) for value in array.to_pylist()], np.bool_))
        raise


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _millis(cursors: Cursors) -> pa.Array:
    return pa.array(1_000 * cursors.within(_MICRO[0] // 1_000, _MICRO[1] // 1_000))


PLAIN: dict[str, Read] = {
    "null": lambda cursors: pa.nulls(len(cursors.at)),
    "boolean": _boolean,
    "int": lambda cursors: pa.array(cursors.within(*_INT).astype(np.int32)),
    "long": lambda cursors: pa.array(cursors.longs()),
    "float": _float,
    "double": _double,
    "string": text,
    "bytes": _binary,
}
_LOGICAL: dict[str, Read] = {
    "int-date": lambda cursors: pa.array(cursors.within(*_DAY).astype(np.int32)),
    "long-timestamp-millis": _millis,
    "long-timestamp-micros": lambda cursors: pa.array(cursors.within(*_MICRO)),
    "long-local-timestamp-millis": _millis,
    "long-local-timestamp-micros": lambda cursors: pa.array(cursors.within(*_MICRO)),
}


def leaf(schema: Mapping[str, Any], node: LeafNode) -> Read:
    """The reader for values of a schema, which are the node's."""
    kind, name = schema["type"], f"{schema['type']}-{schema.get('logicalType')}"
    if kind == "enum":
        plain = _enum(schema["symbols"])
    else:
        plain = _fixed(schema["size"]) if kind == "fixed" else PLAIN[kind]
    if name in _LOGICAL:
        return _typed(_LOGICAL[name], arrow_type(node.base))
    if node.base.name == "decimal" and name in LOGICAL_READERS:
        return _decimal(plain, arrow_type(node.base))
    if "logicalType" in schema:
        return _by_value(plain, LOGICAL_READERS.get(name), schema, node)
    return plain


def _enum(symbols: Sequence[str]) -> Read:
    texts = pa.array(symbols, pa.string())
    return lambda cursors: texts.take(pa.array(cursors.within(0, len(symbols) - 1)))


def _fixed(size: int) -> Read:
    return lambda cursors: cursors.bytes(np.full(len(cursors.at), size, np.int64))


def _typed(read: Read, type_: pa.DataType) -> Read:
    return lambda cursors: read(cursors).view(type_)


def _decimal(read: Read, type_: pa.DataType) -> Read:
    """Decimals of big-endian bytes."""

    def column(cursors: Cursors) -> pa.Array:
        values = read(cursors)
        offsets = np.frombuffer(values.buffers()[1], np.int32)[: len(values) + 1].astype(np.int64)
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
        sizes = np.diff(offsets)
        cursors.check((sizes > 0) & (sizes <= _DECIMAL))
        if not len(values):
            return pa.array([], type_)
        places = offsets[1:, None] - 1 - np.arange(_DECIMAL)
        first = offsets[:-1, None]
        signs = np.where(data[first] > 0x7F, np.uint8(0xFF), np.uint8(0))
        numbers = np.where(places >= first, data[np.maximum(places, first)], signs)
        buffer = pa.py_buffer(np.ascontiguousarray(numbers))
        widest = pa.Array.from_buffers(pa.decimal128(38, type_.scale), len(values), [None, buffer])
        try:
            return widest.cast(type_)
        except pa.ArrowInvalid as error:
            raise Undecodable(cursors.ends) from error

    return column


def _by_value(read: Read, turn: Callable[..., Any] | None, schema: Any, node: LeafNode) -> Read:
    def column(cursors: Cursors) -> pa.Array:
        values = read(cursors).to_pylist()
        try:
            if turn is not None:
                values = [turn(value, schema, None) for value in values]
            (array,) = node.arrays(values)
        except Exception as error:  # whatever hostile bytes lead a reader into
            raise Undecodable(cursors.ends) from error
        return array

    return column
