"""CSV as plain Python reads it, and how quotes may be read."""

from __future__ import annotations

import re
from bisect import bisect_left
from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple

from driftline.verify.packed import pieces
from driftline.verify.source_values import Cell, Misquoted

_LINE_END = re.compile("\r\n|\n|\r")
_DELIMITERS = ",;\t|"
_EXCEL = re.compile(r"sep=([^\w\s]|\t| )[ ,;\t|]*|\"sep=([^\w\s]|\t| )\"[ ,;\t|]*", re.IGNORECASE)
_MARK = re.compile(r"[,;\t|\"\r\n]")
_LOOKED, _FIRST = 65_536, 21  # characters and records that tell the delimiter
_FIRST_READ = 4 * _LOOKED  # bytes that have so many characters


class _GoesOn(Exception):
    """A record continues after the text at hand."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record. ``line``: the number of its first line; ``raw``: its text;
    ``cells`` None: a quote is never closed.
    """

    line: int
    raw: str
    cells: list[Cell] | None


class CsvDialect(NamedTuple):
    """The table's settings for CSV; empty: none."""

    delimiter: str = ""
    quote: str = ""
    encoding: str = ""


def decoded(file: IO[bytes], encoding: str) -> Iterator[str]:
    """The text from the file's position, in pieces; zeros at every other byte reveal UTF-16.

    The first piece is enough to find the encoding.
    """
    head = file.read(_FIRST_READ)
    if head.startswith(BOM_UTF8):  # which goes before the encoding that was said
        encoding = ""
    elif encoding in ("", "utf-16"):
        encoding = _of_two_bytes(head[:_LOOKED]) or encoding
    decoder = getincrementaldecoder(encoding or "utf-8")("replace" if encoding else "surrogateescape")
    yield decoder.decode(head).removeprefix("\ufeff")
    yield from map(decoder.decode, pieces(file))
    yield decoder.decode(b"", final=True)


def _of_two_bytes(head: bytes) -> str:
    """UTF-16's name if zeros reveal it; empty for UTF-8, which may contain zeros too.

    >>> _of_two_bytes("a,b\\n".encode("utf-16-le")), _of_two_bytes(b"a,b\\n1,\\0\\n")
    ('utf-16-le', '')
    """
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) * 8 <= len(head) or max(even, odd) == 1 or min(even, odd):
        return ""
    name = "utf-16-be" if even else "utf-16-le"
    try:
        getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return name
    wide = len(_MARK.findall(head.decode(name, "replace")))
    narrow = len(_MARK.findall(head.decode("latin1")))
    return name if wide * 2 > narrow or not narrow else ""


def said_first(text: str) -> tuple[str, int]:
    """The delimiter in a first line of its own, as Excel understands it, and the size of that line.

    >>> said_first("sep=;\\r\\na;b"), said_first("a;b\\n")
    ((';', 7), ('', 0))
    """
    end = _LINE_END.search(text)
    match = _EXCEL.fullmatch(text, 0, end.start()) if end else None
    return (match[1] or match[2], end.end()) if match and end else ("", 0)


def names_of(header: Sequence[Cell]) -> list[str]:
    """The names in a header's cells, as written; a number distinguishes empty and repeated ones.

    >>> names_of([Cell(text) for text in ("", "a", "a", "a_2", "")])
    ['column_1', 'a', 'a_3', 'a_2', 'column_5']
    """
    texts = [getattr(cell, "written", str(cell)) for cell in header]
    names: list[str] = []
    for i, text in enumerate(texts):
        name, n = text or f"column_{i + 1}", 1
        while name in names or (name in texts and not (text and n == 1)):
            n += 1
            name = f"{text or f'column_{i + 1}'}_{n}"
        names.append(name)
    return names


def marks_of(text: str, dialect: CsvDialect) -> tuple[str, str]:
    """The delimiter that gives the header most cells, and half of the first rows as many, a comma by default;
    and the quote.

    The quote is a single one if that alone gives all of them as many.

    >>> texts = "a;b;c\\n1;2,5;3", "a;b\\n1", "a,b\\n'1,2',3"
    >>> tuple(marks_of(text, CsvDialect()) for text in texts)
    ((';', '"'), (',', '"'), (',', "'"))
    """
    delimiters = dialect.delimiter or _DELIMITERS
    if dialect.quote:
        quote = "" if dialect.quote == "none" else dialect.quote
        return _best(text, delimiters, quote)[0], quote
    best, even = _best(text, delimiters, '"')
    other, other_even = _best(text, delimiters, "'")
    return (other, "'") if "'" in text[:_LOOKED] and other_even and not even else (best, '"')


