r"""Cuts CSV text into whole records, exactly as written.

A delimiter ends a cell; ``\n``, ``\r\n`` and ``\r`` end a record, outside quotes. A cell is quoted if a
quote begins it, another ends it, and every quote between the two is doubled, or has an escape in front of
it. Any other quote is text like all else, so that the cell stands as it is written; so is an escape that
stands in front of neither a quote nor another escape. Where not even the line has a second quote, the quote
is never closed, and the line is no record. A line that begins with the sign of comments is no record either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Not `max_record_bytes`: a cell of many lines is no error.
# Bytes of a record, at most, and of text in which a quote has to be closed
LONGEST = 128 * 2**20

# Bytes of records that are handed on together, at most, where there are more
_MANY = 8 * 2**20

_FEED, _RETURN = b"\n\r"


class Marks(NamedTuple):
    """The marks of a CSV text: between cells, around them, and before comments.

    Without a ``quote`` nothing encloses cells. An escape precedes quotes within quoted cells, which may also
    be doubled. With ``trim``, blanks next to a delimiter are no part of a cell.
    """

    delimiter: bytes = b","
    quote: bytes = b'"'
    escape: bytes = b""
    comment: bytes = b""
    trim: bool = False

    @property
    def blanks(self) -> bytes:
        """The blanks that are no part of a cell."""
        return b" \t".replace(self.delimiter, b"") if self.trim else b""


COMMA = Marks()
BACKSLASH = b"\\"


class _Patterns(NamedTuple):
    """The patterns for a text of some marks.

    Attributes:
        cell: a cell, and what ends it.
        comment: a comment, in groups as those of a cell.
        open: a quote that may yet be closed.
        misquoted: a quote that ends in the midst of its cell.
        pair: two characters that stand for the second.
        blank: a blank next to a delimiter, or to an end of a line.
        before: by code, true for what may stand before a quote that opens, and after one that closes.
    """

    cell: re.Pattern[bytes]
    comment: re.Pattern[bytes]
    open: re.Pattern[bytes]
    misquoted: re.Pattern[bytes]
    pair: re.Pattern[bytes]
    blank: re.Pattern[bytes]
    before: NDArray[np.bool_]


@cache
def _patterns(marks: Marks) -> _Patterns:
    d, q, e, c = map(re.escape, marks[:4])
    b = rb"[%b]*+" % marks.blanks if marks.blanks else b""
    blank = re.compile(
        rb"[%b](?:[%b\r\n]|\Z)|(?:\A|[%b\r\n])[%b]" % (marks.blanks, d, d, marks.blanks) if b else rb"(?!)"
    )
    before = np.isin(np.arange(256), list(b"\n\r" + marks.delimiter + marks.quote))
    # Possessive (`*+`), or a cell of many megabytes would leave a place to go back to for each byte.
    bare = rb"([^%b\r\n]*+))(%b|\r\n|[\r\n]|\Z)" % (d, d)
    comment = re.compile(rb"(?:((?!))|(%b[^\r\n]*+))(\r\n|[\r\n]|\Z)" % c)
    if not q:
        never = re.compile(rb"(?!)")
        return _Patterns(re.compile(rb"(?:((?!))|" + bare), comment, never, never, never, blank, before)
    pair = rb"%b%b|%b[%b%b]?+" % (q, q, e, q, e) if e else q + q
    inside = rb"[^%b]*+(?:(?:%b)[^%b]*+)*+" % (q + e, pair, q + e)
    in_line = rb"[^%b\r\n]*+(?:(?:%b)[^%b\r\n]*+)*+" % (q + e, pair, q + e)
    return _Patterns(
        re.compile(rb"(?:%b%b(%b)%b%b(?=[%b\r\n]|\Z)|%b" % (b, q, inside, q, b, d, bare)),
        comment,
        re.compile(rb"%b%b%b%b?\Z" % (b, q, inside, q)),
        re.compile(rb"%b%b%b%b" % (b, q, in_line, q)),
        re.compile(rb"[%b]([%b])" % (q + e, q + e)),
        blank,
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
    """Whole records.

    Attributes:
        line: the number of their first line.
        plain: each quote opens, closes or is doubled in a quoted cell, so that any reader of CSV reads them
            alike.
        picked: where they begin, and their lines, if they are some of a file's records.
    """

    text: bytes
    line: int
    plain: bool
    marks: Marks = COMMA
    picked: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    @property
    def height(self) -> int:
        """The number of lines; none of picked records, which have their own."""
        return count_lines(self.text) if self.picked is None else 0

    def records(self) -> Iterator[CsvRecord]:
        """Yield each record, blank lines among them."""
        if self.picked is None:
            yield from records(self.text, self.line, self.marks)
            return
        begins, lines = (places.tolist() for places in self.picked)
        # Each by itself: a quote that is never closed would be by one of a record that stood elsewhere.
        for (begin, end), line in zip(pairwise([*begins, len(self.text)]), lines, strict=True):
            for record in records(self.text[begin:end], line, self.marks):
                yield replace(record, begin=begin, end=end)


@dataclass(frozen=True, slots=True)
class CsvRecord:
    """One record.

    Attributes:
        raw: its text as it is written, without its line end.
        begin: the position in the text at which it begins.
        end: the position after its line end.
        cells: None if one has a quote that is never closed.
    """

    raw: bytes
    line: int
    begin: int
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

    Args:
        line: the number of its first line.
        whole: it goes to the end of its file.
        longest: bytes in which a quote has to be closed.

    Raises OpenEndError where a text that is not ``whole`` ends within a cell.

    >>> [piece.text for piece in pieces([b'1,"a', b'\\nb"\\n2,', b"c"])]
    [b'1,"a\\nb"\\n', b'2,c']
    """
    buffered: list[bytes] = []
    size = due = 0
    for block in blocks:
        buffered.append(block)
        size += len(block)
        if size < due:
            continue
        text_so_far = b"".join(buffered)
        buffered.clear()
        for text, plain in _whole_records(text_so_far, longest, marks):
            yield Piece(text, line, plain, marks)
            line += count_lines(text)
            size -= len(text)
        # Where a quote is open, the next look is at twice as much: all looks take no more time than one.
        due = min(2 * size, longest) if size == len(text_so_far) else 0
        buffered.append(text_so_far[len(text_so_far) - size :])
        if size > 2 * longest:  # a quote may open anywhere in a record
            raise TooLongError(line)
    text_so_far = b"".join(buffered)
    if text_so_far and not whole:
        raise OpenEndError
    for text, plain in _whole_records(text_so_far, 0, marks):
        yield Piece(text, line, plain, marks)
        line += count_lines(text)
        size -= len(text)
    if text_so_far := text_so_far[len(text_so_far) - size :]:
        yield Piece(text_so_far, line, _is_plain(text_so_far, len(text_so_far), marks), marks)


