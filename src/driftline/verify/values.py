"""Source values in Python, and the test that a column holds one.

JSON's integers are int, its other numbers Decimal, as written; a cell of CSV is a text, and the value that is
written so (2.1 to 2.3 of the evolution rules).
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

from driftline.core.schema.types import Primitive
from driftline.verify.moments import (
    PER_UNIT,
    FarMoment,
    Moment,
    WrittenDate,
    epoch,
    far_moment,
    micros,
    moment,
    zone_of,
)


class Single(float):
    """A number of 4 bytes."""


class Untyped(list[Any]):
    """A list of a typed source that has no type for its values: its schema makes no column."""


class Pairs(dict[Any, Any]):
    """A map of a typed source or a table: its keys are values, an entry without a value is one."""


class Cell(str):
    """A cell of CSV: a text, and the typed value that is written so."""

    __slots__ = ()


class Misquoted(Cell):
    """A cell whose quotes do not end where it ends.

    Readers may take it as it is ``written``, quotes included.
    """

    written: str

    @classmethod
    def of(cls, text: str, written: str) -> Misquoted:
        cell = cls(text)
        cell.written = written
        return cell


class SignedCell(Cell):
    """A cell of a file whose numbers have ``signs`` of their own.

    They are a comma as the decimal sign, and the sign between thousands.
    """

    signs: tuple[bool, str]

    @classmethod
    def of(cls, text: str, signs: tuple[bool, str]) -> SignedCell:
        """The cell with this text."""
        cell = cls(text)
        cell.signs = signs
        return cell


@dataclass(frozen=True, slots=True)
class ValueSettings:
    """The settings of a table that determine how its values are read.

    Attributes:
        unit: its epoch unit, None where it was not set.
        offsets: strings with any offset are instants.
        units: epoch units of key paths, dotted, without steps for elements of lists.
        resolved: fields were folded into a type that somebody chose, so that a text may be what it spells,
            and a number an instant.
        comma: the decimal sign of CSV's numbers is a comma.
        thousands: the sign between their thousands, if there is one.
        empty_names: the empty key is kept.
        patterns: those of texts that are dates, by key path.
        written: those of the field.
        mixed_signs: files differ in the signs of numbers.
    """

    unit: str | None = None
    offsets: bool = False
    units: Mapping[str, str] = field(default_factory=dict)
    resolved: bool = False
    comma: bool = False
    empty_names: bool = False
    thousands: str = ""
    patterns: Mapping[str, tuple[WrittenDate, ...]] = field(default_factory=dict)
    written: tuple[WrittenDate, ...] = ()
    mixed_signs: bool = False

    @property
    def of_paths(self) -> bool:
        """True if some paths have settings of their own."""
        return bool(self.units or self.patterns)

    def at(self, path: str) -> ValueSettings:
        """The settings for the field at a path, with the unit of the longest path that leads to it."""
        prefixes = [p for p in self.units if path == p or path.startswith(f"{p}.")]
        unit = self.units[max(prefixes, key=len)] if prefixes else self.unit
        written = self.patterns.get(path, ())
        return (
            replace(self, unit=unit, units={}, written=written, patterns={}) if prefixes or written else self
        )

    def is_nothing(self, v: Any) -> bool:
        """True if the value carries none."""
        return is_nothing(v, empty_names=self.empty_names)


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PLAIN_FRACTION = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_SMALL = re.compile(r"-?[1-9](?:\.[0-9]+)?[eE]-[0-9]+")
_COMMA = str.maketrans(",.", "._")
_INT_DIGITS = 4300  # Python converts no more


def number(text: str) -> int | Decimal | None:
    """The number that the text is by JSON's grammar, None if it is none, or beyond what Decimal can hold.

    >>> number("-12"), number("1.50"), number("007")
    (-12, Decimal('1.50'), None)
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    if match[1] is None and match[2] is None and len(text) < _INT_DIGITS:
        return int(text)
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


_DECODE = json.JSONDecoder(parse_int=number, parse_float=number).decode


def json_value(text: str) -> Any:
    """The value of a JSON column; the text itself if it is none, as of a column that was text before.

    >>> json_value('{"a": 1.50}'), json_value("hello")
    ({'a': Decimal('1.50')}, 'hello')
    """
    try:
        return _DECODE(text)
    except ValueError:
        return text


def by_pattern(text: str, settings: ValueSettings) -> date | None:
    """The date or moment that a pattern of the field prints as the text; None if there is none."""
    return next((m for pattern in settings.written if (m := pattern.moment(text)) is not None), None)


