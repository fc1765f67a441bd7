"""Maps among objects: M1, M2 and M3 of "Keys that are data" (section 9 of the evolution rules)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache

from driftline.core.planning.shape import NUMBER_TEXT, RECORD, Facet, FieldShape, RecordShape
from driftline.core.schema.types import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    Field,
    Map,
    Place,
    Primitive,
    Struct,
    Type,
    peel,
)


class KeyForm(Enum):
    """The look of a key. ``sure``: data by itself; ``code``: data if there are more of its kind; ``neutral``:
    no evidence either way; ``word``: the name of a field.
    """

    sure = "sure"
    data = "data"
    code = "code"
    neutral = "neutral"
    word = "word"


NEUTRAL = frozenset(
    {"default", "*", ".", "other", "unknown", "all", "none", "null", "undefined", ""}
)  # the empty key is a key of a map like any other
# One look a line, with what it matches; the first that matches counts.
TABLE = (
    (
        KeyForm.sure,
        r".*[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}.*",
    ),  # a UUID
    (KeyForm.sure, r".*/.*"),  # a path, a URL, a media type
    (KeyForm.sure, r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?"),  # a date, a timestamp
    (KeyForm.sure, r"[^@\s]+@[^@\s]+\.[^@\s]+"),  # an e-mail address
    (KeyForm.sure, r"[+-]?\d{6,}"),
    (KeyForm.sure, r"(?=.*\d)[0-9a-fA-F]{16,}"),
    (KeyForm.data, r"[+-]?\d+"),
    (KeyForm.data, r"[+-]?\d*\.\d+([eE][+-]?\d+)?"),
    (KeyForm.data, r"v?\d+(\.\d+)+([-+.][0-9A-Za-z.+-]+)?"),  # a version
    (KeyForm.data, r"\d{4}-\d\d"),  # a month
    (KeyForm.data, r"(\d{1,3}\.){3}\d{1,3}(:\d+)?"),  # IPv4
    (KeyForm.data, r"(?=.*:.*:)[0-9a-fA-F:]+(%\w+)?"),  # IPv6
    (KeyForm.data, r"[0-7][0-9A-HJKMNP-TV-Z]{25}"),  # a ULID
    (KeyForm.data, r"0[xX][0-9a-fA-F]+"),
    (KeyForm.data, r"(?=.*\d)[0-9a-fA-F]{8,}"),
    (KeyForm.data, r"[A-Za-z]{1,5}[_-](?=\w*\d)[0-9A-Za-z]{8,}"),  # cus_9s6XKzkNRiz8i3
    (KeyForm.code, r"(?=.*[A-Z])(?=.*\d)[A-Z0-9]{1,5}"),  # Q42
    (KeyForm.code, r"(?=.*[A-Z])(?=.*\d)[A-Z0-9]{1,5}(-[A-Z0-9]{1,5})+"),  # CVE-2021-1
)
_TABLE = tuple((look, re.compile(pattern, re.DOTALL)) for look, pattern in TABLE)
_LONG = 500  # characters: no name of a field is so long


@lru_cache(65_536)
def look(key: str) -> KeyForm:
    """Classify a key by its look.

    >>> [look(key).name for key in ("2024-01-31", "17", "Q42", "default", "name", "a/b")]
    ['sure', 'data', 'code', 'neutral', 'word', 'sure']
    """
    if key in NEUTRAL:
        return KeyForm.neutral
    if len(key) > _LONG:
        return KeyForm.sure
    return next((kind for kind, pattern in _TABLE if pattern.fullmatch(key)), KeyForm.word)


_NUMBERS = (INT, LONG, FLOAT, DOUBLE, NUMBER_TEXT)
_ODD = re.compile(r"[^\w$-]", re.ASCII)  # characters that names of fields seldom have

ALIKE, MANY = 20, 100  # keys: of M2, of M3
_TIMES = 10  # so many times more columns than a map's
_CODES, _FEW, _ODD_KEYS = 5, 5, 5
_SHOWN = 32  # characters of a key in a report

Kind = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """The contents of one key of an object: ``kinds`` of its values with their dimensions, and ``fields`` of
    records.
    """

    kinds: frozenset[Kind] = frozenset()
    fields: frozenset[str] = frozenset()

    def __or__(self, other: ObjectEntry) -> ObjectEntry:
        return ObjectEntry(self.kinds | other.kinds, self.fields | other.fields)


@dataclass(frozen=True, slots=True)
class MapVerdict:
    """The reason an object is a map. ``keys``: some that decided; ``apart``: its words stay a struct, and
    only the other keys form the map.
    """

    why: str
    keys: tuple[str, ...] = field(default=())
    apart: bool = False

    def __str__(self) -> str:
        return f"{self.why}: {', '.join(map(_short, self.keys))}" if self.keys else self.why


def _short(key: str) -> str:
    return key if len(key) <= _SHOWN else key[: _SHOWN - 1] + "…"


def entries_of(records: Iterable[RecordShape]) -> dict[str, ObjectEntry]:
    """The contents of a batch's objects, by key."""
    entries: dict[str, ObjectEntry] = {}
    for record in records:
        for key, shape in record.fields.items():
            entries[key] = entries.get(key, ObjectEntry()) | _of_shape(shape)
    return entries


