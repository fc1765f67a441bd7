"""Opens CSV files: detects encoding, dialect and header, and cuts the rows into stretches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise
from typing import TypeAlias

import msgspec

from driftline.core.schema.text import counted
from driftline.core.settings.csv import JSON_SIGNS, NO, NONE, POINT, YES, Dialect, Signs, header_flags
from driftline.errors import DataError
from driftline.files.text import (
    BOM,
    LineRange,
    as_utf8,
    encoding_of,
    is_unpacked,
    lines_between,
    of_single_bytes,
    opened,
)
from driftline.readers.csv.cut import (
    BACKSLASH,
    COMMA,
    LONGEST,
    CsvRecord,
    Marks,
    Piece,
    TooLongError,
    count_lines,
    is_escaped,
    pieces,
    records,
)
from driftline.readers.csv.types import CsvColumn, date_hints, named

Cells: TypeAlias = Sequence[bytes]

_NUMBER, _WHOLE_CELL = "number", re.compile(rb"-?[0-9]{1,18}")
_TITLES = 10  # lines, at most
_CELL_BEGINNINGS = b"-0123456789tfTF"
_KINDS = {
    _NUMBER: re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"),
    "boolean": re.compile(rb"true|false", re.IGNORECASE),
    "date": re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "moment": re.compile(
        rb"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|\+00:00)?"
    ),
}


def is_row(rows: Sequence[Cells], signs: Signs) -> bool:
    """True if the first row certainly has no names.

    Each of its cells is a value of the kind of all cells below, and they are more than rising or falling
    whole numbers, like years that name columns.

    >>> [is_row(rows, Signs()) for rows in ([[b"7", b"1.5"], [b"2", b""]], [[b"2019", b"2020"]], [[b"n"]])]
    [True, False, False]
    """
    if not rows or not all(_kind(cell, signs) for cell in rows[0]):
        return False
    return all(_alike(rows, signs)) and not _are_steps(rows[0])


def is_like_data(rows: Sequence[Cells], signs: Signs) -> bool:
    """True if the first row may have no names: a cell is like those below, and none is text above values."""
    if not rows or not any(_kind(cell, signs) for cell in rows[0]):
        return False
    alike = list(_alike(rows, signs))
    values = [cell for cell, is_alike in zip(rows[0], alike, strict=True) if is_alike]
    steps = len(values) > 1 and len(values) < len(rows[0]) and _are_steps(values)
    return None not in alike and any(alike) and not steps


def header_advice(rows: Sequence[Cells], dialect: Dialect, path: str) -> str:
    """Return advice if the first row was taken for names but may have none; else an empty text."""
    if dialect.header or not is_like_data(rows, dialect.signs):
        return ""
    return f"{path}: the header looks like data: if it is, pass --header no"


def is_empty(cells: Cells | None) -> bool:
    """True for a row of several cells without any text."""
    return cells is not None and len(cells) > 1 and not any(cells)


def titles(rows: Sequence[Cells]) -> int:
    """Count the rows before the header that have fewer cells than most rows, or a text in the first alone.

    >>> titles([[b"Sales"], [b"id", b"n"], [b"1", b"x"]]), titles([[b"id", b"n"], [b"1", b"x", b""]])
    (1, 0)
    >>> titles([[b"Sales", b""], [b"", b""], [b"id", b"n"], [b"1", b"x"]])
    2
    """
    widths = list(map(len, rows))
    most = max(widths, default=0)
    count = widths.index(most) if most > 1 else 0
    if not count:  # of spreadsheets, whose titles have as many cells as all rows
        count = next((i for i, row in enumerate(rows) if any(row[1:])), 0)
        count = count if count and all(rows[count]) else 0
    others = widths[count:]
    is_above = 0 < count <= _TITLES and len(others) > 1 and set(others) == {most}
    return count if is_above and not any(_kind(cell, JSON_SIGNS) for cell in rows[count]) else 0


def _alike(rows: Sequence[Cells], signs: Signs) -> Iterator[bool | None]:
    """Compare each cell of the first row with the cells below.

    True if it is a value of their kind, or could be; None if they are values and it is none.
    """
    first, *others = rows
    full_rows = [row for row in others if len(row) == len(first)]
    for i, cell in enumerate(first):
        kind = _kind(cell, signs)
        kinds = {_kind(row[i], signs) for row in full_rows if row[i]}
        yield (kind != "" and kinds <= {kind}) or (None if kinds and "" not in kinds else False)


def _kind(cell: bytes, signs: Signs) -> str:
    """Return the kind of a cell's value; empty for text."""
    if cell[:1] not in _CELL_BEGINNINGS:
        return ""
    number = _as_json(cell, signs)
    return next(
        (name for name, kind in _KINDS.items() if kind.fullmatch(number if name == _NUMBER else cell)), ""
    )


