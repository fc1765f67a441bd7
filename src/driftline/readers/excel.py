"""Excel workbooks: the rows of a sheet as texts of JSON, one a row, so that each cell keeps its own type."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from html import unescape
from io import BytesIO
from typing import TYPE_CHECKING, Any

from driftline.core.planning.dialect import NO, YES, Dialect
from driftline.core.values.parse import cut
from driftline.errors import DataError, SetupError, UsageError
from driftline.observe.json_files import Split, with_members
from driftline.readers.csv.header import is_row
from driftline.readers.csv.stretches import named
from driftline.runtime.failure import WHOLE
from driftline.runtime.stores import opened

if TYPE_CHECKING:
    from python_calamine import CalamineWorkbook

_ROWS = 1_000  # texts that are handed on together
_HEAD = 21  # rows that tell if the first one has names
_EXACT = 2**53  # from here on, not each whole number is a double
_ERROR = re.compile(
    rb'<(?:\w+:)?c\b(?=[^>]*\st="e")[^>]*?\sr="([A-Z]+)([0-9]+)"[^>]*(?<!/)>'
    rb"(?:(?!</(?:\w+:)?c>).)*?<(?:\w+:)?v>([^<]*)<",
    re.DOTALL,
)
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


def sheet_texts(split: Split, dialect: Dialect, longest: int) -> Iterator[list[bytes]]:
    """The rows of a sheet as texts, in groups: one a row of the sheet, empty where that is no record.

    ``dialect``: tells of the header, and of rows to skip; ``longest``: bytes of a text, at most.
    """
    content = _content(split.path)
    sheet = _workbook(split.path, content).get_sheet_by_name(split.sheet)
    if sheet.start is None:
        return
    top, first_column = sheet.start
    rows = sheet.to_python(skip_empty_area=True)
    for number, column, text in _errors(content, split.sheet):
        rows[number - top][column - first_column] = text
    skipped = max(0, int(dialect.skip_lines or 0) - top)
    first = next((i for i, row in enumerate(rows) if i >= skipped and any(map(_is_filled, row))), None)
    if first is None:
        return
    names, begins = _names(rows[first : first + _HEAD], dialect, split.path)
    moments = {i for row in rows for i, cell in enumerate(row) if isinstance(cell, datetime)}
    texts = [b""] * (top + first + begins)
    for row in rows[first + begins :]:
        texts.append(cut(_text(row, names, moments), longest))
        if len(texts) >= _ROWS:
            yield _with_members(texts, split)
            texts = []
    if texts:
        yield _with_members(texts, split)


def _with_members(texts: list[bytes], split: Split) -> list[bytes]:
    return [with_members(text, split) for text in texts] if split.beside else texts


def _names(rows: Sequence[Sequence[Any]], dialect: Dialect, path: str) -> tuple[Sequence[str], int]:
    """The names of the columns, and how many rows of these have them."""
    width = len(rows[0])
    if dialect.names:
        if len(dialect.names) != width:
            raise DataError(
                f"{path}: its rows have {width} cells, where --header names {len(dialect.names)}",
                "name each column",
            )
        return dialect.names, 0
    cells = [[_shown(cell).encode() for cell in row] for row in rows]
    if dialect.header == NO or (dialect.header != YES and is_row(cells, dialect.signs)):
        return [f"column_{place}" for place in range(1, width + 1)], 0
    return [column.name for column in named([cell.decode() for cell in cells[0]])], 1


def _text(row: Sequence[Any], names: Sequence[str], moments: set[int]) -> bytes:
    """A row as JSON; empty if all cells are. ``moments``: columns of which some cells have a time of day."""
    if not any(map(_is_filled, row)):
        return b""
    values = [_value(cell, in_moments=i in moments) for i, cell in enumerate(row)]
    record = dict(zip(names, values, strict=True))
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def _value(cell: Any, *, in_moments: bool = False) -> Any:
    """A cell as JSON has it: numbers as they are, whole ones without a point."""
    if isinstance(cell, float):
        is_whole = cell.is_integer() and abs(cell) < _EXACT and str(cell) != "-0.0"
        return int(cell) if is_whole else cell
    if isinstance(cell, timedelta):
        minutes, seconds = divmod(cell // timedelta(seconds=1), 60)
        return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
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


def _errors(content: bytes, sheet: str) -> Iterator[tuple[int, int, str]]:
    """The cells with an error, such as `#N/A`, which calamine reads as empty: row and column, from 0."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        text = archive.read(_part(archive, sheet))
    for letters, row, value in _ERROR.findall(text) if b't="e"' in text else ():
        column = 0
        for letter in letters:
            column = 26 * column + letter - ord("A") + 1
        yield int(row) - 1, column - 1, unescape(value.decode())


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
