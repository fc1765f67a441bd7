"""Sheets of Excel workbooks as texts of JSON, one a row of the sheet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from openpyxl import Workbook
from openpyxl.utils.datetime import MAC_EPOCH, WINDOWS_EPOCH

from driftline.core.settings.csv import Dialect
from driftline.errors import DataError, UsageError
from driftline.files.endings import format_by_name, is_hidden_name
from driftline.readers.csv.open import form_of
from driftline.readers.excel import sheet_split, sheet_texts, with_earlier_names
from driftline.readers.json.splits import Split
from driftline.verify.csv import CsvDialect
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


def verified(path: str, folder: Path, header: str = "", sheet: str = "", nulls: str = "") -> list[Any]:
    """The same as `verify` reads it."""
    as_lines(path, folder / "lines", sheet, CsvDialect(header=header, nulls=nulls))
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


def test_cell_that_is_a_null_text_is_null_and_its_row_stays(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", s=[["n", "NA"], ["NA", 1.5], [-999, "-"], ["NA", "-"]])
    (split,), notes = sheet_split(path, ""), list[str]()
    dialect = Dialect(nulls="NA,-999,-")
    assert list(sheet_texts(split, dialect, 10_000, notes))
    rows = [None, {"n": None, "NA": 1.5}, *[{"n": None, "NA": None}] * 2]
    assert texts(path, dialect) == rows == verified(path, tmp_path, nulls="NA,-999,-")
    assert notes == ["null: 2 cells NA, 1 cell -999, 2 cells - (--null)"]


def test_header_of_a_sheet_fills_the_column_of_another_letter_case_where_that_is_said(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", s=[["id", "TOTAL", "a", "A"], [1, 2, 3, 4]])
    (split,) = sheet_split(path, "")
    keys = ["ID", "Total", "a"]
    for names, columns in {"fold": ["ID", "Total", "a", "A"], "": ["id", "TOTAL", "a", "A"]}.items():
        notes: list[str] = []
        (lines,) = sheet_texts(split, Dialect(names=names), 10_000, notes, keys)
        assert list(json.loads(lines[1])) == columns
        as_lines(path, tmp_path / "lines", "", CsvDialect(names=names), keys)
        assert list(json.loads((tmp_path / "lines").read_text().splitlines()[1])) == columns
        assert notes == (["names: id is ID, TOTAL is Total (--names fold)"] if names else [])


def test_workbooks_of_one_batch_take_the_letter_case_of_those_before_them(tmp_path: Path) -> None:
    headers = [["Id", "x"], ["ID", "X"], ["id", "new"], ["Id", "New"]]
    paths = [workbook(tmp_path / f"{n}.xlsx", s=[header, [1, 2]]) for n, header in enumerate(headers)]
    splits = [split for path in paths for split in sheet_split(path, "")]
    fold = Dialect(names="fold")

    def columns(splits: Sequence[Split], dialect: Dialect, *keys: str) -> list[list[str]]:
        texts = [next(sheet_texts(split, dialect, 10_000, [], keys)) for split in splits]
        return [list(json.loads(rows[1])) for rows in texts]

    folded = with_earlier_names(splits, fold)
    assert columns(folded, fold) == [["Id", "x"], ["Id", "x"], ["Id", "new"], ["Id", "new"]]
    assert columns(folded, fold, "ID") == [["ID", "x"], ["ID", "x"], ["ID", "new"], ["ID", "new"]]
    assert columns(folded, fold, "ID", "id") == [["ID", "x"], ["ID", "x"], ["id", "new"], ["ID", "new"]]
    assert columns(with_earlier_names(splits, Dialect()), Dialect()) == headers


def test_a_column_of_moments_has_no_days(tmp_path: Path) -> None:
    at = [datetime(2026, 3, 1, 12, 30, 5, 120000), datetime(2026, 3, 2)]
    path = workbook(tmp_path / "a.xlsx", s=[["at"], *[[moment] for moment in at]])
    assert texts(path) == [None, {"at": "2026-03-01T12:30:05.120000"}, {"at": "2026-03-02T00:00:00"}]
    assert texts(path) == verified(path, tmp_path)


DATES = "yyyy-mm-dd hh:mm:ss"
# Numbers of days in a format, the epoch of the workbook, and the values of JSON that they are.
SERIALS = [
    (DATES, "1900", [-1.2, -5, 1.5], ["1899-12-28T19:12:00", "1899-12-25T00:00:00", "1900-01-01T12:00:00"]),
    ("yyyy-mm-dd", "1900", [-5, -693_593], ["1899-12-25", "0001-01-01"]),
    (DATES, "1904", [-1.25, 0.25], ["1903-12-30T18:00:00", "06:00:00"]),
    ("[h]:mm:ss", "1900", [-0.0625, 1.25, 1.5 / 86_400], ["-01:30:00", "30:00:00", "00:00:01.5"]),
    ("hh:mm:ss", "1900", [0.5, -0.25], ["12:00:00", "1899-12-29T18:00:00"]),
]


@pytest.mark.parametrize(("number_format", "epoch", "serials", "values"), SERIALS, ids=str)
def test_date_before_the_epoch_keeps_its_day(
    tmp_path: Path, number_format: str, epoch: str, serials: list[float], values: list[str]
) -> None:
    book = Workbook()
    book.epoch = {"1900": WINDOWS_EPOCH, "1904": MAC_EPOCH}[epoch]
    for row, serial in enumerate(["at", *serials], 1):
        cell = book.active.cell(row, 1, serial)
        cell.number_format = number_format if row > 1 else "General"
    path = str(tmp_path / "a.xlsx")
    book.save(path)
    assert texts(path) == [None, *({"at": value} for value in values)] == verified(path, tmp_path)


@pytest.mark.parametrize("rows", [[[1, 2, 3], [2, 4, 6], [3, 6, 9]], [[10, 5], [3, 4]]], ids=str)
def test_header_that_looks_like_data_gets_the_advice_of_csv(tmp_path: Path, rows: list[list[int]]) -> None:
    path = workbook(tmp_path / "a.xlsx", s=rows)
    advice = f"{path}: the header looks like data: if it is, pass --header no"
    text = "".join(",".join(map(str, row)) + "\n" for row in rows).encode()
    assert list(form_of(text, Dialect()).notes(Dialect(), path)) == [advice]
    (split,) = sheet_split(path, "")
    for dialect, expected in ((Dialect(), [advice]), (Dialect(header="yes"), []), (Dialect(header="no"), [])):
        notes: list[str] = []
        assert list(sheet_texts(split, dialect, 10_000, notes))
        assert notes == expected


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
    with pytest.raises(DataError, match="its rows have 2 cells, where `header` names 1"):
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


# The first rows of a table as people type them, and whether the first of them has names. Ingest and `verify` have
# this rule twice, each on its own.
HEADERS: list[tuple[list[list[Any]], bool]] = [
    ([["id", "v"], [1, "x"]], True),
    ([[1, 2.5], [3, 4]], False),
    ([[1, 2, 3], [2, 4, 6], [3, 6, 9]], True),  # whole numbers that rise, as years do that name columns
    ([[10, 5], [3, 4]], True),
    ([[5, 5], [3, 4]], False),
    ([[1, 3, 2], [3, 4, 5]], False),
    ([[7], [8]], True),
    ([["2024-01-01"], ["2024-01-02"]], False),
    ([[date(2024, 1, 1)], [date(2024, 1, 2)]], False),
    ([[date(2024, 1, 1), 2.5], [timedelta(hours=30), 3]], True),
    ([[datetime(2024, 1, 1, 5)], [datetime(2024, 1, 2)]], True),  # moments above a day
    ([[True]], False),
    ([[True, 1], [False, 2]], False),
    ([["true"], ["x"]], True),
    ([["x"]], True),
    ([[1, None], [2, 3]], True),
    ([[1.5, 2], [None, 3]], False),
    ([[1e300], [2]], True),  # a number with an exponent is no number of a table
    ([["1,5"], ["2,5"]], True),
    ([["007"], ["008"]], True),
    ([["#N/A", 1], ["x", 2]], True),
]


@pytest.mark.parametrize(("rows", "has_names"), HEADERS, ids=str)
def test_header_of_a_workbook_is_told_alike_by_ingest_and_verify(
    tmp_path: Path, rows: list[list[Any]], has_names: bool
) -> None:
    path = workbook(tmp_path / "a.xlsx", s=rows)
    records = [record for record in texts(path) if record is not None]
    assert len(records) == len(rows) - has_names
    assert records == [record for record in verified(path, tmp_path) if record is not None]


# A cell as its XML has it, and the value of JSON that it is; format 14 is a date, 46 a duration, 22 both.
WRITTEN: list[tuple[str, Any]] = [
    ('t="inlineStr"><is><t>a_x000D_b</t></is>', "a\rb"),
    ('t="inlineStr"><is><t>_x005F_x000D_</t></is>', "_x000D_"),
    ('t="inlineStr"><is><t> a </t></is>', "a"),
    ('t="inlineStr"><is><t xml:space="preserve"> a </t></is>', " a "),
    ('t="inlineStr"><is><r><t>a </t></r><r><t xml:space="preserve"> b</t></r></is>', "a b"),
    ('t="inlineStr"><is><t>a</t><rPh sb="0" eb="1"><t>ph</t></rPh></is>', "a"),
    ('t="str"><v>a_x000D_</v>', "a\r"),
    ('t="d"><v>2024-01-03</v>', "2024-01-03"),
    ('t="d"><v>2024-01-02T03:04:05</v>', "2024-01-02T03:04:05"),
    ('t="d"><v>2024-01-02T03:04:05Z</v>', "2024-01-02T03:04:05Z"),
    ('t="d"><v>no day</v>', "no day"),
    ('s="1"><v>45000</v>', "2023-03-15"),
    ('s="1"><v>60</v>', "1900-02-28"),
    ('s="1"><v>1e20</v>', 1e20),  # no serial of a day
    ('s="2"><v>45000.123456789</v>', "2023-03-15T02:57:46.667000"),
    ('s="2"><v>0.999999999</v>', "00:00:00"),
    ('s="3"><v>1.25</v>', "30:00:00"),
    ("><v>-0.0</v>", -0.0),
]
STRICT = {
    b"http://schemas.openxmlformats.org/spreadsheetml/2006/main": b"http://purl.oclc.org/ooxml/spreadsheetml/main",
    b"http://schemas.openxmlformats.org/officeDocument/2006/relationships": b"http://purl.oclc.org/ooxml/officeDocument/relationships",
}


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize(("cell", "value"), WRITTEN, ids=str)
def test_cell_that_others_write_is_read_alike_by_ingest_and_verify(
    tmp_path: Path, cell: str, value: Any, is_strict: bool
) -> None:
    path = written(tmp_path, cell, strict=is_strict)
    expected = {"v": value}
    assert texts(path) == [None, expected] == verified(path, tmp_path)
    assert str(texts(path)[1]["v"]) == str(value)


def written(folder: Path, cell: str, *, strict: bool) -> str:
    """A workbook of one column, with a cell of this XML below its name."""
    book = Workbook()
    for number, format_ in enumerate(["mm-dd-yy", "m/d/yy h:mm", "[h]:mm:ss"], 1):
        book.active.cell(1, number, 1).number_format = format_
    book.save(folder / "formats.xlsx")
    sheet = (
        '<?xml version="1.0"?><worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
        f'<row r="1"><c r="A1" t="inlineStr"><is><t>v</t></is></c></row><row r="2"><c r="A2" {cell}</c></row>'
        "</sheetData></worksheet>"
    )
    with ZipFile(folder / "formats.xlsx") as formats, ZipFile(folder / "a.xlsx", "w") as archive:
        for name in formats.namelist():
            content = sheet.encode() if name.endswith("sheet1.xml") else formats.read(name)
            for transitional, other in STRICT.items() if strict else ():
                content = content.replace(transitional, other)
            archive.writestr(name, content)
    return str(folder / "a.xlsx")


def test_workbook_without_the_sheet_of_the_table_is_read_by_its_only_one(tmp_path: Path) -> None:
    only = workbook(tmp_path / "a.xlsx", first=[["id"], ["x"]])
    assert verified(only, tmp_path, sheet="second") == [None, {"id": "x"}]
    both = workbook(tmp_path / "b.xlsx", first=[["id"]], third=[["id"]])
    with pytest.raises(UsageError, match="first, third, and none that is called 'second'"):
        verified(both, tmp_path, sheet="second")


def test_verify_names_the_file_that_is_no_workbook(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"PK no archive")
    with pytest.raises(DataError, match=r"a\.xlsx: cannot be read as a workbook"):
        verified(str(tmp_path / "a.xlsx"), tmp_path)
