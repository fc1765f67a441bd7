"""DataFrame rows in plain Python: structs as dicts without nulls, instants in UTC."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC
from functools import partial, reduce
from itertools import repeat
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from driftline.runtime.daemon import lighten_worker
from driftline.runtime.spark_conf import CASE, configured, runs_here
from driftline.runtime.spark_version import as_arrow
from driftline.verify.expected import MOST_LEVELS
from driftline.verify.files import Read, SourcePlace, opened
from driftline.verify.json_texts import MalformedText, parse
from driftline.verify.typed_files import values_of
from driftline.verify.values import Pairs, Single

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

T = TypeVar("T")
Plain = Callable[[Any], Any]
_Batches: TypeAlias = "Iterable[pa.RecordBatch]"
_ROWS = 1_000  # in a batch of packed ones
_SMALL = 2**18  # bytes, as Spark estimates
_FILE, _AT = "\0file", "\0at"  # no column has such a name
_FEW_ROWS = 10_000  # of a table whose rows are read at once, too


@dataclass(frozen=True, slots=True)
class SparkTasks:
    """The tasks of a Spark session."""

    spark: SparkSession

    @property
    def cores(self) -> int:
        """The number of tasks that run at a time."""
        return self.spark.sparkContext.defaultParallelism

    @property
    def run_here(self) -> bool:
        """True if the tasks run on this machine, which has the files then."""
        return runs_here(self.spark.sparkContext)

    def session(self) -> AbstractContextManager[None]:
        """The settings of the session under which rows are read."""
        return configured(self.spark, {"spark.sql.session.timeZone": "UTC", CASE: "true"})

    def parallelize(self, items: Sequence[T]) -> RDD[T]:
        """The items, each a task's."""
        return self.spark.sparkContext.parallelize(items, max(1, len(items)))

    def typed(self, paths: Sequence[str], fmt: str) -> tuple[RDD[Read], int]:
        """The records of typed files, as `typed` has them."""
        return typed(self.spark, paths, fmt)

    def rows(self, stored: str | DataFrame) -> FrameRows:
        """The rows of a table, by its name or as a frame."""
        return FrameRows(self.frame(stored))

    def quarantined(self, quarantine: str | DataFrame, unmet: str) -> RDD[tuple[bytes, bool]]:
        """The raw bytes of each quarantined record, flagged if its reason begins with ``unmet``, a text."""
        return self.raw(quarantine, unmet).rdd.map(lambda row: (bytes(row[0] or b""), row[1]))

    def raw(self, quarantine: str | DataFrame, unmet: str) -> DataFrame:
        """A frame of raw bytes, which may be null, and flags, as `quarantined` has them."""
        from pyspark.sql import functions as F

        raw = F.coalesce("raw_bytes", F.col("raw").cast("binary"))
        flag = F.coalesce(F.col("reason").startswith(unmet), F.lit(False)) if unmet else F.lit(False)
        return self.frame(quarantine).select(raw.alias("raw"), flag.alias("unmet"))

    def few(self, frame: DataFrame) -> pa.Table | None:
        """All rows of a frame, by numbered columns; None if they are many, or if Arrow does not take them."""
        frame = _numbered(frame)
        # Rows without columns have no number in Arrow.
        if not frame.columns or _is_too_deep(frame.schema) or not _is_small(frame):
            return None
        # A file of few bytes may have many rows.
        fetched = as_arrow(frame.limit(_FEW_ROWS + 1))
        return fetched if len(fetched) <= _FEW_ROWS else None

    @contextmanager
    def kept(self, dataset: RDD[T]) -> Iterator[RDD[T]]:
        """The dataset, to be read several times."""
        from pyspark import StorageLevel

        dataset.persist(StorageLevel.DISK_ONLY)
        try:
            yield dataset
        finally:
            dataset.unpersist()

    def frame(self, stored: str | DataFrame) -> DataFrame:
        """A table, by its name or as a frame."""
        return self.spark.table(stored) if isinstance(stored, str) else stored


