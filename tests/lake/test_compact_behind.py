"""`compact = auto`: a batch that leaves many small files is followed by a compaction, which is never in its way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import DataError
from driftline.ingest import compaction, pipeline
from driftline.keys import anew
from driftline.lake import Lake, Table
from lake.test_compact import rows, seen
from lake.test_keyed import SETTINGS, put
from lake.test_task_files import files_of
from lake.test_worn_files import live_files

AUTO = {"compact": "auto"}
VERSIONS = pytest.mark.iceberg_only("versions are Iceberg's")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have three small files be worth it in place of eight, and look after each third."""
    monkeypatch.setattr(anew, "_MANY", 3)
    monkeypatch.setattr(pipeline, "_MANY_FILES", 3)


def batch(table: Table, file: Path, n: int, settings: dict[str, str]) -> tuple[str, ...]:
    """Have a batch that drifts, and updates a row of the one before; returns what a person is told of it."""
    drift = {"late": [n]} if n == 4 else {}
    records = [{"id": n * 7 + i, "seq": n, "v": n if n % 3 else "x", "op": "u", **drift} for i in range(8)]
    return tuple(table.ingest(put(file, records), again=True, settings=settings if n == 0 else {}).hints)


def told(hints: tuple[str, ...]) -> list[str]:
    return [hint for hint in hints if "small files" in hint]


def in_commits(monkeypatch: pytest.MonkeyPatch, of_compaction: Callable[..., object]) -> None:
    """Have ``of_compaction`` called in place of each compaction's commit, with the commit and what it is given."""
    monkeypatch.setattr(compaction, "commit", partial(of_compaction, compaction.commit))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "settings",
    [{}, SETTINGS, pytest.param({**SETTINGS, "format_version": "3"}, marks=VERSIONS)],
    ids=["appended", "keyed", "keyed in v3"],
)
def test_a_table_compacted_behind_its_batches_equals_one_that_is_not_but_for_its_files(
    lake: Lake, table_name: str, tmp_path: Path, settings: dict[str, str]
) -> None:
    alike = [lake.table(f"{table_name}_{name}") for name in ("auto", "off")]
    for table, compact in zip(alike, ("auto", "off"), strict=True):
        for n in range(12):
            batch(table, tmp_path / "rows.jsonl", n, {**settings, "compact": compact})
    auto, off = alike

    def values(table: Table) -> list[str]:
        return sorted(map(str, table.read().collect()))

    def described(table: Table) -> list[Any]:
        stats = table.stats().to_dict()
        periods = [
            (c["path"], *(c[end] is not None for end in ("first_seen", "last_seen")))
            for c in stats["columns"]
        ]
        return [stats["batches"], periods, len(table.history().schemas)]

    assert values(auto) == values(off)
    assert described(auto) == described(off)
    assert live_files(auto) < 6 <= (live_files(off) if "key" not in settings else 6)
    if "key" in settings:
        undone = auto.undo(yes=True)
        assert undone.batch is not None
        assert undone.batch.added == 8


