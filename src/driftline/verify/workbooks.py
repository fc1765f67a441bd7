"""Excel workbooks in plain Python: each row of a sheet as a JSON line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from pathlib import Path
from posixpath import join, normpath
from typing import Any, NamedTuple, TypeAlias
from xml.etree import ElementTree as ET
from zipfile import BadZipFile, ZipFile

from driftline.errors import DataError, SetupError, UsageError
from driftline.runtime.stores import opened
from driftline.verify.csv import CsvDialect, Row, has_names, in_case_of, names_of, said_names
from driftline.verify.values import Cell

_ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")
_BLANK = " \t\r\n"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_HEAD = 21  # rows that tell if the first one has names
_DAY = 86_400_000  # milliseconds

_Cells: TypeAlias = "dict[int, Any]"  # by the column, from 0
_Element: TypeAlias = "ET.Element"


def as_lines(file: str, target: Path, sheet: str, dialect: CsvDialect, keys: Sequence[str] = ()) -> None:
    """Write the rows of a sheet, or of the only one, by the header, signs and rows in front of a ``dialect``.

    ``keys``: of the table's fields, in whose letter case names may stand.

    Raises UsageError if there are several sheets and none of this name, DataError for what is no workbook.
    """
    rows = _SheetRows.read(file, sheet, dialect)
    names, moments = in_case_of(rows.names, keys, dialect), rows.moments(rows.cells)
    _write(target, {n: rows.record(n, names, moments, dialect) for n in rows.cells})


class ReadBy(NamedTuple):
    """The reading of a sheet by a table, as `as_lines` takes it."""

    dialect: CsvDialect
    keys: Sequence[str]


def as_dealt_lines(
    file: str,
    target: Path,
    sheet: str,
    first: ReadBy,
    table_of: Callable[[dict[str, Any]], str],
    read_by: Callable[[str], ReadBy],
) -> list[str]:
    """Write the rows of a sheet as `as_lines`, each as its table reads it, whose rows tell what a date is.

    Args:
        file: the workbook.
        target: gets the lines.
        sheet: its name.
        first: how rows are read to learn their table.
        table_of: the table of a record.
        read_by: how a table reads them.

    Returns:
        The table of each line; an empty text for one that has no record.
    """
    rows = _SheetRows.read(file, sheet, first.dialect)
    names, moments = in_case_of(rows.names, first.keys, first.dialect), rows.moments(rows.cells)
    numbers: dict[str, list[int]] = {}
    for n in rows.cells:
        numbers.setdefault(table_of(rows.record(n, names, moments, first.dialect)), []).append(n)
    records: dict[int, dict[str, Any]] = {}
    tables = [""] * (max(rows.cells, default=-1) + 1)
    for table, of_table in numbers.items():
        dialect, keys = read_by(table)
        names, moments = in_case_of(rows.names, keys, dialect), rows.moments(of_table)
        for n in of_table:
            tables[n], records[n] = table, rows.record(n, names, moments, dialect)
    _write(target, records)
    return tables


def _write(target: Path, records: Mapping[int, dict[str, Any]]) -> None:
    """Write records as lines with their numbers, from 0; other lines are empty."""
    with target.open("w", encoding="utf-8") as lines:
        for n in range(max(records, default=-1) + 1):
            lines.write(f"{json.dumps(records[n], ensure_ascii=False)}\n" if n in records else "\n")


@dataclass(frozen=True, slots=True)
class _SheetRows:
    """The rows of a sheet that are records.

    Attributes:
        names: of the columns.
        cells: by the number of the row, from 0.
        above: the columns with a time of day in other rows.
    """

    names: Sequence[str]
    cells: Mapping[int, Sequence[Any]]
    above: frozenset[int]

    @classmethod
    def read(cls, file: str, sheet: str, dialect: CsvDialect) -> _SheetRows:
        """Read a sheet, as `as_lines` does."""
        try:
            import openpyxl  # noqa: F401  it knows the formats of numbers
        except ImportError as error:
            raise SetupError(
                "Excel needs openpyxl to be verified.", "pip install 'driftline[excel]'"
            ) from error
        try:
            with opened(file) as (packed, _), ZipFile(packed) as archive:
                book = _Workbook.of(archive)
                part = _sheet(book.sheets, sheet, file)
                rows = {} if part is None else dict(book.rows(part))
        except (BadZipFile, LookupError, StopIteration, ET.ParseError, ValueError) as error:
            raise DataError(
                f"{file}: cannot be read as a workbook: {error}", "save it as .xlsx; ingest and verify that"
            ) from error
        filled = {n: cells for n, cells in rows.items() if any(map(_is_filled, cells.values()))}
        used = [place for cells in filled.values() for place, cell in cells.items() if _is_filled(cell)]
        places = range(min(used, default=0), max(used, default=-1) + 1)
        first = min((n for n in filled if n >= int(dialect.skip_lines or 0)), default=0)
        head = [[_shown(rows.get(n, {}).get(i)) for i in places] for n in range(first, first + _HEAD)]
        names, begin = _names(head, dialect) if filled else ([], 0)
        in_places = {n: [cells.get(i) for i in places] for n, cells in rows.items()}
        is_record = {n for n in filled if n >= first + begin}
        outside = _moments(cells for n, cells in in_places.items() if n not in is_record)
        return cls(names, {n: in_places[n] for n in sorted(is_record)}, outside)

    def moments(self, numbers: Iterable[int]) -> frozenset[int]:
        """The columns in which a bare date of these rows is midnight, as a row has a time of day."""
        return self.above | _moments(self.cells[n] for n in numbers)

    def record(
        self, number: int, names: Sequence[str], moments: frozenset[int], dialect: CsvDialect
    ) -> dict[str, Any]:
        """A row as a record."""
        values = [
            None if _shown(cell) in dialect.null_texts else _value(cell, i in moments)
            for i, cell in enumerate(self.cells[number])
        ]
        return dict(zip(names, values, strict=True))


def _moments(rows: Iterable[Sequence[Any]]) -> frozenset[int]:
    """The columns with a time of day."""
    return frozenset(
        i
        for row in rows
        for i, cell in enumerate(row)
        if isinstance(cell, datetime) and cell.time() != time()
    )


def _sheet(parts: Mapping[str, str], name: str, file: str) -> str | None:
    """The part of the sheet of this name, or of the only one; None if there is no sheet."""
    if name in parts or len(parts) <= 1:
        return parts.get(name) or next(iter(parts.values()), None)
    raise UsageError(
        f"{file}: it has the sheets {', '.join(parts)}"
        + (f", and none that is called {name!r}" if name else ", and the table does not say which is read"),
        "verify it from the table into which it went",
    )


def _names(head: Sequence[Sequence[Cell]], dialect: CsvDialect) -> tuple[list[str], int]:
    """The names of the columns, and how many rows have them."""
    if said := said_names(dialect):
        return said, 0
    if has_names([Row(n, "", list(cells)) for n, cells in enumerate(head)], dialect):
        return names_of(head[0]), 1
    return names_of([Cell() for _ in head[0]]), 0


def _is_filled(cell: Any) -> bool:
    return cell is not None and cell != ""


def _shown(cell: Any) -> Cell:
    """A cell as the text that it would be in CSV."""
    value = _value(cell, isinstance(cell, datetime) and cell.time() != time())
    return Cell("" if value is None else value)


def _value(cell: Any, moment: bool) -> Any:
    if isinstance(cell, datetime):
        return cell.isoformat() if moment else cell.date().isoformat()
    if isinstance(cell, timedelta):
        micros = cell // timedelta(microseconds=1)
        seconds, fraction = divmod(abs(micros), 10**6)
        text = f"{'-' * (micros < 0)}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return f"{text}.{fraction:06}".rstrip("0") if fraction else text
    if isinstance(cell, date | time):
        return cell.isoformat() + "T00:00:00" * (moment and isinstance(cell, date))
    # Excel has doubles alone; up to 2^53 a whole one is exactly the integer that was typed.
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53 and str(cell) != "-0.0":
        return int(cell)
    return None if cell == "" else cell


# XML ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Workbook:
    """An open workbook. Tags go by their local names: those of strict workbooks have another namespace.

    Attributes:
        sheets: the parts of worksheets, by name.
        formats: the formats of numbers, by style.
    """

    archive: ZipFile
    sheets: Mapping[str, str]
    texts: Sequence[str]
    formats: Sequence[str]
    from_1904: bool

    @classmethod
    def of(cls, archive: ZipFile) -> _Workbook:
        """Open the workbook in an archive."""
        path = next(part for kind, part in _links(archive, "").values() if kind == "officeDocument")
        links = _links(archive, path)
        parts = dict(links.values())
        book = _tags(archive, path)
        linked = {tag.get("name", ""): links[_attribute(tag, "id")] for tag in book if _name(tag) == "sheet"}
        texts = [_text(tag) for tag in _tags(archive, parts.get("sharedStrings")) if _name(tag) == "si"]
        return cls(
            archive,
            {name: part for name, (kind, part) in linked.items() if kind == "worksheet"},
            texts,
            _formats(_tags(archive, parts.get("styles"))),
            any(_name(tag) == "workbookPr" and tag.get("date1904") in ("1", "true") for tag in book),
        )

    def rows(self, part: str) -> Iterator[tuple[int, _Cells]]:
        """The rows of a worksheet by their numbers, from 0."""
        number = -1
        with self.archive.open(part) as xml:
            for _, tag in ET.iterparse(xml):  # noqa: S314  no network, and the parser ends bombs
                if _name(tag) == "row":
                    # Numbers of rows and letters of columns may be left out: then each is the next one.
                    number = int(tag.get("r", number + 2)) - 1
                    yield number, self._cells(tag)
                    # Else the whole sheet would stay in memory as a tree.
                    tag.clear()

    def _cells(self, row: _Element) -> _Cells:
        cells: _Cells = {}
        column = -1
        for tag in row:
            if _name(tag) == "c":
                letters = tag.get("r", "").rstrip("0123456789")
                column = _column(letters) if letters else column + 1
                cells[column] = self._cell(tag)
        return cells

    def _cell(self, tag: _Element) -> Any:
        kind = tag.get("t", "n")
        if kind == "inlineStr":
            return next((_text(child) for child in tag if _name(child) == "is"), None)
        written = next((child.text for child in tag if _name(child) == "v"), None)
        if written is None:
            return None
        match kind:
            case "s":
                return self.texts[int(written)]
            case "b":
                return written.strip() in ("1", "true")
            case "d":
                return _iso(written)
            case "n":
                return self._number(
                    float(written), self.formats[int(tag.get("s", 0))] if self.formats else ""
                )
            case _:
                return _unescaped(written)

    def _number(self, number: float, format_: str) -> Any:
        """A number, or the date, time or duration that its format shows; the number where there is none."""
        from openpyxl.styles.numbers import is_date_format, is_timedelta_format
        from openpyxl.utils.datetime import MAC_EPOCH, WINDOWS_EPOCH, from_excel

        if not is_date_format(format_):
            return number
        is_span = is_timedelta_format(format_)
        # Less than a millisecond to midnight
        if 0 <= number < 1 and not is_span and round(number * _DAY) == _DAY:
            return time()
        with suppress(OverflowError, ValueError):
            return from_excel(number, MAC_EPOCH if self.from_1904 else WINDOWS_EPOCH, timedelta=is_span)
        return number


def _links(archive: ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """The parts that a part refers to, by id, each with its kind."""
    folder, _, name = part.rpartition("/")
    return {
        tag.get("Id", ""): (tag.get("Type", "").rpartition("/")[2], normpath(join("/", folder, tag.get("Target", "")))[1:])
        for tag in _tags(archive, f"{folder}/_rels/{name}.rels".removeprefix("/"))
    }  # fmt: skip


def _tags(archive: ZipFile, part: str | None) -> list[_Element]:
    """All tags of a part; none if there is no such part."""
    return [] if part is None else [*ET.fromstring(archive.read(part)).iter()]  # noqa: S314  as in `rows`


def _name(tag: _Element) -> str:
    return str(tag.tag).rpartition("}")[2]


def _attribute(tag: _Element, name: str) -> str:
    """The attribute of that name in a namespace."""
    return next((value for key, value in tag.items() if key.endswith(f"}}{name}")), "")


def _formats(styles: Sequence[_Element]) -> list[str]:
    """The format of the numbers of each style."""
    from openpyxl.styles.numbers import BUILTIN_FORMATS

    own = {tag.get("numFmtId"): tag.get("formatCode", "") for tag in styles if _name(tag) == "numFmt"}
    of_cells = next((tag for tag in styles if _name(tag) == "cellXfs"), ())
    ids = [tag.get("numFmtId", "0") for tag in of_cells]
    return [own.get(id_) or BUILTIN_FORMATS.get(int(id_), "General") for id_ in ids]


def _text(tag: _Element) -> str:
    """The text of a tag, in one piece or in runs, without how it is pronounced.

    Blanks around a piece belong to it only where it says so.
    """
    pieces = [child for child in tag if _name(child) == "t"]
    pieces += [piece for run in tag if _name(run) == "r" for piece in run if _name(piece) == "t"]
    texts = (
        text if piece.get(_SPACE) == "preserve" else text.strip(_BLANK)
        for piece in pieces
        for text in [piece.text or ""]
    )
    return "".join(map(_unescaped, texts))


def _unescaped(text: str) -> str:
    """A text with the characters that XML cannot have: `_x000D_` is a carriage return."""

    def character(match: re.Match[str]) -> str:
        code = int(match[1], 16)
        return match[0] if 0xD800 <= code < 0xE000 else chr(code)

    return _ESCAPED.sub(character, text)


def _column(letters: str) -> int:
    """The number of a column, from 0.

    >>> _column("A"), _column("AA")
    (0, 26)
    """
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


def _iso(text: str) -> Any:
    """The date, timestamp or time that a cell of a strict workbook is; the text where it is none."""
    for kind in (date, datetime, time):
        with suppress(ValueError):
            value = kind.fromisoformat(text)
            return text if getattr(value, "tzinfo", None) else value
    return text
