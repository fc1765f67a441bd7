"""Columns of another type by rewriting: what `widen` may do where the format cannot widen in metadata.

The rows that are there go down the same road as new ones: routed, by the names of their columns, into the new schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from driftline.core.changes import Change, RewriteColumn
from driftline.core.routes import ColumnRoute, Conflict, FieldRoute, RecordRoute, Settings, facet_of
from driftline.core.shape import FieldShape, Place, Seen
from driftline.core.types import Map, Path, Primitive, Schema, Struct, Type, dotted, peel
from driftline.errors import DataError
from driftline.route import select, typed_source
from driftline.route.sql import name
from driftline.source.typed_conflicts import offends

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.formats.base import Table


def rewrites(changes: Iterable[Change]) -> list[RewriteColumn]:
    """Those of the changes that need the table's rows written anew."""
    return [change for change in changes if isinstance(change, RewriteColumn)]


def check_readable(table: Table, schema: Schema) -> None:
    """That Spark can read all of the table's rows. Raises DataError, which names the column, where it cannot."""
    readable = table.readable(schema)
    if readable == schema:
        return
    for path, f in schema.walk():
        if isinstance(f.type, Primitive) and readable.find(path) is None:
            raise DataError(
                f"{table.name}: its rows cannot be written anew: Spark cannot read {dotted(path)}, which is {f.type}",
                "give the column another type by the engine that made it, or drop it",
            )


def rewritten_rows(table: DataFrame, before: Schema, after: Struct, settings: Settings) -> DataFrame:
    """The table's rows as rows of the new struct."""
    columns = select(after, _same(before.struct, after), typed_source(before.struct), settings)
    return table.selectExpr(
        *(f"{sql} as {name(f.name)}" for sql, f in zip(columns, after.fields, strict=True))
    )


def lossy_rewrites(table: DataFrame, before: Schema, changes: Iterable[Change]) -> list[Path]:
    """The columns that have a value which the rewrite would change."""
    asked = rewrites(changes)
    if not asked:
        return []
    lost = [f"coalesce(bool_or({offends(before.struct, _inexact(before, c))}), false)" for c in asked]
    row = table.selectExpr(*(f"{sql} as {name(f'lost{i}')}" for i, sql in enumerate(lost))).head()
    return [change.path for change, answer in zip(asked, row or (), strict=True) if answer]


def _inexact(before: Schema, change: RewriteColumn) -> Conflict:
    """The values of a column that are not exact in its new type."""
    old = before.find(change.path)
    assert old is not None
    path, was, becomes = change.path, old.type, change.type
    while isinstance(inner := peel(was)[1], Map):
        wider = peel(becomes)[1]
        assert isinstance(wider, Map)
        path, was, becomes = (*path, "value"), inner.value, wider.value
    return Conflict(path, "", facet_of(was), "", inexact=facet_of(becomes))


def _same(old: Struct, new: Struct) -> RecordRoute:
    """Each column into the one of its name."""
    fields = []
    for f in old.fields:
        column = new.get(f.name)
        assert column is not None, f.name
        shape = FieldShape(Place(), {facet_of(f.type): Seen(Place(), typed=True)})
        fields.append(FieldRoute(f.name, shape, (_into(f.name, f.type, column.type),)))
    return RecordRoute(tuple(fields))


def _into(column: str, old: Type, new: Type) -> ColumnRoute:
    record = value = None
    match peel(old)[1], peel(new)[1]:
        case Struct() as was, Struct() as becomes:
            record = _same(was, becomes)
        case Map() as was, Map() as becomes:
            shape = FieldShape(Place(), {facet_of(was.value): Seen(Place(), typed=True)})
            value = FieldRoute("value", shape, (_into("value", was.value, becomes.value),))
    return ColumnRoute(column, new, (facet_of(old),), record, value)