def written(text: str, settings: ValueSettings) -> int | Decimal | None:
    """The number that a cell of CSV is.

    >>> written("1,50", ValueSettings(comma=True)), written("1.50", ValueSettings(comma=True))
    (Decimal('1.50'), None)
    """
    return number(spelled(text, settings))


def spelled(text: str, settings: ValueSettings) -> str:
    """The text with the number in it as JSON writes it; with `_` for a sign that stands where it must not.

    >>> [spelled(text, ValueSettings(thousands=",")) for text in ("-1,234.50", "12,34", "7.5")]
    ['-1234.50', '12_34', '7.5']
    """
    comma, thousands = settings.comma, settings.thousands
    if isinstance(text, SignedCell):
        comma, thousands = text.signs
    if thousands and thousands in text:
        integer, point, fraction = text.partition("," if comma else ".")
        first, *groups = integer.removeprefix("-").split(thousands)
        digits = [first, *groups, fraction or "0"]
        is_grouped = groups and all(len(group) == 3 for group in groups) and 1 <= len(first) <= 3
        if is_grouped and first[0] != "0" and (fraction or not point) and all(map(_are_digits, digits)):
            text = f"{'-' * integer.startswith('-')}{first}{''.join(groups)}{point}{fraction}"
        else:
            text = text.replace(thousands, "_")
    return text.translate(_COMMA) if comma else text


