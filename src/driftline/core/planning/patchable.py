"""Values that patches cannot merge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from driftline.core.planning.plan import Conflict, facet_of
from driftline.core.planning.shape import Facet, FieldShape, Profile, RecordShape
from driftline.core.schema.naming import by_key
from driftline.core.schema.types import VARIANT, List, Map, Path, Struct, Type, peel

_WHY = "merge = patch, and an object among lists of objects looks as a list of one does"


def variant_in(struct: Struct, mark: str) -> Path | None:
    """The path of the first variant that patches would have to merge: it is one value, objects in it too."""
    for key, columns in by_key(struct.fields, mark).items():
        for type_ in (column.type for column in columns):
            path: Path = (key,)
            while isinstance(type_, Map):
                type_, path = type_.value, (*path, "value")
            if type_ == VARIANT:
                return path
            if isinstance(type_, Struct) and (path_inside := variant_in(type_, mark)) is not None:
                return (*path, *path_inside)
    return None


def not_mergeable(struct: Struct, shape: RecordShape, mark: str) -> Iterator[Conflict]:
    """Yield the refusals of objects that patches cannot merge.

    Where a field has no other column, an object goes into that of its lists.

    Args:
        struct: the columns of the table, as the batch leaves them.
        shape: what the batch has.
        mark: the prefix of docs.
    """
    return _in_records(struct, [shape], mark, ())


def _in_records(struct: Struct, shapes: Sequence[RecordShape], mark: str, parent: Path) -> Iterator[Conflict]:
    for key, columns in by_key(struct.fields, mark).items():
        shapes_of_field = [shape.fields[key] for shape in shapes if key in shape.fields]
        yield from _in_field([c.type for c in columns], shapes_of_field, mark, (*parent, key))


def _in_field(
    types: Sequence[Type], shapes: Sequence[FieldShape], mark: str, path: Path
) -> Iterator[Conflict]:
    objects = {
        facet: profile
        for shape in shapes
        for facet, profile in shape.facets.items()
        if not facet.dim and (profile.record is not None or profile.value is not None)
    }
    lists = [t for t in types if isinstance(t, List) and _has_fields(peel(t)[1])]
    if lists and not any(map(_has_fields, types)):
        yield from _refused(objects, lists, path)
    records = [profile.record for profile in objects.values() if profile.record is not None]
    for type_ in types:
        if isinstance(type_, Struct):
            yield from _in_records(type_, records, mark, path)
    of_maps = [t.value for t in types if isinstance(t, Map)]
    if of_maps:
        values = [profile.value for profile in objects.values() if profile.value is not None]
        yield from _in_field(of_maps, values, mark, (*path, "value"))


def _refused(objects: Mapping[Facet, Profile], lists: Sequence[Type], path: Path) -> Iterator[Conflict]:
    table_type = ", ".join(facet_of(type_).spelled() for type_ in lists)
    for facet, profile in objects.items():
        yield Conflict(path, table_type, facet, _WHY, profile.sample, profile.location)


def _has_fields(type_: Type) -> bool:
    return isinstance(type_, (Struct, Map))
