"""Decodes Protobuf messages for the check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from google.protobuf import descriptor_pool, json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from driftline.readers.kafka.protobuf import MAIN, files_of
from driftline.readers.kafka.registry import Registered
from driftline.verify.json_texts import MalformedText
from driftline.verify.moments import FarMoment
from driftline.verify.typed_files import moment_at
from driftline.verify.values import Pairs, Single

Names: TypeAlias = "frozenset[str]"

_OF_ANY_SHAPE = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = {f"google.protobuf.{name}Value" for name in _WRAPPED}


def decoder(text: str, references: Mapping[str, str]) -> Callable[[bytes], dict[str, Any]]:
    """The decoder of messages by a file of their types; ``references``: the texts of those that it names."""
    # How a schema is compiled is shared, as how a registry is reached is; how values are read is not.
    named = {name: Registered("PROTOBUF", of_name) for name, of_name in references.items()}
    pool = descriptor_pool.DescriptorPool()
    for file in files_of(Registered("PROTOBUF", text, named)):
        pool.AddSerializedFile(file.SerializeToString())
    top = list(pool.FindFileByName(MAIN).message_types_by_name.values())

    def decode(payload: bytes) -> dict[str, Any]:
        """The record that a message is. Raises MalformedText for one that its schema does not describe."""
        places, start = _places(payload)
        types, descriptor = top, None
        for place in places:
            if not 0 <= place < len(types):
                raise MalformedText("its schema has no such message type")
            descriptor = types[place]
            types = list(descriptor.nested_types)
        message: Any = GetMessageClass(descriptor).FromString(payload[start:])
        size = message.ByteSize()
        record = _record(message, frozenset())
        message.DiscardUnknownFields()
        if message.ByteSize() != size or any(field.is_extension for field, _ in message.ListFields()):
            raise MalformedText("it has fields that its schema has not")
        if not message.DESCRIPTOR.fields:
            raise MalformedText("a message without fields")
        return record

    return decode


def _places(payload: bytes) -> tuple[Sequence[int], int]:
    """The places of a message's type, each inside the one before, and where the message begins."""
    numbers: list[int] = []
    number = shift = 0
    for end, byte in enumerate(payload, 1):
        number, shift = number | (byte & 0x7F) << shift, shift + 7
        if byte & 0x80:
            continue
        numbers.append(number // 2 if number % 2 == 0 else -(number // 2) - 1)
        number = shift = 0
        if numbers == [0]:
            return [0], end
        if numbers[0] > 0 and len(numbers) == numbers[0] + 1:
            return numbers[1:], end
        if numbers[0] < 0:
            break
    raise MalformedText("it does not say which message type it has")


def _record(message: Any, around: Names) -> dict[str, Any]:
    """The fields of a message that are set, or have no way to be unset; ``around``: types that it is in."""
    inside = around | {message.DESCRIPTOR.full_name}
    return {
        field.name: _field(field, getattr(message, field.name), inside)
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _field(field: FieldDescriptor, value: Any, around: Names) -> Any:
    if not field.is_repeated:
        return _plain(field, value, around)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        of_value = entry.fields_by_name["value"]
        return Pairs({key: _plain(of_value, value[key], around) for key in value})
    return [_plain(field, element, around) for element in value]


def _plain(field: FieldDescriptor, value: Any, around: Names) -> Any:
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return Single(value)
    if field.message_type is None:
        return value
    type_ = field.message_type.full_name
    if type_ == "google.protobuf.Timestamp":
        return _moment(value)
    if type_ in _WRAPPERS:
        return _plain(field.message_type.fields_by_name["value"], value.value, around)
    if type_ in _OF_ANY_SHAPE or type_ in around:
        return str(json_format.MessageToJson(value, indent=None, preserving_proto_field_name=True))
    return _record(value, around)


def _moment(stamp: Any) -> Any:
    """A moment, or the text of one that is finer than a microsecond or beyond the calendar."""
    moment = moment_at(stamp.seconds * 10**9 + stamp.nanos)
    return f"{stamp.seconds}.{stamp.nanos:09d}" if isinstance(moment, FarMoment) else moment
