"""Texts that are values by a spelling that a person states, as SQL: dates by a pattern, signs in numbers."""

from __future__ import annotations

from collections.abc import Iterable

from driftline.core.planning.dialect import POINT, Signs
from driftline.core.schema.date_pattern import MONTHS, SHORT, WEEKDAYS, DatePattern
from driftline.core.schema.types import DATE, Primitive
from driftline.sql.casts import convert, from_text
from driftline.sql.quoting import bind, literal, null


def date_of(x: str, pattern: DatePattern, target: Primitive) -> str:
    """The date or timestamp of type ``target`` that the pattern prints as the text ``x``; null if there is
    none.
    """
    regex = literal(rf"\A{pattern.regex()}\z")

    def read(v: str) -> str:
        """SQL for the text that the variable ``v`` has."""
        parts = {
            part[0]: f"regexp_extract({v}, {regex}, {number})" for number, part in enumerate(pattern.parts, 1)
        }
        moment = from_text(_as_iso(parts, pattern), pattern.type, "on")
        if weekday := pattern.part("E"):
            names, written = _names(WEEKDAYS, weekday), parts["E"]
            moment = bind(
                moment, lambda m: f"if(element_at({names}, weekday({m}) + 1) = {written}, {m}, null)"
            )
        return f"if({v} rlike {regex}, {convert(moment, pattern.type, target, None)}, {null(target)})"

    return bind(x, read)


def _as_iso(parts: dict[str, str], pattern: DatePattern) -> str:
    year, month, day = (parts[pattern.part(letters)[0]] for letters in ("yu", "M", "d"))
    if len(pattern.part("M")) >= SHORT:
        month = f"cast(array_position({_names(MONTHS, pattern.part('M'))}, {month}) as string)"
    iso = f"{year}, '-', {_two(month)}, '-', {_two(day)}"
    if pattern.type == DATE:
        return f"concat({iso})"
    minute, second = (_two(parts[letter]) if letter in parts else "'00'" for letter in "ms")
    clock = f"{_hour(parts)}, ':', {minute}, ':', {second}"
    fraction = f", '.', {parts['S']}" if "S" in parts else ""
    return f"concat({iso}, 'T', {clock}{fraction})"


def _hour(parts: dict[str, str]) -> str:
    if "H" in parts:
        return _two(parts["H"])
    return _two(f"cast(cast({parts['h']} as int) % 12 + if({parts['a']} = 'PM', 12, 0) as string)")


def _two(digits: str) -> str:
    return f"lpad({digits}, 2, '0')"


def _names(names: Iterable[str], letters: str) -> str:
    """The names that these letters write, as an array."""
    written = (name[:SHORT] if len(letters) <= SHORT else name for name in names)
    return f"array({', '.join(map(literal, written))})"


def as_json(x: str, signs: Signs) -> str:
    """The number of these signs that the text ``x`` is, as JSON spells it; another text with such a sign is
    no number.

    >>> as_json("c1", Signs(","))
    "replace(replace(c1, '.', '_'), ',', '.')"
    """
    decimal, thousands = map(literal, signs)
    grouped = literal(rf"\A{signs.groups}\z") if signs.thousands else ""

    def without_groups(v: str) -> str:
        """SQL for the text that the variable ``v`` has, without the signs between its thousands."""
        return f"replace({v}, {thousands}, if({v} rlike {grouped}, '', '_'))"

    plain = bind(x, without_groups) if signs.thousands else x
    return plain if signs.decimal == POINT else f"replace(replace({plain}, '.', '_'), {decimal}, '.')"
