"""Decodes Protobuf values, by descriptors or by the source of a schema."""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from google import type as type_
from google.protobuf import descriptor_pool, json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from driftline.convert.declared import OVERFLOW
from driftline.core.schema.types import BINARY, BOOLEAN, DOUBLE, FLOAT, INT, LONG, STRING, TIMESTAMP, decimal
from driftline.errors import SetupError, UsageError
from driftline.readers.avro.nodes import TEXT, LeafNode, ListNode, MapNode, Node, RecordNode, UnionNode
from driftline.readers.kafka.registry import Registered
from driftline.readers.kafka.wire import Payloads, UnreadableError, Whole

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
    """The messages of a descriptor.

    Attributes:
        node: their columns.
    """

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

    Args:
        ancestors: the types around this one.
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


MAIN = "driftline_value.proto"
_COMMON = re.compile(r"google/(?:protobuf|type)/([a-z_]+)\.proto")
_PATIENCE = 60  # seconds for the compiler


class ProtobufDecoder:
    """Reads values of a file of message types. Raises UsageError for text that is no such file."""

    def __init__(self, schema: Registered) -> None:
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in files_of(schema):
                pool.AddSerializedFile(file.SerializeToString())
            self._top = list(pool.FindFileByName(MAIN).message_types_by_name.values())
        except (TypeError, KeyError, ImportError) as error:  # what the pool raises for files that do not fit
            raise UsageError(f"invalid Protobuf schema: {error}") from error
        self.nodes: dict[str, RecordNode] = {}
        self._types: dict[tuple[int, ...], tuple[Any, MessageType]] = {}

    def whole(self, payloads: Payloads) -> Whole | None:
        """None: messages are read one by one."""
        return None

    def record(self, payload: bytes) -> tuple[str, Mapping[str, Any]]:
        """Read one payload; returns the message's type and fields.

        Raises UnreadableError also for fields and extensions that the schema lacks: they would be lost.
        """
        places, start = _places(payload)
        if places not in self._types:
            self._types[places] = self._type(places)
        message, (class_, type_) = None, self._types[places]
        self.nodes.setdefault(type_.node.name, type_.node)
        try:
            message = class_.FromString(payload[start:])
            record = type_.record(message)
            size = message.ByteSize()
            message.DiscardUnknownFields()
        except (DecodeError, ValueError, TypeError, RecursionError) as error:
            raise UnreadableError(f"no {type_.node.name}: {error}") from error
        # Unknown fields have no column: the message was written by another schema, and would lose values.
        if message.ByteSize() != size:
            raise UnreadableError(f"it has fields that {type_.node.name} has not")
        if more := list(extensions(message)):
            raise UnreadableError(f"it has extensions: {', '.join(more)}")
        return type_.node.name, record

    def _type(self, places: tuple[int, ...]) -> tuple[Any, MessageType]:
        """The message type at these places, each within the one before."""
        types, descriptor = self._top, None
        for place in places:
            if not 0 <= place < len(types):
                raise UnreadableError(f"its schema has no message type {'/'.join(map(str, places))}")
            descriptor = types[place]
            types = list(descriptor.nested_types)
        return GetMessageClass(descriptor), message_type(descriptor)


def _places(payload: bytes) -> tuple[tuple[int, ...], int]:
    """The message type that a payload names, and the offset at which its message begins."""
    numbers = _varints(payload)
    try:
        count, start = next(numbers)
        if count == 0:  # a short way to say: the first
            return (0,), start
        places = []
        for _ in range(count):
            place, start = next(numbers)
            places.append(place)
    except StopIteration:
        raise UnreadableError("it is cut off within the places of its message type") from None
    if not places:
        raise UnreadableError("its count of places is below zero")
    return tuple(places), start


def _varints(payload: bytes) -> Iterator[tuple[int, int]]:
    """Zigzag numbers, each with its end."""
    number = shift = 0
    for end, byte in enumerate(payload, 1):
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            yield (number >> 1) ^ -(number & 1), end
            number = shift = 0


def files_of(schema: Registered) -> Iterator[FileDescriptorProto]:
    """The descriptors of a schema's files, each behind those that it imports; `MAIN` is its own."""
    texts = {**{name: one.text for name, one in schema.references.items()}, MAIN: schema.text}
    given = {name: _descriptor(text, name) for name, text in texts.items()}
    files = {name: file for name, file in given.items() if file is not None}
    if len(files) < len(texts):
        yield from _compiled(texts)
        return
    visited: set[str] = set()
    for file in files.values():
        for name in file.dependency:
            if name not in files and name not in visited:
                yield from _common(name, visited)
        yield file


def _descriptor(text: str, name: str) -> FileDescriptorProto | None:
    """A file's descriptor from base64; None for other text."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    file.name = name
    return file


def _common(name: str, done: set[str]) -> Iterator[FileDescriptorProto]:
    """A file that comes with Protobuf, behind those that it imports."""
    match = _COMMON.fullmatch(name)
    if match is None:
        raise UsageError(f"invalid Protobuf schema: it imports {name}, which is not among its references")
    module = import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
    file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    done.add(name)
    for other in file.dependency:
        if other not in done:
            yield from _common(other, done)
    yield file


def _compiled(texts: Mapping[str, str]) -> Iterator[FileDescriptorProto]:
    """Compile the texts of a schema, by file name, with protoc.

    Raises UsageError for text that is no schema, SetupError without the compiler.
    """
    # Apicurio could give descriptors in place of the text, but 3.3.3 answers with 500.
    with TemporaryDirectory(prefix="driftline-") as folder:
        for name, text in texts.items():
            # The names come from the registry, and must not lead out of the folder.
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise UsageError(f"invalid Protobuf schema: it refers to a file {name!r}")
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        out = Path(folder, "descriptors")
        # Registries know Google's common types, and do not refer to them.
        paths = [f"--proto_path={path}" for path in (folder, Path(next(iter(type_.__path__))).parents[1])]
        options = [*paths, "--include_imports", f"--descriptor_set_out={out}"]
        # By protoc itself, so that there is no second reading of the language.
        # -P: what a registry sends is no module
        compiled = subprocess.run(
            [sys.executable, "-P", "-m", "grpc_tools.protoc", *options, str(Path(folder, MAIN))],
            capture_output=True, text=True, timeout=_PATIENCE, check=False,
        )  # fmt: skip
        if "No module named" in compiled.stderr:
            raise SetupError("Protobuf needs its compiler.", "pip install 'driftline[registry]'")
        if compiled.returncode:
            raise UsageError(
                f"invalid Protobuf schema: {' '.join(compiled.stderr.replace(folder, '').split())[:500]}"
            )
        yield from FileDescriptorSet.FromString(out.read_bytes()).file
