"""Rows of typed columns with a value outside its type: text that is not UTF-8, too many digits.

Such a row is set aside, and the others are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from driftline.convert.row_text import row_texts
from driftline.core.schema.types import Struct
from driftline.readers.columnar.rows import Rows
from driftline.readers.rejects import Reject

# What Arrow says of values, and why their rows are set aside; the others have a place in a table.
_FAULTS = (
    ("Invalid UTF8", "text that is not UTF-8"),
    ("does not fit in precision", "a decimal with more digits than its type has"),
)


def checked(
    batch: pa.RecordBatch,
    struct: Struct,
    source: str,
    place: Callable[[int], str] = lambda _: "",
    first: int | None = None,
) -> Rows:
    """Check the rows by the types of ``struct``; those with a faulty value become rejects.

    ``place``: a prefix for the reason of a row, by its number; ``first``: the number of the first row in its
    file, if that is known.
    """
    reasons: dict[int, str] = {}
    for f, column in zip(struct.fields, batch.columns, strict=True):
        for row, fault in _faulty(column, range(len(column))):
            reasons.setdefault(row, f"{place(row)}{f.name}: {fault}")
    lines = None if first is None else np.arange(first, first + batch.num_rows)
    rows = Rows(batch, source, lines=lines)
    if not reasons:
        return rows
    numbers = sorted(reasons)
    texts = row_texts(batch.take(pa.array(numbers)), struct)
    rejects = [
        Reject(rows.origin_of(number), text, reasons[number])
        for number, text in zip(numbers, texts, strict=True)
    ]
    sound = np.ones(batch.num_rows, np.bool_)
    sound[numbers] = False
    return Rows(batch.filter(pa.array(sound)), source, rejects, lines=None if lines is None else lines[sound])


def _faulty(column: pa.Array, rows: range) -> Iterator[tuple[int, str]]:
    """Find the rows with a faulty value, and the faults, by halves."""
    # A slice of lists would have the values of all.
    part = np.arange(rows.start, rows.stop) if len(rows) < len(column) else None
    fault = _fault(column if part is None else column.take(pa.array(part)))
    if fault and len(rows) == 1:
        yield rows.start, fault
    elif fault:
        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]):
            yield from _faulty(column, half)


def _fault(column: pa.Array) -> str | None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        return next((fault for message, fault in _FAULTS if message in str(error)), None)
    return None
