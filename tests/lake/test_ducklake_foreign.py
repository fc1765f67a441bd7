"""Tables that DuckDB made otherwise than Spark could: defaults that are expressions, and types that Spark has not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline.errors import DataError
from driftline.formats.ducklake import types
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.lake import Lake, Table
from driftline.runtime.spark_version import reads_uuids, unopened_types
from lake.ducklake_peer import run, same
from lake.formats import database, ducklake_at


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    catalog = CatalogDatabase.of("duckdb", tmp_path / "lake")
    catalog.make()
    run(catalog, "CREATE SCHEMA lk.s", "CALL lk.set_option('data_inlining_row_limit', 0)")
    return ducklake_at(spark, catalog)


def made(lake: Lake, *statements: str) -> Table:
    run(database(lake), *statements)
    return lake.table("s.t")


def duckdb(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    return run(database(lake), sql)


def lines(tmp_path: Path, *records: Any) -> str:
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(map(json.dumps, records)))
    return str(file)


DEFAULTS = (
    "k INT DEFAULT 1+2, d DATE DEFAULT current_date, n VARCHAR DEFAULT upper('x'), b BLOB DEFAULT '\\x00\\xff'::BLOB, "
    "l BLOB DEFAULT 'a\\x00', c DATE DEFAULT '2026-1-2', h HUGEINT DEFAULT 18446744073709551616, i INTERVAL DEFAULT "
    "INTERVAL 1 DAY, y BOOLEAN DEFAULT 'yes', tz TIMESTAMPTZ DEFAULT '2026-01-01 00:00:00+02'::TIMESTAMPTZ, i8 TINYINT "
    "DEFAULT 1+1, u64 UBIGINT DEFAULT 18446744073709551615, u UUID DEFAULT 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', "
    "j JSON DEFAULT '{\"a\": 1}', nn INT DEFAULT nullif(1, 1), ns TIMESTAMP_NS DEFAULT '2026-01-01 00:00:00.000000001', "
    "tm TIME DEFAULT '01:02:03', req INT NOT NULL DEFAULT 2+2"
)


@pytest.mark.nightly
def test_a_record_gets_the_default_that_duckdb_would_give(lake: Lake, tmp_path: Path) -> None:
    table = made(lake, f"CREATE TABLE lk.s.t (a INT, {DEFAULTS}, t TIMESTAMP DEFAULT now())")
    file = lines(tmp_path, {"a": 1}, {"a": 2, "k": None, "req": None}, {"a": 3, "k": 7, "d": "2026-05-06"})
    assert table.ingest(file).rows_written == 3
    run(
        table.format.catalog,
        "INSERT INTO lk.s.t (a) VALUES (4)",
        "INSERT INTO lk.s.t (a, k, d) VALUES (5, 7, '2026-05-06')",
    )
    rows = duckdb(lake, "SELECT to_json(x)::VARCHAR FROM (SELECT * EXCLUDE (a, t) FROM lk.s.t ORDER BY a) x")
    assert rows[0] == rows[1] == rows[3]
    assert rows[2] == rows[4] != rows[0]
    assert duckdb(lake, "SELECT count(*) FROM lk.s.t WHERE t > now()::TIMESTAMP - INTERVAL 1 HOUR") == [(5,)]
    # Spark reads them too, and the column is as required as it was.
    rows = lake.sql("SELECT b, req FROM s.t").collect()
    assert {(bytes(r.b), r.req) for r in rows} == {(b"\x00\xff", 4)}
    if reads_uuids():
        rows = lake.sql("SELECT u FROM s.t").collect()
        assert {r.u for r in rows} == {"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}
    field = table.state().schema.find(("req",))
    assert field is not None
    assert field.required
    assert table.verify([file], "json").found


@pytest.mark.nightly
def test_a_default_that_is_another_for_each_row(lake: Lake, tmp_path: Path) -> None:
    table = made(
        lake,
        "CREATE TABLE lk.s.t (a INT, u UUID DEFAULT uuid(), r DOUBLE DEFAULT random(), w DOUBLE DEFAULT 2 * random())",
    )
    with pytest.raises(
        DataError, match=r"s\.t: w has the default \(2 \* random\(\)\), which gives no value"
    ) as error:
        table.ingest(lines(tmp_path, {"a": 1, "w": 0.5}, {"a": 2}))
    assert error.value.hint is not None
    assert "ALTER TABLE s.t ALTER COLUMN w DROP DEFAULT" in error.value.hint
    assert duckdb(lake, "SELECT count(*) FROM lk.s.t") == [(0,)]
    assert table.ingest(lines(tmp_path, *({"a": i, "w": i / 2} for i in range(9)))).rows_written == 9
    assert duckdb(lake, "SELECT count(DISTINCT u), count(DISTINCT r) FROM lk.s.t") == [(9, 9)]
    if reads_uuids():
        assert len(same(table.format, tmp_path)) == 9
    lake.alter("ALTER TABLE s.t ALTER COLUMN w DROP DEFAULT")
    assert table.ingest(lines(tmp_path, {"a": 10})).rows_written == 1
    assert duckdb(lake, "SELECT w FROM lk.s.t WHERE a = 10") == [(None,)]
    table.undo()
    run(table.format.catalog, "INSERT INTO lk.s.t (a) VALUES (11)")
    assert duckdb(lake, "SELECT w IS NULL FROM lk.s.t WHERE a = 11") == [(False,)]


VALUES = {
    "HUGEINT": "1",
    "UHUGEINT": "1",
    "TIME": "'01:02:03'",
    "TIMETZ": "'01:02:03+00'",
    "TIMESTAMP_NS": "'2026-01-01 00:00:00.000000001'",
    "INTERVAL": "INTERVAL 1 DAY",
    "GEOMETRY": "NULL",
}


@pytest.mark.nightly
def test_columns_that_spark_cannot_read_stand_in_nobodys_way(lake: Lake, tmp_path: Path) -> None:
    # Before 4.1, Spark opens no file with these two.
    unopened = [name.upper() for name in unopened_types()]
    values = {t: v for t, v in VALUES.items() if t not in unopened}
    variant = "HUGEINT" if "VARIANT" in unopened else "VARIANT"
    columns = [
        f"{t.lower()}_x {t}, {t.lower()}_s STRUCT(y {t}, z INT), {t.lower()}_l {t}[], {t.lower()}_m MAP(VARCHAR, {t})"
        for t in values
    ]
    given = [
        f"{v}::{t}, {{'y': {v}::{t}, 'z': 1}}, [{v}::{t}], MAP {{'k': {v}::{t}}}" for t, v in values.items()
    ]
    table = made(
        lake,
        f"CREATE TABLE lk.s.t (a INT, {', '.join(columns)}, v {variant})",
        f"INSERT INTO lk.s.t VALUES (1, {', '.join(given)}, 5)",
        "ALTER TABLE lk.s.t ADD COLUMN later HUGEINT DEFAULT 5",
    )
    plain = lines(tmp_path, {"a": 2}, {"a": 3, "hugeint_s": {"z": 5}})
    assert table.ingest(plain).changes == ()
    assert table.verify([plain], "json").found
    assert table.stats(exact=True).records == 3
    drifted = lines(
        tmp_path, {"a": 4, "hugeint_x": 7, "time_s": {"y": "01:02:03"}, "v": 5, "interval_l": [1]}
    )
    added = {change.path: change.reason.why for change in table.ingest(drifted).changes}
    assert {("hugeint_x_long",), ("time_s", "y_string"), ("v_long",), ("interval_l_array_long",)} <= set(
        added
    )
    assert "fit the field's columns: HUGEINT, which only DuckDB writes" in added["hugeint_x_long",]
    assert ("hugeint_x_string",) not in added, "no column has values in common with it"
    assert table.verify([drifted], "json").found
    strict = table.ingest(lines(tmp_path, {"a": 5, "timetz_x": True}), settings={"policy": "strict"})
    assert (strict.rows_written, strict.rows_quarantined) == (0, 1)
    (path,) = (r.path for r in lake.sql("SELECT path FROM s.t__quarantine").collect())
    assert path == "timetz_x"

    assert [r.a for r in lake.sql("SELECT a FROM s.t ORDER BY a").collect()] == [1, 2, 3, 4]
    assert lake.sql("SELECT hugeint_x_long FROM s.t WHERE a = 4").collect()[0][0] == 7
    with pytest.raises(Exception, match=r"s\.t\.hugeint_x: Spark cannot read DuckLake's int128"):
        lake.sql("SELECT hugeint_x FROM s.t").collect()
    assert table.stats().records == 4
    with pytest.raises(DataError, match="Spark cannot read a int128"):
        table.stats(exact=True)
    assert table.layout().groups[0].records == 4
    assert table.schema().to_dict()["fields"][1]["type"] == "int128"

    lake.alter("ALTER TABLE s.t ADD COLUMN more INT")
    lake.alter("ALTER TABLE s.t RENAME COLUMN interval_x TO renamed")
    table.undo()
    assert len(table.history().entries) >= 4
    with pytest.raises(
        DataError, match=r"Spark cannot read hugeint_x, a int128, so its rows cannot be rewritten"
    ):
        table.resolve("hugeint_x", "string")
    run(
        table.format.catalog,
        "ALTER TABLE lk.s.t ADD COLUMN late HUGEINT",
        "INSERT INTO lk.s.t (a, late) VALUES (9, 1)",
    )
    with pytest.raises(DataError, match="would hide late, whose values Spark cannot count"):
        table.undo()
    table.undo(yes=True)
    # DuckDB has its values as before, and null where the batches had none.
    for name in ("hugeint_x", "time_s.y", "interval_m['k']", "timestamp_ns_l[1]", "v"):
        assert duckdb(lake, f"SELECT count({name}), count(*) FROM lk.s.t") == [(1, 5)]
    if "GEOMETRY" in values:
        assert duckdb(lake, "SELECT count(geometry_x), count(*) FROM lk.s.t") == [(0, 5)]
    assert duckdb(lake, "SELECT a FROM lk.s.t WHERE hugeint_x = 1 AND v::INT = 5") == [(1,)]
    run(table.format.catalog, "DELETE FROM lk.s.t WHERE a = 2", "CALL ducklake_merge_adjacent_files('lk')")
    assert duckdb(lake, "SELECT count(hugeint_x), count(interval_x), count(*) FROM lk.s.t") == [(1, 1, 4)]


OWN = (
    "i TINYINT NOT NULL, s SMALLINT, b UTINYINT, w USMALLINT, u UINTEGER, u8 UBIGINT, ts TIMESTAMP_S, ms TIMESTAMP_MS, js JSON, "
    "uu UUID, l STRUCT(a SMALLINT, j JSON, k UUID)[]"
)
KEY = "12345678-1234-5678-1234-567812345678"
FITTING = {
    "i": -128,
    "s": 32767,
    "b": 255,
    "w": 65535,
    "u": 2**32 - 1,
    "u8": 2**64 - 1,
    "ts": "2024-01-01T00:00:01",
    "ms": "2024-01-01T00:00:01.002",
    "js": {"a": [1, 1.50, "x"]},
    "uu": KEY,
    "l": [{"a": -1, "j": [], "k": KEY}],
}
STORED = (
    -128, 32767, 255, 65535, 2**32 - 1, 2**64 - 1, "2024-01-01 00:00:01", "2024-01-01 00:00:01.002", '{"a":[1,1.5,"x"]}',
    KEY, f"[{{'a': -1, 'j': '[]', 'k': {KEY}}}]",
)  # fmt: skip
ALL = "i, s, b, w, u, u8, ts::VARCHAR, ms::VARCHAR, js::VARCHAR, uu::VARCHAR, l::VARCHAR"


# Spark's own writer takes over where a column has a type that tasks do not write.
@pytest.mark.nightly
@pytest.mark.parametrize("beside", ["", ", h HUGEINT"])
def test_values_go_into_the_columns_that_duckdb_made(lake: Lake, tmp_path: Path, beside: str) -> None:
    table = made(lake, f"CREATE TABLE lk.s.t ({OWN}{beside})")
    file = lines(tmp_path, FITTING, {"i": 5, "js": "text"})
    if not reads_uuids():
        assert {c.path for c in table.ingest(file).changes} == {("uu_string",), ("l", "element", "k_string")}
        return
    assert table.ingest(file).changes == ()
    assert table.verify([file], "json").found
    ((first, second),) = [duckdb(lake, f"SELECT {ALL} FROM lk.s.t ORDER BY i")]
    assert first == STORED
    assert second == (5, *[None] * 7, '"text"', None, None)
    assert duckdb(
        lake, f"SELECT js->'a'->>2 FROM lk.s.t WHERE uu = '{KEY}' AND u8 > 9223372036854775807"
    ) == [("x",)]
    (row,) = lake.sql("SELECT i, u, u8, uu, l FROM s.t WHERE b = 255").collect()
    assert (row.i, row.u, int(row.u8), row.uu, row.l[0].k) == (-128, 2**32 - 1, 2**64 - 1, KEY, KEY)

    # What is outside goes beside, and the column takes the rest of the batch all the same.
    other = {"i": 300, "u": -1, "u8": 0.5, "ts": "2024-01-01T00:00:01.5", "uu": "x", "l": {"a": 40000}}
    file = lines(tmp_path, other, FITTING | {"i": 7})
    added = {".".join(change.path) for change in table.ingest(file).changes}
    assert {"i_long", "u_long", "u8_double", "ts_timestamp_ntz", "uu_string"} <= added
    assert table.verify([file], "json").found
    assert duckdb(lake, "SELECT i, i_long FROM lk.s.t WHERE i_long IS NOT NULL ORDER BY ALL") == [
        (7, 7),
        (None, 300),
    ]
    plain = ALL.removesuffix(", l::VARCHAR")
    assert duckdb(lake, f"SELECT {plain} FROM lk.s.t WHERE i = 7") == [(7, *STORED[1:-1])]
    field = table.state().schema.find(("i",))
    assert field is not None and str(field.type) == "int8" and not field.required
    assert table.stats(exact=not beside).records == 4
    run(table.format.catalog, "DELETE FROM lk.s.t WHERE i = 5", "CALL ducklake_merge_adjacent_files('lk')")
    assert duckdb(lake, f"SELECT {plain} FROM lk.s.t WHERE i < 0") == [STORED[:-1]]
    assert lake.sql("SELECT i, js FROM s.t WHERE i < 0").collect()[0].js == STORED[8]


@pytest.mark.parametrize("in_the_catalog", [0, 10])
def test_rows_are_known_by_values_of_types_that_duckdb_made_or_the_batch_is_refused(
    lake: Lake, in_the_catalog: int
) -> None:
    uuid = "30313233-3435-3637-3839-616263646566" if reads_uuids() else ""
    table = made(
        lake,
        f"CALL lk.set_option('data_inlining_row_limit', {in_the_catalog})",
        f"CREATE TABLE lk.s.t (i TINYINT, l UBIGINT, u {'UUID' if uuid else 'VARCHAR'}, d TIMESTAMP_S, v INT)",
        f"INSERT INTO lk.s.t SELECT i, 18446744073709551615, '{uuid}', '2026-01-01', 1 FROM range(3) r(i)",
    )
    lake.alter("ALTER TABLE s.t SET TBLPROPERTIES ('driftline.key' = 'i, l, u, d')")
    same_key = {"i": 1, "l": 2**64 - 1, "u": uuid, "d": "2026-01-01T00:00:00", "v": 2}
    table.ingest([same_key, {**same_key, "i": 7}])
    assert sorted(duckdb(lake, "SELECT v FROM lk.s.t")) == [(1,), (1,), (2,), (2,)]
    run(database(lake), "ALTER TABLE lk.s.t ALTER i SET TYPE HUGEINT")
    with pytest.raises(DataError, match="rows are not known, or ordered, by a HUGEINT of DuckDB's"):
        table.ingest([same_key])


def test_rows_of_such_types_in_the_catalog(lake: Lake) -> None:
    columns = ", ".join(
        f"{t.lower()}_x {t}, {t.lower()}_s STRUCT(y {t})[]" for t in VALUES if t != "GEOMETRY"
    )
    given = ", ".join(f"{v}::{t}, [{{'y': {v}::{t}}}]" for t, v in VALUES.items() if t != "GEOMETRY")
    table = made(
        lake,
        "CALL lk.set_option('data_inlining_row_limit', 10)",
        f"CREATE TABLE lk.s.t (a INT, {columns})",
        f"INSERT INTO lk.s.t VALUES (1, {given})",
    )
    assert lake.sql("SELECT a FROM s.t").collect()[0].a == 1
    with pytest.raises(Exception, match=r"s\.t\.interval_x: Spark cannot read DuckLake's interval"):
        table.read().select("interval_x").collect()


def test_every_type_of_ducklake_is_known() -> None:
    """DuckDB 1.5 writes no TIME_NS into Parquet, and DuckLake has neither BIT nor ENUM, UNION, BIGNUM or arrays."""
    tried = {"int128", "uint128", "time", "timetz", "timestamp_ns", "interval", "geometry", "variant"}
    refused = {name for name, type_ in types.TYPES.items() if type_.refused}
    assert refused - tried == {"time_ns", "unknown"}


def test_what_query_knows_of_a_lake_that_duckdb_made(lake: Lake) -> None:
    made(
        lake,
        "CREATE TABLE lk.s.t (a INT)",
        "INSERT INTO lk.s.t VALUES (1)",
        "CREATE TABLE lk.main.m (a INT)",
        "CREATE VIEW lk.s.v AS SELECT a FROM lk.s.t",
        "CREATE MACRO lk.s.plus(x) AS x + 1",
    )
    ((then,),) = duckdb(lake, "SELECT max(snapshot_time)::VARCHAR FROM lk.snapshots()")
    run(lake.table("s.t").format.catalog, "INSERT INTO lk.s.t VALUES (2)")

    def query(sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in lake.sql(sql).collect()]

    assert query("SHOW TABLES IN main") == query("SHOW TABLES IN lake.main") == [("main", "m")]
    assert query("SHOW TABLES") == [("main", "m"), ("s", "t")]
    assert query("SHOW TABLES IN s LIKE 'x*|T'") == [("s", "t")]
    assert query(f"SELECT * FROM s.t TIMESTAMP AS OF '{then}'") == [(1,)]
    assert query(
        "SELECT count(*) FROM s.t FOR SYSTEM_TIME AS OF current_timestamp() x JOIN s.t USING (a)"
    ) == [(2,)]
    with pytest.raises(DataError, match="there is no snapshot as of '2000-01-01'"):
        query("SELECT * FROM s.t TIMESTAMP AS OF '2000-01-01'")
    with pytest.raises(DataError, match=r"^s\.v is a view in DuckDB's SQL"):
        query("SELECT * FROM lake.s.v")
    with pytest.raises(DataError, match=r"^s\.plus is a macro in DuckDB's SQL"):
        query("SELECT s.plus(a) FROM s.t")
