"""Typed messages of a topic for the check: decoded by the schemas that a registry has for them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from driftline.core.settings.condition import MESSAGE_KEY
from driftline.verify.files import BesideValue, Read, SourcePlace, as_read, opened
from driftline.verify.json_texts import MalformedText
from driftline.verify.messages import FRAME, is_framed, number_of, with_key
from driftline.verify.messages import read as read_messages
from driftline.verify.typed_files import AvroSchema, logical_as_written, unread
from driftline.verify.typed_messages import MessageSchema, as_json, told

Decode: TypeAlias = "Callable[[bytes], Any]"

WIRE = "wire"  # the format of files of typed messages
_SCHEMAS = "schemas.json"  # beside them


class RegisteredText(NamedTuple):
    """A schema as the registry has it.

    Attributes:
        text: of the schema.
        references: the texts of schemas that it names, by those names, each after its own.
    """

    text: str
    references: Mapping[str, str]


def write_schemas(
    folder: Path, fmt: str, schemas: Mapping[int, RegisteredText | None], *, in_envelopes: bool
) -> None:
    """Write the schemas of messages beside their files.

    Args:
        folder: that of the files.
        fmt: avro or protobuf.
        schemas: by number; None for one that the registry does not have in this format.
        in_envelopes: values are read as the JSON they stand for.
    """
    by_number = {str(number): schema for number, schema in schemas.items()}
    content = {"fmt": fmt, "in_envelopes": in_envelopes, "schemas": by_number}
    (folder / _SCHEMAS).write_text(json.dumps(content), encoding="utf-8")


def wire_reads(path: str) -> Iterator[Read]:
    """The records of a file of typed messages, each with its message's key, if keys are read."""
    for message in wire_messages(path, decode_keys=False):
        yield from as_wire_read(message, keys=message.beside is not None, nulls=True)


def wire_messages(path: str, *, decode_keys: bool = True) -> Iterator[Read]:
    """The records of a file of typed messages, and what is beside them, if keys are read.

    ``decode_keys``: typed keys name tables, so they are decoded here, too.
    """
    schemas = WireSchemas.beside(str(Path(path).parent))
    with opened(path) as file:
        for offsets, _, raws, keys in read_messages(file):
            for number, (offset, raw) in enumerate(zip(offsets, raws, strict=True)):
                place, beside = SourcePlace(path, 0, offset), None
                if keys is not None:
                    decoded = schemas.key(keys[number]) if decode_keys else None
                    beside = BesideValue(keys[number], raw is None, decoded)
                try:
                    yield Read(place, {} if raw is None else schemas.value(raw), raw or b"", beside=beside)
                except MalformedText as error:
                    yield Read(place, None, raw or b"", str(error), beside=beside)


def as_wire_read(message: Read, *, keys: bool, nulls: bool) -> list[Read]:
    """A typed message as a table reads it, as `as_read` has one of JSON."""
    schemas = WireSchemas.beside(str(Path(message.place.file).parent))
    reads = as_read(message, keys=keys, nulls=nulls, keyed_by=schemas.with_key)
    # Of a record that waits the quarantine has its key, too; of a message in an envelope not.
    return reads if schemas.in_envelopes else [replace(read, message=None) for read in reads]


class WireSchemas:
    """Decodes values and keys by their schemas."""

    def __init__(self, fmt: str, in_envelopes: bool, schemas: Mapping[str, Any]) -> None:
        self.in_envelopes = in_envelopes
        self._fmt, self._schemas = fmt, schemas
        self._decoders: dict[int, Decode] = {}

    @staticmethod
    @lru_cache(maxsize=4)
    def beside(folder: str) -> WireSchemas:
        """The schemas of the messages in the files of a folder."""
        content = json.loads(Path(folder, _SCHEMAS).read_text(encoding="utf-8"))
        return WireSchemas(**content)

    def value(self, raw: bytes) -> dict[str, Any]:
        """The record that a value is. Raises MalformedText."""
        record = self._decoded(raw)
        if type(record) is not dict:
            raise MalformedText("its value is no record")
        return record

    def key(self, key: bytes | None) -> Any:
        """The value of a typed key, as JSON; None for any other key."""
        if key is None or not is_framed(key):
            return None
        try:
            return as_json(self._decoded(key))
        except MalformedText:
            return None

    def with_key(self, record: dict[str, Any], key: bytes | None) -> dict[str, Any]:
        """A message's record with its key, which may be typed, or a text. Raises MalformedText."""
        if key is None or not is_framed(key):
            keyed = with_key(record, key)
            if isinstance(keyed[MESSAGE_KEY], list) or keyed[MESSAGE_KEY] == {}:
                raise MalformedText("a key that no column has")
            return keyed
        if MESSAGE_KEY in record:
            raise MalformedText(f"a field {MESSAGE_KEY} of its own")
        return {MESSAGE_KEY: self._decoded(key), **record}

    def _decoded(self, raw: bytes) -> Any:
        if not is_framed(raw):
            raise MalformedText("no number of a schema")
        number = number_of(raw)
        if number not in self._decoders:
            self._decoders[number] = self._decoder(self._schemas.get(str(number)))
        try:
            value = self._decoders[number](raw[FRAME:])
        except MalformedText:
            raise
        except Exception as error:  # whatever bytes lead a decoder into
            raise MalformedText(f"not what schema {number} says: {error}") from error
        return as_json(value) if self.in_envelopes else value

    def _decoder(self, schema: Any) -> Decode:
        """The decoder by a schema. Raises MalformedText for one that is none."""
        if schema is None:
            raise MalformedText(f"the registry has no such schema of {self._fmt}")
        registered = RegisteredText(*schema)
        try:
            if self._fmt == "protobuf":
                from driftline.verify.protobuf import decoder  # google: comes with an extra

                return decoder(*registered)
            return _avro(registered, in_envelopes=self.in_envelopes)
        except Exception as error:  # whatever the text of a schema leads a parser into
            raise MalformedText(f"its schema cannot be read: {error}") from error


# Avro ---------------------------------------------------------------------------------------------------


def _avro(registered: RegisteredText, *, in_envelopes: bool) -> Decode:
    """The decoder by a schema of Avro."""
    from fastavro import parse_schema, schemaless_reader

    logical_as_written()
    mark, schema = (told, MessageSchema()) if in_envelopes else (unread, AvroSchema())
    named: dict[str, Any] = {}
    for text in registered.references.values():
        schema.plain(parse_schema(json.loads(text, object_hook=mark), named))
    # In a record, so that the schema may be a union, or the name of a type.
    around = '{"type": "record", "name": "__verified__", "fields": [{"name": "value", "type": %s}]}'
    parsed: Any = parse_schema(json.loads(around % registered.text, object_hook=mark), named)
    plain, type_ = schema.plain(parsed), parsed["fields"][0]["type"]
    is_empty = isinstance(type_, dict) and type_["type"] == "record" and not type_["fields"]

    def decode(payload: bytes) -> Any:
        """The value that the bytes are."""
        if is_empty:
            raise MalformedText("a record without fields")
        file = io.BytesIO(payload)
        read: Any = schemaless_reader(
            file, parsed, None, return_record_name=True, handle_unicode_errors="surrogateescape"
        )
        if file.tell() != len(payload):
            raise MalformedText(f"{len(payload) - file.tell()} bytes behind the value")
        return plain(read).get("value")

    return decode
