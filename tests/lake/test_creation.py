"""Tables that are laid out from their first batch on, over both formats."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from driftline.capture.targets import Batch
from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.errors import DataError
from driftline.lake import Lake

SCHEMA = Schema(Struct((Field("id", LONG, 1),)))
ASKED = {"partition_by": "month(at), bucket(4, id)", "sort_by": "id desc"}


def rows(folder: Path, *days: int, name: str = "in.jsonl") -> Path:
    lines = [{"id": i, "at": f"2026-{1 + i % 3:02d}-{day:02d}T12:00:00Z"} for i, day in enumerate(days)]
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / name


def test_a_table_is_laid_out_from_its_first_batch_on(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, file = lake.table(table_name), rows(tmp_path, *range(1, 29))
    planned = table.ingest(file, settings=ASKED, dry_run=True)
    assert "dry run: nothing is written" in repr(planned)
    assert not table.format.load().exists
    result = table.ingest(file, settings=ASKED)
    layout = {"partition_by": ["month(at)", "bucket(4, id)"], "sort_by": ["id desc"]}
    for one in (planned, result):
        assert {**one.to_dict()["layout"], "format_version": 0} == {**layout, "format_version": 0}
    laid = table.layout().to_dict()
    assert laid["sort"] == layout["sort_by"]
    (group,) = laid["partitions"]
    assert group["by"] == layout["partition_by"]
    assert group["records"] == 28 and group["files"] > 3
    assert len(table.history().entries) == 1, "creation and layout are one change"
    assert not any("partition" in key for key in table.format.load().properties)
    assert table.verify([str(file)], exactly=True).ok

    # The next batch follows it, and has nothing to say of what is as it was asked for.
    again = table.ingest(rows(tmp_path, 1, 2, 3, name="more.jsonl"), settings=ASKED)
    assert again.hints == () and "layout" not in again.to_dict()
    assert len(table.layout().groups) == 1
    other = table.ingest(file, settings={**ASKED, "partition_by": "id"}, again=True)
    assert [hint.partition(",")[0] for hint in other.hints] == [f"{table_name} is not partitioned by id"]
    assert table.read().count() == 28 + 3 + 28


def test_a_column_that_is_not_there_is_refused_before_anything_is_written(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, file = lake.table(table_name), rows(tmp_path, 1, 2)
    for dry_run in (True, False):
        with pytest.raises(
            DataError, match=r"cannot partition .* by seen: its first batch has no such field"
        ):
            table.ingest(file, settings={"partition_by": "day(seen)"}, dry_run=dry_run)
    assert not table.format.load().exists
    table.ingest(file, settings={"partition_by": "day(seen)", "hints": {"seen": "timestamp"}})
    assert [group.by for group in table.layout().groups] == [("day(seen)",)]
    assert table.read().count() == 2


def test_two_that_make_it_at_once(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one finds the table of the faster one, takes its rows there, and says what differs."""
    table, file = lake.table(table_name), rows(tmp_path, 1, 2, 3)
    kind = type(table.format)
    real, raced = kind.transaction, False

    def transaction(self, state, new_definition=None):  # type: ignore[no-untyped-def]
        nonlocal raced
        begun = real(self, state, new_definition)
        if not raced and self.name == table_name:
            raced = True
            lake.table(table_name).ingest(file, settings={"sort_by": "id"})
        return begun

    monkeypatch.setattr(kind, "transaction", transaction)
    result = table.ingest(file, settings=ASKED, again=True)
    assert raced and len(result.hints) == 2
    assert table.read().count() == 6
    assert table.layout().sort == ("id",)


def test_a_first_batch_that_dies_leaves_nothing_and_comes_again(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, file = lake.table(table_name), rows(tmp_path, 1, 2, 3)
    kind = type(table.format.transaction(table.format.load(), replace(table.format.blank, schema=SCHEMA)))

    def dies(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(kind, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            table.ingest(file, settings=ASKED)
    assert not table.format.load().exists
    table.ingest(file, settings=ASKED)
    assert table.layout().sort == ("id desc",)
    assert table.read().count() == 3


def test_a_capture_makes_it_and_says_once_what_differs(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, folder = lake.table(table_name), tmp_path / "in"
    folder.mkdir()

    def captured(**asked: str) -> list[Batch]:
        batches: list[Batch] = []
        query = table.capture(str(folder), name="files", max_files=1, settings=asked, on_batch=batches.append)
        assert query.awaitTermination(120)
        return batches

    for name in ("1.jsonl", "2.jsonl"):
        rows(folder, 1, 2, name=name)
    first, second = captured(**ASKED)
    assert first.result.layout["sort_by"] == ["id desc"] and second.result.layout is None
    assert first.result.hints == second.result.hints == ()
    for name in ("3.jsonl", "4.jsonl"):
        rows(folder, 1, 2, name=name)
    third, fourth = captured(sort_by="id")
    assert len(third.result.hints) == 1 and fourth.result.hints == ()
    assert table.layout().sort == ("id desc",)


@pytest.mark.iceberg_only("a DuckLake has no versions of its format to choose from")
def test_a_table_of_format_v3(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    result = table.ingest(rows(tmp_path, 1), settings={"format_version": "3"})
    assert result.layout["format_version"] == table.format.definition().format_version == 3


@pytest.mark.ducklake_only("DuckDB's expressions")
def test_sorted_by_an_expression(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, file = lake.table(table_name), rows(tmp_path, 3, 1, 2)
    result = table.ingest(file, settings={"sort_by": "id % 2 desc, at"})
    assert table.layout().sort == tuple(result.layout["sort_by"])
    with pytest.raises(DataError, match="DuckDB cannot sort by"):
        lake.table(table_name + "_other").ingest(file, settings={"sort_by": 'sqrt("at")'})
