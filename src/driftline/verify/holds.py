"""Decides if a column's value holds a source's value.

Sources: "exactness" and "Values as text" of the evolution rules (2.1, 2.2, 2.3, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from driftline.core.schema.types import Primitive
from driftline.verify.moments import (
    PER_UNIT,
    FarMoment,
    Moment,
    epoch,
    far_moment,
    micros,
    moment,
    zone_of,
)
from driftline.verify.source_values import (
    Cell,
    Misquoted,
    Single,
    ValueSettings,
    by_pattern,
    declared,
    is_nothing,
    number,
    reads_back,
    single,
    typed,
    written,
)

# Numbers ------------------------------------------------------------------------------------------------

_DECLARED = ("int", "float", "decimal")  # types that a column has only if somebody declared it


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


def _in_binary(stored: bytes, v: Any, settings: ValueSettings) -> bool:
    return stored == (v.encode() if isinstance(v, str) else v)


def _in_other(stored: Any, v: Any, settings: ValueSettings) -> bool:
    """uuid, time: the canonical text, or the value itself."""
    return bool(stored == v or str(stored) == v)


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
}


def holds(type_: Primitive, stored: Any, v: Any, settings: ValueSettings) -> bool:
    """True if ``stored``, read from a column of ``type_``, is the scalar ``v`` exactly, or by a lawful
    conversion.
    """
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
    """True if a variant, read as JSON, equals the value: null and an absent key are one, and so are 1 and
    1.0. ``empty_names``: the empty key's value counts.
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
