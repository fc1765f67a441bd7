"""Avro values as columns of table types (rules 2.3); the branches of a union are types of one key.

Values are as fastavro reads them with `return_record_name`: a record in a union comes with its name.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
from fastavro.read import LOGICAL_READERS

from driftline.convert.kernels import decimal_text, without_zeros
from driftline.convert.leaf_readings import VOID
from driftline.convert.nodes import LeafNode, ListNode, MapNode, Node, RecordNode, UnionNode
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
    Path,
    Type,
    decimal,
    dotted,
)
from driftline.errors import UsageError


def node_of(schema: Any, named: Mapping[str, Any] | None = None) -> Node:
    """The node that turns the values of a schema into columns.

    ``schema``: as fastavro has parsed it; ``named``: the types it refers to. Raises UsageError for a
    recursive type, with its path.
    """
    return _Schema(named or {}, _LOGICAL).node(schema, ())


def columns_of(schema: Mapping[str, Any], logical: Mapping[str, LeafNode] | None = None) -> RecordNode:
    """The node of a file's records.

    ``logical``: further logical types. Raises UsageError also if they are no records.
    """
    node = _Schema({}, {**_LOGICAL, **(logical or {})}, DecimalNode).node(schema, ())
    if not isinstance(node, RecordNode):
        raise UsageError("its values are not records", hint="an Avro file must hold records")
    return node


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


class DecimalNode(LeafNode):
    """Decimals of a file. Those with more digits than their type stay in the array, which is then invalid."""

    def arrays(self, values: Sequence[Any]) -> list[pa.Array]:
        """One array."""
        type_ = arrow_type(self.base)
        widest = pa.array(values, pa.decimal128(_DIGITS, type_.scale))
        return [pa.Array.from_buffers(type_, len(widest), widest.buffers(), widest.null_count)]


def _exact(data: bytes, schema: Any, *_: Any) -> Decimal:
    """A decimal with all of its digits; fastavro's own reader rounds to the precision of the type."""
    return Decimal(f"{int.from_bytes(data, 'big', signed=True)}E-{schema.get('scale', 0)}")


LOGICAL_READERS.update({"bytes-decimal": _exact, "fixed-decimal": _exact})


class _Schema:
    """Walks a schema; names that it has met stand for their types."""

    def __init__(
        self, named: Mapping[str, Any], logical: Mapping[str, LeafNode], decimals: type[LeafNode] = LeafNode
    ) -> None:
        self._named = dict(named)
        self._logical = logical
        self._decimals = decimals
        self._open: set[str] = set()

    def node(self, schema: Any, path: Path) -> Node:
        """The node for the values of a schema."""
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
            return self._decimal(schema)
        if logical in self._logical:
            return self._logical[logical]
        match kind:
            case "array":
                return ListNode(self.node(schema["items"], (*path, "element")))
            case "map":
                return MapNode(self.node(schema["values"], (*path, "value")))
            case str() if kind in _PLAIN:
                return _PLAIN[kind]
            case _:
                return self.node(kind, path)

    def _decimal(self, schema: Mapping[str, Any]) -> LeafNode:
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if precision > _DIGITS:
            return LeafNode(STRING, (Decimal,), decimal_text)
        return self._decimals(decimal(precision, scale), (Decimal,))

    def _record(self, schema: Mapping[str, Any], path: Path) -> RecordNode:
        name = schema["name"]
        if name in self._open:
            raise UsageError(
                f"{dotted(path)}: the type {name} is recursive, and a column type cannot be",
                hint="write the file without this field, or limit its depth",
            )
        self._named[name] = schema
        self._open.add(name)
        fields = tuple((f["name"], self.node(f["type"], (*path, f["name"]))) for f in schema["fields"])
        self._open.remove(name)
        return RecordNode(name, fields)

    def _union(self, branches: Sequence[Any], path: Path) -> Node:
        nodes = [self.node(branch, path) for branch in branches if branch != "null"]
        # Python has one type for narrow and wide ones.
        types = [node.fields("")[0].type for node in nodes]
        nodes = [node for node, type_ in zip(nodes, types, strict=True) if _WIDER.get(type_) not in types]
        return nodes[0] if len(nodes) == 1 else UnionNode(tuple(nodes)) if nodes else _PLAIN["null"]
