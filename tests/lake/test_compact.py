"""Compaction writes a table's small and worn files anew: its rows stay the same rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from driftline.errors import UsageError
from driftline.formats.base import UnknownError
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.iceberg import transaction as committing
from driftline.ingest import pipeline
from driftline.keys import anew
from driftline.lake import Lake, Table
from lake.ducklake_peer import peer, run, same
from lake.formats import database, ducklake_at
from lake.test_keyed import SETTINGS, put
from lake.test_task_files import files_of
from lake.test_worn_files import live_files
from servers.postgres import Postgres


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have three small files be worth it in place of eight."""
    monkeypatch.setattr(anew, "_MANY", 3)


def rows(table: Table) -> list[str]:
    """The rows of a table, with their ids and the numbers of their last changes where it has them."""
    if (ducklake := database(table.lake)) is not None:
        with TemporaryDirectory() as folder:
            same(table.format, Path(folder))
        return sorted(map(str, run(ducklake, f"SELECT rowid, * FROM lk.{table.name}")))
    ids = (
        ["_row_id", "_last_updated_sequence_number"] if table.format.definition().format_version == 3 else []
    )
    return sorted(map(str, table.read().selectExpr("*", *ids).collect()))


def delete_files(table: Table) -> int:
    """The number of delete files that the table has now."""
    if (ducklake := database(table.lake)) is not None:
        return len(run(ducklake, f"FROM ducklake_list_files('lk', '{table.name.split('.')[1]}', "
                       f"schema => '{table.name.split('.')[0]}') WHERE delete_file IS NOT NULL"))  # fmt: skip
    return table.lake.sql(f"select * from lake.{table.name}.delete_files").count()


def data_files(table: Table) -> list[str]:
    """The paths of the table's data files."""
    if (ducklake := database(table.lake)) is not None:
        namespace, name = table.name.split(".")
        files = run(
            ducklake, f"SELECT data_file FROM ducklake_list_files('lk', '{name}', schema => '{namespace}')"
        )
        return [file for (file,) in files]
    files = table.lake.sql(f"select file_path from lake.{table.name}.files").collect()
    return [row.file_path.removeprefix("file:") for row in files]


def seen(table: Table) -> dict[str, Any]:
    return {c["path"]: (c["first_seen"], c["last_seen"]) for c in table.stats().to_dict()["columns"]}


def fill(table: Table, file: Path, settings: dict[str, str]) -> None:
    """Have three batches that drift, of which each updates a row of the one before, and the last deletes one."""
    for n in range(3):
        drift = {"late": [n]} if n == 1 else {}
        records = [{"id": n * 7 + i, "seq": n, "v": f"v{n % 2}", "op": "u", **drift} for i in range(8)]
        records += [{"id": 1, "seq": n, "op": "d", "v": "v0"}] if n == 2 else []
        table.ingest(put(file, records), again=True, settings=settings if n == 0 else {})


def in_commit(monkeypatch: pytest.MonkeyPatch, lake: Lake, instead: Callable[..., None]) -> None:
    """Call ``instead`` in place of each commit, with the function that commits and what that is given."""
    owner, name = (committing, "commit") if database(lake) is None else (CatalogDatabase, "write")
    commit = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **named: instead(partial(commit, **named), *given))


def meeting(monkeypatch: pytest.MonkeyPatch, lake: Lake, between: Callable[[], object]) -> None:
    """Call ``between`` before the next commit of a transaction, once."""
    calls = [between]

    def interrupted(commit: Callable[..., Any], *given: Any) -> Any:
        if calls:
            calls.pop()()
        return commit(*given)

    in_commit(monkeypatch, lake, interrupted)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "settings",
    [
        {},
        SETTINGS,
        pytest.param(
            {**SETTINGS, "format_version": "3"}, marks=pytest.mark.iceberg_only("versions are Iceberg's")
        ),
    ],
    ids=["appended", "keyed", "keyed in v3"],
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
    assert delete_files(table) == 0
    assert table.compact().commits == 0
    if "key" in settings:
        undone = table.undo(yes=True)
        assert undone.batch is not None and (undone.batch.added, undone.batch.removed) == (8, 2)
        assert len(rows(table)) == 15


