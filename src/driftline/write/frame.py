"""Rows of tasks as a DataFrame, for tables whose files Spark's own writer has to write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from driftline.core.types import Primitive, Schema, Struct
from driftline.route.sql import name, spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from driftline.write.tasks import RowTasks

_APART = ("uuid", "time", "fixed", "unknown")  # types that Spark has otherwise than Arrow


def frame(spark: SparkSession, tasks: RowTasks, struct: Struct) -> DataFrame | None:
    """The rows of the tasks; None where Spark cannot take them from Arrow."""
    primitives = (f.type for _, f in Schema(struct).walk() if isinstance(f.type, Primitive))
    # Without pandas, pyspark has no mapInArrow.
    if find_spec("pandas") is None or any(t.name in _APART for t in primitives):
        return None
    columns = ", ".join(f"{name(f.name)} {spark_type(f.type)}" for f in struct.fields)
    count = len(tasks.sizes)
    return spark.range(0, count, 1, count).mapInArrow(partial(_rows, tasks), columns)


def _rows(tasks: RowTasks, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for task in batch.column(0).to_pylist():
            yield from tasks.rows(task)
