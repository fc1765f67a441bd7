"""Decides which objects are maps: M1, M2 and M3 of "Keys that are data" (section 9 of the rules)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache

from driftline.core.planning.plan import ColumnRoute, FieldRoute, RecordRoute, facet_of
from driftline.core.planning.policies import preserve
from driftline.core.planning.policies.policy import Policy
from driftline.core.planning.shape import NUMBER_TEXT, RECORD, Facet, FieldShape, MapOf, Profile, RecordShape
from driftline.core.schema.naming import by_key, data_key, is_metadata
from driftline.core.schema.types import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    JSON,
    LONG,
    STRING,
    VARIANT,
    Field,
    Map,
    Primitive,
    SourceLocation,
    Struct,
    Type,
    peel,
)
from driftline.core.settings.fields import FieldSettings


class KeyForm(Enum):
    """The look of a key.

    ``sure``: data on its own; ``code``: data if there are more of its kind; ``neutral``: no evidence either
    way; ``word``: the name of a field.
    """

    sure = "sure"
    data = "data"
    code = "code"
    neutral = "neutral"
    word = "word"


# The empty key is a key of a map like any other
NEUTRAL = frozenset({"default", "*", ".", "other", "unknown", "all", "none", "null", "undefined", ""})
# One look a line, with what it matches; the first that matches counts.
TABLE = (
    # A UUID
    (
        KeyForm.sure,
        r".*[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}.*",
    ),
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


# Records of one source repeat their keys, and each look tries eighteen patterns.
@lru_cache(65_536)
def key_form(key: str) -> KeyForm:
    """Classify a key by its look.

    >>> [key_form(key).name for key in ("2024-01-31", "17", "Q42", "default", "name", "a/b")]
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
    """The contents of one key of an object: ``kinds`` of values, and the ``fields`` of records."""

    kinds: frozenset[Kind] = frozenset()
    fields: frozenset[str] = frozenset()

    def __or__(self, other: ObjectEntry) -> ObjectEntry:
        return ObjectEntry(self.kinds | other.kinds, self.fields | other.fields)


@dataclass(frozen=True, slots=True)
class MapVerdict:
    """The reason that an object is a map.

    Attributes:
        keys: some of the deciding keys.
        apart: its words stay a struct, and only the other keys form the map.
    """

    why: str
    keys: tuple[str, ...] = field(default=())
    apart: bool = False

    def __str__(self) -> str:
        return f"{self.why}: {', '.join(map(_short, self.keys))}" if self.keys else self.why


def _short(key: str) -> str:
    return key if len(key) <= _SHOWN else key[: _SHOWN - 1] + "…"


def entries_of(records: Iterable[RecordShape]) -> dict[str, ObjectEntry]:
    """Collect the contents of a batch's objects, by key."""
    entries: dict[str, ObjectEntry] = {}
    for record in records:
        for key, shape in record.fields.items():
            entries[key] = entries.get(key, ObjectEntry()) | _of_shape(shape)
    return entries


def entries_of_struct(struct: Struct, key_of: Mapping[str, str]) -> dict[str, ObjectEntry]:
    """Collect the contents of a table's struct, by key.

    Args:
        key_of: the key of each column.
    """
    entries: dict[str, ObjectEntry] = {}
    for column in struct.fields:
        key = key_of[column.name]
        entries[key] = entries.get(key, ObjectEntry()) | _of_column(column)
    return entries


def values_of(record: RecordShape, location: SourceLocation) -> FieldShape:
    """Merge the shapes of the values of all keys.

    Args:
        location: the place of the first object.
    """
    value = FieldShape(location)
    for shape in record.fields.values():
        value = value.merge(shape)
    return replace(value, missing=False, absent=False)


def as_map(entries: Mapping[str, ObjectEntry]) -> MapVerdict | None:
    """Return the reason that an object with these keys is a map; None if it is a struct.

    >>> as_map({"2024-01-01": ObjectEntry(), "2024-01-02": ObjectEntry()}).why
    'its keys look like data'
    >>> as_map({"name": ObjectEntry(), "2024-01-02": ObjectEntry()}) is None
    True
    """
    looks = {key: key_form(key) for key in entries}
    data = [key for key, kind in looks.items() if kind in (KeyForm.sure, KeyForm.data, KeyForm.code)]
    one_kind = _one_kind(entries.values())
    if _all_data(looks, data) or (len(data) >= _FEW and one_kind):
        return MapVerdict("its keys look like data", tuple(data[:3]))
    if len(entries) >= ALIKE and one_kind and _alike(entries):
        return MapVerdict(f"its {len(entries)} keys have values that are built alike", tuple(entries)[:3])
    if len(entries) >= MANY and one_kind:
        return MapVerdict(f"its {len(entries)} keys have values of one kind", tuple(entries)[:3])
    kinds = frozenset(kind for key in data for kind in entries[key].kinds)
    # Later batches tell words from data by the columns alone, also in tables of others. So the map's values
    # must be of one kind, and the words' of another.
    if len(data) >= ALIKE and len(kinds) == 1 and other_words(entries, kinds):
        return MapVerdict(f"{len(data)} of its keys look like data", tuple(data[:3]), apart=True)
    return None


