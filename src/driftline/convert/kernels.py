"""Converts whole columns from one type to another: each value exact, or null.

The pairs are those of `core.planning.conversions.FITS` and ``ROUTES_TOO``, and those of the `widen` policy's
matrix; the spelling of values follows section 3 of the rules. Nothing here depends on a time zone.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.types import arrow_type
from driftline.core.planning.conversions import narrows
from driftline.core.schema.date_pattern import MONTHS, SHORT, WEEKDAYS, DatePattern
from driftline.core.schema.types import BOUNDS, DATE, DOUBLE, FRACTIONS, LONG, TIMESTAMP_NTZ, WIDER, Primitive
from driftline.core.values import DATE_PATTERN, TIMESTAMP_NTZ_PATTERN

EXACT = 2**53  # a double holds every integer up to here
MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}  # microseconds of an epoch unit
_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999
_DAY_MICROS = 86_400_000_000
# Doubles that Python prints sooner than Arrow, whose every call takes as long as a few of them
_FEW = 32
# Doubles between these print without an exponent, in Arrow as in Python
_PLAIN = (1e-3, 1e7)

Kernel = Callable[[pa.Array, Primitive, Primitive, "str | None"], pa.Array]


def convert(values: pa.Array, source: Primitive, target: Primitive, unit: str | None = None) -> pa.Array:
    """Convert ``values`` of type ``source`` to ``target``; null where a value is not exact there.

    Args:
        unit: the epoch unit ("s", "ms", "us", "ns") of instants as numbers; None where it was not set.

    >>> from driftline.core.schema.types import DOUBLE
    >>> convert(pa.array([2**53, 2**53 + 1]), LONG, DOUBLE).to_pylist()
    [9007199254740992.0, None]
    """
    if source == target:
        # A cast that has nothing to do takes longer than the values of a short column.
        return values if values.type == arrow_type(target) else values.cast(arrow_type(target))
    if narrows(source, target):
        return _narrowed(values, source, target)
    return _KERNELS[source.name, target.name](values, source, target, unit)


def converts(source: Primitive, target: Primitive) -> bool:
    """True if there is a conversion at all."""
    return source == target or narrows(source, target) or (source.name, target.name) in _KERNELS


def _narrowed(values: pa.Array, source: Primitive, target: Primitive) -> pa.Array:
    """Values of a type that only DuckDB makes."""
    if target.name in BOUNDS:
        low, high = BOUNDS[target.name]
        if source.name == "decimal":
            numbers = values.cast(pa.decimal128(38, 0))
            bounds = (pa.scalar(Decimal(bound), numbers.type) for bound in (low, high))
            return _where(numbers, _within(numbers, *bounds)).cast(arrow_type(target))
        numbers = values.cast(pa.int8() if source.name == "boolean" else values.type).cast(pa.int64())
        return _where(numbers, _within(numbers, low, min(high, 2**63 - 1))).cast(arrow_type(target))
    wider = convert(values, source, WIDER[target.name])
    if target.name not in FRACTIONS:
        return wider
    micros = wider.cast(pa.int64())
    unit = 10 ** (6 - FRACTIONS[target.name])
    return _where(wider, pc.equal(pc.multiply(_floor_divide(micros, unit), unit), micros))


def _cast(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    return values.cast(arrow_type(target))


def _where(values: pa.Array, exact: pa.Array) -> pa.Array:
    """The values where ``exact`` is true, else null."""
    return pc.if_else(exact, values, pa.scalar(None, values.type))


def _within(values: pa.Array, low: int | pa.Scalar, high: int | pa.Scalar) -> pa.Array:
    return pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))


def _boolean_decimal(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    true, false = (pa.scalar(Decimal(n), arrow_type(target)) for n in (1, 0))
    return pc.if_else(values, true, false)


def _boolean_number(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    return values.cast(pa.int8()).cast(arrow_type(target))


def _integer_decimal(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    precision, scale = target.args
    integer_digits = precision - scale
    # Below 19 digits a long may be too large for the decimal; Arrow's cast would raise, not give null.
    if integer_digits < 19:
        values = _where(values, _within(values, 1 - 10**integer_digits, 10**integer_digits - 1))
    # By way of a type with room for every long: Arrow casts an integer only to a decimal of enough digits.
    return values.cast(pa.decimal256(19 + scale, scale)).cast(arrow_type(target))


def _long_int(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    return _where(values, _within(values, -(2**31), 2**31 - 1)).cast(pa.int32())


def _long_double(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    return _where(values, _within(values, -EXACT, EXACT)).cast(pa.float64())


def _integer_float(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    singles = numbers.astype(np.float32)
    doubles = singles.astype(np.float64)
    # A double of 2**63 has no long, and numpy's cast of it is undefined.
    exact = (doubles >= -(2.0**63)) & (doubles < 2.0**63)
    exact &= np.where(exact, doubles, 0).astype(np.int64) == numbers
    return pa.array(singles, pa.float32(), mask=~exact | nulls_of(values))


def nulls_of(values: pa.Array) -> NDArray[np.bool_]:
    """Flag the null values."""
    nulls: NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    return nulls


# Instants as numbers, and back


def _micros(values: pa.Array, source: Primitive) -> pa.Array:
    """Dates and timestamps in microseconds since 1970."""
    if source.name == "date":
        return pc.multiply(values.cast(pa.int32()).cast(pa.int64()), _DAY_MICROS)
    return values.cast(pa.int64())


def _epoch_long(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    micros = _micros(values, source)
    unit = unit or "ms"
    if unit == "ns":
        far = 2**63 // 1000
        return pc.multiply(_where(micros, _within(micros, -far, far)), 1000)
    # Arrow divides towards zero; instants before 1970 need the floor.
    count = _floor_divide(micros, MICROS[unit])
    return _where(count, pc.equal(pc.multiply(count, MICROS[unit]), micros))


def _epoch_double(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    return _long_double(_epoch_long(values, source, LONG, unit), LONG, target, unit)


def _date_timestamp(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    return _micros(values, source).cast(arrow_type(target))


def _long_timestamp(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    """Timestamps by the epoch unit, else by magnitude (seed rule 10); null outside the years 1 to 9999."""
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    per_unit = {name: (_FIRST_MICROS // size, _LAST_MICROS // size) for name, size in MICROS.items()}
    # As doubles: the absolute value of the least long is no long.
    size = np.abs(numbers.astype(np.float64))
    units = {
        "s": size < 1e11,
        "ms": (size >= 1e11) & (size < 1e14),
        "us": (size >= 1e14) & (size < 1e17),
        "ns": size >= 1e17,
    }
    micros, valid = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.bool_)
    for name in units if unit is None else (unit,):
        counted = units[name] if unit is None else np.ones(len(numbers), np.bool_)
        if name == "ns":
            micros, valid = np.where(counted, numbers // 1000, micros), valid | counted
            continue
        low, high = per_unit[name]
        counted = counted & (numbers >= low) & (numbers <= high)
        # Zero where the number is out of range, so that its product does not overflow.
        micros = np.where(counted, numbers * np.where(counted, MICROS[name], 0), micros)
        valid |= counted
    valid &= (micros >= _FIRST_MICROS) & (micros <= _LAST_MICROS) & ~nulls_of(values)
    return pa.array(micros, pa.int64(), mask=~valid).cast(arrow_type(target))


def _floor_divide(values: pa.Array, by: int) -> pa.Array:
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(numbers // by, pa.int64(), mask=nulls_of(values))


# Values as text


def _moment_string(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    text = values.cast(arrow_type(TIMESTAMP_NTZ)).cast(pa.string())
    text = without_zeros(pc.replace_substring(text, " ", "T", max_replacements=1))
    return pc.binary_join_element_wise(text, "Z", "") if source.name == "timestamp" else text


def _time_string(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    return time_text(values)


def time_text(times: pa.Array) -> pa.Array:
    """Times of a day, or durations, as text.

    Before midnight and past 24 hours they count on: `-00:00:01`, `25:00:00`.
    """
    # No table format has a type for a duration. Counts of a fixed unit were not taken: a column that has
    # counts of another unit already would go on with them silently.
    unit = times.type.unit
    second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    # Arrow prints times of a day, not durations; within a day both read the same.
    clock, integer = (pa.time32, pa.int32()) if second < 10**6 else (pa.time64, pa.int64())
    counts = times.cast(pa.int64() if pa.types.is_duration(times.type) else integer)
    outside = pc.invert(_within(counts.fill_null(0), 0, 86_400 * second - 1))
    within_day = _where(counts, pc.invert(outside)).cast(integer).cast(clock(unit))
    text = without_zeros(within_day.cast(pa.string()))
    if not pc.any(outside).as_py():
        return text
    far = [duration_text(count, second) for count in counts.fill_null(0).filter(outside).to_pylist()]
    return pc.replace_with_mask(text, pc.and_(outside, times.is_valid()), pa.array(far, pa.string()))


def duration_text(count: int, second: int) -> str:
    """The hours, minutes and seconds of a count of which so many are a ``second``.

    >>> duration_text(-1_500, 1_000), duration_text(108_300, 1)
    ('-00:00:01.5', '30:05:00')
    """
    seconds, parts = divmod(abs(count), second)
    text = f"{'-' * (count < 0)}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{parts:0{len(str(second)) - 1}}".rstrip("0") if parts else text


def without_zeros(text: pa.Array) -> pa.Array:
    """Remove the zeros that end a fraction of a second, and a point that nothing follows."""
    text = pc.replace_substring_regex(text, r"(\.[0-9]*?)0+$", r"\1")
    return pc.replace_substring_regex(text, r"\.$", "")


def _decimal_string(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    # Arrow writes small decimals with an exponent.
    return pa.array([None if d is None else decimal_text(d) for d in values.to_pylist()], pa.string())


def decimal_text(number: Decimal) -> str:
    """A number's shortest text, without an exponent."""
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _float_string(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    """The shortest text that reads back as the number.

    A whole number within ±2^53 prints as the integer that JSON may have sent; -0.0 does not, because -0 would
    read as 0.
    """
    if source == DOUBLE and len(values) <= _FEW:
        texts = [None if number is None else _plain(number) for number in values.to_pylist()]
        if texts.count(None) == values.null_count:
            return pa.array(texts, pa.string())
    # Arrow writes 1e+22 where Java writes 1.0E22 in SQL. Both read back as the same number, so neither is
    # made the other.
    text = pc.replace_substring_regex(values.cast(pa.string()), r"^-?nan$", "NaN")
    text = pc.replace_substring_regex(text, r"inf$", "Infinity")
    text = pc.if_else(pc.equal(text, "-0"), "-0.0", text)
    numbers = values.cast(pa.float64())
    is_integer = pc.and_(pc.equal(pc.trunc(numbers), numbers), _within(numbers, -EXACT, EXACT))
    integers = _where(numbers, pc.and_(is_integer, pc.not_equal(text, "-0.0"))).cast(pa.int64())
    return pc.coalesce(integers.cast(pa.string()), text)


def _plain(number: float) -> str | None:
    """Return the text of a double without an exponent; None for one that may need one, and for 0.

    >>> _plain(19.9), _plain(-4.0), _plain(1e22), _plain(-0.0)
    ('19.9', '-4', None, None)
    """
    if not _PLAIN[0] <= abs(number) < _PLAIN[1]:
        return None
    return str(int(number)) if number.is_integer() else repr(number)


def _uuid_string(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    listed = values.to_pylist()
    return pa.array([None if v is None else str(uuid.UUID(bytes=v)) for v in listed], pa.string())


def _binary_string(values: pa.Array, source: Primitive, target: Primitive, unit: str | None) -> pa.Array:
    try:
        # The cast checks UTF-8 for all at once; only a column with a bad value is read one by one.
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_utf8(v) for v in values.to_pylist()], pa.string())


