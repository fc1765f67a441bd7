"""The check over whole tables: made by hand, so that nothing of the ingesting code is trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.shapes import schema
from driftline.core.planning.own_columns import REST
from driftline.core.schema.types import Field, Schema, Struct
from driftline.core.settings.properties import as_properties, from_properties
from driftline.verify import Mismatch, Stored, Verdict, frames, verify

pyspark_sql = pytest.importorskip("pyspark.sql")
pytestmark = pytest.mark.usefixtures("columns_first")

TABLE = "lake.verify.t"
KEPT = f"{TABLE}__quarantine"
KEPT_RECORD = '{"id":4,"a":"kept in quarantine"}'
ELSEWHERE = "insert into {t} values (99, 1, '1', null, null, 'from elsewhere')"
COLUMNS = (
    'id: long, a: long, a_string@a: string, at: timestamp, s: {x: double, y: string[1]}, "odd. `name": string'
)
DDL = "id bigint, a bigint, a_string string, at timestamp, s struct<x: double, y: array<string>>, `odd. ``name` string"
SOURCE = r"""
{"id": 1, "a": 9007199254740993, "at": "2024-01-02T03:04:05.000006Z", "s": {"x": 0.1, "y": ["p", null, "q"]}}
{"id": 2, "a": "two", "odd. `name": "x"}
{"id": 2, "a": "two", "odd. `name": "x"}
{"id": 3, "s": {"x": 2.50, "y": []}, "none": [{}]}

broken
{"id": 4, "a": "kept in quarantine"}
"""
ROWS = """
    (1, 9007199254740993, '9007199254740993', timestamp'2024-01-02T03:04:05.000006Z',
     named_struct('x', 0.1d, 'y', array('p', null, 'q')), null),
    (2, null, 'two', null, null, 'x'), (2, null, 'two', null, null, 'x'),
    (3, null, null, null, named_struct('x', 2.5d, 'y', array()), null),
    (99, 1, '1', null, null, 'from elsewhere')
