"""Compaction writes an Iceberg table's small and worn files anew: its rows stay the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from driftline.errors import UsageError
from driftline.formats.base import UnknownError
from driftline.formats.iceberg import transaction as committing
from driftline.keys import anew
from driftline.lake import Lake, Table
from lake.formats import database
from lake.test_keyed import SETTINGS, put
from lake.test_task_files import files_of
from lake.test_worn_files import live_files


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have three small files be worth it in place of eight."""
    monkeypatch.setattr(anew, "_MANY", 3)


def rows(table: Table) -> list[str]:
    """The rows of a table, with their ids and the numbers of their last changes where it has them."""
    ids = (
        ["_row_id", "_last_updated_sequence_number"] if table.format.definition().format_version == 3 else []
    )
    return sorted(map(str, table.read().selectExpr("*", *ids).collect()))


def seen(table: Table) -> dict[str, Any]:
    return {c["path"]: (c["first_seen"], c["last_seen"]) for c in table.stats().to_dict()["columns"]}


def fill(table: Table, file: Path, settings: dict[str, str]) -> None:
    """Have three batches that drift, of which each updates a row of the one before, and the last deletes one."""
    for n in range(3):
        drift = {"late": [n]} if n == 1 else {}
        records = [{"id": n * 7 + i, "seq": n, "v": f"v{n % 2}", "op": "u", **drift} for i in range(8)]
        records += [{"id": 1, "seq": n, "op": "d", "v": "v0"}] if n == 2 else []
        table.ingest(put(file, records), again=True, settings=settings if n == 0 else {})


def meeting(monkeypatch: pytest.MonkeyPatch, between: Callable[[], object]) -> None:
    """Call ``between`` before the next commit of a transaction, once."""
    commit, calls = committing.commit, [between]

    def interrupted(*given: Any) -> None:
        if calls:
            calls.pop()()
        commit(*given)

    monkeypatch.setattr(committing, "commit", interrupted)


@pytest.mark.nightly
@pytest.mark.iceberg_only("a DuckLake's files are not written anew by group")
@pytest.mark.parametrize(
    "settings",
    [{"format_version": "2"}, {**SETTINGS, "format_version": "2"}, {**SETTINGS, "format_version": "3"}],
    ids=["appended", "keyed in v2", "keyed in v3"],
)
def test_compacted_files_keep_rows_ids_history_seen_times_and_the_undo_of_a_batch(
    lake: Lake, table_name: str, tmp_path: Path, settings: dict[str, str]
) -> None:
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    fill(table, file, settings)
    before = rows(table), seen(table), table.history(), table.stats().to_dict()["batches"]
    dry = table.compact(dry_run=True)
    assert not dry.is_done and (rows(table), live_files(table), dry.files_before) == (before[0], 3, 3)
    done = table.compact()
    assert (rows(table), seen(table), table.history(), table.stats().to_dict()["batches"]) == before
    assert (done.files_before, done.files_after, done.rows) == (3, 1, len(before[0]))
    assert live_files(table) == 1 and done.bytes_after < done.bytes_before
    assert lake.sql(f"select * from lake.{table_name}.delete_files").count() == 0
    assert table.compact().commits == 0
    if "key" in settings:
        undone = table.undo(yes=True)
        assert undone.batch is not None and (undone.batch.added, undone.batch.removed) == (8, 2)
        assert len(rows(table)) == 15


