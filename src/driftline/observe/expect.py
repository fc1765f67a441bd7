"""A table's columns by key, so that observing recognizes new facets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from driftline.core.planning.maps import MAP, is_word, words_apart
from driftline.core.planning.shape import RECORD, Facet, FieldShape, Profile, RecordShape
from driftline.core.schema.naming import by_key
from driftline.core.schema.types import (
    BOOLEAN,
    BOUNDS,
    DOUBLE,
    FLOAT,
    FRACTIONS,
    INT,
    LONG,
    STRING,
    TIME,
    UUID,
    WIDER,
    Field,
    Map,
    Primitive,
    Schema,
    SourceLocation,
    Struct,
    Type,
    peel,
)
from driftline.core.settings.fields import FieldSettings, TextReading
from driftline.core.settings.table import TableSettings
from driftline.core.support import gc_paused
from driftline.core.values import DATELIKE


@dataclass(frozen=True, slots=True)
class BesideMap:
    """The keys of a struct next to a map.

    The struct has the ``keys``, and with ``words`` all words, which are then not in the map.

    >>> beside = BesideMap(words=True)
    >>> [(beside.in_struct(key), beside.in_map(key)) for key in ("name", "2024-01-01")]
    [(True, False), (False, True)]
    """

    keys: AbstractSet[str] = frozenset()
    words: bool = True

    def in_struct(self, key: str) -> bool:
        """True if the struct has this key."""
        return key in self.keys or (self.words and is_word(key))

    def in_map(self, key: str) -> bool:
        """True if the map has this key: any key without ``words``, else any but words."""
        return not (self.words and is_word(key))


@dataclass(slots=True)
class ExpectedField:
    """A table's columns for one field.

    Attributes:
        types: the types of the columns, inside their lists.
        fields: the fields of its records.
        value: the values of its maps.
        required: one of the columns is required, or the field is part of the key or the order.
        needed: the field is part of the key or the order, so NaN is no value of it.
        sole: the type of the only column, if values of this type are nothing new.
        beside: the keys of objects that are kept separately, if there is a struct next to a map.
        texts: reads the texts of a field that a person has folded into one type.
    """

    types: frozenset[Primitive] = frozenset()
    fields: Mapping[str, ExpectedField] = field(default_factory=dict)
    value: ExpectedField | None = None
    required: bool = False
    needed: bool = False
    sole: Facet | None = None
    beside: BesideMap | None = None
    texts: TextReading | None = None

    # Derived: whether integers and fractions go by their own types, or small integers by int and others by
    # their own; whether strings do, and whether date-like ones always count; the types with bounds.
    plain_integers: bool = field(init=False)
    plain_fractions: bool = field(init=False)
    small_integers: bool = field(init=False)
    plain_strings: bool = field(init=False)
    dated: bool = field(init=False)
    bounded: frozenset[str] = field(init=False)
    required_keys: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        # Of these columns it depends on the number itself whether it fits, so each is judged by its text.
        narrow = {t for t in self.types if t == FLOAT or t.name == "decimal"}
        self.plain_integers = LONG in self.types or not (narrow or INT in self.types)
        self.plain_fractions = DOUBLE in self.types or not narrow
        self.small_integers = INT in self.types and not narrow and LONG not in self.types
        names = {t.name for t in self.types}
        self.plain_strings = not self.types & {UUID, TIME}
        self.dated = bool(self.types & set(DATELIKE)) or not names.isdisjoint(FRACTIONS)
        self.bounded = frozenset(names.intersection(BOUNDS))
        self.required_keys = tuple(key for key, expected in self.fields.items() if expected.required)


UNKNOWN = ExpectedField()


@gc_paused()
def expect(schema: Schema, settings: TableSettings | None = None) -> ExpectedField:
    """Return a table's columns, existing or declared by hints, for each key of a record."""
    settings = settings or TableSettings()
    return ExpectedField(fields=_expected(schema.struct.fields, settings.fields, settings))


def _expected(
    columns: Iterable[Field], field_settings: FieldSettings, settings: TableSettings
) -> dict[str, ExpectedField]:
    # Siblings carry the key of their field in a mark, so all columns of a field come together here.
    keys = by_key(columns, settings.mark)
    for key, field_contract in field_settings.fields.items():
        if field_contract.hint is not None or field_contract.fields or field_contract.needed:
            # A field that only settings name has no column yet, but the rules ask for its values.
            keys.setdefault(key, [])
    return {
        key: _expect(field_contract, field_settings.of(key), settings) for key, field_contract in keys.items()
    }


