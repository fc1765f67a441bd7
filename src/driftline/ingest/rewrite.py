"""Rewrites columns to another type: for `widen`, if the format cannot widen in metadata.

Existing rows go through the same steps as new ones: they are routed by their column names into the new
schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from driftline.convert import Converter
from driftline.convert.converter import without_defaults
from driftline.convert.spark import from_spark
from driftline.core.changes import RewriteColumn
from driftline.core.planning.plan import Conflict, Plan, by_name, facet_of
from driftline.core.schema.types import Map, Path, Primitive, Schema, Struct, dotted, peel
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError
from driftline.formats.base import CatalogTable, Moved, Transaction
from driftline.ingest.batch import Planned
from driftline.readers.columnar.rows import having
from driftline.sql.quoting import any_value
from driftline.tasks.run import converted, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rewritten(transaction: Transaction, planned: Planned, summary: Mapping[str, str]) -> int:
    """Rewrite the table with the batch's rows; returns their number."""
    batch, before, settings = planned.batch, planned.plan.before, planned.settings
    struct = transaction.schema.struct
    check_readable(batch.table, before)
    old = transaction.read()
    rows = planned.tasks(struct).frame(struct)
    convert = partial(_converted, batch.table, planned.plan, struct, settings)

    def carry(appended: DataFrame) -> DataFrame:
        """Rewrite rows that others appended meanwhile. Raises Moved if they do not fit the new types."""
        if _lossy_rewrites(appended, planned.plan):
            raise Moved("what others have appended meanwhile does not fit the new types")
        return convert(appended)

    return transaction.replace_all(carry).append(_union(convert(old), rows), summary) - old.count()


def lossy(table: CatalogTable, planned: Plan) -> list[Path]:
    """Find the columns that cannot be rewritten: a value would change, or the table's layout uses them."""
    if not planned.rewrites:
        return []
    definition = table.definition()
    columns = {change.path: planned.before.find(change.path) for change in planned.rewrites}
    needed = [path for path, column in columns.items() if column and definition.use_of(column)]
    return needed + _lossy_rewrites(table.read(), planned)


def check_readable(table: CatalogTable, schema: Schema) -> None:
    """Check that Spark can read all of the table's rows. Raises DataError that names the column if not."""
    readable = table.readable(schema)
    if readable == schema:
        return
    for path, f in schema.walk():
        if isinstance(f.type, Primitive) and readable.find(path) is None:
            raise DataError(
                f"{table.name}: Spark cannot read {dotted(path)}, a {f.type}, so its rows cannot be rewritten",
                "change the column's type with the engine that created it, or drop it",
            )


def _converted(
    table: CatalogTable, planned: Plan, after: Struct, settings: TableSettings, old: DataFrame
) -> DataFrame:
    """Convert the table's rows to rows of another struct, with their ids if they have any.

    Args:
        table: the table.
        planned: the plan that leads to ``after``.
        after: the new struct.
        settings: the table's settings.
        old: the present rows.
    """
    before = planned.before.struct
    converter = Converter(without_defaults(after), by_name(before, after), settings)
    ids = table.row_ids(any_value(change.path for change in planned.rewrites))
    return converted(old.selectExpr("*", *ids), before, partial(_rows, before, converter), after)


def _union(old: DataFrame, rows: DataFrame) -> DataFrame:
    """Append new ``rows`` to the rows of a table."""
    for column in old.columns[len(rows.columns) :]:  # new rows have no ids yet
        rows = rows.selectExpr("*", f"cast(null as bigint) as {column}")
    return old.union(rows)


def _rows(before: Struct, converter: Converter, rows: pa.RecordBatch) -> pa.RecordBatch:
    return converter.of_arrow(rows, before, json=False)


def _lossy_rewrites(table: DataFrame, planned: Plan) -> list[Path]:
    """Find the columns with a value that the rewrite would change."""
    before, requested = planned.before, planned.rewrites
    if not requested:
        return []
    conflicts = [_inexact(before, change) for change in requested]
    numbers = (
        numbered(table).mapInArrow(partial(_conflicts_in, before.struct, conflicts), "number int").distinct()
    )
    lossy = {row.number for row in numbers.collect()}
    return [change.path for number, change in enumerate(requested) if number in lossy]


def _conflicts_in(
    before: Struct, conflicts: Sequence[Conflict], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the numbers of the conflicts that some row has."""
    for batch in batches:
        rows = from_spark(batch, before)
        numbers = [n for n, c in enumerate(conflicts) if having(rows, before, c.path, c).any()]
        yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32())], ["number"])


def _inexact(before: Schema, change: RewriteColumn) -> Conflict:
    """The conflict of a column's values that are not exact in its new type."""
    old = before.find(change.path)
    assert old is not None
    path, was, becomes = change.path, old.type, change.type
    while isinstance(inner := peel(was)[1], Map):
        wider = peel(becomes)[1]
        assert isinstance(wider, Map)
        path, was, becomes = (*path, "value"), inner.value, wider.value
    return Conflict(path, "", facet_of(was), "", inexact=facet_of(becomes))