def _utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


_MOMENTS = ("date", "timestamp", "timestamp_ntz")
_KERNELS: dict[tuple[str, str], Kernel] = {
    **{("boolean", number): _boolean_number for number in ("int", "long", "float", "double")},
    ("boolean", "decimal"): _boolean_decimal,
    **{(source, "string"): _cast for source in ("boolean", "int", "long", "date")},
    **{(source, "string"): _float_string for source in ("float", "double")},
    ("int", "long"): _cast,
    ("int", "double"): _cast,
    ("float", "double"): _cast,
    **{(source, "decimal"): _integer_decimal for source in ("int", "long")},
    **{(source, "float"): _integer_float for source in ("int", "long")},
    ("long", "int"): _long_int,
    ("long", "double"): _long_double,
    **{("long", moment): _long_timestamp for moment in ("timestamp", "timestamp_ntz")},
    ("decimal", "decimal"): _cast,
    ("decimal", "string"): _decimal_string,
    **{("date", moment): _date_timestamp for moment in ("timestamp", "timestamp_ntz")},
    **{(moment, "long"): _epoch_long for moment in _MOMENTS},
    **{(moment, "double"): _epoch_double for moment in _MOMENTS},
    **{(moment, "string"): _moment_string for moment in ("timestamp", "timestamp_ntz")},
    ("time", "string"): _time_string,
    ("uuid", "string"): _uuid_string,
    ("fixed", "binary"): _cast,
    ("string", "binary"): _cast,
    ("binary", "string"): _binary_string,
}


