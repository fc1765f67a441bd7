"""Data files that tasks write for a DuckLake table: whether they may, and what the catalog is told of them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.core.types import Schema
from driftline.formats.ducklake.files import DataFile, describe, local, removed
from driftline.formats.ducklake.layout import Layout
from driftline.formats.ducklake.write import check_required
from driftline.write import FilePlan, FileSettings, write_in_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.write import RowTasks

_TARGET = 512 * 2**20  # bytes of a file, as DuckDB has it


def write_tasks(
    spark: SparkSession, tasks: RowTasks, schema: Schema, keys: Layout, table: str, name: str
) -> list[DataFile] | None:
    """Has the tasks write files into the folder ``table``, which ends with a slash; returns what lies there.

    None where Spark's own writer has to, and nothing was written: rows are dealt out or sorted first, or the folder is
    not on this machine. Raises DataError where a required column has no value.
    """
    folder = local(table)
    if folder is None or keys.partition or keys.sort:
        return None
    # The footers tell all that the catalog is told.
    unmeasured = {f.id: "none" for _, f in schema.walk()}
    plan = FilePlan(schema, unmeasured, FileSettings(), _TARGET)
    written = write_in_tasks(
        spark.sparkContext,
        tasks,
        plan,
        str(folder / uuid.uuid4().hex),
        lambda file: str(folder / Path(file.path).name),
    )
    paths = [Path(file.path).name for file in written]
    try:
        files = describe(table, paths, schema)
        check_required(files, schema, name)
    except BaseException:
        for path in paths:
            removed(spark, table + path)
        raise
    return files
