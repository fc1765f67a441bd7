"""Messages in Avro as texts of JSON, whose values are what their schema tells: Kafka Connect's names of types
and the logical types of Avro.

The reader of Avro applies each rule itself, where the type stands: the schema is given to it with marks.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, TypeAlias

import msgspec
from fastavro import parse_schema, schemaless_reader
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException
from msgspec import Raw

from driftline.readers.decoders import Wire
from driftline.readers.envelopes.connect_schema import (
    RULES,
    Parameters,
    Spell,
    day_text,
    decimal_text,
    moment_text,
    time_text,
)
from driftline.readers.registry import Registered
from driftline.readers.wire import UnreadableError, framed

TextOf: TypeAlias = "Callable[[bytes], bytes]"

_TOP = "__top__"  # the record around a message, so that it may be of any type
_MARK = "driftline-text"  # the logical type of what is read as a text of JSON
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


def _decimal(parameters: Parameters) -> Spell:
    scale = int(parameters.get("scale") or 0)
    return lambda raw: decimal_text(raw, scale)


def _time(digits: int) -> Callable[[Parameters], Spell]:
    return lambda _: lambda units: b'"%b"' % time_text(units, digits).encode()


def _moment(digits: int, zone: str) -> Callable[[Parameters], Spell]:
    return lambda _: lambda units: f'"{moment_text(units, digits)}{zone}"'.encode()


def _number(_: Parameters) -> Spell:
    """A number with a point; what JSON has no number for is a text, as Kafka Connect writes it."""
    return lambda value: msgspec.json.encode(value if isfinite(value) else _NOT_FINITE[str(value)])


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

# Types that are known by no name of Kafka Connect's, by their logical types.
LOGICAL: Mapping[str, Callable[[Parameters], Spell]] = {
    "decimal": _decimal,
    "date": lambda _: lambda days: b'"%b"' % day_text(days).encode(),
    "time-millis": _time(3),
    "time-micros": _time(6),
    "timestamp-millis": _moment(3, "Z"),
    "timestamp-micros": _moment(6, "Z"),
    "timestamp-nanos": _moment(9, "Z"),
    "local-timestamp-millis": _moment(3, ""),
    "local-timestamp-micros": _moment(6, ""),
    "local-timestamp-nanos": _moment(9, ""),
}


def _as_text(value: Any, schema: dict[Any, Any] | None, _: Any = None) -> Raw:
    assert schema is not None
    return Raw(schema["spell"](value))


LOGICAL_READERS.update(
    {f"{kind}-{_MARK}": _as_text for kind in ("int", "long", "float", "double", "bytes", "fixed", "record")}
)


def text_of(wire: Wire, value: bytes) -> bytes:
    """The text of a message, or of its key, in the registry's wire format.

    Raises UnreadableError; SetupError if the registry does not answer.
    """
    number, payload = framed(value)
    key = (tuple(sorted(wire.registry.settings.items())), number)
    if key not in _readers:
        try:
            _readers[key] = reader_of(wire.schema(number))
        except UnreadableError as error:
            _readers[key] = error
    reader = _readers[key]
    if isinstance(reader, UnreadableError):
        raise reader
    return reader(payload)


_readers: dict[tuple[Any, ...], TextOf | UnreadableError] = {}  # an id's schema never changes


def reader_of(registered: Registered) -> TextOf:
    """The reader of values with a schema. Raises UnreadableError for an invalid one."""
    named: dict[str, Any] = {}
    try:
        for one in registered.references.values():
            parse_schema(_marked(json.loads(one.text)), named)
        field = {"name": "value", "type": _marked(json.loads(registered.text))}
        schema: Any = parse_schema({"type": "record", "name": _TOP, "fields": [field]}, named)
    except RecursionError as error:
        raise UnreadableError("its schema is nested too deeply") from error
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableError(f"invalid Avro schema: {type(error).__name__}: {error}") from error

    def read(payload: bytes) -> bytes:
        file = io.BytesIO(payload)
        try:
            top: Any = schemaless_reader(file, schema, None)
            text = msgspec.json.encode(top["value"])
        except Exception as error:  # whatever hostile bytes lead a reader into
            raise UnreadableError(
                f"invalid Avro for its schema: {str(error) or type(error).__name__}"
            ) from error
        if left := len(payload) - file.tell():
            raise UnreadableError(f"invalid Avro for its schema: {left} bytes follow the record")
        return text

    return read


def _marked(schema: Any) -> Any:
    """The schema with marks on the types whose values are read as texts, and no logical type else."""
    if isinstance(schema, list):
        return [_marked(branch) for branch in schema]
    if isinstance(schema, str):
        return _marked({"type": schema}) if schema in ("float", "double") else schema
    inner = schema.get("type")
    if isinstance(inner, dict | list) or (isinstance(inner, str) and inner not in _KINDS):
        return _marked(inner)  # a type around a type says nothing more
    plain = {name: value for name, value in schema.items() if name != "logicalType"}
    spell = _spelled(schema)
    if spell is not None:
        return {**plain, "logicalType": _MARK, "spell": spell}
    for name in ("items", "values"):
        if name in plain:
            plain[name] = _marked(plain[name])
    if "fields" in plain:
        plain["fields"] = [{**f, "type": _marked(f["type"])} for f in plain["fields"]]
    return plain


_KINDS = _PRIMITIVES | {"record", "error", "enum", "fixed", "array", "map"}


def _spelled(schema: Mapping[str, Any]) -> Spell | None:
    """The speller of a type's values; None for one whose values are JSON's as they are."""
    rule = RULES.get(schema.get("connect.name") or "")
    if rule is not None:
        return rule.spelled({**schema, **schema.get("connect.parameters", {})})
    logical = LOGICAL.get(schema.get("logicalType") or "")
    if logical is not None:
        return logical(schema)
    return _number({}) if schema["type"] in ("float", "double") else None
