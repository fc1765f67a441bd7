"""DuckDB prints the rows of a query as Spark does, or refuses the table in a sentence."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from driftline.cli.rows import DuckDBRows, QueryResult, SparkRows
from driftline.errors import DataError, DriftlineError, SetupError, UsageError
from driftline.formats.open import EmbeddedLake
from driftline.lake import Lake
from driftline.operations.duckdb_query import query
from driftline.runtime.duckdb import database as database_of_process
from lake.formats import KEEPS_STRUCTS, VARIANTS, database
from servers.machine import lacking

pytestmark = pytest.mark.embedded_only("DuckDB finds tables in SQLite's file")

V3 = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read'"
V2 = "'format-version' = '2', 'write.delete.mode' = 'merge-on-read'"
BY_ID = "select * from {t} order by id"

# By name: statements that make an Iceberg table {t}, and queries over it.
TABLES: dict[str, tuple[list[str], list[str]]] = {
    "every type": (
        [
            ("create table {t} (id bigint, i int, f float, d double, b boolean, s string, bin binary, "
            "dec decimal(38, 18), da date, ts timestamp, n timestamp_ntz, m map<int, string>, "
            f"l array<array<struct<x: timestamp>>>) using iceberg tblproperties ({V3})"),
            ("insert into {t} values (1, -2147483648, float(1e30), double('NaN'), true, 'é\"\\n\\u0001😀', x'00ff', "
            "99999999999999999999.999999999999999999, date'0001-01-01', timestamp'0001-01-01T00:00:00Z', "
            "timestamp_ntz'9999-12-31T23:59:59.999999', map(1, 'a', -1, null), "
            "array(array(named_struct('x', timestamp'2026-01-01T00:00:00.5Z')), null, array())), "
            "(2, 2147483647, float(0.1), -0.0D, false, '', x'', -0.000000000000000001, date'9999-12-31', "
            "timestamp'1969-12-31T23:59:59.999999Z', timestamp_ntz'1500-03-01T00:00:00', map(), array())"),
            # Spark 3.5 wants each column named.
            ("insert into {t} select id, null, f, d, null, null, null, null, null, null, null, null, null from values "
            "(3, 1e-320, float('-Infinity')), (4, 123456789.5, float(1e-3)), (5, 0.0, 0) as x (id, d, f)"),
        ],
        [
            BY_ID,
            "select id from {t} where f >= 0.1 order by id",
            "select id from {t} where ts < timestamp'1970-01-01T00:00:00Z' order by id",
            "select count(*) as n, min(d) as low, sum(i) as s from {t} where id < 3",
        ],
    ),
    "evolved, with deletion vectors": (
        [
            ("create table {t} (id bigint, v string, gone int, s struct<a: int, b: string>, f float, "
            f"dec decimal(10, 2), l array<struct<a: int>>) using iceberg tblproperties ({V3})"),
            ("insert into {t} select id, concat('v', id), 7, named_struct('a', id, 'b', 'x'), id / 4, id, "
            "array(named_struct('a', id)) from range(10)"),
            "delete from {t} where id in (2, 5)",
            "driftline: alter table {t} add column free int default 7",
            "driftline: alter table {t} add column l.element.c string",
            "driftline: alter table {t} add column s.c string default 'cc'",
            "driftline: alter table {t} rename column v to w",
            "driftline: alter table {t} drop column gone",
            "driftline: alter table {t} add column gone string",
            "driftline: alter table {t} rename column s.a to z",
            "driftline: alter table {t} add column s.a string",
            "driftline: alter table {t} alter column f type double",
            "driftline: alter table {t} alter column dec type decimal(20, 2)",
            "driftline: alter table {t} alter column s.z type bigint",
            "insert into {t} (id, w, s, f, dec, l, free, gone) values (11, 'new', null, null, null, null, 7, 'here')",
        ],
        [
            BY_ID,
            "select id from {t} where free = 7 and s.c = 'cc' order by id",
            "select id from {t} where gone is null order by id",
        ],
    ),
    "partitioned, with files of positions": (
        [
            f"create table {{t}} (id bigint, v string) using iceberg partitioned by (v) tblproperties ({V2})",
            "insert into {t} select id, concat('v', id % 3) from range(20)",
            "delete from {t} where id % 4 = 0",
            "alter table {t} replace partition field v with bucket(2, id)",
            "insert into {t} values (20, null), (21, 'v1')",
            "delete from {t} where id = 21",
        ],
        [BY_ID, "select id from {t} where v = 'v1' order by id", "select v, count(*) as n from {t} group by v order by v nulls first"],
    ),
    "metadata in gzip": (
        [
            "create table {t} (id bigint) using iceberg tblproperties ('write.metadata.compression-codec' = 'gzip')",
            "insert into {t} values (1)",
        ],
        [BY_ID],
    ),
    "a branch that is ahead": (
        [
            "create table {t} (id bigint) using iceberg",
            "insert into {t} values (1)",
            "alter table {t} create branch ahead",
            "insert into {t}.branch_ahead values (2)",
        ],
        [BY_ID],
    ),
    "rolled back": (
        [
            "create table {t} (id bigint) using iceberg",
            "insert into {t} values (1)",
            "alter table {t} create tag first",
            "alter table {t} add column b int",
            "insert into {t} values (2, 2)",
            "call lake.system.set_current_snapshot(table => '{t}', ref => 'first')",
        ],
        [BY_ID],
    ),
    "no rows yet": (["create table {t} (id bigint) using iceberg"], [BY_ID, "select count(*) as n from {t}"]),
}  # fmt: skip


@pytest.fixture(autouse=True)
def extensions() -> None:
    if find_spec("duckdb_extension_iceberg") is None:
        lacking("DuckDB's extension for Iceberg", "pip install 'driftline[duckdb]'")


def where(lake: Lake) -> tuple[Path, str | None]:
    """The lake's folder, and its catalog if it is a DuckLake."""
    catalog = database(lake)
    if catalog is None:
        return Path(str(lake.warehouse).removeprefix("file:")), None
    return Path(catalog.target).parent, f"{catalog.kind}:{catalog.target}"


