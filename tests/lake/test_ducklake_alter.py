"""Changes by hand on a DuckLake: the seed's statements, and any sequence of them among ingests."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline.core.changes import SetSortOrder, SortTerm
from driftline.errors import DataError, DriftlineError
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.lake import Lake, Table
from lake.ducklake_peer import run, same
from lake.formats import database, declare, ducklake_at

FUZZ = "DRIFTLINE_FUZZ" in os.environ


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return ducklake_at(spark, CatalogDatabase.of("duckdb", tmp_path / "lake"))


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.table("s.t")


def names(table: Table) -> list[str]:
    return [".".join(path) for path, _ in table.schema().schema.walk()]


def lines(tmp_path: Path, *records: Any) -> Path:
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(map(json.dumps, records)))
    return file


RECORD = {"a": 1, "s": {"x": 1, "y": "p"}, "l": [{"z": 1}], "f": 0.5}


# A table takes each list, of which no statement hides what an earlier one does to rows.
STATEMENTS = {
    "additions and renames": [
        "ADD COLUMN new_column INTEGER",
        "ADD COLUMN second VARCHAR DEFAULT 'my_default'",
        "ADD COLUMN s.new_field INTEGER DEFAULT 5",
        "ADD COLUMN l.element.new_field TIMESTAMPTZ DEFAULT '2026-01-02 03:04:05+00'",
        "ADD COLUMN third DECIMAL(9, 2) DEFAULT 1.5 FIRST",
        "ADD COLUMN fourth BOOLEAN DEFAULT true AFTER a",
        "RENAME a TO b",
        "RENAME COLUMN s.x TO new_name",
        "RENAME l.element.z TO y",
    ],
    "types, places, defaults and comments": [
        "ALTER n SET DATA TYPE STRUCT(i BIGINT)",
        "ALTER i SET TYPE BIGINT",
        "ALTER COLUMN g SET DATA TYPE DOUBLE",
        "ALTER d TYPE DECIMAL(18, 2)",
        "ALTER COLUMN f FIRST",
        "ALTER COLUMN s.y FIRST",
        "ALTER COLUMN a SET DEFAULT 7",
        "ALTER COLUMN a COMMENT 'a comment'",
        "ALTER COLUMN s.x COMMENT 'a nested comment'",
        "ALTER COLUMN L.ELEMENT.Z COMMENT 'in any letter case'",
        "ALTER s SET DATA TYPE STRUCT(w INTEGER, Y VARCHAR, v STRUCT(u INTEGER)[])",
        "ALTER l SET DATA TYPE STRUCT(n SMALLINT, Z BIGINT)[]",
    ],
    "drops, and fields alone": [
        "ALTER n.i SET TYPE BIGINT",
        "ADD COLUMN s.new_field INTEGER",
        "DROP COLUMN a",
        "DROP COLUMN s.x",
        "DROP COLUMN S.Y",
    ],
}


@pytest.mark.nightly
@pytest.mark.parametrize("statements", STATEMENTS.values(), ids=STATEMENTS)
def test_statements_one_after_the_other(
    lake: Lake, table: Table, tmp_path: Path, statements: list[str]
) -> None:
    """DuckDB and Spark read older rows alike after every few, a batch after all of them, and the past."""
    declare(
        table,
        "a bigint, s struct<x: bigint, y: string>, l array<struct<z: bigint>>, f double, i int, n struct<i: int>, "
        "g float, d decimal(9, 2)",
    )
    table.ingest(lines(tmp_path, RECORD, {**RECORD, "i": 1, "n": {"i": 1}, "g": 1.5, "d": 1.25}))
    snapshots = [table.format.load().snapshot or 0]
    for statement in statements:
        lake.alter(f"ALTER TABLE s.t {statement}")
        snapshots.append(table.format.load().snapshot or 0)
        assert snapshots[-1] == snapshots[-2] + 1, statement
        if len(snapshots) % 3 == 0:
            assert len(same(table.format, tmp_path)) == 2, statement
    table.ingest(lines(tmp_path, RECORD))
    assert len(same(table.format, tmp_path)) == 3
    for snapshot in snapshots[::4]:
        assert len(same(table.format, tmp_path, snapshot)) == 2


def test_what_a_default_does(lake: Lake, table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, {"a": 1}))
    lake.alter(
        "ALTER TABLE s.t ADD COLUMN p VARCHAR DEFAULT 'free'; ALTER TABLE s.t ALTER COLUMN p SET DEFAULT 'pro'"
    )
    assert [r["c1"] for r in same(table.format, tmp_path)] == ["free"]
    run(database(lake), "INSERT INTO lk.s.t (a) VALUES (2)")
    assert [r["c1"] for r in same(table.format, tmp_path)] == ["free", "pro"]
    (field,) = (f for f in table.schema().schema.struct.fields if f.name == "p")
    assert (field.initial_default, field.write_default) == ("free", "pro")


def test_docs_go_where_duckdb_shows_them(lake: Lake, table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, RECORD))
    lake.alter(
        "ALTER TABLE s.t ALTER COLUMN a COMMENT 'it''s'; ALTER TABLE s.t ALTER COLUMN s.x COMMENT 'inside'"
    )
    shown = run(
        database(lake), "SELECT column_name, comment FROM duckdb_columns() WHERE database_name = 'lk'"
    )
    assert ("a", "it's") in shown
    assert table.schema().schema.find(("s", "x")).doc == "inside"
    run(database(lake), "COMMENT ON COLUMN lk.s.t.a IS 'by DuckDB'")
    assert table.schema().schema.find(("a",)).doc == "by DuckDB"


REFUSED = [
    ("ALTER a SET TYPE DOUBLE", "cannot become"),
    ("ALTER a SET TYPE VARCHAR", "cannot become"),
    ("ALTER f SET TYPE REAL", "cannot become"),
    ("ADD COLUMN u UUID", "Spark writes it as text"),
    ("ADD COLUMN t TIME", "no type for it"),
    ("ADD COLUMN A BIGINT", "already"),
    ("RENAME f TO S", "already"),
    ("ADD PARTITION FIELD truncate(4, f)", "truncate"),
    ("ADD PARTITION FIELD s.y", "nested"),
    ("SET PARTITIONED BY (bucket(2147483648, a))", "from 1 to 2147483647"),
    ("ADD COLUMN v VARIANT", "v: .*variant"),
    ("DROP COLUMN nope", "there is no column nope"),
]


def test_what_is_refused(lake: Lake, table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, RECORD))
    before = table.format.load()
    for statement, says in REFUSED:
        with pytest.raises(DriftlineError, match=says):
            lake.alter(f"ALTER TABLE s.t {statement}")
        assert table.format.load() == before, statement
    same(table.format, tmp_path)


def test_what_duckdb_takes_though_it_loses_values(lake: Lake, table: Table, tmp_path: Path) -> None:
    """Text as JSON cannot be read any more where it is none: we never ask for it, and say what is wrong."""
    table.ingest(lines(tmp_path, {"a": "hello", "b": 9007199254740993}))
    run(database(lake), "ALTER TABLE lk.s.t ALTER a SET TYPE JSON")
    assert [r.a for r in table.read().collect()] == ["hello"]
    with pytest.raises(DataError, match="cannot become"):
        lake.alter("ALTER TABLE s.t ALTER b SET TYPE DOUBLE")
    table.ingest(lines(tmp_path, {"a": "again"}))
    assert {r.a for r in table.read().collect()} == {"hello", '"again"'}
    assert table.verify(lines(tmp_path, {"a": "hello", "b": 9007199254740993}, {"a": "again"}), "json").found


BOUNDS = {
    "TINYINT": (-128, 127), "SMALLINT": (-32768, 32767), "INTEGER": (-(2**31), 2**31 - 1),
    "UTINYINT": (0, 255), "USMALLINT": (0, 65535), "UINTEGER": (0, 2**32 - 1),
    "BIGINT": (-(2**63), 2**63 - 1), "UBIGINT": (0, 2**64 - 1),
}  # fmt: skip
PROMOTIONS = [
    ("TINYINT", "SMALLINT"), ("TINYINT", "INTEGER"), ("TINYINT", "BIGINT"), ("SMALLINT", "INTEGER"),
    ("SMALLINT", "BIGINT"), ("INTEGER", "BIGINT"), ("UTINYINT", "USMALLINT"), ("UTINYINT", "UINTEGER"),
    ("UTINYINT", "UBIGINT"), ("USMALLINT", "UINTEGER"), ("USMALLINT", "UBIGINT"), ("UINTEGER", "UBIGINT"),
]  # fmt: skip


@pytest.mark.nightly
def test_the_seeds_promotions_of_integers(lake: Lake, table: Table, tmp_path: Path) -> None:
    """At the top, in a struct and in a list of structs; in files, and in rows that the catalog keeps itself."""
    catalog = database(lake)
    assert catalog is not None

    def row(i: int, side: int) -> str:
        old, new = PROMOTIONS[i]
        value = BOUNDS[old if side < 2 else new][side % 2]
        return f"{value}, {{'x': {value}}}, [{{'y': {value}}}]"

    columns = [f"c{i} {t}, s{i} STRUCT(x {t}), l{i} STRUCT(y {t})[]" for i, (t, _) in enumerate(PROMOTIONS)]
    sides = [f"SELECT {', '.join(row(i, side) for i in range(len(PROMOTIONS)))}" for side in range(4)]
    catalog.make()
    run(
        catalog,
        "CREATE SCHEMA lk.s",
        f"CREATE TABLE lk.s.t ({', '.join(columns)})",
        f"INSERT INTO lk.s.t {sides[0]}",
        f"INSERT INTO lk.s.t {sides[1]} FROM range(20)",
    )
    before = table.format.load().snapshot
    lake.alter(
        ";".join(
            f"ALTER TABLE s.t ALTER {path} SET TYPE {new}"
            for i, (_, new) in enumerate(PROMOTIONS)
            for path in (f"c{i}", f"s{i}.x", f"l{i}.element.y")
        )
    )
    types = dict(run(catalog, "SELECT column_name, column_type FROM (DESCRIBE lk.s.t)"))
    for i, (_, new) in enumerate(PROMOTIONS):
        assert (types[f"c{i}"], types[f"s{i}"], types[f"l{i}"]) == (
            new,
            f"STRUCT(x {new})",
            f"STRUCT(y {new})[]",
        )
    assert len(same(table.format, tmp_path)) == 21
    run(catalog, f"INSERT INTO lk.s.t {sides[2]}", f"INSERT INTO lk.s.t {sides[3]} FROM range(20)")
    assert len(same(table.format, tmp_path)) == 42
    assert len(same(table.format, tmp_path, before)) == 21
    with pytest.raises(DataError, match="cannot undo"):
        table.undo()
    assert len(same(table.format, tmp_path)) == 42


ONLY_DUCKDB_PROMOTES = [
    ("TINYINT", "-128, 127", "DOUBLE"),
    ("INTEGER", "-2147483648, 7", "DECIMAL(18, 2)"),
    ("UINTEGER", "4294967295, 0", "BIGINT"),
    ("BIGINT", "9007199254740993, -5", "DOUBLE"),
    ("DECIMAL(9, 2)", "1234567.89, -0.01", "DECIMAL(18, 4)"),
    ("DECIMAL(9, 2)", "1234567.89, -0.01", "DOUBLE"),
    ("FLOAT", "0.1, 'NaN'", "DOUBLE"),
    ("DATE", "'0001-01-01', '2026-01-02'", "TIMESTAMP"),
    ("DATE", "'1850-01-01', '2026-01-02'", "TIMESTAMPTZ"),
    ("TIMESTAMP", "'1850-01-01 01:02:03.000004', '2026-01-02'", "TIMESTAMPTZ"),
    ("TIMESTAMP_S", "'1850-01-01 01:02:03', '2026-01-02'", "TIMESTAMP"),
    ("VARCHAR", "'[1, 2]', '7'", "JSON"),
    ("INTEGER", "1, 2", "JSON"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("columns", "rows"),
    # DuckDB fails to read booleans as numbers where the catalog keeps the rows.
    [([("BOOLEAN", "true, false", "INTEGER")], 20), (ONLY_DUCKDB_PROMOTES, 2)],
    ids=["in files", "in the catalog, too"],
)
def test_what_only_duckdb_promotes(
    lake: Lake, table: Table, tmp_path: Path, columns: list[tuple[str, str, str]], rows: int
) -> None:
    """Spark reads the old values as DuckDB does: columns of each type, and fields of it in structs."""
    database(lake).make()
    pairs = [values.rsplit(", ", 1) for _, values, _ in columns]
    named = ", ".join(f"a{i} {type_}, s{i} STRUCT(x {type_})" for i, (type_, *_) in enumerate(columns))
    first = ", ".join(f"{one}, {{'x': {two}}}" for one, two in pairs)
    second = ", ".join(f"{two}, {{'x': {one}}}" for one, two in pairs)
    run(
        database(lake),
        "CREATE SCHEMA lk.s",
        f"CREATE TABLE lk.s.t ({named})",
        f"INSERT INTO lk.s.t SELECT {first} FROM range({rows})",
        f"INSERT INTO lk.s.t SELECT {second} FROM range(20)",
        *(f"ALTER TABLE lk.s.t ALTER a{i} SET DATA TYPE {new}" for i, (*_, new) in enumerate(columns)),
        *(
            f"ALTER TABLE lk.s.t ALTER s{i} SET DATA TYPE STRUCT(x {new})"
            for i, (*_, new) in enumerate(columns)
        ),
    )
    assert len(same(table.format, tmp_path)) == 20 + rows
    for i, (old, *_) in enumerate(columns):
        with pytest.raises(DriftlineError):
            lake.alter(f"ALTER TABLE s.t ALTER a{i} SET TYPE {old.replace('TIMESTAMP', 'TIMESTAMP_NTZ')}")


@pytest.mark.nightly
def test_old_types_outlive_a_compaction(lake: Lake, table: Table, tmp_path: Path) -> None:
    """DuckDB writes files anew with the types that they had: only the files know."""
    database(lake).make()
    run(
        database(lake),
        "CREATE SCHEMA lk.s",
        "CREATE TABLE lk.s.t (a UINTEGER, l INTEGER[])",
        "INSERT INTO lk.s.t SELECT range, [range] FROM range(20)",
        "INSERT INTO lk.s.t SELECT range, [range] FROM range(20)",
        "INSERT INTO lk.s.t SELECT 4294967295, [7]",
    )
    lake.alter("ALTER TABLE s.t ALTER a TYPE UBIGINT")
    run(
        database(lake),
        "ALTER TABLE lk.s.t ALTER l SET DATA TYPE DOUBLE[]",
        "INSERT INTO lk.s.t SELECT 18446744073709551615, [0.5] FROM range(20)",
        "DELETE FROM lk.s.t WHERE a < 15",
    )
    assert len(same(table.format, tmp_path)) == 31
    for call in ("ducklake_flush_inlined_data('lk')", "ducklake_merge_adjacent_files('lk')",
                 "ducklake_rewrite_data_files('lk', delete_threshold => 0.1)"):  # fmt: skip
        run(database(lake), f"CALL {call}")
        assert len(same(table.format, tmp_path)) == 31
    table.ingest(lines(tmp_path, {"l": [1, 0.25]}))
    assert len(same(table.format, tmp_path)) == 32


def test_parts_of_a_date_side_by_side(lake: Lake, table: Table, tmp_path: Path) -> None:
    """They are the calendar's in DuckLake, and each parts further."""
    table.ingest(lines(tmp_path, {"d": "2025-12-31", "n": 1}))
    lake.alter(
        "ALTER TABLE s.t SET PARTITIONED BY (year(d), month(d)); ALTER TABLE s.t ADD PARTITION FIELD day(d)"
    )
    table.ingest(lines(tmp_path, {"d": "2026-01-02", "n": 2}, {"d": "2026-02-02", "n": 3}, {"n": 4}))
    assert len(same(table.format, tmp_path)) == 4
    assert [(g.by, g.files, g.records, g.current) for g in table.layout().groups] == [
        ((), 1, 1, False),
        (("year(d)", "month(d)", "day(d)"), 3, 3, True),
    ]
    with pytest.raises(DataError, match="already"):
        lake.alter("ALTER TABLE s.t ADD PARTITION FIELD month(d)")
    lake.alter("ALTER TABLE s.t DROP PARTITION FIELD day(d)")
    table.undo()
    assert [g.by for g in table.layout().groups if g.current] == [("year(d)", "month(d)", "day(d)")]


