"""Reads the change messages of Canal, AWS DMS, Maxwell and Oracle GoldenGate.

Canal sends most values as texts, as MySQL prints them: they become values of their column's type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

from msgspec import Raw, ValidationError, json

from driftline.core.values import raw_members
from driftline.readers.envelopes.debezium import Digits, file_number
from driftline.readers.envelopes.messages import (
    Changes,
    EnvelopeTerms,
    Mark,
    NotReadable,
    Opened,
    deleted,
    is_null,
    merged,
    opened,
    positioned,
    text_of,
    truncate,
    written,
)

# None for a text that is no such value: it stays a text
Decode: TypeAlias = "Callable[[str], bytes | None]"

_NUMBER = re.compile(r"(-?)0*(\d{1,400}(?:\.\d+)?(?:[eE][+-]?\d+)?)")
_TYPE = re.compile(r"\s*([a-z0-9_]+)", re.IGNORECASE)
_LABEL = re.compile(r"'((?:[^']|'')*)'")


def number(text: str) -> bytes | None:
    """The number of a text, digit by digit; None if it is none.

    >>> number("0042"), number("-1.50"), number("1.0E10"), number("12a")
    (b'42', b'-1.50', b'1.0E10', None)
    """
    match = _NUMBER.fullmatch(text) if text.isascii() else None
    return None if match is None else (match[1] + match[2]).encode()


def label(labels: Sequence[str], text: str) -> bytes | None:
    """The label of an enum that comes as its number; None for one that comes as itself.

    >>> label(["a", "b"], "2"), label(["a", "b"], "b"), label(["a", "b"], "3"), label(["1", "2"], "2")
    (b'"b"', None, None, None)
    """
    if text in labels or not _is_whole(text) or not 0 < int(text) <= len(labels):
        return None
    return json.encode(labels[int(text) - 1])


def labels_of_bits(labels: Sequence[str], text: str) -> bytes | None:
    """The labels of a set that come as a number, a bit for each; None if they come as themselves.

    >>> labels_of_bits(["a", "b", "c"], "5"), labels_of_bits(["a"], "a"), labels_of_bits(["a"], "2")
    (b'"a,c"', None, None)
    """
    if text in labels or not _is_whole(text) or int(text) >= 2 ** len(labels):
        return None
    bits = int(text)
    return json.encode(",".join(name for place, name in enumerate(labels) if bits >> place & 1))


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 20


# Types by their first word. All others are texts as they come: of dates and times, JSON, geometry, bytes.
NUMBERS = {
    "bit", "bool", "boolean", "tinyint", "smallint", "mediumint", "int", "integer", "bigint", "serial", "year",
    "dec", "decimal", "fixed", "numeric", "float", "double", "real",
}  # fmt: skip
LABELS = {"enum": label, "set": labels_of_bits}


@lru_cache(maxsize=10_000)
def decoder(type_text: str) -> Decode | None:
    """The decoder of a column's values; None for a type whose values are texts.

    >>> decoder("DECIMAL(8,2) unsigned")("10.50"), decoder("varchar(10)")
    (b'10.50', None)
    >>> decoder("enum('big','it''s')")("2")
    b'"it\\'s"'
    """
    match = _TYPE.match(type_text)
    name = "" if match is None else match[1].lower()
    if name in NUMBERS:
        return number
    if name in LABELS:
        return partial(LABELS[name], [text.replace("''", "'") for text in _LABEL.findall(type_text)])
    return None


# By `type`.
CANAL_WRITES = {"INSERT": "c", "UPDATE": "u", "INIT": "r"}
SCHEMA_CHANGES = {"CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY"}
_rows = json.Decoder(list[dict[str, Raw]]).decode
_types = json.Decoder(dict[str, str | None]).decode


def read_canal(text: bytes | Raw, terms: EnvelopeTerms) -> Changes:
    """Read a message. Raises NotReadable, and msgspec's errors for what is no object."""
    message = opened(text)
    if isinstance(message, Mark):
        return message
    kind = message.value("type")
    if not isinstance(kind, str) or "data" not in message.fields:
        raise NotReadable("no message of Canal's: it has no `type` and `data`")
    if message.value("isDdl") is True:
        return _schema_change(message, kind, terms)
    if _is_watermark(message, kind):
        return Mark("watermark")
    if kind not in CANAL_WRITES and kind != "DELETE":
        raise NotReadable(f"type {kind!r} is none of Canal's: {', '.join((*CANAL_WRITES, 'DELETE'))}")
    position = positioned(
        _canal_position(message), terms, "no `es`, the time by which changes could be ordered"
    )
    # Flink's serializer has the row that goes in `old`.
    name = "old" if kind == "DELETE" and is_null(message.fields["data"]) else "data"
    rows, decoders = _rows_in(message, name, kind), _decoders(message)
    rows = [_decoded(row, decoders) for row in rows]
    if kind == "DELETE":
        return [deleted(row, message.key, position, terms) for row in rows]
    befores = _befores(message, rows, decoders) if kind == "UPDATE" else [None] * len(rows)
    return [
        text
        for row, before in zip(rows, befores, strict=True)
        for text in written(row, before, CANAL_WRITES[kind], position, terms)
    ]


