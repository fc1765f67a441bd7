"""Spark releases: the Java libraries of each, and the differences between them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from driftline.errors import SetupError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def java_type(jvm: Any, name: str) -> Any:
    """The Java class of a full name, such as ``org.apache.iceberg.Files``; an inner class behind a ``$``.

    ``jvm.org.apache.iceberg.Files`` is the same, and slow: py4j asks Java about each part of the name,
    which looks for such a class in every jar. A name without a class fails where the class is first used.
    """
    return _java_type(jvm._gateway_client, name)


@lru_cache(maxsize=256)
def _java_type(client: Any, name: str) -> Any:
    return _class_with_members()(name, client)


@cache
def _class_with_members() -> Any:
    """Py4j's class of classes, which remembers its members: py4j asks Java about one before each call."""
    from py4j.java_gateway import JavaClass, JavaMember  # late: many commands need no Spark

    class JavaType(JavaClass):  # type: ignore[misc]
        """A class of Java's."""

        def __getattr__(self, name: str) -> Any:
            """Return a member. Raises Py4JError if there is none."""
            member = super().__getattr__(name)
            if isinstance(member, JavaMember):
                self.__dict__[name] = member
            return member

    return JavaType


_TABLES = "org.apache.iceberg.spark.source"
# Where Spark 4 has what is no client's of Spark Connect
_CLASSIC = "org.apache.spark.sql.classic"


@dataclass(frozen=True, slots=True)
class Release:
    """A version of Spark, such as 4.1, with the Java libraries built for it.

    ``packages``: Iceberg's and those that it needs; ``kafka``: Spark's connector, and ``kafka_tokens`` what
    it needs; ``iceberg``: the version of Iceberg, which its bundles for stores have too; ``hadoop``: that of
    Spark's Hadoop, if driftline has its way to S3; ``classes``: the Java package of sessions and datasets;
    ``rewrites``: Iceberg has a table of its own for rewritten rows; ``unknown``: Iceberg's types, of those
    that others read, with one of which it reads no table.

    Of Spark's own reader of Parquet: ``widens``: it takes a narrow column, such as INT32, for a wider type;
    ``uuids``: it knows UUIDs; ``unopened``: DuckLake's types, with a column of which it opens no file;
    ``bare_structs``: it tells a null struct from one of which a file has no field
    that is asked for.
    """

    spark: str
    packages: tuple[str, ...]
    kafka: str
    kafka_tokens: str
    iceberg: str
    hadoop: str | None = None
    classes: str = _CLASSIC
    rewrites: bool = False
    widens: bool = True
    uuids: bool = True
    unopened: tuple[str, ...] = ()
    bare_structs: bool = False
    unknown: tuple[str, ...] = ()


_SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
_KAFKA = "org.apache.spark:spark-sql-kafka-0-10"
_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10"

# The one place of the versions of Java libraries. The last one is that of `pip install driftline[local]`.
RELEASES = (
    Release(
        "3.5",
        (
            "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
            # 3.5.8 is not published; it runs on that
            "org.apache.spark:spark-avro_2.12:3.5.7",
            _SQLITE,
        ),
        f"{_KAFKA}_2.12:3.5.7",
        f"{_TOKENS}_2.12:3.5.7",
        iceberg="1.12.0",
        classes="org.apache.spark.sql",
        widens=False,
        uuids=False,
        unopened=("variant", "geometry"),
        unknown=("variant", "geometry", "geography"),
    ),
    Release(
        "4.0",
        (
            "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",  # the last one for Spark 4.0
            "org.apache.spark:spark-avro_2.13:4.0.1",
            _SQLITE,
        ),
        f"{_KAFKA}_2.13:4.0.0",
        f"{_TOKENS}_2.13:4.0.0",
        iceberg="1.11.0",
        unopened=("variant", "geometry"),
        unknown=("geometry", "geography"),
    ),
    Release(
        "4.1",
        (
            "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
            # The last one published; it runs on 4.1.3
            "org.apache.spark:spark-avro_2.13:4.1.1",
            _SQLITE,
        ),
        f"{_KAFKA}_2.13:4.1.3",
        # Published up to 4.0.0 only; the connector works with that one.
        f"{_TOKENS}_2.13:4.0.0",
        iceberg="1.12.0",
        hadoop="3.4.2",
        rewrites=True,
        bare_structs=True,
    ),
)
NEWEST = RELEASES[-1]
_KNOWN = ", ".join(release.spark for release in RELEASES[:-1]) + f" and {NEWEST.spark}"


def release_of(spark_version: str) -> Release:
    """The release that a version of Spark belongs to. Raises SetupError for an unknown one.

    >>> release_of("3.5.8").iceberg
    '1.12.0'
    """
    for release in RELEASES:
        if spark_version.startswith(f"{release.spark}."):
            return release
    raise SetupError(
        f"Spark {spark_version} is not supported: driftline runs on Spark {_KNOWN}",
        hint="pip install 'driftline[local]'",
    )


