"""Every source of `ingest`: files with a schema, CSV, JSON in a column, DataFrames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from driftline.errors import UsageError
from driftline.lake import Lake, Table
from driftline.readers.avro.files import avro_readers
from driftline.readers.columnar.parquet import parquet_readers
from driftline.runtime.spark_conf import FILES, configured
from driftline.sources.files import expand

from .proof import proven


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def types(table: Table) -> dict[str, str]:
    return {f.name: str(f.type) for f in table.schema().schema.struct.fields}


TYPED = """
select 1 as i, 2L as l, 1.5f as f, 2.5d as d, 19.99bd as m, true as b, 'x' as s, cast('y' as binary) as y, date'2024-02-29' as day,
       timestamp'2024-01-01T10:00:00.123456Z' as at, array(1, null) as a, array(array('p')) as aa,
       struct(1 as n, 'q' as t, array(struct(2.5d as price)) as items) as r
"""
SECOND = "select 'text' as i, 3 as l, 2.5d as f, date'2024-01-01' as d, struct('z' as n) as r, array('k') as a, 7 as fresh"


@pytest.mark.nightly
def test_records_in_a_list_of_each_document(table: Table, tmp_path: Path) -> None:
    answer = {
        "total": 2,
        "next": None,
        "data": {"page": 1, "rows": [{"id": 1, "p": 1.5}, {"id": 2, "p": "x"}, 7]},
    }
    file, lines = tmp_path / "a.json", tmp_path / "b.jsonl"
    lines.write_text('{"data": {"rows": [{"id": 3}]}}\n{"error": "limit"}\n{"data": {"rows": []}}\n')
    for indent in (None, 1):
        file.write_text(json.dumps(answer, indent=indent))
        (hint,) = table.ingest(file, dry_run=True).hints
        assert (
            hint
            == f"{file} is one object with a list of objects: --records data.rows ingests these as records"
        )
    result = table.ingest([file, lines], settings={"records": "data.rows"})
    assert (result.rows_read, result.rows_written, result.rows_quarantined) == (5, 3, 2)
    assert result.excluded == {"total": 1, "data.page": 1}
    assert {row.id for row in table.read().collect()} == {1, 2, 3}
    assert table.export_quarantine(tmp_path / "waiting.jsonl") == 2
    waiting = map(json.loads, (tmp_path / "waiting.jsonl").read_text().splitlines())
    assert {record["raw"] for record in waiting} == {"7", '{"error": "limit"}'}
    proven(table, [file, lines])


@pytest.mark.parametrize(
    ("name", "text"), [("a.log", '{"id": 1}\n'), ("a.txt", "id;x\n1;2\n"), ("a.tsv", "id\tx\n1\t2\n")]
)
def test_texts_are_read_as_what_they_hold(table: Table, tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    table.ingest(file)
    assert [row.id for row in table.read().collect()] == [1]
    assert table.verify([str(file)]).ok


@pytest.mark.iceberg_only("of the source alone")
def test_a_text_of_no_format_says_what_was_looked_for(table: Table, tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    file.write_text("2026-03-01 started\n2026-03-01 stopped, and gone\n")
    with pytest.raises(
        UsageError, match=r"app\.log: begins neither with JSON nor with rows .*\npass format=\"json\" or csv"
    ):
        table.ingest(file)


@pytest.mark.nightly
@pytest.mark.parametrize("fmt", ["parquet", "orc", "avro"])
def test_files_with_a_schema(table: Table, spark: SparkSession, tmp_path: Path, fmt: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    spark.sql(TYPED).coalesce(1).write.format(fmt).save(str(first))
    spark.sql(SECOND).coalesce(1).write.format(fmt).save(str(second))
    assert table.ingest(first).rows_written == 1
    result = table.ingest(second)
    assert result.rows_written == 1
    found = types(table)
    assert found["i_string"] == "string" and found["fresh"] == "int"
    assert found["f"] == "double", "float becomes double in place"
    assert {c["path"] for c in result.to_dict()["changes"] if c["action"] == "widen"} == {"f"}
    proven(table, [*first.glob(f"*.{fmt}"), *second.glob(f"*.{fmt}")], fmt)


@pytest.mark.parametrize("fmt", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("content", [b"", b"no such file, by its content"])
def test_a_file_that_is_no_such_file_is_told(table: Table, tmp_path: Path, fmt: str, content: bytes) -> None:
    file = tmp_path / f"bad.{fmt}"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=f"{file}: cannot be read as {fmt}: ") as told:
        table.ingest(file)
    assert told.value.hint == "check that the file is in this format, and complete"


@pytest.mark.nightly
def test_files_of_one_batch_may_differ_in_schema(table: Table, spark: SparkSession, tmp_path: Path) -> None:
    for i, query in enumerate(("select 1 as a", "select 2L as a, 'x' as b", "select 'y' as a")):
        spark.sql(query).coalesce(1).write.parquet(str(tmp_path / "in" / str(i)))
    assert table.ingest(tmp_path / "in").rows_written == 3
    assert types(table) == {"a_long": "long", "b": "string", "a": "string"}
    rows = {tuple(r) for r in table.read().select("a_long", "a", "b").collect()}
    assert rows == {(1, "1", None), (2, "2", "x"), (None, "y", None)}


@pytest.mark.nightly
@pytest.mark.parametrize("fmt", ["parquet", "avro"])
def test_files_of_one_schema_are_read_together(
    table: Table, spark: SparkSession, tmp_path: Path, fmt: str
) -> None:
    folder = tmp_path / "in +%41 ü"
    for i in range(4):
        query = f"select {i}L as a" if i % 2 else f"select {i}L as a, 'x' as b"
        spark.sql(query).coalesce(1).write.format(fmt).save(str(folder / str(i)))
    _, files = expand([str(folder)])
    readers = parquet_readers(files) if fmt == "parquet" else avro_readers(files)
    assert [len(reader.sizes) for reader in readers] == [2, 2]
    assert table.ingest(folder).rows_written == 4
    refused = table.ingest(folder, settings={"policies.a": "strict", "policies.b": "strict"}, again=True)
    assert (refused.rows_written, refused.rows_quarantined) == (4, 0)
    other = table.lake.table(f"{table.name}_strict")
    for settings in ({"hints.a": "long"}, {"policy": "strict"}):
        data = next(folder.glob(f"1/*.{fmt}")) if "hints.a" in settings else folder
        result = other.ingest(data, settings=settings, again=True)
    assert result.rows_quarantined == 2
    rows = table.lake.sql(f"select raw, source from lake.{other.name}__quarantine").collect()
    assert {Path(row.source).parent.name: json.loads(row.raw)["a"] for row in rows} == {"0": 0, "2": 2}
    assert all(Path(row.source).exists() for row in rows)


def test_a_declared_date_stays_one_beside_strings(table: Table, spark: SparkSession, tmp_path: Path) -> None:
    for i, query in enumerate(("select date'2024-01-01' as d", "select 'x' as d")):
        spark.sql(query).coalesce(1).write.parquet(str(tmp_path / "in" / str(i)))
    table.ingest(tmp_path / "in")
    assert types(table) == {"d_date": "date", "d": "string"}


def test_columns_that_differ_only_in_case(table: Table, spark: SparkSession, tmp_path: Path) -> None:
    with configured(spark, FILES):
        spark.sql("select 1 as id, 'x' as ID").coalesce(1).write.parquet(str(tmp_path / "in"))
    table.ingest(tmp_path / "in")
    assert types(table) == {"ID": "string", "id_int": "int"}
    proven(table, list((tmp_path / "in").glob("*.parquet")), "parquet")


def test_a_declared_column_counts_even_when_it_holds_only_nulls(table: Table, spark: SparkSession) -> None:
    table.ingest(spark.sql("select 1 as a, cast(null as date) as d, null as v"))
    assert types(table) == {"a": "int", "d": "date"}


def test_longs_beyond_doubles_are_asked_of_the_data(table: Table, spark: SparkSession) -> None:
    table.ingest(spark.sql("select 1.5d as a, struct(array(1.5d) as b) as s"))
    table.ingest(spark.sql("select 5L as a, struct(array(5L) as b) as s"))
    assert types(table) == {"a": "double", "s": "struct<b: list<double>>"}
    table.ingest(spark.sql("select 9007199254740993L as a, struct(array(1L, 9007199254740993L) as b) as s"))
    assert types(table) == {
        "a": "double",
        "s": "struct<b: list<double>, b_array_long: list<long>>",
        "a_long": "long",
    }
    kept = table.read().where("a_long is not null").select("a", "a_long", "s.b", "s.b_array_long").head()
    assert kept is not None and tuple(kept) == (None, 9007199254740993, [1.0, None], [1, 9007199254740993])


def test_a_type_that_no_table_holds_is_named(table: Table, spark: SparkSession) -> None:
    with pytest.raises(UsageError, match=r"s\.gap: type .*interval.* cannot be stored"):
        table.ingest(spark.sql("select struct(interval 1 day as gap) as s"))


def csv(tmp_path: Path, text: str, name: str = "in.csv") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_json_in_a_column(table: Table, spark: SparkSession) -> None:
    texts = ['{"a": 1}', '{"a": "x", "b": 1.50}', "broken", None, '{"b": "s"}']
    frame = spark.createDataFrame([(t,) for t in texts], "payload string")
    result = table.ingest(frame, json_column="payload")
    assert (result.rows_read, result.rows_written, result.rows_quarantined) == (4, 3, 1)
    rows = {(r.a, r.a_long, r.b, r.b_double) for r in table.read().collect()}
    assert rows == {("1", 1, None, None), ("x", None, "1.50", 1.5), (None, None, "s", None)}


def test_a_folder_of_several_formats_asks_for_one(table: Table, tmp_path: Path) -> None:
    csv(tmp_path, "a\n1\n")
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(UsageError, match="one batch cannot mix formats: csv, json"):
        table.ingest(tmp_path)


def test_a_session_that_takes_names_for_patterns_does_no_harm(table: Table, spark: SparkSession) -> None:
    frame: DataFrame = spark.createDataFrame([(1, 2)], "`${x}` int, `a.*` int")
    spark.conf.set("spark.sql.parser.quotedRegexColumnNames", "true")
    try:
        table.ingest(frame)
        assert spark.conf.get("spark.sql.parser.quotedRegexColumnNames") == "true"
    finally:
        spark.conf.unset("spark.sql.parser.quotedRegexColumnNames")
    assert [json.loads(text) for text in table.read().toJSON().collect()] == [{"${x}": 1, "a_*": 2}]


def test_instants_do_not_move_with_the_session_time_zone(table: Table, spark: SparkSession) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    table.ingest(spark.sql("select 'x' as t, 5L as n"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        query = "select timestamp'2024-07-01T10:00:00Z' as t, timestamp_ntz'2024-03-10T02:30:00' as n"
        table.ingest(spark.sql(query))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    kept: Any = table.read().where("t <> 'x'").head()
    assert (kept.t, kept.n) == ("2024-07-01T10:00:00Z", 1710037800000)