@pytest.mark.nightly
def test_history_and_undo(lake: Lake, table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, {"a": 1, "b": "x"}))
    lake.alter("ALTER TABLE s.t RENAME a TO c")
    table.ingest(lines(tmp_path, {"a": "y", "b": "y"}))
    lake.alter("ALTER TABLE s.t DROP COLUMN b")
    table.ingest(lines(tmp_path, {"a": 2}))
    past = table.history()
    assert [entry.by for entry in past.entries] == ["batch", "alter", "batch", "alter"]
    assert past.whole
    undone = table.undo()
    assert {v.path: v.count for v in undone.back} == {"b": 2}
    rows = same(table.format, tmp_path)
    assert sorted(str(r["c1"]) for r in rows) == ["None", "x", "y"]
    table.ingest(lines(tmp_path, {"b": "z"}))
    assert len(same(table.format, tmp_path)) == 4


def test_rename_a_table(lake: Lake, table: Table, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"a": 1}\nbroken')
    table.ingest(file)
    lake.alter("ALTER TABLE lake.s.t RENAME TO lake.s.u")
    assert not table.format.load().exists
    assert len(same(lake.table("s.u").format, tmp_path)) == 1
    assert lake.sql("select * from s.u__quarantine").count() == 1
    for other in ("other.u", "lake.other.u"):
        with pytest.raises(DataError, match="another namespace"):
            lake.alter(f"ALTER TABLE s.u RENAME TO {other}")
    lake.alter("ALTER TABLE s.u RENAME TO v")
    assert lake.sql("select * from s.v__quarantine").count() == 1


