"""Reads Excel sheets as JSON texts, one a row, so that each cell keeps its type."""

from __future__ import annotations

import json
import pickle
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from html import unescape
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from driftline.convert.kernels import duration_text
from driftline.core.schema.naming import caseless, in_case_of
from driftline.core.settings.csv import FOLD, NO, YES, Dialect
from driftline.core.values import cut
from driftline.errors import DataError, SetupError, UsageError
from driftline.readers.csv.open import header_advice, is_row
from driftline.readers.csv.types import folded_names, named, null_notes, respelled
from driftline.readers.json.splits import Split, with_members
from driftline.runtime.failure import WHOLE
from driftline.runtime.stores import mapped, opened

if TYPE_CHECKING:
    from python_calamine import CalamineWorkbook

_ROWS = 1_000  # texts that are handed on together
_HEAD = 21  # rows that tell if the first one has names
_EXACT = 2**53  # from here on, not each whole number is a double
_CELL = (
    rb'[^>]*?\sr="([A-Z]+)([0-9]+)"[^>]*(?<!/)>'
    rb"(?:(?!</(?:\w+:)?c>).)*?<(?:\w+:)?v>(%b[^<]*)<"
)
# Calamine reads a cell with an error as empty, and a date before 1900 as a time without its day, so both are
# found in the XML itself.
_ERROR = re.compile(rb'<(?:\w+:)?c\b(?=[^>]*\st="e")' + _CELL % b"", re.DOTALL)
_NEGATIVE = re.compile(rb"<(?:\w+:)?c\b" + _CELL % b"-", re.DOTALL)
_DATE_1904 = re.compile(rb"""<(?:\w+:)?workbookPr\b[^>]*\sdate1904=["'](?:1|true)["']""")
_DAY = 86_400_000  # milliseconds
_SHEET = re.compile(r"<(?:\w+:)?sheet\b[^>]*>")
_RELATIONSHIP = re.compile(r"<(?:\w+:)?Relationship\b[^>]*>")


def sheet_split(path: str, sheet: str) -> list[Split]:
    """The sheet of a workbook that is read, or its only one if none is named, as a split.

    Raises UsageError if it has no such sheet, or several.
    """
    content = _content(path)
    names = [meta.name for meta in _workbook(path, content).sheets_metadata if "WorkSheet" in str(meta.typ)]
    if sheet and sheet not in names:
        raise UsageError(f"{path}: there is no sheet {sheet!r}: it has {', '.join(names)}")
    if not sheet and len(names) > 1:
        raise UsageError(f"{path} has several sheets: {', '.join(names)}", hint="name one: --sheet NAME")
    return [Split(path, 0, len(content), document=True, sheet=sheet or names[0])] if names else []


def with_earlier_names(splits: Sequence[Split], dialect: Dialect) -> list[Split]:
    """The sheets of one batch, each with the names of columns of those before it, where names fold."""
    if dialect.names != FOLD or len(splits) < 2:
        return list(splits)
    of_path = {split.path: split for split in splits}
    headers = mapped(lambda path: _column_names(of_path[path], dialect), [*of_path])
    header_of = dict(zip(of_path, headers, strict=True))
    earlier: tuple[str, ...] = ()
    placed = []
    for split in splits:
        placed.append(replace(split, earlier_names=earlier))
        names = in_case_of(header_of[split.path], earlier)
        if new := [name for name in names if name not in earlier]:
            earlier += tuple(new)  # else all share one tuple
    return placed


def sheet_texts(
    split: Split,
    dialect: Dialect,
    longest: int,
    notes: list[str] | None = None,
    keys: Iterable[str] = (),
) -> Iterator[list[bytes]]:
    """The rows of a sheet as texts, in groups: one a row of the sheet, empty where that is no record.

    Args:
        dialect: tells of the header, of rows to skip, and of texts that are null.
        longest: bytes of a text, at most.
        notes: gets advice for a person.
        keys: those of the table's fields.
    """
    sheet = read_sheet(split, dialect)
    if sheet is None:
        return
    names, rows = sheet.names, sheet.rows
    notes = [] if notes is None else notes
    # A name of the table comes first: an earlier sheet's own spelling of it is not in the table.
    keys, in_table = list(keys), set(map(caseless, keys))
    keys += [name for name in split.earlier_names if caseless(name) not in in_table]
    notes.extend(respelled(names, keys, dialect, sheet.above))
    names = folded_names(names, keys, dialect, notes)
    notes.extend(filter(None, [sheet.advice]))
    # In a column of moments a bare date is midnight: else the column would have two types.
    moments = _moments(rows) | sheet.moments
    nulls = dict.fromkeys(dialect.null_texts, 0)
    # Blank lines count, so the numbers are those of the sheet.
    texts = [b""] * sheet.above
    for row in rows:
        texts.append(cut(_text(row, names, moments, nulls), longest))
        if len(texts) >= _ROWS:
            yield _with_members(texts, split)
            texts = []
    if texts:
        yield _with_members(texts, split)
    notes.extend(null_notes({text: count for text, count in nulls.items() if count}))


