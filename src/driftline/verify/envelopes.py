"""Reads messages in envelopes for the check, with code of its own over parsed JSON."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from driftline.core.schema.definition import CHANGE, POSITION
from driftline.core.schema.types import Path
from driftline.core.settings.row_key import RowKey
from driftline.verify.change_feeds import (
    NoDocument,
    SentChange,
    UnreadMessage,
    changes_in,
    id_of,
    named_by_itself,
    truncate_of,
    unwrapped_row,
)
from driftline.verify.change_feeds import mongodb_changes as document_changes
from driftline.verify.files import Read
from driftline.verify.json_texts import MalformedText, parse
from driftline.verify.moments import clock_text, day_text, moment_text

if TYPE_CHECKING:
    from pyspark import RDD

Record: TypeAlias = "dict[str, Any]"
_TIMES = ("ts_ms", "ts_us", "ts_ns")
# Points that stand for a geometry that a message does not have, as WKB in base64.
_SHAPES = (
    "AQEAACDmEAAAAAAA/IPXl8EAAAD8g9eXwQ==",  # a point at -99999999 -99999999
    "AQEAACDmEAAADCHn/f9/ZkAYQs77/39WQA==",  # a point at 179.999999 89.999999
)
# The names that may stand next to a message inside another object.
AROUND = {"key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"}
_WRAPPERS = {"payload": {"payload", "schema"}, "value": AROUND}


class Unreadable(Exception):
    """A message of which no change can be read, which must be in quarantine; the message says why."""


def unwrapped(reads: RDD[Read], row_key: RowKey, *, truncated: bool = False) -> RDD[Read]:
    """The records of a source; those in the messages of one, if they come in an envelope.

    Args:
        truncated: the table knows of a truncate; else such a message must be in quarantine.
    """
    return reads.flatMap(partial(records_in, row_key, truncated=truncated)) if row_key.envelope else reads


def last_truncate(reads: RDD[Read], row_key: RowKey) -> str:
    """The position of the last truncate in a source; empty without one."""
    places = reads.map(partial(_truncate_in, row_key)).filter(bool)
    return places.fold("", max)


def _truncate_in(row_key: RowKey, read: Read, *, snapshots: bool = True) -> str:
    """The position of the truncate that a message is; empty for any other.

    Args:
        snapshots: the last record of a complete snapshot is one too, if the table reconciles.
    """
    message = read.record
    if message is None or row_key.soft or row_key.order_by != (POSITION,):
        return ""
    # A message may stand in both: the value of a dumped record, with a schema around its payload.
    for _ in range(len(_WRAPPERS)):
        for name, around in _WRAPPERS.items():
            if isinstance(message.get(name), dict) and set(message) - {"_key"} <= around:
                message = message[name]
    if snapshots and row_key.reconciles and _ends_snapshot(row_key.envelope, message):
        try:
            records = _READERS[row_key.envelope](message, row_key, message.get("_key"))
        except Unreadable:
            return ""
        place: str = records[-1][CHANGE].get("position") or ""
        # Records of a snapshot share their position in the log; times differ from record to record.
        return "" if place.startswith("time:") else place
    return truncate_of(row_key.envelope, message, _position) or ""


def _ends_snapshot(envelope: str, message: Record) -> bool:
    """True for the last record that a snapshot has of its table."""
    ends = ("last", "last_in_data_collection")
    source = message.get("source")
    if envelope != "debezium" and "__op" in message:
        return message["__op"] == "r" and (
            message.get("__snapshot") in ends or message.get("__source_snapshot") in ends
        )
    known = (
        isinstance(source, dict) and source.get("connector") != "mongodb" and source.get("snapshot") in ends
    )
    return envelope != "debezium-unwrapped" and message.get("op") == "r" and known


def records_in(row_key: RowKey, read: Read, *, truncated: bool = False) -> Iterator[Read]:
    """The records that a message is about, each with the message; none for one that says nothing of a row."""
    if read.record is None:
        yield read
        return
    if truncated and _truncate_in(row_key, read, snapshots=False):
        return
    message = read.record if read.message is None else read.message
    try:
        for record in _READERS[row_key.envelope](read.record, row_key, read.record.get("_key")):
            yield replace(read, record=record, message=message)
    except Unreadable as error:
        yield replace(read, reason=str(error))


def _debezium(message: Record, row_key: RowKey, key: Any, schema: Any = None) -> list[Record]:
    names = set(message) - {"_key"}
    if "op" not in message or message["op"] is None:
        for inner, outer_key in (("payload", key), ("value", message.get("key", key))):
            if inner in message and names <= _WRAPPERS[inner]:
                value = message[inner]
                if value is None:
                    return []
                if not isinstance(value, dict):
                    raise Unreadable(f"no object in {inner}")
                return _debezium(
                    value, row_key, outer_key, message.get("schema") if inner == "payload" else None
                )
        if message and _changes_nothing(message, names):
            return []
        raise Unreadable("no op")
    op, before, after = message["op"], message.get("before"), message.get("after")
    lacking: list[str] = []
    if op in ("c", "u", "r", "d") and isinstance(after, dict):
        after, lacking = _available(after, row_key.placeholder)
    if schema is not None and op in ("c", "u", "r", "d"):
        before, after = _by_schema(schema, "before", before), _by_schema(schema, "after", after)
    if op == "m":
        return []
    if op not in ("c", "u", "r", "d"):
        raise Unreadable(f"op {op!r}")
    source = message.get("source")
    place = _position(source) if isinstance(source, dict) else None
    if place is None and POSITION in row_key.order_by:
        raise Unreadable("no position")
    is_document = isinstance(source, dict) and source.get("connector") == "mongodb"
    if is_document and not isinstance(before, dict) and not isinstance(after, dict):
        return _documents(op, message, row_key, key, place)
    if op == "d":
        return [_changed(_going(before, row_key, key), "d", place)]
    if not isinstance(after, dict):
        raise Unreadable("no row after the change")
    written = _written(after, op, place, lacking, row_key)
    was = _values(before, row_key)
    if not isinstance(before, dict) or None in was or was == _values(after, row_key):
        return [written]
    # The key has changed: the row of the old one has to go.
    return [_changed(before, "d", place), written]


def _written(row: Record, op: str, place: str | None, lacking: list[str], row_key: RowKey) -> Record:
    """The record after a change, with the names of the fields whose values the message does not have."""
    if lacking and row_key.soft:
        raise Unreadable("an unavailable value, where deletes are soft")
    written = _changed(row, op, place)
    if lacking and not row_key.patch:
        written[CHANGE]["unavailable"] = json.dumps(
            sorted(lacking), separators=(",", ":"), ensure_ascii=False
        )
    return written


def _by_schema(schema: Any, name: str, row: Any) -> Any:
    if not isinstance(schema, dict):
        raise Unreadable("a schema that is none of Kafka Connect's")
    return decoded(row, field_schema(schema, name)) if isinstance(row, dict) else row


def _documents(op: str, message: Record, row_key: RowKey, key: Any, place: str | None) -> list[Record]:
    """The records in a change of a document of MongoDB."""
    if isinstance(key, dict) and set(key) == {"schema", "payload"}:
        key = decoded(key["payload"], key["schema"])
    id_ = id_of(key) if row_key.key == (("_id",),) else None
    try:
        changes = document_changes(
            op, message, id_, patch=row_key.patch, known=lambda row: None not in _values(row, row_key)
        )
    except NoDocument as error:
        raise Unreadable(str(error)) from error
    return [_changed(change.row, change.op, place) for change in changes]


def _available(row: Record, placeholder: str) -> tuple[Record, list[str]]:
    """A row without the fields whose values the message does not have, and the names of these."""
    forms = _Forms.of(placeholder)
    lacking = [name for name, value in row.items() if forms.stand_for_none(value)]
    available = {name: value for name, value in row.items() if name not in lacking}
    if forms.are_in(available):
        raise Unreadable("an unavailable value inside another")
    return available, lacking


class _Forms(NamedTuple):
    """The forms of the placeholder for a value that a message does not have."""

    text: str
    encoded: str
    numbers: list[int]
    uuid: str

    @classmethod
    def of(cls, placeholder: str) -> _Forms:
        raw = bytes.fromhex(placeholder[4:]) if placeholder[:4] == "hex:" else placeholder.encode()
        digest = bytearray(hashlib.md5(raw, usedforsecurity=False).digest())
        # Java's `UUID.nameUUIDFromBytes`: version 3 without a namespace, which Python's `uuid3` would hash as
        # well.
        digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
        named = re.sub("(.{8})(.{4})(.{4})(.{4})(.{12})", r"\1-\2-\3-\4-\5", digest.hex())
        return cls(raw.decode(errors="replace"), base64.b64encode(raw).decode(), list(raw), named)

    def stand_for_none(self, value: Any) -> bool:
        """True if the value is the placeholder, in any form."""
        match value:
            case str():
                pair = json.dumps(self.text, ensure_ascii=False)
                return value in (self.text, self.encoded, f"{{{pair}:{pair}}}")
            case [one] if one in (self.text, self.encoded, self.uuid):
                return True
            case list():
                return value == self.numbers
            case {"wkb": shape}:
                return shape in _SHAPES
            case dict():
                return value == {self.text: self.text}
        return False

    def are_in(self, value: Any) -> bool:
        """True if it is somewhere inside the value."""
        if isinstance(value, dict):
            return any(self.are_in(part) for entry in value.items() for part in entry)
        if isinstance(value, list):
            return any(map(self.are_in, value))
        return value in (self.text, self.encoded)


def _changes_nothing(message: Record, names: set[str]) -> bool:
    """True for a tombstone's key alone, a heartbeat, a transaction's begin or end, and a schema change."""
    if names <= set(_TIMES):
        return True
    others = names - set(_TIMES)
    if others <= {"status", "id", "event_count", "data_collections"}:
        return "id" in others and message.get("status") in ("BEGIN", "END")
    return (
        others <= {"source", "databaseName", "schemaName", "ddl", "tableChanges"}
        and "source" in others
        and bool(others & {"ddl", "tableChanges"})
    )


def _going(before: Any, row_key: RowKey, key: Any) -> Record:
    """The record with the key of a row that goes."""
    if isinstance(before, dict) and None not in _values(before, row_key):
        return before
    if isinstance(key, str) and key.lstrip().startswith("{"):
        with suppress(MalformedText):
            key = parse(key.encode())
    if isinstance(key, dict) and set(key) == {"schema", "payload"}:
        key = decoded(key["payload"], key["schema"])
    if isinstance(key, dict):
        return key
    if key is None or len(row_key.key) != 1 or len(row_key.key[0]) != 1:
        raise Unreadable("a delete without its key")
    return {row_key.key[0][0]: key}


def _values(row: Any, row_key: RowKey) -> list[Any]:
    return [_value(row, path) for path in row_key.key]


def _value(row: Any, path: Path) -> Any:
    for step in path:
        row = row.get(step) if isinstance(row, dict) else None
    return row


def _changed(record: Record, op: str, place: str | None) -> Record:
    if CHANGE in record:
        raise Unreadable(f"a field {CHANGE} of its own")
    return {**record, CHANGE: {"op": op} if place is None else {"op": op, "position": place}}


# Values by their schema ----------------------------------------------------------------------------------

# Kafka Connect's, and Debezium's: code of its own, which shares nothing with the readers'.

_DIGITS = {"": 0, "Milli": 3, "Micro": 6, "Nano": 9}  # behind the second, by the type's name
_CONNECT = "org.apache.kafka.connect.data."
_CLOCKS = {"io.debezium.time.Time": 3, f"{_CONNECT}Time": 3} | {
    f"io.debezium.time.{unit}Time": digits for unit, digits in _DIGITS.items() if digits > 3
}
_MOMENTS = {"io.debezium.time.Timestamp": 3, f"{_CONNECT}Timestamp": 3} | {
    f"io.debezium.time.{unit}Timestamp": digits for unit, digits in _DIGITS.items() if digits > 3
}
_DAYS = ("io.debezium.time.Date", f"{_CONNECT}Date")
NAMED_TYPES = {
    f"{_CONNECT}Decimal", "io.debezium.data.VariableScaleDecimal", "io.debezium.data.Bits",
    *_CLOCKS, *_MOMENTS, *_DAYS,
}  # fmt: skip


def decoded(value: Any, schema: Any) -> Any:
    """Decode a value by its schema. Raises Unreadable."""
    if value is None or schema is None:
        return value
    if not isinstance(schema, dict):
        raise Unreadable("a schema that is none of Kafka Connect's")
    try:
        return _named(value, schema)
    except Unreadable:
        raise
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"no {schema.get('name') or schema.get('type')}") from error


def field_schema(schema: Any, name: str) -> Any:
    """The schema of one field of a struct; None without one."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return next((f for f in fields or () if isinstance(f, dict) and f.get("field") == name), None)


