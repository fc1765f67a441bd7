"""Writes rows into partitioned Parquet files with DuckLake's field ids, on Spark's executors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from driftline.core.schema.definition import SortExpression, Transform
from driftline.core.schema.types import Field, List, Map, Primitive, Schema, Struct, Type
from driftline.errors import DataError
from driftline.formats.ducklake.files import DataFile, describe, listed, moved, removed
from driftline.formats.ducklake.layout import CatalogLayout, text_of, top_column
from driftline.formats.ducklake.types import written_as
from driftline.runtime.spark_conf import configured
from driftline.runtime.spark_version import java_type
from driftline.sql.quoting import name as quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

_HELPER = "__driftline_p"
_LONG = 60  # characters of a value in a path, at most
# Parts of the calendar, not counts since 1970: several of one column may partition a table.
_PARTS = {"year": "year", "month": "month", "day": "dayofmonth", "hour": "hour"}
_SEGMENT = 255  # characters of a folder's name that file systems take
_NULL = "__HIVE_DEFAULT_PARTITION__"
_KEYED = re.compile(rf"{_HELPER}(\d+)=([^/]*)/")


def partitioned(
    frame: DataFrame, columns: Sequence[Column], schema: Schema, keys: CatalogLayout, table: str
) -> tuple[DataFrame, list[str]]:
    """Sort the frame by the sort keys, and add a text column for each partition key."""
    from pyspark.sql import functions as F

    helpers = [f"{_HELPER}{i}" for i, _ in enumerate(keys.partition)]
    values = [
        _value(frame.sparkSession, top_column(schema, k.source, table), k.transform, table).alias(helper)
        for k, helper in zip(keys.partition, helpers, strict=True)
    ]
    rows = frame.select(*columns).select("*", *values)
    if helpers:
        rows = rows.repartition(*helpers)
    order = []
    for s in keys.sort:
        # Spark has not all of DuckDB's functions
        if isinstance(s, SortExpression):
            break
        column = F.col(quoted(top_column(schema, s.source, table).name))
        ordering = ("desc" if s.descending else "asc") + ("_nulls_first" if s.nulls_first else "_nulls_last")
        order.append(getattr(column, ordering)())
    if order or helpers:
        rows = rows.sortWithinPartitions(*helpers, *order)
    return rows, helpers


def _value(spark: SparkSession, field: Field, transform: Transform, table: str) -> Column:
    """Return the key of a row as text; one that is too long for a path as a hash."""
    from pyspark.sql import functions as F

    assert isinstance(field.type, Primitive)
    text_of(transform, field, table)  # that DuckLake has it
    column = F.col(quoted(field.name))
    if transform.name in _PARTS:
        column = getattr(F, _PARTS[transform.name])(column)
    elif transform.name == "bucket":
        column = F.call_function(_bucket(spark, field.type, transform.n or 1), column)
    elif field.type.name in ("float", "double", "binary"):
        raise DataError(f"{table}: Spark does not write files by {field.name}, a {field.type}")
    text = column.cast("string")
    if transform.name == "identity" and field.type.name == "timestamp":
        text = F.concat(text, F.lit("+00"))
    return F.when(F.length(text) > _LONG, F.concat(F.lit("h"), F.md5(text))).otherwise(
        F.concat(F.lit("v"), text)
    )


def _bucket(spark: SparkSession, type_: Primitive, n: int) -> str:
    """Iceberg's bucket function, which is DuckLake's too."""
    jvm: Any = spark._jvm
    types = java_type(jvm, "org.apache.spark.sql.types.DataTypes")
    java = {"int": "IntegerType", "long": "LongType", "string": "StringType", "date": "DateType"}
    name = f"driftline_bucket_{type_.name}_{n}"
    kind = getattr(types, java.get(type_.name, "TimestampType"))
    java_type(jvm, "org.apache.iceberg.spark.IcebergSpark").registerBucketUDF(
        spark._jsparkSession, name, kind, n
    )
    return name


def with_partition(file: DataFile, keys: CatalogLayout) -> DataFile:
    """Return the file with the values of its partition keys from its path; long ones from its statistics."""
    if not keys.partition:
        return file
    values: list[str | None] = [None] * len(keys.partition)
    for i, escaped in _KEYED.findall(file.path):
        text = unquote(escaped)
        if text.startswith("v"):
            values[int(i)] = text[1:]
        elif text.startswith("h"):
            values[int(i)] = file.stats[keys.partition[int(i)].source].low
    return replace(file, partition=tuple(values))


def duckdb_folder(values: Sequence[str | None], schema: Schema, keys: CatalogLayout) -> str | None:
    """DuckDB's folder for a file of these partition values, below the table's.

    None if the path would be too long.
    """
    names = {f.id: f.name for f in schema.struct.fields}
    used: set[str] = set()
    parts = []
    for key, value in zip(keys.partition, values, strict=True):
        column = names[key.source]
        name = column if key.transform.name == "identity" else key.transform.name
        if name.casefold() in used:
            name = f"{name}_{column}"
        used.add(name.casefold())
        parts.append(f"{_escaped(name)}={_NULL if value is None else _escaped(value)}")
    return "".join(f"{part}/" for part in parts) if all(len(part) <= _SEGMENT for part in parts) else None


def _escaped(text: str) -> str:
    return quote(text, safe="-_.~")


FIELD_ID = "parquet.field.id"
_CONF = {
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 is no timestamp to DuckLake
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
_OPTIONS = {
    "compression": "zstd",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "parquet.column.statistics.enabled": "true",
}


# Beside the tasks' writer, for frames of resolve, promote and replay, for columns of types that only DuckDB
# has, and for partitions by timestamps, whose text in a path is DuckDB's own.
def write(
    frame: DataFrame, schema: Schema, keys: CatalogLayout, table: str, folder: str, name: str
) -> list[DataFile]:
    """Write the frame into ``table``/``folder``; returns the files. ``table`` ends with a slash."""
    path, spark = table + folder, frame.sparkSession
    with configured(spark, _CONF):
        columns = _fitting(frame, target := spark_struct(schema.struct, name))
        parted, helpers = partitioned(frame, columns, schema, keys, name)
        writer = _identified(parted, target, helpers).write.options(**_OPTIONS)
        (writer.partitionBy(*helpers) if helpers else writer).parquet(path)
    written = describe(table, [folder + file for file in listed(spark, path)], schema)
    files = [with_partition(file, keys) for file in written if file.rows]
    if len(files) < len(written) and not files:
        removed(spark, path)
    check_required(files, schema, name)
    return [_placed(spark, file, schema, keys, table) for file in files] if helpers else files


def _placed(spark: SparkSession, file: DataFile, schema: Schema, keys: CatalogLayout, table: str) -> DataFile:
    """Return the file where DuckDB would have put it: it merges files only if they lie together."""
    folder = duckdb_folder(file.partition, schema, keys)
    if folder is None:
        return file
    batch, name = file.path.partition("/")[0], file.path.rpartition("/")[2]
    path = f"{folder}{batch}-{name}"
    moved(spark, table + file.path, table + path)
    return replace(file, path=path)


def _fitting(frame: DataFrame, target: StructType) -> list[Column]:
    """Return the columns of ``target`` out of the frame."""
    from pyspark.sql import functions as F

    has = {f.name: f.dataType for f in frame.schema.fields}
    columns = []
    for f in target.fields:
        column = F.col(quoted(f.name))
        same = _bare(has[f.name].jsonValue()) == _bare(f.dataType.jsonValue())
        columns.append(column if same else column.cast(f.dataType).alias(f.name))
    return columns


def _identified(frame: DataFrame, target: StructType, helpers: Sequence[str]) -> DataFrame:
    """Cast the frame's columns to ``target``, with its field ids; the text columns ``helpers`` follow.

    As metadata of columns the ids would not survive Spark's optimizer, so the rows get a schema of their own.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StringType, StructField, StructType

    with_helpers = StructType([*target.fields, *(StructField(helper, StringType()) for helper in helpers)])
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    jdf: Any = frame._jdf
    schema = java_type(jvm, "org.apache.spark.sql.types.DataType").fromJson(with_helpers.json())
    return DataFrame(session.internalCreateDataFrame(jdf.queryExecution().toRdd(), schema, False), spark)