def records(text: bytes, line: int = 1, marks: Marks = COMMA) -> Iterator[CsvRecord]:
    """Each record of a text of whole records, blank lines among them.

    >>> [record.cells for record in records(b'1,"a ""b"" c"\\r\\n2,5" x,"')]
    [[b'1', b'a "b" c'], None]
    """
    position, patterns, delimiter, quote = 0, _patterns(marks), marks.delimiter, marks.quote
    blanks = marks.blanks
    while position < len(text):
        if _is_comment(text, position, marks):
            match = patterns.comment.match(text, position)
            assert match is not None, text[position : position + 80]
            position, line = match.end(), line + 1
            continue
        begin, end, cells, is_open = position, position, [], False
        mark = delimiter
        while mark == delimiter:
            match = patterns.cell.match(text, position)
            assert match is not None, text[position : position + 80]
            quoted, bare, mark = match.groups()
            bare = bare.strip(blanks) if blanks and bare else bare
            if (
                quote
                and quoted is None
                and bare.startswith(quote)
                and not patterns.misquoted.match(text, position)
            ):
                is_open = True
            cells.append(bare if quoted is None else _unquoted(quoted, marks))
            end, position = match.start(3), match.end()
        yield CsvRecord(text[begin:end], line, begin, position, None if is_open else cells)
        line += count_lines(text[begin:end]) + 1


