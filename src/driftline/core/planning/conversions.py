"""Conversions between types: the tables of the evolution rules as literal data, and their join.

Source: the reference table of the Upsolver rules ("Calculating the Widest Type for Primitives"), with the
types it does not name. `fits` compares types; `exact` considers the observed values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from driftline.core.schema.types import (
    BOUNDS,
    DOUBLE,
    DUCKDB_ALONE,
    FLOAT,
    FRACTIONS,
    JSON,
    LONG,
    STRING,
    UNWRITABLE,
    VARIANT,
    WIDER,
    Primitive,
    decimal,
)
from driftline.core.settings.fields import EPOCH_DIGITS

if TYPE_CHECKING:
    from driftline.core.planning.shape import Profile

# The types that each type fits, itself aside.
FITS: dict[str, tuple[str, ...]] = {
    "boolean": ("int", "long", "float", "double", "decimal", "string"),
    "int": ("long", "double", "decimal", "string"),
    "long": ("double", "decimal", "string"),
    "float": ("double", "string"),
    "double": ("string",),
    "decimal": ("decimal", "string"),
    "date": ("timestamp", "timestamp_ntz", "long", "double", "string"),
    "timestamp": ("long", "double", "string"),
    "timestamp_ntz": ("long", "double", "string"),
    "time": ("string",),
    "uuid": ("string",),
    "fixed": ("binary",),
    "string": (),
    "binary": (),
    "variant": (),
}

# Routing only, never a fit (seed rule 10).
ROUTES_TOO: dict[str, tuple[str, ...]] = {"long": ("timestamp", "timestamp_ntz")}

# Digits before the point that a decimal needs to hold every value of the type.
INTEGER_DIGITS = {"boolean": 1, "int": 10, "long": 19}

# Widened in place, because the format does it in metadata and no value changes.
IN_PLACE: tuple[tuple[str, str], ...] = (("int", "long"), ("float", "double"), ("decimal", "decimal"))

NUMBERS = ("int", "long", "float", "double", "decimal")
# Of these, those in which a number of JSON may not be exact.
NARROW = ("int", "float", "decimal")
OUT_OF_JOINS = {"binary", "fixed", "variant", "unknown", "json"} | DUCKDB_ALONE


def fits(t: Primitive, u: Primitive) -> bool:
    """True if every value of ``t`` is one of ``u``, apart from the exactness of single values.

    >>> from driftline.core.schema.types import INT
    >>> fits(LONG, decimal(38, 18)), fits(INT, decimal(12, 2)), fits(DOUBLE, LONG)
    (True, True, False)
    """
    if t == u or u.name == "variant":
        return True
    t = WIDER.get(t.name, t)
    if t == u:
        return True
    if u.name not in FITS.get(t.name, ()):
        return False
    if u.name == "decimal":
        integer_digits, scale = u.args[0] - u.args[1], u.args[1]
        if t.name == "decimal":
            return scale >= t.args[1] and integer_digits >= t.args[0] - t.args[1]
        return integer_digits >= INTEGER_DIGITS[t.name]
    return True


def narrows(t: Primitive, u: Primitive) -> bool:
    """True if values of ``t`` may be exact in ``u``, a type that only DuckDB makes; `exact` decides.

    >>> narrows(LONG, Primitive("int8")), narrows(DOUBLE, Primitive("int8")), narrows(LONG, DOUBLE)
    (True, False, False)
    """
    if u.name in BOUNDS:
        return t.name in ("boolean", "int", "long") or (t.name == "decimal" and not t.args[1])
    wider = WIDER.get(u.name)
    return wider is not None and fits(t, wider)


def outside(low: int, high: int, among: Iterable[str]) -> frozenset[str]:
    """Those of the types ``among`` these whose bounds do not include both whole numbers.

    >>> sorted(outside(0, 200, ("int8", "uint8")))
    ['int8']
    """
    return frozenset(name for name in among if low < BOUNDS[name][0] or high > BOUNDS[name][1])


def takes_anything(column: object, *, typed: bool) -> bool:
    """True if a column of this base takes any value as it is: VARIANT, and DuckDB's JSON what is JSON.

    ``typed``: the source declares types, of which JSON has no other than its own.
    """
    return column == VARIANT or (column == JSON and not typed)


def exact(t: Primitive, u: Primitive, profile: Profile, unit: str = "ms") -> bool:
    """True if the observed values of ``t`` are exact in ``u``, which ``t`` fits.

    Args:
        unit: the epoch unit.
    """
    if u.name in BOUNDS:
        return u.name not in profile.outside
    if u.name in FRACTIONS:
        return profile.fraction <= FRACTIONS[u.name]
    if u.name not in ("long", "double") or t.name not in ("long", "date", "timestamp", "timestamp_ntz"):
        return True
    if t.name == "long":
        return u.name == "long" or not profile.wide
    # An epoch of coarser units would cut the fraction of the second.
    if profile.fraction > EPOCH_DIGITS[unit]:
        return False
    if u.name == "long":
        return unit != "ns" or not profile.far
    # Doubles count microseconds exactly up to the year 2255, and milliseconds for all years.
    return unit in ("s", "ms") or (unit == "us" and not profile.far)


def widens_in_place(t: Primitive, u: Primitive) -> bool:
    """True if a column of ``t`` can become one of ``u`` in metadata alone, within one family.

    >>> from driftline.core.schema.types import INT
    >>> [widens_in_place(*pair) for pair in ((INT, LONG), (decimal(5, 2), decimal(9, 2)), (LONG, DOUBLE))]
    [True, True, False]
    """
    if t.name == u.name == "decimal":
        return t.args[1] == u.args[1] and t.args[0] < u.args[0]
    return (t.name, u.name) in IN_PLACE


def join(types: Iterable[Primitive]) -> Primitive | None:
    """The common denominator of types.

    It is the member that all fit, else the narrowest number type for numbers, else string.

    >>> from driftline.core.schema.types import BOOLEAN, DATE, INT, TIMESTAMP
    >>> [str(join(pair)) for pair in ((BOOLEAN, LONG), (TIMESTAMP, LONG), (BOOLEAN, DATE), (INT, FLOAT))]
    ['long', 'long', 'string', 'double']
    """
    members = sorted(_joinable(types), key=str)
    if len(members) < 2:
        return members[0] if members else None
    for u in members:
        if all(fits(t, u) for t in members):
            return u
    if all(t.name in NUMBERS for t in members):
        for number in (LONG, FLOAT, DOUBLE, _covering_decimal(members)):
            if number and all(fits(t, number) for t in members):
                return number
    return STRING


def _joinable(types: Iterable[Primitive]) -> set[Primitive]:
    # A column that takes no value has none in common with others.
    members = (t for t in types if t.name not in OUT_OF_JOINS and UNWRITABLE not in t.name)
    return {WIDER.get(t.name, t) for t in members}


def _covering_decimal(members: list[Primitive]) -> Primitive | None:
    scale = max((t.args[1] for t in members if t.name == "decimal"), default=0)
    integer_digits = max(
        t.args[0] - t.args[1] if t.name == "decimal" else INTEGER_DIGITS.get(t.name, 99) for t in members
    )
    return decimal(integer_digits + scale, scale) if integer_digits + scale <= 38 else None


def widest(types: Iterable[Primitive]) -> Primitive:
    """The type of a set that takes the original name: the one that all fit, else the widest by rank."""
    members = sorted(set(types), key=str)
    common = members[0] if len(members) == 1 else join(members)
    if common in members:
        return common
    rank = {name: i for i, name in enumerate(FITS)}
    return max(members, key=lambda t: (sum(fits(o, t) for o in members), rank.get(t.name, -1), t.args))
