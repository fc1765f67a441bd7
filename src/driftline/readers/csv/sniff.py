"""The marks of a CSV file, as a person states them, or else as its beginning shows."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, pairwise

import msgspec

from driftline.core.settings.csv import JSON_SIGNS, NO, NONE, POINT, YES, Dialect, Signs
from driftline.errors import DataError
from driftline.readers.csv.cut import BACKSLASH, COMMA, CsvRecord, Marks, is_escaped, records
from driftline.readers.csv.dated import date_hints
from driftline.readers.csv.header import header_advice, is_row, titles

_CSV_MARKS = b',;\t|"\r\n'
HEAD, _ROWS = 2**16, 20  # bytes, and rows behind a header, that tell
_DELIMITERS = (b",", b";", b"\t", b"|")  # those that a file may tell
_OTHER_QUOTE = b"'"
_NOTE = b"# "
_COMMA_NUMBER = re.compile(rb"-?(?:[0-9]+|[1-9][0-9]{0,2}(?:\.[0-9]{3})+),[0-9]+")
_WHOLE = re.compile(rb"-?(?:[0-9]+|[1-9][0-9]{0,2}(?:\.[0-9]{3})+)")
_SEPARATOR = re.compile(
    rb"(\"?)sep=([^\w\r\n])\1[ ,;\t|]*(?:\r\n|\n|\r)", re.IGNORECASE
)  # Excel's first line
_UTF8 = ("utf-8", "utf-8-sig")
_BEGINNINGS = {
    codecs.BOM_UTF32_LE: "utf-32",  # which begins as UTF-16 does
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_WRONG = 0xFF  # stands in UTF-8 that was made of another encoding for a byte that is none of it
_MARKED = "driftline_marked"


def _marked(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return f"{chr(0xDC00 + _WRONG)}{error.object[error.start]:02x}", error.end


codecs.register_error(_MARKED, _marked)


@dataclass(frozen=True, slots=True)
class Form:
    """The marks of a file. ``encoding`` empty: UTF-8; ``has_header``: its first row has names. ``ahead``:
    the bytes, and ``lines_ahead`` the lines, in front of that which say how the file is written. ``hints``:
    how it may be meant, where nobody has said so; ``dates``: columns that have some, and the hint that reads
    them.
    """

    marks: Marks = COMMA
    encoding: str = ""
    signs: Signs = JSON_SIGNS
    has_header: bool = True
    ahead: int = 0
    lines_ahead: int = 0
    hints: tuple[str, ...] = ()
    dates: tuple[tuple[int, str], ...] = ()

    @property
    def can_be_cut(self) -> bool:
        """True if each line feed of the file is a byte of that code, and the text behind it stands alone."""
        return not self.encoding or _of_single_bytes(self.encoding)

    def wrong_byte(self, error: UnicodeDecodeError) -> int:
        """The byte that is none of the encoding. ``error``: of the text that `as_utf8` made."""
        text, start = error.object, error.start
        return int(text[start + 1 : start + 3], 16) if self.encoding else text[start]

    def notes(self, dialect: Dialect, path: str) -> Iterator[str]:
        """The marks that a file alone has told, as flags that would say them."""
        guessed = Dialect(
            "" if dialect.delimiter or self.marks.delimiter == b"," else self.marks.delimiter.decode(),
            "" if dialect.quote or self.marks.quote == b'"' else self.marks.quote.decode(),
            "" if dialect.encoding else self.encoding,
            escape="" if dialect.escape else self.marks.escape.decode(),
            header="" if dialect.header or self.has_header else NO,
        )
        if guessed != Dialect():
            yield f"detected {guessed.flags} in {path}"
        yield from (hint.replace("{path}", path) for hint in self.hints)


PLAIN = Form()


def form_of(text: bytes, dialect: Dialect, encoding: str = "") -> Form:
    """Detect the marks of a file whose ``text`` begins so, in UTF-8, if its ``encoding`` is another.

    Its first rows tell what nobody has said: the delimiter by what makes most columns of the header, the
    quote by what gives all rows as many cells, an escape by cells that close only so, that there is no header
    by a first row of values like those below.

    >>> form_of(b"a;b,c;d\\n1;2,5;3\\n", Dialect()).marks.delimiter
    b';'
    >>> [form_of(text, Dialect()).has_header for text in (b"a,1.5\\nb,2\\n", b"0.5,1.5\\n1,2\\n")]
    [True, False]
    """
    separator = _SEPARATOR.match(text)
    ahead = separator.end() if separator else 0
    begin = Beginning(text[ahead : ahead + HEAD])
    delimiters = (separator[2],) if separator else _DELIMITERS
    marks = _marks_of(begin, (dialect.delimiter.encode(),) if dialect.delimiter else delimiters, dialect)
    is_data = not dialect.header and is_row(begin.cells(marks), dialect.signs)
    has_header = dialect.header == YES or not (dialect.header or is_data)
    hints = tuple(_hints(begin, marks, dialect, has_header=has_header))
    dates = tuple(date_hints(begin.cells(marks)[has_header:], lambda: begin.all_cells(marks)[has_header:]))
    return Form(marks, encoding, dialect.signs, has_header, ahead, int(separator is not None), hints, dates)


def check_signs(text: bytes, form: Form, path: str) -> None:
    """Check the signs of numbers that a table has from an earlier batch against a file that begins so.

    A comma that separates cells, and stands in none of them, is no decimal comma: read by the table's signs,
    1.234 would be a thousand times what it says. Raises DataError.
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
        f"pass --decimal {POINT} --thousands '' if 1.234 is a fraction here, or {kept.flags} to read it as before",
    )


