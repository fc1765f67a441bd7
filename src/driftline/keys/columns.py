"""The columns of a table that hold a field's values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from driftline.core.schema.naming import by_key
from driftline.core.schema.types import Field, Path, Primitive, Struct
from driftline.keys.finder import column_at
from driftline.keys.identity import FieldColumns


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
