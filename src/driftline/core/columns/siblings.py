"""A field's columns: grouped, merged into one type, and traced to their origin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from driftline.core.planning.conversions import fits, widest
from driftline.core.planning.maps import words_apart
from driftline.core.planning.own_columns import rest_column
from driftline.core.planning.plan import ColumnRoute, FieldRoute, RecordRoute
from driftline.core.planning.shape import Facet
from driftline.core.schema.date_pattern import DatePattern
from driftline.core.schema.naming import MARK, Names, caseless, data_key, is_metadata, safe
from driftline.core.schema.types import (
    BINARY,
    STRING,
    VARIANT,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    children,
    peel,
    wrap,
)
from driftline.core.settings.csv import JSON_SIGNS, Signs
from driftline.core.settings.fields import FieldSettings


@dataclass(frozen=True, slots=True)
class SiblingGroup:
    """A field's columns in one struct, or in several structs of one field.

    Attributes:
        key: the field's exact key.
        apart: it has other columns for other keys of its objects.
    """

    key: str
    columns: tuple[Field, ...]
    apart: bool = False

    @property
    def drifted(self) -> bool:
        """True if the field has more than one column."""
        return len(self.columns) > 1


def families(structs: Sequence[Struct], mark: str = MARK) -> list[SiblingGroup]:
    """Group a record's columns by field; a column that is no field of the data stands alone.

    >>> from driftline.core.schema.naming import mark
    >>> twins = Struct((Field("a", STRING), Field("a_long", STRING, doc=mark("a"))))
    >>> [(f.key, len(f.columns)) for f in families([twins])]
    [('a', 2)]
    """
    by_key: dict[tuple[bool, str], list[Field]] = {}
    for column in (f for struct in structs for f in struct.fields):
        # A metadata column may bear a name that is a key of the data as well.
        by_key.setdefault((is_metadata(column.doc), data_key(column, mark)), []).append(column)
    return [SiblingGroup(key, tuple(columns)) for (_, key), columns in by_key.items()]


def named(families_: Sequence[SiblingGroup]) -> list[str]:
    """Name each field as one column: by its key if that is free, else by its first column's name."""
    existing = Names({caseless(c.name) for f in families_ for c in f.columns})
    out = []
    for family in families_:
        own_name = safe(family.key)
        names = {caseless(c.name) for c in family.columns}
        free = caseless(own_name) in names or existing.free(own_name)
        out.append(own_name if family.drifted and free else family.columns[0].name)
    # Two fields may have one name here, of which the second gets a number.
    taken = Names()
    return [taken.take(name) for name in out]


@dataclass(frozen=True, slots=True)
class MergedField:
    """A field merged into one column: a primitive, a record, or a map, inside ``dim`` lists.

    Attributes:
        base: the primitive type.
        fields: the fields of a record.
        key: the key type of a map.
        value: the values of a map.
        text: the columns have no common type and become text, nested values as JSON.
        requested: a person chose the type, so it need not hold every value.
        unit: the field's epoch unit, if set.
        as_is: only columns of the same kind convert.
        no_structs: structs do not go into this map, because their keys are words.
        pattern: the pattern of texts that are dates.
        signs: the signs in texts that are numbers.
    """

    dim: int
    base: Primitive | None = None
    fields: tuple[MergedMember, ...] | None = None
    key: Type | None = None
    value: MergedField | None = None
    text: bool = False
    requested: bool = False
    unit: str | None = None
    as_is: bool = False
    no_structs: bool = False
    pattern: DatePattern | None = None
    signs: Signs = JSON_SIGNS

    @property
    def type(self) -> Type:
        """The type of the one column, without ids."""
        if self.fields is not None:
            return wrap(Struct(tuple(Field(m.name, m.field.type, doc=m.doc) for m in self.fields)), self.dim)
        if self.value is not None and self.key is not None:
            return wrap(Map(self.key, self.value.type), self.dim)
        assert self.base is not None
        return wrap(self.base, self.dim)