def _canal_position(message: Opened) -> str | None:
    """Return the time of a change, and its place within a millisecond if TiDB gives it."""
    committed = _of_tidb(message, "commitTs")
    if committed is None:
        return Digits()(message.value("es"))
    # A timestamp of TiDB's has 18 bits behind the millisecond, which is what `es` has.
    return f"{committed >> 18:020}:{committed & 0x3FFFF:06}"


def _is_watermark(message: Opened, kind: str) -> bool:
    """True for TiCDC's word that all changes up to a time have been sent."""
    empty = is_null(message.fields["data"]) and is_null(message.fields.get("old"))
    return kind == "TIDB_WATERMARK" and empty and _of_tidb(message, "watermarkTs") is not None


def _of_tidb(message: Opened, name: str) -> int | None:
    """A timestamp among the fields that TiCDC adds with ``enable-tidb-extension``."""
    fields = message.row("_tidb")
    value = None if fields is None else raw_members(fields).get(name)
    digits = None if value is None else Digits()(json.decode(value))
    return None if digits is None else int(digits)


def _schema_change(message: Opened, kind: str, terms: EnvelopeTerms) -> Mark:
    if kind == "TRUNCATE" and is_null(message.fields["data"]):
        return truncate(_canal_position(message), terms)
    if kind not in SCHEMA_CHANGES or not is_null(message.fields["data"]):
        raise NotReadable(f"type {kind!r} with `isDdl` is none of Canal's schema changes")
    return Mark("schema change")


def _rows_in(message: Opened, name: str, kind: str) -> Sequence[Raw]:
    try:
        rows = _rows(message.fields[name])
    except (ValidationError, KeyError):
        rows = []
    if not rows:
        raise NotReadable(f"type {kind!r} without a list of objects in `{name}`")
    return [Raw(json.encode(row)) for row in rows]


def _befores(message: Opened, rows: Sequence[Raw], decoders: Mapping[str, Decode]) -> Sequence[bytes | None]:
    """Return the rows before the change, as far as the message has them."""
    if is_null(message.fields.get("old")):
        return [None] * len(rows)
    olds = _rows_in(message, "old", "UPDATE")
    if len(olds) != len(rows):
        raise NotReadable(f"{len(rows)} rows in `data`, and {len(olds)} in `old`")
    return [merged(row, _decoded(old, decoders)) for row, old in zip(rows, olds, strict=True)]


def _decoders(message: Opened) -> Mapping[str, Decode]:
    """The decoders of the columns that are no texts, by `mysqlType`."""
    if is_null(message.fields.get("mysqlType")):
        return {}
    try:
        types = _types(message.fields["mysqlType"])
    except ValidationError as error:
        raise NotReadable(f"no types of columns in `mysqlType`: {error}") from error
    decoders = {name: decoder(text) for name, text in types.items() if text}
    return {name: decode for name, decode in decoders.items() if decode is not None}


def _decoded(row: Raw, decoders: Mapping[str, Decode]) -> Raw:
    """The row with the values that their types say; a text that is no value of its type stays."""
    values = raw_members(row)
    for name, decode in decoders.items():
        text = text_of(values[name]) if name in values else None
        value = None if text is None else decode(text)
        if value is not None:
            values[name] = Raw(value)
    return Raw(json.encode(values))