def _named(value: Any, schema: Mapping[str, Any]) -> Any:
    name, parameters = schema.get("name"), schema.get("parameters") or {}
    if name == f"{_CONNECT}Decimal":
        scale = int(parameters.get("scale") or 0)
        return _decimal(value, scale) if isinstance(value, str) else _number_of(value, scale)
    if name == "io.debezium.data.VariableScaleDecimal":
        return _decimal(value["value"], _whole_number(value["scale"]))
    if name in _DAYS:
        return day_text(_whole_number(value))
    if name in _CLOCKS:
        return clock_text(_whole_number(value), _CLOCKS[name])
    if name in _MOMENTS:
        return moment_text(_whole_number(value), _MOMENTS[name])
    if name == "io.debezium.data.Bits":
        return _bits(_bytes(value), int(parameters.get("length") or 0))
    return _container(value, schema)


def _container(value: Any, schema: Mapping[str, Any]) -> Any:
    match schema.get("type"):
        case "struct":
            if not isinstance(value, dict):
                raise Unreadable("no struct")
            members = dict(value)
            for f in schema.get("fields") or ():
                if f["field"] in members:
                    members[f["field"]] = decoded(members[f["field"]], f)
            return members
        case "array":
            if not isinstance(value, list):
                raise Unreadable("no array")
            return [decoded(item, schema.get("items")) for item in value]
        case "map" if isinstance(value, list):
            return [_pair(pair, schema) for pair in value]
        case "map":
            return {key: decoded(item, schema.get("values")) for key, item in value.items()}
        case type_ if not _has_type(value, type_):
            raise Unreadable(f"{value!r} is no {type_}")
    return value


