"""Rows of tasks in Parquet files that Spark reads, and hands to its own writer.

Arrow hands rows over to Java with 64 levels at most; files have no such limit,
and their tasks tell what they observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING
from uuid import uuid4

from driftline.convert.spark import as_spark
from driftline.core.schema.types import Primitive, Schema, Struct
from driftline.errors import SetupError
from driftline.runtime.spark_conf import CASE, PLAIN, configured, literally
from driftline.sql.quoting import spark_type
from driftline.write.frame import columns_of
from driftline.write.run import RowTasks, number_and_attempt

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_GROUP = 32 * 2**20  # bytes of rows that are written at once


@contextmanager
def folder_of_batch(spark: SparkSession, location: str) -> Iterator[Path | None]:
    """A folder of one batch alone, for as long as its tasks run: in ``location``, a path or URI, where that
    is on a disk; elsewhere on this machine, where the tasks run here; else None.

    Raises SetupError where nothing can be written there.
    """
    if location.startswith(("/", "file:")):
        path = local(location) / uuid4().hex
        _make(path)
    elif str(spark.sparkContext.master).startswith("local"):
        path = Path(mkdtemp(prefix="driftline-"))
    else:
        yield None
        return
    try:
        yield path
    finally:
        # By another name no late attempt of a task finds it, and makes a file while it is emptied.
        rmtree(path.rename(path.with_suffix(".gone")), ignore_errors=True)


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True)
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            raise
        raise SetupError(
            f"{path.parent}: no files of the table can be written there: {error.strerror}",
            hint="let this user write to the table's location; on a cluster, each worker's too",
        ) from error


def local(path: str) -> Path:
    """The file of a path or ``file:`` URI."""
    return Path(path.removeprefix("file://").removeprefix("file:"))


def staged(spark: SparkSession, tasks: RowTasks, struct: Struct, folder: Path | None) -> DataFrame:
    """The rows of the tasks, of ``struct``, by way of files in the batch's ``folder``; by way of Arrow where
    there is none, or files have no such type.
    """
    if folder is None or not _has_files(struct):
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


def _stage(struct: Struct, folder: Path, rows: Iterable[pa.RecordBatch]) -> str | None:
    """In a task: its rows in one file; None where there are none."""
    import pyarrow.parquet as pq

    number, attempt = number_and_attempt(folder)
    path = str(folder / f"{number:05d}-{attempt}-{uuid4().hex}-00001.parquet")
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
    import pyarrow as pa

    some: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        some.append(as_spark(batch, struct))
        size += batch.nbytes
        if size >= _GROUP:
            yield pa.Table.from_batches(some)
            some, size = [], 0
    if some:
        yield pa.Table.from_batches(some)