DMS_WRITES = {"load": "r", "insert": "c", "update": "u"}  # by `operation`
CONTROLS = {
    "create-table", "rename-table", "drop-table", "change-columns", "add-column", "drop-column", "rename-column",
    "column-type-change",
}  # fmt: skip
_OLD = "BI_"  # before the name of a column: its value before the change
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)


def read_dms(text: bytes | Raw, terms: EnvelopeTerms) -> Changes:
    """Read a message. Raises NotReadable, and msgspec's errors for what is no object."""
    message = opened(text)
    if isinstance(message, Mark):
        return message
    metadata = message.value("metadata")
    # A row without `Op` is a load in DMS's files, but no message in a stream. So its files need no envelope.
    if not isinstance(metadata, dict) or not {"record-type", "operation"} <= metadata.keys():
        files = "; rows of its files need no envelope: delete_when = \"Op = 'D'\"" * ("Op" in message.fields)
        raise NotReadable(
            f"no message of DMS's: it has no `metadata` with `record-type` and `operation`{files}"
        )
    record_type, operation = metadata["record-type"], metadata["operation"]
    if not isinstance(operation, str):
        raise NotReadable(f"operation {operation!r} is no text")
    if record_type == "control" and operation == "truncate-table":
        return truncate(position(metadata.get("timestamp")), terms)
    if record_type == "control":
        if operation not in CONTROLS:
            raise NotReadable(f"a control record whose operation is {operation!r}, which is not applied")
        return Mark("schema change")
    if record_type != "data":
        raise NotReadable(f"record-type {record_type!r} is none of DMS's: data, control")
    if operation not in DMS_WRITES and operation != "delete":
        raise NotReadable(f"operation {operation!r} is none of DMS's: {', '.join((*DMS_WRITES, 'delete'))}")
    return _changes(message, metadata, operation, terms)


def _changes(message: Opened, metadata: Mapping[str, Any], operation: str, terms: EnvelopeTerms) -> Changes:
    row = message.row("data")
    if row is None:
        raise NotReadable(f"operation {operation!r} without an object in `data`")
    at = positioned(
        position(metadata.get("timestamp")),
        terms,
        "no UTC time in `metadata.timestamp` by which changes could be ordered",
    )
    values = raw_members(row)
    old = {name.removeprefix(_OLD): value for name, value in values.items() if _is_old(name, values)}
    now = {name: value for name, value in values.items() if not _is_old(name, values)}
    if (image := message.row("before-image")) is not None:
        old |= raw_members(image)
    was, is_now = json.encode(now | old), json.encode(now)
    if operation == "delete":
        return [deleted(was, message.key, at, terms)]
    return written(is_now, was if old and operation == "update" else None, DMS_WRITES[operation], at, terms)


def _is_old(name: str, values: Mapping[str, Raw]) -> bool:
    """True if it names the value that another column of the row had before."""
    return name.startswith(_OLD) and name.removeprefix(_OLD) in values


def position(time: Any) -> str | None:
    """The position of a change: the time at which DMS made the message.

    >>> position("2024-10-27T12:39:03.21Z"), position("2024-10-27T12:39:03Z"), position("27.10.2024")
    ('2024-10-27T12:39:03.210000000Z', '2024-10-27T12:39:03.000000000Z', None)
    """
    match = _TIME.fullmatch(time) if isinstance(time, str) else None
    return None if match is None else f"{match[1]}.{(match[2] or '').ljust(9, '0')}Z"


# By `type`.
MAXWELL_WRITES = {"insert": "c", "update": "u", "bootstrap-insert": "r"}
MARKS = {
    "bootstrap-start": "bootstrap mark",
    "bootstrap-complete": "bootstrap mark",
    "database-create": "schema change",
    "database-alter": "schema change",
    "database-drop": "schema change",
    "table-create": "schema change",
    "table-alter": "schema change",
    "table-drop": "schema change",
}
# All fields of a mark: an object with any other is no mark.
_MARK_FIELDS = {
    "bootstrap mark": {"database", "table", "type", "ts", "data", "comment", "primary_key", "primary_key_columns"},
    "schema change": {"database", "table", "type", "ts", "old", "def", "sql", "charset", "position", "gtid", "schema_id"},
}  # fmt: skip
_LAST = 9_999_999_999  # the last row of a transaction has no `xoffset`
# Rows of a bootstrap say nothing of the log: they are older than any change.
_BEFORE_ALL = f"{0:020}:{0:010}"


