"""Lines of JSON observed while they are read, by a plan made of their first ones: whatever comes later, the table, its
schema and the report are those of a batch that was observed first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from driftline import Lake
from driftline.errors import DataError
from driftline.files import text as text_files
from driftline.ingest.batch import RecentBatches
from driftline.readers.json import splits
from driftline.sources import json_files as json_source
from driftline.sources.frames import FrameScan
from driftline.sources.json_files import JsonScan
from driftline.sources.texts import TextScan
from driftline.tasks import run

USUAL = {"id": 1, "name": "x", "at": "2026-01-02T03:04:05Z", "in": {"n": 1.5}, "tags": ["a"], "size": 7}
LATE: dict[str, list[Any]] = {
    "nothing": [],
    "a drifted value, as there were": [USUAL | {"size": "big"}],
    "a key": [USUAL | {"more": 1}],
    "a key within": [USUAL | {"in": {"n": 1.5, "m": None}}, USUAL | {"in": {"n": 1.5, "m": True}}],
    "a type": [USUAL | {"name": 5}],
    "a type within": [USUAL | {"in": {"n": "1.5"}}],
    "a list for a value": [USUAL | {"id": [1, 2]}],
    "an empty list and an empty object": [USUAL | {"size": []}, USUAL | {"in": {}}],
    "a large integer": [USUAL | {"id": 2**60}],
    "an integer beyond all": [USUAL | {"id": 10**30}],
    "a fraction that a double does not hold": [
        USUAL | {"in": {"n": 0.1}},
        '{"in": {"n": 0.10000000000000000001}}',
    ],
    "whole numbers for fractions": [USUAL | {"in": {"n": 3}}],
    "a text for an instant": [USUAL | {"at": "soon"}],
    "a finer instant": [USUAL | {"at": "2026-01-02T03:04:05.123456Z"}],
    "a key twice": ['{"id": 1, "id": 2, "size": 7}'],
    "keys that differ in case": ['{"ID": "x", "id": 3}'],
    "an empty key": ['{"": 1, "id": 3}'],
    "no JSON": ['{"id": 1,'],
    "no UTF-8": [b'{"id": 1, "name": "\xff"}'],
    "no object": ["[1]"],
    "blank lines": ["", "  "],
    "odd text": [USUAL | {"name": "\u2028 \\ \" \x00 \ud83d\ude00 `'"}],
    "half a character": ['{"name": "\\ud83d"}'],
}


def lines_of(late: list[Any]) -> bytes:
    """Many usual records, one with a drifted value among the first, then what comes late."""
    early = [USUAL | {"id": i, "size": "none" if i == 3 else i} for i in range(60)]
    shown = [line if isinstance(line, bytes | str) else json.dumps(line) for line in [*early, *late]]
    return b"\n".join(line if isinstance(line, bytes) else line.encode() for line in shown)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sizes for small data; given up to how many bytes files are observed first."""

    def sized(few: int) -> None:
        for module in (json_source, run):
            monkeypatch.setattr(module, "_SMALL", few)

    monkeypatch.setattr(json_source, "_FIRST", 1000)
    monkeypatch.setattr(json_source, "_HEAD", 100)
    for reading in (text_files, splits):
        monkeypatch.setattr(reading, "BLOCK", 700)
    return sized


def told(lake: Lake, table: str, file: Path) -> dict[str, Any]:
    """All that a batch did."""
    result = lake.table(table).ingest(file)
    read = lake.table(table).read()
    rows = read.selectExpr("to_json(struct(*)) as row").collect()
    report = result.to_dict()
    return {
        "rows": sorted(json.dumps(json.loads(row.row), sort_keys=True) for row in rows),
        "schema": read.schema.jsonValue(),
        "report": {key: report[key] for key in report if key not in ("table", "batch", "snapshot")},
    }


def write(file: Path, text: bytes) -> None:
    """Writes a file, packed as its name says."""
    codec = {".gz": "gzip", ".zst": "zstd"}.get(file.suffix)
    file.write_bytes(text if codec is None else pa.compress(text, codec, asbytes=True))


IN_BOTH = ("nothing", "a drifted value, as there were", "a key within", "a key twice", "no JSON")


