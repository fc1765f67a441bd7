"""Rows of a table as fingerprints: two rows have the same one only if all their columns hold the same.

A column of a type that is not compared here counts as null or not null. As records are expected to hold null
there, a row with a value in it has the fingerprint of no record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.verify.table_shape import TableColumn, TableStruct

WIDTH = 16  # bytes of a fingerprint
_SLICE = 2**26  # bytes of rows that are joined at once: offsets have 31 bits

PRESENCE = pa.null()  # the type of a column that counts as null or not null
TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_PRESENT = {"float", "decimal", "binary", "fixed"}  # types that Spark hands over in Arrow all the same

_COPIED = ("boolean", "long", "double", "string")  # a later one may hold a copy of an earlier one
_SHORT = r"^-?(?:0|[1-9][0-9]{0,13})$|^-?(?:0|[1-9][0-9]{0,5})\.[0-9]{1,7}(?:e[+-]?[0-9]{1,2})?$|^-?(?:0|[1-9][0-9]{0,6})\.[0-9]{1,8}$|^-?[1-9]e[+-]?[0-9]{1,2}$"  # texts that no two numbers of one double have
_EXACT = 2**53
MOST_LEVELS = 60  # of lists, structs and maps, beyond which Arrow hands nothing over

Copies: TypeAlias = "tuple[dict[str, int], ...]"
Blocks: TypeAlias = "list[np.ndarray[Any, Any]]"


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """The type that a column is compared by: a list by its element, a struct by its fields. ``levels``: how
    deep the column's own type is.
    """

    type: pa.DataType
    children: tuple[ColumnShape, ...] = ()
    copies: Copies = ()
    levels: int = 1

    @classmethod
    def of_all(cls, record: TableStruct) -> tuple[ColumnShape | None, ...]:
        """The shapes of a record's columns; None for a type that Spark may not hand over in Arrow."""
        shapes = (cls.of(column, column.dim) for _, column in record.columns.values())
        return tuple(None if shape is None or shape.levels > MOST_LEVELS else shape for shape in shapes)

    @classmethod
    def of(cls, column: TableColumn, dim: int) -> ColumnShape | None:
        """The shape of a column inside ``dim`` lists; None if Spark may not hand its type over in Arrow."""
        if dim:
            element = cls.of(column, dim - 1)
            if element is None:
                return None
            return cls(pa.list_(element.type), (element,), levels=element.levels + 1)
        if column.record is not None:
            if column.record.rest is not None:
                return None
            children = cls.of_all(column.record)
            names = [str(i) for i in range(len(children))]
            if any(child is None for child in children):
                return None
            shapes = tuple(child for child in children if child is not None)
            type_ = pa.struct([(n, c.type) for n, c in zip(names, shapes, strict=True)])
            levels = max((child.levels for child in shapes), default=0) + 1
            return cls(type_, shapes, copies_in(column.record), levels)
        if column.value is not None:
            value = cls.of(column.value, column.value.dim)
            return None if value is None else cls(PRESENCE, levels=value.levels + 2)
        name = column.type.name if column.type is not None else ""
        return cls(TYPES.get(name, PRESENCE)) if name in TYPES or name in _PRESENT else None


def copies_in(record: TableStruct) -> Copies:
    """The positions of a key's columns, by type, if one may hold a copy of another one's value."""
    by_key: dict[str, dict[str, int]] = {}
    for place, (key, column) in enumerate(record.columns.values()):
        if not column.dim and column.type is not None and column.type.name in _COPIED:
            by_key.setdefault(key, {})[column.type.name] = place
    return tuple(places for places in by_key.values() if len(places) > 1)


