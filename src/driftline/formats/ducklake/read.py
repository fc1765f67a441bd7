"""Reads a DuckLake table as a DataFrame: by field id, whatever names and types its files have.

Spark's own reader by field id gives wrong answers for swapped names, and where a filter or a nested selection
meets them. So the files are read under names that nobody uses, ``__f`` and the id, and get their names by a
cast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from driftline.core.schema.types import Struct
from driftline.formats.ducklake.expressions import Columns, target
from driftline.formats.ducklake.files import unchanged
from driftline.formats.ducklake.hive import hive_values
from driftline.formats.ducklake.inlined import InlinedRows
from driftline.formats.ducklake.scan import Scan, ScanGroup
from driftline.runtime.spark_conf import PLAIN, configured, literally
from driftline.sql.quoting import name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

SNAPSHOT = "_ducklake_internal_snapshot_id"  # in files that hold rows of several snapshots
_OPTIONS = {"datetimeRebaseMode": "CORRECTED", "recursiveFileLookup": "false"}
_PATH, _ROW = "__path", "__row"
_SCHEME = "^[a-z0-9+.-]+:/+"  # file:/ is file:/// in places


def read(spark: SparkSession, scan: Scan, table: str) -> DataFrame:
    """The rows. Raises DataError where a registered file is not as it was registered."""
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    unchanged({**scan.files}, table)
    with configured(spark, PLAIN):
        return _rows(spark, scan, table)


def _rows(spark: SparkSession, scan: Scan, table: str) -> DataFrame:
    columns = Columns(table, {row.id: row.initial_default for row in scan.state.columns})
    struct = scan.state.schema.struct
    frames = [
        _of_files(spark, scan, shelf, paths, columns).select(*columns.all(struct, shelf.missing))
        if shelf.mapping is None
        else _of_mapped(spark, scan, shelf, paths, columns)
        for shelf, paths in scan.shelves.items()
    ]
    frames += [_of_inlined(spark, rows, struct, columns) for rows in scan.inlined]
    if not frames:
        return spark.createDataFrame([], target(struct, table))
    return reduce(lambda a, b: a.unionAll(b), frames)


def _of_files(
    spark: SparkSession, scan: Scan, shelf: ScanGroup, paths: list[str], columns: Columns
) -> DataFrame:
    """Files with field ids, their columns named by them."""
    from pyspark.sql.types import LongType, StructField, StructType

    struct = columns.by_id(scan.state.schema.struct, shelf)
    if shelf.partial:
        struct = StructType([*struct.fields, StructField(SNAPSHOT, LongType())])
    return _live(spark, _loaded(spark, struct, paths), scan, shelf, paths)


def _of_mapped(
    spark: SparkSession, scan: Scan, shelf: ScanGroup, paths: list[str], columns: Columns
) -> DataFrame:
    """Files whose columns are found by the names that they had when they were registered."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    assert shelf.mapping is not None
    rows = scan.mappings[shelf.mapping]
    names = {row.id: row for row in rows}
    struct = scan.state.schema.struct
    readable = [f for f in struct.fields if f.id in names and not columns.refused(f.type, "")]
    inside = [f for f in readable if not names[f.id].hive]
    hive = {f.id: names[f.id].name for f in readable if names[f.id].hive}
    schema = StructType([columns.by_name(f, names, shelf) for f in inside])
    frame = _live(spark, _loaded(spark, schema, paths), scan, shelf, paths)
    if hive:
        frame = _with_hive(spark, frame, scan, hive, paths, columns.table)
    columns_sql = []
    for f in struct.fields:
        if f.id in hive:
            x = f"__h{f.id}"
        elif f.id in names:
            x = columns.rebuilt(f.type, name(names[f.id].name), shelf.missing, names, f.name)
        else:
            x = columns.missing(f)
        columns_sql.append(F.expr(x).cast(columns.spark(f.type, f.name)).alias(f.name))
    return frame.select(*columns_sql)


def _with_hive(
    spark: SparkSession, frame: DataFrame, scan: Scan, keys: Mapping[int, str], paths: list[str], table: str
) -> DataFrame:
    """The frame with what stands in the paths of its files: a column
    ``__h`` and its id for each of ``keys``.
    """
    from pyspark.sql import functions as F

    as_spark = _as_spark_says(spark)
    rows = {keys[row.id]: row for row in scan.state.columns if row.id in keys}
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    values = spark.createDataFrame(hive_values({path: as_spark(path) for path in paths}, rows, zone, table))
    return frame.withColumn(_PATH, _bare_path()).join(
        F.broadcast(values.withColumnRenamed("path", _PATH)), _PATH, "left"
    )