def by_duckdb(lake: Lake, sql: str) -> list[str]:
    folder, catalog = where(lake)
    with query(EmbeddedLake(folder, catalog).in_duckdb(sql), sql) as batches:
        return lines(DuckDBRows(batches))


def lines(rows: QueryResult) -> list[str]:
    return list(rows.json(rows.columns, 0))


def by_spark(lake: Lake, sql: str) -> list[str]:
    return lines(SparkRows(lake.query(sql)))


MARKS = {"evolved, with deletion vectors": KEEPS_STRUCTS}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS.get(kind, ())) for kind in TABLES])
def test_the_rows_are_those_of_spark(iceberg: Lake, table_name: str, kind: str) -> None:
    made, queries = TABLES[kind]
    iceberg.sql("create namespace if not exists lake.t")
    for statement in made:
        ours = statement.removeprefix("driftline: ")
        run = iceberg.sql if ours == statement else iceberg.alter
        run(ours.format(t=f"lake.{table_name}"))
    for sql in queries:
        asked = sql.format(t=table_name)
        assert by_duckdb(iceberg, asked) == by_spark(iceberg, asked), asked


def test_ingested_tables(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest(
        [{"id": 1, "who": {"tags": ["a", None]}, "at": "2026-03-02T08:00:00.5Z", "n": 1.5}, {"id": 2}]
    )
    table.ingest([{"id": "x", "who": {"zip": 3}, "more": [{"k": 1}], "n": "7 EUR"}])
    lake.alter(f"alter table {table_name} rename column n to m; alter table {table_name} drop column more")
    for sql in (
        f"select * from {table_name} order by id nulls first",
        f"select who.zip as z from lake.{table_name} where m is null and id is null",
        f"select o.id from {table_name} as o where o.id = 1",
    ):
        assert by_duckdb(lake, sql) == by_spark(lake, sql)
    twice = f"with x as (select * from {table_name}) select count(*) as n from x, {table_name} as y"
    assert by_duckdb(lake, twice) == ['{"n":9}']


@pytest.mark.parametrize("name", ["a b #1", "50%20", "[x]*?", 'a "b"'])
def test_folders_of_any_name(spark, tmp_path: Path, name: str) -> None:
    lake = Lake.open(tmp_path / name)
    lake.table("a.b").ingest([{"id": 1}])
    if '"' in name:
        with pytest.raises(DataError, match="path has a quotation mark"):
            by_duckdb(lake, "select * from a.b")
    else:
        assert by_duckdb(lake, "select * from a.b") == ['{"id":1}']


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        pytest.param("create table {t} (id bigint, v variant) using iceberg tblproperties ('format-version' = '3')", "column 'v' of the result has DuckDB's type VARIANT", marks=VARIANTS),
        ("create table {t} (id bigint) using iceberg tblproperties ('schema.name-mapping.default' = '[]')", "its files may have columns by name alone"),
    ],
)  # fmt: skip
def test_what_it_would_read_otherwise_is_refused(
    iceberg: Lake, table_name: str, statement: str, says: str
) -> None:
    iceberg.sql("create namespace if not exists lake.t")
    iceberg.sql(statement.format(t=f"lake.{table_name}"))
    with pytest.raises(DriftlineError, match=says):
        by_duckdb(iceberg, f"select * from {table_name}")


