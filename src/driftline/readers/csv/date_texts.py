"""Columns of CSV whose texts look like dates that are written otherwise than ISO 8601 says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product

import pyarrow as pa

from driftline.convert.written_dates import dates_of
from driftline.core.schema.date_pattern import DatePattern, hint_text
from driftline.core.schema.types import DATE, TIMESTAMP_NTZ

Rows = Sequence[Sequence[bytes]]

_LIKE_A_DATE = re.compile(
    rb"[0-9]{1,4}[ ./-](?:[0-9]{1,2}|[A-Z][a-z]{2,8})[ ./-][0-9]{1,4}(?:[ T][0-9]{1,2}:.*)?"
)
# Orders of day and month, each in spellings of which a text has one; where points stand, the day comes first.
_ORDERS = (
    ("dd.MM.yyyy", "d.M.yyyy", "dd/MM/yyyy", "d/M/yyyy", "dd-MM-yyyy", "d-M-yyyy"),
    ("MM/dd/yyyy", "M/d/yyyy", "MM-dd-yyyy", "M-d-yyyy"),
    ("yyyy/MM/dd", "yyyy/M/d", "yyyy.MM.dd", "yyyy-MM-dd"),
    ("dd-MMM-yyyy", "d-MMM-yyyy", "dd MMM yyyy", "d MMM yyyy", "dd MMMM yyyy", "d MMMM yyyy"),
)
_CLOCKS = ("HH:mm", "HH:mm:ss", "H:mm", "H:mm:ss", "HH:mm:ss.SSS", "hh:mm a", "h:mm a", "hh:mm:ss a", "h:mm:ss a")  # fmt: skip
_ISO = ("yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd HH:mm:ss.SSS")  # which need no pattern


def date_hints(first: Rows, more: Callable[[], Rows]) -> Iterator[tuple[int, str]]:
    """Columns whose texts are dates of one pattern, and of no other order of day and month, and its hint.

    ``first``: the cells of some rows, all as wide; ``more``: those of more rows, for a column of which these
    do not tell the order.

    >>> rows = [[b"01.03.2026", b"1/2/2026 9:30", b"2026-03-01"], [b"", b"1/31/2026 17:05", b""]]
    >>> list(date_hints(rows, lambda: rows))
    [(0, "date('dd.MM.yyyy')"), (1, "timestamp('M/d/yyyy H:mm')")]
    """
    for place in range(len(first[0]) if first else 0):
        texts = _texts(first, place)
        if not texts or not _LIKE_A_DATE.fullmatch(texts[0]):
            continue
        found = _patterns(texts)
        if len(found) > 1:
            found = _patterns(_texts(more(), place))
        if len(found) == 1:
            yield place, hint_text(found[0].type, found[0].text)


def _texts(rows: Rows, place: int) -> list[bytes]:
    return [row[place] for row in rows if len(row) > place and row[place]]


def _patterns(texts: Sequence[bytes]) -> list[DatePattern]:
    """The first pattern of each order by which all texts are dates."""
    array = pa.array([text.decode(errors="replace") for text in texts], pa.string())
    found = (_of_order(_candidates(days), array) for days in _ORDERS)
    return [pattern for pattern in found if pattern is not None]


def _of_order(order: Sequence[DatePattern], texts: pa.Array) -> DatePattern | None:
    first = texts[0].as_py()
    likely = (pattern for pattern in order if re.fullmatch(pattern.regex(), first))
    return next((pattern for pattern in likely if not dates_of(texts, pattern).null_count), None)


@cache
def _candidates(days: tuple[str, ...]) -> list[DatePattern]:
    moments = (f"{day} {clock}" for day, clock in product(days, _CLOCKS))
    dates = [DatePattern.of(day, DATE) for day in days if day not in _ISO]
    return dates + [DatePattern.of(moment, TIMESTAMP_NTZ) for moment in moments if moment not in _ISO]
