"""The meaning of a change by hand for later batches, according to the planner itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driftline.core.changes import AddColumn, ColumnChange, DropColumn, RenameColumn
from driftline.core.planning.plan import plan
from driftline.core.planning.routes import Settings
from driftline.core.planning.shape import RECORD, Base, Facet, FieldShape, MapOf, RecordShape, Seen
from driftline.core.schema.naming import data_key, marked_key
from driftline.core.schema.place import Place
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import VARIANT, Field, List, Map, Path, Primitive, Schema, Struct, dotted
from driftline.errors import DriftlineError


def notes(
    before: Schema, after: Schema, changes: Iterable[ColumnChange], settings: Settings
) -> Iterator[str]:
    """Notes to a person on changes that lead from one schema to the other."""
    for change in changes:
        column = before.find(change.path) if isinstance(change, DropColumn | RenameColumn) else None
        if column is None:
            continue
        if isinstance(change, RenameColumn):
            now = after.find(path) if (path := _path_of(after, column.id)) else None
            if now is not None and marked_key(now.doc, settings.mark) is not None:
                key = data_key(now, settings.mark)
                yield f"{dotted(path)} goes on being filled from {key}"
        elif isinstance(change, DropColumn):
            yield _dropped(before, after, change.path, column, settings)


def _dropped(before: Schema, after: Schema, path: Path, column: Field, settings: Settings) -> str:
    """The fate of the next value that the column would have taken, planned as a batch would be."""
    shape = _value(Field("", before.struct), path, settings.mark).facets[Facet(0, RECORD)].record
    value = f"the next {type_name(column.type)} of {data_key(column, settings.mark)}"
    try:
        planned = plan(after, shape or RecordShape(), settings)
    except DriftlineError as error:
        return f"{value} will be refused: {error.message}"
    if planned.conflicts:
        return f"{value} will be refused: {planned.conflicts[0].why}"
    products = [
        f"{dotted(c.path)} {type_name(c.type)}"
        for c in planned.changes
        if isinstance(c, AddColumn) and not c.within
    ]
    if products:
        return f"{value} makes {' and '.join(products)}, empty in the rows before"
    return f"{value} goes to the columns that remain"


def _value(column: Field, path: Path, mark: str) -> FieldShape:
    """A value of the column, with what leads to ``path`` in it, or with all that it can hold."""
    dim, inner = 0, column.type
    while isinstance(inner, List):
        dim, inner, path = dim + 1, inner.element, path[1:]
    base: Base = inner if isinstance(inner, Primitive) and inner != VARIANT else RECORD
    seen = Seen(Place(), typed=True)
    match inner:
        case Struct(fields):
            onward = [f for f in fields if not path or f.name == path[0]]
            seen.record = RecordShape({data_key(f, mark): _value(f, path[1:], mark) for f in onward})
        case Map(Primitive() as key, value):
            base, seen.value = MapOf(key), _value(Field("value", value), path[1:], mark)
        case _:
            pass
    return FieldShape(Place(), {Facet(dim, base): seen})


def _path_of(schema: Schema, column: int) -> Path:
    return next((path for path, f in schema.walk() if f.id == column), ())