class Sheet(NamedTuple):
    """The rows of a sheet that are records.

    Attributes:
        above: the rows above the first of them.
        rows: empty ones where others are.
        names: of the columns, as the sheet has them.
        advice: for a person.
        moments: columns with a time of day in the rows above.
    """

    above: int
    rows: Sequence[Sequence[Any]]
    names: Sequence[str]
    advice: str
    moments: frozenset[int]

    def picked(self, places: Iterable[int]) -> Sheet:
        """The sheet with the rows at these places alone."""
        rows: list[Sequence[Any]] = [()] * len(self.rows)
        for place in places:
            rows[place] = self.rows[place]
        return self._replace(rows=rows)

    def texts(self, dialect: Dialect, names: Sequence[str], split: Split) -> list[bytes]:
        """The rows as texts, in which each date is as its cell has it. ``names``: of the columns."""
        nulls = dict.fromkeys(dialect.null_texts, 0)
        return _with_members([_text(row, names, set(), nulls) for row in self.rows], split)


def read_sheet(split: Split, dialect: Dialect) -> Sheet | None:
    """Read a sheet, or what was dealt of it; None without a row."""
    if split.dealt:
        with open(split.dealt, "rb") as file:
            sheet: Sheet = pickle.load(file)  # noqa: S301  our own bytes
            return sheet
    rows, top = _rows(split)
    first = _first(rows, top, dialect)
    if first is None:
        return None
    names, begins, advice = _names(rows[first : first + _HEAD], dialect, split.path)
    begin = first + begins
    return Sheet(top + begin, rows[begin:], names, advice, _moments(rows[:begin]))


def _moments(rows: Sequence[Sequence[Any]]) -> frozenset[int]:
    """The columns that have a time of day in some row."""
    return frozenset(i for row in rows for i, cell in enumerate(row) if isinstance(cell, datetime))


def _rows(split: Split) -> tuple[list[list[Any]], int]:
    """The rows of a sheet from its first cell on, and the number of rows above them."""
    content = _content(split.path)
    sheet = _workbook(split.path, content).get_sheet_by_name(split.sheet)
    if sheet.start is None:
        return [], 0
    top, first_column = sheet.start
    rows = sheet.to_python(skip_empty_area=True)
    text = _sheet_xml(content, split.sheet)
    for number, column, error in _cells(_ERROR, text) if b't="e"' in text else ():
        rows[number - top][column - first_column] = error
    if b">-" in text and any(isinstance(cell, time) for row in rows for cell in row):
        epoch = _epoch(content)
        for number, column, serial in _cells(_NEGATIVE, text):
            row, place = rows[number - top], column - first_column
            row[place] = _before(epoch, float(serial)) if isinstance(row[place], time) else row[place]
    return rows, top


def _first(rows: Sequence[Sequence[Any]], top: int, dialect: Dialect) -> int | None:
    """The first row that is not skipped and has a value."""
    skipped = max(0, int(dialect.skip_lines or 0) - top)
    return next((i for i, row in enumerate(rows) if i >= skipped and any(map(_is_filled, row))), None)


def _column_names(split: Split, dialect: Dialect) -> Sequence[str]:
    sheet = read_sheet(split, dialect)
    return () if sheet is None else sheet.names


def _with_members(texts: list[bytes], split: Split) -> list[bytes]:
    return [with_members(text, split) for text in texts] if split.beside else texts


def _names(rows: Sequence[Sequence[Any]], dialect: Dialect, path: str) -> tuple[Sequence[str], int, str]:
    """The names of the columns, how many rows of these have them, and advice for a person."""
    width = len(rows[0])
    if dialect.stated_columns:
        if len(dialect.stated_columns) != width:
            raise DataError(
                f"{path}: its rows have {width} cells, where `header` names {len(dialect.stated_columns)}",
                "name each column",
            )
        return dialect.stated_columns, 0, ""
    nulls = {"", *dialect.null_texts}
    shown = [list(map(_shown, row)) for row in rows]
    cells = [[b"" if text in nulls else text.encode() for text in row] for row in shown]
    if dialect.header == NO or (dialect.header != YES and is_row(cells, dialect.signs)):
        return [f"column_{place}" for place in range(1, width + 1)], 0, ""
    names = [column.name for column in named(shown[0])]
    return names, 1, header_advice(cells, dialect, path)


