"""Restores an earlier schema as far as the files allow: columns that return, hide or stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from driftline.core.changes.check import promotes
from driftline.core.schema.definition import DISTRIBUTION, ROW_KEY, Definition
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import (
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    children,
    dotted,
)
from driftline.core.settings.properties import HINTS, RESOLVED


@dataclass(frozen=True, slots=True)
class Restoration:
    """A restored definition.

    ``after``: the future table. ``hidden`` and ``back``: columns, for a struct without its fields, by their
    present or former path. ``stays``: what cannot be taken back, in words.
    """

    before: Definition
    after: Definition
    hidden: tuple[Path, ...]
    back: tuple[Path, ...]
    stays: tuple[str, ...]

    @property
    def changes_nothing(self) -> bool:
        """True if schema, partitioning, sort order and key are the same before and after."""

        def layout(definition: Definition) -> tuple[object, ...]:
            return (
                replace(definition.schema, id=0),
                definition.partition,
                definition.sort,
                definition.known_by,
            )

        return layout(self.before) == layout(self.after)


def restoration(now: Definition, then: Definition, schemas: Iterable[Schema]) -> Restoration:
    """Restore ``then`` from ``now``.

    Args:
        schemas: all known schemas of the table.

    A type stays as wide as it ever was, because wide values in files cannot be read as narrow ones. A column
    that was ever optional stays so, because nulls of a required column read as 0.
    """
    wide = _Widest(schemas)
    struct = wide.of(then.schema.struct)
    assert isinstance(struct, Struct)
    columns = {f.id: f for _, f in now.schema.walk()}
    struct = _restored(struct, columns)
    required = {f.id for _, f in Schema(struct).walk() if f.required}
    # Iceberg's identifier fields have to be required, and some of them may stay optional.
    schema = Schema(struct, then.schema.id, then.schema.identifiers & required)
    after = replace(
        now, schema=schema, partition=then.partition, sort=then.sort, properties=_properties(now, then)
    )
    ids = {f.id for _, f in schema.walk()}
    return Restoration(
        now,
        after,
        tuple(_tops(now.schema, ids)),
        tuple(_tops(schema, columns.keys())),
        tuple(_stays(then.schema, schema)),
    )


def _properties(now: Definition, then: Definition) -> dict[str, str]:
    """The restored properties; all others stay.

    The distribution belongs to the sort order, a resolved field's hint to its column, and the key is one of
    several settings.
    """
    resolved = [
        key
        for key in {**now.properties, **then.properties}
        if key.startswith(RESOLVED) and now.properties.get(key) != then.properties.get(key)
    ]
    of_columns = (*resolved, *(HINTS + key.removeprefix(RESOLVED) for key in resolved))
    properties = {
        key: value for key, value in now.properties.items() if key not in (DISTRIBUTION, *of_columns)
    }
    properties |= {key: value for key, value in then.properties.items() if key in of_columns}
    if now.known_by != then.known_by:
        properties = {key: value for key, value in properties.items() if key not in ROW_KEY}
        properties |= {key: value for key, value in then.properties.items() if key in ROW_KEY}
    sorted_so = now if now.sort == then.sort else then
    return properties | {key: value for key, value in sorted_so.properties.items() if key == DISTRIBUTION}


class _Widest:
    """The widest type of each column over several schemas, and whether it was ever optional."""

    def __init__(self, schemas: Iterable[Schema]) -> None:
        self.types: dict[int, Primitive] = {}
        self.optional: set[int] = set()
        for schema in schemas:
            for _, f in schema.walk():
                if isinstance(f.type, Primitive):
                    self.types[f.id] = _wider(self.types.get(f.id, f.type), f.type)
                if not f.required:
                    self.optional.add(f.id)

    def of(self, type_: Type) -> Type:
        """The type with the widest type of each column inside it."""
        match type_:
            case Struct(fields):
                return Struct(tuple(self.field(f) for f in fields))
            case List():
                (element,) = children(type_)
                widest = self.field(element)
                return replace(type_, element=widest.type, element_required=widest.required)
            case Map():
                value = self.field(children(type_)[1])
                return replace(type_, value=value.type, value_required=value.required)
            case Primitive():
                return type_

    def field(self, f: Field) -> Field:
        """The field with its widest type; required only if it always was."""
        type_ = self.types.get(f.id, f.type) if isinstance(f.type, Primitive) else self.of(f.type)
        return replace(f, type=type_, required=f.required and f.id not in self.optional)


def _wider(a: Primitive, b: Primitive) -> Primitive:
    return b if promotes(a, b) else a


def _restored(struct: Struct, columns: Mapping[int, Field]) -> Struct:
    """Restored columns are optional: rows written meanwhile have no value for them."""

    def of(f: Field) -> Field:
        absent = f.id not in columns and f.initial_default is None
        type_ = _restored(f.type, columns) if isinstance(f.type, Struct) else _inside(f.type, columns)
        return replace(f, type=type_, required=f.required and not absent)

    return Struct(tuple(of(f) for f in struct.fields))


def _inside(type_: Type, columns: Mapping[int, Field]) -> Type:
    """Restore the structs in lists and maps, whose own elements and values come and go with them."""
    match type_:
        case Struct():
            return _restored(type_, columns)
        case List():
            return replace(type_, element=_inside(type_.element, columns))
        case Map():
            return replace(type_, value=_inside(type_.value, columns))
        case Primitive():
            return type_


def _tops(schema: Schema, ids: Iterable[int]) -> Iterable[Path]:
    """The columns whose id is not among ``ids``, without their contents."""
    existing, gone = set(ids), set[Path]()
    for path, f in schema.walk():
        if f.id not in existing and path[:-1] not in gone:
            yield path
        if f.id not in existing:
            gone.add(path)


def _stays(then: Schema, after: Schema) -> Iterable[str]:
    now = {f.id: (path, f) for path, f in after.walk()}
    for path, f in then.walk():
        _, column = now[f.id]
        if isinstance(f.type, Primitive) and f.type != column.type:
            yield (
                f"{dotted(path)} stays {type_name(column.type)}: files may hold values that {type_name(f.type)} cannot"
            )
        if f.required and not column.required:
            yield f"{dotted(path)} stays optional: existing rows may be null"
