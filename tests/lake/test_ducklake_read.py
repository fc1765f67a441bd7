"""A DuckLake that DuckDB wrote, read by Spark: row for row what DuckDB reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftline.errors import DataError
from driftline.formats.ducklake import read as reading
from driftline.formats.ducklake import scan as scanning
from driftline.formats.ducklake import types
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.table import DuckLakeTable
from driftline.runtime.spark_version import reads_bare_structs, reads_uuids
from lake.ducklake_peer import peer, rows_by_duckdb, rows_of, run, same

UUIDS = pytest.mark.skipif(not reads_uuids(), reason="Spark 3.5 reads no UUIDs")


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> DuckLakeTable:
    catalog = CatalogDatabase.of("duckdb", tmp_path / "lake of [*] ü")
    catalog.make()
    run(catalog, "CREATE SCHEMA lk.s", "CALL lk.set_option('data_inlining_row_limit', 0)")
    return DuckLakeTable(spark, catalog, "s.t")


NESTED = "a INTEGER, s STRUCT(x INTEGER, y VARCHAR), l STRUCT(z INTEGER)[], m MAP(VARCHAR, STRUCT(w FLOAT))"
ROWS = "VALUES (1, {'x': 1, 'y': 'p'}, [{'z': 1}, NULL], MAP {'k': {'w': 0.5}}), (2, NULL, [], NULL), (NULL, {'x': NULL, 'y': 'q'}, NULL, MAP {'n': NULL})"


def test_nothing_changed(table: DuckLakeTable, tmp_path: Path) -> None:
    run(table.catalog, f"CREATE TABLE lk.s.t ({NESTED})", f"INSERT INTO lk.s.t {ROWS}")
    assert len(same(table, tmp_path)) == 3


def test_an_empty_table(table: DuckLakeTable, tmp_path: Path) -> None:
    run(table.catalog, f"CREATE TABLE lk.s.t ({NESTED})")
    assert same(table, tmp_path) == []
    assert table.read().columns == ["a", "s", "l", "m"]


@pytest.mark.nightly
def test_every_alter(table: DuckLakeTable, tmp_path: Path) -> None:
    run(table.catalog, f"CREATE TABLE lk.s.t ({NESTED})", f"INSERT INTO lk.s.t {ROWS}")
    for statement in (
        "ADD COLUMN b VARCHAR DEFAULT 'it''s'",
        "ADD COLUMN s.n INTEGER DEFAULT 5",
        "ADD COLUMN l.element.j DOUBLE DEFAULT 1.5",
        "ADD COLUMN m.value.v DATE DEFAULT '2026-01-02'",
        "RENAME COLUMN a TO tmp",
        "RENAME COLUMN b TO a",
        "RENAME COLUMN tmp TO b",
        "RENAME s.x TO old",
        "ALTER b SET TYPE BIGINT",
        "ALTER s SET DATA TYPE STRUCT(old BIGINT, y VARCHAR, n INTEGER)",
        "ALTER m SET DATA TYPE MAP(VARCHAR, STRUCT(w DOUBLE, v DATE))",
        "DROP COLUMN s.y",
        "ADD COLUMN s.y INTEGER",
        "ADD COLUMN t TIMESTAMPTZ DEFAULT '2026-01-02 03:04:05+00'",
        "ADD COLUMN d DECIMAL(9, 2) DEFAULT 1.25",
        "ALTER d SET TYPE DECIMAL(18, 2)",
        *(("DROP COLUMN s.old", "DROP COLUMN s.n") if reads_bare_structs() else ()),
    ):
        run(table.catalog, f"ALTER TABLE lk.s.t {statement}")
        same(table, tmp_path)
        with peer(table.catalog) as connection:
            connection.execute("INSERT INTO lk.s.t SELECT * FROM lk.s.t LIMIT 2")
        same(table, tmp_path)
    assert len({row["c0"] for row in same(table, tmp_path)}) > 1


def test_widened_columns_are_read_as_each_file_has_them(
    table: DuckLakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "widens", lambda: False)  # as Spark 3.5
    run(
        table.catalog,
        "CREATE TABLE lk.s.t (i INTEGER, s STRUCT(f FLOAT, d DECIMAL(9, 2)), l SMALLINT[])",
        "INSERT INTO lk.s.t SELECT -7, {'f': 0.1, 'd': 1.25}, [3, NULL] FROM range(20)",
        "ALTER TABLE lk.s.t ALTER i SET TYPE BIGINT",
        "ALTER TABLE lk.s.t ALTER s SET DATA TYPE STRUCT(f DOUBLE, d DECIMAL(18, 2))",
        "INSERT INTO lk.s.t VALUES (9223372036854775807, {'f': 0.1, 'd': 123456789.25}, [4])",
    )
    assert len(same(table, tmp_path)) == 21


def test_a_struct_that_spark_would_read_as_null_is_refused(
    table: DuckLakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "reads_bare_structs", lambda: False)  # as before Spark 4.1
    run(
        table.catalog,
        "CREATE TABLE lk.s.t (a INTEGER, s STRUCT(x INTEGER))",
        "INSERT INTO lk.s.t VALUES (1, {'x': 1}), (2, NULL)",
        "ALTER TABLE lk.s.t ADD COLUMN s.y INTEGER DEFAULT 5",
    )
    assert table.read().count() == 2
    run(table.catalog, "ALTER TABLE lk.s.t DROP COLUMN s.x")
    with pytest.raises(
        DataError, match="Spark reads the struct s as null in files that have none of the fields"
    ):
        table.read()


def test_uuids_are_refused_where_spark_reads_none(
    table: DuckLakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(types, "reads_uuids", lambda: False)  # as Spark 3.5
    run(
        table.catalog,
        "CREATE TABLE lk.s.t (a INTEGER, u UUID)",
        "INSERT INTO lk.s.t VALUES (1, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')",
    )
    assert [row.a for row in table.read().select("a").collect()] == [1]
    with pytest.raises(Exception, match=r"Spark cannot read DuckLake's uuid: before version 4\.0"):
        table.read().collect()


def test_files_that_spark_cannot_open_are_refused(
    table: DuckLakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "unopened_types", lambda: ("variant", "geometry"))  # as before Spark 4.1
    run(
        table.catalog,
        "CREATE TABLE lk.s.t (a INTEGER)",
        "INSERT INTO lk.s.t VALUES (1)",
        "ALTER TABLE lk.s.t ADD COLUMN v VARIANT",
    )
    before = table.load().snapshot
    assert table.read().count() == 1
    run(table.catalog, "INSERT INTO lk.s.t VALUES (2, 5)", "ALTER TABLE lk.s.t DROP COLUMN v")
    for read in (table.read, table.read_readable):
        with pytest.raises(
            DataError, match=r"s\.t: this version of Spark cannot open /.+\.parquet, which has v, a variant"
        ):
            read()
    assert table.read(before).count() == 1


def test_names_swapped_and_filtered(table: DuckLakeTable, tmp_path: Path) -> None:
    run(
        table.catalog,
        "CREATE TABLE lk.s.t (id INTEGER, nm VARCHAR, s STRUCT(a INTEGER, b INTEGER))",
        "INSERT INTO lk.s.t SELECT i, 'n' || i, {'a': i, 'b': -i} FROM range(1000) r(i)",
        "ALTER TABLE lk.s.t RENAME COLUMN id TO ident",
        "ALTER TABLE lk.s.t RENAME COLUMN nm TO id",
        "ALTER TABLE lk.s.t RENAME s.a TO c",
        "ALTER TABLE lk.s.t RENAME s.b TO a",
        "INSERT INTO lk.s.t SELECT i, 'n' || i, {'c': i, 'a': -i} FROM range(1000, 1010) r(i)",
    )
    frame = table.read()
    assert frame.where("id = 'n1'").count() == 1
    assert frame.where("ident = 1005").count() == 1
    for what in ("s.a", "s.c AS c, id", "max(s.a) AS m, count(id) AS n"):
        expected = rows_by_duckdb(table, tmp_path, what=what)
        assert rows_of(frame.selectExpr(*what.replace(", ", "|").split("|"))) == expected


def test_earlier_snapshots(table: DuckLakeTable, tmp_path: Path) -> None:
    run(table.catalog, "CREATE TABLE lk.s.t (a INTEGER)", "INSERT INTO lk.s.t SELECT range FROM range(5)")
    before = table.load().snapshot
    run(
        table.catalog,
        "DELETE FROM lk.s.t WHERE a = 1",
        "ALTER TABLE lk.s.t RENAME a TO b",
        "INSERT INTO lk.s.t SELECT range FROM range(5, 8)",
    )
    assert [r["c0"] for r in same(table, tmp_path, before)] == [0, 1, 2, 3, 4]
    assert [r["c0"] for r in same(table, tmp_path)] == [0, 2, 3, 4, 5, 6, 7]
    assert table.read().columns == ["b"]
    with pytest.raises(DataError, match="no snapshot 99"):
        table.read(99)


@pytest.mark.nightly
def test_deleted_rows(table: DuckLakeTable, tmp_path: Path) -> None:
    run(
        table.catalog,
        "CREATE TABLE lk.s.t (a INTEGER, b VARCHAR)",
        "INSERT INTO lk.s.t SELECT i, 'x' FROM range(2000) r(i)",
        "INSERT INTO lk.s.t SELECT i, 'y' FROM range(2000, 2020) r(i)",
        "DELETE FROM lk.s.t WHERE a % 3 = 0",
        "UPDATE lk.s.t SET b = 'z' WHERE a % 7 = 0",
        "DELETE FROM lk.s.t WHERE a > 2010",
    )
    for at in range(3, (table.load().snapshot or 0) + 1):
        same(table, tmp_path, at)
    assert table.read().where("a = 3").count() == 0
    assert table.read().where("a = 4").select("b").count() == 1


@pytest.mark.nightly
@UUIDS
def test_rows_in_the_catalog(table: DuckLakeTable, tmp_path: Path) -> None:
    run(
        table.catalog,
        "CALL lk.set_option('data_inlining_row_limit', 100)",
        f"CREATE TABLE lk.s.t ({NESTED}, u UUID, d DECIMAL(9,2), t TIMESTAMPTZ, b BLOB)",
        "INSERT INTO lk.s.t VALUES (1, {'x': 1, 'y': 'it''s'}, [{'z': 1}, NULL], MAP {'k': {'w': 0.5}}, "
        "'00000000-0000-0000-0000-000000000001', 1.25, '2026-01-02 03:04:05.678+00', '\\x00\\xFF')",
        "INSERT INTO lk.s.t (a) VALUES (2)",
    )
    before = table.load().snapshot
    same(table, tmp_path)
    run(
        table.catalog,
        "ALTER TABLE lk.s.t ADD COLUMN s.n INTEGER DEFAULT 5",
        "ALTER TABLE lk.s.t RENAME a TO b2",
        "DELETE FROM lk.s.t WHERE b2 = 2",
        "INSERT INTO lk.s.t (b2) VALUES (3)",
        "INSERT INTO lk.s.t (b2) SELECT range FROM range(200)",
        "DELETE FROM lk.s.t WHERE b2 = 17",
    )
    assert len(same(table, tmp_path)) == 201
    assert len(same(table, tmp_path, before)) == 2


def test_compacted_files(table: DuckLakeTable, tmp_path: Path) -> None:
    run(table.catalog, "CREATE TABLE lk.s.t (a INTEGER)")
    for i in range(4):
        run(table.catalog, f"INSERT INTO lk.s.t SELECT range FROM range({i * 10}, {i * 10 + 10})")
    middle = (table.load().snapshot or 0) - 2
    run(table.catalog, "CALL ducklake_merge_adjacent_files('lk')")
    assert len(same(table, tmp_path)) == 40
    assert len(same(table, tmp_path, middle)) == 20
    run(table.catalog, "DELETE FROM lk.s.t WHERE a % 2 = 0", "CALL ducklake_rewrite_data_files('lk')")
    assert len(same(table, tmp_path)) == 20


@pytest.mark.parametrize(
    "rewrite", ["rewrite_data_files('lk', delete_threshold => 0.01)", "merge_adjacent_files('lk')"]
)
def test_rewritten_files_have_the_defaults_of_what_they_lack(
    table: DuckLakeTable, tmp_path: Path, rewrite: str
) -> None:
    """DuckDB rewrites old files as they are: without the columns that came later."""
    run(table.catalog, f"CREATE TABLE lk.s.t ({NESTED})")
    for _ in range(2):
        run(table.catalog, f"INSERT INTO lk.s.t {ROWS}")
    run(
        table.catalog,
        "ALTER TABLE lk.s.t ADD COLUMN added INTEGER DEFAULT 4",
        "ALTER TABLE lk.s.t ADD COLUMN s.n INTEGER DEFAULT 5",
        "ALTER TABLE lk.s.t ADD COLUMN l.element.j DOUBLE DEFAULT 1.5",
        "ALTER TABLE lk.s.t ADD COLUMN m.value.v DATE DEFAULT '2026-01-02'",
        "DELETE FROM lk.s.t WHERE a = 2 OR a IS NULL",
        f"CALL ducklake_{rewrite}",
    )
    assert {row["c4"] for row in same(table, tmp_path)} == {4}
    run(
        table.catalog,
        "INSERT INTO lk.s.t SELECT * FROM lk.s.t",
        "INSERT INTO lk.s.t (a) VALUES (7)",
        "INSERT INTO lk.s.t (a, added, s) VALUES (8, NULL, {'x': 1, 'y': 'r', 'n': NULL})",
        "ALTER TABLE lk.s.t ADD COLUMN later VARCHAR DEFAULT 'x'",
        "DELETE FROM lk.s.t WHERE a = 7",
        "CALL ducklake_merge_adjacent_files('lk')",
        "CALL ducklake_rewrite_data_files('lk', delete_threshold => 0.01)",
    )
    rows = same(table, tmp_path)
    assert {(row["c0"], row["c4"], row["c5"]) for row in rows} == {(1, 4, "x"), (8, None, "x")}


def test_only_files_that_may_lack_a_default_are_opened(
    table: DuckLakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[list[str]] = []
    ids = scanning.ids_in
    monkeypatch.setattr(scanning, "ids_in", lambda paths: (opened.append(paths), ids(paths))[1])
    run(table.catalog, "CREATE TABLE lk.s.t (a INTEGER)", "INSERT INTO lk.s.t VALUES (1)")
    table.read()
    assert opened == []
    run(
        table.catalog, "ALTER TABLE lk.s.t ADD COLUMN b INTEGER DEFAULT 4", "INSERT INTO lk.s.t VALUES (2, 3)"
    )
    assert rows_of(table.read()) == ['{"c0":1,"c1":4}', '{"c0":2,"c1":3}']
    assert [len(paths) for paths in opened] == [1]


def test_files_from_elsewhere(table: DuckLakeTable, tmp_path: Path) -> None:
    (tmp_path / "p=1").mkdir()
    run(
        table.catalog,
        f"CREATE TABLE lk.s.t ({NESTED}, p INTEGER)",
        f"COPY (SELECT a, s, l, m::MAP(VARCHAR, STRUCT(w FLOAT)) AS m FROM ({ROWS}) v(a, s, l, m)) TO '{tmp_path}/p=1/x.parquet'",
        f"CALL ducklake_add_data_files('lk', 't', '{tmp_path}/p=1/x.parquet', schema => 's', hive_partitioning => true)",
        "ALTER TABLE lk.s.t RENAME a TO b",
        "ALTER TABLE lk.s.t ADD COLUMN s.n INTEGER DEFAULT 5",
        "ALTER TABLE lk.s.t DROP COLUMN s.x",
    )
    assert {row["c4"] for row in same(table, tmp_path)} == {1}


# As a folder has it, for each type; the same text may be spelled in several ways.
IN_PATHS = {
    "VARCHAR": (
        "hello%20world",
        "a+b",
        "%41%2F%C3%A9",
        "é",
        "%",
        "%zz",
        "",
        "NULL",
        "__HIVE_DEFAULT_PARTITION__",
    ),
    "INTEGER": ("5", "-5", "%35", "", "null", "__HIVE_DEFAULT_PARTITION__"),
    "TINYINT": ("-128",),
    "SMALLINT": ("-1",),
    "BIGINT": ("9223372036854775807",),
    "UTINYINT": ("255",),
    "USMALLINT": ("65535",),
    "UINTEGER": ("4294967295",),
    "UBIGINT": ("18446744073709551615",),
    "FLOAT": ("0.1",),
    "DOUBLE": ("1e3", "0.1"),
    "DECIMAL(9,2)": ("1.5",),
    "BOOLEAN": ("t", "false"),
    "DATE": ("2026-01-02",),
    "TIMESTAMP": ("2026-01-02%2003%3A04%3A05.678901", "2026-01-02 03:04:05"),
    "TIMESTAMP_S": ("2026-01-02%2003%3A04%3A05",),
    "TIMESTAMP_MS": ("2026-01-02%2003%3A04%3A05.123",),
    "TIMESTAMPTZ": ("2026-01-02%2003%3A04%3A05%2B02",),
    "UUID": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",),
    "BLOB": ("abc", "%5Cx00"),
    "JSON": ("%7B%22a%22%3A1%7D",),
}


@pytest.mark.nightly
@UUIDS
def test_values_in_paths(table: DuckLakeTable, tmp_path: Path) -> None:
    columns = {f"p{i}": (type_, texts) for i, (type_, texts) in enumerate(IN_PATHS.items())}
    declared = ", ".join(f"{name} {type_}" for name, (type_, _) in columns.items())
    run(table.catalog, f"CREATE TABLE lk.s.t (a INTEGER, {declared})")
    for n in range(max(len(texts) for _, texts in columns.values())):
        keys = [f"{name}={texts[min(n, len(texts) - 1)]}" for name, (_, texts) in columns.items()]
        folder = tmp_path.joinpath("in", *keys, "p0=second")
        folder.mkdir(parents=True)
        run(
            table.catalog,
            f"COPY (SELECT {n}::INTEGER AS a) TO '{folder}/x=1.parquet'",
            f"CALL ducklake_add_data_files('lk', 't', '{folder}/x=1.parquet', schema => 's', hive_partitioning => true)",
        )
    rows = same(table, tmp_path)
    assert [row["c1"] for row in rows][:2] == ["hello world", "a+b"]
    run(table.catalog, "DELETE FROM lk.s.t WHERE a = 1", "ALTER TABLE lk.s.t RENAME p0 TO q")
    assert len(same(table, tmp_path)) == len(rows) - 1


@pytest.mark.nightly
@UUIDS
def test_every_type(table: DuckLakeTable, tmp_path: Path) -> None:
    run(
        table.catalog,
        "CREATE TABLE lk.s.t (i8 TINYINT, i16 SMALLINT, u8 UTINYINT, u16 USMALLINT, u32 UINTEGER, u64 UBIGINT, "
        "ts TIMESTAMP_S, tm TIMESTAMP_MS, t TIMESTAMP, tz TIMESTAMPTZ, dt DATE, j JSON, u UUID, b BLOB, f FLOAT, bo BOOLEAN)",
        "INSERT INTO lk.s.t VALUES (-128, -32768, 255, 65535, 4294967295, 18446744073709551615, "
        "'2026-01-02 03:04:05', '2026-01-02 03:04:05.678', '1850-01-02 03:04:05.678901', '1066-01-02 03:04:05+00', "
        "'0001-01-01', '{\"a\": 1}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '\\x00\\xFF', 0.1, true), "
        "(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    assert len(same(table, tmp_path)) == 2


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("HUGEINT", "1"),
        ("TIME", "'01:02:03'"),
        ("INTERVAL", "INTERVAL 1 DAY"),
        ("TIMESTAMP_NS", "'2026-01-01'"),
    ],
)
def test_types_that_spark_cannot_read(table: DuckLakeTable, type_: str, value: str) -> None:
    run(
        table.catalog,
        f"CREATE TABLE lk.s.t (a INTEGER, x {type_}, s STRUCT(y {type_}), l {type_}[], p STRUCT(y {type_}, z INTEGER))",
        f"INSERT INTO lk.s.t VALUES (1, {value}, {{'y': {value}}}, [{value}], {{'y': {value}, 'z': 2}})",
    )
    assert table.read().select("a").collect()[0].a == 1
    for column in ("x", "s", "l", "p"):
        with pytest.raises(Exception, match="Spark cannot read DuckLake's"):
            table.read().select(column).collect()


def test_a_registered_file_is_gone_or_another(table: DuckLakeTable) -> None:
    run(table.catalog, "CREATE TABLE lk.s.t (a INTEGER)", "INSERT INTO lk.s.t SELECT range FROM range(5)")
    (file,) = Path(table.catalog.data).rglob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole + b"x")
    with pytest.raises(DataError, match="was replaced"):
        table.read()
    file.unlink()
    with pytest.raises(DataError, match="cannot be read: No such file"):
        table.read()
