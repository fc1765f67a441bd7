"""Captures: files and streams into a table, each record once, and each hole of Spark's file source closed."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from driftline.capture.query import _Runner
from driftline.capture.status import CaptureStatus
from driftline.capture.targets import Batch
from driftline.errors import DataError, DriftlineError, SetupError, UsageError
from driftline.lake import Lake, Table
from driftline.quarantine import table as quarantine

from .proof import proven


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def put(file: Path, *ids: int, modified: float | None = None) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps({"id": i}) + "\n" for i in ids))
    if modified is not None:
        os.utime(file, (modified, modified))
    return file


def captured(table: Table, data: Any, **options: Any) -> list[Batch]:
    """The batches of one run that catches up."""
    batches: list[Batch] = []
    query = table.capture(data, name="orders", on_batch=batches.append, **options)
    assert query.awaitTermination(120)
    return batches


def ids(table: Table) -> list[Any]:
    return sorted(row.id for row in table.read().select("id").collect())


def failed(table: Table, data: Any, kind: type[DriftlineError], words: str, **options: Any) -> None:
    before = table.format.load()
    with pytest.raises(kind, match=words) as raised:
        captured(table, data, **options)
    assert raised.value.hint
    assert table.format.load() == before


@pytest.mark.iceberg_only("of the source alone")
def test_names_that_spark_takes_for_patterns(table: Table, tmp_path: Path) -> None:
    folder = tmp_path / "in[1] {a,b}"
    put(folder / "a*?[0].json", 1)
    put(folder / "a0.json", 2)
    assert table.ingest(folder / "a*?[0].json").rows_written == 1
    (batch,) = captured(table, folder, checkpoint=tmp_path / "check{point}[0-9]")
    assert batch.result.rows_written == 2
    (folder / "c[1].csv").write_text("id\n3\n")
    assert table.ingest(folder / "c[1].csv").rows_written == 1
    assert ids(table) == [1, 1, 2, 3]


# Files ---------------------------------------------------------------------------------------------------------


def test_new_files_are_taken_once_in_the_order_of_their_times(table: Table, source: Path) -> None:
    put(source / "b.json", 1, modified=1_000_000)
    put(source / "a.json", 2, modified=2_000_000)
    put(source / "c.json", 3, modified=2_000_000)
    first = captured(table, source, max_files=1)
    assert [(b.epoch, b.result.rows_written, b.lag) for b in first] == [(0, 1, 2), (1, 1, 1), (2, 1, 0)]
    assert captured(table, source) == []
    put(source / "sub" / "d.json", 4)
    put(source / ".hidden.json", 5)
    put(source / "_temporary" / "e.json", 6)
    (source / "README.md").write_text("no data")
    (batch,) = captured(table, source)
    assert (batch.epoch, batch.result.hints) == (3, ())
    assert ids(table) == [1, 2, 3, 4]
    (source / "sub" / "d.json").rename(source / "renamed.json")
    (batch,) = captured(table, source)
    assert ids(table) == [1, 2, 3, 4, 4]
    (hint,) = batch.result.hints
    assert "renamed.json has the size and the time of" in hint


@pytest.mark.iceberg_only("of the source alone")
def test_a_file_much_older_than_others_is_taken(table: Table, source: Path) -> None:
    put(source / "new.json", 1)
    captured(table, source)
    put(source / "old.json", 2, modified=86_400)
    captured(table, source)
    assert ids(table) == [1, 2]


CHANGES: dict[str, Callable[[Path], object]] = {
    "appended": lambda file: file.write_text(file.read_text() + '{"id": 9}\n'),
    "overwritten": lambda file: put(file, 9),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.iceberg_only("of the source alone")
def test_a_file_that_changes_after_it_was_taken(
    table: Table, source: Path, change: Callable[[Path], object]
) -> None:
    file = put(source / "a.json", 1, modified=1_000)
    captured(table, source)
    change(file)
    put(source / "b.json", 2)
    with pytest.raises(DataError, match=r"a\.json changed since it was ingested") as raised:
        captured(table, source)
    assert "changed_files=" in (raised.value.hint or "")
    assert ids(table) == [1, 2]  # what else is new comes before the error
    file.rename(source.parent / "a.json")
    put(source / "c.json", 3)
    captured(table, source)
    assert ids(table) == [1, 2, 3]


@pytest.mark.nightly
def test_lines_that_were_appended_come_alone_with_their_numbers(table: Table, source: Path) -> None:
    file = source / "a.jsonl"
    file.write_text('{"id": 1}\n{"id": 2}\n')
    captured(table, source, metadata="line", changed_files="append")
    with file.open("a") as end:
        end.write('{"id": 3, "more": "x"}\nno record\n{"id": 4}\n{"id"')
    (batch,) = captured(table, source, changed_files="append")

    assert batch.result.rows_read == 3
    assert f"{file}: 3 lines more" in batch.result.hints
    rows = table.read().select("id", "_source.line").collect()
    assert sorted(map(tuple, rows)) == [(1, 1), (2, 2), (3, 3), (4, 5)]
    kept = quarantine.of(table.format).read().collect()
    assert [(row.line, row.raw) for row in kept] == [(4, "no record")]
    with file.open("a") as end:
        end.write(": 5}\n")
    captured(table, source, changed_files="append")
    proven(table, file)


@pytest.mark.iceberg_only("of the source alone")
def test_rows_that_were_appended_to_csv_come_alone_under_its_header(table: Table, source: Path) -> None:
    file = source / "a.csv"
    file.write_text('id;text\n1;"a\nb"\n2;c\n')
    captured(table, source, metadata="line", changed_files="append")
    with file.open("a") as end:
        end.write('3;d\n4;"e\nf"\n5;')
    captured(table, source, changed_files="append")

    rows = table.read().select("id", "text", "_source.line").collect()
    assert sorted(map(tuple, rows)) == [(1, "a\nb", 2), (2, "c", 4), (3, "d", 5), (4, "e\nf", 6)]


@pytest.mark.iceberg_only("of the source alone")
def test_changed_file_is_passed_over_or_comes_again_by_its_key(table: Table, source: Path) -> None:
    file = put(source / "a.json", 1, 2)
    captured(table, source, key="id")
    put(file, 1, 2, 3)
    query = table.capture(source, name="orders", changed_files="skip")
    assert query.awaitTermination(120)
    assert query.left_out == ("1 changed file passed over: a.json",)
    assert ids(table) == [1, 2]

    (batch,) = captured(table, source, changed_files="again")
    assert ids(table) == [1, 2, 3]
    assert any("a.json changed since it was ingested: all of it" in hint for hint in batch.result.hints)
    with pytest.raises(UsageError, match="changed_files = 'never' is not possible"):
        captured(table, source, changed_files="never")


@pytest.mark.nightly
@pytest.mark.parametrize("phase", ["observing", "writing", "committing"])
def test_capture_of_a_growing_file_that_dies_takes_each_line_once(
    table: Table, source: Path, phase: str
) -> None:
    """The file also grows while it is read."""
    file, count = source / "a.jsonl", 0

    def grow(text: str = '{{"id": {}}}\n') -> None:
        nonlocal count
        with file.open("a") as end:
            end.write(text.format(count))
        count += 1

    def dies(now: str) -> None:
        if now == phase:
            grow()
            raise ZeroDivisionError

    for _ in range(2):
        grow()
        grow("no record {}\n")
        with pytest.raises(ZeroDivisionError):
            captured(table, source, progress=dies, changed_files="append")
        captured(table, source, progress=lambda now: grow() if now == phase else None, changed_files="append")
    captured(table, source, changed_files="append")

    proven(table, file)
    assert table.read().count() + quarantine.of(table.format).read().count() == count


@pytest.mark.iceberg_only("of the source alone")
def test_a_file_deleted_before_it_was_taken(
    table: Table, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(source / "a.json", 1)
    file = put(source / "b.json", 2)
    with monkeypatch.context() as patch:
        at_start_of_batch(patch, 1, file.unlink)
        with pytest.raises(DataError, match=r"b\.json was deleted before it was ingested"):
            captured(table, source, max_files=1)
    with pytest.raises(DataError, match=r"b\.json was deleted before it was ingested"):
        captured(table, source)
    put(file, 2)
    captured(table, source)
    assert ids(table) == [1, 2]


@pytest.mark.iceberg_only("of the source alone")
def test_a_file_changed_before_it_was_taken_is_taken_as_it_is(
    table: Table, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(source / "a.json", 1)
    file = put(source / "b.json", 2)
    at_start_of_batch(monkeypatch, 1, lambda: put(file, 2, 3))
    captured(table, source, max_files=1)
    captured(table, source)
    assert ids(table) == [1, 2, 3]


def test_the_log_that_spark_writes_anew_keeps_the_newest_lists_alone(
    table: Table, source: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each tenth micro-batch would write the lists of all before it."""
    monkeypatch.setattr("driftline.capture.flows.KNOWN_FOR", 3)
    interval = "spark.sql.streaming.fileSource.log.compactInterval"
    spark.conf.set(interval, 2)
    try:
        for number in range(9):
            put(source / f"{number}.json", number, modified=number + 1)
        query = table.capture(source, name="orders", max_files=1)
        assert query.awaitTermination(120)
        logs = sorted(
            Path(query.checkpoint).glob("spark/sources/0/*.compact"), key=lambda log: log.stat().st_mtime
        )
        known = [json.loads(line)["path"] for line in logs[-1].read_text().split("\n")[1:]]
        assert [path[-7:] for path in known] == ["04.json", "05.json", "06.json", "07.json"]
        put(source / "9.json", 9)
        captured(table, source, max_files=1)
        assert ids(table) == [*range(10)]
    finally:
        spark.conf.unset(interval)


