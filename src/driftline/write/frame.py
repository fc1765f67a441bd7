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
    from pyspark.sql import DataFrame, SparkSession

    from driftline.write.tasks import RowTasks

RowsOf = Callable[["Iterable[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]


def frame(spark: SparkSession, tasks: RowTasks, struct: Struct) -> DataFrame:
    """The rows of the tasks."""
    count = len(tasks.sizes)
    return mapped(spark.range(0, count, 1, count), partial(_of_tasks, tasks), struct)


def mapped(source: DataFrame, rows: RowsOf, struct: Struct) -> DataFrame:
    """What ``rows`` makes, in tasks, of the batches of a frame: rows of ``struct``, as Arrow has them."""
    columns = ", ".join(f"{name(f.name)} {spark_type(f.type)}" for f in struct.fields)
    return source.mapInArrow(partial(_handed_over, rows, struct), columns)


def numbered(frame: DataFrame) -> DataFrame:
    """The frame with plain names for its columns: mapInArrow takes a dot in one for a path."""
    return frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))


def _of_tasks(tasks: RowTasks, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for task in batch.column(0).to_pylist():
            yield from tasks.rows(task)


def _handed_over(rows: RowsOf, struct: Struct, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows(batches):
        yield as_spark(batch, struct)