def _hints(begin: Beginning, marks: Marks, dialect: Dialect, *, has_header: bool) -> Iterator[str]:
    """Hints at another way to read a file, where nobody has stated one; `{path}` stands for its path."""
    if _is_object(begin.text.partition(b"\n")[0]):
        yield "{path} begins with a JSON object: if it is JSON, pass --format json"
        return
    seems = _seems(begin, marks) if dialect.delimiter else ""
    if seems:
        flags = Dialect(dialect.delimiter).flags, Dialect(seems).flags
        yield f"{{path}} has one column with {flags[0]}, but several with {flags[1]}"
    may_be_commas = not (dialect.decimal == POINT or dialect.thousands or seems)
    comma_columns = _with_commas(begin.cells(marks)) if may_be_commas else ()
    if commas := [(name, grouped) for name, grouped in comma_columns if grouped or not dialect.decimal]:
        signs = Dialect(thousands=POINT) if any(grouped for _, grouped in commas) else Dialect(decimal=",")
        names = ", ".join(name for name, _ in commas)
        yield f"{signs.flags} would make {names} numeric: {{path}} has decimal commas; for a column that is there: driftline resolve"
    if has_header and (advice := header_advice(begin.cells(marks), dialect, "{path}")):
        yield advice
    if not (dialect.skip_lines or dialect.comment or dialect.header == NO):
        yield from _titles(begin, marks)


def _titles(begin: Beginning, marks: Marks) -> Iterator[str]:
    """The flags that leave out lines in front of the header, if there are some."""
    if begin.text.startswith(_NOTE):
        yield f"{{path}} begins with a comment: {Dialect(comment='#').flags} skips such lines"
        return
    others = () if begin.is_even(marks) else _DELIMITERS
    for delimiter in dict.fromkeys((marks.delimiter, *others)):
        other_marks = marks._replace(delimiter=delimiter)
        if count := titles(begin.cells(other_marks)):
            line = begin.rows(other_marks)[count].line
            flags = Dialect(skip_lines=str(line - 1)).flags
            yield f"{{path}} has fewer cells before line {line}: {flags} skips them"
            return


def _is_object(line: bytes) -> bool:
    """True if a line is an object of JSON."""
    try:
        msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def as_utf8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """A text as UTF-8, by blocks. What is none of its encoding stands
    there so that it is none of UTF-8 either: see `Form.wrong_byte`.
    """
    if not encoding:
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)(_MARKED)
    for block in blocks:
        yield decoder.decode(block).encode(errors="surrogateescape")
    yield decoder.decode(b"", final=True).encode(errors="surrogateescape")


@cache
def _of_single_bytes(encoding: str) -> bool:
    plain = bytes(range(128))
    pairs = (bytes((first, second)) for first in range(128, 256) for second in range(256))
    return plain.decode(encoding, "replace") == plain.decode() and all(
        len(pair.decode(encoding, "replace")) == len(pair) for pair in pairs
    )


