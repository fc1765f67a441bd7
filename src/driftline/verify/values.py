"""Single values: what a source's values are in Python, and which of them a column's value holds.

Sources: "exactness" and "Values as text" of the evolution rules (2.1, 2.2, 2.3, section 3).
Values of a source are plain Python: JSON's integers are int, its other numbers Decimal, digits as written.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from driftline.core.schema.types import Primitive
from driftline.verify.moments import PER_UNIT, Moment, epoch, micros, moment


class Single(float):
    """A number of 4 bytes."""


class Pairs(dict[Any, Any]):
    """A map of a typed source or a table: its keys are values, an entry without a value is one."""


class Cell(str):
    """A cell of CSV: a text, and the typed value whose print it is."""

    __slots__ = ()


class Misquoted(Cell):
    """A cell whose quotes do not end where it ends: readers may take
    it as it is ``written``, quotes and all.
    """

    written: str

    @classmethod
    def of(cls, text: str, written: str) -> Misquoted:
        cell = cls(text)
        cell.written = written
        return cell


@dataclass(frozen=True, slots=True)
class Reading:
    """The settings of a table that say how its values are read.

    ``unit``: its epoch unit, None where it was not set. ``offsets``: strings with any offset are
    instants. ``units``: epoch units of key paths, dotted, without steps for elements of lists.
    ``resolved``: fields were folded into a type that somebody chose, so that a text may stand as
    what it spells, and a number as an instant. ``comma``: stands in CSV's numbers for the point.
    """

    unit: str | None = None
    offsets: bool = False
    units: Mapping[str, str] = field(default_factory=dict)
    resolved: bool = False
    comma: bool = False

    def at(self, path: str) -> Reading:
        """How the field at a path is read: by the unit of the longest path that leads to it."""
        above = [p for p in self.units if path == p or path.startswith(f"{p}.")]
        unit = self.units[max(above, key=len)] if above else None
        return replace(self, unit=unit, units={}) if above else self


# Numbers ------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PLAIN_FRACTION = re.compile(r"-?(?:0|[1-9][0-9]*)\.(?:0|[0-9]*[1-9])")
_DECLARED = ("int", "float", "decimal")  # types that a column has only if somebody declared it
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


def written(text: str, how: Reading) -> int | Decimal | None:
    """The number that a cell of CSV is.

    >>> written("1,50", Reading(comma=True)), written("1.50", Reading(comma=True))
    (Decimal('1.50'), None)
    """
    return number(text.translate(_COMMA) if how.comma else text)


def single(x: float) -> float:
    """The nearest number of 4 bytes."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def reads_back(x: float, written: Decimal) -> bool:
    """Whether ``x``, printed at as many digits as were written, 17 at most, is the written number (2.1).

    >>> reads_back(0.1, Decimal("0.10000000000000001")), reads_back(0.1, Decimal("0.1000000000000000001"))
    (True, False)
    """
    digits = min(len(written.as_tuple().digits), 17)
    # Half way between two prints, it may be either: printers differ.
    return math.isfinite(x) and written in (Decimal(f"{x:.{digits - 1}e}"), Decimal(repr(x)))


def _same_float(x: float, y: float) -> bool:
    return (x == y and math.copysign(1, x) == math.copysign(1, y)) or (x != x and y != y)


def _same_number(x: Any, v: Decimal) -> bool:
    """A zero has its sign, where it is no whole number."""
    return bool(x == v) and (bool(v) or not isinstance(x, Decimal) or x.is_signed() == v.is_signed())


def _in_whole(stored: int, v: Any, how: Reading) -> bool:
    if isinstance(v, (int, Decimal)):
        return stored == v
    return _is_epoch(stored, v, how)


def _in_double(stored: float, v: Any, how: Reading) -> bool:
    if isinstance(v, Decimal):
        return _same_float(stored, float(v)) and reads_back(stored, v)
    if isinstance(v, float):
        return _same_float(stored, v)
    return stored == v if isinstance(v, int) else _is_epoch(stored, v, how)


def _in_float(stored: float, v: Any, how: Reading) -> bool:
    if isinstance(v, Decimal):
        return _same_float(stored, single(float(v))) and reads_back(stored, v)
    if isinstance(v, float):
        return _same_float(stored, v)
    return isinstance(v, int) and stored == v


def _in_decimal(stored: Decimal, v: Any, how: Reading) -> bool:
    return isinstance(v, (int, Decimal)) and stored == v


def _in_boolean(stored: bool, v: Any, how: Reading) -> bool:
    return isinstance(v, bool) and stored is v


# Text ---------------------------------------------------------------------------------------------------


def _in_string(stored: str, v: Any, how: Reading) -> bool:
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
        case bytes():
            return stored.encode() == v
        case _:
            return False


def _is_text_of(text: str, v: float) -> bool:
    if not math.isfinite(v):
        return text == ("NaN" if v != v else "Infinity" if v > 0 else "-Infinity")
    written = number(text)
    if written is None:
        return False
    x = -0.0 if text.startswith("-") and not written else float(written)
    return _same_float(single(x) if isinstance(v, Single) else x, v)


def _in_binary(stored: bytes, v: Any, how: Reading) -> bool:
    return stored == (v.encode() if isinstance(v, str) else v)


def _in_other(stored: Any, v: Any, how: Reading) -> bool:
    """uuid, time: the canonical text, or the value itself."""
    return bool(stored == v or str(stored) == v)


def _in_variant(stored: Any, v: Any, how: Reading) -> bool:
    return same_json(stored, v)


# Dates and instants -------------------------------------------------------------------------------------


def moment_of(v: Any, how: Reading) -> Moment | None:
    """A typed date or timestamp, or the one that a string is."""
    if isinstance(v, str):
        return moment(str(v), how.offsets)
    return v if isinstance(v, date) else None


