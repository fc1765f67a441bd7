"""Rows of tasks as a DataFrame, for tables whose files Spark's own writer has to write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from driftline.convert.spark import as_spark
from driftline.core.schema.types import Struct
from driftline.sql.quoting import name, spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

RowsOf = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]


def mapped(source: DataFrame, rows: RowsOf, struct: Struct) -> DataFrame:
    """What ``rows`` makes, in tasks, of the batches of a frame: rows of ``struct``, as Arrow has them."""
    return source.mapInArrow(partial(_handed_over, rows, struct), columns_of(struct))


def numbered(frame: DataFrame) -> DataFrame:
    """The frame with plain names for its columns: mapInArrow takes a dot in one for a path."""
    return frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))


def columns_of(struct: Struct) -> str:
    """The columns that Spark has the rows in, as DDL."""
    return ", ".join(f"{name(f.name)} {spark_type(f.type)}" for f in struct.fields)


def _handed_over(rows: RowsOf, struct: Struct, batches: Iterator[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    for batch in rows(batches):
        yield as_spark(batch, struct)