def at_start_of_batch(patch: pytest.MonkeyPatch, epoch: int, act: Callable[[], object]) -> None:
    from driftline.capture.flows import Files

    original = Files.source

    def source(self: Files, frame: Any, number: int) -> Any:
        if number == epoch:
            act()
        return original(self, frame, number)

    patch.setattr(Files, "source", source)


@pytest.mark.parametrize("phase", ["observing", "writing", "committing"])
def test_a_file_that_changes_while_it_is_read(table: Table, source: Path, phase: str) -> None:
    file = put(source / "a.json", 1)
    todo = [lambda: put(file, 1, 2)]

    def progress(now: str) -> None:
        if now == phase and todo:
            todo.pop()()

    with pytest.raises(DataError, match=r"a\.json changed while it was read"):
        captured(table, source, progress=progress)
    assert not table.format.load().exists
    captured(table, source)
    assert ids(table) == [1, 2]


@pytest.mark.iceberg_only("of the source alone")
def test_a_folder_that_is_away_and_comes_back(table: Table, source: Path) -> None:
    put(source / "a.json", 1)
    captured(table, source)
    source.rename(source.parent / "away")
    failed(table, source, SetupError, "no such folder")
    (source.parent / "away").rename(source)
    put(source / "b.json", 2)
    captured(table, source)
    assert ids(table) == [1, 2]


