"""Types under construction: facets as types, and what is inside lists and maps replaced."""

from __future__ import annotations

from dataclasses import replace

from driftline.core.planning.shape import Facet, MapOf
from driftline.core.schema.types import List, Map, Path, Primitive, Struct, Type, children, peel, wrap


def stub_of(facet: Facet) -> Type:
    """The facet as a type, empty where it will be filled."""
    match facet.base:
        case Primitive() as inner:
            return wrap(inner, facet.dim)
        case MapOf(key):
            return wrap(Map(key, Primitive("unknown")), facet.dim)
        case _:
            return wrap(Struct(), facet.dim)


def inside(path: Path, type_: Type) -> Path:
    """The path of what is inside the type's lists."""
    return path + ("element",) * peel(type_)[0]


def with_inner(type_: Type, inner: Type) -> Type:
    """The type with another one inside its lists."""
    return replace(type_, element=with_inner(type_.element, inner)) if isinstance(type_, List) else inner


def value_of(type_: Type) -> Type:
    """The type of the values of a map inside lists."""
    inner = peel(type_)[1]
    assert isinstance(inner, Map)
    return inner.value


def with_value(type_: Type, value: Type) -> Type:
    """The map inside lists with values of another type."""
    inner = peel(type_)[1]
    assert isinstance(inner, Map)
    return with_inner(type_, replace(inner, value=value))


def hollow(type_: Type) -> bool:
    """Whether the type holds, at any depth, a struct without fields, which cannot be written."""
    if isinstance(type_, Struct) and not type_.fields:
        return True
    return any(hollow(child.type) for child in children(type_))
