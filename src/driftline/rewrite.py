"""Columns of another type by rewriting: what `widen` may do where the format cannot widen in metadata.

The rows that are there go down the same road as new ones: routed, by the names of their columns, into the new schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from driftline.core.changes import Change, RewriteColumn
from driftline.core.routes import Conflict, Settings, by_name, facet_of
from driftline.core.types import Map, Path, Primitive, Schema, Struct, dotted, peel
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
                f"{table.name}: Spark cannot read {dotted(path)}, a {f.type}, so its rows cannot be written anew",
                "give the column another type by the engine that made it, or drop it",
            )


def rewritten_rows(table: DataFrame, before: Schema, after: Struct, settings: Settings) -> DataFrame:
    """The table's rows as rows of the new struct."""
    columns = select(after, by_name(before.struct, after), typed_source(before.struct), settings)
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