def dates_of(texts: pa.Array, pattern: DatePattern) -> pa.Array:
    """Each text as the date or timestamp that the pattern prints so; null if there is none.

    >>> from driftline.core.schema.date_pattern import parse_hint
    >>> pattern = parse_hint("date('d MMM yyyy')").pattern
    >>> dates_of(pa.array(["1 Mar 2026", "30 Feb 2026", "01 Mar 2026", None]), pattern).to_pylist()
    [datetime.date(2026, 3, 1), None, None, None]
    """
    parts = pc.extract_regex(texts, pattern=rf"\A{pattern.regex(named=True)}\z")
    moments, weekday = _as_iso(parts, pattern), pattern.part("E")
    # A pattern matches 30 February too; the strict form of ISO 8601 refuses it before Arrow's cast fails.
    exact = DATE_PATTERN if pattern.type == DATE else TIMESTAMP_NTZ_PATTERN
    moments = _only_where(pc.match_substring_regex(moments, rf"\A(?:{exact})\z"), moments)
    moments = moments.cast(arrow_type(pattern.type))
    if weekday:
        written = pc.index_in(_part(parts, weekday), _named(WEEKDAYS, weekday))
        # A weekday that is not the date's would not print back: the text stays text.
        moments = _only_where(pc.equal(written.cast(pa.int64()), pc.day_of_week(moments)), moments)
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
    # 12 AM is midnight and 12 PM noon.
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


def _only_where(flags: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(flags, values, pa.scalar(None, values.type))