def _best(text: str, delimiters: str, quote: str) -> tuple[str, bool]:
    """The delimiter, and whether all of the first rows have as many cells, more than one."""
    best, most, even = delimiters[0], 1, False
    for delimiter in delimiters:
        first = [row for row in rows([text[:_LOOKED]], delimiter, quote) if row.raw][:_FIRST]
        if len(text) >= _LOOKED:
            first = first[:-1]
        header, *others = [len(row.cells or ()) for row in first] or [0]
        if header > most and others.count(header) * 2 >= len(others):
            best, most, even = delimiter, header, set(others) <= {header}
    return best, even


def rows(texts: Iterable[str], delimiter: str = ",", quote: str = '"') -> Iterator[Row]:
    """The records of a text that comes in pieces, blank lines among them. No more of it is held than a
    record, or than follows a quote that is never closed.

    >>> [(row.line, row.cells) for row in rows(['1,"a ""b""\\r\\nc"', '\\n2,"d\\n3,e'])]
    [(1, ['1', 'a "b"\\r\\nc']), (3, None), (4, ['3', 'e'])]
    """
    held, size, lines = "", 0, 0
    for text in texts:
        held += text
        if len(held) >= size:
            at, passed = yield from _whole_rows(held, lines, delimiter, quote, is_all=False)
            held, lines = held[at:], lines + passed
            size = 2 * len(held)
    yield from _whole_rows(held, lines, delimiter, quote, is_all=True)


def _whole_rows(
    text: str, before: int, delimiter: str, quote: str, *, is_all: bool
) -> Generator[Row, None, tuple[int, int]]:
    """The records of a text that begins after ``before`` lines.

    Returns the start of the first that may continue after the text, and the number of lines before it.
    """
    ends = [match.span() for match in _LINE_END.finditer(text)]
    if is_all and not text.endswith(("\r", "\n")):
        ends.append((len(text), len(text)))
    elif not is_all and text.endswith("\r"):  # a line feed may follow
        ends.pop()
    stops = [stop for stop, _ in ends]
    at = line = 0
    while line < len(ends) and at < len(text):
        stop = stops[line]
        cells: list[Cell] | None
        if quote and quote in text[at:stop]:
            try:
                cells, stop = _cells(text, at, stops, line, (delimiter, quote), is_all=is_all)
            except _GoesOn:
                break
        else:
            cells = [Cell(cell) for cell in text[at:stop].split(delimiter)]
        yield Row(before + line + 1, text[at:stop], cells)
        line = bisect_left(stops, stop, line)
        at = ends[line][1]
        line += 1
    return at, line


def cells(raw: bytes) -> list[Cell]:
    """The cells of one CSV record; the text itself if it is none."""
    text = raw.decode(errors="surrogateescape")
    cut = [cell for row in rows([text]) for cell in row.cells or [Cell(row.raw)]]
    return cut or [Cell(text)]


def _cells(
    text: str, at: int, stops: list[int], line: int, marks: tuple[str, str], *, is_all: bool
) -> tuple[list[Cell] | None, int]:
    """The cells of the record that begins ``at`` a position, and its end; None if a quote is never closed.

    Its line is the last then. ``marks``: from `marks_of`. Raises _GoesOn if the record may continue after the
    text.
    """
    delimiter, quote = marks
    out: list[Cell] = []
    while True:
        stop = stops[line]
        if text.startswith(quote, at):
            close = _close(text, at, quote)
            if not is_all and (close is None or close + 1 == len(text)):
                raise _GoesOn
            if close is not None and text[close + 1 : close + 2] in ("", delimiter, "\r", "\n"):
                out.append(Cell(text[at + 1 : close].replace(quote * 2, quote)))
                end = close + 1
            elif close is not None and close < stop:
                end = _next(text, delimiter, at, stop)
                written = text[at:end]
                lenient = written[1 : close - at].replace(quote * 2, quote) + written[close - at + 1 :]
                out.append(Misquoted.of(lenient, written))
            else:
                return None, stop
            line = bisect_left(stops, end, line)
            if line == len(stops):
                raise _GoesOn
        else:
            end = _next(text, delimiter, at, stop)
            out.append(Cell(text[at:end]))
        if not text.startswith(delimiter, end):
            return out, end
        at = end + 1


def _next(text: str, delimiter: str, at: int, stop: int) -> int:
    """The position of the line's next delimiter, or of its end."""
    place = text.find(delimiter, at, stop)
    return stop if place < 0 else place


def _close(text: str, at: int, quote: str) -> int | None:
    """The position that closes the quote ``at`` a position: the next one that is not doubled."""
    place = text.find(quote, at + 1)
    while place >= 0 and text.startswith(quote, place + 1):
        place = text.find(quote, place + 2)
    return None if place < 0 else place
