"""Data files that tasks write for Iceberg: as its own writer would have written them, or by that."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.java_gateway import JavaMember
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from driftline import Lake, Table
from driftline.convert import arrow_schema
from driftline.core.schema.types import Primitive, Schema
from driftline.formats.ducklake import transaction as ducklake_transaction
from driftline.formats.iceberg import transaction as iceberg_transaction
from driftline.formats.iceberg.files import data_file, modes_of
from driftline.formats.iceberg.gateway import items, text_map
from driftline.formats.leftovers import bare
from driftline.runtime.spark_conf import configured
from driftline.runtime.spark_version import as_arrow, installed_release
from driftline.write import WRITTEN, FilePlan, FileSettings, NewFile, Reported, SetAside, write_files
from lake.formats import database, declare, written

COLUMNS = """id bigint, i int, b boolean, f float, d double, s string, bin binary, dt date, ts timestamp, tn timestamp_ntz,
    d9 decimal(9,2), d18 decimal(18,4), d38 decimal(38,18), st struct<a: int, t: string, l: array<int>, n: struct<z: double>>,
    l array<struct<x: int, y: string>>, m map<string, struct<k: double>>, whole string, nothing float"""
NAMES = "id, i, b, f, d, s, bin, dt, ts, tn, d9, d18, d38, st, l, m, whole, nothing"
MODES = {"whole": "full", "st.t": "counts", "i": "none"}
ROWS = """(1, 2, true, float('nan'), -0.0d, repeat('é', 30), X'ffffffffffffffffffffffffffffffffff', date'2024-01-02',
      timestamp'2024-01-02 03:04:05Z', timestamp_ntz'2024-01-02 03:04:05', 1.25, 2.5, -3.000000000000000001,
      named_struct('a', 1, 't', 'x', 'l', array(1, null), 'n', named_struct('z', 1.5d)),
      array(named_struct('x', 1, 'y', 'q')), map('k', named_struct('k', 2d)), repeat('x', 40), null),
    (null, null, null, 1.5f, 0.0d, 'a', X'00', null, null, null, null, null, null, null, null, null, 'b', null),
    (5, 7, false, -2f, 3d, 'zzzzzzzzzzzzzzzz\U0010ffffq', X'01ff', date'1969-01-02', timestamp'1900-01-02 03:04:05.123456Z',
      timestamp_ntz'0001-01-02 03:04:05', -1.25, 0, 12345678901234567890.5,
      named_struct('a', null, 't', null, 'l', null, 'n', null), array(), map(), null, null)"""


@pytest.mark.skipif(
    installed_release().iceberg == "1.11.0", reason="Iceberg 1.11 counts no nulls of a double inside a struct"
)
@pytest.mark.iceberg_only("of what Iceberg's own writer does")
def test_metrics_are_those_of_icebergs_own_writer(lake: Lake, spark: SparkSession, table_name: str) -> None:
    modes = ", ".join(
        f"'write.metadata.metrics.column.{column}' = '{mode}'" for column, mode in MODES.items()
    )
    lake.sql("create namespace if not exists lake.t")
    lake.sql(f"create table lake.{table_name} ({COLUMNS}) using iceberg tblproperties ({modes})")
    spark.sql(f"select /*+ coalesce(1) */ * from values {ROWS}").toDF(
        *spark.table(f"lake.{table_name}").columns
    ).coalesce(1).writeTo(f"lake.{table_name}").append()
    table = lake.table(table_name).format.handle
    java, schema, jvm = table.java(), table.load().schema, spark._jvm
    (theirs,) = items(java.currentSnapshot().addedDataFiles(java.io()))
    original = Path(bare(str(theirs.location())))
    path = original.with_stem(f"{original.stem}-other")
    rows = pa.Table.from_pylist(pq.read_table(original).to_pylist(), schema=arrow_schema(schema.struct))
    plan = FilePlan(
        schema, modes_of(jvm, java, schema, text_map(jvm, java.properties())), FileSettings(), 2**30
    )
    (file,) = write_files(
        rows.to_batches(), plan, lambda _: NewFile(str(path), pa.OSFile(str(path), "wb"), path.unlink)
    )
    ours = data_file(jvm, java.spec(), file)
    wanted, got = (told(jvm, java, one) for one in (theirs, ours))
    assert wanted["column-sizes"].keys() == got["column-sizes"].keys()
    for apart in ("file-path", "file-size-in-bytes", "column-sizes"):
        del wanted[apart], got[apart]
    assert got == wanted
    java.newAppend().appendFile(ours).commit()
    spark.catalog.refreshTable(f"lake.{table_name}")
    assert spark.sql(f"select * from lake.{table_name}").count() == 6
    assert spark.sql(f"select distinct id, s, m['k'], st from lake.{table_name}").count() == 3


@pytest.mark.iceberg_only("Iceberg's settings of metrics")
@pytest.mark.parametrize("default", ["", ", 'write.metadata.metrics.default' = 'counts'"])
def test_modes_of_wide_table_are_those_that_java_gives_each_column(
    lake: Lake, spark: SparkSession, table_name: str, monkeypatch: pytest.MonkeyPatch, default: str
) -> None:
    columns = ", ".join(f"`c, {i}=` bigint" for i in range(120))
    modes = f"'write.metadata.metrics.column.st.t' = 'full'{default}"
    lake.sql("create namespace if not exists lake.t")
    lake.sql(
        f"create table lake.{table_name} ({columns}, st struct<a: int, t: string>) using iceberg "
        f"tblproperties ({modes})"
    )
    table = lake.table(table_name).format.handle
    java, schema, jvm = table.java(), table.load().schema, spark._jvm
    config = jvm.org.apache.iceberg.MetricsConfig.forTable(java)
    wanted = {
        f.id: config.columnMode(".".join(path)).toString()
        for path, f in schema.walk()
        if isinstance(f.type, Primitive)
    }
    properties, calls = text_map(jvm, java.properties()), []
    called = JavaMember.__call__
    monkeypatch.setattr(JavaMember, "__call__", lambda *args: (calls.append(args), called(*args))[1])

    assert modes_of(jvm, java, schema, properties) == wanted
    assert len(set(wanted.values())) > 1
    assert len(calls) < 40


def told(jvm: Any, java: Any, file: Any) -> dict[str, Any]:
    """A data file as Iceberg writes it, its maps by id."""
    found = json.loads(jvm.org.apache.iceberg.ContentFileParser.toJson(file, java.spec()))
    return {
        key: dict(zip(value["keys"], value["values"], strict=True)) if isinstance(value, dict) else value
        for key, value in found.items()
    }


# Python workers have not the folder in which the tests' own modules lie.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class Tasks:
    """Two tasks with some rows each; ``broken``: the second one fails after its first rows."""

    schema: Schema
    broken: bool = False

    def rows(self, task: int, _: SetAside) -> Generator[pa.RecordBatch, None, Reported[None]]:
        types = arrow_schema(self.schema.struct)
        for i in range(3):
            yield pa.RecordBatch.from_pylist([{"a": 10 * task + i, "b": "x"}], schema=types)
            if task and self.broken:
                raise ValueError("no more rows")
        return Reported(None)


ROWS_OF_TASKS = [(a, "x") for a in (0, 1, 2, 10, 11, 12)]


def rows_in(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.read().select("a", "b").collect())


def files_of(lake: Lake, table: Table) -> set[Path]:
    """All files in the table's folder, whosoever they are."""
    place = database(lake).data if database(lake) else str(table.format.handle.java().location())
    folder = Path(place.removeprefix("file:"), *(table.name.split(".") if database(lake) else ()))
    return {file for file in folder.rglob("*") if file.is_file() and "metadata" not in file.parts}


