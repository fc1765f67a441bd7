"""Messages of Debezium: `before` and `after` of a row, `op`, and the `source` that says where it stood."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import md5
from typing import Any
from uuid import UUID

from msgspec import Raw, Struct, ValidationError, field, json

from driftline.readers.envelopes import connect_schema, mongodb
from driftline.readers.envelopes.change import (
    DELETE,
    MARKED,
    REFUSED_VALUES,
    Changes,
    EnvelopeTerms,
    Mark,
    NotReadable,
    is_null,
    is_object,
    of_key,
    record,
    split,
    values_at,
)
from driftline.readers.envelopes.opened import AROUND, truncate, written
from driftline.readers.envelopes.positions import ChangeSource, position

_NULL = Raw(b"null")
_TIMES = {"ts_ms", "ts_us", "ts_ns"}
# All fields of what is no change: an object with any other may be a record, and is not left out.
_TRANSACTION = _TIMES | {"status", "id", "event_count", "data_collections"}
_SCHEMA_CHANGE = _TIMES | {"source", "databaseName", "schemaName", "ddl", "tableChanges"}


def _null() -> Raw:
    return _NULL


class DebeziumMessage(Struct):
    """The fields of a message that tell what it is; in a file it may stand beside its key, as `value`, and
    its schema, as `payload`.
    """

    op: Any = None
    status: Any = None
    before: Raw = field(default_factory=_null)
    after: Raw = field(default_factory=_null)
    update: Raw = field(default_factory=_null, name="updateDescription")
    source: ChangeSource | None = None
    message_key: Raw = field(default_factory=_null, name="_key")
    key: Raw = field(default_factory=_null)
    value: Raw = field(default_factory=_null)
    payload: Raw = field(default_factory=_null)


_decode = json.Decoder(DebeziumMessage).decode

# Values that were too large and did not change: PostgreSQL does not send them, and what stands in their place
# depends on the column's type (Debezium's UnchangedToastedPlaceholder).
_PLACEHOLDER = b"__debezium_unavailable_value"
_IN_BASE64 = b64encode(_PLACEHOLDER)
PLACEHOLDERS = _PLACEHOLDER, _IN_BASE64
_AS_UUID = str(UUID(bytes=md5(_PLACEHOLDER, usedforsecurity=False).digest(), version=3)).encode()
_WELL_KNOWN = (
    b64encode(bytes.fromhex("0101000020E6100000000000FC83D797C1000000FC83D797C1")),  # a geometry
    b64encode(bytes.fromhex("0101000020E61000000C21E7FDFF7F66401842CEFBFF7F5640")),  # a geography
)
_UNAVAILABLE = {
    b'"%b"' % _PLACEHOLDER,
    b'"%b"' % _IN_BASE64,
    b'["%b"]' % _PLACEHOLDER,
    b'["%b"]' % _IN_BASE64,
    b'["%b"]' % _AS_UUID,
    b"[%b]" % b",".join(b"%d" % byte for byte in _PLACEHOLDER),
    b'{"%b":"%b"}' % (_PLACEHOLDER, _PLACEHOLDER),
    b'"{\\"%b\\":\\"%b\\"}"' % (_PLACEHOLDER, _PLACEHOLDER),
}


def read(
    text: bytes | Raw, terms: EnvelopeTerms, key: Raw | None = None, schema: bytes | None = None
) -> Changes:
    """Read a message. ``key``: the Kafka message's own; ``schema``: of the message's values, if it comes
    with one. Raises NotReadable, and msgspec's errors for what is no object.
    """
    try:
        message = _decode(text)
    except ValidationError as error:
        if not is_object(text.strip() if isinstance(text, bytes) else text):
            raise
        raise NotReadable(f"no message of Debezium's: {error}") from error
    key = key if is_null(message.message_key) else message.message_key
    if message.op is None:
        return _without_op(text, message, terms, key)
    if message.op in ("c", "u", "r", DELETE) and _is_of_mongodb(message):
        texts = {"before": message.before, "after": message.after, "updateDescription": message.update}
        return mongodb.read(texts, message.op, key, _position(message, terms), terms)
    unavailable: Sequence[str] = ()
    if is_object(message.after):
        message.after, unavailable = _without_unavailable(message.after)
    if schema is not None:
        message.before = _decoded("before", message.before, schema)
        message.after = _decoded("after", message.after, schema)
    match message.op:
        case "c" | "u" | "r":
            return _writes(message, terms, unavailable)
        case "d":
            return [_deleted(message, terms, key)]
        case "m":
            return Mark("log message")
        case "t":
            return truncate(None if message.source is None else position(message.source), terms)
    raise NotReadable(f"op {message.op!r} is none of Debezium's: c, u, r, d, t, m")


def _without_op(
    text: bytes | Raw, message: DebeziumMessage, terms: EnvelopeTerms, key: Raw | None
) -> Changes:
    """Read what stands around a message, or what is no change."""
    fields = split(text)
    members = fields.keys() - {"_key"}
    if "payload" in members and members <= {"schema", "payload"}:
        return _inside("payload", message.payload, terms, key, fields.get("schema"))
    if "value" in members and members <= AROUND:
        return _inside("value", message.value, terms, key if is_null(message.key) else message.key)
    if not members and fields:
        return Mark("tombstone")
    if members and members <= _TIMES:
        return Mark("heartbeat")
    if {"status", "id"} <= members <= _TRANSACTION and message.status in ("BEGIN", "END"):
        return Mark("transaction mark")
    if members & {"ddl", "tableChanges"} and "source" in members and members <= _SCHEMA_CHANGE:
        return Mark("schema change")
    raise NotReadable("no message of Debezium's: it has no op")


def _inside(
    name: str, text: Raw, terms: EnvelopeTerms, key: Raw | None, schema: Raw | None = None
) -> Changes:
    """Read a message that stands as the field ``name`` of another object, with its ``schema`` or null."""
    if is_null(text):
        return Mark("tombstone")
    if not is_object(text):
        raise NotReadable(f"no object in `{name}`")
    return read(text, terms, key, None if schema is None or is_null(schema) else bytes(schema))


def _without_unavailable(row: Raw) -> tuple[Raw, Sequence[str]]:
    """A row without the values that Debezium has left out, and the names of their fields."""
    text = bytes(row)
    if not (
        _PLACEHOLDER in text or _IN_BASE64 in text or _AS_UUID in text or b"95," in text or b'"wkb"' in text
    ):
        return row, ()
    members = split(row)
    names = [name for name, value in members.items() if _is_unavailable(value)]
    available = Raw(json.encode({name: value for name, value in members.items() if name not in names}))
    if any(b'"%b"' % sign in bytes(available) for sign in PLACEHOLDERS):
        raise NotReadable("a value inside another that Debezium has left out as unavailable")
    return available, names


def _is_unavailable(value: Raw) -> bool:
    text = bytes(value)
    if text[:1] != b'"':
        text = b"".join(text.split())
    if text in _UNAVAILABLE:
        return True
    return text[:1] == b"{" and any(b'"wkb":"%b"' % sign in text for sign in _WELL_KNOWN)


def _decoded(name: str, row: Raw, schema: bytes) -> Raw:
    """A row with the values that its schema tells."""
    if not is_object(row):
        return row
    try:
        return connect_schema.of_field(schema, name)(row)
    except connect_schema.WrongValue as error:
        raise NotReadable(str(error)) from None


def _writes(message: DebeziumMessage, terms: EnvelopeTerms, unavailable: Sequence[str]) -> Changes:
    """The record after a change; where its key was another before, the one that goes, too."""
    after = message.after
    if not is_object(after):
        raise NotReadable(_no_row("after", message))
    if unavailable and terms.unavailable == REFUSED_VALUES:
        raise NotReadable(
            f"`{unavailable[0]}` is a value that Debezium has left out as unavailable, which rows with "
            "deletes = soft do not keep"
        )
    place = _position(message, terms)
    marked = unavailable if terms.unavailable == MARKED else ()
    before = message.before if is_object(message.before) else None
    return written(after, before, str(message.op), place, terms, marked)


def _deleted(message: DebeziumMessage, terms: EnvelopeTerms, key: Raw | None) -> bytes:
    """The record that goes, which has its key: that of `before`, or of the message."""
    place = _position(message, terms)
    if is_object(message.before) and None not in values_at(message.before, terms.key):
        return record(message.before, DELETE, place)
    if not is_null(message.before) and not is_object(message.before):
        raise NotReadable(_no_row("before", message))
    if (gone := of_key(key, terms.key)) is None:
        raise NotReadable("a delete without its key: neither `before` nor the message's key has it")
    return record(gone, DELETE, place)


def _is_of_mongodb(message: DebeziumMessage) -> bool:
    """True for documents as texts; some transforms make objects of them."""
    return (
        message.source is not None
        and message.source.connector == "mongodb"
        and not (is_object(message.before) or is_object(message.after))
    )


def _no_row(name: str, message: DebeziumMessage) -> str:
    return f"op {message.op!r} without an object in `{name}`"


def _position(message: DebeziumMessage, terms: EnvelopeTerms) -> str | None:
    place = None if message.source is None else position(message.source)
    if place is None and terms.by_position:
        connector = None if message.source is None else message.source.connector
        raise NotReadable(
            "no `source` that says where the change stood"
            if connector is None
            else f"no position in its `source`, of connector {connector!r}, by which changes could be ordered"
        )
    return place
