"""Columns of Arrow's types with nothing inside, read as the types that a table has (rules 2.3): one reading,
or several, each for some of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.kernels import decimal_text, nulls_of, time_text
from driftline.convert.types import arrow_type
from driftline.convert.values import scattered
from driftline.core.schema.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Field,
    Path,
    Primitive,
    Type,
    decimal,
    dotted,
)
from driftline.errors import UsageError

OVERFLOW = "overflow"  # the doc of a field whose type counts only where it has values
VOID = Primitive("void")  # the type of a column that only has nulls
_DIGITS = 38  # of the largest decimal

Read: TypeAlias = Callable[[pa.Array], pa.Array]


class LeafReading(NamedTuple):
    """A type of a column, and the function that reads its values of this type. ``overflow``: the type is for
    values that the column's own type does not hold.
    """

    type: Type
    read: Read
    overflow: bool = False

    def field(self, name: str) -> Field:
        """A field of the type."""
        return Field(name, self.type, doc=OVERFLOW if self.overflow else None)


def leaf_readings(type_: pa.DataType, path: Path) -> Iterator[LeafReading]:
    """The readings of a type. Raises UsageError for one that no table has."""
    for is_type, plain in _PLAIN:
        if is_type(type_):
            yield _cast_to(plain)
            return
    if pa.types.is_null(type_):
        yield LeafReading(VOID, lambda a: a)
    elif pa.types.is_date64(type_):
        yield LeafReading(DATE, lambda a: _where_whole(a, whole_days=True).cast(arrow_type(DATE)))
        yield LeafReading(TIMESTAMP_NTZ, lambda a: _where_whole(a, whole_days=False), overflow=True)
    elif pa.types.is_timestamp(type_):
        yield from _of_timestamp(type_)
    elif pa.types.is_time(type_) or pa.types.is_duration(type_):
        yield LeafReading(STRING, time_text)
    elif pa.types.is_decimal(type_):
        yield from _of_decimal(type_)
    else:
        raise UsageError(
            f"{dotted(path)}: type {type_} cannot be stored in a table", hint="cast or drop the column"
        )


def _cast_to(plain: Primitive) -> LeafReading:
    # Bytes that are read as text, and are not UTF-8, are seen in the row that has them.
    return LeafReading(plain, lambda a: a.cast(arrow_type(plain), safe=plain != STRING))


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Primitive], ...] = (
    (pa.types.is_boolean, BOOLEAN),
    (pa.types.is_uint32, LONG),
    (pa.types.is_int64, LONG),
    (pa.types.is_uint64, decimal(20, 0)),
    (pa.types.is_integer, INT),
    (pa.types.is_float64, DOUBLE),
    (pa.types.is_floating, FLOAT),
    (pa.types.is_date32, DATE),
    (lambda t: t in (pa.string(), pa.large_string(), pa.string_view()), STRING),
    (lambda t: t in (pa.binary(), pa.large_binary(), pa.binary_view()), BINARY),
    (pa.types.is_fixed_size_binary, BINARY),
)


def _of_timestamp(type_: pa.TimestampType) -> Iterator[LeafReading]:
    plain = TIMESTAMP_NTZ if type_.tz is None else TIMESTAMP
    if type_.unit == "us":
        yield _cast_to(plain)
    elif type_.unit == "ns":
        yield LeafReading(plain, lambda a: _whole_micros(a, plain))
        yield LeafReading(STRING, lambda a: _finer(a, plain), overflow=True)
    else:
        yield LeafReading(plain, lambda a: _near(a, plain))
        yield LeafReading(STRING, lambda a: _far(a, plain), overflow=True)


def _where_whole(days: pa.Array, *, whole_days: bool) -> pa.Array:
    """Read days that are counted in milliseconds: the midnights among them, or else the other moments."""
    millis = days.cast(pa.int64())
    midnights = pc.multiply(pc.divide(millis, _DAY), _DAY)
    chosen = pc.equal(millis, midnights) if whole_days else pc.not_equal(millis, midnights)
    moments = millis.cast(pa.timestamp("ms")).cast(arrow_type(TIMESTAMP_NTZ))
    return pc.if_else(chosen, moments, pa.scalar(None, moments.type))


_DAY = 86_400_000  # milliseconds
_MICROS = {"s": 10**6, "ms": 10**3}


def _is_far(values: pa.Array) -> NDArray[np.bool_]:
    """Which moments are further away than microseconds count: some 290,000 years."""
    most = (2**63 - 1) // _MICROS[values.type.unit]
    units = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    far: NDArray[np.bool_] = (units > most) | (units < -most)
    return far


def _near(values: pa.Array, plain: Primitive) -> pa.Array:
    far = _is_far(values)
    near = pc.if_else(pa.array(far), pa.scalar(None, values.type), values) if far.any() else values
    return near.cast(pa.timestamp("us", values.type.tz)).cast(arrow_type(plain))


def _far(values: pa.Array, plain: Primitive) -> pa.Array:
    """The text of values too far away for a timestamp."""
    far = np.flatnonzero(_is_far(values))
    units = values.take(pa.array(far)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    zone = "Z" if plain == TIMESTAMP else ""
    texts = [f"{moment}{zone}" for moment in units.view(f"datetime64[{values.type.unit}]")]
    return scattered(len(values), [(far, pa.array(texts, pa.string()))], pa.string())


def _whole_micros(values: pa.Array, plain: Primitive) -> pa.Array:
    if values.type.unit == "us":  # a reader knows that none is finer
        return values.cast(arrow_type(plain))
    nanos = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    micros = pa.array(nanos // 1000, pa.int64(), mask=nulls_of(values) | (nanos % 1000 != 0))
    return micros.cast(arrow_type(plain))


def _finer(values: pa.Array, plain: Primitive) -> pa.Array:
    """The text, of nine digits, of values finer than a microsecond."""
    if values.type.unit == "us":
        return pa.nulls(len(values), pa.string())
    nanos = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    finer = nanos % 1000 != 0
    if not finer.any():
        return pa.nulls(len(values), pa.string())
    text = pc.replace_substring(
        values.cast(pa.timestamp("ns")).cast(pa.string()), " ", "T", max_replacements=1
    )
    text = pc.binary_join_element_wise(text, "Z", "") if plain == TIMESTAMP else text
    return pc.if_else(pa.array(finer), text, pa.scalar(None, pa.string()))


def _of_decimal(type_: Any) -> Iterator[LeafReading]:
    integer_digits, scale = type_.precision - type_.scale, max(type_.scale, 0)
    if integer_digits + scale <= _DIGITS:
        yield _cast_to(decimal(integer_digits + scale, scale))
        return
    if scale <= _DIGITS:
        widest = decimal(_DIGITS, scale)
        yield LeafReading(
            widest, lambda a: _numbers(a, arrow_type(widest), lambda d: d if _fits(d, scale) else None)
        )
    yield LeafReading(
        STRING,
        lambda a: _numbers(a, pa.string(), lambda d: None if _fits(d, scale) else decimal_text(d)),
        overflow=scale <= _DIGITS,
    )


def _numbers(values: pa.Array, type_: pa.DataType, read: Callable[[Decimal], Any]) -> pa.Array:
    return pa.array([None if d is None else read(d) for d in values.to_pylist()], type_)


def _fits(number: Decimal, scale: int) -> bool:
    return scale <= _DIGITS and number.copy_abs() < Decimal(10) ** (_DIGITS - scale)