@pytest.mark.iceberg_only("a DuckLake's files are not written anew by group")
def test_an_append_before_the_commit_stays_and_the_compaction_goes_on_top(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    fill(table, file, {})
    count, other = table.read().count(), lake.table(table_name)
    meeting(monkeypatch, lambda: other.ingest(put(file, [{"id": 99, "new": 1}]), again=True))
    done = table.compact()
    assert (done.commits, live_files(table), table.read().count()) == (1, 2, count + 1)
    assert seen(table)["new"][0] != seen(table)["id"][0]


@pytest.mark.iceberg_only("a DuckLake's files are not written anew by group")
def test_files_whose_rows_are_changed_before_the_commit_are_left(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    fill(table, file, SETTINGS)
    other = lake.table(table_name)
    record = {"id": 3, "seq": 50, "v": "newest", "op": "u"}
    meeting(monkeypatch, lambda: other.ingest(put(file, [record]), again=True))
    done = table.compact()
    assert (done.commits, done.left["another writer changed its files meanwhile"]) == (0, done.files_before)
    assert [row.v for row in table.read().where("id = 3").collect()] == ["newest"]
    known = files_of(lake, table)
    lake.clean(0)
    assert files_of(lake, table) == known  # the files of the group that was left are gone already


@pytest.mark.iceberg_only("a DuckLake's files are not written anew by group")
def test_a_resolve_passes_over_a_compaction_and_carries_the_rows_beside_it(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    fill(table, file, {})
    table.ingest(put(file, [{"id": "7"}]), again=True)
    count, other = table.read().count(), lake.table(table_name)

    def beside() -> None:
        other.ingest(put(file, [{"id": 99, "seq": 1}]), again=True)
        assert other.compact().commits == 1

    meeting(monkeypatch, beside)
    table.resolve("id", "long")
    assert table.read().where("id = 99").count() == 1
    assert (table.read().count(), "id_string" in table.read().columns) == (count + 1, False)


@pytest.mark.iceberg_only("a DuckLake's files are not written anew by group")
def test_dropped_columns_and_older_partition_specs_are_kept_and_written_under_the_present_one(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    fill(table, file, {"partition_by": "v", "sort_by": "id"})
    before = rows(table)
    lake.alter(f"alter table {table_name} drop column late")
    done = table.compact()
    reason = "it has values of dropped columns, which undo may bring back"
    assert done.left[reason] == 2 and table.undo() and rows(table) == before
    lake.alter(f"alter table {table_name} drop partition field v")
    assert table.compact().files_after == 2 and rows(table) == before
    assert [group.by for group in table.layout().groups] == [()]


@pytest.mark.iceberg_only("a DuckLake's files are not written anew by group")
def test_a_killed_compaction_leaves_orphans_for_clean_and_an_unknown_outcome_keeps_its_files(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, commit = lake.table(table_name), committing.commit
    fill(table, tmp_path / "rows.jsonl", {})
    before, known = rows(table), files_of(lake, table)

    def dying(*_: Any) -> None:
        raise KeyboardInterrupt

    def silent(*given: Any) -> None:
        commit(*given)
        raise UnknownError("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(committing, "commit", dying)
        with pytest.raises(KeyboardInterrupt):
            table.compact()
    assert rows(table) == before and files_of(lake, table) > known
    lake.clean(0)
    assert files_of(lake, table) <= known
    with monkeypatch.context() as patch:
        patch.setattr(committing, "commit", silent)
        with pytest.raises(UnknownError):
            table.compact()
    assert (live_files(table), rows(table)) == (1, before)


def test_a_ducklake_refuses_a_compaction_and_an_empty_table_has_none(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    with pytest.raises(UsageError, match="there is no table"):
        table.compact()
    table.ingest([{"id": 1}])
    if database(lake) is not None:
        with pytest.raises(UsageError, match="in Iceberg tables alone"):
            table.compact()
        return
    assert table.compact().commits == 0


@pytest.mark.iceberg_only("a DuckLake's files are not written anew by group")
def test_files_of_before_the_sort_order_are_sorted_by_it_once(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    table.ingest(put(file, [{"id": id_} for id_ in (3, 1, 2)]))
    with pytest.raises(UsageError, match="has no sort order"):
        table.compact(sort=True)
    lake.alter(f"alter table {table_name} write ordered by id desc")
    table.ingest(put(file, [{"id": id_} for id_ in (5, 7, 6)]), again=True)
    assert table.compact().commits == 0
    done = table.compact(sort=True)
    assert (done.written_anew, done.rows, table.compact(sort=True).commits) == (1, 3, 0)
    paths = [row.file_path for row in lake.sql(f"select file_path from lake.{table_name}.files").collect()]
    stored = [pq.read_table(path.removeprefix("file:"))["id"].to_pylist() for path in paths]
    assert sorted(stored) == [[3, 2, 1], [7, 6, 5]]