@pytest.mark.parametrize(
    ("late", "format", "name"),
    [
        *((late, "iceberg", "in.jsonl") for late in LATE),
        *((late, "ducklake", "in.jsonl") for late in IN_BOTH),
        *((late, "iceberg", "in.jsonl.gz") for late in IN_BOTH),
    ],
)
def test_what_comes_late(
    request: pytest.FixtureRequest,
    folder: Path,
    table_name: str,
    small: Callable[[int], None],
    late: str,
    format: str,  # noqa: A002
    name: str,
) -> None:
    lake: Lake = request.getfixturevalue(format)
    file = folder / name
    write(file, lines_of(LATE[late]))
    small(2**60)
    first = told(lake, f"{table_name}_first", file)
    small(0)
    assert told(lake, f"{table_name}_go", file) == first


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
@pytest.mark.iceberg_only("of the source alone")
def test_one_go_reads_once(
    lake: Lake,
    folder: Path,
    table_name: str,
    small: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
) -> None:
    small(0)
    monkeypatch.setattr(lake, "recent", RecentBatches())  # batches of other tests are no guess
    for name, late in (("a", LATE["a drifted value, as there were"]), ("b", LATE["a key"])):
        write(folder / f"{name}{ending}", lines_of(late))
    reads: list[str] = []
    for name in ("tasks", "observe", "_first_lines"):
        taken = getattr(JsonScan, name)
        monkeypatch.setattr(
            JsonScan, name, lambda *args, name=name, taken=taken: reads.append(name) or taken(*args)
        )
    lake.table(table_name).ingest(folder / f"a{ending}")
    assert reads == ["_first_lines", "tasks"], "its first lines, and then all of it"
    lake.table(table_name).ingest(folder / f"b{ending}")
    assert reads[2:] == ["_first_lines", "tasks", "tasks"]