@dataclass(frozen=True, slots=True)
class FrameRows:
    """The rows of a DataFrame, of which tasks read some each."""

    frame: DataFrame

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self.frame.columns

    def records(self, chosen: Callable[[_Batches], _Batches] | None = None) -> RDD[dict[str, Any]]:
        """The rows in plain Python, as `rows` has them."""
        return rows(self.frame, chosen=chosen)

    def pieces(
        self, pieces: Callable[[_Batches], Iterator[pa.RecordBatch]], present: Collection[int]
    ) -> Iterator[pa.RecordBatch]:
        """Apply ``pieces`` to the rows, to all at once if they are few, else in tasks.

        ``present``: the places of columns of which only what is null counts.
        """
        # One row more than fits shows whether the table is small, without a count of its rows.
        first = as_arrow(self._plain(present).limit(_FEW_ROWS + 1))
        if len(first) <= _FEW_ROWS:
            return pieces(first.combine_chunks().to_batches())
        return iter(as_arrow(self._in_arrow(pieces, present)).to_batches())

    def pieces_in_tasks(
        self, pieces: Callable[[_Batches], Iterator[pa.RecordBatch]], present: Collection[int]
    ) -> RDD[Any]:
        """Apply ``pieces`` to the rows in tasks."""
        return self._in_arrow(pieces, present).rdd

    def _in_arrow(
        self, pieces: Callable[[_Batches], Iterator[pa.RecordBatch]], present: Collection[int]
    ) -> DataFrame:
        return self._plain(present).mapInArrow(pieces, "bucket int, keys binary, others bigint")

    def _plain(self, present: Collection[int]) -> DataFrame:
        """The rows; of a column that counts as null or not Arrow gets no more than that."""
        from pyspark.sql import functions as F

        df = _numbered(self.frame)
        return df.select(
            *(F.when(F.col(name).isNotNull(), True).alias(name) if i in present else name
              for i, name in enumerate(df.columns))
        )  # fmt: skip


def rows(
    df: DataFrame, names: Sequence[str] | None = None, chosen: Callable[[_Batches], _Batches] | None = None
) -> RDD[dict[str, Any]]:
    """The rows, by the columns' names or by these. The session's time zone must be UTC while this is called.

    Args:
        chosen: filters the rows' batches in tasks; only for columns that Arrow takes.
    """
    schema = df.schema
    df = _numbered(df)
    cores = df.sparkSession.sparkContext.defaultParallelism
    # A table in a few large files would keep most cores idle; of a small one the shuffle takes longer.
    if df.rdd.getNumPartitions() < cores and not _is_small(df):
        df = df.repartition(cores)
    columns = list(names or schema.names)
    if _is_too_deep(schema):
        return _unpacked(df, columns)
    # Spark's own road from rows to Python parses the schema again for each few rows, and knows no date beyond
    # Python's years.
    return df.mapInArrow(partial(_packed, columns, chosen), "row binary").rdd.map(_loaded)


def _packed(
    names: Sequence[str], chosen: Callable[[_Batches], _Batches] | None, batches: _Batches
) -> _Batches:
    lighten_worker()
    for batch in batches if chosen is None else chosen(batches):
        packed = [*map(pickle.dumps, plain_rows(names, batch))]
        for start in range(0, len(packed), _ROWS):
            yield pa.RecordBatch.from_pydict({"row": pa.array(packed[start : start + _ROWS], pa.binary())})