def _are_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def single(x: float) -> float:
    """The nearest number of 4 bytes."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def base64_text(v: bytes) -> str:
    """The text of bytes in the rest and in quarantine."""
    return base64.b64encode(v).decode()


def reads_back(x: float, written: Decimal) -> bool:
    """True if ``x``, printed at as many digits as were written, 17 at most, is the written number (2.1).

    >>> reads_back(0.1, Decimal("0.10000000000000001")), reads_back(0.1, Decimal("0.1000000000000000001"))
    (True, False)
    """
    digits = min(len(written.as_tuple().digits), 17)
    # Half way between two prints, it may be either: printers differ.
    return math.isfinite(x) and written in (Decimal(f"{x:.{digits - 1}e}"), Decimal(repr(x)))


def declared(cell: Cell, settings: ValueSettings) -> Any:
    """The number that the cell's text is, for a declared column; else the value of `typed`.

    >>> declared(Cell("1.50"), ValueSettings()), declared(Cell("007"), ValueSettings())
    (Decimal('1.50'), '007')
    """
    number_ = written(cell, settings)
    return typed(cell, settings) if number_ is None else number_


def typed(cell: Cell, settings: ValueSettings) -> Any:
    """The value that the cell's text is written as; the text if it is none (2.3).

    >>> [typed(Cell(text), ValueSettings()) for text in ("12", "007", "1.50", "True")]
    [12, '007', Decimal('1.50'), True]
    """
    text = str(cell)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    n = written(cell, settings)
    plain = spelled(cell, settings)
    if isinstance(n, int):
        return n if str(n) == plain else text
    if n is None or not (_PLAIN_FRACTION.fullmatch(plain) or _printed(float(n), plain)):
        return text
    return n


def _printed(x: float, text: str) -> bool:
    """True if the text is ``x`` as Python, or Java, prints it with an exponent.

    Below 0.001 it may be spelled as any program prints it.

    >>> [_printed(float(text), text) for text in ("1.5e-5", "1.5E-05", "1e5", "1e+22", "1.0E10")]
    [True, True, False, True, True]
    """
    if not math.isfinite(x):
        return False
    if abs(x) < 1e-3 and _SMALL.fullmatch(text):
        return reads_back(x, Decimal(text))
    sign, digits, _ = (shortest := Decimal(repr(x))).as_tuple()
    first, fraction = str(digits[0]), "".join(map(str, digits[1:])).rstrip("0") or "0"
    return text in (repr(x), f"{'-' * sign}{first}.{fraction}E{shortest.adjusted()}")


def is_nothing(v: Any, *, empty_names: bool = False) -> bool:
    """null, ``[]``, ``{}`` and what holds only those carry no value (2.4); nor does the empty key (2.5).

    Args:
        empty_names: it does, as in a map, of whose keys it is one.
    """
    if v is None:
        return True
    if isinstance(v, list):
        return all(is_nothing(x, empty_names=empty_names) for x in v)
    if isinstance(v, Pairs):
        return not v
    if isinstance(v, dict):
        return all(is_nothing(x, empty_names=empty_names) for k, x in v.items() if empty_names or k != "")
    return isinstance(v, Cell) and not v


# Numbers ------------------------------------------------------------------------------------------------

# Types that a column has only if somebody declared it
_DECLARED = ("int", "float", "decimal")


def _same_float(x: float, y: float) -> bool:
    return (x == y and math.copysign(1, x) == math.copysign(1, y)) or (x != x and y != y)


def _same_number(x: Any, v: Decimal) -> bool:
    """Compare two numbers. A zero has a sign, unless it is a whole number."""
    return bool(x == v) and (bool(v) or not isinstance(x, Decimal) or x.is_signed() == v.is_signed())


def _in_whole(stored: int, v: Any, settings: ValueSettings) -> bool:
    if isinstance(v, (int, Decimal)):
        return stored == v
    return _is_epoch(stored, v, settings)


def _in_double(stored: float, v: Any, settings: ValueSettings) -> bool:
    if isinstance(v, Decimal):
        return _same_float(stored, float(v)) and reads_back(stored, v)
    if isinstance(v, float):
        return _same_float(stored, v)
    return stored == v if isinstance(v, int) else _is_epoch(stored, v, settings)


def _in_float(stored: float, v: Any, settings: ValueSettings) -> bool:
    if isinstance(v, Decimal):
        return _same_float(stored, single(float(v))) and reads_back(stored, v)
    if isinstance(v, float):
        return _same_float(stored, v)
    return isinstance(v, int) and stored == v


def _in_decimal(stored: Decimal, v: Any, settings: ValueSettings) -> bool:
    if isinstance(v, Decimal) and not v and v.is_signed():
        return False  # a decimal column has no sign of zero
    return isinstance(v, (int, Decimal)) and stored == v


def _in_boolean(stored: bool, v: Any, settings: ValueSettings) -> bool:
    return isinstance(v, bool) and stored is v


# Text ---------------------------------------------------------------------------------------------------


def _in_string(stored: str, v: Any, settings: ValueSettings) -> bool:
    match v:
        case str():
            return stored == v
        case bool():
            return stored == ("true" if v else "false")
        case int():
            return number(stored) == v
        case Decimal():
            return _same_number(number(stored), v)
        case float():
            return _is_text_of(stored, v)
        case date():
            moment_ = moment(stored)
            return type(moment_) is type(v) and moment_ == v
        case FarMoment():
            return far_moment(stored) == v
        case bytes():
            return stored.encode() == v or stored == base64_text(v)  # as which they wait in quarantine
        case _:
            return False


def _is_text_of(text: str, v: float) -> bool:
    if not math.isfinite(v):
        return text == ("NaN" if v != v else "Infinity" if v > 0 else "-Infinity")
    written = number(text)
    if written is None:
        return False
    # `-0` is an integer to `number`, and as such has no sign.
    x = -0.0 if text.startswith("-") and not written else float(written)
    return _same_float(single(x) if isinstance(v, Single) else x, v)


def _in_binary(stored: bytes, v: Any, settings: ValueSettings) -> bool:
    return stored == (v.encode() if isinstance(v, str) else v)


def _in_other(stored: Any, v: Any, settings: ValueSettings) -> bool:
    """uuid, time: the canonical text, or the value itself."""
    return bool(stored == v or str(stored) == v)


def _in_json(stored: str, v: Any, settings: ValueSettings) -> bool:
    return same_json(json_value(stored), v, empty_names=settings.empty_names)


def _in_variant(stored: Any, v: Any, settings: ValueSettings) -> bool:
    return same_json(stored, v, empty_names=settings.empty_names)


# Dates and instants -------------------------------------------------------------------------------------


def moment_of(v: Any, settings: ValueSettings) -> Moment | None:
    """A typed date or timestamp, or the one that a string is."""
    if isinstance(v, str):
        return by_pattern(str(v), settings) or moment(str(v), settings.offsets)
    return v if isinstance(v, Moment) else None


def _is_epoch(stored: float, v: Any, settings: ValueSettings) -> bool:
    m = moment_of(v, settings)
    return m is not None and stored == epoch(m, settings.unit)


def _in_date(stored: Moment, v: Any, settings: ValueSettings) -> bool:
    m = moment_of(v, settings)
    return not isinstance(m, datetime) and stored == m


def _in_timestamp(stored: Moment, v: Any, settings: ValueSettings) -> bool:
    m = moment_of(v, settings)
    return m is not None and zone_of(m) in (None, zone_of(stored)) and micros(m) == micros(stored)


def routed(type_: Primitive, stored: Any, v: Any, settings: ValueSettings) -> bool:
    """True if a timestamp column holds a long as an instant: lawful, but no proof of it (seed rule 10)."""
    if isinstance(v, Cell):
        v = written(v, settings)
    if type_.name not in ("timestamp", "timestamp_ntz") or not isinstance(v, int) or isinstance(v, bool):
        return False
    size = abs(v)
    unit = settings.unit or (
        "s" if size < 10**11 else "ms" if size < 10**14 else "us" if size < 10**17 else "ns"
    )
    return micros(stored) == (v // 1000 if unit == "ns" else v * PER_UNIT[unit])


# All of them --------------------------------------------------------------------------------------------

_IN: dict[str, Callable[[Any, Any, ValueSettings], bool]] = {
    "boolean": _in_boolean,
    "int": _in_whole,
    "long": _in_whole,
    "float": _in_float,
    "double": _in_double,
    "decimal": _in_decimal,
    "string": _in_string,
    "date": _in_date,
    "timestamp": _in_timestamp,
    "timestamp_ntz": _in_timestamp,
    "binary": _in_binary,
    "fixed": _in_binary,
    "variant": _in_variant,
    # Those that only DuckDB makes.
    **dict.fromkeys(("int8", "int16", "uint8", "uint16", "uint32", "uint64"), _in_whole),
    **dict.fromkeys(("timestamp_s", "timestamp_ms"), _in_timestamp),
    "json": _in_json,
}


def holds(type_: Primitive, stored: Any, v: Any, settings: ValueSettings) -> bool:
    """True if a column holds the scalar ``v`` exactly, or by a lawful conversion.

    Args:
        stored: what was read of the column, which is of ``type_``.
    """
    if settings.resolved and isinstance(v, SignedCell) and holds(type_, stored, Cell(v), settings):
        return True  # read by the table's signs, as `resolve` reads it
    if isinstance(v, Cell) and not (type_.name == "string" and stored == v):
        if isinstance(v, Misquoted) and type_.name == "string" and stored == v.written:
            return True
        meant = by_pattern(str(v), settings)
        v = meant or (declared(v, settings) if type_.name in _DECLARED else typed(v, settings))
        if type_.name == "string":  # as which the typed value prints
            v = moment_of(v, settings) or v
    fits = _IN.get(type_.name, _in_other)(stored, v, settings)
    return fits or (
        settings.resolved
        and any(rule(type_, stored, v, settings) for rule in (_spells, routed, _is_midnight, _prints))
    )


def _spells(type_: Primitive, stored: Any, v: Any, settings: ValueSettings) -> bool:
    """True if a text spells a column's number or boolean."""
    if not isinstance(v, str):
        return False
    meant = v == "true" if v in ("true", "false") else number(v)
    return meant is not None and _IN.get(type_.name, _in_other)(stored, meant, settings)


