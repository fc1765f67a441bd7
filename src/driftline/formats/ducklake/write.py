"""Rows into Parquet files with DuckLake's field ids, by Spark's executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftline.core.types import Field, List, Map, Primitive, Schema, Struct, Type
from driftline.engine import configured
from driftline.errors import DataError
from driftline.formats.ducklake.files import DataFile, describe, listed, removed
from driftline.formats.ducklake.types import spark_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

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


def write(frame: DataFrame, schema: Schema, table: str, folder: str, name: str) -> list[DataFile]:
    """Writes the frame into ``table``/``folder``; returns what lies there. ``table`` ends with a slash."""
    path = table + folder
    with configured(frame.sparkSession, _CONF):
        fitted = frame.to(spark_struct(schema.struct, name))
        fitted.write.options(**_OPTIONS).parquet(path)
    spark = frame.sparkSession
    found = describe(table, [folder + file for file in listed(spark, path)], schema)
    files = [file for file in found if file.rows]
    if len(files) < len(found) and not files:
        removed(spark, path)
    _required(files, schema, name)
    return files


def _required(files: list[DataFile], schema: Schema, name: str) -> None:
    """That required columns have no nulls, as DuckLake leaves that to who writes."""
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
    """The struct as Spark has it, with the field ids. All is nullable: `_required` looks after the rest."""
    from pyspark.sql.types import StructType

    return StructType([_field(f, where) for f in struct.fields])


def _field(field: Field, where: str) -> StructField:
    from pyspark.sql.types import StructField

    type_ = spark_type(field.type, f"{where}.{field.name}")
    return StructField(field.name, type_, True, {FIELD_ID: field.id})


def spark_type(type_: Type, where: str) -> DataType:
    """The type as Spark has it; its structs with field ids."""
    from pyspark.sql.types import ArrayType, MapType

    match type_:
        case Struct():
            return spark_struct(type_, where)
        case List(element):
            return ArrayType(spark_type(element, where), True)
        case Map(key, value):
            return MapType(spark_type(key, where), spark_type(value, where), True)
        case Primitive():
            return parsed(spark_name(type_, where))


def parsed(ddl: str) -> DataType:
    """A primitive type out of its DDL."""
    from pyspark.sql import types as T

    if ddl.startswith("decimal"):
        precision, scale = ddl[8:-1].split(",")
        return T.DecimalType(int(precision), int(scale))
    made: dict[str, Any] = {
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
    type_: DataType = made[ddl]()
    return type_