@dataclass(frozen=True, slots=True)
class MergedMember:
    """A field of a record, merged into one column."""

    key: str
    name: str
    field: MergedField
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class DriftedColumns:
    """A field with several columns, and its merged type.

    Attributes:
        path: by keys of the data.
    """

    path: Path
    columns: tuple[Field, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class DriftedPlace:
    """The place of a drifted field.

    Attributes:
        path: the columns' struct, and the field's key.
        keys: the same by keys of the data alone.
    """

    path: Path
    keys: Path
    columns: tuple[Field, ...]


def drifted_fields(schema: Schema, mark: str) -> Iterator[DriftedPlace]:
    """Yield the places of drifted fields, which have several columns in one struct. Parents come first.

    Counts of drifted fields count their ``keys``: a field of objects in two columns, single and in lists, is
    one field in two places.
    """
    yield from _drifted_inside(schema.struct, (), (), mark)


def _drifted_inside(type_: Type, path: Path, keys: Path, mark: str) -> Iterator[DriftedPlace]:
    if not isinstance(type_, Struct):
        for child in children(type_):
            child_keys = keys if isinstance(type_, List) else (*keys, child.name)
            yield from _drifted_inside(child.type, (*path, child.name), child_keys, mark)
        return
    for family in families([type_], mark):
        if family.drifted and not any(is_metadata(c.doc) for c in family.columns):
            yield DriftedPlace((*path, family.key), (*keys, family.key), family.columns)
    for f in type_.fields:
        yield from _drifted_inside(f.type, (*path, f.name), (*keys, data_key(f, mark)), mark)


@dataclass(slots=True)
class FieldMerger:
    """Merges the columns of each field into one.

    Attributes:
        requested_types: types by path of the data, whose ``element`` steps may be omitted.
        met: the requested types that occurred.
        field_settings: hints and settings by path.
    """

    mark: str = MARK
    field_settings: FieldSettings = field(default_factory=FieldSettings)
    requested_types: Mapping[Path, Type] = field(default_factory=dict)
    met: set[Path] = field(default_factory=set)
    drifted: list[DriftedColumns] = field(default_factory=list)

    def record(self, structs: Sequence[Struct], parent: Path = (), keys: Path = ()) -> MergedField:
        """Merge a record from all of its columns.

        Args:
            parent: its path.
            keys: the same without lists.
        """
        parts = [
            part for family in families(structs, self.mark) for part in self._parts(family, parent, keys)
        ]
        members = []
        for family, name in zip(parts, named(parts), strict=True):
            path, key_path = (*parent, family.key), (*keys, family.key)
            # Parents are listed before their fields, though they are known only after these.
            place = len(self.drifted)
            merged = self.of([c.type for c in family.columns], path, key_path)
            merged = replace(merged, no_structs=merged.value is not None and family.apart)
            if len({spelled(c.type) for c in family.columns}) > 1:
                self.drifted.insert(place, DriftedColumns(key_path, family.columns, merged.type))
            members.append(MergedMember(family.key, name, merged))
        return MergedField(0, fields=tuple(members))

    def _parts(self, family: SiblingGroup, parent: Path, keys: Path) -> Iterator[SiblingGroup]:
        """Yield the field, or its struct of words and its map of other keys separately."""
        requested = {(*parent, family.key), (*keys, family.key)} & self.requested_types.keys()
        field_settings = settings_at(self.field_settings, (*keys, family.key))
        if requested or not words_apart([c.type for c in family.columns], field_settings, self.mark):
            yield family
            return
        words = tuple(c for c in family.columns if isinstance(peel(c.type)[1], Struct))
        yield SiblingGroup(family.key, words, apart=True)
        yield SiblingGroup(family.key, tuple(c for c in family.columns if c not in words), apart=True)

    def _map(self, maps: Sequence[Map], structs: Sequence[Struct], path: Path, keys: Path) -> MergedField:
        """Merge maps with structs whose keys turned out to be data, which later went to the maps."""
        values = [f.type for struct in structs for f in struct.fields if not is_metadata(f.doc)]
        value = self.of([*(m.value for m in maps), *values], (*path, "value"), (*keys, "value"))
        return MergedField(0, key=maps[0].key, value=value)

    def of(self, types: Sequence[Type], path: Path, keys: Path) -> MergedField:
        """Merge column types into one that holds every value, as far as there is one."""
        requested = next((p for p in (path, keys) if p in self.requested_types), None)
        if requested is not None:
            self.met.add(requested)
            return replace(
                self._requested(self.requested_types[requested], types, path, keys), requested=True
            )
        return self._widest(types, path, keys)

    def _widest(self, types: Sequence[Type], path: Path, keys: Path) -> MergedField:
        dim = max(peel(t)[0] for t in types)
        bases = [peel(t)[1] for t in types]
        element_path = (*path, *("element",) * dim)
        structs = [t for t in bases if isinstance(t, Struct)]
        if len(structs) == len(bases):
            return replace(self.record(structs, element_path, keys), dim=dim)
        maps = [t for t in bases if isinstance(t, Map)]
        key_types = {m.key for m in maps}
        alike = len(maps) + len(structs) == len(bases) and len(key_types) == 1
        # The keys of a struct are texts, so it goes only into a map of texts.
        if alike and (not structs or key_types == {STRING}):
            return replace(self._map(maps, structs, element_path, keys), dim=dim)
        plain = [t for t in bases if isinstance(t, Primitive)]
        if len(plain) == len(bases):
            return MergedField(dim, base=_widest(plain), unit=unit_at(self.field_settings, keys))
        return MergedField(0, base=STRING, text=True)

    def _requested(self, type_: Type, types: Sequence[Type], path: Path, keys: Path) -> MergedField:
        dim, base = peel(type_)
        match base:
            case Primitive():
                return MergedField(dim, base=base, unit=unit_at(self.field_settings, keys))
            case Map(key, value):
                return MergedField(
                    dim, key=key, value=self._requested(value, (), (*path, "value"), (*keys, "value"))
                )
            case _:
                structs = [s for t in types if isinstance(s := peel(t)[1], Struct)]
                element_path = (*path, *("element",) * dim)
                return replace(self.record(structs, element_path, keys), dim=dim)


def spelled(type_: Type) -> str:
    """Spell a type without ids, and a record without its fields, which drift separately."""
    dim, base = peel(type_)
    shown = "record" if isinstance(base, Struct) else str(base)
    return f"{shown}[{dim}]"


def _widest(types: Sequence[Primitive]) -> Primitive:
    """Return the type that holds all values; bytes and another type become text."""
    if VARIANT in types:
        return VARIANT
    # Bytes hold any text; not all bytes are one.
    if len(set(types)) > 1 and any(t.name in ("binary", "fixed") for t in types):
        return BINARY
    return widest(types)


def unit_at(field_settings: FieldSettings, path: Path) -> str | None:
    """Return the epoch unit of the field at a path of the data; None if unset."""
    return settings_at(field_settings, path).epoch_unit


def settings_at(field_settings: FieldSettings, path: Path) -> FieldSettings:
    """Return the settings of the field at a path of the data."""
    for step in path:
        field_settings = field_settings.of(step)
    return field_settings


def most_exact(columns: Sequence[Field], to: Type) -> Iterator[Field]:
    """Order columns by closeness to the original values: the requested type, then the narrowest.

    For a map, structs come last: a map next to a struct has all its keys.
    """
    types = [peel(c.type)[1] for c in columns]

    def rank(column: Field) -> tuple[bool, bool, int, int]:
        """The sort key of a column: structs before a map last, then the requested type, then by width."""
        dim, base = peel(column.type)
        wider = sum(isinstance(base, Primitive) and isinstance(t, Primitive) and fits(base, t) for t in types)
        late = isinstance(base, Struct) and isinstance(peel(to)[1], Map)
        return (late, spelled(column.type) != spelled(to), -wider, dim)

    yield from sorted(columns, key=rank)


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """The origin of the leaf column at ``column``: the values of these types in the field at ``path``.

    Attributes:
        exact: they have the column's type, so nothing is converted.
    """

    column: Path
    path: Path
    types: tuple[Facet, ...]
    exact: bool


def origins(route: RecordRoute, schema: Schema) -> Iterator[ColumnOrigin]:
    """Find the origins of all columns of ``schema`` that the route fills.

    Paths go through lists by ``element``, through maps by ``key`` and ``value``. The keys of objects that are
    maps have no path of their own: they come from the object's.
    """
    yield from _of_record(route, (), ())
    column = rest_column(schema.struct)
    if column is not None:
        for of_field in route.fields:
            for path in of_field.rest_paths((of_field.key,)):
                yield ColumnOrigin((column.name, "value"), path, (), exact=False)


def _of_record(route: RecordRoute, column: Path, path: Path) -> Iterator[ColumnOrigin]:
    for of_field in route.fields:
        yield from _of_field(of_field, column, (*path, of_field.key))


def _of_field(field: FieldRoute, column: Path, path: Path) -> Iterator[ColumnOrigin]:
    for route in field.columns:
        if route.takes:
            yield from _of_column(route, (*column, route.name), path)


def _of_column(column: ColumnRoute, schema_path: Path, path: Path) -> Iterator[ColumnOrigin]:
    inside, data_path = (
        (*schema_path, *("element",) * column.facet.dim),
        (*path, *("element",) * column.facet.dim),
    )
    exact = column.takes == (column.facet,) and column.unit is None
    if column.value is not None:
        yield ColumnOrigin((*inside, "key"), data_path, column.takes, exact)
        yield from _of_field(column.value, inside, (*data_path, "value"))
    elif column.record is not None:
        yield from _of_record(column.record, inside, data_path)
    elif not isinstance(column.type, Map):
        yield ColumnOrigin(inside, path, column.takes, exact)


class Fields:
    """The fields of a table's record, or inside one of its fields, by their keys in the data.

    Args:
        types: of the columns.
        mark: the prefix of docs of evolved ones.

    >>> from driftline.core.schema.naming import MARK
    >>> from driftline.core.schema.types import LONG, STRING, Field
    >>> by_day = Field("by_day", Map(STRING, Struct((Field("n", LONG),))))
    >>> Fields([Struct((by_day,))], MARK).path(("by_day", "2024-01-01", "tags", 3))
    ('by_day', 'value', 'tags', 'element')
    """

    def __init__(self, types: Sequence[Type], mark: str) -> None:
        self._types, self._mark = [peel(type_)[1] for type_ in types], mark

    def path(self, location: Sequence[str | int]) -> Path:
        """The path of a field: elements of lists as ``element``, keys of the table's maps as ``value``."""
        keys_of_maps = self.keys_of_maps(location)
        steps = zip(location, keys_of_maps, strict=True)
        return tuple("element" if isinstance(s, int) else "value" if is_key else s for s, is_key in steps)

    def keys_of_maps(self, location: Iterable[str | int]) -> list[bool]:
        """For each step of a path, true if it is a key of one of the table's maps."""
        fields, out = self, []
        for step in location:
            out.append(isinstance(step, str) and fields._value is not None and step not in fields._named)
            if isinstance(step, str):
                fields = fields._named.get(step) or fields._value or _NONE
        return out

    @cached_property
    def _named(self) -> dict[str, Fields]:
        structs = [type_ for type_ in self._types if isinstance(type_, Struct)]
        fields = families(structs, self._mark)
        return {group.key: Fields([column.type for column in group.columns], self._mark) for group in fields}

    @cached_property
    def _value(self) -> Fields | None:
        values = [type_.value for type_ in self._types if isinstance(type_, Map)]
        return Fields(values, self._mark) if values else None


_NONE = Fields((), "")
