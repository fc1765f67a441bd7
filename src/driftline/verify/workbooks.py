"""Excel workbooks as openpyxl reads them, written as lines of JSON: a line for each row of the sheet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from driftline.errors import SetupError
from driftline.runtime.stores import opened


def as_lines(file: str, target: Path, sheet: str, header: str, skip: int) -> None:
    """Write the rows of a sheet, or of the only one.

    ``header``: as the setting of that name; ``skip``: rows in front.
    """
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise SetupError("Excel needs openpyxl to be verified.", "pip install 'driftline[excel]'") from error
    with opened(file) as (workbook, _):
        book = load_workbook(workbook, read_only=True, data_only=True)
        rows = [
            list(row) for row in (book[sheet] if sheet else book.worksheets[0]).iter_rows(values_only=True)
        ]
    used = [[i for i, cell in enumerate(row) if cell not in (None, "")] for row in rows]
    places = range(
        min(map(min, filter(None, used)), default=0), max(map(max, filter(None, used)), default=-1) + 1
    )
    first = next((n for n, filled in enumerate(used) if filled and n >= skip), len(rows))
    names, begin = _names(
        [[row[i] if i < len(row) else None for i in places] for row in rows[first:]], header
    )
    moments = {
        i
        for row in rows
        for i, cell in enumerate(row)
        if isinstance(cell, datetime) and cell.time() != time()
    }
    with target.open("w", encoding="utf-8") as lines:
        for number, row in enumerate(rows):
            if number >= first + begin and used[number]:
                cells = [_value(row[i] if i < len(row) else None, i in moments) for i in places]
                lines.write(json.dumps(dict(zip(names, cells, strict=True)), ensure_ascii=False))
            lines.write("\n")


def _names(rows: Sequence[Sequence[Any]], header: str) -> tuple[list[str], int]:
    if header not in ("", "auto", "yes", "no"):
        return [name.strip() for name in header.split(",")], 0
    if not rows:
        return [], 0
    values = [_value(cell, False) for cell in rows[0]]
    texts = any(
        isinstance(value, str) and not _is_time(cell) for value, cell in zip(values, rows[0], strict=True)
    )
    if header == "no" or (header != "yes" and not texts and None not in values and len(rows) > 1):
        return [f"column_{n}" for n in range(1, len(values) + 1)], 0
    names: list[str] = []
    taken = {str(value) for value in values if value is not None}
    for n, value in enumerate(values, 1):
        name, times = f"column_{n}" if value is None else str(value), 1
        fresh = value is not None and name not in names
        while not fresh and (name in taken or name in names):
            times += 1
            name = f"{f'column_{n}' if value is None else value}_{times}"
        names.append(name)
    return names, 1


def _is_time(cell: Any) -> bool:
    return isinstance(cell, (date, time))


def _value(cell: Any, moment: bool) -> Any:
    if isinstance(cell, datetime):
        return cell.isoformat() if moment else cell.date().isoformat()
    if isinstance(cell, timedelta):
        seconds = int(cell.total_seconds())
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if isinstance(cell, time):
        return cell.isoformat()
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return int(cell)
    return None if cell == "" else cell
