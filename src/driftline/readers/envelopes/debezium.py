"""Reads Debezium's messages: rows before and after, the operation, and the position in the log."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import md5
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

from msgspec import Raw, Struct, ValidationError, field, json

from driftline.core.settings.row_key import placeholder_bytes
from driftline.core.support import lines_with
from driftline.core.values import raw_members
from driftline.observe.decoder import REFUSED
from driftline.readers.envelopes import mongodb
from driftline.readers.envelopes.connect_schema import WrongValue, of_field
from driftline.readers.envelopes.messages import (
    AROUND,
    DELETE,
    Changes,
    EnvelopeTerms,
    Mark,
    NotReadable,
    Opened,
    deleted,
    is_null,
    is_object,
    may_have_change,
    of_key,
    opened,
    positioned,
    record,
    snapshot_taken,
    truncate,
    usual_record,
    values_at,
    written,
)

Part: TypeAlias = "Callable[[Any], str | None]"


@dataclass(frozen=True, slots=True)
class Digits:
    """A whole number of at most so many ``digits``, of a field or of the text of digits that it has.

    Attributes:
        absent: the number in place of none.
    """

    digits: int = 20
    absent: int | None = None

    def __call__(self, value: Any) -> str | None:
        """The text of a value; None if it is no such number.

        >>> Digits(5)(42), Digits(5)("42"), Digits(5)(None), Digits(5, 0)(None), Digits(5)(-1)
        ('00042', '00042', None, '00000', None)
        """
        if value is None:
            value = self.absent
        if type(value) is int and value >= 0:  # as nearly all are
            return str(value).zfill(self.digits)
        text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
        return text.zfill(self.digits) if text.isascii() and text.isdecimal() else None


_FILE = re.compile(r"(?:.*\D)?(\d+)", re.ASCII)


def file_number(value: Any) -> str | None:
    """The number at the end of the name of a binary log.

    >>> file_number("mysql-bin.000003"), file_number("mysql-bin.1000000"), file_number("log")
    ('0000000003', '0001000000', None)
    """
    match = _FILE.fullmatch(value) if isinstance(value, str) else None
    return match and match[1].zfill(10)


_HEX = re.compile(r"[0-9a-fA-F]+(?::[0-9a-fA-F]+)*")


def hex_parts(value: Any) -> str | None:
    """The parts of a log sequence number; zero without one, as in a snapshot.

    >>> hex_parts("0000003a:00000d20:0002"), hex_parts(None)
    ('0000003a:00000d20:00000002', '00000000:00000000:00000000')
    """
    if value is None or value in ("NULL", ""):
        value = "0:0:0"
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        return None
    return ":".join(part.lower().zfill(8) for part in value.split(":"))


def plain(value: Any) -> str | None:
    """A text of a fixed width, without the blanks around it; empty without one."""
    return value.strip() if isinstance(value, str) else "" if value is None else None


class ChangeSource(Struct):
    """The fields of Debezium's `source` that give a change's position, and its place in a ``snapshot``."""

    connector: Any = None
    file: Any = None
    pos: Any = None
    row: Any = None
    lsn: Any = None
    commit_lsn: Any = None
    change_lsn: Any = None
    event_serial_no: Any = None
    commit_scn: Any = None
    scn: Any = None
    rs_id: Any = None
    ssn: Any = None
    ts_ms: Any = None
    ord: Any = None
    snapshot: Any = None


# Fields of the source from left to right, and another that has the value where one has none.
Rule: TypeAlias = "Sequence[tuple[str, Part, str | None]]"

_BINLOG: Rule = [("file", file_number, None), ("pos", Digits(), None), ("row", Digits(10, absent=0), None)]
_LSN: Rule = [("lsn", Digits(), None)]
_DB2: Rule = [("commit_lsn", hex_parts, None), ("change_lsn", hex_parts, None)]
_SQL_SERVER: Rule = [*_DB2, ("event_serial_no", Digits(10, absent=0), None)]
_ORACLE: Rule = [
    ("commit_scn", Digits(), "scn"),  # a snapshot has only the latter
    ("scn", Digits(), None),
    ("rs_id", plain, None),
    ("ssn", Digits(10, absent=0), None),
]
_OPLOG: Rule = [("ts_ms", Digits(), None), ("ord", Digits(10, absent=0), None)]

# By Debezium's name of the connector; its documentation of each has the fields of `source`.
BY_CONNECTOR: Mapping[str, Rule] = {
    "mysql": _BINLOG,
    "mariadb": _BINLOG,
    "postgresql": _LSN,
    "sqlserver": _SQL_SERVER,
    "db2": _DB2,
    "oracle": _ORACLE,
    "mongodb": _OPLOG,
}
# A source without the name of its connector is known by a field that no other has.
_BY_FIELD: Mapping[str, Rule] = {
    "file": _BINLOG,
    "lsn": _LSN,
    "commit_lsn": _SQL_SERVER,
    "scn": _ORACLE,
    "ord": _OPLOG,
}


LAST_OF_SNAPSHOT = ("last", "last_in_data_collection")  # of all tables, or of this one


def position(source: ChangeSource) -> str | None:
    """The position of a change; None if there is none that is known.

    >>> position(ChangeSource("mysql", file="bin.000003", pos=154, row=1))
    '0000000003:00000000000000000154:0000000001'
    >>> position(ChangeSource("vitess", pos=1))
    """
    if source.connector is None:
        rule = next((rule for name, rule in _BY_FIELD.items() if getattr(source, name) is not None), None)
    else:
        # An unknown connector has no position, though its fields may look like one: their order is not known.
        rule = BY_CONNECTOR.get(source.connector) if isinstance(source.connector, str) else None
    if rule is None:
        return None
    numbers = []
    for name, part, otherwise in rule:
        value = getattr(source, name)
        number = part(value if value is not None or otherwise is None else getattr(source, otherwise))
        # A position with a part missing would sort among whole ones by chance.
        if number is None:
            return None
        numbers.append(number)
    return ":".join(numbers)


_SHAPES = (
    "AQEAACDmEAAAAAAA/IPXl8EAAAD8g9eXwQ==",  # a geometry: a point far out
    "AQEAACDmEAAADCHn/f9/ZkAYQs77/39WQA==",  # a geography
)


class Placeholder:
    """The connector's placeholder ``text`` for such values, in the form that each type of column has it."""

    def __init__(self, text: str) -> None:
        raw = placeholder_bytes(text)
        spelled = raw.decode(errors="replace")
        in_base64 = b64encode(raw).decode()
        as_uuid = str(UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=3))
        hstore = {spelled: spelled}
        self._texts = tuple(map(json.encode, (spelled, in_base64)))
        self._pair = json.encode(json.encode(hstore).decode())
        self._others = [[spelled], [in_base64], [as_uuid], list(raw), hstore]
        # A message without any of these has no such value.
        numbers = rb"\s*,\s*".join(b"%d" % number for number in raw[:3])
        signs = *self._texts, self._pair, json.encode(as_uuid), b'"wkb"'
        self._patterns = {sign: re.escape(sign) for sign in signs} | {b"[": numbers}

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, text: str) -> Placeholder:
        """The placeholder of this text."""
        return cls(text)

    def places_in(self, messages: Sequence[bytes]) -> list[int]:
        """The places of messages that may have such a value."""
        return lines_with(messages, self._patterns)

    def taken_out(self, row: bytes | Raw) -> tuple[bytes | Raw, Sequence[str]]:
        """A row without the values that are left out, and the names of their fields. Raises NotReadable."""
        members = raw_members(row)
        names = [name for name, value in members.items() if self._is_it(value)]
        if names:
            row = json.encode({name: value for name, value in members.items() if name not in names})
        # The row cannot keep a part of a value, so such a record waits.
        if any(sign in bytes(row) for sign in self._texts):
            raise NotReadable("a value inside another that Debezium has left out as unavailable")
        return row, names

    def _is_it(self, value: Raw) -> bool:
        text = bytes(value)
        if text[:1] == b'"':
            return text in self._texts or text == self._pair
        if text[:1] not in (b"[", b"{"):
            return False
        decoded = json.decode(text)
        return decoded in self._others or (isinstance(decoded, dict) and decoded.get("wkb") in _SHAPES)


