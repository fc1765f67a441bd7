"""CSV text cut into whole records, as exactly as it is written.

A delimiter ends a cell; ``\\n``, ``\\r\\n`` and ``\\r`` end a record, outside quotes. A cell is quoted if a
quote begins it, another ends it, and every quote between the two is doubled. Any other quote is text like
all else, so that the cell stands as it is written. Where not even the line has a second quote, the quote is
never closed, and the line is no record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LONGEST = 128 * 2**20  # bytes of a record, at most, and of text in which a quote has to be closed

_MANY = 8 * 2**20  # bytes of records that are handed on together, at most, where there are more

_FEED, _RETURN = b"\n\r"


class Marks(NamedTuple):
    """What stands between the cells of a text, and around them; no ``quote``: nothing does."""

    delimiter: bytes = b","
    quote: bytes = b'"'


COMMA = Marks()


class _Patterns(NamedTuple):
    """What is looked for in a text of some marks: a ``cell`` with what ends it; a quote that may yet be
    closed (``open``); one that ends in the midst of its cell (``misquoted``). ``before``: by code, what may
    stand before a quote that opens, and after one that closes.
    """

    cell: re.Pattern[bytes]
    open: re.Pattern[bytes]
    misquoted: re.Pattern[bytes]
    before: NDArray[np.bool_]


@cache
def _patterns(marks: Marks) -> _Patterns:
    d, q = map(re.escape, marks)
    before = np.isin(np.arange(256), list(b"\n\r" + b"".join(marks)))
    bare = rb"([^%b\r\n]*+))(%b|\r\n|[\r\n]|\Z)" % (d, d)
    if not q:
        never = re.compile(rb"(?!)")
        return _Patterns(re.compile(rb"(?:((?!))|" + bare), never, never, before)
    inside = rb"[^%b]*+(?:%b%b[^%b]*+)*+" % (q, q, q, q)
    in_line = rb"[^%b\r\n]*+(?:%b%b[^%b\r\n]*+)*+" % (q, q, q, q)
    return _Patterns(
        re.compile(rb"(?:%b(%b)%b(?=[%b\r\n]|\Z)|%b" % (q, inside, q, d, bare)),
        re.compile(rb"%b%b%b?\Z" % (q, inside, q)),
        re.compile(rb"%b%b%b" % (q, in_line, q)),
        before,
    )


class OpenEndError(Exception):
    """A range of a file ends within a quoted cell: where it was cut is no end of a record."""


class TooLongError(Exception):
    """A record is longer than `LONGEST`; ``line``: the number of its line."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}: longer than {LONGEST >> 20} MiB")
        self.line = line


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole records. ``line``: the number of their first line; ``plain``: each quote opens, closes or is
    doubled in a quoted cell, so that any reader of CSV reads them alike.
    """

    text: bytes
    line: int
    plain: bool
    marks: Marks = COMMA


@dataclass(frozen=True, slots=True)
class CsvRecord:
    """One record. ``raw``: as it is written, without its line end; ``end``: the place in the text behind
    that; ``cells`` None: one has a quote that is never closed.
    """

    raw: bytes
    line: int
    end: int
    cells: list[bytes] | None


def pieces(
    blocks: Iterable[bytes],
    line: int = 1,
    *,
    whole: bool = True,
    longest: int = LONGEST,
    marks: Marks = COMMA,
) -> Iterator[Piece]:
    """The text of some ``blocks``, which begins with a record, in pieces of whole records.

    ``line``: the number of its first line; ``whole``: it goes to the end of its file. ``longest``: bytes in
    which a quote has to be closed. Raises OpenEndError where a text that is not ``whole`` ends within a cell.

    >>> [piece.text for piece in pieces([b'1,"a', b'\\nb"\\n2,', b"c"])]
    [b'1,"a\\nb"\\n', b'2,c']
    """
    held: list[bytes] = []
    size = due = 0
    for block in blocks:
        held.append(block)
        size += len(block)
        if size < due:
            continue
        rest = b"".join(held)
        held.clear()
        for text, plain in _whole_records(rest, longest, marks):
            yield Piece(text, line, plain, marks)
            line += count_lines(text)
            size -= len(text)
        # Where a quote is open, the next look is at twice as much: all looks take no more time than one.
        due = min(2 * size, longest) if size == len(rest) else 0
        held.append(rest[len(rest) - size :])
        if size > 2 * longest:  # a quote may open anywhere in a record
            raise TooLongError(line)
    rest = b"".join(held)
    if rest and not whole:
        raise OpenEndError
    for text, plain in _whole_records(rest, 0, marks):
        yield Piece(text, line, plain, marks)
        line += count_lines(text)
        size -= len(text)
    if rest := rest[len(rest) - size :]:
        yield Piece(rest, line, _is_plain(rest, len(rest), marks), marks)


def records(text: bytes, line: int = 1, marks: Marks = COMMA) -> Iterator[CsvRecord]:
    """Each record of a text of whole records, blank lines among them.

    >>> [record.cells for record in records(b'1,"a ""b"" c"\\r\\n2,5" x,"')]
    [[b'1', b'a "b" c'], None]
    """
    at, patterns, (delimiter, quote) = 0, _patterns(marks), marks
    while at < len(text):
        begin, end, cells, is_open = at, at, [], False
        mark = delimiter
        while mark == delimiter:
            match = patterns.cell.match(text, at)
            assert match is not None, text[at : at + 80]
            quoted, bare, mark = match.groups()
            if quote and quoted is None and bare.startswith(quote) and not patterns.misquoted.match(text, at):
                is_open = True
            cells.append(bare if quoted is None else quoted.replace(quote * 2, quote))
            end, at = match.start(3), match.end()
        yield CsvRecord(text[begin:end], line, at, None if is_open else cells)
        line += count_lines(text[begin:end]) + 1


def bounds(text: bytes, quote: bytes = COMMA.quote) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the records of a plain piece's text begin, and where their
    line ends do; blank lines are among them.
    """
    codes = np.frombuffer(text, np.uint8)
    last = _line_ends(codes, _places(codes, quote), final=True)
    begins = np.concatenate(([0], last + 1))
    ends = np.concatenate((last, [len(text)]))
    if begins[-1] == len(text):
        begins, ends = begins[:-1], ends[:-1]
    feeds = (ends > begins) & (ends < len(text))
    feeds[feeds] = (codes[ends[feeds]] == _FEED) & (codes[ends[feeds] - 1] == _RETURN)
    return begins, ends - feeds