def _expect(
    columns: Sequence[Field], field_settings: FieldSettings, settings: TableSettings
) -> ExpectedField:
    declared = [Field("", field_settings.hint)] if field_settings.hint is not None else []
    peeled = [peel(column.type) for column in [*columns, *declared]]
    inside = field_settings.inside(max(dim for dim, _ in peeled)) if peeled else field_settings.in_any_lists()
    leaf_types = [type_ for _, type_ in peeled]
    values = [Field("value", t.value) for t in leaf_types if isinstance(t, Map) and t.key == STRING]
    structs = [t for t in leaf_types if isinstance(t, Struct)]
    fields = _expected([f for t in structs for f in t.fields], inside, settings)
    beside = (
        BesideMap(frozenset(fields), words_apart(leaf_types, field_settings, settings.mark))
        if structs and values
        else None
    )
    return ExpectedField(
        frozenset(UUID if WIDER.get(t.name) == UUID else t for t in leaf_types if isinstance(t, Primitive)),
        fields,
        _expect(values, inside.of("value"), settings) if values else None,
        field_settings.needed or any(column.required for column in columns),
        field_settings.needed,
        _sole(columns, field_settings, settings.dates),
        beside,
        field_settings.texts,
    )


def _sole(columns: Sequence[Field], field_settings: FieldSettings, dates: str) -> Facet | None:
    # Only what adds nothing in any form may be taken unseen: with siblings or a hint, the value decides.
    if (
        len(columns) != 1
        or field_settings.hint is not None
        or field_settings.excluded
        or field_settings.needed
    ):
        return None
    (column,) = columns
    dim, leaf_type = peel(column.type)
    is_known = leaf_type in (BOOLEAN, LONG, DOUBLE, STRING) or isinstance(leaf_type, Struct)
    is_known = is_known or (leaf_type in DATELIKE and dates == "on")
    # Of what is required it matters whether it was there.
    if not is_known or any(f.required for _, f in Schema(Struct((column,))).walk()):
        return None
    return Facet(dim, RECORD if isinstance(leaf_type, Struct) else leaf_type)  # type: ignore[arg-type]


def with_declared_values(expected: ExpectedField, struct: Struct, settings: TableSettings) -> ExpectedField:
    """Add the values of maps that only a plan has found, where hints say what is inside of them.

    Without them a decimal in a map of records is observed as a double or a long, whose digits are gone.

    Args:
        expected: the table's columns, as the batch was observed.
        struct: the columns that the plan gives the table.
        settings: the table's settings.
    """
    return _with_fields(expected, struct.fields, settings.fields, settings)


def _with_fields(
    expected: ExpectedField, columns: Iterable[Field], field_settings: FieldSettings, settings: TableSettings
) -> ExpectedField:
    keys, changed = by_key(columns, settings.mark), {}
    for key, child_settings in field_settings.fields.items():
        before = expected.fields.get(key, UNKNOWN)
        now = _with_values(before, [f.type for f in keys.get(key, ())], child_settings, settings)
        if now is not before:
            changed[key] = now
    return replace(expected, fields={**expected.fields, **changed}) if changed else expected


def _with_values(
    expected: ExpectedField, types: Sequence[Type], field_settings: FieldSettings, settings: TableSettings
) -> ExpectedField:
    peeled = [peel(type_) for type_ in types]
    inside = field_settings.inside(max((dim for dim, _ in peeled), default=0))
    structs = [type_ for _, type_ in peeled if isinstance(type_, Struct)]
    maps = [type_ for _, type_ in peeled if isinstance(type_, Map) and type_.key == STRING]
    expected = _with_fields(expected, [f for t in structs for f in t.fields], inside, settings)
    if structs or not maps or "value" not in inside.fields:
        return expected
    of_values = inside.of("value")
    value = expected.value or _expect((), of_values, settings)
    value = _with_values(value, [type_.value for type_ in maps], of_values, settings)
    return expected if value is expected.value else replace(expected, value=value)


def steady(expected: ExpectedField) -> RecordShape:
    """Return the shape of records that fill the columns of all fields with a single type."""
    shape = RecordShape()
    for position, (key, inside) in enumerate(expected.fields.items()):
        # A profile without a place: the fields of a steady batch begin nowhere, and no report names them.
        if inside.sole is not None:
            location = SourceLocation("", 0, position)
            record = steady(inside) if inside.sole.base == RECORD else None
            shape.fields[key] = FieldShape(location, {inside.sole: Profile(location, record=record)})
    return shape


def foreseen(expected: ExpectedField, shape: RecordShape) -> ExpectedField:
    """Add the maps whose many keys were dropped while a batch of this ``shape`` was observed."""
    fields = {key: _foreseen(expected.fields.get(key, UNKNOWN), field) for key, field in shape.fields.items()}
    changed = {
        key: field_expected
        for key, field_expected in fields.items()
        if field_expected is not expected.fields.get(key, UNKNOWN)
    }
    return replace(expected, fields={**expected.fields, **changed}) if changed else expected


def _foreseen(expected: ExpectedField, field: FieldShape) -> ExpectedField:
    for profile in field.facets.values():
        if profile.record is not None and not profile.typed:
            expected = foreseen(expected, profile.record)
    for facet, profile in field.facets.items():
        if facet.base == MAP and profile.value is not None and not profile.typed:
            value = _foreseen(expected.value or UNKNOWN, profile.value)
            if expected.value is None and Facet(facet.dim, RECORD) in field.facets:
                expected = replace(expected, beside=BesideMap())
            if value is not expected.value:
                expected = replace(expected, value=value)
    return expected