def entries_of_struct(struct: Struct, key_of: Mapping[str, str]) -> dict[str, ObjectEntry]:
    """The contents of a table's struct, by key. ``key_of``: the key of each column."""
    entries: dict[str, ObjectEntry] = {}
    for column in struct.fields:
        key = key_of[column.name]
        entries[key] = entries.get(key, ObjectEntry()) | _of_column(column)
    return entries


def values_of(record: RecordShape, place: Place) -> FieldShape:
    """The merged shape of the values of all keys. ``place``: of the first object."""
    value = FieldShape(place)
    for shape in record.fields.values():
        value = value.merge(shape)
    return replace(value, missing=False, absent=False)


def as_map(entries: Mapping[str, ObjectEntry]) -> MapVerdict | None:
    """The reason an object with these keys is a map; None where it is a struct.

    >>> as_map({"2024-01-01": ObjectEntry(), "2024-01-02": ObjectEntry()}).why
    'its keys look like data'
    >>> as_map({"name": ObjectEntry(), "2024-01-02": ObjectEntry()}) is None
    True
    """
    looks = {key: look(key) for key in entries}
    data = [key for key, kind in looks.items() if kind in (KeyForm.sure, KeyForm.data, KeyForm.code)]
    one_kind = _one_kind(entries.values())
    if _all_data(looks, data) or (len(data) >= _FEW and one_kind):
        return MapVerdict("its keys look like data", tuple(data[:3]))
    if len(entries) >= ALIKE and one_kind and _alike(entries):
        return MapVerdict(f"its {len(entries)} keys have values that are built alike", tuple(entries)[:3])
    if len(entries) >= MANY and one_kind:
        return MapVerdict(f"its {len(entries)} keys have values of one kind", tuple(entries)[:3])
    kinds = frozenset(kind for key in data for kind in entries[key].kinds)
    if len(data) >= ALIKE and len(kinds) == 1 and other_words(entries, kinds):
        return MapVerdict(f"{len(data)} of its keys look like data", tuple(data[:3]), apart=True)
    return None


def kinds_in(type_: Type) -> frozenset[Kind]:
    """The kinds of values in a column of this type."""
    return _of_column(Field("", type_)).kinds


def other_words(entries: Mapping[str, ObjectEntry], kinds: frozenset[Kind]) -> bool:
    """True if there are words with values of other kinds."""
    return any(entry.kinds - kinds for key, entry in entries.items() if is_word(key))


def is_word(key: str) -> bool:
    """True if a key is the name of a field."""
    return look(key) is KeyForm.word


def _all_data(looks: Mapping[str, KeyForm], data: Sequence[str]) -> bool:
    """M1: every key that is not neutral looks like data, and there are enough of them."""
    if not data or any(kind is KeyForm.word for kind in looks.values()):
        return False
    kinds = [looks[key] for key in data]
    if all(kind is KeyForm.code for kind in kinds):
        return len(data) >= _CODES
    return len(data) >= 2 or KeyForm.sure in kinds


def _one_kind(entries: Iterable[ObjectEntry]) -> bool:
    """True if all values present are records, or lists of records, or scalars of one kind at one
    dimension.
    """
    kinds = {kind for entry in entries for kind in entry.kinds}
    return len(kinds) == 1


def _alike(entries: Mapping[str, ObjectEntry]) -> bool:
    """M2: a struct would need ten times the columns, or keys contain what field names rarely do."""
    counted = sum(len(entry.fields) for entry in entries.values())
    different = len(frozenset().union(*(entry.fields for entry in entries.values())))
    if different:
        return counted >= _TIMES * different
    scalars = all(kind != "record" for entry in entries.values() for kind, _ in entry.kinds)
    return scalars and sum(_ODD.search(key) is not None for key in entries) >= _ODD_KEYS


def _of_shape(shape: FieldShape) -> ObjectEntry:
    records = [
        profile.record for facet, profile in shape.facets.items() if facet.base == RECORD and profile.record
    ]
    kinds = frozenset(_kind(facet) for facet in shape.facets)
    return ObjectEntry(kinds, frozenset(key for record in records for key in record.fields))


def _of_column(column: Field) -> ObjectEntry:
    dim, base = peel(column.type)
    match base:
        case Struct(fields):
            return ObjectEntry(frozenset({("record", dim)}), frozenset(f.name for f in fields))
        case Map():
            return ObjectEntry(frozenset({("record", dim)}))
        case _:
            assert isinstance(base, Primitive)
            return ObjectEntry(frozenset({_kind(Facet(dim, base))}))


def _kind(facet: Facet) -> Kind:
    base = facet.base
    if not isinstance(base, Primitive):
        return "record", facet.dim
    if base == BOOLEAN:
        return "boolean", facet.dim
    return "number" if base in _NUMBERS or base.name == "decimal" else "text", facet.dim
