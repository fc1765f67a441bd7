"""Decoders of Kafka's values, by the schemas of a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from fastavro import schemaless_reader
from fastavro.schema import SchemaParseException, parse_schema

from driftline.convert.avro import marked, node_of
from driftline.convert.avro_binary import RecordReader, UnfitError, reader_of
from driftline.convert.nodes import RecordNode, UnionNode
from driftline.errors import SetupError, UsageError
from driftline.readers.registry import NoSchemaError, Registered, Registry
from driftline.readers.wire import Payloads, UnreadableError, Whole, WireDecoder

T = TypeVar("T")
_TOP = "__top__"  # the record around a value, so that it may be a union; without a namespace


def around_values(
    registered: Registered, prepare: Callable[[Any], Any] = lambda schema: schema
) -> tuple[Any, dict[str, Any]]:
    """A record schema whose field ``value`` has the registered one, and all named types in it.

    ``prepare``: applied to each schema before it is parsed.
    """
    named: dict[str, Any] = {}
    for reference in registered.references.values():
        parse_schema(prepare(json.loads(reference.text)), named)
    field = {"name": "value", "type": prepare(json.loads(registered.text))}
    return parse_schema({"type": "record", "name": _TOP, "fields": [field]}, named), named


def whole_value(payload: bytes, read: Callable[[io.BytesIO], T]) -> T:
    """Read a payload to its end. Raises UnreadableError."""
    file = io.BytesIO(payload)
    try:
        value = read(file)
    except Exception as error:  # whatever hostile bytes lead a reader into
        raise UnreadableError(f"invalid Avro for its schema: {str(error) or type(error).__name__}") from error
    if unread := len(payload) - file.tell():
        raise UnreadableError(f"invalid Avro for its schema: {unread} bytes follow the record")
    return value


class AvroDecoder:
    """Reads values of an Avro schema. Raises UsageError for one that a table cannot have.

    ``keys``: the values are keys, which may be plain; each comes as the only field of a record.
    """

    def __init__(self, schema: Registered, *, keys: bool = False) -> None:
        self._schema: Any = None
        try:
            self._schema, named = around_values(schema, marked)
            top = self._schema if keys else self._schema["fields"][0]["type"]
            node = node_of(top, named)
        except RecursionError as error:
            raise UsageError("its schema is nested too deeply") from error
        except (SchemaParseException, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"invalid Avro schema: {type(error).__name__}: {error}") from error
        branches = node.branches if isinstance(node, UnionNode) else (node,)
        records = [branch for branch in branches if isinstance(branch, RecordNode)]
        if len(records) < len(branches):
            raise UsageError("its values are not records")
        self.nodes = {branch.name: branch for branch in records}
        self._only, self._keys = records[0].name, keys
        self._reader: RecordReader | None = None
        with suppress(UnfitError, RecursionError):
            self._reader = reader_of(top, named)

    def whole(self, payloads: Payloads) -> Whole | None:
        """Read all payloads as columns; None if records of this schema are read one by one."""
        if self._reader is None:
            return None
        numbers, arrays = self._reader.columns(payloads.data, payloads.starts, payloads.ends)
        return Whole(self._only, self._reader.struct, numbers, arrays)

    def record(self, payload: bytes) -> tuple[str, Mapping[str, Any]]:
        """Read one payload; returns the record's name and fields. Raises UnreadableError."""
        top: Any = whole_value(
            payload, lambda file: schemaless_reader(file, self._schema, None, return_record_name=True)
        )
        if self._keys:
            return self._only, top
        if (value := top["value"]) is None:
            raise UnreadableError("null is not a record")
        return value if type(value) is tuple else (self._only, value)


KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF"}  # of the formats whose values need their schema


@dataclass(frozen=True, slots=True)
class Wire:
    """The encoding of values, or of ``keys``: a ``format`` of `KINDS`, and the registry of schemas.

    It is sent to tasks.
    """

    format: str
    registry: Registry
    keys: bool = False

    def decoder(self, number: int) -> WireDecoder:
        """The decoder for the schema with this id, made once in a process.

        Raises UnreadableError if there is no such schema, or none that a table can have; SetupError if the
        registry does not answer.
        """
        return self.once(number, Wire._new)

    def once(self, number: int, make: Callable[[Wire, int], T]) -> T:
        """The object that a function makes for the schema with this id, made once in a process.

        An error is not kept: the registry may have the schema later.
        """
        made: T = _made(make, self, number)
        return made

    def schema(self, number: int) -> Registered:
        """The schema with this id. Raises as `decoder` does."""
        kind = KINDS[self.format]
        try:
            schema = self.registry.schema(number)
        except NoSchemaError as error:
            raise UnreadableError(f"the registry has no schema {number}: {error}") from error
        if schema.kind != kind:
            raise UnreadableError(f"schema {number} is {schema.kind}, not {kind}")
        return schema

    def _new(self, number: int) -> WireDecoder:
        schema = self.schema(number)
        try:
            return AvroDecoder(schema, keys=self.keys) if self.format == "avro" else _protobuf(schema)
        except UsageError as error:
            raise UnreadableError(f"schema {number}: {error.message}") from error


@cache  # an id's schema never changes
def _made(make: Callable[[Wire, int], Any], wire: Wire, number: int) -> Any:
    return make(wire, number)


def _protobuf(schema: Registered) -> WireDecoder:
    try:
        from driftline.readers.protobuf import ProtobufDecoder
    except ImportError as error:  # it comes with an extra
        raise SetupError("Protobuf needs its runtime.", "pip install 'driftline[registry]'") from error
    return ProtobufDecoder(schema)
