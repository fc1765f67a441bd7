"""Rows of tasks in Parquet files, which Spark reads and hands to its own writer.

Arrow hands rows to Java with at most 64 levels; files have no such limit, and their tasks return what they
observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.convert.spark import as_spark
from driftline.core.schema.types import Primitive, Schema, Struct
from driftline.runtime.spark_conf import CASE, PLAIN, configured, literally
from driftline.sql.quoting import spark_type
from driftline.tasks.batch_folder import BatchFolder
from driftline.tasks.run import RowTasks, columns_of, number_and_attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GROUP = 32 * 2**20  # bytes of rows that are written at once


def staged(spark: SparkSession, tasks: RowTasks, struct: Struct, folder: BatchFolder | None) -> DataFrame:
    """The rows of the tasks, of ``struct``, by way of files in the batch's ``folder``; by way of Arrow where
    there is none that Spark reads, or files have no such type.
    """
    if folder is None or folder.disk is None or not _has_files(struct):
        return tasks.frame(struct)
    written = tasks.run(partial(_stage, struct, folder), folder)
    files = [literally(f"file://{path}") for path in written if path is not None]
    with configured(spark, {**PLAIN, CASE: "true"}):
        if not files:
            return spark.createDataFrame([], columns_of(struct))
        reader = spark.read.schema(columns_of(struct)).option("datetimeRebaseMode", "CORRECTED")
        return reader.parquet(*files)


def _has_files(struct: Struct) -> bool:
    leaves = (f.type for _, f in Schema(struct).walk() if isinstance(f.type, Primitive))
    return bool(struct.fields) and all(spark_type(type_) != "void" for type_ in leaves)


def _stage(struct: Struct, folder: BatchFolder, rows: Iterable[pa.RecordBatch]) -> str | None:
    """Write a task's rows into one file; None if there are none."""
    number, attempt = number_and_attempt(folder)
    path = f"{folder.path}/{number:05d}-{attempt}-{uuid4().hex}-00001.parquet"
    writer: pq.ParquetWriter | None = None
    try:
        for table in _gathered(rows, struct):
            writer = writer or pq.ParquetWriter(path, table.schema, compression="lz4", store_schema=False)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
    return None if writer is None else path


def _gathered(rows: Iterable[pa.RecordBatch], struct: Struct) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        gathered.append(as_spark(batch, struct))
        size += batch.nbytes
        if size >= _GROUP:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)
