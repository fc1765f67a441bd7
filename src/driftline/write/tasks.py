"""Writes data files in tasks, and hands whole files to the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.convert.spark import as_spark
from driftline.core.schema.types import Primitive, Schema, Struct
from driftline.runtime.spark_conf import CASE, PLAIN, configured, literally
from driftline.sql.quoting import spark_type
from driftline.tasks.batch_folder import BatchFolder
from driftline.tasks.run import RowTasks, columns_of, each, number_and_attempt
from driftline.write.distribution import Distribution, Partition, PartitionSlices, Slice
from driftline.write.files import (
    Destination,
    FilePlan,
    NewFile,
    TaskDestination,
    WrittenFile,
    whole,
    write_files,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

# What tasks write, by its path: as a file of a table, and in the folder of a batch.
# `driftline clean` deletes only such names: `shop.orders.data` lies where `shop.orders` keeps its files.
WRITTEN = re.compile(r"/([01]+-)?(\d{5}-\d+-[0-9a-f]{32}|[0-9a-f]{32}-\d{5}-\d+)-\d{5}\.(parquet|puffin)$")
STAGED = re.compile(r"/[0-9a-f]{32}(\.gone)?/[\d-]+([0-9a-f]{32}-\d{5}\.parquet|\.arrow)$")


def write_in_tasks(
    context: SparkContext, tasks: RowTasks, plan: FilePlan, folder: BatchFolder, place: Destination
) -> list[WrittenFile]:
    """Run the tasks and return the files that they wrote, each in its ``place`` in the table.

    After an error no file is left; repeated and late attempts leave none that the commit names.

    Args:
        context: the context of the tasks.
        tasks: make the rows.
        plan: how files are written.
        folder: a folder of this batch alone that all tasks see.
        place: the destination of the files.

    Raises:
        SetupError: a task does not see the folder.
    """
    try:
        # All tasks have ended before the first file moves: only attempts that Spark accepted are named here.
        return place.finalize(chain.from_iterable(_written(context, tasks, plan, folder, place)))
    except BaseException:
        place.clear()
        raise


def _written(
    context: SparkContext, tasks: RowTasks, plan: FilePlan, folder: BatchFolder, place: Destination
) -> Iterable[Sequence[WrittenFile]]:
    distribution = plan.distribution
    if not (distribution.partition or distribution.sort):
        return tasks.run(partial(_write, plan, folder, place.target([()])), folder)
    # A single task needs no exchange. In a store it does: the driver asks for the place of each partition
    # first, and only the first round tells which there are.
    if tasks.alone and not place.needs_partitions:
        return tasks.run(partial(_write_alone, plan, folder, place.target(())), folder)
    # A shuffle would convert Arrow to rows and back. Without an exchange each task would write each
    # partition, where Iceberg's default, hash, promises one file.
    slices = list(chain.from_iterable(tasks.run(partial(_spill, distribution, folder), folder)))
    target = place.target({one.partition for one in slices})
    shares = distribution.parts(slices, context.defaultParallelism)
    return each(context, partial(_write_parts, plan, folder, target), shares)


def _write(
    plan: FilePlan, folder: BatchFolder, target: TaskDestination, rows: Iterable[pa.RecordBatch]
) -> Sequence[WrittenFile]:
    """In a task: writes its rows as data files."""
    create = _creating(folder, target)
    return whole(write_files(rows, plan, partial(create, ())), target)


def _write_alone(
    plan: FilePlan, folder: BatchFolder, target: TaskDestination, rows: Iterable[pa.RecordBatch]
) -> Sequence[WrittenFile]:
    """In the only task: both rounds."""
    # Through slices, too: rows of one partition may be anywhere among those of the task.
    shares = plan.distribution.parts(_spill(plan.distribution, folder, rows), 1)
    return _write_parts(plan, folder, target, [part for share in shares for part in share])


def _spill(distribution: Distribution, folder: BatchFolder, rows: Iterable[pa.RecordBatch]) -> list[Slice]:
    """In a task of the first round: writes its rows in slices."""
    number, attempt = number_and_attempt(folder)
    return distribution.spill(rows, folder, f"{number}-{attempt}.arrow")


def _write_parts(
    plan: FilePlan, folder: BatchFolder, target: TaskDestination, parts: Sequence[PartitionSlices]
) -> Sequence[WrittenFile]:
    """In a task of the second round: writes its parts as data files."""
    return whole(_parts(plan, folder, _creating(folder, target), parts), target)


def _parts(
    plan: FilePlan,
    folder: BatchFolder,
    create: Callable[[Partition, int], NewFile],
    parts: Sequence[PartitionSlices],
) -> Iterator[WrittenFile]:
    # One count for all parts: in the batch's folder a file's name has no partition.
    numbers = count(1)
    for part in parts:

        def new(_: int, partition: Partition = part.partition) -> NewFile:
            """A new file of the partition, with the attempt's next number."""
            return create(partition, next(numbers))

        for file in write_files(plan.distribution.rows(part, folder), plan, new):
            yield replace(file, partition=part.partition)


def _creating(folder: BatchFolder, target: TaskDestination) -> Callable[[Partition, int], NewFile]:
    """Make a task's files, by partition and number: no other attempt has the same."""
    number, attempt = number_and_attempt(folder)
    return lambda partition, file: target.create(partition, number, attempt, file)


_GROUP = 32 * 2**20  # bytes of rows that are written at once


def staged(spark: SparkSession, tasks: RowTasks, struct: Struct, folder: BatchFolder | None) -> DataFrame:
    """Hand the rows of the tasks, of ``struct``, to Spark through files in the batch's ``folder``.

    They go through Arrow instead where Spark reads no such folder, or files have no such type.
    """
    if folder is None or folder.disk is None or not _has_files(struct):
        return tasks.frame(struct)
    # Files, not Arrow's hand-over to Java, which takes 64 levels at most.
    written = tasks.run(partial(_stage, struct, folder), folder)
    # Named one by one: a folder would bring the files of failed attempts as well.
    files = [literally(f"file://{path}") for path in written if path is not None]
    with configured(spark, {**PLAIN, CASE: "true"}):
        if not files:
            return spark.createDataFrame([], columns_of(struct))
        # Arrow writes the proleptic calendar without Spark's mark of it: by the session's own mode old dates
        # could fail or move.
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
        for table in _combined(rows, struct):
            writer = writer or pq.ParquetWriter(path, table.schema, compression="lz4", store_schema=False)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
    return None if writer is None else path


def _combined(rows: Iterable[pa.RecordBatch], struct: Struct) -> Iterator[pa.Table]:
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