def fingerprints(
    shapes: Sequence[ColumnShape], columns: Sequence[pa.Array], rows: int, copies: Copies = ()
) -> bytes:
    """The fingerprints of the rows, in order. ``copies``: those in their columns."""
    columns = _without(copies, columns)
    size = sum(column.get_total_buffer_size() for column in columns)  # nbytes reads offsets: see _add
    step = max(1, rows * _SLICE // max(size, 1))
    out = []
    for start in range(0, rows, step):
        slices = [column.slice(start, step) for column in columns]
        encoded = _encoded(shapes, slices, min(step, rows - start))
        out += [blake2b(row, digest_size=WIDTH).digest() for row in encoded.to_pylist()]
    return b"".join(out)


def _encoded(shapes: Sequence[ColumnShape], columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Each row as bytes that no other row has: a block of fixed size, with the lengths of the texts that
    follow it.
    """
    blocks: Blocks = [np.zeros((rows, 1), np.uint8)]
    texts: list[pa.Array] = []
    for shape, column in zip(shapes, columns, strict=True):
        _add(shape, column, blocks, texts)
    block = np.concatenate(blocks, axis=1)
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(block.shape[1]), rows, [None, pa.py_buffer(block)]
    ).cast(pa.binary())
    return pc.binary_join_element_wise(fixed, *texts, b"") if texts else fixed


def _add(shape: ColumnShape, column: pa.Array, blocks: Blocks, texts: list[pa.Array]) -> None:
    type_ = shape.type
    if not len(column):  # Java gives empty lists no offsets, which Arrow's kernels read all the same
        column = pa.array([], column.type)
    if pa.types.is_list(type_):
        lengths = _lengths(pc.list_value_length(column), blocks)
        elements = column.flatten()
        encoded = _encoded(shape.children, [elements], len(elements))
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        texts.append(pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), encoded), b""))
    elif pa.types.is_string(type_):
        binary = column.cast(pa.binary())
        _lengths(pc.binary_length(binary), blocks)
        texts.append(binary.fill_null(b""))
    else:
        blocks.append(_bytes(pc.is_valid(column).cast(pa.uint8())))
        if pa.types.is_struct(type_):
            fields = _without(shape.copies, column.flatten())
            for child, field in zip(shape.children, fields, strict=True):
                _add(child, field, blocks, texts)
        elif pa.types.is_boolean(type_):
            blocks.append(_bytes(column.fill_null(False).cast(pa.uint8())))
        elif type_ != PRESENCE:
            blocks.append(_bytes(pc.fill_null(_number(column.cast(type_)), 0)))


def _without(copies: Copies, columns: Sequence[pa.Array]) -> list[pa.Array]:
    """The columns without lawful copies: a boolean as 1 or 0, a number or boolean as text, a whole number as
    a double.
    """
    out = list(columns)
    for places in copies:
        names = [name for name in _COPIED if name in places]
        for i, name in enumerate(names):
            for copy_type in names[i + 1 :]:
                copied = _is_copy(columns[places[name]], name, out[places[copy_type]], copy_type)
                out[places[copy_type]] = pc.if_else(copied, None, out[places[copy_type]])
    return out


def _is_copy(values: pa.Array, name: str, column: pa.Array, copy_type: str) -> pa.Array:
    """Flag the values of a column of the type ``name`` that the column of the ``copy_type`` holds too."""
    if name == "double":
        text = pc.if_else(pc.match_substring_regex(column, _SHORT), column, None)
        read, doubles = text.cast(pa.float64()), pc.fill_null(values, 0.0)
        same = pc.fill_null(read, np.nan).to_numpy().view(np.int64) == doubles.to_numpy().view(np.int64)
        return pc.and_(pc.and_(pa.array(same), values.is_valid()), read.is_valid())
    if copy_type == "double":
        integers = pc.if_else(pc.less_equal(pc.abs_checked(_far(values)), _EXACT), _far(values), None)
        return pc.fill_null(pc.equal(integers.cast(pa.float64()), column), False)
    same_type = values.cast(column.type)
    return pc.fill_null(pc.equal(same_type, column), False)


def _far(values: pa.Array) -> pa.Array:
    """Whole numbers of 64 bits; null for the least of them, which has no positive counterpart."""
    wide = values.cast(pa.int64())
    return pc.if_else(pc.equal(wide, -(2**63)), None, wide)


def _number(column: pa.Array) -> pa.Array:
    """The column's values as numbers of their size: instants count their units."""
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _lengths(lengths: pa.Array, blocks: Blocks) -> np.ndarray[Any, Any]:
    """Add the lengths to the block, -1 for null; returns them, 0 for null."""
    signed = pc.fill_null(lengths, -1).to_numpy(zero_copy_only=False).astype(np.int32)
    blocks.append(signed.reshape(-1, 1).view(np.uint8))
    lengths_of_values: np.ndarray[Any, Any] = np.maximum(signed, 0)
    return lengths_of_values


def _bytes(numbers: pa.Array) -> np.ndarray[Any, Any]:
    values = np.ascontiguousarray(numbers.to_numpy(zero_copy_only=False))
    return values.reshape(-1, 1).view(np.uint8)
