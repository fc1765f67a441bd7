"""Folds the columns of a field into one: chooses the columns, their type and the new name.

Columns that do not take part stay beside the new one. `union` is one type for them all, which holds every
value unchanged: drifted fields inside keep their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from driftline.core.columns.siblings import (
    MergedField,
    MergedMember,
    SiblingGroup,
    families,
    spelled,
    unit_at,
)
from driftline.core.planning.own_columns import keys_of
from driftline.core.planning.plan import facet_of
from driftline.core.planning.policies.by_kind import ROLES
from driftline.core.schema.date_pattern import DatePattern
from driftline.core.schema.naming import MARK, Names, caseless, mark, marked_key, nearest, safe, suffix
from driftline.core.schema.types import (
    STRING,
    Field,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    children,
    dotted,
    peel,
    with_child,
    wrap,
)
from driftline.core.settings.fields import spelled_path
from driftline.core.settings.table import TableSettings
from driftline.errors import UsageError


def kind(type_: Type) -> Hashable:
    """Return a hashable that types share if their values can stand in one column unchanged.

    >>> from driftline.core.schema.types import LONG, STRING
    >>> kind(Struct((Field("a", LONG),))) == kind(Struct())
    True
    >>> kind(Map(STRING, LONG)) == kind(Map(STRING, STRING))
    False
    """
    dim, base = peel(type_)
    match base:
        case Struct():
            return dim, "record"
        case Map(key, value):
            return dim, str(key), kind(value)
        case _:
            return dim, str(base)


def union(types: Sequence[Type], prefix: str = MARK) -> MergedField:
    """Merge types of one kind into one.

    Args:
        prefix: the mark of columns not named by their key.
    """
    dim, base = peel(types[0])
    bases = [peel(type_)[1] for type_ in types]
    match base:
        case Struct():
            structs = [t for t in bases if isinstance(t, Struct)]
            return MergedField(dim, fields=tuple(_members(structs, prefix)), as_is=True)
        case Map(key):
            # Siblings inside the values stay as they are, so nothing is converted.
            values = [t.value for t in bases if isinstance(t, Map)]
            return MergedField(dim, key=key, value=union(values, prefix), as_is=True)
        case _:
            assert isinstance(base, Primitive)
            return MergedField(dim, base=base, as_is=True)


def _members(structs: Sequence[Struct], prefix: str) -> Iterable[MergedMember]:
    """The columns of all structs; those of the first keep its names."""
    names = Names.of(structs[0])
    first_fields = {caseless(f.name): f for f in structs[0].fields}
    for family in families(structs, prefix):
        for columns in _by_kind(family):
            first = columns[0]
            merged = union([c.type for c in columns], prefix)
            name = first.name
            if first_fields.get(caseless(name)) is not first:
                name = (
                    names.take(name) if names.free(name) else names.take(safe(family.key), suffix(first.type))
                )
            marked = None if name == family.key else mark(family.key, prefix)
            yield MergedMember(family.key, name, merged, first.doc if name == first.name else marked)


def _by_kind(family: SiblingGroup) -> Iterable[Sequence[Field]]:
    kinds: dict[Hashable, list[Field]] = {}
    for column in family.columns:
        kinds.setdefault(kind(column.type), []).append(column)
    return kinds.values()


# The name of a column until those are gone whose place it takes
TEMPORARY = "__driftline_resolved"


@dataclass(frozen=True, slots=True)
class FieldSite:
    """A struct that contains the field.

    Attributes:
        parent: the struct's path in the schema.
        folded: the field's columns that become one.
        beside: the columns that stay.
    """

    parent: Path
    family: SiblingGroup
    folded: tuple[Field, ...]
    beside: tuple[Field, ...]
    struct: Struct

    def new(self, remainder: Sequence[str], to: Type, prefix: str) -> list[Field]:
        """Return the columns to add, under temporary names.

        They are the resolved column, and one for each of ``remainder``, for values that do not convert.
        """
        doc = mark(self.family.key, prefix)
        columns = [Field(TEMPORARY, to, doc=doc)]
        return columns + [
            Field(f"{TEMPORARY}_{i}", c.type, doc=doc)
            for i, c in enumerate(self.folded)
            if c.name in remainder
        ]

    def arranged(self, now: Struct, remainder: Sequence[str], to: Type, prefix: str) -> Struct:
        """Arrange ``now``, which also has the columns of `new`, so that these replace the folded ones.

        Args:
            now: the struct.
            remainder: the names of columns that stay for values that do not convert.
            to: the requested type.
            prefix: the prefix of marks.
        """
        key, gone = self.family.key, {f.name for f in (*self.folded, *self.new(remainder, to, prefix))}
        columns = {f.name: f for f in now.fields}
        staying = [f for f in now.fields if f.name not in gone]
        names = Names.of(Struct(tuple(staying)))
        own_name = safe(key)
        name = own_name if names.free(own_name) else names.take(own_name, suffix(to))
        names.used.add(caseless(name))
        staying_columns = [(i, c) for i, c in enumerate(self.folded) if c.name in remainder]
        # Columns that keep values keep their names, unless the resolved one takes it.
        names.used |= {caseless(c.name) for _, c in staying_columns if c.name != name}
        resolved = replace(columns[TEMPORARY], name=name, doc=self._doc(name, self.folded[0], prefix))
        placed: dict[str, list[Field]] = {self.folded[0].name: [resolved]}
        for i, column in staying_columns:
            new_name = column.name if column.name != name else names.take(own_name, suffix(column.type))
            field_ = replace(
                columns[f"{TEMPORARY}_{i}"], name=new_name, doc=self._doc(new_name, column, prefix)
            )
            placed.setdefault(column.name, []).append(field_)
        fields: list[Field] = []
        for f in now.fields:
            fields += placed.get(f.name, [f] if f in staying else [])
        return Struct(tuple(fields))

    def _doc(self, name: str, column: Field, prefix: str) -> str | None:
        """Return the old column's comment, after the mark if the name is not the key."""
        doc = column.doc or ""
        text = doc.partition("\n")[2] if marked_key(column.doc, prefix) is not None else doc
        lines = [mark(self.family.key, prefix)] * (name != self.family.key) + [text] * bool(text)
        return "\n".join(lines) or None