def installed_release() -> Release:
    """The release of the installed pyspark; the newest one without pyspark, or with an unknown one."""
    from importlib.metadata import PackageNotFoundError, version  # late: the command line starts without it

    try:
        return release_of(version("pyspark"))
    except (PackageNotFoundError, SetupError):
        return NEWEST


@cache
def _running_release() -> Release:
    """The release of the pyspark of this process: a session's own version costs a call to Java."""
    pyspark = sys.modules.get("pyspark")
    return installed_release() if pyspark is None else release_of(pyspark.__version__)


def unknown_types() -> tuple[str, ...]:
    """Iceberg's types, of those that other releases know, with one of which this one reads no table."""
    return _running_release().unknown


def has_variants() -> bool:
    """True if the Spark of this process has values of a VARIANT."""
    return "variant" not in unknown_types()


def widens() -> bool:
    """True if the Spark of this process reads a narrow column of Parquet as a wider type."""
    return _running_release().widens


def reads_uuids() -> bool:
    """True if the Spark of this process reads Parquet's UUIDs."""
    return _running_release().uuids


def unopened_types() -> tuple[str, ...]:
    """DuckLake's types, with a column of which the Spark of this process opens no file of Parquet."""
    return _running_release().unopened


def reads_bare_structs() -> bool:
    """True if this process's Spark distinguishes a null struct from one without any requested field."""
    return _running_release().bare_structs


def quiet_errors() -> None:
    """Keep pyspark from printing each error as JSON, besides raising it. Spark 3.5 prints none."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        return
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel("CRITICAL")


def set_active(spark: SparkSession) -> None:
    """Make the session this thread's active one."""
    java_type(spark._jvm, f"{_running_release().classes}.SparkSession").setActiveSession(spark._jsparkSession)


def rows_of(spark: SparkSession, session: Any, plan: Any) -> Any:
    """The Java dataset of a logical plan in a Java session; a plan that writes has been run then."""
    return java_type(spark._jvm, f"{_running_release().classes}.Dataset").ofRows(session, plan)


def settings_of(spark: SparkSession) -> Any:
    """All settings of a session, as a Java map."""
    session: Any = spark._jsparkSession
    return java_type(spark._jvm, "scala.collection.JavaConverters").mapAsJavaMap(session.conf().getAll())


def as_arrow(frame: DataFrame) -> pa.Table:
    """The few rows of a frame in Arrow, as ``toArrow`` of Spark 4 has them."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    private: Any = frame
    batches = private._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else to_arrow_schema(frame.schema).empty_table()


def from_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows of a table in Arrow as a frame, as ``createDataFrame`` of Spark 4 has them."""
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import from_arrow_schema

    if hasattr(DataFrame, "toArrow"):
        any_session: Any = spark
        frame: DataFrame = any_session.createDataFrame(table)
        return frame

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    packed = spark.createDataFrame([(bytearray(sink.getvalue()),)], "packed binary")
    return packed.mapInArrow(_unpacked, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the batches that the one cell of each row holds, in Arrow's own stream."""
    import pyarrow as pa

    for batch in batches:
        for cell in batch.column(0):
            yield from pa.ipc.open_stream(cell.as_buffer())


def spark_table(spark: SparkSession, table: Any) -> Any:
    """Iceberg's Java table as Spark reads and writes it."""
    kind = java_type(spark._jvm, f"{_TABLES}.SparkTable")
    return kind(table) if _running_release().rewrites else kind(table, False)


def rewritten_table(spark: SparkSession, table: Any, group: str) -> tuple[Any, Mapping[str, str]]:
    """The Java table as one that takes rows with their ids, as a ``group`` of rewritten files; and the
    options to write with.
    """
    if _running_release().rewrites:
        return java_type(spark._jvm, f"{_TABLES}.SparkRewriteTable")(table, group), {}
    no_snapshot, kind = None, java_type(spark._jvm, f"{_TABLES}.SparkTable")
    return kind(table, no_snapshot, False, True), {"rewritten-file-scan-task-set-id": group}


# From which seconds since 1970 on, and by how many seconds
Shifts = tuple[tuple[int, ...], tuple[int, ...]]
_TABLE = "julian-gregorian-rebase-micros.json"


@cache
def julian_shifts() -> Mapping[str, Shifts]:
    """For each time zone the seconds to add to a moment that was counted by the old calendar: from the year 1
    on. Raises SetupError where Spark's jars are not there.
    """
    from pyspark.find_spark_home import _find_spark_home

    jars = Path(_find_spark_home(), "jars")
    for jar in sorted(jars.glob("spark-*.jar")):
        with ZipFile(jar) as archive:
            if _TABLE in archive.namelist():
                rows: Any = json.loads(archive.read(_TABLE))
                return {row["tz"]: (tuple(row["switches"]), tuple(row["diffs"])) for row in rows}
    raise SetupError(
        f"{jars}: no jar has Spark's table of calendars, {_TABLE}",
        hint="set SPARK_HOME to a Spark installation with its jars",
    )