def _as_json(cell: bytes, signs: Signs) -> bytes:
    """Spell the number that a cell may be as JSON does."""
    if signs == JSON_SIGNS:
        return cell
    decimal, thousands = signs.decimal.encode(), signs.thousands.encode()
    if thousands:
        is_grouped = re.fullmatch(signs.groups.encode(), cell)
        cell = cell.replace(thousands, b"" if is_grouped else b"_")
    return cell if signs.decimal == POINT else cell.replace(b".", b"_").replace(decimal, b".")


def _are_steps(cells: Cells) -> bool:
    """True if all cells are whole numbers that rise or fall steadily."""
    if not all(map(_WHOLE_CELL.fullmatch, cells)):
        return False
    numbers = list(map(int, cells))
    rising = sorted(set(numbers))
    return numbers in (rising, rising[::-1])


HEAD, _ROWS = 2**16, 20  # bytes, and rows behind a header, that tell
_DELIMITERS = (b",", b";", b"\t", b"|")  # those that a file may tell
_OTHER_QUOTE = b"'"
_NOTE = b"# "
_COMMA_NUMBER = re.compile(rb"-?(?:[0-9]+|[1-9][0-9]{0,2}(?:\.[0-9]{3})+),[0-9]+")
_WHOLE = re.compile(rb"-?(?:[0-9]+|[1-9][0-9]{0,2}(?:\.[0-9]{3})+)")
# Excel's first line
_SEPARATOR = re.compile(rb"(\"?)sep=([^\w\r\n])\1[ ,;\t|]*(?:\r\n|\n|\r)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Form:
    """The detected form of a file.

    Attributes:
        encoding: empty for UTF-8.
        has_header: the first row has names.
        nulls: texts of cells that are null, beside the empty one.
        ahead: the bytes before the header that declare the file's form.
        lines_ahead: the lines of those bytes.
        hints: other possible readings, where nobody has stated one.
        dates: columns with dates, and the hints that read them.
        empty_ahead: the rows above the first one that has a text in some cell.
        skip_empty: rows without a value are left out.
    """

    marks: Marks = COMMA
    encoding: str = ""
    signs: Signs = JSON_SIGNS
    nulls: tuple[str, ...] = ()
    has_header: bool = True
    ahead: int = 0
    lines_ahead: int = 0
    hints: tuple[str, ...] = ()
    dates: tuple[tuple[int, str], ...] = ()
    empty_ahead: int = 0
    skip_empty: bool = False

    @property
    def can_be_cut(self) -> bool:
        """True if each line feed is a byte of that code, and the text after it can be read independently."""
        return not self.encoding or of_single_bytes(self.encoding)

    def wrong_byte(self, error: UnicodeDecodeError) -> int:
        """Return the byte that is invalid in the encoding. ``error``: for text from `as_utf8`."""
        text, start = error.object, error.start
        return int(text[start + 1 : start + 3], 16) if self.encoding else text[start]

    def notes(self, dialect: Dialect, path: str) -> Iterator[str]:
        """Yield the detected dialect, spelled as command-line flags."""
        guessed = Dialect(
            "" if dialect.delimiter or self.marks.delimiter == b"," else self.marks.delimiter.decode(),
            "" if dialect.quote or self.marks.quote == b'"' else self.marks.quote.decode(),
            "" if dialect.encoding else self.encoding,
            escape="" if dialect.escape else self.marks.escape.decode(),
            header="" if dialect.header or self.has_header else NO,
            trim="" if dialect.trim or not self.marks.trim else YES,
        )
        if guessed != Dialect():
            yield f"detected {guessed.flags} in {path}"
        if self.empty_ahead:
            lines = counted(self.empty_ahead, "line")
            yield f"skipped {lines} without a text in any cell above the first row of {path}"
        yield from (hint.replace("{path}", path) for hint in self.hints)


PLAIN = Form()


def form_of(text: bytes, dialect: Dialect, encoding: str = "") -> Form:
    r"""Detect the form of a file that begins with ``text``, in UTF-8 even if its ``encoding`` is another.

    Its first rows show what nobody has stated: the delimiter that gives the header most columns, the quote
    that gives all rows as many cells, an escape if cells close only so, and no header if the first row has
    values like those below.

    >>> form_of(b"a;b,c;d\n1;2,5;3\n", Dialect()).marks.delimiter
    b';'
    >>> [form_of(text, Dialect()).has_header for text in (b"a,1.5\nb,2\n", b"0.5,1.5\n1,2\n")]
    [True, False]
    """
    separator = _SEPARATOR.match(text)
    ahead = separator.end() if separator else 0
    lines_ahead = int(separator is not None)
    begin = Beginning(text[ahead : ahead + HEAD], lines_ahead)
    delimiters = (separator[2],) if separator else _DELIMITERS
    marks = _marks_of(begin, (dialect.delimiter.encode(),) if dialect.delimiter else delimiters, dialect)
    is_data = not dialect.header and is_row(begin.judged(marks, dialect), dialect.signs)
    has_header = dialect.header == YES or not (dialect.header or is_data)
    hints = tuple(_hints(begin, marks, dialect, has_header=has_header))
    dates = tuple(date_hints(begin.cells(marks)[has_header:], lambda: begin.all_cells(marks)[has_header:]))
    form = Form(
        marks, encoding, dialect.signs, dialect.null_texts, has_header, ahead, lines_ahead, hints, dates
    )
    return replace(form, empty_ahead=begin.empty_ahead(marks), skip_empty=dialect.skip_empty == "true")


def check_signs(text: bytes, form: Form, path: str) -> None:
    """Check the signs that a table has from an earlier batch against the beginning of a file.

    A comma that separates cells, and is in none of them, is no decimal comma: read by the table's signs,
    1.234 would be a thousand times its value. Raises DataError.
    """
    decimal, thousands = form.signs.decimal, form.signs.thousands
    rows = Beginning(text[:HEAD]).cells(form.marks)
    has_several = any(len(row) > 1 for row in rows)
    is_in_cells = any(decimal.encode() in cell for row in rows for cell in row)
    if form.marks.delimiter.decode() != decimal or not has_several or is_in_cells:
        return
    kept = Dialect(thousands=thousands) if thousands else Dialect(decimal=decimal)
    raise DataError(
        f"{path}: {decimal!r} separates its cells, and is the decimal sign that the table has from an earlier batch",
        f"pass --decimal {POINT} --thousands '' --no-keep if 1.234 is a fraction here, or {kept.flags} to read it as "
        "before",
    )


def _hints(begin: Beginning, marks: Marks, dialect: Dialect, *, has_header: bool) -> Iterator[str]:
    """Yield other possible readings of a file, where nobody has stated one; `{path}` stands for its path."""
    if _is_object(begin.text.partition(b"\n")[0]):
        yield "{path} begins with a JSON object: if it is JSON, pass --format json"
        return
    seems = _seems(begin, marks) if dialect.delimiter else ""
    if seems:
        flags = Dialect(dialect.delimiter).flags, Dialect(seems).flags
        yield f"{{path}} has one column with {flags[0]}, but several with {flags[1]}"
    # A hint, never a guess: 1,234 may be a thousand.
    may_be_commas = not (dialect.decimal == POINT or dialect.thousands or seems)
    comma_columns = _with_commas(begin.cells(marks)) if may_be_commas else ()
    if commas := [(name, grouped) for name, grouped in comma_columns if grouped or not dialect.decimal]:
        signs = Dialect(thousands=POINT) if any(grouped for _, grouped in commas) else Dialect(decimal=",")
        names = ", ".join(name for name, _ in commas)
        yield f"{signs.flags} would make {names} numeric: {{path}} has decimal commas; for a column that is there: driftline resolve"
    if not (dialect.trim or marks.trim) and (trimmed := _trimmed(begin, [marks])):
        has_same = 2 * begin.widths(trimmed).count(begin.widths(trimmed)[0]) > len(begin.widths(trimmed))
        if has_same:
            yield f"{{path}} has blanks next to delimiters: {Dialect(trim=YES).flags} leaves them out"
    if has_header and (advice := header_advice(begin.judged(marks, dialect), dialect, "{path}")):
        yield advice
    if not (dialect.skip_lines or dialect.comment or dialect.header == NO):
        yield from _titles(begin, marks) or _on_short_header(begin, marks, dialect)


def _titles(begin: Beginning, marks: Marks) -> list[str]:
    """Return the flags that skip lines before the header, if there are any."""
    # A hint only: to many, `#id,name` is a header.
    if begin.text.startswith(_NOTE):
        return [f"{{path}} begins with a comment: {Dialect(comment='#').flags} skips such lines"]
    others = () if begin.is_even(marks) else _DELIMITERS
    for delimiter in dict.fromkeys((marks.delimiter, *others)):
        other_marks = marks._replace(delimiter=delimiter)
        if count := titles(begin.cells(other_marks)):
            line = begin.lines_ahead + begin.rows(other_marks)[count].line
            flags = Dialect(skip_lines=str(line - 1)).flags
            return [f"{{path}} has fewer cells with text before line {line}: {flags} skips them"]
    return []


def _on_short_header(begin: Beginning, marks: Marks, dialect: Dialect) -> list[str]:
    """Return the flags that name all columns, if each row has one cell more than the header has names."""
    if begin.is_even(marks) or dialect.stated_columns:
        return []
    # R leaves row names without a header, by default between blanks; others end each row with a delimiter.
    blank = (b" ",) if marks.quote and begin.text.startswith(marks.quote) else ()
    others = () if dialect.delimiter else (*_DELIMITERS, *blank)
    for delimiter in dict.fromkeys((marks.delimiter, *others)):
        rows = begin.rows(marks._replace(delimiter=delimiter))
        names, *below = [row.cells or [] for row in rows] or [[]]
        is_short = len(names) > 1 and {len(names) + 1} == {*map(len, below)}
        if not is_short or any(_kind(name, JSON_SIGNS) for name in names):
            continue
        texts, is_last = [name.decode(errors="replace") for name in names], not any(row[-1] for row in below)
        columns = [column.name for column in named([*texts, ""] if is_last else ["", *texts])]
        stated = "" if delimiter in (marks.delimiter, *_DELIMITERS) else delimiter.decode()
        flags = header_flags(columns, begin.lines_ahead + rows[1].line - 1, stated)
        nameless = f"last, which is empty, {columns[-1]}" if is_last else f"first {columns[0]}"
        names_them = f"{flags} names the {nameless}"
        # Of names that begin with none, another one is missing.
        if not flags or not (is_last or names[0]):
            names_them = "--skip-lines, and --header with a name for each cell, reads them"
        return [
            f"{{path}} has {counted(len(names), 'name')} above rows of {len(columns)} cells: {names_them}"
        ]
    return []


def _is_object(line: bytes) -> bool:
    """True if a line is a JSON object."""
    try:
        msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of a file, behind the ``lines_ahead`` that declare its form, cut by candidate marks."""

    text: bytes
    lines_ahead: int = 0
    cut: dict[Marks, list[CsvRecord]] = field(default_factory=dict)

    def rows(self, marks: Marks) -> list[CsvRecord]:
        """Return the first rows, with the header."""
        if marks not in self.cut:
            self.cut[marks] = list(islice(self.whole(marks), _ROWS + 1))
        return self.cut[marks]

    def whole(self, marks: Marks) -> Iterator[CsvRecord]:
        """Yield all rows but one that may be cut off."""
        filled = (record for record in records(self.text, marks=marks) if record.raw)
        rows = islice(filled, self.empty_ahead(marks), None)
        return rows if len(self.text) < HEAD else (row for row, _ in pairwise(rows))

    def empty_ahead(self, marks: Marks) -> int:
        """Count the rows without any text above the first that has some, unless that one has values."""
        filled = (record.cells for record in records(self.text, marks=marks) if record.raw)
        for number, cells in enumerate(filled):
            if not is_empty(cells):
                return 0 if any(_kind(cell, JSON_SIGNS) for cell in cells or ()) else number
        return 0

    def cells(self, marks: Marks) -> list[list[bytes]]:
        """Return the cells of the first rows."""
        return [row.cells or [] for row in self.rows(marks)]

    def judged(self, marks: Marks, dialect: Dialect) -> list[list[bytes]]:
        """Return the cells of the first rows, empty where a dialect says that they are null."""
        nulls = {text.encode() for text in dialect.null_texts}
        return [[b"" if cell in nulls else cell for cell in row] for row in self.cells(marks)]

    def all_cells(self, marks: Marks) -> list[list[bytes]]:
        """Return the cells of all rows but one that may be cut off."""
        return [row.cells or [] for row in self.whole(marks)]

    def widths(self, marks: Marks) -> list[int]:
        """Return the number of cells in each of the first rows."""
        return list(map(len, self.cells(marks)))

    def is_wide(self, marks: Marks) -> bool:
        """True if some row has several cells."""
        return max(self.widths(marks), default=0) > 1

    def is_even(self, marks: Marks) -> bool:
        """True if the first rows all have the same number of cells, more than one."""
        return self.is_wide(marks) and len(set(self.widths(marks))) == 1

    def widest(self, among: Sequence[Marks]) -> Marks:
        """Return the marks that give the header most cells, counted as one if most first rows differ."""
        return max(among, key=lambda marks: _width(self.widths(marks) or [1]))


def _width(widths: list[int]) -> int:
    same = widths[1:].count(widths[0])
    return widths[0] if 2 * same >= len(widths) - 1 else 1


def _marks_of(begin: Beginning, delimiters: Iterable[bytes], dialect: Dialect) -> Marks:
    """Return the marks that give the header most columns, if at least half of the first rows have as many.

    Otherwise the delimiter is a comma, or another possible one.
    """
    quote, escape = ("" if text == NONE else text for text in (dialect.quote or '"', dialect.escape))
    marks = Marks(b",", quote.encode(), escape.encode(), dialect.comment.encode(), dialect.trim == YES)
    among = [marks._replace(delimiter=d) for d in delimiters]
    widest = begin.widest(among)
    # Only if every quote needs it: a file that doubles quotes has cells that end in a backslash, as paths do,
    # and they would be joined with the next.
    if not dialect.escape and (escaped := _escaped(begin, among)):
        return escaped
    if not dialect.trim and (trimmed := _trimmed(begin, among)) and begin.is_even(trimmed):
        return trimmed
    if dialect.quote or _OTHER_QUOTE not in begin.text or begin.is_even(widest):
        return widest
    with_other_quote = begin.widest([marks._replace(quote=_OTHER_QUOTE) for marks in among])
    return with_other_quote if begin.is_even(with_other_quote) else widest


def _trimmed(begin: Beginning, among: Sequence[Marks]) -> Marks | None:
    """Return the marks without blanks next to delimiters, if a quote or a number stands beside some."""
    marks = begin.widest([marks._replace(trim=True) for marks in among])
    quote = marks.quote or b"\n"  # which begins no cell
    if not begin.is_wide(marks):
        return None
    for row, trimmed in zip(begin.cells(marks._replace(trim=False)), begin.cells(marks), strict=False):
        if any(cell[:1] in b" \t" and cell.lstrip(b" \t").startswith(quote) for cell in row if cell):
            return marks
        pairs = zip(row, trimmed, strict=True) if len(row) == len(trimmed) else ()
        if any(cell[:1] in (b" ", b"\t") and _kind(short, JSON_SIGNS) == _NUMBER for cell, short in pairs):
            return marks
    return None


def _escaped(begin: Beginning, among: Sequence[Marks]) -> Marks | None:
    """Return the marks with a backslash as escape, if cells close only so and all rows are even."""
    if not among[0].quote or BACKSLASH + among[0].quote not in begin.text:
        return None
    marks = begin.widest([marks._replace(escape=BACKSLASH) for marks in among])
    rows = list(begin.whole(marks))
    whole_text = begin.text[: rows[-1].end] if rows else b""
    even = len({len(row.cells or ()) for row in rows}) == 1
    return marks if even and is_escaped(whole_text, marks._replace(escape=b"")) else None


def _seems(begin: Beginning, marks: Marks) -> str:
    """Return the delimiter that makes several columns, if the stated one makes only one; else ""."""
    other_marks = begin.widest([marks, *(marks._replace(delimiter=d) for d in _DELIMITERS)])
    return other_marks.delimiter.decode() if not begin.is_wide(marks) and begin.is_even(other_marks) else ""


def _with_commas(rows: Sequence[Sequence[bytes]]) -> Iterator[tuple[str, bool]]:
    """Yield columns of numbers with decimal commas, and if points separate their thousands."""
    names = rows[0] if rows else []
    for i, name in enumerate(names):
        cells = [row[i] for row in rows[1:] if len(row) == len(names) and row[i]]
        numbers = [cell for cell in cells if _COMMA_NUMBER.fullmatch(cell) or _WHOLE.fullmatch(cell)]
        # As where cells are judged one by one: words may stand among numbers, but nothing else with a digit.
        has_others = any(re.search(rb"\d", cell) for cell in {*cells}.difference(numbers))
        if has_others or 2 * len(numbers) < len(cells):
            continue
        if any(b"," in cell and len(cell.partition(b",")[2]) != 3 for cell in numbers):
            yield name.decode(errors="replace"), any(b"." in cell for cell in numbers)


ANY = Dialect()
# A line feed may follow a return that ends a block
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


@dataclass(frozen=True, slots=True)
class Header:
    """A file's columns, by its header or its first row.

    Attributes:
        size: the bytes before the first row.
        lines: the lines before the first row.
        feeds: lines end in line feeds, at which a file can be cut unless it is ``packed``.
        packed: the file is compressed.
        length: the file's bytes on disk.
    """

    columns: tuple[CsvColumn, ...]
    size: int
    lines: int
    feeds: bool
    form: Form = PLAIN
    length: int = 0
    packed: bool = False


@dataclass(frozen=True, slots=True)
class Wrong:
    """A line that cannot be read: the reason, and what to do."""

    line: int
    why: str
    hint: str

    @classmethod
    def byte(cls, line: int, error: UnicodeDecodeError, form: Form) -> Wrong:
        """A byte of the line is not of the file's encoding. ``error``: of its text as UTF-8."""
        byte = form.wrong_byte(error)
        if form.encoding:
            why = f"byte {byte:#x} is not {form.encoding}"
            return cls(line, why, "name the encoding that the file has: --encoding")
        hint = "name the encoding: --encoding cp1252 (Windows in the west), latin1, cp1250, shift_jis, …"
        return cls(line, f"byte {byte:#x} is not UTF-8", hint)

    @classmethod
    def length(cls, line: int) -> Wrong:
        """The record is too long."""
        return cls(line, f"a record of more than {LONGEST >> 20} MiB", "is the file CSV, with line ends?")

    def below(self, lines: int) -> Wrong:
        """Move the line number down by ``lines``."""
        return replace(self, line=self.line + lines)

    def of(self, path: str) -> DataError:
        """The error for the file of this path."""
        return DataError(f"{path}:{self.line}: {self.why}", hint=self.hint)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records of a file: from the first line feed at or after ``start`` to the first at or after ``end``.

    ``end`` None: to the end of the file. ``skip``: the bytes before the first record; ``line``: the number
    of its line; ``size``: bytes on disk; ``bounded``: nothing behind ``end`` is read of the file.
    """

    path: str
    start: int
    end: int | None
    size: int
    skip: int = 0
    line: int = 1
    form: Form = PLAIN
    bounded: bool = False

    def pieces(self) -> Iterator[Piece]:
        """Yield the records in pieces. Raises OpenEndError if the stretch ends within a cell."""
        with opened(self.path) as (file, _):
            text = as_utf8(lines_between(file, self.start, self.end), self.form.encoding)
            behind = _behind(text, self.skip)
            is_last = self.end is None or self.bounded
            yield from pieces(behind, self.line, whole=is_last, marks=self.form.marks)

    def at_line(self, line: int) -> Stretch:
        """Return the stretch with the number of its first line."""
        return replace(self, line=line)


def stretches_of(path: str, header: Header, size: int, lines: LineRange | None = None) -> list[Stretch]:
    """Cut the rows of a file into stretches of about ``size`` bytes; a compressed file is one stretch.

    Args:
        lines: those to read; None: all.
    """
    start, end = (0, header.length) if lines is None else (lines.start, lines.end)
    # By lines: bytes of the header count as UTF-8, whatever the file's encoding is.
    goes_on = lines is not None and start > 0 and lines.lines >= header.lines
    start = start if goes_on else 0
    in_one = header.packed or header.size > size or not (header.feeds and header.form.can_be_cut)
    count = 1 if in_one else max(1, (end - start) // size)
    bounds = [start + (end - start) * i // count for i in range(count + 1)]
    parts = [Stretch(path, begin, stop, stop - begin, form=header.form) for begin, stop in pairwise(bounds)]
    bounded = lines is not None
    parts[-1] = replace(parts[-1], end=end if bounded else None, bounded=bounded)
    if lines is not None and goes_on:
        parts[0] = parts[0].at_line(lines.lines + 1)
    else:
        parts[0] = replace(parts[0], skip=header.size, line=header.lines + 1)
    return parts


def whole(parts: Sequence[Stretch]) -> Stretch:
    """Join all stretches of a file."""
    last = parts[-1]
    return replace(parts[0], end=last.end, bounded=last.bounded, size=sum(part.size for part in parts))


def header_of(path: str, dialect: Dialect = ANY, end: int | None = None) -> Header | None:
    """Read the header of a file from its first non-blank line, or make one for its first row.

    ``dialect``: the known part of the dialect; ``end``: of the lines that count. Returns None if there is no
    such line. Raises DataError if it cannot be read.
    """
    with opened(path) as (file, length):
        raw = lines_between(file, 0, end)
        first = next(raw, b"")
        encoding = "" if first.startswith(BOM) else encoding_of(first, dialect.encoding)
        size, blocks = _behind_titles(as_utf8(chain([first], raw), encoding), int(dialect.skip_lines or 0))
        text = next(blocks, b"")
        form = form_of(text, dialect, encoding)
        if dialect.kept and not dialect.delimiter:
            check_signs(text[form.ahead :], form, path)
        empty_ahead = form.empty_ahead
        size, line = size + form.ahead, 1 + int(dialect.skip_lines or 0) + form.lines_ahead
        try:
            for piece in pieces(chain([text[form.ahead :]], blocks), line, marks=form.marks):
                for record in records(piece.text, piece.line, form.marks):
                    if empty_ahead and is_empty(record.cells):
                        empty_ahead -= 1
                    elif record.raw:
                        feeds = piece.text[: record.end].endswith(b"\n")
                        columns = _columns(path, record, form, dialect.stated_columns)
                        lines = record.line - 1 + form.has_header * (1 + count_lines(record.raw))
                        size += record.end if form.has_header else record.begin
                        return Header(columns, size, lines, feeds, form, length, is_unpacked(file))
                size += len(piece.text)
        except TooLongError as error:
            raise Wrong.length(error.line).of(path) from error
    return None


def _behind_titles(blocks: Iterator[bytes], count: int) -> tuple[int, Iterator[bytes]]:
    """Skip a byte order mark and ``count`` lines: their bytes, and the text after them.

    The text's first block is long enough to detect its form.
    """
    text = next(blocks, b"")
    size = len(BOM) if text.startswith(BOM) else 0
    text = text[size:]
    while True:
        ends = [match.end() for match in islice(_LINE_END.finditer(text), count)]
        end = ends[-1] if ends else 0
        size, text, count = size + end, text[end:], count - len(ends)
        block = b"" if not count and len(text) >= HEAD else next(blocks, b"")
        if not block:
            return size, chain([b"" if count else text], blocks)
        text += block


def _columns(path: str, first: CsvRecord, form: Form, names: Sequence[str]) -> tuple[CsvColumn, ...]:
    """Return the columns of a file by its first non-blank record. ``names``: those that a person states."""
    if first.cells is None:
        row = "header" if form.has_header else "first row"
        raise DataError(
            f"{path}:{first.line}: a quote is never closed in the {row}", "close it, or double it"
        )
    if names and len(names) != len(first.cells):
        raise DataError(
            f"{path}:{first.line}: the first row has {len(first.cells)} cells, where `header` names {len(names)}",
            "name each column",
        )
    if names:
        return tuple(map(CsvColumn, names))
    if not form.has_header:
        return tuple(CsvColumn(f"column_{place}") for place in range(1, len(first.cells) + 1))
    try:
        return named([cell.decode() for cell in first.cells])
    except UnicodeDecodeError as error:
        raise Wrong.byte(first.line, error, form).of(path) from error


def _behind(texts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Drop the first bytes of a text."""
    for text in texts:
        yield text[size:]
        size = max(0, size - len(text))