def _pair(pair: Any, schema: Mapping[str, Any]) -> list[Any]:
    if not isinstance(pair, list):
        raise Unreadable("no pair of a key and a value")
    key, item = pair
    return [decoded(key, schema.get("keys")), decoded(item, schema.get("values"))]


def _has_type(value: Any, type_: Any) -> bool:
    """True for a value of a type of Kafka Connect's without a name, or of one that is unknown."""
    match type_:
        case "int8" | "int16" | "int32" | "int64":
            largest = 2 ** (int(type_[3:]) - 1) - 1
            return isinstance(value, int) and not isinstance(value, bool) and -largest - 1 <= value <= largest
        case "float" | "double":
            if isinstance(value, str):
                return value in ("NaN", "Infinity", "-Infinity")
            if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
                return False
            return _is_within(value, "<f" if type_ == "float" else "<d")
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "bytes":
            return isinstance(_bytes(value), bytes)
    return True


def _is_within(value: float | Decimal, width: str) -> bool:
    """True for a number that is not beyond a floating-point type of this width."""
    try:
        number = float(value)
        struct.pack(width, number)
    except OverflowError:
        return False
    return math.isfinite(number)


def _whole_number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Unreadable(f"{value!r} is no whole number")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise Unreadable(f"{value!r} is no base64")
    return base64.b64decode(value, validate=True)


