"""Records of declared types: those that a table refuses wait in quarantine, whole; Parquet of any types comes in."""

from __future__ import annotations

import json
from datetime import date, time
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from driftline.errors import DataError
from driftline.formats.iceberg.table import IcebergTable
from driftline.lake import Lake, Table
from driftline.quarantine import table as quarantine
from driftline.runtime.spark_conf import configured

from .proof import proven


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def aside(table: Table) -> list[Any]:
    return quarantine.of(table.format).read().orderBy("raw").collect()


def types(table: Table) -> dict[str, str]:
    return {f.name: str(f.type) for f in table.schema().schema.struct.fields}


def is_iceberg(table: Table) -> bool:
    return isinstance(table.format, IcebergTable)


def test_rows_without_a_required_column_wait(table: Table, spark: SparkSession) -> None:
    """As records of JSON do: the batch goes on, and nothing of theirs is lost."""
    strict = {"policy": "strict"}
    table.ingest(spark.sql("select 1L as id, 'x' as name"))
    table.lake.alter(f"ALTER TABLE {table.name} ALTER id SET NOT NULL")
    result = table.ingest(spark.sql("select 'y' as name, cast('ab' as binary) as key"), settings=strict)
    assert (result.rows_written, result.rows_quarantined) == (0, 1)
    result = table.ingest(
        spark.sql("select * from values (2L, 'z'), (null, 'n') as t(id, name)"), settings=strict
    )
    assert (result.rows_written, result.rows_quarantined) == (1, 1)
    assert types(table) == {"id": "long", "name": "string"}
    assert [(r.path, json.loads(r.raw)) for r in aside(table)] == [
        ("id", {"name": "n"}),
        ("key", {"name": "y", "key": "YWI="}),
    ]


@pytest.mark.nightly
def test_row_groups_whose_lists_of_uuids_are_all_null(table: Table, tmp_path: Path) -> None:
    """Arrow flattens no such lists of structs, nor such maps."""
    record = pa.struct([("x", pa.uuid())])
    rows = [[{"x": b"0123456789abcdef"}], None]
    plain = pa.array(rows, pa.list_(pa.struct([("x", pa.binary(16))])))
    lists = pa.ListArray.from_arrays(
        plain.offsets,
        pa.StructArray.from_arrays([plain.values.field(0).cast(pa.uuid())], fields=list(record)),
    )
    lists = pa.chunked_array([lists.slice(0, 1), pa.nulls(1, pa.list_(record))])
    maps = pa.nulls(2, pa.map_(pa.string(), pa.uuid()))
    file = tmp_path / "ids.parquet"
    pq.write_table(pa.table({"id": [1, 2], "l": lists, "m": maps}), file, row_group_size=1)
    assert table.ingest(file).rows_written == 2
    proven(table, file, "parquet")


EMPTY = {"type": "record", "name": "Empty", "fields": []}


@pytest.mark.parametrize(
    ("values", "value"),
    [(EMPTY, {}), ("null", None), ({"type": "array", "items": EMPTY}, [{}, {}]), (["null", EMPTY], {})],
    ids=["record", "null", "list", "union"],
)
def test_maps_whose_values_have_no_type_are_no_loss(
    values: Any, value: Any, table: Table, tmp_path: Path
) -> None:
    """They make no column, whatever keys they have; where there is one, their keys are in it."""
    first, then = tmp_path / "1.avro", tmp_path / "2.avro"
    for file, of in (first, values), (then, ["null", "long"]):
        fields = [{"name": "id", "type": "long"}, {"name": "m", "type": {"type": "map", "values": of}}]
        schema = fastavro.parse_schema({"type": "record", "name": "Row", "fields": fields})
        with file.open("wb") as out:
            fastavro.writer(out, schema, [{"id": 1, "m": {"k": value if file == first else 5}}])
    assert table.ingest(first).untyped == ("m",)
    proven(table, first, "avro")
    table.ingest(then)
    table.ingest(first, again=True)
    proven(table, [first, first, then], "avro")


def test_lists_of_objects_without_fields(table: Table) -> None:
    rows = pa.table({"id": [1, 2], "l": pa.array([[{}, {}], None], pa.list_(pa.struct([])))})
    table.ingest(rows)
    assert table.verify(rows).ok


PARQUET = pa.table(
    {
        "n": pa.array([1, 2, 3]),
        "at": pa.array([1_000, 1_001, None], pa.timestamp("ns", "UTC")),
        "time": pa.array([5, None, 3_600_000_000], pa.time64("us")),
        "id": pa.array([b"0123456789abcdef", None, None], pa.uuid()),
        "half": pa.array([1.5, None, 0.25], pa.float16()),
        "word": pa.array(["a", "b", "a"]).dictionary_encode(),
        "nothing": pa.nulls(3),
        "entries": pa.array(
            [[({"k": 1}, "x")], None, []], pa.map_(pa.struct({"k": pa.int64()}), pa.string())
        ),
    }
)


