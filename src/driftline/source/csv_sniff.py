"""How a CSV file is written: by what was said of it, and else by how it begins."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice

import msgspec

from driftline.core.planning.dialect import NONE, Dialect
from driftline.observe.csv_types import POINT
from driftline.source.csv_cut import COMMA, CsvRecord, Marks, records

_CSV_MARKS = b',;\t|"\r\n'
_HEAD, _ROWS = 2**16, 20  # bytes, and rows behind a header, that tell
_DELIMITERS = (b",", b";", b"\t", b"|")  # those that a file may tell
_OTHER_QUOTE = b"'"
_COMMA_NUMBER = re.compile(rb"-?[0-9]+,[0-9]+")
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
    """How a file is written. ``encoding`` empty: UTF-8. ``commas``: columns that look like numbers with a
    decimal comma, where nobody has said that they are. ``seems``: a delimiter that makes several columns,
    where the one that was said makes one. ``json``: it begins with a JSON object. ``ahead``: the bytes, and
    ``lines_ahead`` the lines, in front of the header that say how the file is written.
    """

    marks: Marks = COMMA
    encoding: str = ""
    decimal: str = POINT
    commas: tuple[str, ...] = ()
    seems: str = ""
    json: bool = False
    ahead: int = 0
    lines_ahead: int = 0

    @property
    def can_be_cut(self) -> bool:
        """Whether each line feed of the file is a byte of that code, and the text behind it stands alone."""
        return not self.encoding or _of_single_bytes(self.encoding)

    def wrong_byte(self, error: UnicodeDecodeError) -> int:
        """The byte that is none of the encoding. ``error``: of the text that `as_utf8` made."""
        text, at = error.object, error.start
        return int(text[at + 1 : at + 3], 16) if self.encoding else text[at]

    def notes(self, given: Dialect, path: str) -> Iterator[str]:
        """What of it a file alone has told, as flags that would say it."""
        guessed = Dialect(
            "" if given.delimiter or self.marks.delimiter == b"," else self.marks.delimiter.decode(),
            "" if given.quote or self.marks.quote == b'"' else self.marks.quote.decode(),
            "" if given.encoding else self.encoding,
        )
        if self.json:
            yield f"{path} begins with a JSON object: is it JSON? --format json reads it as that"
        if guessed != Dialect():
            yield f"CSV was read by {guessed.flags}, as {path} tells"
        if self.seems:
            seems = Dialect(self.seems).flags
            yield f"{path} has one column by {Dialect(given.delimiter).flags}, and several by {seems}"
        if self.commas:
            yield f"--decimal , would make numbers of {', '.join(self.commas)}, where {path} has commas"


PLAIN = Form()


def form_of(first: bytes, given: Dialect) -> Form:
    """How a file is written that begins so. What nobody has said is told by its first rows: the encoding by
    byte order marks or by where zeros stand, the delimiter by what makes most columns of the header, the
    quote by what gives all rows as many cells.

    >>> form_of(b"a;b,c;d\\n1;2,5;3\\n", Dialect()).marks, form_of(b"a;b\\n1\\n", Dialect()).marks.delimiter
    (Marks(delimiter=b';', quote=b'"'), b',')
    """
    encoding = "" if given.encoding in _UTF8 else _encoding_of(first, given.encoding)
    text = next(as_utf8([first[:_HEAD]], encoding), b"").removeprefix(codecs.BOM_UTF8)
    separator = _SEPARATOR.match(text)
    ahead = separator.end() if separator else 0
    text = text[ahead:]
    told = (separator[2],) if separator else _DELIMITERS
    delimiters = (given.delimiter.encode(),) if given.delimiter else told
    quotes = ("" if given.quote == NONE else given.quote).encode() if given.quote else None
    marks = _marks_of(text, delimiters, quotes)
    decimal = given.decimal or POINT
    seems = _seems(text, marks) if given.delimiter else ""
    may_be_commas = not (given.decimal or seems or marks.delimiter == b",")
    commas = tuple(_with_commas(_rows(text, marks))) if may_be_commas else ()
    is_json = _is_object(text.partition(b"\n")[0])
    return Form(marks, encoding, decimal, commas, seems, is_json, ahead, int(separator is not None))


def _is_object(line: bytes) -> bool:
    """Whether a line is an object of JSON."""
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


def _encoding_of(first: bytes, given: str) -> str:
    """The encoding; empty for UTF-8."""
    by_mark = next((name for mark, name in _BEGINNINGS.items() if first.startswith(mark)), "")
    if by_mark or given not in ("", "utf-16"):
        return given or by_mark
    head = first[:_HEAD]
    zeros = head[::2].count(0), head[1::2].count(0)
    big = bool(zeros[0])
    # Of letters of the west, or commas; a single zero may be a cell of its own.
    is_half = max(zeros) > max(1, len(head) // 8) and not min(zeros)
    if is_half and _are_pairs(head, big):
        return "utf-16-be" if big else "utf-16-le"
    return given


def _are_pairs(head: bytes, big: bool) -> bool:
    """Whether text with many zeros is UTF-16: it is no UTF-8, or most marks of CSV have a zero with them."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return True
    pairs = zip(head[not big :: 2], head[big::2], strict=False)
    paired = sum(not high and low in _CSV_MARKS for high, low in pairs)
    marks = sum(byte in _CSV_MARKS for byte in head)
    return 2 * paired > marks or not marks