@pytest.mark.parametrize(
    ("sql", "error", "says"),
    [
        ("selec 1", UsageError, "SQL: syntax error at or near"),
        ("select 1; select 2", UsageError, "one SELECT statement, and this is select and select"),
        ("create table a.b as select 1", UsageError, "this is create"),
        ("select interval 1 day as i", UsageError, "column 'i' of the result has DuckDB's type INTERVAL"),
        ("select * from no.such", DataError, "there is no table no.such"),
        ("select 'x'::int as n", DataError, "SQL: Could not convert string 'x' to INT32"),
        ("select error('it broke') from range(3)", DataError, "it broke"),
    ],
)
def test_errors_are_sentences(lake: Lake, sql: str, error: type[DriftlineError], says: str) -> None:
    with pytest.raises(error, match=says) as raised:
        by_duckdb(lake, sql)
    assert "\n\n" not in str(raised.value) and "LINE 1" not in str(raised.value)


def test_a_ducklake_is_not_written(ducklake: Lake, table_name: str) -> None:
    ducklake.table(table_name).ingest([{"id": 1}])
    before = ducklake.table(table_name).state().snapshot
    with pytest.raises(UsageError, match="this is insert"):
        by_duckdb(ducklake, f"insert into {table_name} values (2)")
    assert ducklake.table(table_name).state().snapshot == before


def test_without_duckdb(iceberg: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    database_of_process.cache_clear()
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(SetupError, match=r"DuckDB is not installed.\npip install 'driftline\[duckdb\]'"):
        by_duckdb(iceberg, "select 1")


HOLDER = """
import sys, time, duckdb
with duckdb.connect(sys.argv[1]):
    print("held", flush=True)
    time.sleep(1.5)
"""


def test_a_locked_ducklake_is_waited_for(ducklake: Lake, table_name: str) -> None:
    ducklake.table(table_name).ingest([{"id": 1}])
    code = [sys.executable, "-c", HOLDER, database(ducklake).target]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        assert by_duckdb(ducklake, f"select * from {table_name}") == ['{"id":1}']


def test_no_spark_is_loaded() -> None:
    code = (
        "import sys, driftline.operations.duckdb_query, driftline.formats.iceberg.duckdb_views, "
        "driftline.formats.ducklake.catalog; sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
