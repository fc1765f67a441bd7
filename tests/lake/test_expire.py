"""`expire`: older snapshots end, and the files that only they had are deleted, in either format."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from driftline.errors import DataError, DriftlineError, UsageError
from driftline.lake import Lake, Table
from driftline.runtime.disk import local
from lake.ducklake_peer import run
from lake.formats import database

NOW = timedelta(0)


def batch(table: Table, folder: Path, number: int, **settings: str) -> None:
    file = folder / f"{number}.jsonl"
    file.write_text(f'{{"id": {number}, "customer": "c-{number}"}}\n')
    table.ingest(file, settings=settings)


def rows_deleted(lake: Lake, name: str) -> None:
    """Delete the table's first row, and write the file that had it anew."""
    if (catalog := database(lake)) is not None:
        namespace, table = name.split(".")
        named = f"'{table}', schema => '{namespace}', delete_threshold => 0"
        rewrite = f"CALL ducklake_rewrite_data_files('lk', {named})"
        run(catalog, f"DELETE FROM lk.{name} WHERE id = 1", rewrite)
        return
    lake.sql(f"delete from {lake.format.sql_name(name)} where id = 1")


def holding(table: Table, text: str) -> list[Path]:
    """The data files of the table that have a text in the bounds of their footers."""
    folders = [local(folder) for folder in table.drop(dry_run=True).folders]
    files = (path for folder in folders for path in folder.rglob("*.parquet"))
    return [path for path in files if text.encode() in path.read_bytes()]


def ids(table: Table) -> list[int]:
    return sorted(row.id for row in table.read().select("id").collect())


@pytest.mark.nightly
def test_files_that_only_ended_snapshots_have_are_deleted_and_all_others_stay(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    for number in (1, 2):
        batch(table, tmp_path, number)
    rows_deleted(lake, table_name)
    batch(table, tmp_path, 3)
    assert holding(table, "c-1")

    dry = table.expire(NOW, dry_run=True)
    assert (dry.is_done, dry.files) == (False, 0)
    assert holding(table, "c-1")
    expired = table.expire(NOW)

    assert dry.snapshots == expired.snapshots > 0
    assert expired.files > 0
    assert expired.remaining == 1
    assert repr(expired).startswith(f"expired  {table_name}\n")
    assert holding(table, "c-1") == []
    assert ids(table) == [2, 3]
    batch(table, tmp_path, 4)
    assert ids(table) == [2, 3, 4]
    assert table.quarantine().waiting == 0


def test_snapshots_of_a_time_and_the_last_ones_stay(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    batch(table, tmp_path, 1)
    time.sleep(0.1)
    between = datetime.now(UTC)
    time.sleep(0.1)
    for number in (2, 3):
        batch(table, tmp_path, number)

    everything = table.expire(timedelta(days=1))
    before = table.expire(between, retain_last=2)

    assert (everything.snapshots, everything.loses) == (0, ())
    assert before.snapshots > 0
    assert before.since is not None
    assert any("time travel" in loss for loss in before.loses)
    snapshots = [s.id for s in table.format.snapshots(table.state().snapshot)]
    assert len(snapshots) >= 2
    assert sorted(row.id for row in table.format.read(snapshots[1]).collect()) == [1, 2]
    assert table.expire(NOW, retain_last=2).snapshots == len(snapshots) - 2


def test_expired_batch_of_a_table_with_a_key_cannot_be_undone_and_is_named_before(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    for number in (1, 2):
        batch(table, tmp_path, number, key="id")

    dry = table.expire(NOW, dry_run=True)
    assert any(loss.startswith("undo of batch") for loss in dry.loses), dry
    table.expire(NOW)

    with pytest.raises(DataError, match="expired"):
        table.undo(yes=True)
    assert ids(table) == [1, 2]
    batch(table, tmp_path, 3)
    table.undo(yes=True)
    assert ids(table) == [1, 2]


@pytest.mark.iceberg_only("a DuckLake has no tags")
def test_snapshot_of_a_tag_stays_and_is_named(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    full = lake.format.sql_name(table_name)
    batch(table, tmp_path, 1)
    lake.sql(f"alter table {full} create tag audit")
    for number in (2, 3):
        batch(table, tmp_path, number)

    expired = table.expire(NOW)

    assert (expired.snapshots, expired.remaining) == (1, 2)
    assert f"1 older snapshot of {table_name}, which the tag audit needs" in expired.keeps
    assert lake.sql(f"select id from {full} version as of 'audit'").collect() == [(1,)]
    assert ids(table) == [1, 2, 3]


@pytest.mark.iceberg_only("a DuckLake has no such property")
def test_table_whose_files_are_not_to_be_deleted_is_refused(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    for number in (1, 2):
        batch(table, tmp_path, number)
    lake.sql(f"alter table {lake.format.sql_name(table_name)} set tblproperties ('gc.enabled' = 'false')")

    with pytest.raises(UsageError, match=r"gc\.enabled = false"):
        table.expire(NOW)


@pytest.mark.ducklake_only("Iceberg has snapshots of single tables")
def test_files_of_all_tables_of_a_ducklake_are_deleted_with_their_snapshots(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, other = lake.table(table_name), lake.table(f"{table_name}_other")
    for each in (other, table):
        batch(each, tmp_path, 1)
    dropped = other.drop()
    assert dropped.files > 0

    expired = table.expire(NOW)

    assert expired.of_lake
    assert "of all tables of the lake" in repr(expired)
    assert not any(path.is_file() for folder in dropped.folders for path in local(folder).rglob("*.parquet"))
    assert ids(table) == [1]


STEPS = {
    "driftline.formats.iceberg.expiry.delete_all_by_file_io": "iceberg",
    "driftline.formats.iceberg.expiry.IcebergExpiry._forget": "iceberg",
    "driftline.formats.ducklake.expiry.delete_file": "ducklake",
    "driftline.formats.ducklake.expiry.DuckLakeExpiry._tidy": "ducklake",
}


@pytest.mark.nightly
def test_second_expiry_finishes_one_that_died(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    format_ = "iceberg" if database(lake) is None else "ducklake"
    table = lake.table(table_name)
    batch(table, tmp_path, 1)
    batch(table, tmp_path, 2)
    rows_deleted(lake, table_name)
    batch(table, tmp_path, 3)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for place in (place for place, of in STEPS.items() if of == format_):
        with monkeypatch.context() as patch:
            patch.setattr(place, dies)
            with pytest.raises(KeyboardInterrupt):
                table.expire(NOW)
    expired = table.expire(NOW)

    assert expired.snapshots == 0
    assert holding(table, "c-1") == []
    assert ids(table) == [2, 3]


def test_table_that_is_not_there_and_no_snapshot_to_retain_are_refused(lake: Lake, table_name: str) -> None:
    with pytest.raises(DriftlineError, match="no table"):
        lake.table(table_name).expire(NOW)
    with pytest.raises(UsageError, match="retain_last is 0"):
        lake.table(table_name).expire(NOW, retain_last=0)