def kinds_in(type_: Type) -> frozenset[Kind]:
    """Return the kinds of values in a column of this type."""
    return _of_column(Field("", type_)).kinds


def other_words(entries: Mapping[str, ObjectEntry], kinds: frozenset[Kind]) -> bool:
    """True if there are words with values of other kinds."""
    return any(entry.kinds - kinds for key, entry in entries.items() if is_word(key))


def is_word(key: str) -> bool:
    """True if a key is the name of a field."""
    return key_form(key) is KeyForm.word


def _all_data(looks: Mapping[str, KeyForm], data: Sequence[str]) -> bool:
    """M1: every key that is not neutral looks like data, and there are enough of them."""
    if not data or any(kind is KeyForm.word for kind in looks.values()):
        return False
    kinds = [looks[key] for key in data]
    # Names of columns such as Q1 and Q2 look like codes too, so a few of them prove nothing.
    if all(kind is KeyForm.code for kind in kinds):
        return len(data) >= _CODES
    return len(data) >= 2 or KeyForm.sure in kinds


def _one_kind(entries: Iterable[ObjectEntry]) -> bool:
    """True if all values are records, or lists of records, or scalars of one kind at one dimension."""
    kinds = {kind for entry in entries for kind in entry.kinds}
    return len(kinds) == 1


def _alike(entries: Mapping[str, ObjectEntry]) -> bool:
    """M2: a struct would need ten times the columns, or keys contain what field names rarely do."""
    counted = sum(len(entry.fields) for entry in entries.values())
    different = len(frozenset().union(*(entry.fields for entry in entries.values())))
    # Records count by the columns that a struct would need; scalars have one each, so only the keys tell.
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


MAP = MapOf(STRING)
_DROPPED = "its many keys are data"


class FixedKeys(Enum):
    """The keys of a field's structs that get no more columns, because a map next to them has these keys."""

    none = "none"
    data = "all but words"
    all = "all"

    def holds(self, key: str) -> bool:
        """True if the map has this key."""
        return self is FixedKeys.all or (self is FixedKeys.data and not is_word(key))


@dataclass(frozen=True, slots=True)
class Objects:
    """A field's shape with its objects as maps or structs.

    Attributes:
        verdict: the reason for a new map.
        fixed_keys: keys that get no more columns in the field's structs.
    """

    shape: FieldShape
    verdict: MapVerdict | None = None
    fixed_keys: FixedKeys = FixedKeys.none

    @property
    def apart(self) -> bool:
        return self.fixed_keys is FixedKeys.data


def objects_of(
    shape: FieldShape, types: Sequence[Type], field_settings: FieldSettings, policy: Policy, mark: str
) -> Objects:
    """Decide if the objects of a field with columns of these ``types`` are maps or structs.

    Args:
        mark: the prefix of docs.
    """
    records = {f: s for f, s in shape.facets.items() if _is_object(f, s)}
    structs = _structs(types)
    # Typed values that waited next to objects are declared as maps, which a column of theirs
    # will be; a VARIANT or JSON column takes both as they are.
    # The objects are a map at once, so that the columns do not depend on which batch came first.
    typed_map = any(f.base == MAP and profile.typed for f, profile in shape.facets.items())
    declared = records and typed_map and VARIANT not in types and JSON not in types
    has_map = declared or any(facet_of(type_).base == MAP for type_ in types)
    folded = [profile for facet, profile in shape.facets.items() if facet.base == MAP and not profile.typed]
    if has_map:
        verdict = None
    elif folded:
        verdict = _of_folded(folded, records.values())
    else:
        verdict = _verdict(records.values(), structs, field_settings, policy, mark)
    if not has_map and verdict is None:
        return Objects(shape)
    words_in_struct = words_apart(types, field_settings, mark) if verdict is None else verdict.apart
    fixed_keys = FixedKeys.data if words_in_struct else FixedKeys.all if structs else FixedKeys.none
    return Objects(
        _divided(shape, types, fixed_keys, mark, field_settings.epoch_unit or "ms"), verdict, fixed_keys
    )