def _prints(type_: Primitive, stored: Any, v: Any, settings: ValueSettings) -> bool:
    """True if a text is the number that a column of numbers had for a boolean or an instant."""
    printed = number(stored) if type_.name == "string" and isinstance(stored, str) else None
    return isinstance(printed, int) and isinstance(v, bool | str) and _in_whole(printed, v, settings)


def _is_midnight(type_: Primitive, stored: Any, v: Any, settings: ValueSettings) -> bool:
    """True if a column's date stands for the instant, or zoneless timestamp, at which it begins."""
    m = moment_of(v, settings)
    return type_.name == "date" and m is not None and zone_of(m) is not None and micros(m) == micros(stored)


def same_json(stored: Any, v: Any, *, empty_names: bool = False) -> bool:
    """True if a variant, read as JSON, equals the value.

    Null and an absent key are one, and so are 1 and 1.0. ``empty_names``: the empty key's value counts.
    """
    same = partial(same_json, empty_names=empty_names)
    if is_nothing(v, empty_names=empty_names):
        return is_nothing(stored, empty_names=empty_names)
    if isinstance(v, dict):
        return isinstance(stored, dict) and all(
            same(stored.get(k), v.get(k)) for k in {*v, *stored} if empty_names or k != ""
        )
    if isinstance(v, list):
        return isinstance(stored, list) and len(stored) == len(v) and all(map(same, stored, v))
    if isinstance(v, bool) or isinstance(stored, bool):
        return stored is v
    return bool(stored == v)


def has_value(stored: Any) -> bool:
    """True if a column's value is more than null, at any depth."""
    if isinstance(stored, dict):
        return any(map(has_value, stored.values()))
    return any(map(has_value, stored)) if isinstance(stored, list) else stored is not None
