"""Maps among objects: M1, M2 and M3 of "Keys that are data" (section 9 of the evolution rules)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from driftline.core.planning.data_keys import Look, look
from driftline.core.planning.shape import NUMBER_TEXT, RECORD, Facet, FieldShape, RecordShape
from driftline.core.schema.place import Place
from driftline.core.schema.types import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    Field,
    Map,
    Primitive,
    Struct,
    Type,
    peel,
)

_NUMBERS = (INT, LONG, FLOAT, DOUBLE, NUMBER_TEXT)
_ODD = re.compile(r"[^\w$-]", re.ASCII)  # characters that names of fields seldom have

ALIKE, MANY = 20, 100  # keys: of M2, of M3
_TIMES = 10  # so many times more columns than a map's
_CODES, _FEW, _ODD_KEYS = 5, 5, 5
_SHOWN = 32  # characters of a key in a report

Kind = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """The contents of one key of an object: ``kinds`` of its values with their dimensions, and ``fields`` of
    records.
    """

    kinds: frozenset[Kind] = frozenset()
    fields: frozenset[str] = frozenset()

    def __or__(self, other: Entry) -> Entry:
        return Entry(self.kinds | other.kinds, self.fields | other.fields)


@dataclass(frozen=True, slots=True)
class Verdict:
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


def entries_of(records: Iterable[RecordShape]) -> dict[str, Entry]:
    """The contents of a batch's objects, by key."""
    entries: dict[str, Entry] = {}
    for record in records:
        for key, shape in record.fields.items():
            entries[key] = entries.get(key, Entry()) | _of_shape(shape)
    return entries


def entries_of_struct(struct: Struct, key_of: Mapping[str, str]) -> dict[str, Entry]:
    """The contents of a table's struct, by key. ``key_of``: the key of each column."""
    entries: dict[str, Entry] = {}
    for column in struct.fields:
        key = key_of[column.name]
        entries[key] = entries.get(key, Entry()) | _of_column(column)
    return entries


def values_of(record: RecordShape, place: Place) -> FieldShape:
    """The merged shape of the values of all keys. ``place``: of the first object."""
    value = FieldShape(place)
    for shape in record.fields.values():
        value = value.merge(shape)
    return replace(value, missing=False, absent=False)


def as_map(entries: Mapping[str, Entry]) -> Verdict | None:
    """The reason an object with these keys is a map; None where it is a struct.

    >>> as_map({"2024-01-01": Entry(), "2024-01-02": Entry()}).why
    'its keys look like data'
    >>> as_map({"name": Entry(), "2024-01-02": Entry()}) is None
    True
    """
    looks = {key: look(key) for key in entries}
    data = [key for key, kind in looks.items() if kind in (Look.sure, Look.data, Look.code)]
    one_kind = _one_kind(entries.values())
    if _all_data(looks, data) or (len(data) >= _FEW and one_kind):
        return Verdict("its keys look like data", tuple(data[:3]))
    if len(entries) >= ALIKE and one_kind and _alike(entries):
        return Verdict(f"its {len(entries)} keys have values that are built alike", tuple(entries)[:3])
    if len(entries) >= MANY and one_kind:
        return Verdict(f"its {len(entries)} keys have values of one kind", tuple(entries)[:3])
    kinds = frozenset(kind for key in data for kind in entries[key].kinds)
    if len(data) >= ALIKE and len(kinds) == 1 and other_words(entries, kinds):
        return Verdict(f"{len(data)} of its keys look like data", tuple(data[:3]), apart=True)
    return None


def kinds_in(type_: Type) -> frozenset[Kind]:
    """The kinds of values in a column of this type."""
    return _of_column(Field("", type_)).kinds


def other_words(entries: Mapping[str, Entry], kinds: frozenset[Kind]) -> bool:
    """True if there are words with values of other kinds."""
    return any(entry.kinds - kinds for key, entry in entries.items() if is_word(key))


def is_word(key: str) -> bool:
    """True if a key is the name of a field."""
    return look(key) is Look.word


def _all_data(looks: Mapping[str, Look], data: Sequence[str]) -> bool:
    """M1: every key that is not neutral looks like data, and there are enough of them."""
    if not data or any(kind is Look.word for kind in looks.values()):
        return False
    kinds = [looks[key] for key in data]
    if all(kind is Look.code for kind in kinds):
        return len(data) >= _CODES
    return len(data) >= 2 or Look.sure in kinds


def _one_kind(entries: Iterable[Entry]) -> bool:
    """True if all values present are records, or lists of records, or scalars of one kind at one
    dimension.
    """
    kinds = {kind for entry in entries for kind in entry.kinds}
    return len(kinds) == 1


def _alike(entries: Mapping[str, Entry]) -> bool:
    """M2: a struct would need ten times the columns, or keys contain what field names rarely do."""
    counted = sum(len(entry.fields) for entry in entries.values())
    different = len(frozenset().union(*(entry.fields for entry in entries.values())))
    if different:
        return counted >= _TIMES * different
    scalars = all(kind != "record" for entry in entries.values() for kind, _ in entry.kinds)
    return scalars and sum(_ODD.search(key) is not None for key in entries) >= _ODD_KEYS


def _of_shape(shape: FieldShape) -> Entry:
    records = [seen.record for facet, seen in shape.facets.items() if facet.base == RECORD and seen.record]
    kinds = frozenset(_kind(facet) for facet in shape.facets)
    return Entry(kinds, frozenset(key for record in records for key in record.fields))


def _of_column(column: Field) -> Entry:
    dim, inner = peel(column.type)
    match inner:
        case Struct(fields):
            return Entry(frozenset({("record", dim)}), frozenset(f.name for f in fields))
        case Map():
            return Entry(frozenset({("record", dim)}))
        case _:
            assert isinstance(inner, Primitive)
            return Entry(frozenset({_kind(Facet(dim, inner))}))


def _kind(facet: Facet) -> Kind:
    base = facet.base
    if not isinstance(base, Primitive):
        return "record", facet.dim
    if base == BOOLEAN:
        return "boolean", facet.dim
    return "number" if base in _NUMBERS or base.name == "decimal" else "text", facet.dim