@pytest.fixture
def by_tasks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own writer has no part in it."""
    for module in (iceberg_transaction, ducklake_transaction):
        monkeypatch.setattr(module, "staged", lambda *_: None)


@pytest.mark.nightly
@pytest.mark.usefixtures("by_tasks_alone")
def test_tasks_write_files(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    declare(table, "a bigint, b string")
    for batch in (1, 2):
        transaction = table.format.transaction(table.format.load())
        assert (
            written(
                SparkSession.active(), transaction, Tasks(transaction.schema), {"driftline.batch": str(batch)}
            )
            == 6
        )
        transaction.commit()
        assert len(files_of(lake, table)) == 2 * batch
    assert rows_in(table) == sorted(ROWS_OF_TASKS * 2)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("layout", "files"),
    [
        ("", {"parquet"}),
        ("partitioned by (b)", {"parquet"}),
        ("tblproperties ('write.format.default' = 'orc')", {"orc"}),
        ("tblproperties ('write.parquet.bloom-filter-enabled.column.a' = 'true')", {"parquet"}),
        ("tblproperties ('write.object-storage.enabled' = 'true')", {"parquet"}),
    ],
    ids=["plain", "partitioned", "orc", "bloom filter", "object storage"],
)
@pytest.mark.iceberg_only("of what Iceberg's own writer does")
def test_each_table_gets_its_rows(lake: Lake, table_name: str, layout: str, files: set[str]) -> None:
    lake.sql("create namespace if not exists lake.t")
    lake.sql(f"create table lake.{table_name} (a bigint, b string) using iceberg {layout}")
    table = lake.table(table_name)
    transaction = table.format.transaction(table.format.load())
    assert (
        written(SparkSession.active(), transaction, Tasks(transaction.schema), {"driftline.batch": "one"})
        == 6
    )
    transaction.commit()
    assert rows_in(table) == ROWS_OF_TASKS
    kinds = lake.sql(f"select distinct lower(file_format) from lake.{table_name}.files").collect()
    assert {row[0] for row in kinds} == files
    (summary,) = lake.sql(f"select summary from lake.{table_name}.snapshots").head()
    assert summary["driftline.batch"] == "one"
    assert summary["added-records"] == "6"


SPECS = [
    "id",
    "s, b",
    "dt",
    "ts",
    "tn",
    "d9, d38",
    "bin",
    "years(ts), bucket(5, s)",
    "months(tn), truncate(4, s)",
    "days(ts)",
    "hours(ts), truncate(10, d9)",
    "days(dt), bucket(3, d38)",
    "truncate(3, i), st.a",
]


@dataclass(frozen=True)
class TypedTasks:
    """Two tasks, each with some rows of all types."""

    rows_of: tuple[pa.Table, pa.Table]

    def rows(self, task: int, _: SetAside) -> Generator[pa.RecordBatch, None, Reported[None]]:
        yield from self.rows_of[task].to_batches()
        return Reported(None)


def typed_rows(spark: SparkSession, table: str) -> DataFrame:
    """Rows of all types, as the empty table has them, in one partition of Spark's."""
    empty = spark.table(table)
    return empty.union(spark.sql(f"select * from values {ROWS}").toDF(*empty.columns)).coalesce(1)