def test_small_batches_that_bring_nothing_new_are_read_once(
    lake: Lake, folder: Path, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "in.jsonl"
    reads: list[str] = []
    for name in ("tasks", "observe"):
        taken = getattr(JsonScan, name)
        monkeypatch.setattr(
            JsonScan, name, lambda *args, name=name, taken=taken: reads.append(name) or taken(*args)
        )
    table = lake.table(table_name)
    for late, expected in (
        ("a key", ["observe", "tasks"]),
        ("a key", ["observe", "tasks"]),  # the table has columns now
        ("nothing", ["tasks"]),
        ("a key", ["tasks"]),
        ("a type", ["tasks", "tasks"]),
    ):
        file.write_bytes(lines_of(LATE[late]))
        table.ingest(file)
        assert reads == expected, late
        reads.clear()
    assert table.read().count() == 5 * 60 + 4


@pytest.mark.parametrize("levels", [45, 70])
@pytest.mark.iceberg_only("of the source alone")
def test_deep_records(
    lake: Lake, folder: Path, table_name: str, small: Callable[[int], None], levels: int
) -> None:
    small(0)
    file = folder / "in.jsonl"
    file.write_text('{"a": ' * levels + "1" + "}" * levels)
    assert lake.table(table_name).ingest(file).rows_written == 1
    assert lake.sql(f"select {'.'.join('a' * levels)} from lake.{table_name}").head()[0] == 1


@pytest.mark.parametrize("now", [["grown"], []], ids=["grown", "shrunk"])
@pytest.mark.parametrize("guessed", [True, False])
@pytest.mark.iceberg_only("of the source alone")
def test_a_file_that_changes_meanwhile(
    lake: Lake,
    folder: Path,
    table_name: str,
    small: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    now: list[str],
    guessed: bool,
) -> None:
    small(0)
    file = folder / "in.jsonl"
    file.write_bytes(lines_of([USUAL]))
    changed = lines_of([USUAL | {"name": name} for name in now * 100])
    plan = RecentBatches.plan
    monkeypatch.setattr(RecentBatches, "plan", lambda *args: file.write_bytes(changed) and plan(*args))
    if not guessed:
        monkeypatch.setattr(JsonScan, "guess", lambda *_: None)
    lake.table(table_name).ingest(file)
    rows = lake.sql(f"select count(*), count_if(name = 'grown') from lake.{table_name}").head()
    assert tuple(rows) == (60 + 100 * len(now), 100 * len(now))


@pytest.mark.iceberg_only("of the source alone")
def test_nothing_of_a_wrong_guess_stays(
    spark: SparkSession, lake: Lake, folder: Path, table_name: str, small: Callable[[int], None]
) -> None:
    small(0)
    file = folder / "in.jsonl"
    file.write_bytes(lines_of(LATE["a type"]))
    table = lake.table(table_name)
    table.ingest(file)
    files = {row.file_path for row in spark.table(f"lake.{table_name}.files").collect()}
    data = Path(next(iter(files)).removeprefix("file:")).parent
    assert {path.name for path in data.glob("*.parquet")} == {Path(path).name for path in files}
    assert spark.table(f"lake.{table_name}.snapshots").count() == 1


@pytest.mark.iceberg_only("of the source alone")
def test_a_refusal_late_is_a_refusal(
    lake: Lake, folder: Path, table_name: str, small: Callable[[int], None]
) -> None:
    small(0)
    file = folder / "in.jsonl"
    file.write_bytes(lines_of([]))
    table = lake.table(table_name)
    table.ingest(file)
    file.write_bytes(lines_of(LATE["a key"]))
    with pytest.raises(DataError, match="more"):
        table.ingest(file, settings={"policy": "strict", "on_conflict": "fail"})
    assert (
        table.ingest(file, settings={"policy": "strict", "on_conflict": "quarantine"}).rows_quarantined == 1
    )


def test_what_is_no_record_is_set_aside_in_the_same_pass(
    lake: Lake,
    folder: Path,
    table_name: str,
    small: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small(0)
    monkeypatch.setattr(JsonScan, "rejected", None)  # which would read the batch once more
    lines = lines_of([]).split(b"\n")
    bad = {4: b"bad", 17: b'{"id": \xff}', 40: b"[]", 58: b"{"}
    for number, line in bad.items():
        lines[number - 1] = line
    file = folder / "in.jsonl"
    file.write_bytes(b"\n".join(lines))
    result = lake.table(table_name).ingest(file)
    assert (result.rows_written, result.rows_quarantined) == (56, 4)
    waiting = lake.table(f"{table_name}__quarantine").read().where("batch is not null").collect()
    assert {row.line: bytes(row.raw_bytes or row.raw.encode()) for row in waiting} == bad
    assert {row.source for row in waiting} == {str(file)}


def test_many_small_files_are_read_once(
    lake: Lake,
    folder: Path,
    table_name: str,
    small: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small(0)
    files = folder / table_name
    files.mkdir()
    monkeypatch.setattr(JsonScan, "rejected", None)
    drifted = {
        3: USUAL | {"size": "big"},
        7: USUAL | {"more": 1},
    }  # not in the first file, and yet among the first
    for i in range(80):
        usual = drifted.get(i % 40, USUAL | {"size": i})
        lines = [json.dumps(usual), "" if i % 2 else "bad", json.dumps(USUAL), "[]" if i == 70 else "{}"]
        (files / f"{i:03}.jsonl").write_text("\n".join(lines) + ("\n" if i % 3 else ""))
    reads: list[str] = []
    for name in ("tasks", "observe", "_first_lines"):
        taken = getattr(JsonScan, name)
        monkeypatch.setattr(
            JsonScan, name, lambda *args, name=name, taken=taken: reads.append(name) or taken(*args)
        )
    result = lake.table(table_name).ingest(files)
    assert reads == ["_first_lines", "tasks"]
    assert (result.rows_written, result.rows_quarantined) == (239, 41)
    waiting = lake.table(f"{table_name}__quarantine").read().where("batch is not null").collect()
    assert {(Path(row.source).name, row.line) for row in waiting} == {
        ("070.jsonl", 4),
        *((f"{i:03}.jsonl", 2) for i in range(0, 80, 2)),
    }
    rows = lake.table(table_name).read()
    assert rows.where("size = 'big'").count() == rows.where("more = 1").count() == 2


@pytest.mark.nightly
def test_texts_of_a_frame_are_read_once(lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table(table_name)

    def ingested(*texts: str) -> tuple[int, int]:
        frame = lake.spark.createDataFrame([(text,) for text in texts], "text string")
        result = table.ingest(frame, json_column="text")
        return result.rows_written, result.rows_quarantined

    for text in ('{"a": 1}', '{"a": 2}'):  # the second batch is the first for a table with columns
        ingested(text)
    with monkeypatch.context() as patch:
        patch.setattr(TextScan, "observe", None)
        patch.setattr(TextScan, "rejected", None)
        assert ingested('{"a": 3}', "{", '{"a": 4}') == (2, 1)
        assert ingested() == (0, 0)
    assert ingested('{"a": "x"}') == (1, 0), "the guess was wrong"
    rows = table.read().selectExpr("a", "a_string").collect()
    assert sorted(map(str, rows)) == sorted(
        f"Row(a={a}, a_string={text!r})"
        for a, text in [(1, None), (2, None), (3, None), (4, None), (None, "x")]
    )


@pytest.mark.nightly
def test_the_first_texts_of_a_frame_are_looked_at_and_read_once(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "recent", RecentBatches())
    monkeypatch.setattr(TextScan, "observe", None)
    frame = lake.spark.createDataFrame([('{"a": 1}',), ('{"a": "x"}',), ("{",)], "text string")
    result = lake.table(table_name).ingest(frame, json_column="text")
    assert (result.rows_written, result.rows_quarantined) == (2, 1)


def test_a_dataframe_is_read_once(lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FrameScan, "observe", None)
    frame = lake.spark.range(5).selectExpr("id", "cast(id as string) as text", "array(id) as ids")
    table = lake.table(table_name)
    assert [table.ingest(frame).rows_written for _ in range(2)] == [5, 5]
    assert table.read().where("ids[0] = id and text = cast(id as string)").count() == 10
