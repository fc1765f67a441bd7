"""Messages of Debezium: `before` and `after` of a row, `op`, and the `source` that says where it stood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct, ValidationError, field, json

from driftline.core.values import raw_members
from driftline.readers.envelopes import connect_schema, mongodb
from driftline.readers.envelopes.change import (
    DELETE,
    Changes,
    EnvelopeTerms,
    Mark,
    NotReadable,
    is_null,
    is_object,
    of_key,
    record,
    values_at,
)
from driftline.readers.envelopes.log_positions import LAST_OF_SNAPSHOT, ChangeSource, position
from driftline.readers.envelopes.opened import AROUND, positioned, snapshot_taken, truncate, written
from driftline.readers.envelopes.unavailable import available

_NULL = Raw(b"null")
_TIMES = {"ts_ms", "ts_us", "ts_ns"}
# All fields of what is no change: an object with any other may be a record, and is not left out.
_TRANSACTION = _TIMES | {"status", "id", "event_count", "data_collections"}
_SCHEMA_CHANGE = _TIMES | {"source", "databaseName", "schemaName", "ddl", "tableChanges"}


class DebeziumMessage(Struct):
    """The fields of a message that tell what it is; in a file it may stand beside its key, as `value`, and
    its schema, as `payload`.
    """

    op: Any = None
    status: Any = None
    before: Raw = _NULL
    after: Raw = _NULL
    update: Raw = field(default=_NULL, name="updateDescription")
    source: ChangeSource | None = None
    message_key: Raw = field(default=_NULL, name="_key")
    key: Raw = _NULL
    value: Raw = _NULL
    payload: Raw = _NULL


class DumpedMessage(Struct, forbid_unknown_fields=True):
    """A message beside its key, as a dump of a topic has it."""

    value: DebeziumMessage
    key: Raw = _NULL
    topic: Any = None
    partition: Any = None
    offset: Any = None
    timestamp: Any = None
    timestampType: Any = None  # noqa: N815  as it is written
    headers: Any = None


_decode = json.Decoder(DebeziumMessage).decode
_decode_dumped = json.Decoder(DumpedMessage).decode


def read(
    text: bytes | Raw, terms: EnvelopeTerms, key: Raw | None = None, schema: bytes | None = None
) -> Changes:
    """Read a message. ``key``: the Kafka message's own; ``schema``: of the message's values, if it comes
    with one. Raises NotReadable, and msgspec's errors for what is no object.
    """
    if isinstance(text, bytes) and (dumped := _dumped(text)) is not None:
        return _read(text, dumped.value, terms, dumped.key, None)
    try:
        message = _decode(text)
    except ValidationError as error:
        if not is_object(text.strip() if isinstance(text, bytes) else text):
            raise
        raise NotReadable(f"no message of Debezium's: {error}") from error
    return _read(text, message, terms, key, schema)


def _dumped(text: bytes) -> DumpedMessage | None:
    """A message of a dump without a schema, read at once; None for any other text."""
    if not text.startswith(b'{"key"') or b'"payload"' in text:
        return None
    try:
        dumped = _decode_dumped(text)
    except ValidationError:
        return None
    return None if dumped.value.op is None else dumped


def _read(
    text: bytes | Raw, message: DebeziumMessage, terms: EnvelopeTerms, key: Raw | None, schema: bytes | None
) -> Changes:
    key = key if is_null(message.message_key) else message.message_key
    if message.op is None:
        return _without_op(text, message, terms, key)
    if message.op in ("c", "u", "r", DELETE) and _is_of_mongodb(message):
        texts = {"before": message.before, "after": message.after, "updateDescription": message.update}
        return mongodb.read(texts, message.op, key, _position(message, terms), terms)
    unavailable: Sequence[str] = ()
    if is_object(message.after):
        row, unavailable = available(message.after, terms)
        message.after = row if isinstance(row, Raw) else Raw(row)
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
    fields = raw_members(text)
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
    place = _position(message, terms)
    marked = terms.kept(unavailable)
    before = message.before if is_object(message.before) else None
    records = written(after, before, str(message.op), place, terms, marked)
    return snapshot_taken(records, place, terms) if _ends_snapshot(message) else records


def _ends_snapshot(message: DebeziumMessage) -> bool:
    """True for the last record that a snapshot has of its table. Those of MongoDB may differ in position."""
    source = message.source
    if message.op != "r" or source is None or source.connector == "mongodb":
        return False
    return source.snapshot in LAST_OF_SNAPSHOT


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
    source = message.source
    if source is None or source.connector is None:
        without = "no `source` that says where the change stood"
    else:
        without = (
            f"none in its `source`, of connector {source.connector!r}, by which changes could be ordered"
        )
    return positioned(None if source is None else position(source), terms, without)