@pytest.mark.usefixtures("by_tasks_alone")
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.iceberg_only("of what Iceberg's own writer does")
def test_partitions_are_those_of_icebergs_own_writer(
    lake: Lake, spark: SparkSession, table_name: str, spec: str
) -> None:
    lake.sql("create namespace if not exists lake.t")
    for name in ("theirs", "ours"):
        lake.sql(f"create table lake.{table_name}_{name} ({COLUMNS}) using iceberg partitioned by ({spec})")
    typed = typed_rows(spark, f"lake.{table_name}_ours")
    typed.writeTo(f"lake.{table_name}_theirs").append()
    typed.writeTo(f"lake.{table_name}_theirs").append()
    table = lake.table(f"{table_name}_ours")
    transaction = table.format.transaction(table.format.load())
    schema = arrow_schema(transaction.schema.struct)
    rows = pa.Table.from_pylist(as_arrow(typed).to_pylist(), schema=schema)
    assert written(SparkSession.active(), transaction, TypedTasks((rows, rows))) == 6
    transaction.commit()
    theirs, ours = (
        sorted(
            (row.place, row.partition, row.id)
            for row in lake.sql(
                f"select id, regexp_extract(_file, '/data/(.*/)', 1) place, cast(_partition as string) partition "
                f"from lake.{table_name}_{name}"
            ).collect()
        )
        for name in ("theirs", "ours")
    )
    assert ours == theirs
    for value in (1, 5):
        assert lake.sql(f"select * from lake.{table_name}_ours where id = {value}").count() == 2


@pytest.mark.usefixtures("by_tasks_alone")
@pytest.mark.parametrize(
    "order", ["f desc nulls last, id", "truncate(2, s) asc nulls first, dt desc", "bucket(4, id), tn"]
)
@pytest.mark.parametrize("spec", ["", "partitioned by (bucket(2, id))"])
@pytest.mark.iceberg_only("of what Iceberg's own writer does")
def test_files_are_sorted_as_by_icebergs_own_writer(
    lake: Lake, spark: SparkSession, table_name: str, order: str, spec: str
) -> None:
    lake.sql("create namespace if not exists lake.t")
    for name in ("theirs", "ours"):
        lake.sql(f"create table lake.{table_name}_{name} ({COLUMNS}) using iceberg {spec}")
        lake.sql(f"alter table lake.{table_name}_{name} write ordered by {order}")
    typed = typed_rows(spark, f"lake.{table_name}_ours")
    typed.writeTo(f"lake.{table_name}_theirs").append()
    table = lake.table(f"{table_name}_ours")
    transaction = table.format.transaction(table.format.load())
    rows = pa.Table.from_pylist(as_arrow(typed).to_pylist(), schema=arrow_schema(transaction.schema.struct))
    written(SparkSession.active(), transaction, TypedTasks((rows.slice(0, 2), rows.slice(2))))
    transaction.commit()
    theirs, ours = (
        sorted(
            (
                str(row.partition) if spec else "",
                row.sort_order_id,
                pq.read_table(row.file_path, columns=["id"])["id"].to_pylist(),
            )
            for row in lake.sql(f"select * from lake.{table_name}_{name}.files").collect()
        )
        for name in ("theirs", "ours")
    )
    assert ours == theirs