"""

Check = Callable[..., Verdict]


@pytest.mark.nightly
def test_few_rows_stay_in_one_task_and_many_are_dealt_to_all(spark):
    few, many = (spark.range(0, n, 1, 1) for n in (1000, 100_000))
    assert (frames.rows(few).getNumPartitions(), frames.rows(many).getNumPartitions()) == (1, 2)
    assert frames.rows(few).count() == 1000
    assert frames.rows(many).map(lambda row: row["id"]).sum() == sum(range(100_000))


@pytest.fixture
def check(spark: Any, tmp_path: Path) -> Iterator[Check]:
    """Checks the source, once the table was made and these statements tampered with it."""
    source = tmp_path / "source.jsonl"
    source.write_text(SOURCE)

    def check(
        *tampering: str, quarantined: tuple[str, ...] = ("broken", KEPT_RECORD), exactly: bool = False
    ) -> Verdict:
        spark.sql("create namespace if not exists lake.verify")
        spark.sql(f"create table {TABLE} ({DDL}) using iceberg")
        spark.sql(f"insert into {TABLE} values {ROWS}")
        kept = [(raw, None) for raw in quarantined]
        spark.createDataFrame(kept, "raw string, raw_bytes binary").writeTo(KEPT).create()
        for statement in tampering:
            spark.sql(statement.format(t=TABLE))
        stored = Stored(TABLE, schema(COLUMNS), KEPT)
        return verify(spark, stored, [str(source)], "json", exactly=exactly)

    yield check
    spark.sql(f"drop table if exists {TABLE} purge")
    spark.sql(f"drop table if exists {KEPT} purge")


def found(verdict: Verdict) -> list[tuple[str, str, str]]:
    """Path, line and reason of each mismatch."""
    return [(m.path, m.place.rpartition(":")[2], m.why) for m in verdict.mismatches]


def test_nothing_is_lost(check: Check, spark: Any) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")

    assert check() == Verdict(records=6, found=4, quarantined=2, missing=0)
    assert spark.conf.get("spark.sql.session.timeZone") == zone


def test_tampering_is_found(check: Check) -> None:
    verdict = check(
        "update {t} set a = 9007199254740992 where id = 1",
        "update {t} set s = named_struct('x', 2.5d, 'y', array('z')) where id = 3",
        quarantined=("broken",),
    )

    assert (verdict.ok, verdict.found, verdict.quarantined, verdict.missing) == (False, 2, 1, 3)
    assert found(verdict) == [
        ("a", "2", "a holds 9007199254740992, the record has 9007199254740993"),
        ("s.y", "5", "y holds ['z'], the record has no value there"),
        ("", "8", "the record is not in the table"),
    ]
    assert verdict.to_dict()["mismatches"][0]["sample"] == "9007199254740993"


def test_each_record_must_be_there_as_often(check: Check) -> None:
    verdict = check(
        "delete from {t} where id = 2",
        "insert into {t} values (2, null, 'two', null, null, 'x')",
        quarantined=('{"id": 4, "a": "kept in quarantine"}',),
    )

    assert found(verdict) == [
        ("", "4", "2 times in the source, 1 in the table"),
        ("", "7", "not JSON: Expecting value: line 1 column 1 (char 0), and not in quarantine"),
    ]


@pytest.mark.nightly
def test_a_list_without_a_value_made_null_is_found(check: Check) -> None:
    verdict = check("update {t} set s = named_struct('x', 2.5d, 'y', null) where id = 3")

    assert found(verdict) == [("s.y", "5", "y holds null, the record has []")]


@pytest.mark.nightly
def test_a_swap_between_rows_is_found(check: Check) -> None:
    verdict = check(
        "update {t} set at = null where id = 1",
        "update {t} set at = timestamp'2024-01-02T03:04:05.000006Z' where id = 3",
    )

    assert [(path, line) for path, line, _ in found(verdict)] == [("at", "2"), ("at", "5")]


@pytest.mark.nightly
def test_typed_files(spark: Any, tmp_path: Path) -> None:
    for i, rows in enumerate(
        (
            "select 1 id, 0.1f f, timestamp'2024-01-02T03:04:05Z' at, map('k', 1L, 'n', null) m, x'ff' b",
            "select 2L id, 'x' f, timestamp_ntz'2024-01-02T03:04:05' local, named_struct('p', 1.50BD) s",
        )
    ):
        spark.sql(rows).coalesce(1).write.parquet(f"{tmp_path}/{i}")
    files = [str(f) for f in sorted(tmp_path.glob("*/*.parquet"))]
    columns = """id: long, f: float, f_string@f: string, at: timestamp, m: map<string, long>, b: binary,
                 local: timestamp_ntz, s: {p: decimal(5,2)}"""
    rows = """
        select 1L id, 0.1f f, '0.1' f_string, timestamp'2024-01-02T03:04:05Z' at, map('k', 1L, 'n', null) m, x'ff' b,
               timestamp_ntz'{local}' local, named_struct('p', 1.5BD) s where false union all
        select 1, 0.1f, '0.1', timestamp'2024-01-02T03:04:05Z', map('k', 1L, 'n', null), x'ff', null, null union all
        select 2, null, 'x', null, null, null, timestamp_ntz'{local}', named_struct('p', 1.5BD)
    """

    def checked(local: str) -> Verdict:
        stored = Stored(spark.sql(rows.format(local=local)), schema(columns))
        return verify(spark, stored, files, "parquet")

    assert checked("2024-01-02T03:04:05") == Verdict(2, 2, 0, 0)
    assert checked("2024-01-02T03:04:06").mismatches == (
        Mismatch(
            "local",
            files[1],
            "2024-01-02 03:04:05",
            "2024-01-02 03:04:05 is in no column; column local holds 2024-01-02 03:04:06",
        ),
    )


def test_csv(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("id,code,note\n1,007,\n2,x,y\n3,a,b,c\n")
    table = spark.createDataFrame([(1, "007", None), (2, "x", "z")], "id long, code string, note string")
    kept = spark.createDataFrame([("3,a,b,c", None)], "raw string, raw_bytes binary")

    stored = Stored(table, schema("id: long, code: string, note: string"), kept)
    verdict = verify(spark, stored, [str(source)], "csv")

    assert (verdict.found, verdict.quarantined, verdict.missing) == (1, 1, 1)
    assert found(verdict) == [("note", "3", "'y' is in no column; column note holds 'z'")]


def test_records_are_held_against_the_expectations_by_which_the_table_took_their_file(
    spark: Any, tmp_path: Path
) -> None:
    new, old = tmp_path / "new.csv", tmp_path / "old.csv"
    new.write_text("id,price\n1,2\n2,-2\n3,-3\n4,x\n")
    old.write_text("id,price\n5,-5\n")
    rows = [(1, 2, None), (2, -2, None), (4, None, "x"), (5, -5, None)]
    table = spark.createDataFrame(rows, "id long, price long, price_string string")
    kept = spark.createDataFrame(
        [("3,-3", None, "expect price")], "raw string, raw_bytes binary, reason string"
    )
    properties = as_properties({"expect.price": "price >= 0 else quarantine"})
    stored = Stored(
        table,
        schema("id: long, price: long, price_string@price: string"),
        kept,
        properties,
        readings={str(old): dict.fromkeys(properties, "")},
        expect=from_properties(properties).expect,
    )

    verdict = verify(spark, stored, [str(new), str(old)], "csv")
    assert (verdict.found, verdict.quarantined, verdict.missing) == (3, 1, 1)
    assert found(verdict) == [("", "3", "it does not meet the expectation price, and is not in quarantine")]
    verdict = verify(spark, replace(stored, readings={}), [str(old)], "csv")
    assert (verdict.found, verdict.missing) == (0, 1)


EXTRA = [
    ((), ("broken", KEPT_RECORD), []),
    (("insert into {t} values (2, null, 'two', null, null, 'x')",), ("broken", KEPT_RECORD),
     [("{id: 2, a_string: 'two', odd. `name: 'x'}", "3 times in the table, 2 in the source")]),
    ((ELSEWHERE,), ("broken", KEPT_RECORD),
     [("{id: 99, a: 1, a_string: '1', odd. `name: 'from elsewhere'}", "in the table, not in the source")]),
    ((), ("broken", "broken", KEPT_RECORD, '{"id": 5}'),
     [("'broken'", "2 times in quarantine, 1 in the source"),
      ("'{\"id\":5}'", "in quarantine, not in the source")]),
    (("insert into {t} values (4, null, 'kept in quarantine', null, null, null)",), ("broken", KEPT_RECORD),
     [('\'{"a":"kept in quarantine","id":4}\'', "in quarantine, not in the source")]),
]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize(("tampering", "quarantined", "extra"), EXTRA, ids=range(len(EXTRA)))
def test_exactly_as_many_rows_as_records(
    check: Check, tampering: tuple[str, ...], quarantined: tuple[str, ...], extra: list[tuple[str, str]]
) -> None:
    verdict = check("delete from {t} where id = 99", *tampering, quarantined=quarantined, exactly=True)

    assert (verdict.ok, verdict.missing, verdict.extra) == (not extra, 0, len(extra))
    assert sorted((m.sample, m.why) for m in verdict.mismatches) == sorted(extra)


def test_what_is_missing_and_what_is_too_many(check: Check) -> None:
    verdict = check("update {t} set a = 1 where id = 1", exactly=True)

    assert (verdict.missing, verdict.extra, len(verdict.mismatches)) == (1, 2, 3)


@pytest.mark.nightly
def test_a_list_without_a_value_is_kept_from_its_columns_first_batch_on(spark: Any, tmp_path: Path) -> None:
    older, younger = tmp_path / "older.jsonl", tmp_path / "younger.jsonl"
    older.write_text('{"id": 1, "a": []}\n{"id": 2, "a": []}\n')
    younger.write_text('{"id": 3, "a": [7]}\n{"id": 1, "a": []}\n{"id": 4}\n')

    def checked(*lists: list[int] | None) -> Verdict:
        rows = list(zip((1, 1, 2, 3, 4), lists, strict=True))
        table = spark.createDataFrame(rows, "id long, a array<long>")
        stored = Stored(table, schema("id: long, a: long[1]"))
        return verify(spark, stored, [str(older), str(younger)], "json")

    assert checked(None, [], None, [7], None) == Verdict(5, 5, 0, 0)
    assert checked([], [], [], [7], None) == Verdict(5, 5, 0, 0)

    lost = checked(None, None, None, [7], None)
    assert (lost.found, lost.missing) == (4, 1)
    assert [(m.path, m.sample, m.why) for m in lost.mismatches] == [
        ("a", "[]", "a holds null, the record has []")
    ]
    assert found(checked(None, [], None, [7], [])) == [
        ("a", "3", "a holds [], the record has no value there")
    ]

    # The file may have come in several batches, its first without a list that has values.
    younger.write_text('{"id": 1, "a": []}\n{"id": 3, "a": [7]}\n{"id": 4}\n')
    assert checked(None, None, None, [7], None).ok


def test_a_list_without_a_value_leaves_nothing_while_its_field_waits(spark: Any, tmp_path: Path) -> None:
    """The rest keeps values alone; the column that is made of them later knows no more."""
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2], "a": pa.array([[7], []], pa.list_(pa.int64()))}), file)
    waited = replace(REST, id=9)

    def checked(*rest: Field) -> Verdict:
        rows = [(1, [7], None), (2, None, None)]
        table = spark.createDataFrame(rows, "id long, a array<long>, _rest map<string, string>")
        columns = schema("id: long, a: long[1]").struct.fields
        stored = Stored(table.drop(*(() if rest else (REST.name,))), Schema(Struct((*columns, *rest))))
        return verify(spark, stored, [str(file)], "parquet")

    assert checked(waited).ok
    assert checked().missing == 1