@pytest.mark.iceberg_only("of the source alone")
def test_a_folder_that_goes_away_while_the_capture_waits(table: Table, source: Path) -> None:
    put(source / "a.json", 1)
    query = table.capture(source, name="orders", every=0.2)
    until(lambda: table.format.load().exists)
    source.rename(source.parent / "away")
    with pytest.raises(SetupError, match="no such folder"):
        query.awaitTermination(60)


def test_keeping_on_takes_what_comes(table: Table, source: Path) -> None:
    put(source / "a.json", 1)
    query = table.capture(source, name="orders", every=0.2)
    for i in (2, 3):
        until(lambda i=i: table.format.load().exists and len(ids(table)) == i - 1)
        put(source / f"{i}.json", i)
    until(lambda: len(ids(table)) == 3)
    query.stop()
    assert query.awaitTermination(60)
    assert captured(table, source) == []


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.1)


@pytest.mark.nightly
def test_stop_waits_for_the_batch(table: Table, source: Path) -> None:
    for i in range(5):
        put(source / f"{i}.json", i)
    writing = threading.Event()
    query = table.capture(
        source,
        name="orders",
        max_files=1,
        progress=lambda phase: writing.set() if phase == "writing" else None,
    )
    assert writing.wait(60)
    query.stop()
    assert query.awaitTermination(60)
    done = ids(table)
    assert 1 <= len(done) < 5
    assert len(captured(table, source, max_files=1)) in (5 - len(done), 6 - len(done))
    assert ids(table) == [0, 1, 2, 3, 4]