def _decimal(value: Any, scale: int) -> int | Decimal:
    digits = Decimal(int.from_bytes(_bytes(value), "big", signed=True))
    number = Decimal((*digits.as_tuple()[:2], -scale))
    # A message may name any scale; as an integer, each of its zeros would be a digit.
    return int(number) if scale <= 0 and len(digits.as_tuple().digits) - scale < 300 else number


def _number_of(value: Any, scale: int) -> Any:
    """A decimal that is written as a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise Unreadable(f"{value!r} is no number")
    number = value if isinstance(value, Decimal) else Decimal(str(value))
    digits = "".join(map(str, number.as_tuple().digits))
    exponent = int(number.as_tuple().exponent)
    if number and scale < -exponent - (len(digits) - len(digits.rstrip("0"))):
        raise Unreadable(f"{value!r} has more digits than its scale")
    return value


def _bits(raw: bytes, length: int) -> str:
    # Debezium's bits have the lowest byte first.
    text = "".join(f"{byte:08b}" for byte in reversed(raw))
    # The length is what the schema says, which may be anything: it must not decide how much memory is filled.
    return text.lstrip("0").zfill(length) if 0 < length <= 100_000 else text


# Positions ----------------------------------------------------------------------------------------------


def _position(source: Mapping[str, Any]) -> str | None:
    """The position of a change in its database's log, as a text that sorts; None if the source gives none."""
    connector = source.get("connector")
    try:
        read = _POSITIONS.get(_connector(source) if connector is None else connector)
        return None if read is None else read(source)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _connector(source: Mapping[str, Any]) -> str:
    for name, connector in (
        ("file", "mysql"),
        ("lsn", "postgresql"),
        ("commit_lsn", "sqlserver"),
        ("scn", "oracle"),
        ("ord", "mongodb"),
    ):
        if source.get(name) is not None:
            return connector
    return ""


