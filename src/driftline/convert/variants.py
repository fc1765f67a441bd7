"""Encodes values as VARIANT: exactly, or not at all.

pyspark, which implements the format, makes the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkValueError
from pyspark.sql.variant_utils import VariantBuilder

from driftline.convert.types import arrow_type
from driftline.core.schema.types import BIG_DECIMAL, DOUBLE, LONG, VARIANT
from driftline.core.values import Number, base_of, decimal_of

_LARGEST = 128 * 2**20  # bytes of a value, as Spark has it
_DIGITS = 38
# The format's numbers of types that JSON has not
_DATE, _TIMESTAMP, _TIMESTAMP_NTZ, _BINARY = 11, 12, 13, 15
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _InexactError(ValueError):
    """A VARIANT cannot hold the value."""


def variants(values: Iterable[object]) -> pa.Array:
    """Each value as a VARIANT; null if it is None, or not exact as one."""
    pairs = (None if value is None else _variant(value) for value in values)
    names = ("value", "metadata")
    return pa.array(
        [None if pair is None else dict(zip(names, pair, strict=True)) for pair in pairs], arrow_type(VARIANT)
    )


def _variant(value: object) -> tuple[bytes, bytes] | None:
    try:
        return _VariantBuilder(_LARGEST).of(value)
    except (_InexactError, PySparkValueError, OverflowError):
        return None


class _VariantBuilder(VariantBuilder):
    """Builds from values rather than from a text; JSON numbers come as they were written."""

    def of(self, value: object) -> tuple[bytes, bytes]:
        """Encode a value as a VARIANT's bytes and metadata. Raises _InexactError."""
        self._process_parsed_json(value)
        built, metadata = self.build("null")  # which puts a null behind the value
        return built[:-1], metadata

    def _process_parsed_json(self, parsed: Any) -> None:
        match parsed:
            case Number():
                super()._process_parsed_json(_number(parsed))
            case Decimal():
                self._append_decimal(_fitting(parsed))
            case datetime():
                zoned = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
                micros = (zoned - _EPOCH) // _EPOCH.resolution
                self._append_bytes(_TIMESTAMP if parsed.tzinfo else _TIMESTAMP_NTZ, _little(micros, 8))
            case date():
                self._append_bytes(_DATE, _little((parsed - _EPOCH.date()).days, 4))
            case bytes():
                self._append_bytes(_BINARY, len(parsed).to_bytes(4, "little") + parsed)
            case _:
                super()._process_parsed_json(parsed)

    def _append_bytes(self, kind: int, value: bytes) -> None:
        self._check_capacity(1 + len(value))
        self.value.extend(self._primitive_header(kind) + value)


# A number that is exact as neither goes to the field's other columns: a VARIANT takes all or nothing.
def _number(text: Number) -> int | float | Decimal:
    """A JSON number: a decimal if it is written without an exponent, as in Spark's own parser."""
    natural = base_of(text)
    if natural == LONG:
        return int(text)
    # A decimal has no negative zero.
    if natural == DOUBLE and float(text) == 0 and text.startswith("-"):
        return -0.0
    if text.replace(".", "").lstrip("-").isdigit() and (plain := _fits(Decimal(text))) is not None:
        return plain
    if natural == DOUBLE:
        return float(text)
    return _fitting(decimal_of(text, BIG_DECIMAL))


def _fits(number: Decimal) -> Decimal | None:
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or len(digits) > _DIGITS or not 0 <= -exponent <= _DIGITS:
        return None
    return number


def _fitting(number: Decimal | None) -> Decimal:
    fitting = None if number is None else _fits(number)
    if fitting is None:
        raise _InexactError
    return fitting


def _little(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little", signed=True)
