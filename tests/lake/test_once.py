"""Each file once: what a batch has taken, the next one refuses, unless it is told otherwise."""

from __future__ import annotations

import json
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from driftline.errors import DataError
from driftline.formats import base
from driftline.formats.ducklake import snapshot as ducklake_ledger
from driftline.formats.iceberg import reader as iceberg_ledger
from driftline.formats.iceberg.catalog import IcebergCatalog
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.ingest import pipeline
from driftline.lake import Lake, Table

LINE = '{"id": 1, "t": "a"}\n'


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return lines(tmp_path / "a.jsonl", LINE)


def lines(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def rows(table: Table) -> int:
    return table.read().count()


def test_a_file_that_the_table_has_is_refused_by_name(table: Table, file: Path, tmp_path: Path) -> None:
    other = lines(tmp_path / "b.jsonl", LINE)
    table.ingest(file)

    with pytest.raises(DataError, match=r"1 of 2 files is in the table already: \S*a\.jsonl\s") as error:
        table.ingest([file, other])

    assert "again=True" in (error.value.hint or "")
    assert rows(table) == 1
    assert table.ingest(other).rows_written == 1
    assert table.ingest(file, again=True).rows_written == 1
    assert rows(table) == 3


def test_a_file_of_other_content_is_another_one(table: Table, file: Path) -> None:
    assert table.ingest(file).hints == ()
    lines(file, LINE + LINE)

    again = (
        "all is ingested, and what was there before comes again; "
        "a capture with --changed-files append takes only new lines"
    )
    changed = (f"{file} changed since it was ingested: {again}",)
    assert table.ingest(file, dry_run=True).hints == changed
    grown = table.ingest(file)
    assert (grown.rows_written, grown.hints) == (2, changed)

    os.utime(file, ns=(1, 1))

    touched = table.ingest(file)
    assert (touched.rows_written, touched.hints) == (2, changed)


def test_a_file_that_was_moved_or_copied_is_told(table: Table, file: Path, tmp_path: Path) -> None:
    table.ingest(file)
    moved = file.rename(tmp_path / "moved.jsonl")

    ended = table.ingest([moved, lines(tmp_path / "new.jsonl", LINE * 2)])

    assert ended.rows_written == 3
    (hint,) = ended.hints
    assert hint.startswith(f"{moved}: size and time are those of a file that was ingested under another name")
    assert table.ingest(moved, again=True).hints == ()


def test_a_file_is_known_by_whatever_name_it_is_called(table: Table, file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to(file)
    (tmp_path / "sub").mkdir()

    assert table.ingest([file, tmp_path / "sub" / ".." / "a.jsonl", link]).rows_written == 1
    with pytest.raises(DataError, match="the file is in the table already"):
        table.ingest(link)
    assert table.verify([file, link], exactly=True).ok


def test_a_plan_tells_of_it_and_a_batch_that_failed_leaves_nothing(table: Table, file: Path) -> None:
    bad = {"policy": "strict", "on_conflict": "fail"}
    table.ingest([{"id": 1}])
    with pytest.raises(DataError, match=r"conflict|frozen"):
        table.ingest(file, settings=bad)

    assert table.ingest(file).rows_written == 1
    assert any("--again" in hint for hint in table.ingest(file, dry_run=True).hints)


def test_an_archive_counts_as_the_file_that_it_is(table: Table, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("a.jsonl", LINE)
    table.ingest(archive)

    with pytest.raises(DataError, match=r"a\.zip"):
        table.ingest(archive)


def test_what_waits_in_quarantine_was_taken_too(table: Table, file: Path, tmp_path: Path) -> None:
    table.ingest(file)
    broken = lines(tmp_path / "broken.jsonl", "{\n")

    assert table.ingest(broken).rows_quarantined == 1
    with pytest.raises(DataError, match="already"):
        table.ingest(broken)


def test_rows_of_memory_and_captures_are_not_remembered(table: Table, file: Path, tmp_path: Path) -> None:
    for _ in range(2):
        table.ingest([{"id": 1}])
    table.capture(str(tmp_path), name="c").awaitTermination()

    assert rows(table) == 3
    assert table.ingest(file).rows_written == 1


def test_of_two_batches_at_once_one_has_the_file(table: Table, file: Path, lake: Lake) -> None:
    table.ingest([{"id": 1, "t": "x"}])

    def ingest(_: int) -> bool:
        try:
            lake.table(table.name).ingest(file)
        except DataError as error:
            assert "already" in str(error)  # noqa: PT017
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(ingest, range(4))) == 1
    assert rows(table) == 2


def test_the_oldest_are_forgotten(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (base, iceberg_ledger, ducklake_ledger):
        monkeypatch.setattr(module, "REMEMBERED", 7)  # of a file three, the last of which forbids it
    files = [lines(tmp_path / f"{name}.jsonl", LINE) for name in "abcde"]
    table.ingest(files[:2])
    table.ingest(files[2:4])

    with pytest.raises(DataError, match="3 of 4 files are"):
        table.ingest(files[:4])
    table.ingest(files[4])
    assert table.ingest(files[1]).rows_written == 1
    with pytest.raises(DataError, match="2 of 2 files are"):
        table.ingest(files[3:])


@pytest.mark.iceberg_only("a DuckLake has no roll-back")
def test_a_batch_that_was_rolled_back_lets_its_files_in_again(
    table: Table, file: Path, tmp_path: Path, lake: Lake
) -> None:
    other = lines(tmp_path / "b.jsonl", LINE)
    first = table.ingest(other).snapshot
    table.ingest(file)
    lake.spark.sql(f"call lake.system.rollback_to_snapshot('{table.name}', {first})")

    with pytest.raises(DataError, match=r"1 of 2 files is in the table already: .*b\.jsonl"):
        table.ingest([file, other])
    assert table.ingest(file).rows_written == 1
    assert rows(table) == 2


@pytest.mark.iceberg_only("of Iceberg's metadata")
def test_one_ledger_lies_beside_the_metadata_and_they_do_not_grow_by_it(
    table: Table, file: Path, tmp_path: Path, lake: Lake
) -> None:
    def ledgers() -> list[Path]:
        folder = Path(table.format.handle.java().location().removeprefix("file:")) / "metadata"
        return [path for path in folder.iterdir() if path.name.startswith("_driftline-files")]

    table.ingest(file)
    files = [lines(tmp_path / f"{number}.jsonl", LINE) for number in range(200)]
    table.ingest(files)

    properties = table.state().properties
    assert len(ledgers()) == 1
    assert properties["driftline.files"].endswith(ledgers()[0].name)
    assert ledgers()[0].stat().st_size == 201 * 3 * 16
    with pytest.raises(DataError):
        table.ingest(file)
    assert len(ledgers()) == 1
    orphan = lines(ledgers()[0].with_name("orphan.bin"), "")
    for path in (orphan, ledgers()[0]):
        os.utime(path, (0, 0))
    lake.spark.sql(f"call lake.system.remove_orphan_files(table => '{table.name}')")
    assert (orphan.exists(), len(ledgers())) == (False, 1)

    ledgers()[0].unlink()
    fresh = lake.table(table.name)
    assert fresh.ingest(file).rows_written == 1, "a table whose ledger is gone begins a new one"
    with pytest.raises(DataError, match="already"):
        table.ingest(file)


@pytest.mark.iceberg_only("of a file beside Iceberg's metadata")
def test_a_batch_that_dies_before_its_commit_leaves_a_ledger_that_counts_for_nothing(
    table: Table, file: Path, tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.ingest(file)
    other = lines(tmp_path / "b.jsonl", LINE)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "commit_all", dies)
        patch.setattr(IcebergTransaction, "abandon", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            table.ingest(other)
    monkeypatch.setattr(IcebergCatalog, "tables", lambda _: [table.name])  # not those of all tests before

    left = [orphan.path for orphan in lake.clean(0)]

    assert [("_driftline-files-" in path, path.endswith(".parquet")) for path in sorted(left)] == [
        (False, True),
        (True, False),
    ]
    with pytest.raises(DataError, match=r"a\.jsonl"):
        table.ingest(file)
    assert table.ingest(other).rows_written == 1
    assert rows(table) == 2
    assert lake.clean(0) == []


@pytest.mark.ducklake_only("of its catalog")
def test_duckdb_reads_a_lake_that_has_a_ledger(table: Table, file: Path) -> None:
    table.ingest(file)

    namespace, name = table.name.split(".")
    sql = f'SELECT id, t FROM lk."{namespace}"."{name}"'
    assert table.format.catalog.by_duckdb(sql) == [tuple(json.loads(LINE).values())]


def test_a_file_whose_records_all_wait_before_there_is_a_table_comes_once(
    table: Table, tmp_path: Path
) -> None:
    refused = lines(tmp_path / "refused.jsonl", '{"t": "x", "v": -1}\n{"t": "x", "v": -2}\n')
    good = lines(tmp_path / "good.jsonl", '{"t": "x", "v": 1}\n')
    table.ingest(refused, expect={"v": "v > 0 else quarantine"})
    with pytest.raises(DataError, match="the file is in the quarantine already"):
        table.ingest(refused)
    table.ingest(good)
    with pytest.raises(DataError, match="1 of 2 files is in the table already"):
        table.ingest([refused, lines(tmp_path / "new.jsonl", LINE)])
    assert table.quarantine().waiting == 2
    assert table.verify([refused, good], exactly=True).ok


def test_a_command_for_many_tables_that_is_run_again_brings_no_record_twice_to_a_table_of_refused_ones(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    file = lines(tmp_path / "in.jsonl", '{"t": "x", "v": -1}\n{"t": "y", "v": 2}\n{"t": "x", "v": -2}\n')
    tables = lake.fan_out(table_name + "_{t}")
    tables.ingest(file, expect={"v": "v > 0 else quarantine"})
    with pytest.raises(DataError, match="all tables have the files already"):
        tables.ingest(file)
    assert lake.table(f"{table_name}_x").quarantine().waiting == 2
    assert tables.verify(file, exactly=True).ok