def read_maxwell(text: bytes | Raw, terms: EnvelopeTerms) -> Changes:
    """Read a message. Raises NotReadable, and msgspec's errors for what is no object."""
    message = opened(text)
    if isinstance(message, Mark):
        return message
    kind = message.value("type")
    if not isinstance(kind, str) or "database" not in message.fields:
        raise NotReadable("no message of Maxwell's: it has no `type` and `database`")
    if kind in MARKS:
        return _control_message(message, kind)
    if kind not in MAXWELL_WRITES and kind != "delete":
        raise NotReadable(
            f"type {kind!r} is none of Maxwell's: {', '.join((*MAXWELL_WRITES, 'delete', *MARKS))}"
        )
    row = message.row("data")
    if row is None:
        raise NotReadable(f"type {kind!r} without an object in `data`")
    position = positioned(
        _maxwell_position(message, kind), terms, "no `position` and no `xid` that says where the change stood"
    )
    if kind == "delete":
        return [deleted(row, message.key, position, terms)]
    old = message.row("old") if kind == "update" else None
    return written(row, None if old is None else merged(row, old), MAXWELL_WRITES[kind], position, terms)


def _control_message(message: Opened, kind: str) -> Mark:
    mark = MARKS[kind]
    if not message.only(_MARK_FIELDS[mark]) or message.value("data"):
        raise NotReadable(f"type {kind!r} with other fields than Maxwell's message of that type has")
    return Mark(mark)


def _maxwell_position(message: Opened, kind: str) -> str | None:
    """The place in the binary log, if the message has it; else transaction and row, as numbers.

    >>> row = opened(b'{"position": "master.000006:800911", "xid": 23396, "xoffset": 2}')
    >>> _maxwell_position(row, "insert")
    '0000000006:00000000000000800911:0000000002'
    >>> _maxwell_position(opened(b'{"xid": 23396}'), "insert")
    '00000000000000023396:9999999999'
    """
    place, xid = message.value("position"), message.value("xid")
    row = Digits(10, absent=_LAST)(message.value("xoffset"))
    if isinstance(place, str):
        file, _, offset = place.rpartition(":")
        parts = [file_number(file), Digits()(offset), row]
    elif xid is not None:
        parts = [Digits()(xid), row]
    else:
        return _BEFORE_ALL if kind == "bootstrap-insert" else None
    numbers = [part for part in parts if part is not None]
    return ":".join(numbers) if len(numbers) == len(parts) else None


OGG_WRITES = {"I": "c", "U": "u"}  # by `op_type`
_DIGITS = 40


def read_ogg(text: bytes | Raw, terms: EnvelopeTerms) -> Changes:
    """Read a message. Raises NotReadable, and msgspec's errors for what is no object."""
    message = opened(text)
    if isinstance(message, Mark):
        return message
    kind = message.value("op_type")
    if not isinstance(kind, str) or "table" not in message.fields:
        raise NotReadable("no message of GoldenGate's: it has no `op_type` and `table`")
    if kind == "T":
        return truncate(Digits(_DIGITS)(message.value("pos")), terms)
    if kind not in OGG_WRITES and kind != "D":
        raise NotReadable(f"op_type {kind!r} is none of GoldenGate's: I, U, D, T")
    if missing := message.value("missing_columns"):
        raise NotReadable(f"columns that the source has left out: {missing}, of which nothing is known")
    position = positioned(
        Digits(_DIGITS)(message.value("pos")), terms, "no number in `pos` that says where the change stood"
    )
    before, after = message.row("before"), message.row("after")
    if kind == "D":
        if before is None:
            raise NotReadable("op_type 'D' without an object in `before`")
        return [deleted(before, message.key, position, terms)]
    if after is None:
        raise NotReadable(f"op_type {kind!r} without an object in `after`")
    return written(after, before if kind == "U" else None, OGG_WRITES[kind], position, terms)
