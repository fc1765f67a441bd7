"""Replaces a whole nested type by changes to its contents, by name, so that ids and values stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from driftline.core.changes.diff import longest_rising
from driftline.core.changes.spelling import meant
from driftline.core.changes.values import (
    AddColumn,
    ColumnChange,
    DropColumn,
    MoveColumn,
    Position,
    RequireColumn,
    SetDoc,
    WidenColumn,
)
from driftline.core.schema.naming import unmarked
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.type_text import storable
from driftline.core.schema.types import Field, List, Map, Path, Struct, Type
from driftline.errors import DataError


def reshaped(path: Path, old: Type, new: Type) -> Iterator[ColumnChange]:
    """The changes from ``old``, the type at ``path``, to the new type, as DuckDB makes them.

    Fields of the same name keep their places and get the wider type, new ones come last, and missing ones are
    dropped. Raises UsageError for an ambiguous name, DataError for another map key.
    """
    match old, new:
        case Struct(fields), Struct(wanted):
            twins = paired(fields, wanted, path)
            for f in wanted:
                twin = twins.get(f.name)
                if twin is None:
                    yield AddColumn(path, storable_field(f))
                else:
                    yield from _of_field((*path, twin.name), twin, f)
            staying = {twin.name for twin in twins.values()}
            yield from (DropColumn((*path, f.name)) for f in fields if f.name not in staying)
        case List(element), List(wanted_element):
            yield from reshaped((*path, "element"), element, wanted_element)
        case Map(key, value), Map(wanted_key, wanted_value):
            if type_name(key) != type_name(storable(wanted_key)):
                raise DataError(
                    f"{'.'.join(path)}.key: the keys of a map cannot change", f"they are {type_name(key)}"
                )
            yield from reshaped((*path, "value"), value, wanted_value)
        case _:
            if old != new:
                yield WidenColumn(path, new)


def replaced(struct: Struct, requested: tuple[Field, ...]) -> Iterator[ColumnChange]:
    """The changes that make the requested columns those of the table, in their order.

    Raises as `reshaped` does.
    """
    twins = paired(struct.fields, requested, ())
    place = {f.name: i for i, f in enumerate(struct.fields)}
    staying = longest_rising([place[twins[f.name].name] for f in requested if f.name in twins])
    last: str | None = None
    for f in requested:
        twin = twins.get(f.name)
        if twin is None:
            yield AddColumn((), storable_field(f), to=Position(last))
            last = f.name
            continue
        yield from _of_field((twin.name,), twin, f)
        if place[twin.name] not in staying:
            yield MoveColumn((twin.name,), Position(last))
        last = twin.name
    staying_names = {twin.name for twin in twins.values()}
    yield from (DropColumn((f.name,)) for f in struct.fields if f.name not in staying_names)


def paired(fields: tuple[Field, ...], requested: tuple[Field, ...], within: Path) -> dict[str, Field]:
    """The existing field for each requested one, by the requested name: the same spelling, else the only one
    in another letter case.
    """
    free = {f.name: f for f in fields}
    pairs = {f.name: free.pop(f.name) for f in requested if f.name in free}
    for f in requested:
        name = None if f.name in pairs else meant(f.name, free, within)
        if name is not None:
            pairs[f.name] = free.pop(name)
    return pairs


def storable_field(column: Field) -> Field:
    """A new column in the driftline type that holds the given one."""
    return replace(column, type=storable(column.type))


def _of_field(path: Path, old: Field, new: Field) -> Iterator[ColumnChange]:
    yield from reshaped(path, old.type, new.type)
    if new.required and not old.required:
        yield RequireColumn(path)
    if new.doc is not None and new.doc != unmarked(old.doc):
        yield SetDoc(path, new.doc)
