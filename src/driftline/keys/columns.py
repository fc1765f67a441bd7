"""The columns of a table that hold a field's values, and conditions over them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from driftline.core.planning.row_key import Condition, IsNull, Junction, Literal, Negation, OneOf
from driftline.core.schema.naming import by_key
from driftline.core.schema.types import Field, Path, Primitive, Schema, Struct
from driftline.keys.finder import column_at
from driftline.keys.identity import FieldColumns, by_kind, key_text


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column, or a field of structs, with its path in the table."""

    path: Path
    field: Field


def columns_of(struct: Struct, path: Path, mark: str, parent: Path = ()) -> Iterator[PlacedColumn]:
    """The columns that the field at a path of the data fills. ``mark``: the prefix of docs."""
    for column in by_key(struct.fields, mark).get(path[0], []):
        placed = PlacedColumn((*parent, column.name), column)
        if len(path) == 1:
            yield placed
        elif isinstance(column.type, Struct):
            yield from columns_of(column.type, path[1:], mark, placed.path)


def values_of(columns: Sequence[PlacedColumn]) -> FieldColumns:
    """The plain columns of a field, as keys and orders are read from them."""
    plain = ((c.field.id, c.field.type) for c in columns if isinstance(c.field.type, Primitive))
    return FieldColumns.of(plain)


def by_id(rows: pa.Table, columns: Sequence[PlacedColumn]) -> pa.Table:
    """The columns of some rows, named by their ids."""
    return pa.table({str(c.field.id): column_at(rows, c.path) for c in columns})


def only(struct: Struct, ids: Collection[int], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with nothing but columns and fields of structs that have these ids, or are required."""
    columns = [_only(f, ids, column) for f, column in zip(struct.fields, rows.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _only(wanted: Field, ids: Collection[int], values: pa.Array) -> pa.Array:
    if wanted.id in ids or wanted.required:
        return values
    inside = {f.id for _, f in Schema(wanted.type).walk()} if isinstance(wanted.type, Struct) else set()
    if inside.isdisjoint(ids):
        return pa.nulls(len(values), values.type)
    assert isinstance(wanted.type, Struct)
    fields = [_only(f, ids, values.field(i)) for i, f in enumerate(wanted.type.fields)]
    return pa.StructArray.from_arrays(fields, fields=list(values.type), mask=values.is_null())


def holds(condition: Condition, rows: pa.Table, struct: Struct, mark: str) -> pa.ChunkedArray | pa.Array:
    """Flag the rows for which the condition is true; null where SQL would not know."""
    match condition:
        case IsNull(path):
            nulls = (column_at(rows, c.path).is_null() for c in columns_of(struct, path, mark))
            return reduce(pc.and_, nulls, pa.repeat(True, len(rows)))
        case OneOf(path, values):
            return _one_of(list(columns_of(struct, path, mark)), values, rows)
        case Negation(part):
            return pc.invert(holds(part, rows, struct, mark))
        case Junction(parts, any_of):
            both = pc.or_kleene if any_of else pc.and_kleene
            return reduce(both, (holds(part, rows, struct, mark) for part in parts))


def _one_of(columns: Sequence[PlacedColumn], values: Sequence[Literal], rows: pa.Table) -> pa.Array:
    """Flag the rows whose field has one of the values, null where it has none at all."""
    flags = pa.repeat(False, len(rows))
    has_value = flags
    for type_, column in values_of(columns).values(by_id(rows, columns)):
        has_value = pc.or_(has_value, column.is_valid())
        for kind, texts in by_kind(column, type_):
            for value in values:
                if kind == _kind(value):
                    flags = pc.or_(flags, pc.equal(texts, _comparable(value)).fill_null(False))
    return pc.if_else(has_value, flags, pa.scalar(None, pa.bool_()))


def _kind(value: Literal) -> str:
    """The kind of a literal, as `identity.by_kind` has them."""
    match value:
        case bool():
            return "boolean"
        case str():
            return "text"
        case _:
            return "whole" if value == value.to_integral_value() and abs(value) < 2**63 else "number"


def _comparable(value: Literal) -> str | int | bool | None:
    if isinstance(value, Decimal):
        return int(value) if _kind(value) == "whole" else key_text(value)
    return value
