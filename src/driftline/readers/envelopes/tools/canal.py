"""Messages of Canal: rows in a list `data`, changed values in a list `old`, a `type`, types of columns.

Most values are texts, as MySQL prints them: they become what the type of their column says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TypeAlias

from msgspec import Raw, ValidationError, json

from driftline.core.values import raw_members
from driftline.readers.envelopes.change import Changes, EnvelopeTerms, Mark, NotReadable, is_null
from driftline.readers.envelopes.log_positions import Digits
from driftline.readers.envelopes.opened import (
    Opened,
    deleted,
    merged,
    opened,
    positioned,
    text_of,
    truncate,
    written,
)

Decode: TypeAlias = "Callable[[str], bytes | None]"  # None for a text that is no such value: it stays a text

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
WRITES = {"INSERT": "c", "UPDATE": "u", "INIT": "r"}
SCHEMA_CHANGES = {"CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY"}
_rows = json.Decoder(list[dict[str, Raw]]).decode
_types = json.Decoder(dict[str, str | None]).decode


def read(text: bytes | Raw, terms: EnvelopeTerms) -> Changes:
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
    if kind not in WRITES and kind != "DELETE":
        raise NotReadable(f"type {kind!r} is none of Canal's: {', '.join((*WRITES, 'DELETE'))}")
    position = positioned(_position(message), terms, "no `es`, the time by which changes could be ordered")
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
        for text in written(row, before, WRITES[kind], position, terms)
    ]


def _position(message: Opened) -> str | None:
    """The time of a change, and its place among those of one millisecond, where TiDB tells it."""
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
        return truncate(_position(message), terms)
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
    """The rows as they were, as far as the message tells."""
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