def _unquoted(text: bytes, marks: Marks) -> bytes:
    """The cell of which this stands between its quotes."""
    if marks.escape and marks.escape in text:
        return _patterns(marks).pair.sub(rb"\1", text)
    return text.replace(marks.quote * 2, marks.quote)


def is_escaped(text: bytes, marks: Marks) -> bool:
    """True if the quotes of a text of whole records are in order only with a backslash as escape.

    In order, every quote opens, closes or is doubled.
    """
    pair = BACKSLASH + marks.quote
    if marks.escape or not marks.quote or pair not in text or _is_plain(text, len(text), marks):
        return False
    return _is_plain(text, len(text), marks._replace(escape=BACKSLASH))


def bounds(text: bytes, marks: Marks = COMMA) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The begins of a plain piece's records, and of their line ends; blank lines are among them."""
    codes = _codes(text, marks)
    last = _line_ends(codes, _places(codes, marks.quote), final=True)
    begins = np.concatenate(([0], last + 1))
    ends = np.concatenate((last, [len(text)]))
    if begins[-1] == len(text):
        begins, ends = begins[:-1], ends[:-1]
    feeds = (ends > begins) & (ends < len(text))
    feeds[feeds] = (codes[ends[feeds]] == _FEED) & (codes[ends[feeds] - 1] == _RETURN)
    return begins, ends - feeds


def doubled(text: bytes, marks: Marks) -> bytes:
    """The text of a plain piece with quotes doubled that have an escape in front of them.

    >>> doubled(b'a~~b,"c~~d~"e~f"', Marks(escape=b"~"))
    b'a~~b,"c~d""e~f"'
    """
    if not marks.escape or marks.escape not in text:
        return text
    codes = _codes(text, marks)
    places = _pairs(codes, marks.escape, marks.escape)
    quoted = np.searchsorted(_places(codes, marks.quote), places) % 2 == 1
    return np.delete(codes, places[quoted]).tobytes()


def count_lines(text: bytes) -> int:
    """Count the line ends of the text.

    >>> count_lines(b"a\\r\\nb\\rc\\n")
    3
    """
    feeds = text.count(b"\n")
    return feeds + text.count(b"\r") - text.count(b"\r\n") if b"\r" in text else feeds


def _whole_records(text: bytes, longest: int, marks: Marks) -> Iterator[tuple[bytes, bool]]:
    """Yield the whole records of a text that is yet to go on, and True if these are plain.

    They come some at a time: a quote that is open for long holds back much text, of which little is as odd as
    that one record.
    """
    while text:
        ends, plain = _ends(text, longest, marks)
        if not ends:
            return
        for begin, end in pairwise([0, *ends]):
            yield text[begin:end], plain
        text = text[ends[-1] :]


def _ends(text: bytes, longest: int, marks: Marks) -> tuple[list[int], bool]:
    """Places where records of the text end, about `_MANY` bytes apart; and if the text to there is plain.

    The last place is the last that is known to be whole, or so far behind the first.
    """
    if len(text) <= _MANY and not (marks.quote and marks.quote in text):
        end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
        return [end] if end else [], not (_has_comments(text, marks) or _patterns(marks).blank.search(text))
    codes = _codes(text, marks)
    # A line feed is outside quotes if an even number of quotes is before it: no cell is looked at.
    places = _line_ends(codes, _places(codes, marks.quote), final=False) + 1
    end = int(places[-1]) if len(places) else 0
    # Odd quotes would make that count wrong, so it holds only where every quote is where CSV has one.
    if end and _is_plain(text, end, marks):
        cuts = np.searchsorted(places, np.arange(_MANY, end, _MANY))
        return sorted({*places[cuts].tolist(), end}), True
    end = _careful_end(text, longest, marks)
    return [end] if end else [], False


