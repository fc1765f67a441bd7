"""CSV as plain Python reads it, and how quotes may be read."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from driftline.verify.values import Cell, Misquoted

_LINE_END = re.compile("\r\n|\n|\r")
_DELIMITERS = ",;\t|"
_LOOKED, _FIRST = 65_536, 21  # characters and records that tell the delimiter


@dataclass(frozen=True, slots=True)
class Row:
    """One record. ``line``: the number of its first line; ``raw``: its text;
    ``cells`` None: a quote is never closed.
    """

    line: int
    raw: str
    cells: list[Cell] | None


def delimiter_of(text: str) -> str:
    """The delimiter that gives the header most cells, and half of the first rows as many; a comma by default.

    >>> delimiter_of("a;b;c\\n1;2,5;3"), delimiter_of("a;b\\n1")
    (';', ',')
    """
    best, most = ",", 1
    for delimiter in _DELIMITERS:
        first = [row for row in rows(text[:_LOOKED], delimiter) if row.raw][:_FIRST]
        if len(text) >= _LOOKED:
            first = first[:-1]
        header, *others = [len(row.cells or ()) for row in first] or [0]
        if header > most and others.count(header) * 2 >= len(others):
            best, most = delimiter, header
    return best


def rows(text: str, delimiter: str = ",") -> Iterator[Row]:
    """The records of a text, blank lines among them.

    >>> [(row.line, row.cells) for row in rows('1,"a ""b""\\r\\nc"\\n2,"d\\n3,e')]
    [(1, ['1', 'a "b"\\r\\nc']), (3, None), (4, ['3', 'e'])]
    """
    ends = [match.span() for match in _LINE_END.finditer(text)]
    if not text.endswith(("\r", "\n")):
        ends.append((len(text), len(text)))
    stops = [stop for stop, _ in ends]
    at = line = 0
    while at < len(text):
        stop = stops[line]
        cells: list[Cell] | None
        if '"' in text[at:stop]:
            cells, stop = _cells(text, at, stops, line, delimiter)
        else:
            cells = [Cell(cell) for cell in text[at:stop].split(delimiter)]
        yield Row(line + 1, text[at:stop], cells)
        line = bisect_left(stops, stop, line)
        at = ends[line][1]
        line += 1


def cells(raw: bytes) -> list[Cell]:
    """The cells of one CSV record; the text itself where it is none."""
    text = raw.decode(errors="surrogateescape")
    found = [cell for row in rows(text) for cell in row.cells or [Cell(row.raw)]]
    return found or [Cell(text)]


def _cells(text: str, at: int, stops: list[int], line: int, delimiter: str) -> tuple[list[Cell] | None, int]:
    """The cells of the record that begins ``at`` a place, and where it ends; None where a
    quote is never closed: its line is the last.
    """
    out: list[Cell] = []
    while True:
        stop = stops[line]
        if text.startswith('"', at):
            close = _close(text, at)
            if close is not None and text[close + 1 : close + 2] in ("", delimiter, "\r", "\n"):
                out.append(Cell(text[at + 1 : close].replace('""', '"')))
                end = close + 1
            elif close is not None and close < stop:
                end = _next(text, delimiter, at, stop)
                written = text[at:end]
                lenient = written[1 : close - at].replace('""', '"') + written[close - at + 1 :]
                out.append(Misquoted.of(lenient, written))
            else:
                return None, stop
            line = bisect_left(stops, end, line)
        else:
            end = _next(text, delimiter, at, stop)
            out.append(Cell(text[at:end]))
        if not text.startswith(delimiter, end):
            return out, end
        at = end + 1


def _next(text: str, delimiter: str, at: int, stop: int) -> int:
    """Where the next delimiter of the line stands, or its end."""
    found = text.find(delimiter, at, stop)
    return stop if found < 0 else found


def _close(text: str, at: int) -> int | None:
    """Where the quote ``at`` a place is closed: by the next one that is not doubled."""
    found = text.find('"', at + 1)
    while found >= 0 and text.startswith('"', found + 1):
        found = text.find('"', found + 2)
    return None if found < 0 else found
