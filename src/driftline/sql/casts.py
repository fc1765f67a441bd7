"""SQL casts from one type to another, or from a declared text form: exact, or null.

The pairs are those of `core.planning.conversions.FITS` and ``ROUTES_TOO``, and of the `widen` policy; the
ways are section 3 of the rules. Nothing here depends on the session's time zone.
"""

from __future__ import annotations

from collections.abc import Iterable

from driftline.core.schema.date_pattern import MONTHS, SHORT, WEEKDAYS, DatePattern
from driftline.core.schema.types import DATE, LONG, TIMESTAMP, TIMESTAMP_NTZ, Primitive
from driftline.core.settings.csv import POINT, Signs
from driftline.core.values import (
    DATE_PATTERN,
    EXACT,
    OFFSET_PATTERN,
    TIMESTAMP_NTZ_PATTERN,
    TIMESTAMP_PATTERN,
    UUID_PATTERN,
)
from driftline.sql.quoting import bind, is_utf8, literal, null, spark_type

_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_FIRST_YEAR, _LAST_YEAR = -62_135_596_800_000_000, 253_402_300_799_999_999


def convert(x: str, s: Primitive, t: Primitive, unit: str | None) -> str:
    """Convert ``x`` of type ``s`` to ``t``, which it fits; null if the value is not exact there.

    ``unit`` is the epoch unit, None where it was not set.
    """
    if s == t or (s.name, t.name) in (("fixed", "binary"), ("uuid", "string"), ("time", "string")):
        return x
    if t.name == "string":
        return _text(x, s)
    match s.name, t.name:
        case "string", "binary":
            return f"cast({x} as binary)"
        case "int" | "long", "float":
            exact = "cast(cast({0} as float) as decimal(20,0)) = cast({0} as decimal(20,0))"
            return bind(x, lambda v: f"if({exact.format(v)}, cast({v} as float), null)")
        case "boolean", "decimal":
            return f"cast(cast({x} as int) as {spark_type(t)})"
        case "long", "double":
            return bind(x, lambda v: f"if({v} between -{EXACT} and {EXACT}, cast({v} as double), null)")
        case "long", "timestamp" | "timestamp_ntz":
            return _instant(x, t, unit)
        case "date" | "timestamp" | "timestamp_ntz", "long" | "double":
            return _epoch(_micros(x, s), t, unit or "ms")
        case "date", "timestamp":
            return f"timestamp_micros({_micros(x, s)})"
        case _:
            return f"try_cast({x} as {spark_type(t)})"


def _text(x: str, s: Primitive) -> str:
    match s.name:
        case "binary":
            return bind(f"cast({x} as string)", lambda v: f"if({is_utf8(v)}, {v}, null)")
        case "timestamp":
            # The text of a zoneless timestamp knows no session time zone.
            return f"concat(replace(cast({_zoneless(_micros(x, s))} as string), ' ', 'T'), 'Z')"
        case "timestamp_ntz":
            return f"replace(cast({x} as string), ' ', 'T')"
        case "decimal" if s.args[1] > 0:
            # Not a cast: without Spark's ANSI mode that writes 1E-10.
            digits = f"replace(format_number({x}, {s.args[1]}), ',', '')"
            return f"regexp_replace({digits}, '\\\\.?0+$', '')"
        case "float" | "double":
            # A whole number as the integer that JSON may have sent; not -0.0, for -0 would read as 0.
            # So a 7 is the same text before and after the column became text. Beyond 2^53 no integer became
            # such a double.
            is_integer = "{0} = try_cast({0} as bigint) and abs({0}) <= {1} and cast({0} as string) <> '-0.0'"
            integer = "cast(cast({0} as bigint) as string)"
            choice = f"if({is_integer}, {integer}, cast({{0}} as string))"
            return bind(x, lambda v: choice.format(v, EXACT))
        case _:
            return f"cast({x} as string)"


def _zoneless(micros: str) -> str:
    return f"(timestamp_ntz'1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, {micros} / 1000000BD))"


def _micros(x: str, s: Primitive) -> str:
    match s.name:
        case "date":
            return f"(unix_date({x}) * 86400000000)"
        case "timestamp":
            return f"unix_micros({x})"
        case _:
            return f"unix_micros(cast(concat(cast({x} as string), 'Z') as timestamp))"


def _epoch(micros: str, t: Primitive, unit: str) -> str:
    """Microseconds as a number of the unit, if whole."""
    if unit == "ns":
        count = f"try_multiply({micros}, 1000L)"
    else:
        count = bind(micros, lambda m: f"if({m} % {_MICROS[unit]} = 0, {m} div {_MICROS[unit]}, null)")
    return count if t == LONG else convert(count, LONG, t, unit)


def _instant(x: str, t: Primitive, unit: str | None) -> str:
    """A number as an instant: by its unit, else by its magnitude (seed
    rule 10); null outside years 1 to 9999.
    """

    def micros(v: str) -> str:
        """SQL of the microseconds since 1970 that the integer ``v`` is, by the unit or by its size."""
        by = {
            "s": f"try_multiply({v}, 1000000L)",
            "ms": f"try_multiply({v}, 1000L)",
            "us": v,
            "ns": f"cast(floor({v} / 1000BD) as bigint)",
        }
        if unit is not None:
            return by[unit]
        size = f"abs(cast({v} as decimal(20,0)))"
        return (
            f"case when {size} < 100000000000 then {by['s']} when {size} < 100000000000000 then {by['ms']} "
            f"when {size} < 100000000000000000 then {by['us']} else {by['ns']} end"
        )

    instant = "timestamp_micros({})".format if t == TIMESTAMP else _zoneless
    return bind(
        bind(x, micros), lambda m: f"if({m} between {_FIRST_YEAR} and {_LAST_YEAR}, {instant(m)}, null)"
    )


def from_text(x: str, s: Primitive, mode: str) -> str:
    """The date-like or uuid that a JSON string is, null if it is none (rules 2.2).

    ``mode``: the dates setting.
    """
    if s.name == "uuid":
        return f"if({x} rlike {literal(_whole(UUID_PATTERN))}, {x}, null)"
    pattern = {DATE: DATE_PATTERN, TIMESTAMP: TIMESTAMP_PATTERN, TIMESTAMP_NTZ: TIMESTAMP_NTZ_PATTERN}[s]
    if s == TIMESTAMP and mode == "instant":
        pattern = OFFSET_PATTERN
    return f"if({x} rlike {literal(_whole(pattern))}, try_cast({x} as {spark_type(s)}), null)"


def _whole(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


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