@pytest.mark.nightly
def test_partitioned_and_sorted(lake: Lake, table: Table, tmp_path: Path) -> None:
    declare(table, "d date, k string, n bigint, ts timestamp")
    lake.alter("ALTER TABLE s.t SET PARTITIONED BY (k, bucket(4, n)); ALTER TABLE s.t SET SORTED BY (n DESC)")
    table.ingest(lines(tmp_path, {"d": "2026-01-02", "k": "first", "n": 1}))
    same(table.format, tmp_path)
    # The parts of a calendar, side by side as DuckLake has them.
    run(database(lake), "ALTER TABLE lk.s.t SET PARTITIONED BY (year(d), month(d), k, bucket(4, n))")
    records = [
        {"d": f"2026-0{i % 3 + 1}-02", "k": k, "n": i}
        for i in range(12)
        for k in ("a", "", "x/y z=ü%", None, "l" * 300)
    ]
    table.ingest(lines(tmp_path, *records, {"n": None}))
    assert len(same(table.format, tmp_path)) == 62
    for where in ("k = ''", "k = 'x/y z=ü%'", "k IS NULL", f"k = '{'l' * 300}'", "n = 7", "d = '2026-02-02'"):
        ours = table.read().where(where).count()
        assert run(database(lake), f"SELECT count(*) FROM lk.s.t WHERE {where}") == [(ours,)]
    files = database(lake).read(
        lambda c: c.rows("SELECT partition_value, count(*) FROM meta.ducklake_file_partition_value "
                         "WHERE partition_key_index = 1 GROUP BY 1 ORDER BY 1")
    )  # fmt: skip
    assert {value for value, _ in files} >= {"1", "2", "3", None}
    # It cannot have a path for the long one.
    more = "INSERT INTO lk.s.t SELECT * FROM lk.s.t WHERE (length(k) < 200 AND k <> 'first') OR k IS NULL"
    ours = folders(lake)
    run(database(lake), more)
    assert folders(lake) == ours
    run(database(lake), "CALL ducklake_merge_adjacent_files('lk')")
    assert len(same(table.format, tmp_path)) == 111
    lake.alter("ALTER TABLE s.t RESET PARTITIONED BY; ALTER TABLE s.t RESET SORTED BY")
    table.ingest(lines(tmp_path, {"n": 1}))
    assert len(same(table.format, tmp_path)) == 112