def encoding_of(first: bytes, encoding: str) -> str:
    """The encoding of a file that begins so, by byte order marks or by where zeros stand; empty for UTF-8."""
    if encoding in _UTF8:
        return ""
    by_mark = next((name for mark, name in _BEGINNINGS.items() if first.startswith(mark)), "")
    if by_mark or encoding not in ("", "utf-16"):
        return encoding or by_mark
    head = first[:HEAD]
    zeros = head[::2].count(0), head[1::2].count(0)
    big = bool(zeros[0])
    # Of letters of the west, or commas; a single zero may be a cell of its own.
    is_half = max(zeros) > max(1, len(head) // 8) and not min(zeros)
    if is_half and _are_pairs(head, big):
        return "utf-16-be" if big else "utf-16-le"
    return encoding


def _are_pairs(head: bytes, big: bool) -> bool:
    """True if text with many zeros is UTF-16: it is no UTF-8, or most marks of CSV have a zero with them."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return True
    pairs = zip(head[not big :: 2], head[big::2], strict=False)
    paired = sum(not high and low in _CSV_MARKS for high, low in pairs)
    marks = sum(byte in _CSV_MARKS for byte in head)
    return 2 * paired > marks or not marks


@dataclass(frozen=True, slots=True)
class Beginning:
    """The text that tells how a file is written, cut by marks that it may have."""

    text: bytes
    cut: dict[Marks, list[CsvRecord]] = field(default_factory=dict)

    def rows(self, marks: Marks) -> list[CsvRecord]:
        """The first rows, with the header."""
        if marks not in self.cut:
            self.cut[marks] = list(islice(self.whole(marks), _ROWS + 1))
        return self.cut[marks]

    def whole(self, marks: Marks) -> Iterator[CsvRecord]:
        """All rows but one that may be cut off."""
        rows = (record for record in records(self.text, marks=marks) if record.raw)
        return rows if len(self.text) < HEAD else (row for row, _ in pairwise(rows))

    def cells(self, marks: Marks) -> list[list[bytes]]:
        """The cells of the first rows."""
        return [row.cells or [] for row in self.rows(marks)]

    def all_cells(self, marks: Marks) -> list[list[bytes]]:
        """The cells of all rows but one that may be cut off."""
        return [row.cells or [] for row in self.whole(marks)]

    def widths(self, marks: Marks) -> list[int]:
        """The number of cells in each of the first rows."""
        return list(map(len, self.cells(marks)))

    def is_wide(self, marks: Marks) -> bool:
        """True if a row has several cells."""
        return max(self.widths(marks), default=0) > 1

    def is_even(self, marks: Marks) -> bool:
        """True if all of the first rows have the same number of cells, more than one."""
        return self.is_wide(marks) and len(set(self.widths(marks))) == 1

    def widest(self, among: Sequence[Marks]) -> Marks:
        """The marks by which the header has most cells; one where most of the first rows have others."""
        return max(among, key=lambda marks: _width(self.widths(marks) or [1]))


def _width(widths: list[int]) -> int:
    same = widths[1:].count(widths[0])
    return widths[0] if 2 * same >= len(widths) - 1 else 1


def _marks_of(begin: Beginning, delimiters: Iterable[bytes], dialect: Dialect) -> Marks:
    """The marks that make most columns of the header, if half of the first rows or more have as many.

    Else a comma, or what else is possible.
    """
    quote, escape = ("" if text == NONE else text for text in (dialect.quote or '"', dialect.escape))
    marks = Marks(b",", quote.encode(), escape.encode(), dialect.comment.encode())
    among = [marks._replace(delimiter=d) for d in delimiters]
    widest = begin.widest(among)
    if not dialect.escape and (escaped := _escaped(begin, among)):
        return escaped
    if dialect.quote or _OTHER_QUOTE not in begin.text or begin.is_even(widest):
        return widest
    with_other_quote = begin.widest([marks._replace(quote=_OTHER_QUOTE) for marks in among])
    return with_other_quote if begin.is_even(with_other_quote) else widest


def _escaped(begin: Beginning, among: Sequence[Marks]) -> Marks | None:
    """The marks with a backslash as escape, if all cells of the text close only so and its rows are even."""
    if not among[0].quote or BACKSLASH + among[0].quote not in begin.text:
        return None
    marks = begin.widest([marks._replace(escape=BACKSLASH) for marks in among])
    rows = list(begin.whole(marks))
    whole_text = begin.text[: rows[-1].end] if rows else b""
    even = len({len(row.cells or ()) for row in rows}) == 1
    return marks if even and is_escaped(whole_text, marks._replace(escape=b"")) else None


def _seems(begin: Beginning, marks: Marks) -> str:
    """The delimiter that makes several columns, if the stated one makes only one; else ""."""
    other_marks = begin.widest([marks, *(marks._replace(delimiter=d) for d in _DELIMITERS)])
    return other_marks.delimiter.decode() if not begin.is_wide(marks) and begin.is_even(other_marks) else ""


def _with_commas(rows: Sequence[Sequence[bytes]]) -> Iterator[tuple[str, bool]]:
    """The columns whose texts are numbers with a comma, of which one at least can be no thousands; and
    whether points stand between thousands.
    """
    names = rows[0] if rows else []
    for i, name in enumerate(names):
        cells = [row[i] for row in rows[1:] if len(row) == len(names) and row[i]]
        numbers = all(_COMMA_NUMBER.fullmatch(cell) or _WHOLE.fullmatch(cell) for cell in cells)
        if numbers and any(b"," in cell and len(cell.partition(b",")[2]) != 3 for cell in cells):
            yield name.decode(errors="replace"), any(b"." in cell for cell in cells)
