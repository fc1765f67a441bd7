"""Rows in Arrow, and a quarantine's listing, are the same from DuckDB, which needs no Java, and from Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.errors import DriftlineError, SetupError, UsageError
from driftline.formats.open import EmbeddedLake
from driftline.lake import Lake, Table
from driftline.operations import listing
from driftline.operations.arrow_rows import ChosenRows, by_duckdb, by_spark, duckdb_sql
from driftline.stats import waiting_records
from driftline.stats.model import WaitingSummary
from lake.formats import VARIANTS, database, declare
from servers.machine import lacking

pytestmark = pytest.mark.embedded_only("DuckDB finds tables in SQLite's file")


@pytest.fixture(autouse=True)
def extensions() -> None:
    if find_spec("duckdb_extension_iceberg") is None:
        lacking("DuckDB's extension for Iceberg", "pip install 'driftline[duckdb]'")


def without_spark(lake: Lake) -> EmbeddedLake:
    catalog = database(lake)
    if catalog is None:
        return EmbeddedLake(Path(str(lake.warehouse).removeprefix("file:")))
    return EmbeddedLake(Path(catalog.target).parent, f"{catalog.kind}:{catalog.target}")


def both(table: Table, columns: list[str] | None = None, where: str | None = None) -> pa.Table:
    """The rows of both engines, which are the same, and of the same types."""
    selection = ChosenRows.of(table.name, table.state().schema, columns, where)
    fast = by_duckdb(without_spark(table.lake), selection)
    assert fast is not None, where
    fast.validate(full=True)
    slow = by_spark(table.read(), selection)
    assert fast.schema.equals(slow.schema), where
    assert _sorted(fast) == _sorted(slow), where
    return fast


def _sorted(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


RECORDS = [
    {"id": 1, "name": "Zoë", "total": 59.5, "big": 2**60 + 1, "at": datetime(2026, 3, 1, 8, tzinfo=UTC), "day": date(2026, 3, 1),
     "who": {"zip": "10115", "tags": [{"k": 1}, None]}, "ok": True, "amount": Decimal("1.000000000000000001")},
    {"id": 2, "name": "a_b%", "total": float("nan"), "at": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), "day": date(1, 1, 1),
     "who": {"zip": None}, "ok": False, "amount": Decimal("-99999999999999999999.5")},
    {"id": 3, "name": "", "total": -0.0, "who": {"tags": []}},
    {"id": 4, "name": None, "total": float("inf"), "at": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)},
]  # fmt: skip
SAME_IN_BOTH = [
    "id > 2", "2 < id", "ID in (1, 3, 99)", "id not in (1)", "id between 2 and 3", "id <> 1 and id != 2",
    "total > 1", "total >= -0.5", "total is null", "NOT total > 1",
    "amount > 0.5", "amount = 1.000000000000000001", "big = 1152921504606846977",
    "name = 'Zoë'", "name like 'a%'", "name like 'a_b_'", "name = ''", "name < 'a'", "name is not null",
    "at >= '2026-03-01'", "at < timestamp '1970-01-01T00:00:00Z'", "at = '2026-03-01 09:00:00+01:00'",
    "day = date '2026-03-01'", "day < '2026-01-01'", "ok", "not ok", "ok = true or id = 3",
    "who.zip = '10115'", "`who`.`zip` is null", "who is null", "(id = 1 or id = 2) and not (name = 'Zoë')",
    "id = -1", "id > 2 -- a comment",
]  # fmt: skip
SPARK_ALONE = [
    "id / 2 > 1", "total = 0", "total % 2 = 0", "id > '2'", "name = 'it''s'", r"name = 'a\nb'", 'name = "Zoë"', "id <=> 1",
    "upper(name) = 'ZOË'", "who.tags[0].k = 1", "id = 1 or exists(select 1)", "id > 1e1", "total > 0.1234567890123456",
    "name rlike 'a.*'", "at > current_timestamp()", "day = '2026-3-1'", "size(who.tags) = 0", "id = 1.5",
]  # fmt: skip


def test_rows_are_the_same(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest(RECORDS)
    lake.alter(
        f"alter table {table_name} add column free int default 7; "
        f"alter table {table_name} add column who.c string default 'cc'",
        upgrade=True,
    )
    table.ingest([{"id": 5, "name": "new", "free": 8, "who": {"c": "x"}}])
    lake.alter(
        f"alter table {table_name} rename column name to title; alter table {table_name} rename column title to name"
    )
    rows = both(table)
    assert rows.num_rows == 5 and rows.schema.field("big").type == pa.int64()
    assert rows.schema.field("at").type == pa.timestamp("us", "UTC")
    assert sorted(rows["free"].to_pylist(), key=str) == [7, 7, 7, 7, 8]
    assert both(table, ["who.zip", "ID"]).column_names == ["who.zip", "id"]
    assert both(table, ["id"], "at >= '2026-03-01' and day is not null")["id"].to_pylist() == [1]
    assert both(table, ["id"], "id > 99").num_rows == 0
    # Spark answers all conditions by one job.
    marks = [f"coalesce(({where}\n), false) AS c{i}" for i, where in enumerate(SAME_IN_BOTH)]
    marked, schema = table.read().selectExpr("id", *marks).collect(), table.state().schema
    for i, where in enumerate(SAME_IN_BOTH):
        fast = by_duckdb(without_spark(lake), ChosenRows.of(table_name, schema, ["id"], where))
        assert fast is not None, where
        fast.validate(full=True)
        assert fast.schema.equals(pa.schema({"id": pa.int64()})), where
        assert sorted(fast["id"].to_pylist()) == sorted(row.id for row in marked if row[f"c{i}"]), where


def test_other_conditions_are_left_to_spark(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest(RECORDS)
    for where in SPARK_ALONE:
        assert duckdb_sql(ChosenRows.of(table_name, table.state().schema, None, where)) is None, where
    assert table.to_arrow(["id"], where="id / 2 > 1")["id"].to_pylist() == [3, 4]


HOSTILE = [
    "1=1) union select 1 --",
    "id = 1; drop table x",
    "id >",
    "'",
    "id = 1 limit 1",
    "(" * 2000 + "id = 1" + ")" * 2000,
]


def test_hostile_conditions(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1}])
    for where in HOSTILE:
        chosen = ChosenRows.of(table_name, table.state().schema, None, where)
        assert duckdb_sql(chosen) is None, where[:50]
        with pytest.raises(DriftlineError, match=table_name):
            table.to_arrow(where=where)
        assert table.to_arrow().num_rows == 1, where[:50]


def test_every_type(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    declare(
        table,
        "id bigint, i int, f float, d double, b boolean, s string, bin binary, dec decimal(38, 18), da date, "
        "ts timestamp, n timestamp_ntz, m map<int, string>, l array<array<struct<x: timestamp>>>, "
        "mm map<string, struct<a: array<int>>>",
    )
    assert both(table).num_rows == 0
    table.ingest(
        lake.spark.sql(
            "select 1L id, -2147483648 i, float(1e30) f, double('NaN') d, true b, 'é\"\\u0001' s, x'00ff' bin, "
            "99999999999999999999.999999999999999999 dec, date'0001-01-01' da, timestamp'0001-01-01T00:00:00Z' ts, "
            "timestamp_ntz'9999-12-31T23:59:59.999999' n, map(1, 'a', -1, null) m, "
            "array(array(named_struct('x', timestamp'2026-01-01T00:00:00.5Z')), null, array()) l, "
            "map('k', named_struct('a', array(1, null))) mm union all select 2, null, null, null, null, null, null, "
            "null, null, null, null, null, null, null"
        )
    )
    rows = both(table)
    first = rows.sort_by("id").to_pylist()[0]
    assert first["dec"] == Decimal("99999999999999999999.999999999999999999")
    assert first["n"] == datetime(9999, 12, 31, 23, 59, 59, 999999) and first["da"] == date(1, 1, 1)
    frame = table.to_pandas().sort_values("id")
    assert frame["i"].tolist()[0] == -(2**31) and frame["i"].dtype.pyarrow_dtype == pa.int32()
    assert frame["dec"].tolist()[0] == first["dec"]
    assert frame["ts"].dtype.pyarrow_dtype == pa.timestamp("us", "UTC")  # out of the range of nanoseconds
    assert frame["ts"].tolist()[0] == datetime(1, 1, 1, tzinfo=UTC)
    polars = table.to_polars().sort("id")
    assert polars["dec"].to_list()[0] == first["dec"] and polars["n"].to_list()[0] == first["n"]


def test_rows_that_are_gone_are_not_read(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    keyed = {"key": "id", "delete_when": "op = 'd'"}
    table.ingest([{"id": i, "v": f"v{i}"} for i in range(9)], settings=keyed)
    table.ingest([{"id": 3, "op": "d"}, {"id": 4, "v": "new"}, {"v": "no key"}])
    rows = both(table)
    assert sorted(rows["id"].to_pylist()) == [0, 1, 2, 4, 5, 6, 7, 8]
    assert both(table, ["v"], "id = 4")["v"].to_pylist() == ["new"]


def test_names_that_mean_something_else(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    alone = table_name.split(".")[1]
    table.ingest(
        [
            {
                "id": 1,
                "t": {"id": 7},
                "a_b": 2,
                "select": 3,
                'q"': 4,
                "x y": {"é'": 5},
                alone: {"id": 8},
                "rowid": 9,
            }
        ]
    )
    rows = both(table, ["t.id", "a_b", "select", 'q"', "`x y`.`é'`", f"{alone}.id", "rowid"])
    assert list(rows.to_pylist()[0].values()) == [7, 2, 3, 4, 5, 8, 9]
    assert both(table, ["id"], "`x y`.`é'` = 5 and `a_b` = 2 and `select` = 3").num_rows == 1
    for where in ("t.id = 7", f"{alone}.id = 1"):  # which Spark takes for the namespace, and the table
        assert duckdb_sql(ChosenRows.of(table_name, table.state().schema, None, where)) is None


def test_columns_that_are_not_there(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "customer": {"zip": "1"}, "items": [{"price": 1}]}])
    for columns, says in (
        (["custmer"], "has no column custmer\ndid you mean customer?"),
        (["customer.zp"], r"has no column customer.zp\ndid you mean customer.zip\?"),
        (["items.element.price"], "items is a list<struct<price: long>>\nchoose items"),
        (["id; drop"], "it has id, customer, items"),
        (["a..b"], "in backticks"),
        ([], "no column is chosen"),
    ):
        with pytest.raises(DriftlineError, match=says):
            table.to_arrow(columns)
    assert table.to_arrow("id").to_pydict() == {"id": [1]}
    for where, says in (
        ("custmer.zip = '1'", r"has no column custmer.zip\ndid you mean customer.zip\?"),
        ("ids > 1", r"has no column ids\ndid you mean id\?"),
        ("abs(nothing) > 1", r"has no column nothing\nit has id, customer, items"),
    ):
        with pytest.raises(UsageError, match=says):
            table.to_arrow(where=where)
    selection = ChosenRows.of(table_name, table.state().schema, None, "ids > 1 and id > 1")
    with pytest.raises(UsageError, match=r"has no column ids\ndid you mean id\?"):
        by_duckdb(without_spark(lake), selection)
    for read in (lake.table(f"{table_name}x").to_arrow, lake.table(f"{table_name}x").read):
        with pytest.raises(DriftlineError, match=f"there is no table {table_name}x"):
            read()


def test_of_many_columns_the_error_names_the_first_and_says_that_there_are_more() -> None:
    wide = Schema(Struct(tuple(Field(f"c{n}", LONG, n) for n in range(9))))
    with pytest.raises(UsageError, match=r"it has c0, c1, c2, c3, c4, c5, c6, c7, …$"):
        ChosenRows.of("shop.orders", wide, ["nothing"], None)


@pytest.mark.iceberg_only("Spark reads no view of a DuckLake")
def test_a_view_is_read(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "v": 7}, {"id": 2, "v": "x"}])
    view = lake.table(table.view().name)
    embedded = Lake.open(without_spark(lake).folder).table(view.name)
    for opened in (view, embedded):
        assert opened.to_arrow(["v"], where="id = 1").to_pydict() == {"v": ["7"]}


@pytest.mark.iceberg_only("a DuckLake is not given one by driftline")
@VARIANTS
def test_what_duckdb_does_not_read_comes_from_spark(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    lake.sql("create namespace if not exists lake.t")
    lake.sql(
        f"create table lake.{table_name} (id bigint, v variant) using iceberg tblproperties ('format-version' = '3')"
    )
    lake.sql(f"insert into lake.{table_name} select 1, parse_json('[1]')")
    state = table.state()
    assert by_duckdb(without_spark(lake), ChosenRows.of(table_name, state.schema, None, None)) is None
    assert by_duckdb(without_spark(lake), ChosenRows.of(table_name, state.schema, ["id"], None)).num_rows == 1
    assert table.to_arrow()["id"].to_pylist() == [1]
    named = f"{table_name}_named"
    lake.sql(
        f"create table lake.{named} (id bigint) using iceberg tblproperties ('schema.name-mapping.default' = '[]')"
    )
    assert (
        by_duckdb(without_spark(lake), ChosenRows.of(named, lake.table(named).state().schema, None, None))
        is None
    )
    assert lake.table(named).to_arrow().num_rows == 0


def test_without_duckdb_spark_reads(lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1}])
    embedded, selection = without_spark(lake), ChosenRows.of(table_name, table.state().schema, None, None)
    monkeypatch.setattr(EmbeddedLake, "in_duckdb", lambda *_: _lacking())
    assert by_duckdb(embedded, selection) is None


@contextmanager
def _lacking() -> Iterator[None]:
    raise SetupError("DuckDB has no extension 'iceberg'.")
    yield


NO_JAVA = """
import json, sys
from driftline import Lake, UsageError