def sort_keys(lake: Lake) -> list[str]:
    rows = database(lake).read(
        lambda c: c.rows("SELECT e.expression FROM meta.ducklake_sort_info i JOIN meta.ducklake_sort_expression e "
                         "USING (sort_id) WHERE i.end_snapshot IS NULL ORDER BY e.sort_key_index")
    )  # fmt: skip
    return [expression for (expression,) in rows]


def written_by_duckdb(lake: Lake, table: Table, tmp_path: Path, column: str) -> None:
    """That DuckDB inserts, flushes and merges by the sort keys, and all of it reads."""
    before = table.read().count()
    for setting in (0, 10):
        run(database(lake), f"CALL lk.set_option('data_inlining_row_limit', {setting})",
            f"INSERT INTO lk.s.t ({column}) VALUES (3), (1)")  # fmt: skip
    run(database(lake), "CALL ducklake_flush_inlined_data('lk')", "CALL ducklake_merge_adjacent_files('lk')")
    table.ingest(lines(tmp_path, {"other": 1}))
    assert len(same(table.format, tmp_path)) == before + 5


@pytest.mark.nightly
def test_a_sort_key_follows_its_column(lake: Lake, table: Table, tmp_path: Path) -> None:
    declare(table, "n bigint, m bigint, other bigint, s struct<x: bigint>")
    lake.alter("ALTER TABLE s.t SET SORTED BY (n DESC, m)")
    lake.alter('ALTER TABLE s.t RENAME n TO `a "b"`')
    assert sort_keys(lake) == ['"a ""b"""', '"m"']
    written_by_duckdb(lake, table, tmp_path, '"a ""b"""')
    table.undo()
    assert sort_keys(lake) == ['"n"', '"m"']
    written_by_duckdb(lake, table, tmp_path, "n")
    # Two names change places, and what is no key has no part in it.
    lake.alter(
        "ALTER TABLE s.t RENAME n TO tmp; ALTER TABLE s.t RENAME m TO n; ALTER TABLE s.t RENAME tmp TO m"
    )
    assert sort_keys(lake) == ['"m"', '"n"']
    lake.alter("ALTER TABLE s.t RENAME s.x TO y; ALTER TABLE s.t RENAME other TO another")
    assert sort_keys(lake) == ['"m"', '"n"']
    assert table.layout().sort == ("m desc", "n")
    written_by_duckdb(lake, table, tmp_path, "m")


