"""Types under construction: facets as types, with the contents of lists and maps replaced."""

from __future__ import annotations

from dataclasses import replace

from driftline.core.planning.shape import Facet, MapOf
from driftline.core.schema.types import List, Map, Path, Primitive, Struct, Type, children, peel, wrap


def stub_of(facet: Facet) -> Type:
    """The facet as a type, left empty where it will be filled."""
    match facet.base:
        case Primitive() as inner:
            return wrap(inner, facet.dim)
        case MapOf(key):
            return wrap(Map(key, Primitive("unknown")), facet.dim)
        case _:
            return wrap(Struct(), facet.dim)


def inside(path: Path, type_: Type) -> Path:
    """The path of the contents of the type's lists."""
    return path + ("element",) * peel(type_)[0]


def with_base(type_: Type, base: Type) -> Type:
    """Replace the type inside a type's lists."""
    return replace(type_, element=with_base(type_.element, base)) if isinstance(type_, List) else base


def value_of(type_: Type) -> Type:
    """The type of the values of a map inside lists."""
    base = peel(type_)[1]
    assert isinstance(base, Map)
    return base.value


def with_value(type_: Type, value: Type) -> Type:
    """Replace the type of the values of a map inside lists."""
    base = peel(type_)[1]
    assert isinstance(base, Map)
    return with_base(type_, replace(base, value=value))


def hollow(type_: Type) -> bool:
    """True if the type contains a struct without fields, which cannot be written."""
    if isinstance(type_, Struct) and not type_.fields:
        return True
    return any(hollow(child.type) for child in children(type_))