def plain_rows(names: Sequence[str], batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch, by these names of its columns."""
    records = zip(*map(values_of, batch.columns), strict=True) if names else repeat((), batch.num_rows)
    for record in records:
        yield {name: x for name, x in zip(names, record, strict=True) if x is not None}


def _loaded(row: Any) -> Any:
    return pickle.loads(row[0])  # noqa: S301  our own bytes


def _numbered(df: DataFrame) -> DataFrame:
    """The frame with numbers for names, which may hold anything."""
    return df.toDF(*(f"c{i}" for i in range(len(df.columns))))


def _is_too_deep(schema: StructType) -> bool:
    """True if Arrow does not take a column."""
    return any(_levels(f.dataType) > MOST_LEVELS for f in schema.fields)


def _levels(type_: DataType) -> int:
    """The depth of a type; more than Arrow takes if a variant is in it."""
    from pyspark.sql import types as T

    match type_:
        case T.StructType():
            return 1 + max((_levels(f.dataType) for f in type_.fields), default=0)
        case T.ArrayType():
            return 1 + _levels(type_.elementType)
        case T.MapType():
            return 2 + max(_levels(type_.keyType), _levels(type_.valueType))
    return MOST_LEVELS + 1 if type_.typeName() == "variant" else 1  # a type that Spark 3.5 lacks


def _unpacked(df: DataFrame, names: Sequence[str]) -> RDD[dict[str, Any]]:
    """Rows with a column that Arrow does not take."""
    from pyspark.sql import functions as F

    schema = df.schema
    # An instant without its zone passes through Python without the time zone of the machine.
    df = df.select(*(F.col(f.name).cast(_passed(f.dataType)).alias(f.name) for f in schema.fields))
    return df.rdd.mapPartitions(partial(_as_plain, names, schema.json()))


def _is_small(df: DataFrame) -> bool:
    """True if one task reads the rows sooner than they are dealt to several."""
    java: Any = df._jdf
    return bool(java.queryExecution().optimizedPlan().stats().sizeInBytes() <= _SMALL)


def _as_plain(names: Sequence[str], schema: str, rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    # The schema comes as text: a deep one is too deep for pickle.
    from pyspark.sql.types import StructType

    lighten_worker()
    return map(_struct(names, StructType.fromJson(json.loads(schema))), rows)


def typed(spark: SparkSession, paths: Sequence[str], fmt: str) -> tuple[RDD[Read], int]:
    """The records of typed files, each file by its own schema.

    With them comes 2 where a schema has a float anywhere, 1 where a double, else 0.
    """
    from pyspark.sql import functions as F

    by_schema: dict[str, tuple[StructType, list[str]]] = {}
    for same in alike(paths, fmt):
        schema = spark.read.format(fmt).load(_literal(same[0])).schema
        by_schema.setdefault(schema.json(), (schema, []))[1].extend(same)
    out = []
    for schema, same in by_schema.values():
        df = spark.read.format(fmt).schema(schema).load([_literal(path) for path in same])
        # With numbered names first: a file may have a column `file` or `at` of its own.
        df = _numbered(df).withColumn("file", F.input_file_name())
        df = df.withColumn("at", F.monotonically_increasing_id())
        out.append(rows(df, [*schema.names, _FILE, _AT]).map(_read))
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


def _passed(type_: DataType) -> DataType:
    """The type in which values pass to Python."""
    from pyspark.sql import types as T

    match type_:
        case T.TimestampType():
            return T.TimestampNTZType()
        case T.StructType():
            return T.StructType(
                [T.StructField(f.name, _passed(f.dataType), f.nullable, f.metadata) for f in type_.fields]
            )
        case T.ArrayType():
            return T.ArrayType(_passed(type_.elementType), type_.containsNull)
        case T.MapType():
            return T.MapType(_passed(type_.keyType), _passed(type_.valueType), type_.valueContainsNull)
        case _:
            return type_


def _plain(type_: DataType) -> Plain | None:
    """The function that makes values of a Spark type plain; None if they are plain already."""
    from pyspark.sql import types as T

    match type_:
        case T.StructType():
            return _struct(type_.names, type_)
        case T.ArrayType():
            element = _plain(type_.elementType)
            if element is None:
                return list
            return lambda xs: [None if x is None else element(x) for x in xs]
        case T.MapType():
            complex_ = isinstance(type_.keyType, (T.StructType, T.ArrayType))
            key, value = str if complex_ else _plain(type_.keyType) or _same, _plain(type_.valueType) or _same
            return lambda m: Pairs({key(k): None if x is None else value(x) for k, x in m.items()})
        case T.TimestampType():
            # Passed as a timestamp without a zone, in the session's time zone, which is UTC.
            return lambda x: x.replace(tzinfo=UTC)
        case T.BinaryType():
            return bytes
        case T.FloatType():
            return Single
        case _ if type_.typeName() == "variant":  # a type that Spark 3.5 lacks
            return _variant
        case _:
            return None


def _struct(names: Sequence[str], type_: StructType) -> Plain:
    fields = [(name, _plain(f.dataType)) for name, f in zip(names, type_.fields, strict=True)]

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