@pytest.mark.nightly
def test_a_sort_expression_follows_its_columns(lake: Lake, table: Table, tmp_path: Path) -> None:
    declare(table, "id bigint, k string, other bigint, s struct<x: bigint>")
    run(
        database(lake),
        "ALTER TABLE lk.s.t SET SORTED BY (lower(k) DESC, id, K || 'k', struct_extract(s, 'x'))",
    )
    lake.alter("ALTER TABLE s.t RENAME k TO lower; ALTER TABLE s.t RENAME id TO n")
    assert sort_keys(lake) == [
        'lower("lower")',
        '"n"',
        """("lower" || 'k')""",
        """struct_extract("s", 'x')""",
    ]
    written_by_duckdb(lake, table, tmp_path, "n")
    for statement, path in (
        ("DROP COLUMN lower", "lower"),
        ("DROP COLUMN n", "n"),
        ("RENAME s.x TO y", "s.x"),
    ):
        with pytest.raises(
            DataError, match=f"{path} cannot be .*: the sort (expression .*|order) is made of"
        ):
            lake.alter(f"ALTER TABLE s.t {statement}")
    with pytest.raises(DataError, match="lower cannot be folded: the sort expression"):
        table.resolve("k", "long", dry_run=True)


@pytest.mark.nightly
def test_sorted_by_expressions(lake: Lake, table: Table, tmp_path: Path) -> None:
    declare(table, "a bigint, name string, at timestamp, other bigint, s struct<x: bigint>")
    lake.alter("ALTER TABLE s.t ADD COLUMN b string; ALTER TABLE s.t SET SORTED BY (lower(NAME) || B DESC, year(at), a); "
               "ALTER TABLE s.t RENAME b TO `c d`")  # fmt: skip
    assert sort_keys(lake) == ["""(lower("name") || "c d")""", '"year"("at")', '"a"']
    assert table.layout().sort == ("(lower(name) || c d) desc", '"year"(at)', "a")
    table.ingest(lines(tmp_path, {"a": 1, "name": "B", "at": "2026-01-02T00:00:00Z"}, {"a": 2, "name": "a"}))
    written_by_duckdb(lake, table, tmp_path, "a")
    assert not lake.alter("ALTER TABLE s.t SET SORTED BY (lower(name) || `c d` DESC, year(at), a)").changes
    lake.alter(
        "ALTER TABLE s.t RENAME name TO n; ALTER TABLE s.t SET SORTED BY (a % 10 NULLS LAST, lower(n))"
    )
    assert table.layout().to_dict()["sort"] == ["(a % 10) nulls last", "lower(n)"]
    last = table.history().entries[-1].to_dict()
    assert (last["sort_before"][0], last["sort"]) == (
        "(lower(name) || c d) desc",
        ["(a % 10) nulls last", "lower(n)"],
    )
    written_by_duckdb(lake, table, tmp_path, "a")
    table.undo()
    assert table.layout().sort == ("(lower(name) || c d) desc", '"year"(at)', "a")
    for statement, why in (
        ("DROP COLUMN name", "name cannot be dropped: the sort expression .* is made of it"),
        ("SET SORTED BY ((SELECT max(a) FROM t))", "has a subquery in it"),
        ("SET SORTED BY (sum(a))", "has the aggregate function sum in it"),
        ("SET SORTED BY (row_number() OVER (ORDER BY a))", "has a window function in it"),
        ("SET SORTED BY (lower(nam))", "there is no column nam"),
        ("SET SORTED BY (a + s.x)", "s.x is not one"),
        ("SET SORTED BY (a FROM s.t)", "is not one expression"),
        ("SET SORTED BY (a b)", "is not one expression"),
        ("SET SORTED BY (a +)", "DuckDB cannot read the expression a +"),
        ("SET SORTED BY (random())", "names no column"),
        ("SET SORTED BY (lower(s))", "DuckDB cannot sort by lower"),
        ("SET SORTED BY (bucket(8, a))", "DuckDB cannot sort by bucket"),
    ):
        with pytest.raises(DriftlineError, match=why):
            lake.alter(f"ALTER TABLE s.t {statement}")
    several = SetSortOrder((SortTerm("a, name"),))
    with pytest.raises(DriftlineError, match="is not one expression"):
        table.alter(several)
    lake.alter("ALTER TABLE s.t RESET SORTED BY; ALTER TABLE s.t DROP COLUMN name")
    assert not sort_keys(lake)