for folder, ducklake, name in json.loads(sys.argv[1]):
    lake = Lake.open(folder, ducklake=ducklake)
    table = lake.table(name)
    print(lake.tables() and lake, table, table.schema().to_dict()["type"], len(table.history().entries))
    assert table.stats().records == 2
    assert table.to_arrow(where="id > 1").to_pydict() == {"id": [2]}
    assert table.to_pandas()["id"].tolist() == [1, 2] and table.to_polars(["id"]).height == 2
    for wrong in (lambda: table.to_arrow(["nothing"]), lake.table("no.such").to_arrow, lake.table("no.such").schema):
        try:
            wrong()
        except UsageError as error:
            print(error)
        else:
            raise AssertionError
    lake.close()
    from pyspark import SparkContext

    assert SparkContext._gateway is None, f"Java runs for {lake}"
"""


def test_no_java_is_started(iceberg: Lake, ducklake: Lake, table_name: str) -> None:
    """One process reads a lake of each format, each through all that is asked of it."""
    lakes = []
    for lake in (iceberg, ducklake):
        lake.table(table_name).ingest([{"id": 1}, {"id": 2}])
        embedded = without_spark(lake)
        lakes.append((str(embedded.folder), embedded.ducklake, table_name))
    code = [sys.executable, "-c", NO_JAVA, json.dumps(lakes)]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"table {table_name} struct 1") == 2


def listed(table: Table) -> listing.Quarantine:
    """The quarantine as both engines list it, alike."""
    found = listing.by_duckdb(without_spark(table.lake), table.name)
    assert found is not None
    assert found == table.quarantine()
    assert listed_in_statistics(table).records == found.waiting
    return found


def listed_in_statistics(table: Table) -> WaitingSummary:
    """The quarantine as both engines sum it up for statistics, alike."""
    found = waiting_records.by_duckdb(without_spark(table.lake), table.name, over_time=True)
    of_spark = waiting_records.by_spark(table.format, over_time=True)
    assert of_spark == (found or WaitingSummary()), "there may be no quarantine"
    return of_spark


def test_listing_of_a_quarantine_without_java_is_that_of_spark(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, files = lake.table(table_name), [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    files[0].write_text('{"id": 1, "n": 5}\n{"id": 2, "n": "x"}\n{"id": 4, "more": true}\n{"id": 5')
    files[1].write_text('{"id": 7, "n": 1}\n{"id": 8, "n": "z"}\nno JSON\n{"id": 17')
    table.ingest(files[0], settings={"policy": "strict", "hints": {"id": "long", "n": "long"}})
    assert listed(table).waiting == 3
    table.ingest(files[1])
    table.ingest([{"id": 9, "n": "of Python"}])
    (by_reason,) = (each for each in listed_in_statistics(table).reasons if each.reason.startswith("n: "))
    assert (by_reason.reason, by_reason.records, by_reason.seen_in) == (
        "n: string into long", 3, f"{files[0]}:2",
    )  # fmt: skip
    groups = {group.path: (group.count, group.place, group.last_place) for group in listed(table).groups}
    assert groups["n"] == (3, f"{files[0]}:2", "records:1")
    table.discard_quarantine("a.jsonl")
    table.replay(settings={"policy": "preserve"})
    found = listed(table)
    assert (found.waiting, found.replayed, found.discarded) == (2, 2, 3)
    table.restore_quarantine("a.jsonl")
    assert listed(table).waiting == 5


def test_quarantine_of_no_table_and_empty_one_are_listed_without_java(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    assert listing.by_duckdb(without_spark(lake), table_name) is None
    table.ingest([{"ts_ms": 1}], key="id", envelope="debezium")  # a heartbeat: the feed has settings alone
    assert listed(table) == listing.Quarantine(table_name)
    table.ingest([{"a": 1}], key="id", envelope="")
    assert listed(table).waiting == 1
    lake.table(f"{table_name}_other").ingest([{"id": 1}])
    assert listed(lake.table(f"{table_name}_other")) == listing.Quarantine(f"{table_name}_other")
