"""CSV columns whose dates are written by a pattern: that a person states, or that their texts look like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import TypeAlias

import pyarrow as pa

from driftline.convert.kernels import dates_of
from driftline.core.planning.plan import Settings
from driftline.core.schema.date_pattern import DatePattern, hint_text
from driftline.core.schema.types import DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, Struct
from driftline.core.settings.fields import Contract, toml_line
from driftline.observe.csv_types import declared_of
from driftline.observe.offsets import instant_line

Patterns: TypeAlias = Mapping[str, DatePattern]  # by the column's name
Cells: TypeAlias = Sequence[Sequence[bytes]]  # of rows

_INSTANTS = frozenset((TIMESTAMP,))

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
_WITH_OFFSETS = "instant"  # in place of a pattern: texts that the setting `dates` takes
_ISO = ("yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd HH:mm:ss.SSS")  # which need no pattern


def patterns_of(contract: Contract) -> Patterns:
    """The patterns of the fields of a record."""
    return {key: field.pattern for key, field in contract.fields.items() if field.pattern is not None}


def date_hints(first: Cells, more: Callable[[], Cells]) -> Iterator[tuple[int, str]]:
    """Columns whose texts are dates of one pattern, and of no other order of day and month, and its hint; or
    instants with offsets.

    ``first``: the cells of some rows, all as wide; ``more``: those of more rows, for a column of which these
    do not tell the order.

    >>> rows = [[b"01.03.2026", b"1/2/2026 9:30", b"2026-03-01"], [b"", b"1/31/2026 17:05", b""]]
    >>> list(date_hints(rows, lambda: rows))
    [(0, "date('dd.MM.yyyy')"), (1, "timestamp('M/d/yyyy H:mm')")]
    >>> list(date_hints([[b"2026-03-01 12:00:00+02"]], list))
    [(0, 'instant')]
    """
    for place in range(len(first[0]) if first else 0):
        texts = _texts(first, place)
        if not texts or not _LIKE_A_DATE.fullmatch(texts[0]):
            continue
        if declared_of(_strings(texts), _INSTANTS):
            yield place, _WITH_OFFSETS
            continue
        patterns = _patterns(texts)
        if len(patterns) > 1:
            patterns = _patterns(_texts(more(), place))
        if len(patterns) == 1:
            yield place, hint_text(patterns[0].type, patterns[0].text)


def hint_lines(dates: Sequence[tuple[int, str]], struct: Struct, settings: Settings) -> Iterator[str]:
    """The hints as settings to paste, of text columns for which nobody has declared a type."""
    instants = []
    for place, hint in dates:
        f = struct.fields[place]
        if f.type != STRING or settings.contract.of(f.name).hint is not None:
            continue
        if hint == _WITH_OFFSETS:
            instants.append(f.name)
        else:
            why = "its texts are dates; for a column that is there: resolve --as"
            yield toml_line("hints", (f.name,), hint, why)
    if instants and settings.dates == "on":
        yield instant_line(f"in {', '.join(instants)}")


def with_offsets(dates: Iterable[tuple[int, str]], struct: Struct) -> Iterator[str]:
    """The text columns whose texts are instants with offsets. ``dates``: as `date_hints` gives them."""
    for place, hint in dates:
        if hint == _WITH_OFFSETS and struct.fields[place].type == STRING:
            yield struct.fields[place].name


def _texts(rows: Cells, place: int) -> list[bytes]:
    return [row[place] for row in rows if len(row) > place and row[place]]


def _patterns(texts: Sequence[bytes]) -> list[DatePattern]:
    """The first pattern of each order by which all texts are dates."""
    array = _strings(texts)
    patterns = (_of_order(_candidates(days), array) for days in _ORDERS)
    return [pattern for pattern in patterns if pattern is not None]


def _strings(texts: Sequence[bytes]) -> pa.Array:
    return pa.array([text.decode(errors="replace") for text in texts], pa.string())


def _of_order(order: Sequence[DatePattern], texts: pa.Array) -> DatePattern | None:
    first = texts[0].as_py()
    likely = (pattern for pattern in order if re.fullmatch(pattern.regex(), first))
    return next((pattern for pattern in likely if not dates_of(texts, pattern).null_count), None)


@cache
def _candidates(days: tuple[str, ...]) -> list[DatePattern]:
    moments = (f"{day} {clock}" for day, clock in product(days, _CLOCKS))
    dates = [DatePattern.of(day, DATE) for day in days if day not in _ISO]
    return dates + [DatePattern.of(moment, TIMESTAMP_NTZ) for moment in moments if moment not in _ISO]