def test_stop_as_a_batch_begins(table: Table, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither waits for the other: Spark's `stop` waits for the batch that it has just begun."""
    begun, held = threading.Event(), threading.Event()
    run, end = _Runner.__call__, StreamingQuery.stop

    def late(self: _Runner, frame: DataFrame, epoch: int) -> None:
        begun.set()
        held.wait(60)
        run(self, frame, epoch)

    def stop(self: StreamingQuery) -> None:
        held.set()
        end(self)

    monkeypatch.setattr(_Runner, "__call__", late)
    monkeypatch.setattr(StreamingQuery, "stop", stop)
    put(source / "a.json", 1)
    query = table.capture(source, name="orders", every=60)
    assert begun.wait(60)
    stopping = threading.Thread(target=query.stop, daemon=True)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()
    assert query.awaitTermination(60)
    monkeypatch.undo()
    captured(table, source)
    assert ids(table) == [1]


@pytest.mark.nightly
@pytest.mark.parametrize("fmt", ["csv", "parquet", "avro", "orc"])
def test_every_format(table: Table, spark: SparkSession, source: Path, fmt: str) -> None:
    options = {"header": "true"} if fmt == "csv" else {}
    for i, sql in enumerate(["1 as id, 'x' as a", "2 as id, 5 as a, true as b"]):
        spark.sql(f"select {sql}").coalesce(1).write.format(fmt).options(**options).save(str(source / str(i)))
        captured(table, source)
    assert ids(table) == [1, 2]
    proven(table, [*source.rglob(f"*.{fmt}")], fmt)


@pytest.mark.iceberg_only("of the source alone")
def test_files_of_several_formats(table: Table, source: Path) -> None:
    put(source / "a.json", 1)
    captured(table, source)
    (source / "b.csv").write_text("id\n2\n")
    failed(table, source, UsageError, r"b\.csv: the capture takes json")


@pytest.mark.iceberg_only("of the source alone")
def test_a_glob(table: Table, source: Path) -> None:
    put(source / "a.json", 1)
    put(source / "b.jsonl", 2)
    captured(table, source / "*.json")
    put(source / "c.json", 3)
    captured(table, source / "*.json")
    assert ids(table) == [1, 3]


def test_records_that_are_none_and_files_without_any(table: Table, source: Path) -> None:
    (source / "a.json").write_bytes(b'bad\n{"id": "\xff"}\n')
    (source / "b.json").write_bytes(b"")
    (source / "c.json").write_bytes(b'{"id": 1}')
    batches = captured(table, source, max_files=1)
    assert [(b.result.rows_written, b.result.rows_quarantined) for b in batches] == [(0, 2), (0, 0), (1, 0)]
    kept = quarantine.of(table.format).read().orderBy("line").collect()
    assert [(row.line, row.batch[:9]) for row in kept] == [(1, "orders-0-"), (2, "orders-0-")]
    assert kept[1].raw_bytes == b'{"id": "\xff"}'


@pytest.mark.iceberg_only("of the source alone")
def test_names_of_files_in_any_script(table: Table, source: Path) -> None:
    for i, name in enumerate(["a b%20c.json", "é'\"`$.json", "日本語.json", "line\nbreak.json"]):
        put(source / name, i)
    captured(table, source)
    assert captured(table, source) == []
    assert ids(table) == [0, 1, 2, 3]


@pytest.mark.nightly
@pytest.mark.iceberg_only("of the source alone")
def test_many_batches_keep_a_short_log(table: Table, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from driftline.capture import folder

    monkeypatch.setattr(folder, "_KEPT", 2)
    for i in range(7):
        put(source / f"{i}.json", i)
        captured(table, source)
    log = checkpoint(table) / "files"
    assert len(list(log.glob("[0-9]*.json"))) <= 5 and (log / "_taken.json.gz").exists()
    put(source / "0.json", 9)
    failed(table, source, DataError, r"0\.json")
    put(source / "0.json", 0, modified=1)
    assert ids(table) == list(range(7))


def checkpoint(table: Table) -> Path:
    warehouse = table.lake.spark.conf.get(f"spark.sql.catalog.{table.lake.catalog}.warehouse")
    return Path(str(warehouse), "_captures", table.name, "orders")


# Streams of any kind -------------------------------------------------------------------------------------------


def stream(spark: SparkSession, folder: Path) -> Any:
    return spark.readStream.schema("id long, a string").json(str(folder))


def test_a_streaming_frame(table: Table, spark: SparkSession, source: Path) -> None:
    put(source / "a.json", 1)
    assert [b.result.rows_written for b in captured(table, stream(spark, source))] == [1]
    put(source / "b.json", 2)
    captured(table, stream(spark, source))
    assert ids(table) == [1, 2]


def test_a_frame_that_is_another_each_time_it_is_computed(
    table: Table, spark: SparkSession, source: Path
) -> None:
    put(source / "a.json", *range(50))
    frame = stream(spark, source).selectExpr(
        "id", "rand() as r", "uuid() as u", "cast(rand() * 2 as int) as half"
    )
    captured(table, frame.where("half = 0"))
    assert table.read().where("half != 0").count() == 0


def test_a_column_of_json_that_drifts(table: Table, spark: SparkSession, source: Path) -> None:
    put(source / "a.json", 1)
    captured(table, spark.readStream.text(str(source)), json_column="value")
    (source / "b.json").write_text('{"id": "x", "new": {"a": 1.50}}\nbad\n')
    (batch,) = captured(table, spark.readStream.text(str(source)), json_column="value")
    assert (batch.result.rows_written, batch.result.rows_quarantined) == (1, 1)
    assert [c.path for c in batch.result.changes] == [("id_string",), ("new",), ("new", "a")]


@pytest.mark.iceberg_only("of the source alone")
def test_a_frame_that_is_no_stream(table: Table, spark: SparkSession) -> None:
    failed(table, spark.range(3), UsageError, "is not a stream")


def test_an_error_of_sparks_own_is_one_clear_error(table: Table, spark: SparkSession, source: Path) -> None:
    put(source / "a.json", 1)
    with pytest.raises(DataError) as raised:
        captured(table, stream(spark, source).selectExpr("raise_error('it broke') as a", "id"))
    assert "it broke" in str(raised.value) and "\n\tat " not in str(raised.value)
    captured(table, stream(spark, source))
    assert ids(table) == [1]


# Checkpoints ---------------------------------------------------------------------------------------------------


def test_a_checkpoint_belongs_to_one_table_and_source(table: Table, source: Path, tmp_path: Path) -> None:
    put(source / "a.json", 1)
    place = tmp_path / "checkpoint"
    captured(table, source, checkpoint=place)
    other = table.lake.table(f"{table.name}_other")
    failed(other, source, UsageError, "capture orders reads .*; this one is", checkpoint=place)
    failed(table, tmp_path, UsageError, "capture orders reads .*; this one is", checkpoint=place)
    failed(table, source, DataError, "by another checkpoint", checkpoint=tmp_path / "new")


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "a'b", "é?"])
@pytest.mark.iceberg_only("of the source alone")
def test_a_name_that_is_none(table: Table, source: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid capture name"):
        table.capture(source, name=name)


def test_settings_that_each_batch_would_refuse_are_refused_before_the_capture_starts(
    table: Table, source: Path
) -> None:
    put(source / "a.json", 1)
    with pytest.raises(UsageError, match="merge needs a key"):
        table.capture(source, name="orders", merge="keep")
    captured(table, source, key="id")
    with pytest.raises(UsageError, match="has key = 'id'"):
        table.capture(source, name="orders", key="other")


def test_a_capture_that_runs_already(table: Table, source: Path) -> None:
    put(source / "a.json", 1)
    query = table.capture(source, name="orders", every=60)
    with pytest.raises(DataError, match="is already running in another process"):
        captured(table, source)
    query.stop()
    query.awaitTermination(60)
    captured(table, source)
    assert ids(table) == [1]


@pytest.mark.iceberg_only("by Iceberg's procedures")
def test_a_table_dropped_under_the_capture_and_restored(table: Table, source: Path) -> None:
    put(source / "a.json", 1)
    captured(table, source)
    place = table.format.handle.java().operations().current().metadataFileLocation()
    put(source / "b.json", 2)
    table.lake.sql(f"drop table {table.format.handle.full_name}")
    failed(table, source, DataError, "was dropped")
    table.lake.sql(f"create table {table.format.handle.full_name} (id bigint)")
    failed(table, source, DataError, "is another one")
    table.lake.sql(f"drop table {table.format.handle.full_name}")
    table.lake.sql(f"call lake.system.register_table('{table.name}', '{place}')")
    captured(table, source)
    assert ids(table) == [1, 2]


def test_a_batch_that_fails_comes_again_and_its_error_stands_in_the_status_until_then(
    table: Table, source: Path, tmp_path: Path
) -> None:
    place = tmp_path / "checkpoint"
    put(source / "a.json", 1)
    captured(table, source, settings={"max_columns": "2", "beyond": "fail"}, checkpoint=place)
    assert CaptureStatus.of(place) == CaptureStatus(0, has_ended=True)
    (source / "b.json").write_text('{"id": 2, "a": 1, "b": 1, "c": 1}')
    failed(table, source, DataError, "max_columns", checkpoint=place)
    status = CaptureStatus.of(place)
    assert status is not None and "max_columns" in status.error
    captured(table, source, settings={"max_columns": "10"}, checkpoint=place)
    assert ids(table) == [1, 2]
    assert CaptureStatus.of(place) == CaptureStatus(0, has_ended=True)