def _divided(
    shape: FieldShape, types: Sequence[Type], fixed_keys: FixedKeys, mark: str, unit: str
) -> FieldShape:
    """Divide each object among the map and the structs in the columns."""
    records = {f: s for f, s in shape.facets.items() if _is_object(f, s)}
    words_in_struct, structs = fixed_keys is FixedKeys.data, _structs(types)
    out = replace(shape, facets={f: s for f, s in shape.facets.items() if f not in records})
    deepest = max((c.dim for type_ in types if (c := facet_of(type_)).base == RECORD), default=-1)
    for facet, profile in records.items():
        in_map, words = _split(profile, words_in_struct, fixed_keys)
        if in_map.fields or not words_in_struct:
            out.add(
                Facet(facet.dim, MAP),
                replace(profile, record=None, value=values_of(in_map, profile.location)),
            )
        if words_in_struct or deepest >= facet.dim:
            record = _within(in_map, _together(structs), mark, unit)
            out.add(facet, replace(profile, record=RecordShape(record.fields | words)))
    return out


def _split(
    profile: Profile, words_in_struct: bool, fixed_keys: FixedKeys
) -> tuple[RecordShape, dict[str, FieldShape]]:
    """Split an object into the part in the map and its other fields."""
    assert profile.record is not None
    in_map = profile.record.having(lambda key: not words_in_struct or fixed_keys.holds(key))
    return in_map, {k: shape for k, shape in profile.record.fields.items() if k not in in_map.fields}


def folded(shape: RecordShape, batch_shape: RecordShape | None = None) -> RecordShape:
    """Fold objects into maps where a part of the batch has dropped their keys.

    Their words stay structs.

    Args:
        shape: of the batch, or of a part of it.
        batch_shape: the folded shape of the batch. A part alone may not show which keys stay a struct.
    """
    batch = {} if batch_shape is None else batch_shape.fields
    return RecordShape({key: _folded(field, batch.get(key)) for key, field in shape.fields.items()})


def _folded(field: FieldShape, batch_shape: FieldShape | None) -> FieldShape:
    if all(profile.record is None and profile.value is None for profile in field.facets.values()):
        return field
    out = replace(field, facets={})
    # From outside in: the values of a map come from several objects, and only together show what they are.
    for facet, profile in _maps_filled(field, batch_shape).items():
        batch = None if batch_shape is None else batch_shape.facets.get(facet)
        record, of_keys = profile.record, profile.value
        if record is not None:
            record = folded(record, None if batch is None else batch.record)
        if of_keys is not None:
            of_keys = _folded(of_keys, None if batch is None else batch.value)
        out.facets[facet] = replace(profile, record=record, value=of_keys)
    return out


def _maps_filled(field: FieldShape, batch_shape: FieldShape | None) -> dict[Facet, Profile]:
    """The facets of a field, its objects in its maps, but for words that have a struct."""
    batch = field if batch_shape is None else batch_shape
    maps = [s for f, s in batch.facets.items() if f.base == MAP and not s.typed]
    records = {f: s for f, s in batch.facets.items() if _is_object(f, s)}
    if not maps:
        return field.facets
    words_in_struct = bool(records) if batch_shape is not None else _of_folded(maps, records.values()).apart
    out = replace(field, facets={f: s for f, s in field.facets.items() if not _is_object(f, s)})
    for facet, profile in field.facets.items():
        if not _is_object(facet, profile) or profile.record is None:
            continue
        in_map = profile.record.having(lambda key: not (words_in_struct and is_word(key)))
        if in_map.fields:
            of_keys = values_of(in_map, profile.location)
            out.add(Facet(facet.dim, MAP), replace(profile, record=None, value=of_keys))
        if words_in_struct:
            out.add(facet, replace(profile, record=profile.record.having(is_word)))
    return out.facets


def words_apart(types: Sequence[Type], field_settings: FieldSettings, mark: str) -> bool:
    """True if the field has its words in a struct and its other keys in a map.

    The words' values then differ in kind from those that made the map. Otherwise the struct is one that
    turned out to be a map, and the map has all keys.
    """
    structs = _structs(types)
    maps = [base for type_ in types if isinstance(base := peel(type_)[1], Map)]
    if not structs or not maps or field_settings.hint is not None:
        return False
    return other_words(_entries_of_columns(structs, mark), kinds_in(maps[0].value))


def fixed_settings(
    field_settings: FieldSettings, fixed_keys: FixedKeys, keys: Iterable[str]
) -> FieldSettings:
    """Keep objects structs below the ``keys`` that get no more columns."""
    fixed_fields = {key: field_settings.of(key).without_maps() for key in keys if fixed_keys.holds(key)}
    return replace(field_settings, fields={**field_settings.fields, **fixed_fields})


