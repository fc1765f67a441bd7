"""Kafka messages with their own keys, as JSON texts or as typed columns."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import json
from numpy.typing import NDArray

from driftline.convert.declared import VOID
from driftline.convert.types import arrow_field, arrow_type
from driftline.core.schema.types import BOOLEAN, DOUBLE, LONG, STRING, Field, Struct, Type, decimal
from driftline.core.settings.condition import MESSAGE_KEY
from driftline.core.values import Malformed, parse, raw_members, reason
from driftline.observe.decoder import REFUSED
from driftline.observe.json_lines import Why
from driftline.readers.columnar.rows import Rows
from driftline.readers.deletes import NO_RECORD
from driftline.readers.kafka.values import Alike, RecordKind, Wire, WireValues, alike_of
from driftline.readers.kafka.wire import Payloads, UnreadableError

# Senders of plain text have keys such as 1.10 and 1.1, which would be one key as numbers.
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_NAME = b'"%b"' % MESSAGE_KEY.encode()
NULL_VALUE = "a null value, for which delete_when is not true"
_NO_OBJECT = reason(NO_RECORD)
OWN_KEY = f"it has a field {MESSAGE_KEY} of its own, where the table reads the message's key"


class MessageTexts(NamedTuple):
    """The texts of messages; those of a table that reads keys have them.

    Attributes:
        nulls: the places of messages whose value is null, and whose text has the key alone.
        wrong: the reasons of those that cannot be read.
    """

    lines: Sequence[bytes]
    nulls: Sequence[int]
    wrong: Mapping[int, str]

    def nulls_in(self, start: int, stop: int) -> Sequence[int]:
        """The places of null values in a part of the texts, counted from its ``start``."""
        low, high = (bisect_left(self.nulls, place) for place in (start, stop))
        return [place - start for place in self.nulls[low:high]]

    def why(self, place: int, value: bytes | None, why: Why) -> Why:
        """The reason for the reject of a message, whose text was refused for that of ``why``."""
        if not isinstance(why, str):
            return why
        if place in self.wrong:
            return self.wrong[place]
        if value is None:
            return NULL_VALUE if why == _NO_OBJECT else why
        if not value.strip():
            return "an empty value is no record"
        return (reason(value) if self.lines[place] is not value else None) or why


def without_keys(values: Sequence[bytes | None]) -> MessageTexts:
    """The texts of messages; a null value is none."""
    return MessageTexts([b"" if v is None else v if v.strip() else NO_RECORD for v in values], (), {})


def with_keys(
    values: Sequence[bytes | None], keys: Sequence[bytes | None], *, nulls: bool, again: bool = False
) -> MessageTexts:
    """The texts of messages with their keys.

    Args:
        values: the messages' values.
        keys: their keys.
        nulls: null values are read, because they delete rows; else they are no texts.
        again: texts may have their keys already, as those that were made of typed values have.
    """
    lines: list[bytes] = []
    null_places: list[int] = []
    wrong: dict[int, str] = {}
    for place, (value, key) in enumerate(zip(values, keys, strict=True)):
        try:
            if value is not None:
                lines.append(_with_key(value, key, again=again))
                continue
            lines.append(b"{%b:%b}" % (_NAME, key_text(key)) if nulls else b"")
            if nulls:
                null_places.append(place)
        except UnreadableError as error:
            wrong[place] = str(error)
            lines.append(NO_RECORD)
    return MessageTexts(lines, null_places, wrong)


@lru_cache(maxsize=10_000)
def key_text(key: bytes | None) -> bytes:
    """A message's key as a value of JSON. Raises UnreadableError for bytes that are no text.

    That is the JSON value that its bytes spell, else their text. Of bare numbers only whole ones in their
    usual spelling are numbers: 1.10 and 1.1 are two keys where keys are plain text. Of an object with
    `schema` and `payload` alone, as Kafka Connect writes it, the payload counts.

    >>> [key_text(key) for key in (b"7", b'{"id": 7}', b"1.10", b"a7", None)]
    [b'7', b'{"id": 7}', b'"1.10"', b'"a7"', b'null']
    """
    if key is None:
        return b"null"
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "\0"
    # Java's serialiser writes a number as eight bytes, which are valid text for some numbers only.
    if "\0" in text:
        raise UnreadableError("the message's key is no text")
    if key.lstrip()[:1] == b"{":
        return _payload(key) if reason(key) is None else json.encode(text)
    try:
        value = json.decode(key)
    except REFUSED:
        return json.encode(text)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return json.encode(text) if is_number and not _WHOLE.fullmatch(text) else key


def _payload(key: bytes) -> bytes:
    """Return the payload of a key that comes with its schema; any other key unchanged."""
    if b"payload" not in key and b"\\" not in key:
        return key
    try:
        members = raw_members(key)
    except REFUSED:
        return key
    return bytes(members["payload"]) if members.keys() == {"schema", "payload"} else key


def _with_key(value: bytes, key: bytes | None, *, again: bool) -> bytes:
    """The text of an object with the key as its first field; any other as it is. Raises UnreadableError."""
    body = value.lstrip()
    if body[:1] != b"{":
        return value if body else NO_RECORD
    # Parsed only if the name may be there; an escape may spell it.
    if (_NAME in body or b"\\" in body) and _has_key(body):
        if again:
            return value
        raise UnreadableError(OWN_KEY)
    separator = b"" if body[1:].lstrip()[:1] == b"}" else b","
    # The key is a field of the record, and not a marked column like `_kafka`: keys need siblings by kind, and
    # key, order and conditions are found by a field's path.
    return b"{%b:%b%b%b" % (_NAME, key_text(key), separator, body[1:])


def _has_key(text: bytes) -> bool:
    try:
        return MESSAGE_KEY in raw_members(text)
    except REFUSED:
        pass
    try:
        return MESSAGE_KEY in parse(text)
    except Malformed:
        return False


_LONGS = range(-(2**63), 2**63)
_DIGITS = 38  # of the widest decimal


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Keys of one type.

    Attributes:
        struct: the field that has them, with a column for each branch of a union.
        rows: their rows in a batch of Kafka.
    """

    struct: Struct
    arrays: Sequence[pa.Array]
    rows: Sequence[int]


