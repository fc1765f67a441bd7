"""Rows of DuckLake's column table as a schema, and a changed schema as
rows: every field is a row, found by its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from driftline.core.schema.naming import caseless
from driftline.core.schema.types import (
    Default,
    Expression,
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
from driftline.errors import DataError
from driftline.formats.ducklake.defaults import from_text, to_text, write_default
from driftline.formats.ducklake.types import promotes, read_type, write_type

COMMENT = "comment"  # the tag that DuckDB shows as a column's comment


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """One row of ``ducklake_column``."""

    id: int
    order: int
    name: str
    type: str
    parent: int | None = None
    nullable: bool = True
    initial_default: str | None = None
    default: str | None = None
    default_type: str = ""
    dialect: str = "duckdb"


def schema_of(rows: Iterable[ColumnRow], docs: Mapping[int, str]) -> Schema:
    """The schema that the rows describe; ``docs`` by column id."""
    children_of: dict[int | None, list[ColumnRow]] = {}
    for row in sorted(rows, key=lambda r: (r.order, r.id)):
        children_of.setdefault(row.parent, []).append(row)

    def field(row: ColumnRow) -> Field:
        """The field of a row; a nested one is never required."""
        type_ = nested(row)
        # DuckDB sets NOT NULL of nested fields at random, and does not enforce it.
        required = not row.nullable and row.parent is None
        initial = write = None
        if isinstance(type_, Primitive):
            initial = from_text(row.initial_default, type_)
            write = write_default(row.default, row.default_type, row.dialect, type_)
        return Field(row.name, type_, row.id, required, docs.get(row.id), initial, write)

    def nested(row: ColumnRow) -> Type:
        """The type of a row, with the rows below it."""
        nested_rows = children_of.get(row.id, [])
        match row.type.lower():
            case "struct":
                return Struct(tuple(field(child) for child in nested_rows))
            case "list":
                (element,) = nested_rows
                return List(nested(element), element.id)
            case "map":
                key, value = sorted(nested_rows, key=lambda child: child.name != "key")
                return Map(nested(key), nested(value), key.id, value.id)
            case text:
                return read_type(text)

    return Schema(Struct(tuple(field(row) for row in children_of.get(None, []))))


def rows_of(schema: Schema, before: Schema, current_rows: Sequence[ColumnRow], table: str) -> list[ColumnRow]:
    """The rows that describe ``schema``; those that did not change since ``before`` are those of
    ``current_rows``.

    Raises DataError for a schema that DuckLake cannot have: a type, a promotion that loses values, a name
    twice.
    """
    rows = {row.id: row for row in current_rows}
    fields = {f.id: f for _, f in before.walk()}
    out: list[ColumnRow] = []

    def add(type_: Type, path: Path, parent: int | None) -> None:
        """Append the rows of the fields inside a type."""
        nested_fields = children(type_)
        _unique(nested_fields, fields, path, table)
        orders = _orders([f.id for f in nested_fields], rows)
        for child, order in zip(nested_fields, orders, strict=True):
            child_path = (*path, child.name)
            where = f"{table}: {dotted(child_path)}"
            out.append(_row(child, fields.get(child.id), rows.get(child.id), order, parent, where))
            add(child.type, child_path, child.id)

    add(schema.struct, (), None)
    return out


def _row(
    field: Field, old: Field | None, current: ColumnRow | None, order: int, parent: int | None, where: str
) -> ColumnRow:
    type_ = _kind(field.type, where)
    top = parent is None
    if current is None or old is None:
        plain = isinstance(field.type, Primitive)
        return ColumnRow(
            field.id,
            order,
            field.name,
            type_,
            parent,
            not (field.required and top),
            to_text(field.initial_default, field.type, where),
            to_text(field.write_default, field.type, where) or "NULL",
            _default_type(field.write_default) if plain else "",
        )
    if type_ != _kind(old.type, where) and not promotes(current.type.lower(), type_):
        raise DataError(
            f"{where}: a DuckLake column of type {current.type} cannot become {type_} without loss",
            hint="see docs/ducklake.md for the promotions",
        )
    row = replace(current, name=field.name, order=order, parent=parent)
    if type_ != _kind(old.type, where):
        row = replace(row, type=type_)
    if top:
        row = replace(row, nullable=not field.required)
    if field.write_default != old.write_default:
        row = replace(
            row,
            default=to_text(field.write_default, field.type, where) or "NULL",
            default_type=_default_type(field.write_default),
        )
    return row


def _default_type(default: Default) -> str:
    return "expression" if isinstance(default, Expression) else "literal"


def _kind(type_: Type, where: str) -> str:
    match type_:
        case Struct():
            return "struct"
        case List():
            return "list"
        case Map():
            return "map"
        case Primitive():
            return write_type(type_, where)


def _orders(ids: list[int], rows: Mapping[int, ColumnRow]) -> list[int]:
    """A position for each sibling: its present one if they are still in that order; new ones come last."""
    positions = [rows[i].order if i in rows else i for i in ids]
    return positions if positions == sorted(positions) else sorted(positions)


def _unique(fields: Sequence[Field], before: Mapping[int, Field], path: Path, table: str) -> None:
    """Check that no new name repeats another; existing duplicates may stay."""
    by_name: dict[str, Field] = {}
    for field in fields:
        twin = by_name.setdefault(caseless(field.name), field)
        as_before = all(f.id in before and before[f.id].name == f.name for f in (field, twin))
        if twin is not field and not as_before:
            raise DataError(
                f"{table}: {dotted((*path, field.name))} and {dotted((*path, twin.name))} differ only in case",
                hint="engines treat them as one name: rename one of them",
            )