def _whole(value: Any, width: int = 20) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        raise TypeError
    if isinstance(value, str) and not (value.isascii() and value.isdecimal()):
        raise ValueError
    if isinstance(value, Decimal) and value.as_tuple().exponent != 0:  # written as no whole number
        raise ValueError
    number = int(value)
    if number < 0 or number != Decimal(value):
        raise ValueError
    return f"{number:0{width}d}"


def _mysql(source: Mapping[str, Any]) -> str:
    name = source["file"]
    digits = name[len(name.rstrip("0123456789")) :]
    return f"{int(digits):010d}:{_whole(source['pos'])}:{_whole(source.get('row') or 0, 10)}"


def _lsn(text: Any) -> str:
    return ":".join(f"{part.lower():0>8}" for part in (text or "0:0:0").split(":") if int(part, 16) >= 0)


def _db2(source: Mapping[str, Any]) -> str:
    return f"{_lsn(source['commit_lsn'])}:{_lsn(source.get('change_lsn'))}"


def _oracle(source: Mapping[str, Any]) -> str:
    commit = source.get("commit_scn") or source["scn"]
    turn = _whole(source.get("ssn") or 0, 10)
    return f"{_whole(commit)}:{_whole(source['scn'])}:{(source.get('rs_id') or '').strip()}:{turn}"


_POSITIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "mysql": _mysql,
    "mariadb": _mysql,
    "postgresql": lambda source: _whole(source["lsn"]),
    "sqlserver": lambda source: f"{_db2(source)}:{_whole(source.get('event_serial_no') or 0, 10)}",
    "db2": _db2,
    "oracle": _oracle,
    "mongodb": lambda source: f"{_whole(source['ts_ms'])}:{_whole(source.get('ord') or 0, 10)}",
}

# Other tools --------------------------------------------------------------------------------------------


def _feed(envelope: str, message: Record, row_key: RowKey, key: Any) -> list[Record]:
    """The records in a message of another tool than Debezium, or in rows that Debezium unwrapped."""
    names = set(message) - {"_key"}
    inner = "payload" if "payload" in names else "value"
    around = _WRAPPERS[inner] if inner == "payload" or "key" in names else set()
    if inner in names and names <= around and isinstance(message[inner], dict | None):
        outer_key, schema = key if inner == "payload" else message["key"], message.get("schema")
        content = decoded(message[inner], schema) if inner == "payload" else message[inner]
        message, key = {"_key": outer_key} if content is None else content, outer_key
    if set(message) == {"_key"}:
        if envelope == "debezium-unwrapped":
            raise Unreadable("a tombstone")
        return []
    body = {name: value for name, value in message.items() if name != "_key"}
    if envelope == "auto":
        return _named_by_itself(body, row_key, key)
    try:
        changes = (
            [unwrapped_row(body, _position)]
            if envelope == "debezium-unwrapped"
            else changes_in(envelope, body)
        )
    except UnreadMessage as error:
        raise Unreadable(str(error)) from error
    return [record for change in changes for record in _records_of(change, row_key, key)]


def _named_by_itself(message: Record, row_key: RowKey, key: Any) -> list[Record]:
    name = named_by_itself(message)
    if name is not None:
        return _READERS[name](message, row_key, key)
    # Messages that change no row have no marks; they are passed over if one tool knows them as such.
    for tool in ("debezium", "maxwell", "canal", "dms"):
        with suppress(Unreadable):
            if not _READERS[tool](message, row_key, key):
                return []
    raise Unreadable("not surely in an envelope")


def _records_of(change: SentChange, row_key: RowKey, key: Any) -> Iterator[Record]:
    if change.position is None and POSITION in row_key.order_by:
        raise Unreadable("no position")
    if change.op == "d":
        yield _changed(_going(change.row, row_key, key), "d", change.position)
        return
    was = _values(change.before, row_key)
    if isinstance(change.before, dict) and None not in was and was != _values(change.row, row_key):
        yield _changed(change.before, "d", change.position)
    row, lacking = _available(change.row, row_key.placeholder) if change.unwrapped else (change.row, [])
    yield _written(row, change.op, change.position, lacking, row_key)


_READERS: Mapping[str, Callable[[Record, RowKey, Any], list[Record]]] = {
    "debezium": _debezium,
    **{
        name: partial(_feed, name)
        for name in ("debezium-unwrapped", "maxwell", "canal", "ogg", "dms", "auto")
    },
}