def _rows(text: bytes, marks: Marks) -> list[CsvRecord]:
    """The first rows, with the header."""
    cut = (record for record in records(text, marks=marks) if record.raw)
    first = list(islice(cut, _ROWS + 1))
    return first[:-1] if len(text) >= _HEAD else first  # the last may be cut off


def _marks_of(text: bytes, delimiters: Iterable[bytes], quote: bytes | None) -> Marks:
    """What makes most columns of the header, if half of the first rows or more have as many; else a comma,
    or what else is possible.
    """
    delimiters = tuple(delimiters)
    widest = _widest(text, [Marks(d, b'"' if quote is None else quote) for d in delimiters])
    if quote is not None or _OTHER_QUOTE not in text or _even(text, widest):
        return widest
    other = _widest(text, [Marks(d, _OTHER_QUOTE) for d in delimiters])
    return other if _even(text, other) else widest


def _seems(text: bytes, marks: Marks) -> str:
    """The delimiter that makes several columns, if the one that was said makes one; else nothing."""
    other = _widest(text, [marks, *(Marks(d, marks.quote) for d in _DELIMITERS)])
    return other.delimiter.decode() if not _is_wide(text, marks) and _even(text, other) else ""


def _is_wide(text: bytes, marks: Marks) -> bool:
    return any(len(row.cells or ()) > 1 for row in _rows(text, marks))


def _widest(text: bytes, among: list[Marks]) -> Marks:
    widths = {marks: _width([len(row.cells or ()) for row in _rows(text, marks)] or [1]) for marks in among}
    return max(among, key=widths.__getitem__)


def _width(widths: list[int]) -> int:
    """How many cells the header has; 1 where most of the first rows have others."""
    same = widths[1:].count(widths[0])
    return widths[0] if 2 * same >= len(widths) - 1 else 1


def _even(text: bytes, marks: Marks) -> bool:
    """Whether all of the first rows have the same number of cells, more than one."""
    widths = {len(row.cells or ()) for row in _rows(text, marks)}
    return len(widths) == 1 and widths != {1}


def _with_commas(rows: list[CsvRecord]) -> Iterator[str]:
    """The columns whose texts are numbers with a comma, of which one at least can be no thousands."""
    names = (rows[0].cells if rows else None) or []
    for i, name in enumerate(names):
        cells = [row.cells[i] for row in rows[1:] if row.cells and len(row.cells) == len(names)]
        cells = [cell for cell in cells if cell]
        numbers = all(_COMMA_NUMBER.fullmatch(cell) or cell.lstrip(b"-").isdigit() for cell in cells)
        if numbers and any(b"," in cell and len(cell.partition(b",")[2]) != 3 for cell in cells):
            yield name.decode(errors="replace")
