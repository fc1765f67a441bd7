"""Sheets of Excel workbooks as texts of JSON, one a row of the sheet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from driftline.core.planning.dialect import Dialect
from driftline.errors import DataError, UsageError
from driftline.observe.endings import format_by_name, is_hidden_name
from driftline.readers.excel import sheet_split, sheet_texts
from driftline.verify.workbooks import as_lines


def workbook(path: Path, **sheets: Sequence[Sequence[Any]]) -> str:
    book = Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(list(row))
    book.save(path)
    return str(path)


def texts(path: str, dialect: Dialect | None = None, sheet: str = "") -> list[Any]:
    """The records of a sheet, with None for rows that are none."""
    (split,) = sheet_split(path, sheet)
    lines = [line for some in sheet_texts(split, dialect or Dialect(), 10_000) for line in some]
    return [json.loads(line) if line else None for line in lines]


def verified(path: str, folder: Path, header: str = "") -> list[Any]:
    """The same as `verify` reads it."""
    as_lines(path, folder / "lines", "", header, 0)
    lines = (folder / "lines").read_text().splitlines()
    return [json.loads(line) if line else None for line in lines]


# A cell, and the value of JSON that it is; one beside others in its column has the same.
CELLS = [
    (1, 1),
    (-7, -7),
    (2.5, 2.5),
    (0.1 + 0.7, 0.7999999999999999),
    (1e300, 1e300),
    (True, True),
    ("007", "007"),
    (" a\nb ", " a\nb "),
    ("#N/A", "#N/A"),
    ("#DIV/0!", "#DIV/0!"),
    (date(2026, 3, 1), "2026-03-01"),
    (time(12, 30, 5), "12:30:05"),
    (timedelta(hours=30, minutes=5), "30:05:00"),
    (None, None),
]


@pytest.mark.parametrize(("cell", "value"), CELLS, ids=str)
def test_a_cell_keeps_its_type(tmp_path: Path, cell: Any, value: Any) -> None:
    path = workbook(tmp_path / "a.xlsx", s=[["n", "v"], ["x", cell]])
    assert texts(path) == [None, {"n": "x", "v": value}] == verified(path, tmp_path)


def test_a_column_of_moments_has_no_days(tmp_path: Path) -> None:
    at = [datetime(2026, 3, 1, 12, 30, 5, 120000), datetime(2026, 3, 2)]
    path = workbook(tmp_path / "a.xlsx", s=[["at"], *[[moment] for moment in at]])
    assert texts(path) == [None, {"at": "2026-03-01T12:30:05.120000"}, {"at": "2026-03-02T00:00:00"}]
    assert texts(path) == verified(path, tmp_path)


def test_rows_count_through_blank_ones_and_what_stands_beside(tmp_path: Path) -> None:
    path = workbook(
        tmp_path / "a.xlsx",
        s=[
            [],
            [None, None, "id", "id", None],
            [],
            [None, None, 1, 2, None],
            [None, None, None, "#N/A", None],
        ],
    )
    assert texts(path) == [None, None, None, {"id": 1, "id_2": 2}, {"id": None, "id_2": "#N/A"}]
    assert texts(path) == verified(path, tmp_path)


def test_the_header_is_told_as_that_of_csv_is(tmp_path: Path) -> None:
    values = workbook(tmp_path / "a.xlsx", s=[[7, 1.5], [2, 2.5]])
    assert texts(values) == [{"column_1": 7, "column_2": 1.5}, {"column_1": 2, "column_2": 2.5}]
    assert texts(values) == verified(values, tmp_path)
    assert texts(values, Dialect(header="yes")) == [None, {"7": 2, "1.5": 2.5}]
    assert (
        texts(values, Dialect(header="a,b"))[1] == {"a": 2, "b": 2.5} == verified(values, tmp_path, "a,b")[1]
    )
    with pytest.raises(DataError, match="its rows have 2 cells, where --header names 1"):
        texts(values, Dialect(header="a"))
    titled = workbook(tmp_path / "b.xlsx", s=[["Sales of 2026"], ["id", None], [1, "x"]])
    assert texts(titled, Dialect(skip_lines="1")) == [None, None, {"id": 1, "column_2": "x"}]
    assert texts(titled, Dialect(skip_lines="9")) == []


def test_the_sheet_is_named_where_there_are_several(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", **{"one": [["a"], [1]], "two & more": [["a"], [2], ["#REF!"]]})
    assert texts(path, sheet="two & more") == [None, {"a": 2}, {"a": "#REF!"}]
    with pytest.raises(UsageError, match=r"a.xlsx has several sheets: one, two & more"):
        sheet_split(path, "")
    with pytest.raises(UsageError, match=r"there is no sheet 'tow': it has one, two & more"):
        sheet_split(path, "tow")


def test_what_is_no_workbook_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    path.write_text("id;x\n")
    with pytest.raises(UsageError, match=r"a.xlsx: cannot be read as excel"):
        sheet_split(str(path), "")


def test_excel_is_known_by_its_ending_and_the_mark_of_an_open_one_is_no_file() -> None:
    assert format_by_name("a/Book 1.XLSX") == "excel"
    assert is_hidden_name("~$Book 1.xlsx") and not is_hidden_name("Book 1.xlsx")