def test_parquet_of_types_that_spark_does_not_read(table: Table, tmp_path: Path) -> None:
    file = tmp_path / "2026-03-02T10:00:00.parquet"
    pq.write_table(PARQUET, file, row_group_size=2)
    result = table.ingest(file)
    assert (result.rows_written, result.rows_quarantined) == (3, 0)
    assert types(table) == {
        "n": "long",
        "at": "timestamp",
        "at_string": "string",
        "time": "string",
        "id": "uuid" if is_iceberg(table) else "string",  # Spark reads no uuid of DuckLake's
        "half": "float",
        "word": "string",
        "entries": "list<struct<key: struct<k: long>, value: string>>",
    }
    rows = table.read().orderBy("n").collect()
    assert [r.at_string for r in rows] == [
        "1970-01-01T00:00:00.000001Z",
        "1970-01-01T00:00:00.000001001Z",
        None,
    ]
    assert [(r.time, r.half, r.word) for r in rows] == [
        ("00:00:00.000005", 1.5, "a"), (None, None, "b"), ("01:00:00", 0.25, "a")
    ]  # fmt: skip
    assert rows[0].id == "30313233-3435-3637-3839-616263646566"
    assert rows[0].entries[0].key.k == 1
    proven(table, file, "parquet")


def test_unions_of_avro_are_siblings(table: Table, tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "n", "type": ["null", "long", "string", {"type": "array", "items": "long"}]},
            {"name": "t", "type": {"type": "long", "logicalType": "time-micros"}},
        ],
    }
    records = [{"n": n, "t": time(1, 2, 3)} for n in (1, "x", [2, 3], None)]
    with (tmp_path / "in.avro").open("wb") as file:
        fastavro.writer(file, schema, records)
    result = table.ingest(tmp_path / "in.avro")
    assert (result.rows_written, result.rows_quarantined) == (4, 0)
    assert types(table) == {
        "n_long": "long",
        "n_string": "string",
        "n_array_long": "list<long>",
        "n": "list<string>",
        "t": "string",
    }
    proven(table, tmp_path / "in.avro", "avro")


def test_field_of_avro_with_an_alias_fills_the_column_of_its_earlier_name(
    table: Table, tmp_path: Path
) -> None:
    fields: list[list[dict[str, Any]]] = [
        [{"name": "messageId"}, {"name": "at", "type": inner("postcode")}],
        [
            {"name": "id", "aliases": ["messageId"]},
            {"name": "at", "type": {"type": "array", "items": inner("zip", "postcode")}},
        ],
    ]
    values = [{"messageId": 7, "at": {"postcode": 1}}, {"id": 7, "at": [{"zip": 2}]}]
    files = [tmp_path / "old.avro", tmp_path / "new.avro"]
    for path, of_file, record in zip(files, fields, values, strict=True):
        schema = {"type": "record", "name": "Message", "fields": [{"type": "long", **f} for f in of_file]}
        with path.open("wb") as file:
            fastavro.writer(file, schema, [record])
        assert table.ingest(path).rows_written == 1
    assert types(table) == {
        "messageId": "long",
        "at": "struct<postcode: long>",
        "at_array_record": "list<struct<postcode: long>>",
    }
    proven(table, files, "avro")


def inner(name: str, *aliases: str) -> dict[str, Any]:
    """The schema of a record with one field."""
    field = {"name": name, "type": "long", "aliases": list(aliases)}
    return {"type": "record", "name": "Inner", "fields": [field]}


def test_refused_rows_of_parquet_keep_what_spark_cannot_write(table: Table, tmp_path: Path) -> None:
    pq.write_table(PARQUET.select(["n"]), tmp_path / "first.parquet")
    table.ingest(tmp_path / "first.parquet")
    pq.write_table(PARQUET.select(["n", "at", "id"]), tmp_path / "second.parquet")
    result = table.ingest(tmp_path / "second.parquet", settings={"policy": "strict"})
    assert (result.rows_written, result.rows_quarantined) == (1, 2)
    assert [(r.source, json.loads(r.raw)) for r in aside(table)] == [
        (
            str(tmp_path / "second.parquet"),
            {"n": 1, "at": "1970-01-01T00:00:00.000001Z", "id": "30313233-3435-3637-3839-616263646566"},
        ),
        (str(tmp_path / "second.parquet"), {"n": 2, "at": "1970-01-01T00:00:00.000001001Z"}),
    ]


def test_refused_bytes_are_found_where_they_wait_and_behind_a_replay(table: Table) -> None:
    refused = {"expect": {"n": "n > 1 else quarantine"}}
    rows = pa.table({"n": [1, 2], "b": pa.array([b"\xff\x00", b"abc"]), "l": pa.array([[b"abc"], [b"abc"]])})
    assert table.ingest(rows, **refused).rows_quarantined == 1
    assert table.verify(rows).found
    table.ingest(pa.table({"n": [3]}), expect={"n": ""})
    table.replay()
    assert table.read().count() == 3
    assert table.verify(rows).found