def _codes(text: bytes, marks: Marks) -> NDArray[np.uint8]:
    """The bytes of a text; an escape in front of a quote is a quote, so that this one is doubled."""
    codes = np.frombuffer(text, np.uint8)
    if marks.escape and marks.escape + marks.quote in text:
        codes = codes.copy()
        codes[_pairs(codes, marks.escape, marks.quote)] = marks.quote[0]
    return codes


def _pairs(codes: NDArray[np.uint8], escape: bytes, second: bytes) -> NDArray[np.int64]:
    """Find the escapes that count, and have ``second`` behind them: of several in a row, every other."""
    places = np.flatnonzero(codes == escape[0])
    # The first of each row of escapes, for all of it: places at an even distance from it escape what follows.
    begins = np.maximum.accumulate(np.where(np.diff(places, prepend=-2) > 1, places, 0))
    first = places[((places - begins) % 2 == 0) & (places < len(codes) - 1)]
    pairs: NDArray[np.int64] = first[codes[first + 1] == second[0]]
    return pairs


def _is_comment(text: bytes, position: int, marks: Marks) -> bool:
    return bool(marks.comment) and text.startswith(marks.comment, position)


def _has_comments(text: bytes, marks: Marks) -> bool:
    """True if a line of the text may be a comment."""
    mark = marks.comment
    return bool(mark) and (text.startswith(mark) or b"\n" + mark in text or b"\r" + mark in text)


def _places(codes: NDArray[np.uint8], quote: bytes) -> NDArray[np.int64]:
    """The places of the quotes."""
    return np.flatnonzero(codes == quote[0]) if quote else np.empty(0, np.int64)


def _line_ends(codes: NDArray[np.uint8], quotes: NDArray[np.int64], *, final: bool) -> NDArray[np.int64]:
    """The last bytes of the line ends outside quotes, if all quotes open or close.

    A return that ends the text may be half of one, unless the text is ``final``.
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
    """True if each quote before ``end`` (where a record ends) opens or closes a cell or is doubled in one."""
    if _has_comments(text, marks) or _patterns(marks).blank.search(text, 0, end):
        return False
    codes = _codes(text, marks)[:end]
    quotes = _places(codes, marks.quote)
    if len(quotes) % 2:
        return False
    opening, closing = quotes[::2], quotes[1::2]
    if marks.escape and not (np.frombuffer(text, np.uint8)[opening] == marks.quote[0]).all():
        return False  # an escape outside quotes
    before = codes[opening[opening > 0] - 1]
    after = codes[closing[closing < end - 1] + 1]
    between = _patterns(marks).before
    return bool(between[before].all() and between[after].all())


def _careful_end(text: bytes, longest: int, marks: Marks) -> int:
    """The end of the last record that is whole, however the text goes on, or the first after `_MANY` bytes.

    A quote that is open for ``longest`` bytes is never closed.
    """
    end = position = 0
    patterns = _patterns(marks)
    while position < len(text) and end < _MANY:
        is_comment = position == end and _is_comment(text, position, marks)
        match = (patterns.comment if is_comment else patterns.cell).match(text, position)
        assert match is not None, text[position : position + 80]
        if (
            (marks.trim or text.startswith(marks.quote, position))
            and len(text) - position < longest
            and patterns.open.match(text, position)
        ):
            break
        position = match.end()
        # Cut off here: the cell, or the line feed after a return, may go on in the next block.
        if match[3] == b"" or (match[3] == b"\r" and position == len(text)):
            break
        if match[3] != marks.delimiter:
            end = position
    return end
