"""Python's objects go into a table as they are: records that drift, DataFrames, streams of Arrow."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit
from warnings import catch_warnings, simplefilter
from weakref import WeakSet

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from driftline.errors import DataError, SetupError, UsageError
from driftline.lake import Lake


def test_records_and_tables(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    result = table.ingest({"id": i, "v": "x" if i == 2 else i, "tags": [i, "a"]} for i in range(3))
    assert (result.rows_written, result.rows_quarantined) == (3, 0)
    sizes = [file.stat().st_size for file in Path(urlsplit(result.location).path).rglob("*.parquet")]
    assert (result.files_written, result.bytes_written) == (len(sizes), sum(sizes))
    assert sizes and 0 < result.commit_seconds < result.seconds
    types = {f.name: str(f.type) for f in table.schema().schema.struct.fields}
    assert types == {
        "id": "long", "v": "string", "v_long": "long", "tags_array_long": "list<long>", "tags": "list<string>"
    }  # fmt: skip
    assert table.ingest([]).rows_read == 0
    frame = pd.DataFrame({"id": [3, 4], "v": ["y", 5]})
    assert table.ingest(frame).to_dict()["changes"] == []
    stream = pa.table({"id": [5], "at": pa.array([1_001], pa.timestamp("ns", "UTC"))}).to_reader()
    assert table.ingest(stream, settings={"policies.id": "strict"}).rows_written == 1
    rows = {row.id: row for row in table.read().collect()}
    assert [(i, rows[i].v, rows[i].v_long) for i in range(5)] == [
        (0, "0", 0), (1, "1", 1), (2, "x", None), (3, "y", None), (4, "5", 5)
    ]  # fmt: skip
    assert rows[5].at_string == "1970-01-01T00:00:00.000001001Z"
    refused = table.ingest([{"id": "x"}], settings={"policies.id": "strict"})
    assert refused.rows_quarantined == 1
    with pytest.raises(UsageError, match="cannot ingest an int"):
        table.ingest(1)


@dataclass
class Order:
    id: int
    total: float | str


def test_rows_come_back_as_arrow_pandas_and_polars(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table(table_name)
    far = 2**60 + 1  # which a double cannot hold
    table.ingest({"id": far, "total": 5, "customer": {"zip": "10115"}, "m.x": None})
    table.ingest([Order(2, "9 EUR"), Order(3, 7.5)], policy="preserve", exclude=["nothing"])
    assert table.state().properties["driftline.exclude.nothing"] == "true"
    assert table.verify([Order(2, "9 EUR"), Order(3, 7.5)]).ok
    rows = table.to_arrow()
    assert rows.num_rows == 3 and rows.schema.field("id").type == pa.int64()
    assert set(rows.column("total_string").to_pylist()) == {"5", "9 EUR", "7.5"} - {"5"} | {None}
    (row,) = table.to_arrow(["id", "customer.zip"], where="total is not null and id > 3").to_pylist()
    assert row == {"id": far, "customer.zip": "10115"}
    frame = table.to_pandas(["id", "total"]).sort_values("id")
    assert frame["id"].tolist() == [2, 3, far] and frame["total"].dtype.pyarrow_dtype == pa.int64()
    assert table.to_polars(["id"]).sort("id")["id"].to_list() == [2, 3, far]
    with pytest.raises(UsageError, match="nowhere"):
        table.to_arrow(["nowhere"])
    with pytest.raises(UsageError):
        table.to_arrow(where="id >")
    for package in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(SetupError, match=f"{package} is not installed\npip install {package}"):
            getattr(table, f"to_{package}")()


def test_a_lake_is_closed_with_the_last(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, tmp_path: Path
) -> None:
    stopped: list[SparkSession] = []
    monkeypatch.setattr("driftline.lake.stop_session", stopped.append)
    monkeypatch.setattr("driftline.lake.open_session", lambda *_, **__: spark)
    monkeypatch.setattr(Lake, "_opened", WeakSet())
    monkeypatch.chdir(tmp_path)
    with Lake.open("x") as first:
        with Lake.open("y") as second:
            assert first.spark is second.spark is spark
        with Lake.open("z") as third:  # which needs no Spark
            assert third.tables() == []
            with pytest.raises(UsageError, match=r"there is no table a\.b"):
                third.table("a.b").to_arrow()
            assert third not in Lake._opened
        assert not stopped
        Lake.attach(spark, "lake").close()
        assert not stopped
    assert stopped == [spark]
    first.close()
    assert stopped == [spark]


def test_what_python_holds_is_verified(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    records = [{"id": i, "v": "x" if i == 2 else i} for i in range(3)]
    frame = pd.DataFrame({"id": [3, 4], "v": ["y", 5]})
    table.ingest(records)
    table.ingest(frame)
    assert table.verify(iter(records)).ok and table.verify(frame).ok
    lost = table.verify([*records, {"id": 7, "v": 1}])
    assert not lost.ok and lost.to_dict()["missing"] == 1


BASE = pd.DataFrame({"a": [1, 2, 3]})
FRAMES = {
    "positions": (BASE, ["a"]),
    "a part of the positions": (BASE[1:], ["a"]),
    "a key": (BASE.set_index(pd.Index(["x", "y", "z"], name="key")), ["a", "key"]),
    "ids that follow each other": (BASE.set_index(pd.Index([5, 6, 7], name="id")), ["a", "id"]),
    "ids with gaps": (BASE.set_index(pd.Index([5, 9, 6], name="id")), ["a", "id"]),
    "labels without a name": (BASE.set_index(pd.Index(["x", "y", "z"])), ["a", "__index_level_0__"]),
    "days without a name": (BASE.set_index(pd.date_range("2026-03-01", periods=3)), ["a", "__index_level_0__"]),
    "the name of a column": (BASE.set_index(pd.Index(["x", "y", "z"], name="a")), ["a", "__index_level_0__"]),
    "two levels": (
        BASE.set_index(pd.MultiIndex.from_arrays([[1, 2, 3], ["x", "y", "z"]], names=[None, "k"])),
        ["a", "__index_level_0__", "k"],
    ),
    "tuples": (pd.DataFrame({("p", "q"): [1], ("p", 1): ["x"]}), ["('p', 'q')", "('p', '1')"]),
    "durations": (
        pd.DataFrame({"id": [1, 2], "took": pd.to_timedelta(["1 day", "00:00:01.5"]).as_unit("ns")}),
        ["id", "took"],
    ),
    "periods and intervals": (
        pd.DataFrame({"p": pd.period_range("2026-01", periods=2, freq="M"), "i": pd.interval_range(1, 3)}),
        ["p", "i"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.iceberg_only("of the source alone")
def test_a_frame_of_pandas_and_its_file_give_the_same_table(
    lake: Lake, table_name: str, tmp_path: Path, name: str
) -> None:
    frame, columns = FRAMES[name]
    file = tmp_path / "frame.parquet"
    with catch_warnings():
        simplefilter("ignore", UserWarning)  # pandas': names become texts
        frame.to_parquet(file)
    held, written = lake.table(table_name), lake.table(f"{table_name}_file")
    held.ingest(frame)
    written.ingest(file)
    assert [f.name for f in held.schema().schema.struct.fields] == columns
    assert held.schema().schema.struct == written.schema().schema.struct
    assert sorted(map(str, held.read().collect())) == sorted(map(str, written.read().collect()))
    # Both tables have the same rows, so each is asked about what it did not take.
    assert held.verify(file, exactly=True).ok
    assert written.verify(frame, exactly=True).ok


def test_records_of_python_give_the_table_that_their_lines_of_json_give(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    records = [
        {"id": 1, "at": "2026-01-01T00:00:00Z", "d": 1.25, "n": 2**70, "l": [1, "x"]},
        {"id": 2, "at": "2026-01-02T00:00:00Z", "d": 5, "n": -0.0, "m": {"a": None}},
    ]
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    hints = {"d": "decimal(9,2)"}
    of_records, of_lines = lake.table(table_name), lake.table(f"{table_name}_lines")

    of_records.ingest(iter(records), partition_by="day(at)", hints=hints)
    of_lines.ingest(file, partition_by="day(at)", hints=hints)

    assert str(of_records.schema().schema.struct) == str(of_lines.schema().schema.struct)
    assert of_records.read().sort("id").collect() == of_lines.read().sort("id").collect()
    assert of_records.verify(records).ok


def test_records_with_a_datetime_keep_its_type_and_text_stays_text_with_strings(
    lake: Lake, table_name: str
) -> None:
    table, texts = lake.table(table_name), lake.table(f"{table_name}_texts")
    table.ingest([{"id": 1}, {"id": 2, "at": datetime(2026, 1, 1, tzinfo=UTC)}])
    texts.ingest([{"at": "2026-01-01T00:00:00Z"}], strings=True)

    assert str(table.schema().schema.struct) == "struct<id: long, at: timestamp>"
    assert [row.id for row in table.read().sort("id").collect()] == [1, 2]
    assert str(texts.schema().schema.struct) == "struct<at: string>"


def test_declared_column_into_which_no_value_of_a_frame_goes_is_refused(lake: Lake, table_name: str) -> None:
    frame = pd.DataFrame({"id": [1, 2], "n": ["1", "2"]})

    with pytest.raises(DataError, match=r"n is declared long, but the batch has only .*string"):
        lake.table(table_name).ingest(frame, hints={"n": "long"})