@dataclass(frozen=True, slots=True)
class Resolution:
    """The plan of a fold.

    Attributes:
        path: the field's path by keys of the data.
        merged: its one column.
    """

    path: Path
    merged: MergedField
    sites: tuple[FieldSite, ...]
    mark: str = MARK

    def before(self, schema: Schema, remainder: Mapping[Path, Sequence[str]]) -> list[tuple[Path, Field]]:
        """Return the columns to create, each with its parent's path.

        Args:
            remainder: by site, the names of columns that keep values.
        """
        return [
            (site.parent, column)
            for site in self.sites
            for column in site.new(remainder[site.parent], self.merged.type, self.mark)
        ]

    def after(self, now: Schema, remainder: Mapping[Path, Sequence[str]]) -> Schema:
        """Return the final schema, from one that has the columns of `before`."""
        struct: Type = now.struct
        for site in self.sites:
            edit = partial(
                site.arranged, remainder=remainder[site.parent], to=self.merged.type, prefix=self.mark
            )
            struct = _at(struct, site.parent, edit)
        assert isinstance(struct, Struct)
        return replace(now, struct=struct)


def resolution(
    schema: Schema,
    path: Path,
    to: Type,
    settings: TableSettings | None = None,
    *,
    pattern: DatePattern | None = None,
) -> Resolution:
    """Find the field at ``path`` of the data, and its columns that convert to ``to``.

    Args:
        pattern: the pattern of its texts, if they are dates.

    Raises UsageError if there is no such field, or nothing to fold.
    """
    settings = settings or TableSettings()
    keys = _keys_of(path)
    places = tuple(_places(schema.struct, path, (), settings.mark))
    types = [column.type for place in places for column in place.family.columns]
    unit = unit_at(settings.fields, keys)
    merged = replace(
        _merged_field(to, types, settings.mark), unit=unit, pattern=pattern, signs=settings.csv.signs
    )
    of_kind = _of_kind(to, settings.fields.at(keys).role)
    foldings = [place.folding(merged, of_kind) for place in places]
    if not foldings:
        raise _no_field(schema, path, settings.mark)
    sites = tuple(
        s for s in foldings if [spelled(c.type) for c in s.folded] != [spelled(merged.type)] and s.folded
    )
    if not sites:
        raise _nothing_to_fold(path, to, foldings, settings.fields.at(keys).role)
    return Resolution(keys, merged, sites, settings.mark)


def _of_kind(to: Type, role: str) -> Callable[[Type], bool]:
    """Return a test for types whose values are the same keys, or orders, in a column of type ``to``."""
    if not role:
        return lambda _: True
    kind_of = ROLES[role].kind
    target = kind_of(to) if isinstance(to, Primitive) else None
    # A text may be written otherwise than the moment that it tells of.
    possible = target is not None and (target != "text" or to == STRING)
    return lambda type_: possible and isinstance(type_, Primitive) and kind_of(type_) == target


def _nothing_to_fold(path: Path, to: Type, foldings: Sequence[FieldSite], role: str) -> UsageError:
    columns = ", ".join(f"{c.name} {c.type}" for s in foldings for c in (*s.folded, *s.beside))
    why = f"a {role} keeps its kind: the number 7 and the text 7 are two" if role else None
    return UsageError(f"{dotted(path)}: nothing to fold into {to}: there is {columns}", why)


