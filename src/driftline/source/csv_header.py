"""Whether the first row of a CSV file has names, and whether titles stand above it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from driftline.core.planning.dialect import POINT, Signs

_NUMBER, _WHOLE = "number", re.compile(r"-?[0-9]{1,18}")
_TITLES = 10  # lines, at most
_JSON = Signs()
_KINDS = {
    _NUMBER: re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", re.ASCII),
    "boolean": re.compile(r"true|false", re.ASCII | re.IGNORECASE),
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII),
    "moment": re.compile(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|\+00:00)?", re.ASCII
    ),
}


def is_row(rows: Sequence[Sequence[str]], signs: Signs) -> bool:
    """True if the first row surely has no names: each of its cells is a value of a kind of which all cells
    below are, and they are more than whole numbers that rise or fall, as years do that name columns.

    >>> [is_row(rows, Signs()) for rows in ([["1", "1.5"], ["2", ""]], [["2019", "2020"]], [["id", "1.5"]])]
    [True, False, False]
    """
    return bool(rows) and all(_alike(rows, signs)) and all(rows[0]) and not _are_steps(rows[0])


def is_like_data(rows: Sequence[Sequence[str]], signs: Signs) -> bool:
    """True if the first row may have no names: one of its cells is a value as those below are, and
    none is a text above values.
    """
    if not rows:
        return False
    alike = list(_alike(rows, signs))
    values = [cell for cell, is_alike in zip(rows[0], alike, strict=True) if is_alike]
    steps = len(values) > 1 and len(values) < len(rows[0]) and _are_steps(values)
    return None not in alike and any(alike) and not steps


def titles(rows: Sequence[Sequence[str]]) -> int:
    """The number of rows in front of the header that have fewer cells than most rows.

    >>> titles([["Sales"], ["id", "name"], ["1", "x"]]), titles([["id", "name"], ["1", "x", ""]])
    (1, 0)
    """
    widths = list(map(len, rows))
    most = max(widths, default=0)
    count = widths.index(most) if most > 1 else 0
    below = widths[count:]
    is_above = 0 < count <= _TITLES and len(below) > 1 and set(below) == {most}
    return count if is_above and not any(_kind(cell, _JSON) for cell in rows[count]) else 0


def _alike(rows: Sequence[Sequence[str]], signs: Signs) -> Iterator[bool | None]:
    """For each cell of the first row whether it is a value of the kind that all cells below are, or could be;
    None where it is none and they are.
    """
    first, *others = rows
    below = [row for row in others if len(row) == len(first)]
    for i, cell in enumerate(first):
        kind = _kind(cell, signs)
        kinds = {_kind(row[i], signs) for row in below if row[i]}
        yield (kind != "" and kinds <= {kind}) or (None if kinds and "" not in kinds else False)


def _kind(cell: str, signs: Signs) -> str:
    """The kind of value that a cell is; empty: text."""
    texts = ((_as_json(cell, signs) if name == _NUMBER else cell, name) for name in _KINDS)
    return next((name for text, name in texts if _KINDS[name].fullmatch(text)), "")


def _as_json(cell: str, signs: Signs) -> str:
    """The number that a cell may be, as JSON spells it."""
    decimal, thousands = signs
    if thousands:
        groups = rf"-?[1-9][0-9]{{0,2}}(?:\{thousands}[0-9]{{3}})+(?:\{decimal}[0-9]+)?"
        cell = cell.replace(thousands, "" if re.fullmatch(groups, cell) else "_")
    return cell if decimal == POINT else cell.replace(POINT, "_").replace(decimal, POINT)


def _are_steps(cells: Sequence[str]) -> bool:
    """True if all cells are whole numbers, each more than the one before, or each less."""
    if not all(map(_WHOLE.fullmatch, cells)):
        return False
    numbers = list(map(int, cells))
    rising = sorted(set(numbers))
    return numbers in (rising, rising[::-1])
