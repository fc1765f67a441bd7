"""Values of Avro as columns of the types that tables have (rules 2.3); the
branches of a union are types of one key.

Values are as fastavro reads them with `return_record_name`: in a union a record comes with its name.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from driftline.convert.declared import VOID
from driftline.convert.kernels import decimal_text, without_zeros
from driftline.convert.types import arrow_type
from driftline.core.schema.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UUID,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Struct,
    Type,
    decimal,
    dotted,
)
from driftline.errors import UsageError

Values = Sequence[Any]


class Node(Protocol):
    """A place of the schema. ``types``: those of its values."""

    @property
    def types(self) -> Sequence[Type]: ...

    def arrays(self, values: Values) -> list[pa.Array]:
        """The values in an array for each of the types."""
        ...

    def takes(self, value: Any) -> bool:
        """Whether a value of a union is of this branch."""
        ...


def columns_of(schema: Mapping[str, Any]) -> RecordNode:
    """How a file's records become columns; ``schema``: as fastavro has parsed it.

    Raises UsageError for a recursive type, with its path, and for a file whose values are no records.
    """
    node = _Schema().node(schema, ())
    if not isinstance(node, RecordNode):
        raise UsageError("its values are no records", hint="an Avro file for a table holds records")
    return node


@dataclass(frozen=True, slots=True)
class LeafNode:
    """Plain values. ``kinds``: their Python types; ``turn``: what Arrow takes of one."""

    base: Primitive
    kinds: tuple[type, ...]
    turn: Callable[[Any], Any] | None = None

    @property
    def types(self) -> Sequence[Type]:
        return (self.base,)

    def arrays(self, values: Values) -> list[pa.Array]:
        if self.base == VOID:
            return [pa.nulls(len(values))]
        if self.turn is not None:
            values = [None if value is None else self.turn(value) for value in values]
        return [pa.array(values, arrow_type(self.base))]

    def takes(self, value: Any) -> bool:
        return type(value) in self.kinds


@dataclass(frozen=True, slots=True)
class RecordNode:
    """Records of this ``name``, alone or in a union."""

    name: str
    fields: tuple[tuple[str, Node], ...]

    @property
    def struct(self) -> Struct:
        """The types of its fields, by key."""
        return Struct(tuple(Field(key, type_) for key, node in self.fields for type_ in node.types))

    @property
    def types(self) -> Sequence[Type]:
        return (self.struct,)

    def arrays(self, values: Values) -> list[pa.Array]:
        records = [value[1] if type(value) is tuple else value for value in values]
        mask = np.array([record is None for record in records], np.bool_)
        arrays = self.columns([{} if record is None else record for record in records])
        named = [pa.field(f.name, a.type) for f, a in zip(self.struct.fields, arrays, strict=True)]
        if not arrays:
            return [pa.array([None if record is None else {} for record in records], pa.struct([]))]
        return [pa.StructArray.from_arrays(arrays, fields=named, mask=pa.array(mask))]

    def columns(self, records: Sequence[Mapping[str, Any]]) -> list[pa.Array]:
        """The fields of records, in an array for each field of the struct."""
        return [
            array
            for key, node in self.fields
            for array in node.arrays([record.get(key) for record in records])
        ]

    def takes(self, value: Any) -> bool:
        return type(value) is tuple and value[0] == self.name


@dataclass(frozen=True, slots=True)
class ListNode:
    """Lists of the ``items``."""

    items: Node

    @property
    def types(self) -> Sequence[Type]:
        return [List(type_) for type_ in self.items.types]

    def arrays(self, values: Values) -> list[pa.Array]:
        offsets, mask = _offsets(values)
        items = self.items.arrays([item for value in values if value is not None for item in value])
        return [pa.ListArray.from_arrays(offsets, array, mask=mask) for array in items]

    def takes(self, value: Any) -> bool:
        return type(value) is list


@dataclass(frozen=True, slots=True)
class MapNode:
    """Maps of text to the ``items``."""

    items: Node

    @property
    def types(self) -> Sequence[Type]:
        return [Map(STRING, type_) for type_ in self.items.types]

    def arrays(self, values: Values) -> list[pa.Array]:
        offsets, mask = _offsets(values)
        keys = pa.array([key for value in values if value is not None for key in value], pa.string())
        items = self.items.arrays([v for value in values if value is not None for v in value.values()])
        return [pa.MapArray.from_arrays(offsets, keys, array, mask=mask) for array in items]

    def takes(self, value: Any) -> bool:
        return type(value) is dict


@dataclass(frozen=True, slots=True)
class UnionNode:
    """Values of one of the ``branches``."""

    branches: tuple[Node, ...]

    @property
    def types(self) -> Sequence[Type]:
        return [type_ for branch in self.branches for type_ in branch.types]

    def arrays(self, values: Values) -> list[pa.Array]:
        taken = [next((i for i, b in enumerate(self.branches) if b.takes(value)), None) for value in values]
        return [
            array
            for i, branch in enumerate(self.branches)
            for array in branch.arrays(
                [value if i == place else None for value, place in zip(values, taken, strict=True)]
            )
        ]

    def takes(self, value: Any) -> bool:
        return any(branch.takes(value) for branch in self.branches)


def _offsets(values: Values) -> tuple[pa.Array, pa.Array]:
    """Where the lists, or maps, begin among all items, and which are null."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    return pa.array(offsets), pa.array([value is None for value in values], pa.bool_())