def _text(row: Sequence[Any], names: Sequence[str], moments: Collection[int], nulls: dict[str, int]) -> bytes:
    """A row as JSON; empty if all cells are.

    Args:
        moments: columns of which some cells have a time of day.
        nulls: the count of each text that is null.
    """
    if not any(map(_is_filled, row)):
        return b""
    values = [_value(cell, in_moments=i in moments) for i, cell in enumerate(row)]
    if nulls:
        for i, cell in enumerate(row):
            if (shown := _shown(cell)) in nulls:
                values[i], nulls[shown] = None, nulls[shown] + 1
    record = dict(zip(names, values, strict=True))
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def _value(cell: Any, *, in_moments: bool = False) -> Any:
    """A cell as JSON has it: numbers as they are, whole ones without a point."""
    if isinstance(cell, float):
        is_whole = cell.is_integer() and abs(cell) < _EXACT and str(cell) != "-0.0"
        return int(cell) if is_whole else cell
    if isinstance(cell, timedelta):
        return duration_text(cell // timedelta(microseconds=1), 10**6)
    if in_moments and isinstance(cell, date) and not isinstance(cell, datetime):
        return f"{cell.isoformat()}T00:00:00"
    if isinstance(cell, (date, time)):
        return cell.isoformat()
    return None if cell == "" else cell


def _shown(cell: Any) -> str:
    value = _value(cell)
    return "" if value is None else str(value)


def _is_filled(cell: Any) -> bool:
    return cell != "" and cell is not None


def _sheet_xml(content: bytes, sheet: str) -> bytes:
    """Return the XML of a sheet, for what calamine does not report.

    A cell with an error, such as `#N/A`, is empty there; a date before the epoch, whose number is below 0,
    is a time without its day.
    """
    with zipfile.ZipFile(BytesIO(content)) as archive:
        return archive.read(_part(archive, sheet))


def _cells(pattern: re.Pattern[bytes], text: bytes) -> Iterator[tuple[int, int, str]]:
    """The cells of a sheet that the pattern finds: row and column, from 0, and what they hold."""
    for letters, row, value in pattern.findall(text):
        column = 0
        for letter in letters:
            column = 26 * column + letter - ord("A") + 1
        yield int(row) - 1, column - 1, unescape(value.decode())


def _epoch(content: bytes) -> datetime:
    """The day whose number is 0."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        is_1904 = _DATE_1904.search(archive.read("xl/workbook.xml"))
    return datetime(1904, 1, 1) if is_1904 else datetime(1899, 12, 30)


def _before(epoch: datetime, serial: float) -> date | float:
    """The date or moment of a number of days before the epoch; the number itself where there is none."""
    try:
        moment = epoch + timedelta(milliseconds=round(serial * _DAY))
    except OverflowError:
        return serial
    return moment if moment.time() != time() else moment.date()


def _part(archive: zipfile.ZipFile, sheet: str) -> str:
    """The file in a workbook that has the sheet."""
    book = archive.read("xl/workbook.xml").decode()
    links = archive.read("xl/_rels/workbook.xml.rels").decode()
    link = next(
        _attribute(tag, r"\w+:id") for tag in _SHEET.findall(book) if _attribute(tag, "name") == sheet
    )
    target = next(
        _attribute(tag, "Target") for tag in _RELATIONSHIP.findall(links) if _attribute(tag, "Id") == link
    )
    return target.removeprefix("/") if target.startswith("/") else f"xl/{target}"


def _attribute(tag: str, name: str) -> str:
    match = re.search(rf"""\s{name}=(["'])(.*?)\1""", tag)
    return unescape(match[2]) if match else ""


def _content(path: str) -> bytes:
    with opened(path) as (file, _):
        content: bytes = file.read()
        return content


def _workbook(path: str, content: bytes) -> CalamineWorkbook:
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError as error:
        raise SetupError("Excel needs python-calamine.", "pip install 'driftline[excel]'") from error
    try:
        return CalamineWorkbook.from_filelike(BytesIO(content))
    except CalamineError as error:
        raise UsageError(f"{path}: cannot be read as excel: {error}", WHOLE) from error
