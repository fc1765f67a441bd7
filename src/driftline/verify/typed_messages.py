"""Messages in columnar files, with their values as the JSON they stand for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np

from driftline.errors import DataError
from driftline.verify.envelopes import AROUND, NAMED_TYPES, Unreadable, decoded
from driftline.verify.files import Read, SourcePlace, opened
from driftline.verify.moments import FarMoment, clock_text, day_text, moment_text
from driftline.verify.typed_files import AvroSchema, Plain, readable
from driftline.verify.values import Pairs, Single, base64_text

_TOLD = "told"  # the place of a logical type, which is applied here
_UNITS = {"millis": 3, "micros": 6, "nanos": 9}


def as_message(read: Read) -> Read:
    """Return a row as a message; for a key with a null value, the null is reported."""
    if read.record is None:
        return read
    message = as_json(read.record)
    if "key" in message and "value" not in message and set(message) <= AROUND:
        message["value"] = None
    return replace(read, record=message)


def as_json(value: Any) -> Any:
    """A value of a typed source as the value of JSON that it is written as.

    >>> as_json({"a": b"x", "b": Single(0.1), "c": date(2026, 3, 1), "d": float("nan")})
    {'a': 'eA==', 'b': Decimal('0.1'), 'c': '2026-03-01', 'd': 'NaN'}
    """
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case Single():
            return Decimal(str(np.float32(value)))
        case float():
            return Decimal(repr(value))
        case bytes():
            return base64_text(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case FarMoment():
            return str(value)
        case Pairs():
            return {_name(key): as_json(item) for key, item in value.items()}
        case Mapping():
            return {name: as_json(item) for name, item in value.items()}
        case list():
            return [as_json(item) for item in value]
    return value


def _name(key: Any) -> str:
    """A map's key as the name of an object's member."""
    value = as_json(key)
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


# Avro ---------------------------------------------------------------------------------------------------


def avro_messages(path: str) -> Iterator[Read]:
    """Yield the records of an Avro file, typed by Kafka Connect's names too. Raises DataError."""
    from fastavro import block_reader, parse_schema, schemaless_reader

    if not readable(path, "avro"):
        raise DataError(
            f"{path}: its blocks are packed in a way in which messages are not checked",
            "write the file with the codec null or deflate",
        )
    with opened(path) as file:
        blocks: Any = block_reader(file)
        # Logical types go by another name, by which fastavro leaves the values as they were written.
        schema: Any = parse_schema(json.loads(blocks.metadata["avro.schema"], object_hook=told))
        plain = MessageSchema().plain(schema)
        read_record = partial(
            schemaless_reader, return_record_name=True, handle_unicode_errors="surrogateescape"
        )
        for block in blocks:
            for _ in range(block.num_records):
                record = plain(read_record(block.bytes_, schema, None))
                yield Read(SourcePlace(path), as_json(record))


def told(node: dict[str, Any]) -> dict[str, Any]:
    """A node of a schema, with another name for its logical type."""
    return {_TOLD if name == "logicalType" else name: value for name, value in node.items()}


class MessageSchema(AvroSchema):
    """Spells values by the names and the logical types of their schema, which the reader has left alone."""

    def plain(self, schema: Any) -> Plain:
        if schema == "float":
            return float  # with all digits that 4 bytes have
        if not isinstance(schema, dict):
            return super().plain(schema)
        spell: Plain | None = None
        if schema.get("connect.name") in NAMED_TYPES:
            spell = partial(_by_name, schema)
        elif _TOLD in schema:
            spell = partial(_by_logical_type, schema, schema[_TOLD])
        if spell is None:
            return super().plain(schema)
        if "name" in schema:
            self.named[schema["name"]] = spell
        return spell

    def recursive(self, name: str) -> Plain:
        """The function for a type inside itself."""
        return lambda value: self.named[name](value)  # noqa: PLW0108  it is there only later

    def union(self, branches: Sequence[Any]) -> Plain:
        by_kind = {}
        for branch in branches:
            by_kind[self.name(branch) if _is_record(branch) else _kind(branch)] = self.plain(branch)
        only = list(by_kind.values())

        def plain(value: Any) -> Any:
            """The value by its branch: the record's name, or the type that Python has for it."""
            if len(only) == 1:
                return only[0](value)
            kind = value[0] if type(value) is tuple else type(value).__name__
            return by_kind[kind](value) if kind in by_kind else value

        return plain


def _is_record(branch: Any) -> bool:
    return isinstance(branch, dict) and branch["type"] == "record"


_PYTHON = {
    "boolean": "bool", "int": "int", "long": "int", "float": "float", "double": "float", "string": "str",
    "enum": "str", "bytes": "bytes", "fixed": "bytes", "array": "list", "map": "dict",
}  # fmt: skip


def _kind(branch: Any) -> str:
    type_ = branch["type"] if isinstance(branch, dict) else branch
    return _PYTHON.get(type_, type_) if isinstance(type_, str) else _kind(type_)


def _by_name(schema: Mapping[str, Any], value: Any) -> Any:
    parameters = {**schema, **schema.get("connect.parameters", {})}
    written = as_json(value[1] if type(value) is tuple else value)
    with suppress(Unreadable):
        return decoded(written, {"name": schema["connect.name"], "parameters": parameters})
    return written


def _by_logical_type(schema: Mapping[str, Any], name: str, value: Any) -> Any:
    kind, _, unit = name.rpartition("-")
    if name == "decimal":
        digits = Decimal(int.from_bytes(value, "big", signed=True)).as_tuple()
        return Decimal((*digits[:2], -schema.get("scale", 0)))
    if name == "date":
        return day_text(value)
    if kind == "time":
        return clock_text(value, _UNITS[unit])
    if kind in ("timestamp", "local-timestamp") and unit in _UNITS:
        return moment_text(value, _UNITS[unit]) + ("Z" if kind == "timestamp" else "")
    return value
