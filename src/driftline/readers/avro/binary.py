"""Decodes binary Avro records into columns, each schema node for all records at once.

The result equals that of decoding them one by one (`driftline.readers.avro.values`); records that might
differ are left to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from driftline.convert.types import arrow_type
from driftline.core.schema.types import Struct
from driftline.readers.avro.nodes import LeafNode, ListNode, MapNode, Node, RecordNode
from driftline.readers.avro.values import LogicalNode, node_of

# Our own code, because fastavro makes objects, polars and DuckDB read files only, and arrow-rs has no package
# for Python.
__all__ = ["PADDING", "RecordReader", "UnfitError", "reader_of"]

Numbers: TypeAlias = "NDArray[np.int64]"
Mask: TypeAlias = "NDArray[np.bool_]"

# Bytes behind the last record: a number that is cut off is read beyond it
PADDING = 16
_LAST_SHIFT = 63  # of the tenth byte of a number, the last of which has room in it


class Undecodable(Exception):
    """Some records have to be read one by one.

    Args:
        ends: where these end.
    """

    def __init__(self, ends: Numbers) -> None:
        super().__init__()
        self.ends = ends


@dataclass(slots=True)
class Cursors:
    """The positions of values in ``data``, which reading advances.

    Attributes:
        ends: of the record of each.
    """

    data: NDArray[np.uint8]
    positions: Numbers
    ends: Numbers

    def select(self, chosen: NDArray[Any]) -> Cursors:
        """The cursors under a mask, or with these numbers."""
        return Cursors(self.data, self.positions[chosen], self.ends[chosen])

    def check(self, fine: Mask) -> None:
        """Leave the others to be read one by one."""
        if not fine.all():
            raise Undecodable(self.ends[~fine])

    def moved(self, sizes: Numbers | int) -> Numbers:
        """Advance by these sizes; returns the former positions."""
        starts = self.positions
        self.check((sizes >= 0) & (sizes <= self.ends - starts))
        self.positions = starts + sizes
        return starts

    def longs(self) -> Numbers:
        """Read a number of variable length from each."""
        # The first byte of all numbers at once, then the next one of those that go on.
        byte = self.data[self.positions]
        numbers, positions = (byte & 0x7F).astype(np.uint64), self.positions + 1
        unfinished, shift = np.flatnonzero(byte > 0x7F), 7
        while len(unfinished):
            byte = self.data[positions[unfinished]]
            numbers[unfinished] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            positions[unfinished] += 1
            if shift == _LAST_SHIFT and (byte > 1).any():  # more than 64 bits
                raise Undecodable(self.ends[unfinished[byte > 1]])
            unfinished, shift = unfinished[byte > 0x7F], shift + 7
        self.check(positions <= self.ends)
        self.positions = positions
        # Zigzag: the lowest bit is the sign.
        return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)

    def within(self, low: int, high: int) -> Numbers:
        """Read such numbers, which must lie between these two."""
        numbers = self.longs()
        self.check((numbers >= low) & (numbers <= high))
        return numbers

    def windows(self, size: int) -> NDArray[np.uint8]:
        """Read this many bytes from each, a row each."""
        return sliding_window_view(self.data, size)[self.moved(size)]

    def bytes(self, sizes: Numbers) -> pa.Array:
        """Read these many bytes from each, as binary values."""
        starts = self.moved(sizes)
        if not len(starts):
            return pa.array([], pa.binary())
        # What is between two values is a value, too, and left out.
        offsets = np.column_stack((starts, self.positions)).astype(np.int32).ravel()
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        parts = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        return parts.take(pa.array(np.arange(0, len(offsets), 2)))


Read: TypeAlias = Callable[[Cursors], pa.Array]  # reads one column
# Reads a column of each type that the values may have
ReadAll: TypeAlias = Callable[[Cursors], list[pa.Array]]

_INT = (-(2**31), 2**31 - 1)
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
    """Read strings. Raises Undecodable with the records that are not UTF-8."""
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


PLAIN: dict[str, Read] = {
    "null": lambda cursors: pa.nulls(len(cursors.positions)),
    "boolean": _boolean,
    "int": lambda cursors: pa.array(cursors.within(*_INT).astype(np.int32)),
    "long": lambda cursors: pa.array(cursors.longs()),
    "float": _float,
    "double": _double,
    "string": text,
    "bytes": _binary,
}


def leaf(schema: Mapping[str, Any], node: LeafNode | LogicalNode) -> ReadAll:
    """The reader for values of a schema, which are the node's."""
    kind = schema["type"]
    if kind == "enum":
        plain = _enum(schema["symbols"])
    else:
        plain = _fixed(schema["size"]) if kind == "fixed" else PLAIN[kind]
    if isinstance(node, LogicalNode):
        is_counted = pa.types.is_temporal(node.type)
        return (lambda cursors: node.of_counts(plain(cursors))) if is_counted else _by_value(plain, node)
    if node.base.name == "decimal":
        return _alone(_decimal(plain, arrow_type(node.base)))
    return _alone(plain) if node.turn is None else _by_value(plain, node)


def _alone(read: Read) -> ReadAll:
    return lambda cursors: [read(cursors)]


