"""Types side by side as one type that holds every value unchanged: drifted fields inside keep their
columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from driftline.core.columns.siblings import MergedField, MergedMember, SiblingGroup, families
from driftline.core.schema.naming import MARK, Names, caseless, mark, safe, suffix
from driftline.core.schema.types import Field, Map, Primitive, Struct, Type, peel


def kind(type_: Type) -> Hashable:
    """A hashable that types share if their values can stand in one column unchanged.

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
    """Types of one kind as one. ``prefix``: the mark of columns that have another name than their key."""
    dim, base = peel(types[0])
    bases = [peel(type_)[1] for type_ in types]
    match base:
        case Struct():
            structs = [t for t in bases if isinstance(t, Struct)]
            return MergedField(dim, fields=tuple(_members(structs, prefix)), as_is=True)
        case Map(key):
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
