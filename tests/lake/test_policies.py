"""Policies on real tables: what is refused waits in quarantine, whole; rewrites change a column's type and nothing else."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline.errors import DataError, UsageError
from driftline.ingest.result import Result
from driftline.lake import Lake, Table
from driftline.quarantine import table as quarantine

X = None
# The seed's matrix with a value of each incoming type, and what the table then has for it.
SAMPLES = {
    "int": "7",
    "bigint": "8L",
    "float": "cast(1.5 as float)",
    "double": "2.5D",
    "string": "'text'",
    "binary": "cast('bytes' as binary)",
}
THERE = {
    "int": "1",
    "bigint": "2L",
    "float": "cast(0.5 as float)",
    "double": "0.25D",
    "string": "'there'",
    "binary": "cast('there' as binary)",
}
TYPES = tuple(SAMPLES)
MATRIX = [
    ("int",    "int",     "bigint",  "float",   "double",  "string", X),
    ("bigint", "bigint",  "bigint",  "float",   "double",  "string", X),
    ("float",  "float*",  "float*",  "float",   "double",  "string", X),
    ("double", "double*", "double*", "double",  "double",  "string", X),
    ("string", "string*", "string*", "string*", "string*", "string", "binary"),
    ("binary", X,         X,         X,         X,         "string", "binary"),
]  # fmt: skip


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def lines(folder: Path, *texts: str) -> Path:
    file = folder / "in.jsonl"
    file.write_text("\n".join(texts))
    return file


def kept(table: Table) -> list[Any]:
    return quarantine.of(table.format).read().orderBy("line", "raw").collect()


@pytest.mark.parametrize("rewrite", [False, True], ids=["", "allow_rewrite"])
@pytest.mark.parametrize("incoming", TYPES)
def test_the_matrix(spark: SparkSession, table: Table, incoming: str, rewrite: bool) -> None:
    """One table with a column of each type, at top level, in a struct, a list and a map; one row of the incoming type
    for each of the four places and six columns."""
    places = {
        "top": "{}",
        "nested": "named_struct('x', {})",
        "list": "array({})",
        "map": "map('k', {})",
    }
    cells = dict(zip(TYPES, next(row[1:] for row in MATRIX if row[0] == incoming), strict=True))
    columns = [f"{place}_{t}" for place in places for t in TYPES]
    there = ", ".join(
        f"{sql.format(THERE[t])} as {place}_{t}" for place, sql in places.items() for t in TYPES
    )
    table.ingest(spark.sql(f"select 0 as id, {there}"))
    ids_before = {f.name: f.id for f in table.schema().schema.struct.fields}
    sent = ", ".join(
        f"if(id = {i}, {places[c.split('_')[0]].format(SAMPLES[incoming])}, null) as {c}"
        for i, c in enumerate(columns, 1)
    )
    frame = spark.sql(f"select id, {sent} from range(1, {len(columns) + 1})")
    result = table.ingest(frame, settings={"policy": "widen", "allow_rewrite": rewrite})

    refused = {
        c for c in columns if (cell := cells[c.split("_")[1]]) is None or ("*" in cell and not rewrite)
    }
    assert (result.rows_written, result.rows_quarantined) == (24 - len(refused), len(refused))
    now = {f.name: f.dataType.simpleString() for f in table.read().schema.fields}
    shapes = {"top": "{}", "nested": "struct<x:{}>", "list": "array<{}>", "map": "map<string,{}>"}
    for column in columns:
        place, t = column.split("_")
        assert now[column] == shapes[place].format(t if column in refused else str(cells[t]).rstrip("*"))
    expected = ", ".join(
        f"cast({places[c.split('_')[0]].format(THERE[c.split('_')[1]])} as {now[c]}) as there_{c}, "
        f"cast({places[c.split('_')[0]].format(SAMPLES[incoming] if c not in refused else 'null')} as {now[c]}) as sent_{c}"
        for c in columns
    )
    (wanted,) = spark.sql(f"select {expected}").collect()
    rows = {row.id: row for row in table.read().collect()}
    for i, column in enumerate(columns, 1):
        assert rows[0][column] == wanted[f"there_{column}"], f"what was in {column} has another value"
        assert (i in rows) == (column not in refused)
        assert i not in rows or rows[i][column] == wanted[f"sent_{column}"], column
    ids = {f.name: f.id for f in table.schema().schema.struct.fields}
    same = {c for c in ids if c == "id" or c in refused or "*" not in str(cells[c.split("_")[1]])}
    assert {c: ids[c] for c in same} == {c: ids_before[c] for c in same}
    assert list(ids) == list(ids_before), "columns stay where they were"
    if refused:
        for row in kept(table):
            assert row.path.split(".")[0] in refused
            assert (
                row.incoming_type and row.table_type and row.raw.startswith("{") and row.batch == result.batch
            )


@pytest.mark.iceberg_only("reads the versions of Iceberg's metadata")
def test_a_rewrite_is_one_commit_and_history_goes_on(lake: Lake, table: Table, tmp_path: Path) -> None:
    first = table.ingest(lines(tmp_path, '{"id": 1, "a": 5, "l": [1], "s": {"x": 1, "y": "k"}}'))
    before = table.format.handle.java().currentSnapshot().snapshotId()
    versions = table.format.handle.java().operations().current().previousFiles().size()
    result = table.ingest(
        lines(tmp_path, '{"id": 2, "a": "x", "l": ["y"], "s": {"x": 2.5}, "new": true}'),
        settings={"policy": "widen", "allow_rewrite": "true"},
    )
    assert table.format.handle.java().operations().current().previousFiles().size() == versions + 1
    assert sorted((c.action, ".".join(c.path)) for c in result.changes) == [
        ("add", "new"), ("rewrite", "a"), ("rewrite", "l"), ("rewrite", "s.x"),
    ]  # fmt: skip
    assert [f.name for f in table.schema().schema.struct.fields] == ["id", "a", "l", "s", "new"]
    rows = {r.id: r.asDict(recursive=True) for r in table.read().collect()}
    assert rows[1] == {"id": 1, "a": "5", "l": ["1"], "s": {"x": 1.0, "y": "k"}, "new": None}
    assert rows[2] == {"id": 2, "a": "x", "l": ["y"], "s": {"x": 2.5, "y": None}, "new": True}
    (old,) = lake.sql(f"select * from lake.{table.name} version as of {before}").collect()
    assert (old.a, old.l, first.snapshot) == (5, [1], before)
    assert result.rows_written == 1


@pytest.mark.nightly
def test_a_rewrite_that_would_change_a_value_is_refused(lake: Lake, table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, '{"a": 9007199254740993, "b": 1}'))
    result = table.ingest(
        lines(tmp_path, '{"a": 0.5, "b": 0.5}', '{"a": 1, "b": 1.5}'),
        settings={"policy": "widen", "allow_rewrite": "true"},
    )
    assert [".".join(c.path) for c in result.changes] == ["b"]
    assert sorted((r.a, r.b) for r in table.read().collect()) == [(1, 1.5), (9007199254740993, 1.0)]
    assert [(r.path, r.table_type, r.incoming_type) for r in kept(table)] == [("a", "long", "double")]


FAILS = [
    ('{"a": "x"}', r"a: string into long in .*in\.jsonl:2: x"),
    ('{"a": {"b": 1}}', r"a: record into long in .*:2"),
    ('{"a": 1', r"1 record cannot be read; .*in\.jsonl:2: invalid JSON"),
]


@pytest.mark.parametrize("policy", ["widen", "strict"])
@pytest.mark.parametrize(("line", "message"), FAILS)
def test_fail_writes_nothing(table: Table, tmp_path: Path, policy: str, line: str, message: str) -> None:
    table.ingest(lines(tmp_path, '{"a": 1}'))
    version = table.format.load().version
    with pytest.raises(DataError, match=message) as raised:
        table.ingest(lines(tmp_path, '{"a": 2}', line), settings={"policy": policy, "on_conflict": "fail"})
    assert "quarantine" in str(raised.value.hint)
    assert table.format.load().version == version
    assert not quarantine.of(table.format).load().exists


def test_malformed_records_fail_under_preserve_too(table: Table, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="1 record cannot be read"):
        table.ingest(lines(tmp_path, '{"a": 1}', "no"), settings={"on_conflict": "fail"})
    assert not table.format.load().exists


@pytest.mark.iceberg_only("DuckLake has no identifier fields")
def test_an_identifier_without_a_value_waits_in_quarantine(lake: Lake, table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, '{"id": 1, "a": 1}'))
    update = table.format.handle.java().updateSchema().allowIncompatibleChanges().requireColumn("id")
    update.commit()
    table.format.handle.java().updateSchema().setIdentifierFields(["id"]).commit()
    result = table.ingest(lines(tmp_path, '{"id": 2, "a": 2}', '{"a": 3}', '{"id": null, "a": 4}'))
    assert (result.rows_written, result.rows_quarantined) == (1, 2)
    assert {(r.path, r.reason) for r in kept(table)} == {("id", "an identifier field has no value")}


def test_strict_wants_columns(table: Table, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="strict, and the table has no columns"):
        table.ingest(lines(tmp_path, '{"a": 1}'), settings={"policy": "strict"})
    result = table.ingest(
        lines(tmp_path, '{"a": 1, "b": {"c": 2}}', '{"d": 1}'),
        settings={"policy": "strict", "hints": {"a": "decimal(9,2)", "b": "struct<c: long>"}},
    )
    assert (result.rows_written, result.rows_quarantined) == (1, 1)
    assert [r.asDict(recursive=True) for r in table.read().collect()] == [
        {"a": Decimal("1.00"), "b": {"c": 2}}
    ]


def test_value_that_is_refused_in_two_files_names_both(table: Table, tmp_path: Path) -> None:
    table.ingest(lines(tmp_path, '{"a": 1}'))
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "x.jsonl").write_text('{"a": 2}\n{"a": "no"}\n{"a": "nor"}\n')
    (folder / "y.jsonl").write_text('{"a": "yes"}\n')
    result = table.ingest(folder, settings={"policy": "strict"})
    (conflict,) = result.to_dict()["conflicts"]
    assert (conflict["seen_in"], conflict["also_in"]) == (f"{folder}/x.jsonl:2", [f"{folder}/y.jsonl:1"])


def test_excluded_values_are_counted(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    settings = {"exclude": ["secret", "user.password", "items.pin"]}
    texts = (
        '{"a": 1, "secret": "s", "user": {"password": "p", "name": "n"}, "items": [{"pin": 1}, {"pin": 2}]}',
        '{"a": 2, "secret": null, "user": {"name": "m"}, "items": [{"id": 3}]}',
    )
    wanted = {"secret": 1, "user.password": 1, "items.pin": 1}
    result = table.ingest(lines(tmp_path, *texts), settings=settings)
    assert result.excluded == wanted
    assert table.verify([str(tmp_path / "in.jsonl")], "json").ok
    typed = spark.read.json(spark.sparkContext.parallelize(texts))
    assert table.ingest(typed).excluded == wanted
    assert table.schema().to_dict()["fields"][1]["type"]["fields"][0]["name"] == "name"
    for row in table.read().collect():
        assert set(row.asDict()) == {"a", "user", "items"}
        assert set(row.user.asDict()) == {"name"}
        assert not row["items"] or set(row["items"][0].asDict()) == {"id"}


def test_refused_rows_of_typed_sources(spark: SparkSession, table: Table) -> None:
    """Each row that has a value which does not fit, at any depth, and no other."""
    table.ingest(
        spark.sql("select 1L as id, array(named_struct('x', 1L)) as l, map('k', true) as m, 0.5D as d")
    )
    rows = spark.sql(
        """select * from values
        (1L, array(named_struct('x', 'text')), null, null),
        (2L, array(named_struct('x', null)), null, null),
        (3L, null, map('k', 1L), null),
        (4L, null, map('k', null), null),
        (5L, null, null, 9007199254740993L),
        (6L, null, null, 5L) as t(id, l, m, d)"""
    )
    result: Result = table.ingest(rows, settings={"policy": "widen"})
    assert (result.rows_written, result.rows_quarantined) == (3, 3)
    assert sorted(r.id for r in table.read().where("d is null or d <> 0.5").collect()) == [2, 4, 6]
    assert [(r.path, r.table_type, r.incoming_type, r.raw) for r in kept(table)] == [
        ("l.element.x", "long", "string", '{"id":1,"l":[{"x":"text"}]}'),
        ("m.value", "boolean", "long", '{"id":3,"m":{"k":1}}'),
        ("d", "double", "long", '{"id":5,"d":9007199254740993}'),
    ]