def test_uuids_are_taken_where_types_widen(table: Table) -> None:
    """A DuckLake has text for them, from the first batch on."""
    for n in range(2):
        values = pa.array([bytes([n]) * 16], pa.uuid())
        rows = pa.table({"u": values, "l": pa.ListArray.from_arrays([0, 1], values)})
        assert table.ingest(rows, policy="widen").rows_written == 1
        assert table.verify(rows).found


def test_moments_of_any_year(table: Table, tmp_path: Path) -> None:
    """The greatest number of milliseconds stands for "never" in many files."""
    file = tmp_path / "a.parquet"
    never = pa.array([0, 2**63 - 1], pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table({"at": never, "views": pa.array([[1], [2, 3]], pa.list_(pa.int64()))}), file)
    table.ingest(file)
    table.ingest(pa.table({"at": never, "views": pa.array([[1], [2, 3]], pa.list_view(pa.int64()))}))
    assert types(table) == {"at": "timestamp", "views": "list<long>", "at_string": "string"}
    texts = [row.at_string for row in table.read().collect()]
    assert sorted(texts) == ["1970-01-01T00:00:00Z"] * 2 + ["292278994-08-17T07:12:55.807Z"] * 2
    proven(table, file, "parquet")


def test_date_after_9999_is_compared(table: Table, tmp_path: Path) -> None:
    dates = pa.table({"day": pa.array([0, 2_932_897], pa.date32())})  # 10000-01-01
    file = tmp_path / "a.parquet"
    pq.write_table(dates, file)
    assert table.ingest(file).rows_written == 2
    proven(table, file, "parquet")
    pq.write_table(pa.table({"day": pa.array([0, 2_932_898], pa.date32())}), file)
    assert table.verify(file).missing == 1


@pytest.mark.nightly
@pytest.mark.parametrize("fmt", ["parquet", "avro"])
def test_days_of_the_julian_calendar_are_as_spark_reads_them(
    table: Table, spark: SparkSession, tmp_path: Path, fmt: str
) -> None:
    days = spark.sql(
        "select d, array(d, date'1500-02-28') as l, cast(d as timestamp) as t "
        "from values (date'0001-01-01'), (date'1582-10-04'), (date'2024-01-01') as v(d)"
    )
    legacy = {f"spark.sql.{fmt}.{kind}RebaseModeInWrite": "LEGACY" for kind in ("datetime", "int96")}

    def shown(frame: DataFrame) -> list[Any]:
        return (
            frame.selectExpr("d", "l", "unix_micros(t)").orderBy("d").collect()
        )  # the first are none of Python's

    folder = tmp_path / "days"
    with configured(spark, {**legacy, "spark.sql.session.timeZone": "America/Los_Angeles"}):
        days.write.format(fmt).option("compression", "uncompressed").save(str(folder))
        expected = shown(spark.read.format(fmt).load(str(folder)))
    table.ingest(folder)
    assert shown(table.read()) == expected
    proven(table, folder, fmt)


@pytest.mark.nightly
@pytest.mark.parametrize("fmt", ["parquet", "csv", "orc", "json"])
def test_partitions_in_paths_are_columns(table: Table, spark: SparkSession, tmp_path: Path, fmt: str) -> None:
    rows = spark.sql("select * from values (1L, date'2026-01-01', 'a/b'), (2L, null, 'c') as t(id, day, k)")
    folder = tmp_path / "hive"
    rows.write.partitionBy("day", "k").option("header", True).format(fmt).save(str(folder))
    table.ingest(folder)
    assert types(table) == {"id": "long", "day": "date", "k": "string"}
    assert sorted(map(tuple, table.read().collect())) == sorted(map(tuple, rows.collect()))
    proven(table, folder, fmt)
    table.ingest(folder, again=True, settings={"hive": "off"})
    assert table.read().where("day is null and k is null").count() == 2


@pytest.mark.parametrize("fmt", ["parquet", "orc"])
def test_a_column_that_the_path_has_too(table: Table, spark: SparkSession, tmp_path: Path, fmt: str) -> None:
    folder = tmp_path / "day=2026-01-01"
    both = "values (1L, date'2026-01-01'), (2L, null) as t(id, day)"
    spark.sql(f"select * from {both}").coalesce(1).write.format(fmt).save(str(folder))
    table.ingest(folder)
    day = date(2026, 1, 1)
    assert sorted(map(tuple, table.read().collect())) == [(1, day), (2, day)]
    other = spark.sql("select 3L as id, date'2026-01-02' as day")
    other.coalesce(1).write.mode("overwrite").format(fmt).save(str(folder))
    with pytest.raises(DataError, match="day is 2026-01-02 in a row, and 2026-01-01 in the path"):
        table.ingest(folder)
