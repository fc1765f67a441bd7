"""Protobuf messages as columns of table types, by their descriptors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from driftline.convert.declared import OVERFLOW
from driftline.convert.nodes import TEXT, LeafNode, ListNode, MapNode, Node, RecordNode, UnionNode
from driftline.core.schema.types import BINARY, BOOLEAN, DOUBLE, FLOAT, INT, LONG, STRING, TIMESTAMP, decimal

Read: TypeAlias = Callable[[Any], Any]  # a value as what its node takes

_INT, _LONG = LeafNode(INT, (int,)), LeafNode(LONG, (int,))
_UNSIGNED = LeafNode(decimal(20, 0), (int,), Decimal)
_LEAVES: Mapping[int, LeafNode] = {
    FieldDescriptor.TYPE_BOOL: LeafNode(BOOLEAN, (bool,)),
    FieldDescriptor.TYPE_INT32: _INT,
    FieldDescriptor.TYPE_SINT32: _INT,
    FieldDescriptor.TYPE_SFIXED32: _INT,
    FieldDescriptor.TYPE_INT64: _LONG,
    FieldDescriptor.TYPE_SINT64: _LONG,
    FieldDescriptor.TYPE_SFIXED64: _LONG,
    FieldDescriptor.TYPE_UINT32: _LONG,
    FieldDescriptor.TYPE_FIXED32: _LONG,
    FieldDescriptor.TYPE_UINT64: _UNSIGNED,
    FieldDescriptor.TYPE_FIXED64: _UNSIGNED,
    FieldDescriptor.TYPE_FLOAT: LeafNode(FLOAT, (float,)),
    FieldDescriptor.TYPE_DOUBLE: LeafNode(DOUBLE, (float,)),
    FieldDescriptor.TYPE_STRING: TEXT,
    FieldDescriptor.TYPE_BYTES: LeafNode(BINARY, (bytes,)),
    FieldDescriptor.TYPE_ENUM: TEXT,
}
# Microseconds, and text of what is finer or beyond the years of a calendar.
_MOMENT = UnionNode((LeafNode(TIMESTAMP, (int,)), LeafNode(STRING, (str,), doc=OVERFLOW)))
_ANY_SHAPE = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MessageType:
    """The messages of a descriptor. ``node``: their columns."""

    node: RecordNode
    reads: Sequence[tuple[FieldDescriptor, Read]]

    def record(self, message: Any) -> dict[str, Any]:
        """A message as its node takes it; a field that is not set is None, if that can be known."""
        return {
            field.name: read(getattr(message, field.name))
            if not field.has_presence or message.HasField(field.name)
            else None
            for field, read in self.reads
        }


def message_type(descriptor: Descriptor, ancestors: frozenset[str] = frozenset()) -> MessageType:
    """The columns of a type's messages. A message inside one of its own type becomes JSON text.

    ``ancestors``: the types around this one.
    """
    name = descriptor.full_name
    fields = [(field, *_field(field, ancestors | {name})) for field in descriptor.fields]
    node = RecordNode(name, tuple((field.name, node) for field, node, _ in fields))
    return MessageType(node, [(field, read) for field, _, read in fields])


def _field(field: FieldDescriptor, ancestors: frozenset[str]) -> tuple[Node, Read]:
    if not field.is_repeated:
        return _value(field, ancestors)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        node, read = _value(entry["value"], ancestors)
        return MapNode(node, _LEAVES[entry["key"].type]), lambda maps: {key: read(maps[key]) for key in maps}
    node, read = _value(field, ancestors)
    return ListNode(node), lambda values: [read(value) for value in values]


def _value(field: FieldDescriptor, ancestors: frozenset[str]) -> tuple[Node, Read]:
    """One value of a field."""
    message = field.message_type
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return TEXT, lambda number: names.get(number, str(number))
    if message is None:
        return _LEAVES[field.type], lambda value: value
    if message.full_name == "google.protobuf.Timestamp":
        return _MOMENT, lambda value: _moment(value.seconds, value.nanos)
    if message.full_name in _WRAPPERS:
        return _LEAVES[message.fields_by_name["value"].type], lambda value: value.value
    if message.full_name in _ANY_SHAPE or message.full_name in ancestors:
        return TEXT, _json
    type_ = message_type(message, ancestors)
    return type_.node, type_.record


def _json(message: Any) -> str:
    return str(json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True))


def _moment(seconds: int, nanos: int) -> int | str:
    """Microseconds since 1970, or text.

    >>> _moment(1, 500000000), _moment(0, 7), _moment(10**12, 0)
    (1500000, '1970-01-01T00:00:00.000000007Z', '1000000000000.000000000')
    """
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return f"{seconds}.{nanos:09d}"
    if nanos % 1000 == 0:
        return seconds * 1_000_000 + nanos // 1000
    return f"{moment.replace(tzinfo=None).isoformat()}.{nanos:09d}Z"


def extensions(message: Any) -> Iterator[str]:
    """Fields at the top of the message that none of its descriptors names."""
    return (field.full_name for field, _ in message.ListFields() if field.is_extension)