def _bare(type_: Any) -> Any:
    """Return a type's JSON without the parts that do not concern its values."""
    if isinstance(type_, dict):
        return {k: _bare(v) for k, v in type_.items() if k != "metadata" and "ull" not in k}
    return [_bare(v) for v in type_] if isinstance(type_, list) else type_


def check_required(files: Sequence[DataFile], schema: Schema, name: str) -> None:
    """Check that required columns have no nulls; DuckLake leaves that to the writer."""
    for field in schema.struct.fields:
        if field.required and isinstance(field.type, Primitive):
            for file in files:
                stats = file.stats.get(field.id)
                if stats is None or stats.nulls != 0:
                    raise DataError(
                        f"{name}: the batch has rows without a value for {field.name}, which is required",
                        hint=f"ALTER TABLE {name} ALTER COLUMN {field.name} DROP NOT NULL",
                    )


def spark_struct(struct: Struct, where: str) -> StructType:
    """Return the struct as Spark has it, with the field ids.

    All is nullable: `check_required` looks after the rest.
    """
    from pyspark.sql.types import StructType

    return StructType([_field(f, where) for f in struct.fields])


def _field(field: Field, where: str) -> StructField:
    from pyspark.sql.types import StructField

    type_ = spark_type(field.type, f"{where}.{field.name}")
    return StructField(field.name, type_, True, {FIELD_ID: field.id})


def spark_type(type_: Type, where: str) -> DataType:
    """Return the type as Spark has it; its structs with field ids."""
    from pyspark.sql.types import ArrayType, MapType

    match type_:
        case Struct():
            return spark_struct(type_, where)
        case List(element):
            return ArrayType(spark_type(element, where), True)
        case Map(key, value):
            return MapType(spark_type(key, where), spark_type(value, where), True)
        case Primitive():
            return parsed(written_as(type_))


def parsed(ddl: str) -> DataType:
    """Return a primitive type out of its DDL."""
    from pyspark.sql import types as T

    if ddl.startswith("decimal"):
        precision, scale = ddl[8:-1].split(",")
        return T.DecimalType(int(precision), int(scale))
    types: dict[str, Any] = {
        "boolean": T.BooleanType,
        "tinyint": T.ByteType,
        "smallint": T.ShortType,
        "int": T.IntegerType,
        "bigint": T.LongType,
        "float": T.FloatType,
        "double": T.DoubleType,
        "date": T.DateType,
        "timestamp": T.TimestampType,
        "timestamp_ntz": T.TimestampNTZType,
        "string": T.StringType,
        "binary": T.BinaryType,
    }
    type_: DataType = types[ddl]()
    return type_
