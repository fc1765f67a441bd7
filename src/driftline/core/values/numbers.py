"""JSON numbers, judged by their text (rule 2.1)."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection
from decimal import Context, Decimal
from functools import cache

from driftline.core.planning.shape import NUMBER_TEXT
from driftline.core.schema.types import BIG_DECIMAL, BIG_INTEGER, DOUBLE, FLOAT, INT, LONG, Primitive

EXACT = 2**53  # a double holds every integer up to here
_FAR = 10**9  # an exponent beyond every type's
_DIGITS = Context(prec=38)


def base_of(text: str) -> Primitive:
    """The type of one JSON number as written (rule 2.1); `NUMBER_TEXT` where no number type holds it.

    >>> [str(base_of(n)) for n in ("7", "1e400", "0.10000000000000001", "12345678901234567890.5")]
    ['long', 'number_text', 'double', 'decimal(38, 18)']
    """
    if _whole(text):
        if len(text) <= 18 or (len(text) <= 20 and -(2**63) <= int(text) < 2**63):
            return LONG
        return BIG_INTEGER if len(text.lstrip("-")) <= 38 else NUMBER_TEXT
    if len(text) <= 16 and "e" not in text and "E" not in text:
        return DOUBLE  # at most 15 digits
    value = float(text)
    if repr(value) == text:
        return DOUBLE
    digits, power = _written(text)
    if not digits or _rounds_to(value, digits, power, 17):
        return DOUBLE
    return BIG_DECIMAL if _holds(BIG_DECIMAL, digits, power) else NUMBER_TEXT


def _declared_whole(text: str, natural: Primitive, declared: Collection[Primitive]) -> Primitive | None:
    """The type of a whole number, if a declared column other than a decimal takes it as it is."""
    integer, single, decimals = _narrow(frozenset(declared))
    value = int(text)
    if integer and -(2**31) <= value < 2**31:
        return INT
    if natural != LONG:
        return None
    digits, power = _written(text)
    if single and _is_single(float(value), digits, power, exact=_float(value) == value):
        return FLOAT
    # A long that a wider column takes as it is.
    wider = (DOUBLE in declared and abs(value) <= EXACT) or any(_whole_digits(t) >= 19 for t in decimals)
    return LONG if wider else None


def declared_base(text: str, declared: Collection[Primitive]) -> Primitive:
    """The type of a JSON number in a field with columns of these types (section 3 of the rules).

    That is `base_of` if it is among them; else the narrowest of them that reads back as the written number;
    else `base_of`.

    >>> from driftline.core.schema.types import decimal
    >>> [str(declared_base(n, {decimal(18, 2)})) for n in ("19.99", "20", "0.125")]
    ['decimal(18, 2)', 'decimal(18, 2)', 'double']
    """
    natural = base_of(text)
    if natural in declared:
        return natural
    integer, single, decimals = _narrow(frozenset(declared))
    if not (integer or single or decimals):
        return natural
    digits, power = _written(text)
    if not _whole(text):
        if single and natural == DOUBLE and _is_single(float(text), digits, power):
            return FLOAT
    elif natural != NUMBER_TEXT and (base := _declared_whole(text, natural, declared)) is not None:
        return base
    if natural == NUMBER_TEXT and "e" in text.lower():
        return natural  # Spark cannot tell whether it is exact
    return next((t for t in decimals if not _signed_zero(text) and _holds(t, digits, power)), natural)


def is_single(text: str) -> bool:
    """True if a float column holds the number, which is a long or a double by `base_of`.

    >>> [is_single(n) for n in ("0.1", "16777217", "0.123456789")]
    [True, False, False]
    """
    digits, power = _written(text)
    if not _whole(text):
        return _is_single(float(text), digits, power)
    value = int(text)
    return _is_single(float(value), digits, power, exact=_float(value) == value)


def decimal_of(text: str, t: Primitive) -> Decimal | None:
    """The number as a value of the decimal type ``t``; None if that is not exact.

    >>> from driftline.core.schema.types import decimal
    >>> [decimal_of(n, decimal(9, 2)) for n in ("1e3", "0.125", "-0.0")]
    [Decimal('1000.00'), None, None]
    """
    digits, power = _written(text)
    if _signed_zero(text) or not _holds(t, digits, power):
        return None
    scale = t.args[1]
    unscaled = int(digits) * 10 ** (power + scale) if digits else 0
    return Decimal(-unscaled if text.startswith("-") else unscaled).scaleb(-scale, _DIGITS)


def _is_single(value: float, digits: str, power: int, *, exact: bool | None = None) -> bool:
    """True if a float column holds the number: six digits always are its own, more only if float and double
    agree.
    """
    if not digits or (_float(value) == value if exact is None else exact):
        return True
    return 1e-37 <= abs(value) <= 3e38 and _rounds_to(_float(value), digits, power, 6)


@cache
def _narrow(declared: frozenset[Primitive]) -> tuple[bool, bool, tuple[Primitive, ...]]:
    """The types split up: whether int and float are among them, and the decimals, fewest digits first."""
    decimals = sorted((t for t in declared if t.name == "decimal"), key=lambda t: t.args)
    return INT in declared, FLOAT in declared, tuple(decimals)


def simple_fractions(declared: Collection[Primitive]) -> tuple[Primitive, str]:
    """The type of the simplest fractions in a field with columns of these types, and a pattern of their
    texts.
    """
    _, single, decimals = _narrow(frozenset(declared))
    if DOUBLE in declared or not (single or decimals):
        return DOUBLE, r"-?[0-9]{1,8}\.[0-9]{1,7}\Z"
    if single:
        return FLOAT, r"-?[0-9]{1,3}\.[0-9]{1,3}\Z"
    narrow = decimals[0]
    scale = min(narrow.args[1], 7)
    integer_digits = min(_whole_digits(narrow), 8)
    return (
        narrow,
        rf"(?!-0+\.0+\Z)-?[0-9]{{1,{integer_digits}}}\.[0-9]{{1,{scale}}}\Z"
        if integer_digits and scale
        else r"(?!)",
    )


def _whole(text: str) -> bool:
    return text.isdigit() or ("." not in text and "e" not in text and "E" not in text)


def _written(text: str) -> tuple[str, int]:
    """The significant digits, and the power of ten of the last one; no digits for zero."""
    mantissa, _, power = text.lstrip("-").lower().partition("e")
    integer, _, fraction = mantissa.partition(".")
    digits = integer + fraction
    significant = digits.rstrip("0")
    exponent = _FAR if len(power) > 4000 else int(power or 0)
    if power.startswith("-") and exponent == _FAR:
        exponent = -_FAR
    return significant.lstrip("0"), exponent - len(fraction) + len(digits) - len(significant)


def _signed_zero(text: str) -> bool:
    """True for a zero with a sign, which only floats have; ``-0`` is a whole number, and as such has none."""
    return text.startswith("-") and not _whole(text) and not _written(text)[0]


def _rounds_to(value: float, digits: str, power: int, most: int) -> bool:
    """True if ``value``, printed with the digits as written (``most`` at most), is the written number.

    Half way between two it may be either, since printers differ.
    """
    if len(digits) > most or not math.isfinite(value) or value == 0:
        return False
    numerator, denominator = abs(value).as_integer_ratio()
    numerator, denominator = (
        (numerator, denominator * 10**power) if power > 0 else (numerator * 10**-power, denominator)
    )
    return abs(int(digits) * denominator - numerator) * 2 <= denominator


def _float(value: float) -> float:
    """The nearest float32 to the number."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.inf


def _holds(t: Primitive, digits: str, power: int) -> bool:
    return not digits or (power >= -t.args[1] and len(digits) + power <= _whole_digits(t))


def _whole_digits(t: Primitive) -> int:
    return t.args[0] - t.args[1]