def _of_inlined(spark: SparkSession, rows: InlinedRows, struct: Struct, columns: Columns) -> DataFrame:
    """Read rows from the catalog. They have the columns of their time, and the defaults of later ones."""
    from pyspark.sql import functions as F

    has = {row.id for row in rows.columns}
    # Spark computes all columns of rows that it holds itself, before it knows
    # which are asked for: also one that fails.
    frame = spark.createDataFrame(rows.rows).coalesce(1)
    missing = frozenset(i for i in columns.defaults if i not in has)
    selected = []
    for f in struct.fields:
        x = (
            columns.rebuilt(f.type, f"__f{f.id}", missing, None, f.name, has)
            if f.id in has
            else columns.missing(f)
        )
        selected.append(F.expr(x).cast(columns.spark(f.type, f.name)).alias(f.name))
    return frame.select(*selected)


def _loaded(spark: SparkSession, schema: StructType, paths: list[str]) -> DataFrame:
    return spark.read.options(**_OPTIONS).schema(schema).parquet(*map(literally, paths))


def _live(spark: SparkSession, frame: DataFrame, scan: Scan, shelf: ScanGroup, paths: list[str]) -> DataFrame:
    """The rows that are not deleted, nor later than the snapshot."""
    from pyspark.sql import functions as F

    if shelf.partial:
        frame = frame.where(F.col(SNAPSHOT) <= F.lit(scan.state.snapshot))
    if not shelf.deletes:
        return frame
    gone = _deleted(spark, scan, paths)
    names = frame.columns
    numbered = frame.select("*", _bare_path().alias(_PATH), F.col("_metadata.row_index").alias(_ROW))
    # The columns that follow from the path are still asked for, behind the join.
    return numbered.join(F.broadcast(gone), [_PATH, _ROW], "left_anti").select(*(F.col(c) for c in names))


def _deleted(spark: SparkSession, scan: Scan, paths: list[str]) -> DataFrame:
    """The path, in Spark's spelling, and the number of each deleted row."""
    from pyspark.sql import functions as F

    as_spark = _as_spark_says(spark)
    schema = f"{_PATH} string, {_ROW} bigint"
    parts = []
    inlined = [(as_spark(path), row) for path in paths for row in scan.deleted.get(path, ())]
    if inlined:
        parts.append(spark.createDataFrame(inlined, schema))
    data_of = {as_spark(scan.deletes[path]): as_spark(path) for path in paths if path in scan.deletes}
    if data_of:
        files = _delete_files(spark, sorted({scan.deletes[path] for path in paths if path in scan.deletes}))
        which = spark.createDataFrame(list(data_of.items()), "delete_path string, data_path string")
        rows = files.select("pos", SNAPSHOT, _bare_path().alias("delete_path")).join(
            F.broadcast(which), "delete_path"
        )
        now = F.col(SNAPSHOT).isNull() | (F.col(SNAPSHOT) <= F.lit(scan.state.snapshot))
        parts.append(rows.where(now).select(F.col("data_path").alias(_PATH), F.col("pos").alias(_ROW)))
    return reduce(lambda a, b: a.unionAll(b), parts)


def _delete_files(spark: SparkSession, paths: list[str]) -> DataFrame:
    from pyspark.sql.types import LongType, StructField, StructType

    return _loaded(
        spark, StructType([StructField("pos", LongType()), StructField(SNAPSHOT, LongType())]), paths
    )


def _bare_path() -> Column:
    """The row's file, as `_as_spark_says` has it."""
    from pyspark.sql import functions as F

    return F.regexp_replace(F.col("_metadata.file_path"), _SCHEME, "/")


def _as_spark_says(spark: SparkSession) -> Callable[[str], str]:
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    conf = session.sessionState().newHadoopConf()

    def said(path: str) -> str:
        java = jvm.org.apache.hadoop.fs.Path(path)
        whole = str(java.getFileSystem(conf).makeQualified(java).toUri().toString())
        return re.sub(_SCHEME, "/", whole)

    return said
