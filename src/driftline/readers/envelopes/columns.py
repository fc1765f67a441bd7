"""Reads Avro messages as JSON texts, by Kafka Connect's type names and Avro's logical types.

The Avro reader applies each rule where the type stands: it gets the schema with marks.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from math import isfinite
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from fastavro import schemaless_reader
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException, parse_schema
from msgspec import Raw

from driftline.convert.rest import row_texts
from driftline.readers.envelopes.connect_schema import (
    RULES,
    Parameters,
    Spell,
    day_spelled,
    decimal_spelled,
    moment_spelled,
    time_spelled,
)
from driftline.readers.kafka.values import Wire, WireValues, around_values, whole_value
from driftline.readers.kafka.wire import UnreadableError, framed

TextOf: TypeAlias = "Callable[[bytes], bytes]"

# One set of rules reads an envelope, so a connector that changes its converter goes on filling the same
# table. A mark on the schema lets Avro's own reader tell the branch of a union.
_MARK = "driftline-text"  # the logical type of what is read as a text of JSON
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


def _number(_: Parameters) -> Spell:
    """A number with a point; what JSON has no number for is a text, as Kafka Connect writes it."""
    return lambda value: msgspec.json.encode(value if isfinite(value) else _NOT_FINITE[str(value)])


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

# Types that are known by no name of Kafka Connect's, by their logical types.
LOGICAL: Mapping[str, Callable[[Parameters], Spell]] = {
    "decimal": decimal_spelled,
    "date": day_spelled,
    "time-millis": time_spelled(3),
    "time-micros": time_spelled(6),
    "timestamp-millis": moment_spelled(3, "Z"),
    "timestamp-micros": moment_spelled(6, "Z"),
    "timestamp-nanos": moment_spelled(9, "Z"),
    "local-timestamp-millis": moment_spelled(3),
    "local-timestamp-micros": moment_spelled(6),
    "local-timestamp-nanos": moment_spelled(9),
}


def _as_text(value: Any, schema: dict[Any, Any] | None, _: Any = None) -> Raw:
    assert schema is not None
    return Raw(schema["spell"](value))


LOGICAL_READERS.update(
    {f"{kind}-{_MARK}": _as_text for kind in ("int", "long", "float", "double", "bytes", "fixed", "record")}
)


class AvroTexts:
    """In a task: reads messages, and their keys, in the registry's wire format as texts of JSON."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._unreadable: dict[int, UnreadableError] = {}  # by the ids of their schemas

    def of(self, value: bytes) -> bytes:
        """The text of a message. Raises UnreadableError; SetupError if the registry does not answer."""
        number, payload = framed(value)
        # A schema without a reader stays so: the registry is not asked again for each message.
        if number in self._unreadable:
            raise self._unreadable[number]
        try:
            reader = self._wire.once(number, _reader)
        except UnreadableError as error:
            self._unreadable[number] = error
            raise
        return reader(payload)


def _reader(wire: Wire, number: int) -> TextOf:
    """The reader of values with a schema. Raises UnreadableError for an invalid one."""
    registered = wire.schema(number)
    try:
        schema, _ = around_values(registered, _marked)
    except RecursionError as error:
        raise UnreadableError("its schema is nested too deeply") from error
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableError(f"invalid Avro schema: {type(error).__name__}: {error}") from error

    def text(file: BytesIO) -> bytes:
        top: Any = schemaless_reader(file, schema, None)
        return msgspec.json.encode(top["value"])

    return lambda payload: whole_value(payload, text)


class FileTexts:
    """Reads the records of a file one after the other, by its ``schema``, as texts of JSON.

    A value that its type cannot spell stands there as it was written, with the reason in ``wrong``: the
    records behind it are read all the same.
    """

    def __init__(self, schema: str) -> None:
        self.wrong: list[str] = []
        self._schema = parse_schema(_marked(json.loads(schema), self._kept))

    def next(self, block: BytesIO) -> bytes:
        """The text of the record that the block goes on with."""
        record: Any = schemaless_reader(block, self._schema, None, handle_unicode_errors="surrogateescape")
        try:
            return msgspec.json.encode(record)
        except UnicodeEncodeError:
            self.wrong.append("text that is not UTF-8")
            return json.dumps(record, ensure_ascii=False, default=_parsed).encode(errors="surrogateescape")

    def _kept(self, spell: Spell) -> Spell:
        def spelled(value: Any) -> bytes:
            """The text of a value; of one that cannot be spelled its number or bytes."""
            try:
                return spell(value)
            except Exception as error:  # whatever hostile values lead into
                self.wrong.append(f"invalid Avro for its schema: {str(error) or type(error).__name__}")
                return msgspec.json.encode(value)

        return spelled


def _parsed(value: Any) -> Any:
    """A value as Python's own writer of JSON takes it."""
    return json.loads(bytes(value)) if isinstance(value, Raw) else b64encode(value).decode()


def _marked(schema: Any, around: Callable[[Spell], Spell] = lambda spell: spell) -> Any:
    """The schema with marks on the types whose values are read as texts, and no logical type else.

    Args:
        around: makes the speller of a type from the one by its rule.
    """
    if isinstance(schema, list):
        return [_marked(branch, around) for branch in schema]
    if isinstance(schema, str):
        return _marked({"type": schema}, around) if schema in ("float", "double") else schema
    inner = schema.get("type")
    if isinstance(inner, dict | list) or (isinstance(inner, str) and inner not in _KINDS):
        # A type around a type says nothing more
        return _marked(inner, around)
    plain = {name: value for name, value in schema.items() if name != "logicalType"}
    spell = _spelled(schema)
    if spell is not None:
        return {**plain, "logicalType": _MARK, "spell": around(spell)}
    for name in ("items", "values"):
        if name in plain:
            plain[name] = _marked(plain[name], around)
    if "fields" in plain:
        plain["fields"] = [{**f, "type": _marked(f["type"], around)} for f in plain["fields"]]
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


# Of values, and why others have none, by their places
Texts = tuple[list[bytes | None], dict[int, str]]


def texts_of(wire: Wire, batch: pa.RecordBatch, values: pa.Array) -> Texts:
    """The texts of ``values`` of a batch of Kafka's; null for null, and the bytes of what has none."""
    if wire.format == "avro":
        return _of_avro(wire, values.to_pylist())
    texts: list[bytes | None] = values.to_pylist()
    alike, unreadable = WireValues(wire).read(batch, values)
    for some in alike:
        for place, text in zip(
            some.places, row_texts(some.rows.batch, some.struct, points=True), strict=True
        ):
            texts[place] = text
    return texts, dict(unreadable)


def key_texts_of(wire: Wire, batch: pa.RecordBatch) -> Texts:
    """The texts of the keys in a batch of Kafka's; those that are not framed stay as they are."""
    keys = batch.column("key")
    framed = pc.equal(pc.binary_slice(keys, 0, 1), pa.scalar(b"\0", keys.type))
    texts, wrong = texts_of(wire, batch, pc.if_else(framed, keys, pa.scalar(None, keys.type)))
    return [key if text is None else text for key, text in zip(keys.to_pylist(), texts, strict=True)], wrong


def _of_avro(wire: Wire, values: Sequence[bytes | None]) -> Texts:
    texts, wrong, reader = list(values), dict[int, str](), AvroTexts(wire)
    for place, value in enumerate(values):
        try:
            texts[place] = None if value is None else reader.of(value)
        except UnreadableError as error:
            wrong[place] = str(error)
    return texts, wrong