def _enum(symbols: Sequence[str]) -> Read:
    texts = pa.array(symbols, pa.string())
    return lambda cursors: texts.take(pa.array(cursors.within(0, len(symbols) - 1)))


def _fixed(size: int) -> Read:
    return lambda cursors: cursors.bytes(np.full(len(cursors.positions), size, np.int64))


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
        # Arrow's decimals are of 16 bytes, the lowest first; shorter ones are filled up by their sign.
        signs = np.where(data[first] > 0x7F, np.uint8(0xFF), np.uint8(0))
        numbers = np.where(places >= first, data[np.maximum(places, first)], signs)
        buffer = pa.py_buffer(np.ascontiguousarray(numbers))
        widest = pa.Array.from_buffers(pa.decimal128(38, type_.scale), len(values), [None, buffer])
        try:
            return widest.cast(type_)
        except pa.ArrowInvalid as error:
            raise Undecodable(cursors.ends) from error

    return column


def _by_value(read: Read, node: Node) -> ReadAll:
    def columns(cursors: Cursors) -> list[pa.Array]:
        values = read(cursors).to_pylist()
        try:
            return node.arrays(values)
        except Exception as error:  # whatever hostile bytes lead a reader into
            raise Undecodable(cursors.ends) from error

    return columns


_LONGEST = 1_000  # items of a list: each takes a turn over all records
# Items for which a turn is never dear; records for so few of which it is, else
_SHORT, _FEW = 64, 32
_NAMED = ("record", "error", "enum", "fixed")
_TURNS = 8  # before all that is left is left to be read one by one


class UnfitError(Exception):
    """Values of the schema can only be read one by one."""


class ValueReader(Protocol):
    """Reads the values at one place of the schema into the arrays of its `Node`."""

    def read(self, cursors: Cursors) -> list[pa.Array]:
        """Read one value at each cursor, and advance the cursors behind it.

        Returns arrays of one length, in the order of the types of the `Node`. Raises Undecodable.
        """
        ...


@dataclass(frozen=True, slots=True)
class RecordReader:
    """Reads records; ``readers``: of their fields."""

    struct: Struct
    readers: Sequence[ValueReader]

    def columns(
        self, data: NDArray[np.uint8], starts: Numbers, ends: Numbers
    ) -> tuple[Numbers, list[pa.Array]]:
        """Read records that stand in ``data`` one after the other, with `PADDING` after the last.

        Returns the numbers of those that were read, and an array for each field of the struct.
        """
        numbers = np.arange(len(ends))
        for _ in range(_TURNS):
            cursors = Cursors(data, starts[numbers], ends[numbers])
            try:
                arrays = self._fields(cursors)
                # A value that its schema does not read to the last byte is no record.
                cursors.check(cursors.positions == cursors.ends)
            except Undecodable as error:
                # Records are named by their ends, which rise: those that failed go, and the others are read
                # again.
                numbers = np.delete(numbers, np.searchsorted(cursors.ends, error.ends))
            else:
                return numbers, arrays
        # Too many turns: all are left to be read one by one, and the empty arrays only have the types.
        return self.columns(data, starts[:0], ends[:0])

    def read(self, cursors: Cursors) -> list[pa.Array]:
        """Read the fields in the schema's order into one array of structs."""
        arrays = self._fields(cursors)
        if not arrays:
            return [pa.array([{}] * len(cursors.positions), pa.struct([]))]
        fields = [pa.field(f.name, a.type) for f, a in zip(self.struct.fields, arrays, strict=True)]
        return [pa.StructArray.from_arrays(arrays, fields=fields)]

    def _fields(self, cursors: Cursors) -> list[pa.Array]:
        return [array for reader in self.readers for array in reader.read(cursors)]


@dataclass(frozen=True, slots=True)
class _LeafReader:
    """Reads values with nothing inside."""

    read: ReadAll


@dataclass(frozen=True, slots=True)
class _ListReader:
    items: ValueReader

    def read(self, cursors: Cursors) -> list[pa.Array]:
        """Read lists: an array for each type of the items, all with the same offsets."""
        offsets, arrays = _items(cursors, self.items.read)
        return [pa.ListArray.from_arrays(offsets, array) for array in arrays]


@dataclass(frozen=True, slots=True)
class _MapReader:
    items: ValueReader

    def read(self, cursors: Cursors) -> list[pa.Array]:
        """Read maps. Raises Undecodable if a map has a key twice: its last value counts."""
        offsets, (keys, *arrays) = _items(cursors, self._entry)
        lengths = np.diff(offsets.to_numpy())
        owners = np.repeat(np.arange(len(lengths)), lengths)
        distinct = keys.dictionary_encode()
        pairs = owners * max(1, len(distinct.dictionary)) + distinct.indices.to_numpy()
        # Of a key that occurs twice, the last value counts
        if len(np.unique(pairs)) < len(keys):
            raise Undecodable(cursors.ends)
        return [pa.MapArray.from_arrays(offsets, keys, array) for array in arrays]

    def _entry(self, cursors: Cursors) -> list[pa.Array]:
        return [text(cursors), *self.items.read(cursors)]