_PLAIN: dict[str, LeafNode] = {
    "null": LeafNode(VOID, ()),
    "boolean": LeafNode(BOOLEAN, (bool,)),
    "int": LeafNode(INT, (int,)),
    "long": LeafNode(LONG, (int,)),
    "float": LeafNode(FLOAT, (float,)),
    "double": LeafNode(DOUBLE, (float,)),
    "string": LeafNode(STRING, (str,)),
    "enum": LeafNode(STRING, (str,)),
    "bytes": LeafNode(BINARY, (bytes,)),
    "fixed": LeafNode(BINARY, (bytes,)),
}


def _time_text(value: time) -> str:
    return str(without_zeros(pa.array([value.isoformat()]))[0].as_py())


_LOGICAL: dict[str, LeafNode] = {
    "date": LeafNode(DATE, (date,)),
    "time-millis": LeafNode(STRING, (time,), _time_text),
    "time-micros": LeafNode(STRING, (time,), _time_text),
    "timestamp-millis": LeafNode(TIMESTAMP, (datetime,)),
    "timestamp-micros": LeafNode(TIMESTAMP, (datetime,)),
    "local-timestamp-millis": LeafNode(TIMESTAMP_NTZ, (datetime,)),
    "local-timestamp-micros": LeafNode(TIMESTAMP_NTZ, (datetime,)),
    "uuid": LeafNode(UUID, (uuid.UUID,), lambda value: value.bytes),
}
_WIDER: dict[Type, Type] = {INT: LONG, FLOAT: DOUBLE}
_DIGITS = 38  # of the largest decimal


class _Schema:
    """Goes down a schema; names that it has met stand for their types."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}
        self._open: set[str] = set()

    def node(self, schema: Any, path: Path) -> Node:
        """What reads the values of a schema."""
        if isinstance(schema, list):
            return self._union(schema, path)
        if isinstance(schema, str):
            if schema in _PLAIN:
                return _PLAIN[schema]
            schema = self._named[schema]
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, path)
        if kind in ("enum", "fixed"):
            self._named[schema["name"]] = schema
        logical = schema.get("logicalType")
        if logical == "decimal":
            return _decimal(schema)
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        match kind:
            case "array":
                return ListNode(self.node(schema["items"], (*path, "element")))
            case "map":
                return MapNode(self.node(schema["values"], (*path, "value")))
            case str() if kind in _PLAIN:
                return _PLAIN[kind]
            case _:
                return self.node(kind, path)

    def _record(self, schema: Mapping[str, Any], path: Path) -> RecordNode:
        name = schema["name"]
        if name in self._open:
            raise UsageError(
                f"{dotted(path)}: the type {name} holds itself, at any depth, and a column's type cannot",
                hint="write the file without the field, or with a limit to its depth",
            )
        self._named[name] = schema
        self._open.add(name)
        fields = tuple((f["name"], self.node(f["type"], (*path, f["name"]))) for f in schema["fields"])
        self._open.remove(name)
        return RecordNode(name, fields)

    def _union(self, branches: Sequence[Any], path: Path) -> Node:
        nodes = [self.node(branch, path) for branch in branches if branch != "null"]
        # Python does not tell the narrow from the wide.
        nodes = [node for node in nodes if _WIDER.get(node.types[0]) not in [n.types[0] for n in nodes]]
        return nodes[0] if len(nodes) == 1 else UnionNode(tuple(nodes)) if nodes else _PLAIN["null"]


def _decimal(schema: Mapping[str, Any]) -> LeafNode:
    precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
    if precision > _DIGITS:
        return LeafNode(STRING, (Decimal,), decimal_text)
    return LeafNode(decimal(precision, scale), (Decimal,))