def _no_field(schema: Schema, path: Path, prefix: str) -> UsageError:
    keys: dict[Path, Path] = {(): ()}
    spelled_by_text: dict[str, str] = {}
    for column, field in schema.walk():
        key = marked_key(field.doc, prefix)
        keys[column] = (*keys[column[:-1]], field.name if key is None else key)
        # A person may have named the column, or left out the backticks.
        for text in (dotted(_keys_of(column)), dotted(_keys_of(keys[column]))):
            spelled_by_text[text] = spelled_path(_keys_of(keys[column]))
    meant = spelled_by_text.get(dotted(_keys_of(path)))
    near = f"did you mean {meant}?" if meant else nearest(dotted(path), [*spelled_by_text.values()])
    return UsageError(f"there is no field {dotted(path)}", near or "see driftline schema")


def _keys_of(path: Path) -> Path:
    """The path without steps into lists; a field may have their name."""
    return keys_of(path) or path


def _merged_field(to: Type, types: Sequence[Type], prefix: str) -> MergedField:
    """Merge columns of these ``types`` into one of type ``to``."""
    dim, base = peel(to)
    match base:
        case Primitive():
            return MergedField(dim, base=base, requested=True)
        case Map(key, value) if dim == 0:
            return MergedField(0, key=key, value=_value(value, _values_in(types), prefix), requested=True)
    asked = facet_of(to).spelled() if isinstance(base, Struct) and not base.fields else str(to)
    raise UsageError(f"resolve cannot fold into {asked}", "only into plain types, lists of them, and maps")


def _value(to: Type, types: Sequence[Type], prefix: str) -> MergedField:
    """Merge the values of maps of these ``types``. Records keep all existing fields."""
    base = peel(to)[1]
    if isinstance(base, Primitive):
        return _merged_field(to, types, prefix)
    if to != wrap(Struct(), peel(to)[0]):
        raise UsageError(
            f"resolve cannot fold into a map of {to}",
            'write "map<string, record>": it has all fields that there are',
        )
    alike = [type_ for type_ in types if kind(type_) == kind(to)]
    if not alike:
        raise UsageError("nothing to fold: no such records", "see driftline schema")
    return union(alike, prefix)


def _values_in(types: Sequence[Type]) -> list[Type]:
    """The types of the values in maps, then of those in structs."""
    bases = [peel(type_)[1] for type_ in types]
    maps = [base.value for base in bases if isinstance(base, Map)]
    return maps + [f.type for base in bases if isinstance(base, Struct) for f in base.fields]


@dataclass(frozen=True, slots=True)
class _ParentStruct:
    """A struct that contains the field.

    Attributes:
        parent: its path in the schema.
    """

    parent: Path
    family: SiblingGroup
    struct: Struct

    def folding(self, merged: MergedField, of_kind: Callable[[Type], bool]) -> FieldSite:
        """Divide the columns into those that become ``merged``, and those that stay.

        Columns that are not ``of_kind`` stay.
        """
        folded = [c for c in self.family.columns if of_kind(c.type) and _folds(c.type, merged)]
        # The field's own column first: the resolved one takes its place.
        folded.sort(key=lambda c: c.name != safe(self.family.key))
        beside = tuple(c for c in self.family.columns if c not in folded)
        return FieldSite(self.parent, self.family, tuple(folded), beside, self.struct)


def _places(struct: Struct, path: Path, parent: Path, prefix: str) -> Iterator[_ParentStruct]:
    key, *remaining = path
    family = next((f for f in families([struct], prefix) if f.key == key), None)
    if family is None:
        return
    if not remaining:
        yield _ParentStruct(parent, family, struct)
        return
    for column in family.columns:
        yield from _inside(column.type, tuple(remaining), (*parent, column.name), prefix)


def _inside(type_: Type, path: Path, parent: Path, prefix: str) -> Iterator[_ParentStruct]:
    dim, base = peel(type_)
    parent = (*parent, *("element",) * dim)
    for _ in range(dim):
        path = path[1:] if path[:1] == ("element",) and len(path) > 1 else path
    if isinstance(base, Struct):
        yield from _places(base, path, parent, prefix)
    elif isinstance(base, Map) and path[0] == "value" and len(path) > 1:
        yield from _inside(base.value, path[1:], (*parent, "value"), prefix)


def _folds(type_: Type, to: MergedField) -> bool:
    """True if a column of the type has values for ``to``."""
    dim, base = peel(type_)
    if to.as_is:
        return kind(type_) == kind(to.type)
    if isinstance(base, Map):
        return to.value is not None and dim == 0 and base.key == to.key and _folds(base.value, to.value)
    if isinstance(base, Struct):  # whose keys are data
        if to.value is None or dim or to.key != STRING:
            return False
        return any(_folds(f.type, to.value) for f in base.fields)
    return isinstance(base, Primitive) and to.base is not None and dim <= to.dim


def _at(type_: Type, path: Path, edit: Callable[[Struct], Struct]) -> Type:
    if not path:
        assert isinstance(type_, Struct)
        return edit(type_)
    child = next(f for f in children(type_) if f.name == path[0])
    return with_child(type_, path[0], replace(child, type=_at(child.type, path[1:], edit)))