def test_an_append_before_the_commit_stays_and_the_compaction_goes_on_top(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    fill(table, file, {})
    count, other = table.read().count(), lake.table(table_name)
    meeting(monkeypatch, lake, lambda: other.ingest(put(file, [{"id": 99, "new": 1}]), again=True))
    done = table.compact()
    assert (done.commits, live_files(table), table.read().count()) == (1, 2, count + 1)
    assert seen(table)["new"][0] != seen(table)["id"][0]


def test_files_whose_rows_are_changed_before_the_commit_are_left(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    fill(table, file, SETTINGS)
    other = lake.table(table_name)
    record = {"id": 3, "seq": 50, "v": "newest", "op": "u"}
    meeting(monkeypatch, lake, lambda: other.ingest(put(file, [record]), again=True))
    done = table.compact()
    assert (done.commits, done.left["another writer changed its files meanwhile"]) == (0, done.files_before)
    assert [row.v for row in table.read().where("id = 3").collect()] == ["newest"]
    known = files_of(lake, table)
    lake.clean(0)
    assert files_of(lake, table) == known  # the files of the group that was left are gone already


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

    meeting(monkeypatch, lake, beside)
    table.resolve("id", "long")
    assert table.read().where("id = 99").count() == 1
    assert (table.read().count(), "id_string" in table.read().columns) == (count + 1, False)


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


def test_a_killed_compaction_leaves_orphans_for_clean_and_an_unknown_outcome_keeps_its_files(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table(table_name)
    fill(table, tmp_path / "rows.jsonl", {})
    before, known = rows(table), files_of(lake, table)

    def dying(*_: Any) -> None:
        raise KeyboardInterrupt

    def silent(commit: Callable[..., Any], *given: Any) -> None:
        commit(*given)
        raise UnknownError("the answer was lost")

    with monkeypatch.context() as patch:
        in_commit(patch, lake, dying)
        with pytest.raises(KeyboardInterrupt):
            table.compact()
    assert rows(table) == before and files_of(lake, table) > known
    lake.clean(0)
    assert files_of(lake, table) <= known
    with monkeypatch.context() as patch:
        in_commit(patch, lake, silent)
        with pytest.raises(UnknownError):
            table.compact()
    assert (live_files(table), rows(table)) == (1, before)


def test_a_table_of_one_file_has_nothing_to_compact_and_no_table_is_refused(
    lake: Lake, table_name: str
) -> None:
    table = lake.table(table_name)
    with pytest.raises(UsageError, match="there is no table"):
        table.compact()
    table.ingest([{"id": 1}])
    assert table.compact().commits == 0


def test_files_of_before_the_sort_order_are_sorted_by_it_once(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    table.ingest(put(file, [{"id": id_} for id_ in (3, 1, 2)]))
    with pytest.raises(UsageError, match="has no sort order") as refused:
        table.compact(sort=True)
    assert f'Lake.alter("ALTER TABLE {table_name} WRITE ORDERED BY COLUMN")' in str(refused.value)
    lake.alter(f"alter table {table_name} write ordered by id desc")
    table.ingest(put(file, [{"id": id_} for id_ in (5, 7, 6)]), again=True)
    assert table.compact().commits == 0
    done = table.compact(sort=True)
    assert (done.written_anew, done.rows, table.compact(sort=True).commits) == (1, 3, 0)
    stored = [pq.read_table(path)["id"].to_pylist() for path in data_files(table)]
    assert sorted(stored) == [[3, 2, 1], [7, 6, 5]]


@pytest.mark.ducklake_only("DuckDB writes to no Iceberg table here")
def test_duckdb_reads_the_same_rows_by_id_of_drifted_files_and_of_snapshots_before(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, file, ducklake = lake.table(table_name), tmp_path / "rows.jsonl", database(lake)
    fill(table, file, {})
    nested = [{"id": 50, "seq": 9, "l": [{"a": 1, "b": [[1], []]}, {"a": 2}], "s": {"x": {"y": [7]}}}]
    table.ingest(put(file, nested), again=True, settings={})
    for change in ("rename column late to later", "add column plan string default 'free'"):
        lake.alter(f"alter table {table_name} {change}")
    run(ducklake, f"DELETE FROM lk.{table_name} WHERE id IN (3, 50)")  # few rows: the catalog keeps them
    before, snapshot = rows(table), table.state().snapshot
    seen_before = seen(table)
    done = table.compact()
    assert (done.files_before, done.files_after, rows(table), seen(table)) == (4, 1, before, seen_before)
    assert len(same(table.format, tmp_path, at=snapshot)) == len(before)
    run(
        ducklake,
        f"UPDATE lk.{table_name} SET v = 'new' WHERE id = 2",
        f"DELETE FROM lk.{table_name} WHERE id = 4",
    )
    assert len(rows(table)) == len(before) - 1
    table.ingest(put(file, [{"id": 60, "seq": 9}]), again=True)
    ids = [row for (row,) in run(ducklake, f"SELECT rowid FROM lk.{table_name}")]
    assert len(ids) == len({*ids}) == len(before)


@pytest.mark.nightly
@pytest.mark.parametrize("limit", [0, 100], ids=["in a file", "in the catalog"])
def test_a_delete_by_duckdb_that_began_before_a_compaction_does_not_commit_beside_it(
    spark: SparkSession, postgres: Postgres, tmp_path: Path, limit: int
) -> None:
    catalog = CatalogDatabase.of(postgres.database(), tmp_path / "lake")
    table = ducklake_at(spark, catalog).table("shop.orders")
    fill(table, tmp_path / "rows.jsonl", {})
    with peer(catalog) as connection:
        connection.execute(f"CALL lk.set_option('data_inlining_row_limit', {limit})")
        connection.execute("BEGIN").execute("DELETE FROM lk.shop.orders WHERE id = 3")
        assert table.compact().commits == 1
        with pytest.raises(duckdb.Error, match="conflict"):
            connection.execute("COMMIT")
        connection.execute("BEGIN").execute("INSERT INTO lk.shop.orders (id) VALUES (99)")
        table.ingest([{"id": n} for n in range(100, 103)])
        connection.execute("COMMIT").execute("DELETE FROM lk.shop.orders WHERE id = 3")
    assert (table.read().where("id = 3").count(), table.read().where("id = 99").count()) == (0, 1)


@pytest.mark.parametrize(("reason", "content"), [("gone", None), ("damaged", b"PAR1, once")])
def test_a_file_that_is_gone_or_damaged_is_left_by_compactions_and_the_others_become_one(
    lake: Lake,
    table_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    content: bytes | None,
) -> None:
    monkeypatch.setattr(pipeline, "_MANY_FILES", 5)
    table, file = lake.table(table_name), tmp_path / "rows.jsonl"
    fill(table, file, {})
    lost = min(map(Path, data_files(table)), key=lambda path: path.stat().st_mtime_ns)
    lost.unlink() if content is None else lost.write_bytes(content)
    more = put(file, [{"id": 60 + n} for n in range(8)])
    table.ingest(more, again=True)
    hints = table.ingest(more, again=True, settings={"compact": "auto"}).hints
    assert [hint for hint in hints if "small files" in hint] == ["4 small files became 1 file, of 33 rows"]
    assert table.compact().left[f"the file is {reason}"] == 1
    assert lost.name in {Path(path).name for path in data_files(table)}


@pytest.mark.iceberg_only("versions are Iceberg's")
def test_worn_files_of_a_table_that_became_v3_are_written_anew_in_one_run(
    iceberg: Lake, table_name: str
) -> None:
    """The first group's commit gives ids to the rows of the others, which is no change by another writer."""
    table = iceberg.table(table_name)
    table.ingest([{"p": n % 3, "n": n} for n in range(12)], partition_by="p", format_version=2)
    name = f"lake.{table.name}"
    table.lake.sql(f"alter table {name} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    table.lake.sql(f"delete from {name} where n < 6")
    table.lake.sql(f"alter table {name} set tblproperties ('format-version' = '3')")
    compacted = table.compact()
    assert (compacted.commits, compacted.left) == (3, {})
    assert sorted(row.n for row in table.read().collect()) == [*range(6, 12)]
