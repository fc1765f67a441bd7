"""Rows of a DataFrame as plain Python: a struct is a dict of what is not null, an instant is in UTC."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC
from functools import partial, reduce
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from pyarrow.parquet import ParquetFile

from driftline.runtime.worker import lighten_worker
from driftline.verify.files import Read, SourcePlace, opened
from driftline.verify.json_texts import MalformedText, parse
from driftline.verify.source_values import Pairs, Single

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

Plain = Callable[[Any], Any]
_SMALL = 2**18  # bytes, as Spark estimates
_FILE, _AT = "\0file", "\0at"  # no column has such a name


def rows(df: DataFrame, names: Sequence[str] | None = None, *, any_text: bool = False) -> RDD[dict[str, Any]]:
    """The rows, by the columns' names or by these. The session's time zone must be UTC while this is called.
    ``any_text``: text may have bytes that are not UTF-8.
    """
    from pyspark.sql import functions as F

    schema = df.schema
    # Names may hold anything, so columns are taken by position. An instant without its zone passes through
    # Python without the time zone of the machine, and bytes pass that Java's text would not have.
    places = [f"c{i}" for i in range(len(schema))]
    df = df.toDF(*places).select(
        *(F.col(c) if passed == f.dataType else F.col(c).cast(passed).alias(c)
          for c, f in zip(places, schema.fields, strict=True)
          for passed in [_passed(f.dataType, any_text)])
    )  # fmt: skip
    cores = df.sparkSession.sparkContext.defaultParallelism
    if df.rdd.getNumPartitions() < cores and not _is_small(df):
        df = df.repartition(cores)
    return df.rdd.mapPartitions(partial(_as_plain, list(names or schema.names), schema.json(), any_text))


def _is_small(df: DataFrame) -> bool:
    """True if one task reads the rows sooner than they are dealt to several."""
    java: Any = df._jdf
    return bool(java.queryExecution().optimizedPlan().stats().sizeInBytes() <= _SMALL)


def _as_plain(
    names: Sequence[str], schema: str, any_text: bool, rows: Iterable[Any]
) -> Iterator[dict[str, Any]]:
    # The schema comes as text: a deep one is too deep for pickle.
    from pyspark.sql.types import StructType

    lighten_worker()
    return map(_struct(names, StructType.fromJson(json.loads(schema)), any_text), rows)


def typed(spark: SparkSession, paths: Sequence[str], fmt: str) -> tuple[RDD[Read], int]:
    """The records of typed files, each file by its own schema.

    Beside them 2 where a schema has a float anywhere, 1 where a double, else 0.
    """
    from pyspark.sql import functions as F

    by_schema: dict[str, tuple[StructType, list[str]]] = {}
    for same in alike(paths, fmt):
        schema = spark.read.format(fmt).load(_literal(same[0])).schema
        by_schema.setdefault(schema.json(), (schema, []))[1].extend(same)
    out = []
    for schema, same in by_schema.values():
        df = spark.read.format(fmt).schema(schema).load([_literal(path) for path in same])
        df = df.toDF(*(f"c{i}" for i in range(len(df.columns)))).withColumn("file", F.input_file_name())
        df = df.withColumn("at", F.monotonically_increasing_id())
        out.append(rows(df, [*schema.names, _FILE, _AT], any_text=True).map(_read))
    text = "".join(by_schema)
    return reduce(lambda a, b: a.union(b), out), 2 if '"float"' in text else int('"double"' in text)


def alike(paths: Sequence[str], fmt: str) -> list[list[str]]:
    """The files, those together whose heads say that Spark sees one schema: asking it is a job each time."""
    out: dict[Any, list[str]] = {}
    for path in paths:
        try:
            with opened(path) as file:
                head = _HEADS[fmt](file) if fmt in _HEADS else path
        except Exception:  # whatever is wrong with it: Spark reads it, or says why not
            head = path
        out.setdefault(head, []).append(path)
    return list(out.values())


def _parquet_head(file: IO[bytes]) -> Any:
    metadata = ParquetFile(file).metadata
    text = str(metadata.schema).partition("\n")[2]  # the first line says where it is in memory
    return text, (metadata.metadata or {}).get(b"org.apache.spark.sql.parquet.row.metadata")


def _avro_head(file: IO[bytes]) -> Any:
    from fastavro import reader

    return reader(file).metadata["avro.schema"]


_HEADS = {"parquet": _parquet_head, "avro": _avro_head}  # ORC's do not show all of Spark's types


def _read(row: dict[str, Any]) -> Read:
    file = row.pop(_FILE)
    file = unquote(file.removeprefix("file://")) if file.startswith("file:///") else file
    return Read(SourcePlace(file, row.pop(_AT)), row)


def _literal(path: str) -> str:
    """A path in which Spark finds no glob."""
    return "".join(f"\\{c}" if c in "\\*?[]{}" else c for c in path)


def _passed(type_: DataType, any_text: bool) -> DataType:
    """The type in which values pass to Python."""
    from pyspark.sql import types as T

    passed = partial(_passed, any_text=any_text)
    match type_:
        case T.TimestampType():
            return T.TimestampNTZType()
        case T.StringType() if any_text:
            return T.BinaryType()
        case T.StructType():
            return T.StructType(
                [T.StructField(f.name, passed(f.dataType), f.nullable, f.metadata) for f in type_.fields]
            )
        case T.ArrayType():
            return T.ArrayType(passed(type_.elementType), type_.containsNull)
        case T.MapType():
            return T.MapType(passed(type_.keyType), passed(type_.valueType), type_.valueContainsNull)
        case _:
            return type_


def _plain(type_: DataType, any_text: bool) -> Plain | None:
    """The function that makes values of a Spark type plain; None if they are plain already."""
    from pyspark.sql import types as T

    plain = partial(_plain, any_text=any_text)
    match type_:
        case T.StringType() if any_text:
            return lambda x: x.decode(errors="surrogateescape")
        case T.StructType():
            return _struct(type_.names, type_, any_text)
        case T.ArrayType():
            element = plain(type_.elementType)
            if element is None:
                return list
            return lambda xs: [None if x is None else element(x) for x in xs]
        case T.MapType():
            complex_ = isinstance(type_.keyType, (T.StructType, T.ArrayType))
            key, value = str if complex_ else plain(type_.keyType) or _same, plain(type_.valueType) or _same
            return lambda m: Pairs({key(k): None if x is None else value(x) for k, x in m.items()})
        case T.TimestampType():
            return lambda x: x.replace(tzinfo=UTC)
        case T.BinaryType():
            return bytes
        case T.FloatType():
            return Single
        case _ if type_.typeName() == "variant":  # a type that Spark 3.5 lacks
            return _variant
        case _:
            return None


def _struct(names: Sequence[str], type_: StructType, any_text: bool) -> Plain:
    fields = [(name, _plain(f.dataType, any_text)) for name, f in zip(names, type_.fields, strict=True)]

    def struct(row: Any) -> dict[str, Any]:
        """The row as a dict of its fields that are not null."""
        return {
            name: x if plain is None else plain(x)
            for (name, plain), x in zip(fields, row, strict=True)
            if x is not None
        }

    return struct


def _same(x: Any) -> Any:
    return x


def _variant(x: Any) -> Any:
    try:
        return parse(b'{"v": %s}' % x.toJson().encode())["v"]
    except MalformedText:
        return x.toJson()