DUCKLAKE_SPECS = [
    "s, b",
    "dt, i",
    "d9, d38",
    "year(ts), month(ts), day(ts), hour(ts)",
    "year(dt), bucket(5, s), bucket(3, id)",
    "bucket(7, ts), month(tn)",
]


@pytest.mark.nightly
@pytest.mark.parametrize("spec", DUCKLAKE_SPECS)
def test_partitions_are_those_of_sparks_writer_in_ducklake(
    ducklake: Lake, spark: SparkSession, table_name: str, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    flat = COLUMNS.partition("st struct")[0] + "whole string"
    columns = "id, i, b, f, d, s, bin, dt, ts, tn, d9, d18, d38, whole"
    typed = spark.sql(f"select {columns} from values {ROWS} as r ({NAMES})").coalesce(1)
    found = []
    for name in ("theirs", "ours"):
        table = ducklake.table(f"{table_name}_{name}")
        declare(table, flat)
        ducklake.alter(
            f"ALTER TABLE {table.name} SET PARTITIONED BY ({spec}); ALTER TABLE {table.name} SET SORTED BY (id DESC)"
        )
        transaction = table.format.transaction(table.format.load())
        if name == "theirs":
            transaction.append(typed, {})
        else:
            monkeypatch.setattr(ducklake_transaction, "staged", lambda *_: None)
            schema = arrow_schema(transaction.schema.struct)
            batch = pa.Table.from_pylist(as_arrow(typed).to_pylist(), schema=schema)
            assert written(SparkSession.active(), transaction, TypedTasks((batch, batch.slice(3)))) == 3
        transaction.commit()
        found.append(placed_in_ducklake(ducklake, table))
        assert sorted(map(str, table.read().select("id", "s", "d38").collect())) == sorted(
            map(str, typed.select("id", "s", "d38").collect())
        )
    assert found[0] == found[1]


def placed_in_ducklake(lake: Lake, table: Table) -> list[tuple[Any, ...]]:
    """For each file of the table its folder, its rows and its partition values."""
    known = table.format.load().table.id
    return sorted(
        (Path(path).parent.as_posix(), rows, values)
        for path, rows, values in database(lake).read(
            lambda c: c.rows(
                "SELECT any_value(f.path), any_value(f.record_count), "
                "string_agg(coalesce(v.partition_value, 'none'), ';' ORDER BY v.partition_key_index) "
                "FROM meta.ducklake_data_file f JOIN meta.ducklake_file_partition_value v USING (data_file_id) "
                "WHERE f.table_id = ? GROUP BY f.data_file_id",
                [known],
            )
        )
    )


@pytest.fixture
def session(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets a setting of the session for as long as the test runs."""
    with ExitStack() as stack:
        yield lambda key, value: stack.enter_context(configured(spark, {key: value}))


@pytest.mark.usefixtures("by_tasks_alone")
@pytest.mark.iceberg_only("of what Iceberg's own writer does")
def test_settings_of_the_session_come_before_those_of_the_table(
    lake: Lake, table_name: str, session: Callable[[str, str], None]
) -> None:
    lake.sql("create namespace if not exists lake.t")
    lake.sql(
        f"create table lake.{table_name} (a bigint, b string) using iceberg "
        "tblproperties ('write.parquet.compression-codec' = 'gzip')"
    )
    session("spark.sql.iceberg.compression-codec", "snappy")
    session("spark.sql.iceberg.snapshot-property.owner", "session")
    session("spark.sql.iceberg.snapshot-property.driftline.batch", "session")
    table = lake.table(table_name)
    transaction = table.format.transaction(table.format.load())
    written(SparkSession.active(), transaction, Tasks(transaction.schema), {"driftline.batch": "one"})
    transaction.commit()
    codecs = {pq.read_metadata(file).row_group(0).column(0).compression for file in files_of(lake, table)}
    assert codecs == {"SNAPPY"}
    (summary,) = lake.sql(f"select summary from lake.{table_name}.snapshots").head()
    assert (summary["owner"], summary["driftline.batch"]) == ("session", "one")
    assert summary["spark.app.id"] == lake.spark.sparkContext.applicationId


@pytest.mark.iceberg_only("of what Iceberg's own writer does")
def test_metadata_of_the_commit_are_in_the_snapshot(lake: Lake, spark: SparkSession, table_name: str) -> None:
    jvm: Any = spark._jvm
    held = jvm.java.lang.Class.forName("org.apache.iceberg.spark.CommitMetadata").getDeclaredField(
        "COMMIT_PROPERTIES"
    )
    held.setAccessible(True)
    table = lake.table(table_name)
    declare(table, "a bigint, b string")
    transaction = table.format.transaction(table.format.load())
    properties = jvm.java.util.HashMap()
    properties.put("reviewed", "yes")
    held.get(None).set(jvm.java.util.Collections.unmodifiableMap(properties))
    try:
        written(SparkSession.active(), transaction, Tasks(transaction.schema))
    finally:
        held.get(None).remove()
    transaction.commit()
    (summary,) = lake.sql(f"select summary from lake.{table_name}.snapshots").head()
    assert summary["reviewed"] == "yes"


@pytest.mark.usefixtures("by_tasks_alone")
@pytest.mark.parametrize(
    "properties",
    [
        {"write.object-storage.enabled": "true"},
        {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"},
        {"write.data.path": "elsewhere"},
    ],
    ids=["object storage", "object storage without partitions", "a path of its own"],
)
@pytest.mark.iceberg_only("of what Iceberg's own writer does")
def test_files_lie_where_the_location_provider_says(
    lake: Lake, table_name: str, tmp_path: Path, properties: dict[str, str]
) -> None:
    lake.sql("create namespace if not exists lake.t")
    if "write.data.path" in properties:
        properties = {"write.data.path": f"file:{tmp_path}/elsewhere with ü"}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    lake.sql(
        f"create table lake.{table_name} (a bigint, b string) using iceberg partitioned by (b) tblproperties ({listed})"
    )
    table = lake.table(table_name)
    transaction = table.format.transaction(table.format.load())
    written(SparkSession.active(), transaction, Tasks(transaction.schema))
    transaction.commit()
    assert rows_in(table) == ROWS_OF_TASKS
    java = table.format.handle.java()
    (file,) = items(java.currentSnapshot().addedDataFiles(java.io()))
    path = str(file.location())
    written_name = WRITTEN.search(path)
    assert written_name
    name = path[written_name.start(2) :]  # Behind Iceberg's hash, which may end in zeros itself.
    assert path == java.locationProvider().newDataLocation(java.spec(), file.partition(), name)
    assert Path(path.removeprefix("file:")).is_file()


def test_tasks_that_fail_leave_no_file(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    declare(table, "a bigint, b string")
    before = table.format.load()
    transaction = table.format.transaction(before)
    with pytest.raises(Exception, match="no more rows"):
        written(SparkSession.active(), transaction, Tasks(transaction.schema, broken=True))
    transaction.abandon()
    assert files_of(lake, table) == set()
    assert table.format.load() == before


def test_what_is_given_up_leaves_no_file(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    declare(table, "a bigint, b string")
    transaction = table.format.transaction(table.format.load())
    written(SparkSession.active(), transaction, Tasks(transaction.schema))
    assert len(files_of(lake, table)) == 2
    transaction.abandon()
    assert files_of(lake, table) == set()


def test_statistics_of_ducklake_are_those_that_duckdb_finds(ducklake: Lake, table_name: str) -> None:
    table = ducklake.table(table_name)
    declare(table, "a bigint, b string")
    transaction = table.format.transaction(table.format.load())
    written(SparkSession.active(), transaction, Tasks(transaction.schema))
    transaction.commit()
    known = table.format.load().table.id
    stats = database(ducklake).read(
        lambda c: c.rows(
            "SELECT column_id, value_count, null_count, min_value, max_value FROM meta.ducklake_file_column_stats "
            "WHERE table_id = ? ORDER BY 1, 4",
            [known],
        )
    )
    assert stats == [(1, 3, 0, "0", "2"), (1, 3, 0, "10", "12"), (2, 3, 0, "x", "x"), (2, 3, 0, "x", "x")]
