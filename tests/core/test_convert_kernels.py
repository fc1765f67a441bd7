"""Whole columns of one type as another, as a table of values that a person can read against section 3 of the rules."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.convert.kernels import convert, converts
from driftline.convert.types import arrow_type
from driftline.core.planning.conversions import FITS, ROUTES_TOO
from driftline.core.planning.policies.widen import MATRIX
from driftline.core.schema.text import parse_type
from driftline.core.schema.types import DOUBLE, STRING, Primitive

D = Decimal
NOON, NOON_UTC = datetime(2024, 1, 2, 12), datetime(2024, 1, 2, 12, tzinfo=UTC)
NOON_S = 1704196800

# What a value of a type is in a column of another; None: not exact there. Units: of instants as numbers.
CONVERTED: list[tuple[str, Any, str, Any]] = [
    ("boolean", True, "int", 1),
    ("boolean", False, "double", 0.0),
    ("boolean", True, "decimal(3, 2)", D("1.00")),
    ("boolean", False, "decimal(3, 2)", D("0.00")),
    ("boolean", True, "string", "true"),
    ("int", -5, "long", -5),
    ("int", 2**31 - 1, "decimal(10, 0)", D(2**31 - 1)),
    ("long", 99, "decimal(4, 2)", D("99.00")),
    ("long", 100, "decimal(4, 2)", None),
    ("long", -100, "decimal(4, 2)", None),
    ("long", 2**31 - 1, "int", 2**31 - 1),
    ("long", 2**31, "int", None),
    ("long", -(2**31), "int", -(2**31)),
    ("long", -(2**31) - 1, "int", None),
    ("int", 16777217, "float", None),
    ("long", 2**53, "double", float(2**53)),
    ("long", 2**53 + 1, "double", None),
    ("long", -(2**53) - 1, "double", None),
    ("long", 2**63 - 1, "decimal(38, 19)", D("9223372036854775807.0000000000000000000")),
    ("long", 2**63 - 1, "float", None),
    ("long", -(2**63), "float", float(-(2**63))),
    ("long", 2**24, "float", float(2**24)),
    ("long", 7, "string", "7"),
    ("float", 0.5, "double", 0.5),
    ("float", 0.1, "string", "0.1"),
    ("double", 100.0, "string", "100"),
    ("double", -(2.0**53), "string", "-9007199254740992"),
    ("float", 1e10, "string", "10000000000"),
    ("double", 1e22, "string", "1e+22"),
    ("double", -0.0, "string", "-0.0"),
    ("double", float("inf"), "string", "Infinity"),
    ("double", float("nan"), "string", "NaN"),
    ("decimal(5, 2)", D("1.50"), "decimal(12, 4)", D("1.5000")),
    ("decimal(5, 2)", D("1.50"), "string", "1.5"),
    ("decimal(5, 2)", D("100.00"), "string", "100"),
    ("decimal(38, 18)", D("0.000000000000000001"), "string", "0.000000000000000001"),
    ("date", date(2024, 1, 2), "timestamp", datetime(2024, 1, 2, tzinfo=UTC)),
    ("date", date(1, 1, 1), "timestamp_ntz", datetime(1, 1, 1)),
    ("date", date(2024, 1, 2), "string", "2024-01-02"),
    ("timestamp", NOON_UTC, "string", "2024-01-02T12:00:00Z"),
    ("timestamp", NOON_UTC.replace(microsecond=120000), "string", "2024-01-02T12:00:00.12Z"),
    ("timestamp_ntz", NOON.replace(microsecond=1), "string", "2024-01-02T12:00:00.000001"),
    ("time", time(12, 0, 0, 500000), "string", "12:00:00.5"),
    ("uuid", UUID(int=1).bytes, "string", "00000000-0000-0000-0000-000000000001"),
    ("fixed(2)", b"ab", "binary", b"ab"),
    ("string", "é", "binary", "é".encode()),
    ("binary", b"\xc3\xa9", "string", "é"),
    ("binary", b"\xff", "string", None),
]

# An instant as a number, and a number as an instant, by the epoch unit (None: milliseconds there, by magnitude here).
EPOCHS: list[tuple[str, Any, str, str | None, Any]] = [
    ("timestamp", NOON_UTC, "long", None, NOON_S * 1000),
    ("timestamp", NOON_UTC, "long", "s", NOON_S),
    ("timestamp", NOON_UTC, "long", "us", NOON_S * 10**6),
    ("timestamp", NOON_UTC, "long", "ns", NOON_S * 10**9),
    ("timestamp", NOON_UTC.replace(microsecond=1), "long", None, None),
    ("timestamp", NOON_UTC.replace(microsecond=1), "long", "us", NOON_S * 10**6 + 1),
    ("timestamp", datetime(1, 1, 1, tzinfo=UTC), "long", "ns", None),
    ("timestamp_ntz", datetime(2262, 4, 11, 23, 47, 16, 854775), "long", "ns", 9223372036854775000),
    ("timestamp_ntz", datetime(2262, 4, 11, 23, 47, 16, 854776), "long", "ns", None),
    ("timestamp", datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "long", "s", None),
    ("timestamp_ntz", NOON, "double", None, NOON_S * 1000.0),
    ("timestamp_ntz", NOON, "double", "ns", None),
    ("date", date(1969, 12, 31), "long", "s", -86400),
    ("long", NOON_S, "timestamp", None, NOON_UTC),
    ("long", NOON_S * 1000, "timestamp", None, NOON_UTC),
    ("long", NOON_S * 10**6, "timestamp", None, NOON_UTC),
    ("long", NOON_S * 10**9, "timestamp_ntz", None, NOON),
    ("long", NOON_S, "timestamp", "ms", datetime(1970, 1, 20, 17, 23, 16, 800000, tzinfo=UTC)),
    ("long", -1, "timestamp", "ns", datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("long", 2**63 - 1, "timestamp", "s", None),
    ("long", -(2**63), "timestamp", "ms", None),
    ("long", 253_402_300_800, "timestamp", "s", None),
    ("long", -62_135_596_800, "timestamp", "s", datetime(1, 1, 1, tzinfo=UTC)),
    ("long", -62_135_596_801, "timestamp", "s", None),
    ("long", 253_402_300_799, "timestamp_ntz", "s", datetime(9999, 12, 31, 23, 59, 59)),
]


def primitive(text: str) -> Primitive:
    type_ = parse_type(text)
    assert isinstance(type_, Primitive)
    return type_


def one(source: str, value: Any, target: str, unit: str | None = None) -> Any:
    """The value in a column of another type; beside it, null stays null."""
    s, t = primitive(source), primitive(target)
    values = pa.array([None, value, None], arrow_type(s))
    made = convert(values, s, t, unit)
    assert made.type == arrow_type(t)
    nothing, converted, also = made.to_pylist()
    assert nothing is None
    assert also is None
    return converted


@pytest.mark.parametrize(("source", "value", "target", "expected"), CONVERTED)
def test_a_value_is_exact_or_null(source: str, value: Any, target: str, expected: Any) -> None:
    made = one(source, value, target)
    assert (str(made), type(made)) == (str(expected), type(expected))


@pytest.mark.parametrize(("source", "value", "target", "unit", "expected"), EPOCHS)
def test_instants_as_numbers(source: str, value: Any, target: str, unit: str | None, expected: Any) -> None:
    made = one(source, value, target, unit)
    assert made == expected
    assert type(made) is type(expected)


def test_every_rule_has_a_conversion() -> None:
    known = {
        "decimal": ["decimal(5, 2)", "decimal(30, 5)"],
        "fixed": ["fixed(3)"],
    }
    pairs = [(s, t) for rules in (FITS, ROUTES_TOO) for s, targets in rules.items() for t in targets]
    pairs += [(s, t) for s, row in MATRIX.items() for t, after in row.items() if after == t]
    for s, t in pairs:
        for source in known.get(s, [s]):
            for target in known.get(t, [t]):
                assert s == t or converts(primitive(source), primitive(target)), (source, target)


def test_an_empty_column_converts() -> None:
    for source, _, target, _ in CONVERTED:
        s, t = primitive(source), primitive(target)
        assert len(convert(pa.array([], arrow_type(s)), s, t)) == 0


def test_bytes_that_are_no_text_leave_those_beside_them() -> None:
    values = pa.array([b"\xff", b"\xc3\xa9", None, b""])
    assert convert(values, primitive("binary"), primitive("string")).to_pylist() == [None, "é", None, ""]


@given(st.lists(st.none() | st.floats() | st.integers(-(10**16), 10**16).map(float), max_size=32))
def test_texts_of_few_doubles_are_those_of_many(numbers: list[float | None]) -> None:
    few = pa.array(numbers, pa.float64())
    many = pa.concat_arrays([few] * 33)

    texts = convert(few, DOUBLE, STRING)

    assert texts.equals(convert(many, DOUBLE, STRING).slice(0, len(few)))
