"""Fields that patches cannot merge: those with objects of which only a list of objects keeps a copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from driftline.core.planning.shape import FieldShape, RecordShape
from driftline.core.schema.naming import by_key
from driftline.core.schema.types import Map, Path, Struct, Type, peel


def objects_in_lists(struct: Struct, shape: RecordShape, mark: str) -> Path | None:
    """The first field that has both objects and lists of objects; None if there is none.

    An object also goes into the column of its field's lists, where it looks as a list of one object does.

    Args:
        struct: the columns of the table.
        shape: what a batch has.
        mark: the prefix of docs.
    """
    return next(_found(struct, [shape], mark, ()), None)


def _found(struct: Struct, shapes: Sequence[RecordShape], mark: str, parent: Path) -> Iterator[Path]:
    for key, columns in by_key(struct.fields, mark).items():
        seen = [shape.fields[key] for shape in shapes if key in shape.fields]
        yield from _in_field([c.type for c in columns], seen, mark, (*parent, key))


def _in_field(types: Sequence[Type], seen: Sequence[FieldShape], mark: str, path: Path) -> Iterator[Path]:
    profiles = [(facet.dim, profile) for shape in seen for facet, profile in shape.facets.items()]
    has_objects = any(isinstance(t, (Struct, Map)) for t in types) or any(
        not dim and (profile.record is not None or profile.value is not None) for dim, profile in profiles
    )
    peeled = [peel(t) for t in types]
    if has_objects and any(dim and isinstance(base, (Struct, Map)) for dim, base in peeled):
        yield path
    for type_ in types:
        if isinstance(type_, Struct):
            below = [profile.record for dim, profile in profiles if not dim and profile.record is not None]
            yield from _found(type_, below, mark, path)
    values = [t.value for t in types if isinstance(t, Map)]
    if values:
        inside = [profile.value for dim, profile in profiles if not dim and profile.value is not None]
        yield from _in_field(values, inside, mark, (*path, "value"))
