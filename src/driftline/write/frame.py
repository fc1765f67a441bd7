"""Rows of tasks as a DataFrame, for tables whose files Spark's own writer has to write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from driftline.convert.spark import as_spark, from_spark
from driftline.core.schema.types import Struct
from driftline.sql.quoting import name, spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

RowsOf = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]


def mapped(source: DataFrame, rows: RowsOf, struct: Struct) -> DataFrame:
    """Map the batches of a frame, in tasks, to rows of ``struct`` in Arrow."""
    return source.mapInArrow(partial(_handed_over, rows, struct), columns_of(struct))


def converted(
    source: DataFrame, before: Struct, convert: Callable[[pa.RecordBatch], pa.RecordBatch], after: Struct
) -> DataFrame:
    """Convert the rows of a table from one struct to the other; the frame's columns after those of ``before``
    stay as they are.
    """
    beside = source.schema.fields[len(before.fields) :]
    types = ", ".join([columns_of(after), *(f"{name(f.name)} {f.dataType.simpleString()}" for f in beside)])
    return numbered(source).mapInArrow(
        partial(_converted, before, convert, after, [f.name for f in beside]), types
    )


def _converted(
    before: Struct,
    convert: Callable[[pa.RecordBatch], pa.RecordBatch],
    after: Struct,
    beside: Sequence[str],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    own = len(before.fields)
    for batch in batches:
        rows = as_spark(convert(from_spark(batch.select(range(own)), before)), after)
        for name_, column in zip(beside, batch.columns[own:], strict=True):
            rows = rows.append_column(name_, column)
        yield rows


def numbered(frame: DataFrame) -> DataFrame:
    """The frame with plain names for its columns: mapInArrow takes a dot in one for a path."""
    return frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))


def columns_of(struct: Struct) -> str:
    """The columns that Spark has the rows in, as DDL."""
    return ", ".join(f"{name(f.name)} {spark_type(f.type)}" for f in struct.fields)


def _handed_over(rows: RowsOf, struct: Struct, batches: Iterator[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    for batch in rows(batches):
        yield as_spark(batch, struct)