class MessageKeys:
    """In a task: reads keys, those in the wire format by their schema and others as texts."""

    def __init__(self, wire: Wire) -> None:
        self._wire = replace(wire, keys=True)
        self._framed = WireValues(self._wire)

    def beside(
        self, alike: Sequence[Alike], batch: pa.RecordBatch, *, nulls: bool
    ) -> tuple[list[Alike], Mapping[int, str]]:
        """The values with their messages' keys, by kind, and why others cannot be read, by row.

        Args:
            nulls: so are null values, which have a key alone.
        """
        columns, wrong = self._read(batch)
        keys = _Keys.of(columns, len(batch))
        of_nulls = _nulls(batch) if nulls else ()
        with_keys: list[Alike] = []
        for some in (*alike, *of_nulls):
            if any(f.name == MESSAGE_KEY for f in some.struct.fields):
                wrong |= dict.fromkeys(some.places, OWN_KEY)
            else:
                with_keys += keys.beside(some, batch)
        rows = {row for some in (*alike, *of_nulls) for row in some.places}
        return with_keys, {row: why for row, why in wrong.items() if row in rows}

    def _read(self, batch: pa.RecordBatch) -> tuple[list[KeyColumns], dict[int, str]]:
        keys = batch.column("key")
        is_framed = Payloads.of(keys).schemas >= 0
        framed, unreadable = self._framed.read(batch, pc.if_else(pa.array(is_framed), keys, None))
        texts = keys.to_pylist()
        wrong = {row: f"the message's key: {why}" for row, why in unreadable.items()}
        values: dict[Type, tuple[list[int], list[Any]]] = defaultdict(lambda: ([], []))
        for row in np.flatnonzero(~is_framed).tolist():
            try:
                type_, value = _typed_key(texts[row])
            except UnreadableError as error:
                wrong[row] = str(error)
                continue
            rows, some = values[type_]
            rows.append(row)
            some.append(value)
        plain = [
            KeyColumns(Struct((Field(MESSAGE_KEY, type_),)), [pa.array(some, arrow_type(type_))], rows)
            for type_, (rows, some) in values.items()
        ]
        return [*map(self._columns, framed), *plain], wrong

    def _columns(self, keys: Alike) -> KeyColumns:
        """Keys in the wire format: of Avro all types that the schema has for them, of Protobuf a message."""
        fields, arrays = keys.struct.fields, keys.rows.batch.columns
        if self._wire.format == "avro":
            named = Struct(tuple(replace(f, name=MESSAGE_KEY) for f in fields))
            return KeyColumns(named, arrays, keys.places)
        message = pa.StructArray.from_arrays(arrays, fields=[arrow_field(f) for f in fields])
        return KeyColumns(Struct((Field(MESSAGE_KEY, keys.struct),)), [message], keys.places)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of a batch.

    Attributes:
        group: of each row, the number of its columns; -1 for a key that cannot be read.
        place: its position in these.
    """

    columns: Sequence[KeyColumns]
    group: NDArray[np.int64]
    place: NDArray[np.int64]

    @classmethod
    def of(cls, columns: Sequence[KeyColumns], count: int) -> _Keys:
        group, place = np.full(count, -1), np.zeros(count, np.int64)
        for number, some in enumerate(columns):
            group[some.rows], place[some.rows] = number, np.arange(len(some.rows))
        return cls(columns, group, place)

    def beside(self, values: Alike, batch: pa.RecordBatch) -> Iterator[Alike]:
        """The values with their keys, a kind for each type of these."""
        places = np.asarray(values.places, np.int64)
        groups = self.group[places]
        for number in np.unique(groups[groups >= 0]).tolist():
            chosen, keys = np.flatnonzero(groups == number), self.columns[number]
            rows = places[chosen]
            arrays = [
                *(array.take(pa.array(self.place[rows])) for array in keys.arrays),
                *(array.take(pa.array(chosen)) for array in values.rows.batch.columns),
            ]
            struct = Struct((*keys.struct.fields, *values.struct.fields))
            key = values.key._replace(keys=keys.struct)
            yield alike_of(key, struct, arrays, rows.tolist(), batch)


def _nulls(batch: pa.RecordBatch) -> list[Alike]:
    """The null values of a batch, by topic: records without fields."""
    rows = np.flatnonzero(batch.column(0).is_null().to_numpy(zero_copy_only=False))
    topics = batch.column(1).take(pa.array(rows)).to_pylist()
    empty = Rows(pa.RecordBatch.from_arrays([], []), "")
    return [
        Alike(
            RecordKind(topic, 0, "", null=True),
            Struct(()),
            empty,
            [r for r, t in zip(rows.tolist(), topics, strict=True) if t == topic],
        )
        for topic in dict.fromkeys(topics)
    ]


def _typed_key(key: bytes | None) -> tuple[Type, Any]:
    """The type and the value of a key that is a text. Raises UnreadableError.

    >>> _typed_key(b'{"id": 7}')[1], str(_typed_key(b'{"id": 7}')[0])
    ({'id': 7}, 'struct<id: long>')
    """
    value = _decode(key_text(key))
    return _type_of(value), value


def _double(text: str) -> float:
    if Decimal(text) != Decimal(repr(float(text))):
        raise UnreadableError(f"the message's key has the number {text}, which is no double")
    return float(text)


_decode = json.Decoder(float_hook=_double).decode


def _type_of(value: Any) -> Type:
    match value:
        case None:
            return VOID
        case bool():
            return BOOLEAN
        case int() if value in _LONGS:
            return LONG
        case int() if abs(value) < 10**_DIGITS:
            return decimal(_DIGITS, 0)
        case float():
            return DOUBLE
        case str():
            return STRING
        case dict() if value:
            return Struct(tuple(Field(name, _type_of(member)) for name, member in value.items()))
    raise UnreadableError("the message's key has a list, nothing at all, or more digits than a column")
