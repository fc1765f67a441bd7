"""Rows laid out by a table's partition and sort keys, and the keys of the files that come of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from driftline.core.schema.definition import SortExpression, Transform
from driftline.core.schema.types import Field, Primitive, Schema
from driftline.errors import DataError
from driftline.formats.ducklake.catalog_layout import CatalogLayout, text_of
from driftline.formats.ducklake.files import DataFile
from driftline.formats.ducklake.sorting import top_column
from driftline.runtime.spark_version import java_type
from driftline.sql.quoting import name as quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_HELPER = "__driftline_p"
_LONG = 60  # characters of a value in a path, at most
_PARTS = {"year": "year", "month": "month", "day": "dayofmonth", "hour": "hour"}
_SEGMENT = 255  # characters of a folder's name that file systems take
_NULL = "__HIVE_DEFAULT_PARTITION__"
_KEYED = re.compile(rf"{_HELPER}(\d+)=([^/]*)/")


def partitioned(
    frame: DataFrame, columns: Sequence[Column], schema: Schema, keys: CatalogLayout, table: str
) -> tuple[DataFrame, list[str]]:
    """The frame's columns, followed by a text column for each partition key; rows in the order of the sort
    keys.
    """
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
        if isinstance(s, SortExpression):  # Spark has not all of DuckDB's functions
            break
        column = F.col(quoted(top_column(schema, s.source, table).name))
        ordering = ("desc" if s.descending else "asc") + ("_nulls_first" if s.nulls_first else "_nulls_last")
        order.append(getattr(column, ordering)())
    if order or helpers:
        rows = rows.sortWithinPartitions(*helpers, *order)
    return rows, helpers


def _value(spark: SparkSession, field: Field, transform: Transform, table: str) -> Column:
    """The key of a row as text; one that is too long for a path as a hash."""
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
    """The file with the values of its partition keys from its path; long ones from its statistics."""
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