@dataclass(frozen=True, slots=True)
class _UnionReader:
    """Reads values of a union.

    Attributes:
        branches: None is null.
    """

    branches: Sequence[ValueReader | None]

    def read(self, cursors: Cursors) -> list[pa.Array]:
        """Read the branch numbers, then each branch at the cursors that chose it."""
        taken = cursors.within(0, len(self.branches) - 1)
        arrays = []
        for number, branch in enumerate(self.branches):
            if branch is not None:
                chosen = np.flatnonzero(taken == number)
                subset = cursors.select(chosen)
                values = branch.read(subset)
                cursors.positions[chosen] = subset.positions
                arrays += [_spread(array, chosen, len(taken)) for array in values]
        return arrays or [pa.nulls(len(taken))]


def _spread(array: pa.Array, places: Numbers, count: int) -> pa.Array:
    """The values at their places among this many; the others are null."""
    if len(places) == count:
        return array
    numbers, empty = np.zeros(count, np.int64), np.ones(count, np.bool_)
    numbers[places], empty[places] = np.arange(len(places)), False
    return array.take(pa.array(numbers, mask=empty))


def _items(cursors: Cursors, read: Callable[[Cursors], list[pa.Array]]) -> tuple[pa.Array, list[pa.Array]]:
    """The items of lists: the offset of each list among them, and their arrays."""
    count = len(cursors.positions)
    nobody = np.zeros(0, np.int64)
    owners, parts = [nobody], [read(cursors.select(nobody))]  # an empty array has the types at least
    lengths, open_ = np.zeros(count, np.int64), np.arange(count)
    while len(open_):
        block = cursors.select(open_)
        sizes = block.longs()
        # How many follow, which is of use only for passing over
        with_bytes = np.flatnonzero(sizes < 0)
        if len(with_bytes):
            subset = block.select(with_bytes)
            subset.longs()
            block.positions[with_bytes] = subset.positions
            sizes = np.abs(sizes)
        block.check((sizes >= 0) & (sizes <= _LONGEST))
        lengths[open_] += sizes
        block.check(lengths[open_] <= _LONGEST)
        for number in range(int(sizes.max())):
            chosen = np.flatnonzero(sizes > number)
            subset = block.select(chosen)
            # Each item takes a turn over all lists that have so many: a single long list would take a turn
            # for itself.
            if number >= _SHORT and len(chosen) < _FEW:
                raise Undecodable(subset.ends)
            parts.append(read(subset))
            owners.append(open_[chosen])
            block.positions[chosen] = subset.positions
        cursors.positions[open_] = block.positions
        open_ = open_[sizes > 0]
    # Items were read turn by turn; stable, so that those of one list keep their order.
    order = pa.array(np.argsort(np.concatenate(owners), kind="stable"))
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))).astype(np.int32)
    return pa.array(offsets), [
        pa.concat_arrays(same_array).take(order) for same_array in zip(*parts, strict=True)
    ]


def reader_of(schema: Any, named: Mapping[str, Any]) -> RecordReader:
    """The reader for records of a schema in the form that `driftline.readers.avro.values.node_of` takes.

    Raises UnfitError.
    """
    reader = _BinarySchema(named).reader(schema)
    if not isinstance(reader, RecordReader) or not reader.struct.fields:
        raise UnfitError
    return reader


class _BinarySchema:
    """Walks a schema; names that it has met stand for their types."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = dict(named)

    def reader(self, schema: Any) -> ValueReader:
        """The reader for a schema. Raises UnfitError if its values can only be read one by one."""
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in PLAIN:
                return _LeafReader(_alone(PLAIN[schema]))
            schema = self._named[schema]
        kind = schema["type"]
        if kind in _NAMED:
            self._named[schema["name"]] = schema
        if kind == "array":
            return _ListReader(self.reader(schema["items"]))
        if kind == "map":
            return _MapReader(self.reader(schema["values"]))
        if not (kind in _NAMED or (isinstance(kind, str) and kind in PLAIN)):
            return self.reader(kind)
        match self._node(schema):
            case LeafNode() | LogicalNode() as node:
                return _LeafReader(leaf(schema, node))
            case RecordNode(struct=struct):
                return RecordReader(struct, [self.reader(f["type"]) for f in schema["fields"]])
        raise UnfitError

    def _node(self, schema: Any) -> Node:
        return node_of(schema, self._named)

    def _union(self, branches: Sequence[Any]) -> ValueReader:
        nodes = [self._node(branch) for branch in branches if branch != "null"]
        kinds = list(chain.from_iterable(map(_kinds, nodes)))
        if len(set(kinds)) < len(kinds):
            # A value may be in another branch's column
            raise UnfitError
        return _UnionReader([None if branch == "null" else self.reader(branch) for branch in branches])


def _kinds(node: Node) -> Sequence[Any]:
    """The Python types of the values of a branch."""
    match node:
        case LeafNode(kinds=kinds) | LogicalNode(kinds=kinds):
            return kinds
        case RecordNode(name=name):
            return (name,)
        case ListNode():
            return (list,)
        case MapNode():
            return (dict,)
    raise UnfitError