def folders(lake: Lake) -> set[Path]:
    return {file.parent for file in Path(database(lake).data).rglob("*.parquet")}


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10 if FUZZ else 2))
def test_any_sequence(lake: Lake, table: Table, tmp_path: Path, seed: int) -> None:
    """DuckDB and Spark read the same rows after every step, and at each third snapshot of the end.

    `make fuzz ARGS=tests/lake/test_ducklake_alter.py` goes on from more seeds, and for more steps.
    """
    rng = random.Random(seed)
    table.ingest(lines(tmp_path, RECORD, {"a": 2}))
    done: list[str] = []
    for step in range(14 if FUZZ else 10):
        try:
            rng.choice(steps(lake, table, tmp_path, rng, step))()
            done.append("done")
        except DriftlineError as error:
            done.append(error.message)
        same(table.format, tmp_path)
    newest = table.format.load().snapshot or 0
    for at in range(1, newest + 1, 3):
        same(table.format, tmp_path, at)
    assert done.count("done") * 2 >= len(done), done


def steps(
    lake: Lake, table: Table, tmp_path: Path, rng: random.Random, step: int
) -> list[Callable[[], object]]:
    """The steps that may come next."""
    columns = [p for p in names(table) if "element" not in p.split(".")[-1:]]
    some, other = rng.choice(columns), f"n{step}"
    parent = rng.choice(["", *(f"{p}." for p in ("s", "l.element") if f"{p}.x" in columns or p == "s")])
    return [
        lambda: table.ingest(lines(tmp_path, *(record(rng) for _ in range(rng.randrange(1, 4))))),
        lambda: table.ingest(lines(tmp_path, *(record(rng) for _ in range(rng.randrange(1, 4))))),
        lambda: lake.alter(f"ALTER TABLE s.t ADD COLUMN {parent}{other} INTEGER DEFAULT {step}"),
        lambda: lake.alter(f"ALTER TABLE s.t RENAME {some} TO {other}"),
        lambda: lake.alter(f"ALTER TABLE s.t DROP COLUMN {some}"),
        lambda: lake.alter(f"ALTER TABLE s.t ALTER COLUMN {some} FIRST"),
        lambda: by_duckdb(table, f"ALTER TABLE lk.s.t ADD COLUMN {parent}{other} VARCHAR DEFAULT 'd'"),
        lambda: by_duckdb(table, f"ALTER TABLE lk.s.t RENAME {some} TO {other}"),
        lambda: by_duckdb(table, "INSERT INTO lk.s.t SELECT * FROM lk.s.t LIMIT 3"),
        lambda: by_duckdb(table, "DELETE FROM lk.s.t WHERE rowid % 5 = 1"),
        lambda: by_duckdb(table, "CALL ducklake_merge_adjacent_files('lk')"),
        lambda: by_duckdb(table, "CALL ducklake_flush_inlined_data('lk')"),
    ]


def by_duckdb(table: Table, statement: str) -> None:
    import duckdb

    try:
        run(table.format.catalog, statement)
    except duckdb.Error as error:
        raise DataError(str(error)) from error


def record(rng: random.Random) -> dict[str, Any]:
    values: list[Any] = [None, 1, -5, 2.5, "x", True, "2026-01-02", [1, "y"], {"q": 1}]
    made = {k: rng.choice(values) for k in rng.sample(["a", "b", "f", "z"], 2)}
    if rng.random() < 0.5:
        made["s"] = {k: rng.choice(values) for k in rng.sample(["x", "y", "w"], 2)}
    if rng.random() < 0.5:
        made["l"] = [{"z": rng.choice(values)}, None, {"v": 1}][: rng.randrange(1, 4)]
    return made