def test_the_batch_that_brings_another_eight_files_is_told_that_small_ones_became_one(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    hints = [told(batch(table, file, n, AUTO)) for n in range(3)]
    assert hints == [[], [], ["3 small files became 1 file, of 24 rows"]]
    assert (live_files(table), table.stats().to_dict()["batches"]) == (1, 3)
    first, last = seen(table)["v"]
    assert (first is None, last is None) == (False, False)
    table.ingest([{"id": 1}], settings={"compact": "off"})
    for n in range(5, 9):
        assert not told(batch(table, file, n, {}))


@pytest.mark.nightly
@pytest.mark.iceberg_only("a DuckLake's snapshots are not thinned")
def test_thinned_compactions_take_no_batch_and_no_period_of_a_column_from_the_statistics(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    batch(table, file, 0, AUTO)
    lake.alter(f"alter table {table_name} set tblproperties ('history.expire.min-snapshots-to-keep' = '3')")
    for n in range(1, 24):
        batch(table, file, n, {})
    snapshots = lake.sql(f"select summary from lake.{table_name}.snapshots").collect()
    properties = table.state().properties
    assert len(snapshots) < 16 and int(properties["driftline.expired-compactions"]) > 3
    stats = table.stats().to_dict()
    assert stats["batches"] == 24
    assert all(first is not None for first, _ in seen(table).values())
    assert seen(table)["id"][1] is not None
    before, known = rows(table), files_of(lake, table)
    lake.clean(0)
    assert rows(table) == before
    assert files_of(lake, table) < known, "files of snapshots that are gone"


def test_a_capture_makes_tables_that_compact_and_ingest_makes_none(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for n in range(4):
        put(tmp_path / "in" / f"{n}.jsonl", [{"id": n}])
    batches: list[Any] = []
    table = lake.table(table_name)
    table.capture(str(tmp_path / "in"), name="c", max_files=1, on_batch=batches.append).awaitTermination()
    other = lake.table(f"{table_name}_ingested")
    other.ingest([{"id": 1}])
    assert "driftline.compact" not in other.state().properties
    assert sorted(row.id for row in table.read().collect()) == [0, 1, 2, 3]
    assert table.state().properties["driftline.compact"] == "auto"
    assert [batch.epoch for batch in batches if told(batch.result.hints)] == [2]


@pytest.mark.nightly
@pytest.mark.iceberg_only("Spark streams no DuckLake")
def test_a_stream_that_reads_the_table_gets_each_row_once_over_compactions(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, read = lake.table(table_name), list[int]()

    def take(rows: Any, _: int) -> None:
        read.extend(row.id for row in rows.select("id").collect())

    for n in range(7):
        batch(table, tmp_path / "rows.jsonl", n, AUTO)
        if n in (1, 6):
            stream = lake.spark.readStream.table(f"lake.{table_name}").writeStream.foreachBatch(take)
            place = str(tmp_path / "checkpoint")
            stream.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()
    assert live_files(table) == 1
    assert sorted(read) == sorted(n * 7 + i for n in range(7) for i in range(8))


def test_tables_of_a_pattern_are_compacted_behind_a_capture(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for n in range(3):
        put(tmp_path / "in" / f"{n}.jsonl", [{"id": n, "kind": kind} for kind in ("a", "b")])
    query = lake.fan_out(f"{table_name}_{{kind}}").capture(str(tmp_path / "in"), name="c", max_files=1)
    query.awaitTermination()
    for kind in ("a", "b"):
        table = lake.table(f"{table_name}_{kind}")
        assert (live_files(table), sorted(row.id for row in table.read().collect())) == (1, [0, 1, 2])


def test_a_compaction_that_fails_behind_its_batch_is_told_and_tried_with_a_later_one(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise DataError("the disk of the folder is full")

    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    with monkeypatch.context() as patch:
        in_commits(patch, fails)
        hints = [told(batch(table, file, n, AUTO)) for n in range(3)]
    assert hints == [[], [], ["small files are not compacted: the disk of the folder is full"]]
    assert (table.read().count(), live_files(table)) == (24, 3)
    known = files_of(lake, table)
    lake.clean(0)
    assert files_of(lake, table) == known, "the files of the compaction are gone already"
    assert [told(batch(table, file, n, AUTO)) for n in (5, 6, 7)][-1] == [
        "6 small files became 1 file, of 48 rows"
    ]


def test_files_whose_rows_another_writer_changes_stay_and_the_batch_is_in(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    other, record = lake.table(table_name), {"id": 3, "seq": 50, "v": "newest", "op": "u"}
    meetings = [True]

    def meets(commit: Callable[..., object], *given: Any) -> None:
        if meetings:
            meetings.pop()
            other.ingest(put(file, [record]), again=True, settings={"compact": "off"})
        commit(*given)

    in_commits(monkeypatch, meets)
    for n in range(3):
        records = [{"id": n * 8 + i, "seq": n, "v": "x", "op": "u"} for i in range(8)]
        done = table.ingest(put(file, records), again=True, settings={**SETTINGS, **AUTO} if n == 0 else {})
        assert not told(done.hints)
    assert not meetings
    assert table.read().where("v = 'newest'").count() == 1


def test_a_process_that_dies_in_the_compaction_has_its_batch_in(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    for n in range(2):
        batch(table, file, n, AUTO)
    with monkeypatch.context() as patch:
        in_commits(patch, dies)
        with pytest.raises(KeyboardInterrupt):
            batch(table, file, 2, AUTO)
    assert (table.read().count(), live_files(table)) == (24, 3)
    lake.clean(0)
    assert table.read().count() == 24