def fixed_route(route: RecordRoute, fixed_keys: FixedKeys = FixedKeys.all) -> RecordRoute:
    """The route of a struct with fixed keys: a value that has no column there is in the map."""
    return RecordRoute(tuple(_fixed_field(f) if fixed_keys.holds(f.key) else f for f in route.fields))


def _fixed_field(field: FieldRoute) -> FieldRoute:
    columns = tuple(_fixed_column(column) for column in field.columns)
    # The conversion would take a value that the struct has no column for as lost.
    return replace(field, columns=columns, elsewhere=True)


def _fixed_column(column: ColumnRoute) -> ColumnRoute:
    return replace(
        column,
        record=None if column.record is None else fixed_route(column.record),
        value=None if column.value is None else _fixed_field(column.value),
    )


def _is_object(facet: Facet, profile: Profile) -> bool:
    return facet.base == RECORD and not profile.typed and profile.record is not None


def _verdict(
    records: Iterable[Profile],
    structs: Sequence[Struct],
    field_settings: FieldSettings,
    policy: Policy,
    mark: str,
) -> MapVerdict | None:
    """Return the reason that the objects become a map without a setting, if they do."""
    # A hint for a field inside says that the keys are names.
    decided = (
        field_settings.maps != "auto" or field_settings.hint is not None or field_settings.declares_fields
    )
    # A map takes every value; a policy that refuses some needs columns to refuse them by.
    if decided or field_settings.needed or not policy.keeps_all:
        return None
    entries = entries_of(profile.record for profile in records if profile.record is not None)
    for key, entry in _entries_of_columns(structs, mark).items():
        entries[key] = entries.get(key, ObjectEntry()) | entry
    return as_map(entries)


def _of_folded(maps: Sequence[Profile], records: Iterable[Profile]) -> MapVerdict:
    """The reason objects are a map whose many keys were not kept.

    Args:
        records: the objects that were.
    """
    if any(profile.undivided for profile in maps):
        return MapVerdict(_DROPPED)
    entries = entries_of(profile.record for profile in records if profile.record is not None)
    folded = entries_of(RecordShape({"": profile.value}) for profile in maps if profile.value is not None)
    kinds = folded.get("", ObjectEntry()).kinds
    return MapVerdict(_DROPPED, apart=len(kinds) == 1 and other_words(entries, kinds))


def _entries_of_columns(structs: Iterable[Struct], mark: str) -> dict[str, ObjectEntry]:
    entries: dict[str, ObjectEntry] = {}
    for struct in structs:
        columns = Struct(tuple(f for f in struct.fields if not is_metadata(f.doc)))
        for key, entry in entries_of_struct(
            columns, {f.name: data_key(f, mark) for f in columns.fields}
        ).items():
            entries[key] = entries.get(key, ObjectEntry()) | entry
    return entries


def _structs(types: Iterable[Type]) -> list[Struct]:
    """The structs among the types, lists removed."""
    return [base for type_ in types if isinstance(base := peel(type_)[1], Struct)]


def _together(structs: Sequence[Struct]) -> Struct:
    return Struct(tuple(f for struct in structs for f in struct.fields))


def _within(record: RecordShape, struct: Struct, mark: str, unit: str) -> RecordShape:
    """The part of a record that the columns of a struct take unchanged."""
    columns = by_key(struct.fields, mark)
    return RecordShape(
        {
            key: _fitting(shape, [c.type for c in columns[key]], mark, unit)
            for key, shape in record.fields.items()
            if key in columns
        }
    )


def _fitting(shape: FieldShape, types: Sequence[Type], mark: str, unit: str) -> FieldShape:
    """The part of a field that its columns take unchanged."""
    facets = [facet_of(type_) for type_ in types]
    out = replace(shape, facets={})
    for facet, profile in shape.facets.items():
        if isinstance(facet.base, Primitive):
            if any(preserve.accepts(column, facet, profile, unit) for column in facets):
                out.add(facet, profile)
        elif profile.record is not None:
            record = _fitting_record(facet.dim, profile.record, types, mark, unit)
            if record is not None:
                out.add(facet, replace(profile, record=record))
    return out


def _fitting_record(
    dim: int, record: RecordShape, types: Sequence[Type], mark: str, unit: str
) -> RecordShape | None:
    """The part of records inside ``dim`` lists that the structs among the types take, or else the maps."""
    facets = [facet_of(type_) for type_ in types]
    if any(c.base == RECORD and c.dim >= dim for c in facets):
        return _within(record, _together(_structs(types)), mark, unit)
    if any(c.base == MAP and c.dim >= dim for c in facets):
        values = [base.value for type_ in types if isinstance(base := peel(type_)[1], Map)]
        return RecordShape({key: _fitting(v, values, mark, unit) for key, v in record.fields.items()})
    return None