def _is_epoch(stored: float, v: Any, how: Reading) -> bool:
    m = moment_of(v, how)
    return m is not None and stored == epoch(m, how.unit)


def _in_date(stored: date, v: Any, how: Reading) -> bool:
    m = moment_of(v, how)
    return not isinstance(m, datetime) and stored == m


def _in_timestamp(stored: datetime, v: Any, how: Reading) -> bool:
    m = moment_of(v, how)
    return m is not None and _at(m, stored) == stored


def _at(m: Moment, like: datetime) -> datetime:
    """A date at midnight, with or without a zone as in ``like``."""
    return m if isinstance(m, datetime) else datetime(m.year, m.month, m.day, tzinfo=like.tzinfo)


def routed(type_: Primitive, stored: Any, v: Any, how: Reading) -> bool:
    """Whether a timestamp column holds a long as an instant: lawful, but no proof of it (seed rule 10)."""
    if isinstance(v, Cell):
        v = written(v, how)
    if type_.name not in ("timestamp", "timestamp_ntz") or not isinstance(v, int) or isinstance(v, bool):
        return False
    size = abs(v)
    unit = how.unit or ("s" if size < 10**11 else "ms" if size < 10**14 else "us" if size < 10**17 else "ns")
    return micros(stored) == (v // 1000 if unit == "ns" else v * PER_UNIT[unit])


# All of them --------------------------------------------------------------------------------------------

_IN: dict[str, Callable[[Any, Any, Reading], bool]] = {
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
}


def holds(type_: Primitive, stored: Any, v: Any, how: Reading) -> bool:
    """Whether ``stored``, read from a column of ``type_``, is the scalar
    ``v`` exactly, or by a lawful conversion.
    """
    if isinstance(v, Cell) and not (type_.name == "string" and stored == v):
        if isinstance(v, Misquoted) and type_.name == "string" and stored == v.written:
            return True
        v = _declared(v, how) if type_.name in _DECLARED else _typed(v, how)
    fits = _IN.get(type_.name, _in_other)(stored, v, how)
    return fits or (
        how.resolved and any(rule(type_, stored, v, how) for rule in (_spells, routed, _is_midnight))
    )


def _spells(type_: Primitive, stored: Any, v: Any, how: Reading) -> bool:
    """Whether a text is what a column's number or boolean is."""
    if not isinstance(v, str):
        return False
    meant = v == "true" if v in ("true", "false") else number(v)
    return meant is not None and _IN.get(type_.name, _in_other)(stored, meant, how)


def _is_midnight(type_: Primitive, stored: Any, v: Any, how: Reading) -> bool:
    """Whether a column's date stands for an instant, or a zoneless timestamp, at which it begins."""
    m = moment_of(v, how)
    return type_.name == "date" and isinstance(m, datetime) and _at(stored, m) == m


def _declared(cell: Cell, how: Reading) -> Any:
    """The number that the cell's text is, for a column that somebody declared; else what `_typed` says.

    >>> _declared(Cell("1.50"), Reading()), _declared(Cell("007"), Reading())
    (Decimal('1.50'), '007')
    """
    number_ = written(cell, how)
    return _typed(cell, how) if number_ is None else number_


def _typed(cell: Cell, how: Reading) -> Any:
    """The value that prints as the cell's text; the text where none does (2.3).

    >>> [_typed(Cell(text), Reading()) for text in ("12", "007", "1.50", "true")]
    [12, '007', '1.50', True]
    """
    text = str(cell)
    if text in ("true", "false"):
        return text == "true"
    n = written(text, how)
    if isinstance(n, int):
        return n if str(n) == text else text
    spelled = text.translate(_COMMA) if how.comma else text
    if n is None or not (_PLAIN_FRACTION.fullmatch(spelled) or _printed(float(n), spelled)):
        return text
    return n


def _printed(x: float, text: str) -> bool:
    """Whether the text is how Python, or Java, prints ``x`` with an exponent."""
    if not math.isfinite(x):
        return False
    sign, digits, _ = (shortest := Decimal(repr(x))).as_tuple()
    first, rest = str(digits[0]), "".join(map(str, digits[1:])).rstrip("0") or "0"
    return text in (repr(x), f"{'-' * sign}{first}.{rest}E{shortest.adjusted()}")


def same_json(stored: Any, v: Any) -> bool:
    """Whether a variant, read as JSON, is the value: null and an absent key are one, and so are 1 and 1.0."""
    if is_nothing(v):
        return is_nothing(stored)
    if isinstance(v, dict):
        return isinstance(stored, dict) and all(
            same_json(stored.get(k), v.get(k)) for k in {*v, *stored} if k != ""
        )
    if isinstance(v, list):
        return isinstance(stored, list) and len(stored) == len(v) and all(map(same_json, stored, v))
    if isinstance(v, bool) or isinstance(stored, bool):
        return stored is v
    return bool(stored == v)


def has_value(stored: Any) -> bool:
    """Whether what a column holds is more than null, at any depth."""
    if isinstance(stored, dict):
        return any(map(has_value, stored.values()))
    return any(map(has_value, stored)) if isinstance(stored, list) else stored is not None


def is_nothing(v: Any, *, in_map: bool = False) -> bool:
    """null, ``[]``, ``{}`` and what holds only those carry no value (2.4); nor does the empty key (2.5).

    ``in_map``: a map has it, of whose keys the empty one is one.
    """
    if v is None:
        return True
    if isinstance(v, list):
        return all(is_nothing(x, in_map=in_map) for x in v)
    if isinstance(v, Pairs):
        return not v
    if isinstance(v, dict):
        return all(is_nothing(x, in_map=in_map) for k, x in v.items() if in_map or k != "")
    return isinstance(v, Cell) and not v
