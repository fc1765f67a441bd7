"""The fields that records have, and which of them are null: JSON texts such as `{"a":1,"b":0,"c":{"d":1}}`.

A column is null for an absent key and for null alike, so this goes beside the columns of patches. 0 stands
for null, 1 for a value that is no object; the keys are sorted. A list without a value, which may have no
column, counts as null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw, json

from driftline.core.schema.naming import data_key
from driftline.core.schema.types import STRING, Field, Map, Struct, Type
from driftline.core.support import gc_paused
from driftline.core.values import parse, raw_members
from driftline.keys.merge import NULL, VALUE, Presence
from driftline.observe.decoder import REFUSED

PRESENCE = "\0presence"  # the column of a slice that has it; no table has one of this name

_OBJECT, _NULL, _LIST = b"{n["


@gc_paused()
def presence_of_lines(lines: Iterable[bytes]) -> pa.Array:
    """The presence of records, each a line of JSON."""
    return pa.array([_of_line(line).decode() for line in lines], pa.string())


def _of_line(line: bytes) -> bytes:
    try:
        return _of_text(line)
    except REFUSED:
        return json.encode(presence_of(parse(line)))


def _of_text(text: bytes | Raw) -> bytes:
    record: dict[str, Raw] = raw_members(text)
    members = []
    for key in sorted(record):
        value = record[key]
        begins = memoryview(value)[0]
        if begins == _OBJECT:
            presence = _of_text(value)
        else:
            presence = b"0" if begins == _NULL or (begins == _LIST and _is_empty(value)) else b"1"
        members.append(json.encode(key) + b":" + presence)
    return b"{%b}" % b",".join(members)


def _is_empty(text: Raw) -> bool:
    """True for a list of nulls, or of such lists."""
    return not bytes(text).strip(b"[], \t\r\nnul")


def read_presence(text: str) -> Presence:
    """The presence of a record, from its text."""
    presence: Presence = json.decode(text)
    return presence


def presence_of(value: Any) -> Presence:
    """The presence of a value of Python."""
    if isinstance(value, dict):
        return {key: presence_of(value[key]) for key in sorted(value)}
    return NULL if value is None or (isinstance(value, list) and not any(map(_has_value, value))) else VALUE


def _has_value(item: Any) -> bool:
    return any(map(_has_value, item)) if isinstance(item, list) else item is not None


def presence_of_rows(rows: pa.RecordBatch, struct: Struct) -> pa.Array:
    """The presence of rows that have all columns: null is null. ``struct``: the types, by key."""
    return _PresenceReader(lambda f: f.name, "0").presence(struct.fields, rows.columns, len(rows))


def presence_of_table(fields: Sequence[Field], rows: pa.Table, mark: str) -> pa.Array:
    """The presence of a table's rows, of which null says nothing. ``mark``: the prefix of docs."""
    arrays = [rows.column(f.name).combine_chunks() for f in fields]
    return _PresenceReader(lambda f: data_key(f, mark), None).presence(fields, arrays, len(rows))


def is_object(type_: Type) -> bool:
    """True for types of objects, whose fields have names."""
    return isinstance(type_, Struct) or (isinstance(type_, Map) and type_.key == STRING)


@dataclass(frozen=True, slots=True)
class _PresenceReader:
    """Reads the presence of columns.

    ``key``: the key of the data that fills one; ``null``: the text of fields without a value, None if they
    are absent.
    """

    key: Callable[[Field], str]
    null: str | None

    def presence(self, fields: Sequence[Field], arrays: Sequence[pa.Array], count: int) -> pa.Array:
        """The presence of objects with these fields."""
        by_key: dict[str, list[tuple[Type, pa.Array]]] = {}
        for f, array in zip(fields, arrays, strict=True):
            by_key.setdefault(self.key(f), []).append((f.type, array))
        members = [
            pc.binary_join_element_wise(json.encode(key).decode(), self._of_field(by_key[key]), ":")
            for key in sorted(by_key)
        ]
        return _object_of(members) if members else pa.repeat("{}", count)

    def _of_field(self, columns: Sequence[tuple[Type, pa.Array]]) -> pa.Array:
        """The presence of a field with these columns; null where it is absent."""
        presence, plain = pa.nulls(len(columns[0][1]), pa.string()), None
        for type_, array in columns:
            if is_object(type_):
                presence = _both(presence, self._object(type_, array))
            else:
                plain = array.is_valid() if plain is None else pc.or_(plain, array.is_valid())
        if plain is not None:
            presence = pc.coalesce(presence, pc.if_else(plain, "1", pa.scalar(None, pa.string())))
        return presence if self.null is None else pc.fill_null(presence, self.null)

    def _object(self, type_: Type, array: pa.Array) -> pa.Array:
        none = pa.scalar(None, pa.string())
        if isinstance(type_, Struct):
            texts = self.presence(type_.fields, array.flatten(), len(array))
            return pc.if_else(array.is_valid(), texts, none)
        assert isinstance(type_, Map)
        offsets, keys = array.offsets.to_numpy(), array.keys.to_pylist()
        values = pc.fill_null(self._of_field([(type_.value, array.items)]), "0").to_pylist()
        members = [f"{json.encode(key).decode()}:{value}" for key, value in zip(keys, values, strict=True)]
        texts = [
            f"{{{','.join(members[low:high])}}}"
            for low, high in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        ]
        return pc.if_else(array.is_valid(), pa.array(texts, pa.string()), none)


def _both(first: pa.Array, second: pa.Array) -> pa.Array:
    """Objects of the members of both; where one is null, the other."""
    if first.null_count == len(first):
        return second
    inside = [pc.utf8_slice_codeunits(texts, 1, -1) for texts in (first, second)]
    inside = [pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts) for texts in inside]
    null = pc.and_(first.is_null(), second.is_null())
    return pc.if_else(null, pa.scalar(None, pa.string()), _object_of(inside))


def _object_of(members: Iterable[pa.Array]) -> pa.Array:
    """The texts of objects with these members, without those that are null."""
    ended = [pc.fill_null(pc.binary_join_element_wise(texts, ",", ""), "") for texts in members]
    inside = pc.utf8_rtrim(pc.binary_join_element_wise(*ended, ""), ",")
    return pc.binary_join_element_wise("{", inside, "}", "")
