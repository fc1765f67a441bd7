"""Fields that patches cannot merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from driftline.core.planning.shape import FieldShape, RecordShape
from driftline.core.schema.naming import by_key
from driftline.core.schema.types import VARIANT, List, Map, Path, Struct, Type, peel


def not_mergeable(struct: Struct, shape: RecordShape, mark: str) -> tuple[Path, str] | None:
    """The first field that patches cannot merge, and why; None if there is none.

    Where a field has no other column, an object goes into that of its lists, and looks as a list of one
    object does. A variant is one value, objects in it too.

    Args:
        struct: the columns of the table.
        shape: what a batch has.
        mark: the prefix of docs.
    """
    return next(_found(struct, [shape], mark, ()), None)


def _found(
    struct: Struct, shapes: Sequence[RecordShape], mark: str, parent: Path
) -> Iterator[tuple[Path, str]]:
    for key, columns in by_key(struct.fields, mark).items():
        shapes_of_field = [shape.fields[key] for shape in shapes if key in shape.fields]
        yield from _in_field([c.type for c in columns], shapes_of_field, mark, (*parent, key))


def _in_field(
    types: Sequence[Type], shapes: Sequence[FieldShape], mark: str, path: Path
) -> Iterator[tuple[Path, str]]:
    objects = [profile for shape in shapes for facet, profile in shape.facets.items() if not facet.dim]
    records = [profile.record for profile in objects if profile.record is not None]
    values = [profile.value for profile in objects if profile.value is not None]
    if why := _why_not(types, has_objects=bool(records or values)):
        yield path, why
    for type_ in types:
        if isinstance(type_, Struct):
            yield from _found(type_, records, mark, path)
    of_maps = [t.value for t in types if isinstance(t, Map)]
    if of_maps:
        yield from _in_field(of_maps, values, mark, (*path, "value"))


def _why_not(types: Sequence[Type], *, has_objects: bool) -> str:
    """The reason why a field of these columns cannot be merged; empty if it can."""
    if VARIANT in types:
        return "is a variant"
    has_lists = any(isinstance(t, List) and _has_fields(peel(t)[1]) for t in types)
    if has_lists and has_objects and not any(map(_has_fields, types)):
        return "has objects now, for which there is only a column of lists"
    return ""


def _has_fields(type_: Type) -> bool:
    return isinstance(type_, (Struct, Map))
