"""Cells of CSV, and how their quotes may be read."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

from driftline.verify.values import Cell, Misquoted

csv.field_size_limit(2**31 - 1)
_CELL = re.compile(r'((?:"[^"]*(?:""[^"]*)*"?)?[^,]*)(,|\Z)')


def cells_of(row: Sequence[str], raw: bytes) -> Iterator[Cell]:
    """The cells of a row, those that are misquoted as such."""
    if b'"' not in raw:
        yield from map(Cell, row)
        return
    for cell, written in zip(row, _written(raw.decode()), strict=True):
        plain = written == cell or written == '"' + cell.replace('"', '""') + '"'
        yield Cell(cell) if plain else Misquoted.of(cell, written)


def _written(text: str) -> list[str]:
    """Each cell as it stands in the text of one row, quotes and all.

    >>> _written('1,"a, ""b","c"d",')
    ['1', '"a, ""b"', '"c"d"', '']
    """
    out, at = [], 0
    while cell := _CELL.match(text, at):
        out.append(cell[1])
        at = cell.end()
        if not cell[2]:
            break
    return out


def cells(raw: bytes) -> list[Cell]:
    """The cells of one CSV record; the text itself where it is none."""
    text = raw.decode(errors="surrogateescape")
    try:
        return [Cell(cell) for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    except csv.Error:
        return [Cell(text)]
