"""Data files that tasks write for a DuckLake table: if they may, and the catalog's facts about them."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from driftline.convert.types import convertible
from driftline.core.schema.partitioning import IDENTITY, SortField, Transform
from driftline.core.schema.types import (
    BINARY,
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UNKNOWN,
    Field,
    Primitive,
    Schema,
)
from driftline.formats.ducklake.files import DataFile, describe, local, removed
from driftline.formats.ducklake.layout import CatalogLayout
from driftline.formats.ducklake.partition import duckdb_folder
from driftline.formats.ducklake.rows import TableCommit
from driftline.formats.ducklake.sorting import top_column
from driftline.formats.ducklake.write import check_required
from driftline.write import (
    BatchFolder,
    Distribution,
    FilePlan,
    FileSettings,
    InFolder,
    Key,
    WrittenFile,
    write_in_tasks,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.write import RowTasks

# Whose text as a partition value is DuckDB's own.
_PRINTED_OTHERWISE = (TIMESTAMP, TIMESTAMP_NTZ, BINARY)
_TARGET = 512 * 2**20  # bytes of a file, as DuckDB has it


def write_tasks(
    spark: SparkSession, tasks: RowTasks, intent: TableCommit, folder: BatchFolder
) -> list[DataFile] | None:
    """Has the tasks write files into the table's folder, by way of the batch's ``folder``; returns what lies
    there.

    None where Spark's own writer has to, and nothing was written: for types and keys that tasks do not know,
    and folders that are not on this machine. Raises DataError where a required column has no value.
    """
    schema, keys = intent.schema, intent.keys
    root, dealing = local(intent.folder), _dealing(schema, keys, intent.name)
    if root is None or not convertible(schema.struct) or not _known(dealing):
        return None
    # The footers tell all that the catalog is told.
    unmeasured = {f.id: "none" for _, f in schema.walk()}
    plan = FilePlan(schema, unmeasured, FileSettings(), _TARGET, dealing)
    partitions: dict[str, tuple[str | None, ...]] = {}

    def place(file: WrittenFile) -> str:
        values = tuple(map(_text, dealing.partition, file.partition))
        path = (duckdb_folder(values, schema, keys) or "") + Path(file.path).name
        partitions[path] = values
        return str(root / path)

    write_in_tasks(spark.sparkContext, tasks, plan, folder, InFolder(folder, place))
    try:
        files = describe(intent.folder, list(partitions), schema)
        check_required(files, schema, intent.name)
    except BaseException:
        for path in partitions:
            removed(spark, intent.folder + path)
        raise
    return [replace(file, partition=partitions[file.path]) for file in files]


def _dealing(schema: Schema, keys: CatalogLayout, name: str) -> Distribution:
    """The table's keys; of the sort keys those before the first that is an expression of DuckDB's."""
    columns = takewhile(lambda key: isinstance(key, SortField), keys.sort)
    return Distribution(
        tuple(_key(top_column(schema, f.source, name), f.transform) for f in keys.partition),
        tuple(
            replace(
                _key(top_column(schema, key.columns[0], name)),
                descending=key.descending,
                nulls_first=key.nulls_first,
            )
            for key in columns
        ),
    )


def _known(dealing: Distribution) -> bool:
    printed = (key.transform != IDENTITY or key.type not in _PRINTED_OTHERWISE for key in dealing.partition)
    return dealing.known and all(printed)


def _key(column: Field, transform: Transform = IDENTITY) -> Key:
    type_ = column.type if isinstance(column.type, Primitive) else UNKNOWN
    return Key((column.name,), type_, transform, calendar=True)


def _text(key: Key, value: Any) -> str | None:
    """A partition value as DuckDB prints it."""
    if value is None:
        return None
    if key.transform == IDENTITY and key.type == DATE:
        return str(np.int64(value).astype("datetime64[D]"))
    return str(value).lower() if isinstance(value, bool) else str(value)
