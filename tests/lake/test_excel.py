"""Excel workbooks on their way into a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from driftline.lake import Lake, Table
from driftline.quarantine import table as quarantine


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def workbook(path: Path, rows: Sequence[Sequence[Any]], title: str = "Orders", more: str = "") -> Path:
    book = Workbook()
    sheet = book.active
    sheet.title = title
    for row in rows:
        sheet.append(list(row))
    if more:
        book.create_sheet(more).append(["other"])
    book.save(path)
    return path


@pytest.mark.nightly
def test_a_sheet_becomes_typed_rows_that_verify_finds(table: Table, tmp_path: Path) -> None:
    rows = [
        ["id", "price", "day", "at", "ok", "note"],
        [1, 2.5, date(2026, 3, 1), datetime(2026, 3, 1, 12, 30), True, "a"],
        [],
        [2, "#N/A", date(2026, 3, 2), datetime(2026, 3, 2), False, None],
    ]
    file = workbook(tmp_path / "a.xlsx", rows, more="Notes")

    result = table.ingest(file, settings={"sheet": "Orders"}, metadata="file,line")

    assert (result.rows_written, result.rows_quarantined) == (2, 0)
    first, second = table.read().orderBy("id").collect()
    assert (first.id, first.day, first.at, first.ok) == (
        1,
        date(2026, 3, 1),
        datetime(2026, 3, 1, 12, 30),
        True,
    )
    assert second.at == datetime(2026, 3, 2)
    values = [value for row in (first, second) for value in row.asDict().values()]
    assert 2.5 in values and "#N/A" in values
    assert [row._source.line for row in (first, second)] == [2, 4]
    assert table.verify(file, exactly=True).ok
    changed = workbook(tmp_path / "b.xlsx", [rows[0], [1, 2.75, *rows[1][2:]]])
    assert not table.verify(changed).ok


@pytest.mark.nightly
def test_a_refused_row_waits_with_its_place(table: Table, tmp_path: Path) -> None:
    file = workbook(tmp_path / "a.xlsx", [["id"], [1], ["x"]])

    result = table.ingest(file, settings={"policy": "strict", "hints": {"id": "long"}})

    assert (result.rows_written, result.rows_quarantined) == (1, 1)
    (waiting,) = quarantine.of(table.format).read().collect()
    assert (waiting.source, waiting.line) == (str(file), 3)
    assert table.verify(file).ok
    table.replay(settings={"policy": "preserve"})
    assert table.read().count() == 2


def test_headers_of_one_batch_that_differ_in_letter_case_are_one_column_where_names_fold(
    table: Table, tmp_path: Path
) -> None:
    headers = [["Id", "Total"], ["ID", "total"]]
    files = [workbook(tmp_path / f"{n}.xlsx", [header, [n, 2]]) for n, header in enumerate(headers)]

    result = table.ingest(files, names="fold")

    assert [f.name for f in table.schema().schema.struct.fields] == headers[0]
    assert "names: ID is Id, total is Total (--names fold)" in result.hints
    assert table.verify(files, exactly=True).ok


def test_a_capture_takes_the_workbooks_of_a_folder(table: Table, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        workbook(folder / f"{number}.xlsx", [["id"], [number]])
    (folder / "~$0.xlsx").write_bytes(b"open")

    table.capture(folder, name="c", metadata="line").awaitTermination()

    assert sorted((row.id, row._source.line) for row in table.read().collect()) == [(0, 2), (1, 2)]
