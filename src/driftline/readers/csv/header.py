"""Tells if the first row of a CSV file, or of a sheet, has names, and if titles stand above it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from driftline.core.settings.csv import JSON_SIGNS, POINT, Dialect, Signs

Cells: TypeAlias = Sequence[bytes]

_NUMBER, _WHOLE = "number", re.compile(rb"-?[0-9]{1,18}")
_TITLES = 10  # lines, at most
_BEGINNINGS = b"-0123456789tfTF"
_KINDS = {
    _NUMBER: re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"),
    "boolean": re.compile(rb"true|false", re.IGNORECASE),
    "date": re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "moment": re.compile(
        rb"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|\+00:00)?"
    ),
}


def is_row(rows: Sequence[Cells], signs: Signs) -> bool:
    """True if the first row surely has no names: each of its cells is a value of a kind of which all cells
    below are, and they are more than whole numbers that rise or fall, as years do that name columns.

    >>> [is_row(rows, Signs()) for rows in ([[b"7", b"1.5"], [b"2", b""]], [[b"2019", b"2020"]], [[b"n"]])]
    [True, False, False]
    """
    if not rows or not all(_kind(cell, signs) for cell in rows[0]):
        return False
    return all(_alike(rows, signs)) and not _are_steps(rows[0])


def is_like_data(rows: Sequence[Cells], signs: Signs) -> bool:
    """True if the first row may have no names: one of its cells is a value as those below are, and
    none is a text above values.
    """
    if not rows or not any(_kind(cell, signs) for cell in rows[0]):
        return False
    alike = list(_alike(rows, signs))
    values = [cell for cell, is_alike in zip(rows[0], alike, strict=True) if is_alike]
    steps = len(values) > 1 and len(values) < len(rows[0]) and _are_steps(values)
    return None not in alike and any(alike) and not steps


def header_advice(rows: Sequence[Cells], dialect: Dialect, path: str) -> str:
    """The advice on a first row that was taken for names, and may have none; empty if there is none."""
    if dialect.header or not is_like_data(rows, dialect.signs):
        return ""
    return f"{path}: the header looks like data: if it is, pass --header no"


def titles(rows: Sequence[Cells]) -> int:
    """The number of rows in front of the header that have fewer cells than most rows.

    >>> titles([[b"Sales"], [b"id", b"n"], [b"1", b"x"]]), titles([[b"id", b"n"], [b"1", b"x", b""]])
    (1, 0)
    """
    widths = list(map(len, rows))
    most = max(widths, default=0)
    count = widths.index(most) if most > 1 else 0
    others = widths[count:]
    is_above = 0 < count <= _TITLES and len(others) > 1 and set(others) == {most}
    return count if is_above and not any(_kind(cell, JSON_SIGNS) for cell in rows[count]) else 0


def _alike(rows: Sequence[Cells], signs: Signs) -> Iterator[bool | None]:
    """For each cell of the first row whether it is a value of the kind that all cells below are, or could be;
    None where it is none and they are.
    """
    first, *others = rows
    full_rows = [row for row in others if len(row) == len(first)]
    for i, cell in enumerate(first):
        kind = _kind(cell, signs)
        kinds = {_kind(row[i], signs) for row in full_rows if row[i]}
        yield (kind != "" and kinds <= {kind}) or (None if kinds and "" not in kinds else False)


def _kind(cell: bytes, signs: Signs) -> str:
    """The kind of value that a cell is; empty: text."""
    if cell[:1] not in _BEGINNINGS:
        return ""
    number = _as_json(cell, signs)
    return next(
        (name for name, kind in _KINDS.items() if kind.fullmatch(number if name == _NUMBER else cell)), ""
    )


def _as_json(cell: bytes, signs: Signs) -> bytes:
    """The number that a cell may be, as JSON spells it."""
    if signs == JSON_SIGNS:
        return cell
    decimal, thousands = signs.decimal.encode(), signs.thousands.encode()
    if thousands:
        is_grouped = re.fullmatch(signs.groups.encode(), cell)
        cell = cell.replace(thousands, b"" if is_grouped else b"_")
    return cell if signs.decimal == POINT else cell.replace(b".", b"_").replace(decimal, b".")


def _are_steps(cells: Cells) -> bool:
    """True if all cells are whole numbers, each more than the one before, or each less."""
    if not all(map(_WHOLE.fullmatch, cells)):
        return False
    numbers = list(map(int, cells))
    rising = sorted(set(numbers))
    return numbers in (rising, rising[::-1])