def count_lines(text: bytes) -> int:
    """How many line ends the text has.

    >>> count_lines(b"a\\r\\nb\\rc\\n")
    3
    """
    feeds = text.count(b"\n")
    return feeds + text.count(b"\r") - text.count(b"\r\n") if b"\r" in text else feeds


def _whole_records(text: bytes, longest: int, marks: Marks) -> Iterator[tuple[bytes, bool]]:
    """The whole records of a text that is yet to go on, some at a time, and whether these are plain: a quote
    that is open for long holds back much text, of which little is as odd as that one record.
    """
    while text:
        ends, plain = _ends(text, longest, marks)
        if not ends:
            return
        for begin, end in pairwise([0, *ends]):
            yield text[begin:end], plain
        text = text[ends[-1] :]


def _ends(text: bytes, longest: int, marks: Marks) -> tuple[list[int], bool]:
    """Where records of the text end, about `_MANY` bytes apart; the last is the last that is known to be
    whole, or so far behind the first. And whether the text to there is plain.
    """
    if len(text) <= _MANY and not (marks.quote and marks.quote in text):
        end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
        return [end] if end else [], True
    codes = np.frombuffer(text, np.uint8)
    places = _line_ends(codes, _places(codes, marks.quote), final=False) + 1
    end = int(places[-1]) if len(places) else 0
    if end and _is_plain(text, end, marks):
        apart = np.searchsorted(places, np.arange(_MANY, end, _MANY))
        return sorted({*places[apart].tolist(), end}), True
    end = _careful_end(text, longest, marks)
    return [end] if end else [], False


def _places(codes: NDArray[np.uint8], quote: bytes) -> NDArray[np.int64]:
    """Where quotes stand."""
    return np.flatnonzero(codes == quote[0]) if quote else np.empty(0, np.int64)


def _line_ends(codes: NDArray[np.uint8], quotes: NDArray[np.int64], *, final: bool) -> NDArray[np.int64]:
    """The last bytes of the line ends outside quotes, if all quotes open or close. A ``\\r`` that ends the
    text, unless that is ``final``, may be half of one.
    """
    ends = codes == _FEED
    returns = codes == _RETURN
    if returns.any():
        returns[:-1] &= ~ends[1:]
        returns[-1] &= final
        ends |= returns
    places = np.flatnonzero(ends)
    return places[np.searchsorted(quotes, places) % 2 == 0] if len(quotes) else places


def _is_plain(text: bytes, end: int, marks: Marks) -> bool:
    """Whether each quote before ``end``, where a record ends, opens,
    closes, or is doubled in a quoted cell.
    """
    codes = np.frombuffer(text, np.uint8)[:end]
    quotes = _places(codes, marks.quote)
    if len(quotes) % 2:
        return False
    opening, closing = quotes[::2], quotes[1::2]
    before = codes[opening[opening > 0] - 1]
    after = codes[closing[closing < end - 1] + 1]
    between = _patterns(marks).before
    return bool(between[before].all() and between[after].all())


def _careful_end(text: bytes, longest: int, marks: Marks) -> int:
    """Where the last record ends that is whole however the text goes on, or the first behind `_MANY` bytes.
    A quote that is open for ``longest`` bytes is never closed.
    """
    end = at = 0
    patterns = _patterns(marks)
    while at < len(text) and end < _MANY:
        match = patterns.cell.match(text, at)
        assert match is not None, text[at : at + 80]
        if text.startswith(marks.quote, at) and len(text) - at < longest and patterns.open.match(text, at):
            break
        at = match.end()
        if match[3] == b"" or (match[3] == b"\r" and at == len(text)):
            break
        if match[3] != marks.delimiter:
            end = at
    return end
