"""Texts that are dates or timestamps by a pattern, read as whole columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.types import arrow_type
from driftline.core.schema.date_pattern import MONTHS, SHORT, WEEKDAYS, DatePattern
from driftline.core.schema.types import DATE
from driftline.core.values import DATE_PATTERN, TIMESTAMP_NTZ_PATTERN


def dates_of(texts: pa.Array, pattern: DatePattern) -> pa.Array:
    """Each text as the date or timestamp that the pattern prints so; null if there is none.

    >>> from driftline.core.schema.date_pattern import parse_hint
    >>> pattern = parse_hint("date('d MMM yyyy')").pattern
    >>> dates_of(pa.array(["1 Mar 2026", "30 Feb 2026", "01 Mar 2026", None]), pattern).to_pylist()
    [datetime.date(2026, 3, 1), None, None, None]
    """
    parts = pc.extract_regex(texts, pattern=rf"\A{pattern.regex(named=True)}\z")
    moments, weekday = _as_iso(parts, pattern), pattern.part("E")
    exact = DATE_PATTERN if pattern.type == DATE else TIMESTAMP_NTZ_PATTERN
    moments = _where(pc.match_substring_regex(moments, rf"\A(?:{exact})\z"), moments)
    moments = moments.cast(arrow_type(pattern.type))
    if weekday:
        written = pc.index_in(_part(parts, weekday), _named(WEEKDAYS, weekday))
        moments = _where(pc.equal(written.cast(pa.int64()), pc.day_of_week(moments)), moments)
    return moments


def _as_iso(parts: pa.Array, pattern: DatePattern) -> pa.Array:
    """The parts of texts as ISO 8601 has them; null for a text that is not of the pattern."""
    year, month, day = (_part(parts, pattern.part(letters)) for letters in ("yu", "M", "d"))
    if len(pattern.part("M")) >= SHORT:
        month = _number(pc.index_in(month, _named(MONTHS, pattern.part("M"))), 1)
    iso = pc.binary_join_element_wise(year, _two(month), _two(day), "-")
    if pattern.type == DATE:
        return iso
    minute, second = (
        _two(_part(parts, pattern.part(letter))) if pattern.part(letter) else "00" for letter in "ms"
    )
    clock = pc.binary_join_element_wise(_hour(parts, pattern), minute, second, ":")
    if fraction := pattern.part("S"):
        clock = pc.binary_join_element_wise(clock, _part(parts, fraction), ".")
    return pc.binary_join_element_wise(iso, clock, "T")


def _hour(parts: pa.Array, pattern: DatePattern) -> pa.Array:
    hour = _part(parts, pattern.part("Hh"))
    if not pattern.part("a"):
        return _two(hour)
    afternoon = pc.equal(_part(parts, "a"), "PM").cast(pa.int32())
    of_twelve = pc.if_else(pc.equal(_two(hour), "12"), 0, hour.cast(pa.int32()))
    return _two(_number(pc.add(of_twelve, pc.multiply(afternoon, 12)), 0))


def _part(parts: pa.Array, letters: str) -> pa.Array:
    return pc.struct_field(parts, letters[0])


def _named(names: Sequence[str], letters: str) -> pa.Array:
    """The names that these letters write."""
    return pa.array([name[:SHORT] if len(letters) <= SHORT else name for name in names])


def _number(values: pa.Array, plus: int) -> pa.Array:
    return pc.add(values, plus).cast(pa.string())


def _two(digits: pa.Array) -> pa.Array:
    return pc.utf8_lpad(digits, 2, "0")


def _where(flags: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(flags, values, pa.scalar(None, values.type))