def available(row: bytes | Raw, terms: EnvelopeTerms) -> tuple[bytes | Raw, Sequence[str]]:
    """A row without the values that are left out, and the names of their fields. Raises NotReadable."""
    if not terms.placeholder_text:
        return row, ()
    return Placeholder.of(terms.placeholder_text).taken_out(row)


_NULL = Raw(b"null")
_TIMES = {"ts_ms", "ts_us", "ts_ns"}
# All fields of what is no change: an object with any other may be a record, and is not left out.
_TRANSACTION = _TIMES | {"status", "id", "event_count", "data_collections"}
_SCHEMA_CHANGE = _TIMES | {"source", "databaseName", "schemaName", "ddl", "tableChanges"}


class DebeziumMessage(Struct):
    """The fields that identify a message.

    In a file it may be the field `value` next to its key, or `payload` next to its schema.
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


class MessageWithSchema(Struct, forbid_unknown_fields=True):
    """A message next to the schema of its values."""

    payload: DebeziumMessage
    schema: Raw = _NULL
    message_key: Raw = field(default=_NULL, name="_key")


Value = TypeVar("Value", DebeziumMessage, MessageWithSchema)


class Dumped(Struct, Generic[Value], forbid_unknown_fields=True):
    """A message with its key, as in a dump of a topic."""

    value: Value
    key: Raw = _NULL
    topic: Any = None
    partition: Any = None
    offset: Any = None
    timestamp: Any = None
    timestampType: Any = None  # noqa: N815  as it is written
    headers: Any = None


_decode = json.Decoder(DebeziumMessage).decode
_decode_with_schema = json.Decoder(MessageWithSchema).decode
_decode_dumped = json.Decoder(Dumped[DebeziumMessage]).decode
_decode_dumped_with_schema = json.Decoder(Dumped[MessageWithSchema]).decode


def read_debezium(
    text: bytes | Raw, terms: EnvelopeTerms, key: Raw | None = None, schema: bytes | None = None
) -> Changes:
    """Read a message.

    Args:
        text: the message.
        terms: the table's terms.
        key: the Kafka message's own key.
        schema: the schema of the message's values, if it comes with one.

    Raises:
        NotReadable: no change can be read of it. What is no object raises msgspec's errors.
    """
    if isinstance(text, bytes) and (inside := _inside(text)) is not None:
        message, key, schema = inside
        return _read(text, message, terms, key, schema)
    try:
        message = _decode(text)
    except ValidationError as error:
        if not is_object(text.strip() if isinstance(text, bytes) else text):
            raise
        raise NotReadable(f"no message of Debezium's: {error}") from error
    return _read(text, message, terms, key, schema)


_WRITES = ("c", "u", "r")
_Change: TypeAlias = "tuple[DebeziumMessage, Raw, bytes | None]"  # with the message's key, and its schema


def usual_records(
    messages: Sequence[bytes], terms: EnvelopeTerms, incomplete: Container[int]
) -> Sequence[bytes | None]:
    """Read messages that write a row and leave its key as it is, as nearly all do.

    Args:
        messages: the messages; all are dumps of a topic or none is, as the first of them.
        terms: the table's terms.
        incomplete: the places of messages that may leave values out.

    Returns:
        Their records, and None for each message that `read_debezium` has to read.
    """
    records: list[bytes | None] = [None] * len(messages)
    is_dumped = bool(messages) and messages[0].startswith(b'{"key"')
    doubtful = set(may_have_change(messages))
    for place, text in enumerate(messages):
        try:
            message = _decode_dumped(text).value if is_dumped else _decode(text)
            source, row = message.source, bytes(message.after)
            if source is None or message.op not in _WRITES or not row.startswith(b'{"'):
                continue
            at = position(source)
            if at is None or bytes(message.before) != b"null" or _ends_snapshot(message):
                continue
            if place in incomplete:
                part, unavailable = available(row, terms)
                records[place] = record(part, message.op, at, terms.kept(unavailable))
            else:
                records[place] = (record if place in doubtful else usual_record)(row, message.op, at)
        except (*REFUSED, NotReadable):
            continue  # read by itself, it gets the reason
    return records


def _inside(text: bytes) -> _Change | None:
    """Take a change out of a dump, or from beside its schema, in one pass; None for any other text."""
    try:
        # Dumps of topics, and Kafka Connect's converter, begin so.
        if text.startswith(b'{"key"'):
            if b'"payload"' in text:
                dumped = _decode_dumped_with_schema(text)
                return _beside_schema(dumped.value, dumped.key)
            plain_dump = _decode_dumped(text)
            return None if plain_dump.value.op is None else (plain_dump.value, plain_dump.key, None)
        if text.startswith((b'{"schema"', b'{"payload"')):
            return _beside_schema(_decode_with_schema(text), _NULL)
    except ValidationError:
        pass  # taken apart step by step, it gets the reason
    return None


def _beside_schema(value: MessageWithSchema, key: Raw) -> _Change | None:
    if value.payload.op is None:
        return None
    key = key if is_null(value.message_key) else value.message_key
    return value.payload, key, None if is_null(value.schema) else bytes(value.schema)


def _read(
    text: bytes | Raw, message: DebeziumMessage, terms: EnvelopeTerms, key: Raw | None, schema: bytes | None
) -> Changes:
    key = key if is_null(message.message_key) else message.message_key
    if message.op is None:
        return _without_op(text, message, terms, key)
    if message.op in (*_WRITES, DELETE) and _is_of_mongodb(message):
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
        return _value_at("payload", message.payload, terms, key, fields.get("schema"))
    if "value" in members and members <= AROUND:
        return _value_at("value", message.value, terms, key if is_null(message.key) else message.key)
    if not members and fields:
        return Mark("tombstone")
    if members and members <= _TIMES:
        return Mark("heartbeat")
    if {"status", "id"} <= members <= _TRANSACTION and message.status in ("BEGIN", "END"):
        return Mark("transaction mark")
    if members & {"ddl", "tableChanges"} and "source" in members and members <= _SCHEMA_CHANGE:
        return Mark("schema change")
    raise NotReadable("no message of Debezium's: it has no op")


def _value_at(
    name: str, text: Raw, terms: EnvelopeTerms, key: Raw | None, schema: Raw | None = None
) -> Changes:
    """Read a message that stands as the field ``name`` of another object, with its ``schema`` or null."""
    if is_null(text):
        return Mark("tombstone")
    if not is_object(text):
        raise NotReadable(f"no object in `{name}`")
    return read_debezium(text, terms, key, None if schema is None or is_null(schema) else bytes(schema))


def _decoded(name: str, row: Raw, schema: bytes) -> Raw:
    """Decode a row by its schema."""
    if not is_object(row):
        return row
    try:
        return of_field(schema, name)(row)
    except WrongValue as error:
        raise NotReadable(str(error)) from None


def _writes(message: DebeziumMessage, terms: EnvelopeTerms, unavailable: Sequence[str]) -> Changes:
    """The record after a change; where its key was another before, the one that goes, too."""
    after = message.after
    if not is_object(after):
        raise NotReadable(_no_row("after", message))
    place = _position(message, terms)
    marked = terms.kept(unavailable)
    # With it, an update that changed the key is seen: the old key's row has to go.
    before = message.before if is_object(message.before) else None
    records = written(after, before, str(message.op), place, terms, marked)
    return snapshot_taken(records, place, terms) if _ends_snapshot(message) else records


def _ends_snapshot(message: DebeziumMessage) -> bool:
    """True for the last record that a snapshot has of its table. Those of MongoDB may differ in position."""
    source = message.source
    if message.op != "r" or source is None or source.connector == "mongodb":
        return False
    # An incremental snapshot has no last record, and so removes nothing.
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
    place = None if source is None else position(source)
    if place is not None:
        return place
    if source is None or source.connector is None:
        without = "no `source` that says where the change stood"
    else:
        without = (
            f"none in its `source`, of connector {source.connector!r}, by which changes could be ordered"
        )
    return positioned(None, terms, without)


_OPERATIONS = ("c", "u", "r", "d", None)
_FLAGS: Mapping[Any, bool] = {"true": True, True: True, "false": False, False: False, None: False}
# Of `lsn` and of `source.lsn` in Debezium's setting `add.fields`, by their names in the row.
_IN_SOURCE = {
    prefix + name: name
    for prefix in ("__", "__source_")
    for name in ChangeSource.__struct_fields__
    if name not in ("ts_ms", "snapshot")
}
_TIME = "time:"  # before a position that is one
_UNWRAPPED_TIMES = {
    "__source_ts_ns": 0,
    "__source_ts_us": 3,
    "__source_ts_ms": 6,
}  # and the zeros to nanoseconds


def read_unwrapped(text: bytes | Raw, terms: EnvelopeTerms) -> Changes:
    """Read a message: the row with all its fields.

    Raises NotReadable, and msgspec's errors for what is no object.
    """
    message = opened(text)
    if isinstance(message, Mark):
        raise NotReadable(
            "a tombstone, which does not say where it stood: a delete is read of the field __deleted, which"
            " Debezium adds with delete.tombstone.handling.mode = rewrite"
        )
    operation, flag = message.value("__op"), message.value("__deleted")
    if operation == "t":
        return truncate(_unwrapped_position(message), terms)
    if operation not in _OPERATIONS:
        raise NotReadable(f"__op {operation!r} is none of Debezium's: c, u, r, d, t")
    if not isinstance(flag, str | bool | None) or flag not in _FLAGS:
        raise NotReadable(f"__deleted {flag!r} is neither true nor false")
    place = positioned(
        _unwrapped_position(message),
        terms,
        "no field that says where the change stood, such as __lsn: name it in add.fields",
    )
    row: bytes | Raw = json.encode(message.fields)
    if _FLAGS[flag] or operation == "d":
        return [deleted(Raw(row), message.key, place, terms)]
    row, unavailable = available(row, terms)
    records = written(row, None, operation or "u", place, terms, terms.kept(unavailable))
    return snapshot_taken(records, place, terms) if _unwrapped_ends_snapshot(message, place) else records


def _unwrapped_ends_snapshot(message: Opened, place: str | None) -> bool:
    """True for the last record of a snapshot, if its position is that of all: the source's time is not."""
    places = map(message.value, ("__snapshot", "__source_snapshot"))
    is_last = message.value("__op") == "r" and any(place in LAST_OF_SNAPSHOT for place in places)
    return is_last and not (place or "").startswith(_TIME)


def _unwrapped_position(message: Opened) -> str | None:
    """The place in the log; without any field of it, the time of the source's change, which sorts behind.

    >>> _unwrapped_position(opened(b'{"id": 7, "__source_file": "bin.000003", "__source_pos": 154}'))
    '0000000003:00000000000000000154:0000000000'
    >>> _unwrapped_position(opened(b'{"id": 7, "__source_ts_ms": 1700000000000}'))
    'time:01700000000000000000'
    """
    source: dict[str, Any] = {}
    for name, in_source in _IN_SOURCE.items():
        if name in message.fields and (value := message.value(name)) is not None:
            source[in_source] = value
    if source.keys() - {"connector"}:
        return position(ChangeSource(**source, ts_ms=message.value("__source_ts_ms")))
    for name, zeros in _UNWRAPPED_TIMES.items():
        if (time := Digits(20 - zeros)(message.value(name))) is not None:
            return f"{_TIME}{time}{'0' * zeros}"
    return None
