"""Numbers of JSON, by their text (rule 2.1)."""

from __future__ import annotations

import re
import struct
from decimal import ROUND_HALF_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driftline.core.planning.shape import NUMBER_TEXT
from driftline.core.schema.types import (
    BIG_DECIMAL,
    BIG_INTEGER,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    Primitive,
    decimal,
)
from driftline.core.values import base_of, declared_base, simple_fractions
from driftline.observe.decoder import HUGE, doubtful

BASES = {
    LONG: "0 -0 7 -7 999999999999999999 9223372036854775807 -9223372036854775808",
    BIG_INTEGER: f"9223372036854775808 -9223372036854775809 {'9' * 38} -{'9' * 38} 18446744073709551616",
    DOUBLE: "0.0 -0.0 0e5 0e999999999999 0.5 1.50 1e5 1E+5 1e-5 123456789012345.5 0.10000000000000001 1e22 1e25 1e308 "
            "5e-324 4.9e-324 1.7976931348623157e308 100000000000000000000.0 0.30000000000000004 "
            "5.960464477539063e-08 5.960464477539062e-08",
    BIG_DECIMAL: "12345678901234567890.5 0.123456789012345678 12345678901234567.5 99999999999999999999.999999999999999999 "
                 "0.100000000000000005 1234567890123456789.0e1 0.00000000010000000000000001e8",
    NUMBER_TEXT: f"0.1234567890123456789 1e400 -1e400 1e-400 1e-324 1e999999999999 1e-999999999999 {'9' * 39} "
                 f"123456789012345678901.5 1.7976931348623159e308 2e-324 1.23456789e-320",
}  # fmt: skip


@pytest.mark.parametrize(
    ("base", "text"), [(base, text) for base, texts in BASES.items() for text in texts.split()]
)
def test_base(base: Primitive, text: str) -> None:
    assert base_of(text) == base
    assert base_of(f"-{text}".replace("--", "")) in (base, LONG, BIG_INTEGER)


def test_exponents_of_any_length() -> None:
    assert base_of("1e" + "9" * 5000) == NUMBER_TEXT
    assert base_of("1e-" + "9" * 5000) == NUMBER_TEXT
    assert base_of("9" * 5000) == NUMBER_TEXT


DECLARED = [
    # text, types of the field's columns, what it is
    ("5", {INT}, INT),
    ("2147483648", {INT}, LONG),
    ("5", {INT, LONG}, LONG),
    ("5", {INT, DOUBLE}, INT),
    ("5", {DOUBLE}, LONG),
    ("9007199254740993", {DOUBLE}, LONG),
    ("5.5", {INT}, DOUBLE),
    ("5.0", {INT}, DOUBLE),
    ("16777216", {FLOAT}, FLOAT),
    ("16777217", {FLOAT}, LONG),
    ("16777217", {FLOAT, decimal(9, 0)}, decimal(9, 0)),
    ("0.1", {FLOAT}, FLOAT),
    ("0.123456789", {FLOAT}, DOUBLE),
    ("0.123456791", {FLOAT}, DOUBLE),  # nine digits may be a float's or a double's
    ("0.123456", {FLOAT}, FLOAT),
    ("0.123456001", {FLOAT}, DOUBLE),
    ("1e39", {FLOAT}, DOUBLE),
    ("0.1", {FLOAT, DOUBLE}, DOUBLE),
    ("0.0", {FLOAT}, FLOAT),
    ("19.99", {decimal(18, 2)}, decimal(18, 2)),
    ("20", {decimal(18, 2)}, decimal(18, 2)),
    ("20", {decimal(25, 2)}, LONG),
    ("20", {decimal(18, 2), LONG}, LONG),
    ("1.5e3", {decimal(5, 1)}, decimal(5, 1)),
    ("1.5e5", {decimal(5, 1)}, DOUBLE),
    ("0.125", {decimal(18, 2)}, DOUBLE),
    ("0.125", {decimal(18, 2), decimal(9, 3)}, decimal(9, 3)),
    ("1.5", {decimal(18, 2), decimal(9, 3)}, decimal(9, 3)),
    ("0.1234567890123456789", {decimal(38, 20)}, decimal(38, 20)),
    ("12345678901234567890", {decimal(20, 0)}, decimal(20, 0)),
    ("12345678901234567890", {DOUBLE}, BIG_INTEGER),
    ("9" * 39, {decimal(38, 0), FLOAT}, NUMBER_TEXT),
    ("5", {STRING, BOOLEAN}, LONG),
]


@pytest.mark.parametrize(("text", "declared", "base"), DECLARED)
def test_declared_base(text: str, declared: set[Primitive], base: Primitive) -> None:
    assert declared_base(text, declared) == base


NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda d: str(d).replace("E", "e")),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?\Z"),
)


@given(
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?\Z"),
    st.sets(
        st.sampled_from(
            [INT, FLOAT, LONG, DOUBLE, decimal(9, 2), decimal(20, 0), decimal(5, 5), decimal(38, 18)]
        )
    ),
)
def test_simple_fractions_are_sure(text: str, declared: set[Primitive]) -> None:
    base, pattern = simple_fractions(declared)
    assert not re.match(pattern, text) or declared_base(text, declared) == base


def _digits(text: str) -> int:
    """The number of significant digits that were written."""
    return len(text.lower().partition("e")[0].replace(".", "").strip("-").strip("0"))


def _is_printed(value: float, digits: int, written: Fraction) -> bool:
    """True if the number printed at so many digits is what was written, rounding a tie up or down."""
    ways = [ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_HALF_DOWN]
    return any(
        Fraction(Context(prec=digits or 1, rounding=way).create_decimal_from_float(value)) == written
        for way in ways
    )


@given(NUMBERS)
@example("5.960464477539063e-08")
@example("1e-310")
def test_every_number_reads_back_from_its_type(text: str) -> None:
    base, written = base_of(text), Fraction(Decimal(text))
    if base == LONG:
        assert -(2**63) <= written < 2**63
    elif base.name == "decimal":
        precision, scale = base.args
        assert (written * 10**scale).denominator == 1
        assert abs(written * 10**scale) < 10**precision
    elif base == DOUBLE:
        digits = _digits(text)
        assert digits <= 17
        assert _is_printed(float(text), digits, written)


@given(
    NUMBERS,
    st.sets(st.sampled_from([INT, FLOAT, LONG, DOUBLE, decimal(9, 2), decimal(20, 0), decimal(38, 18)])),
)
def test_every_number_reads_back_from_a_declared_type(text: str, declared: set[Primitive]) -> None:
    base, written = declared_base(text, declared), Fraction(Decimal(text))
    if base == INT:
        assert -(2**31) <= written < 2**31
    elif base == FLOAT:
        (value,) = struct.unpack("f", struct.pack("f", float(text)))
        assert (
            Fraction(Decimal(f"{value:.{max(_digits(text), 1) - 1}e}")) == written
            or Fraction(value) == written
        )
    elif base.name == "decimal":
        assert (written * 10 ** base.args[1]).denominator == 1


@given(st.lists(st.lists(NUMBERS, max_size=3), max_size=5))
def test_lines_are_doubtful_that_hold_more_than_longs_and_doubles(rows: list[list[str]]) -> None:
    lines = [f'{{"1.5e-300": "x", "a": [{", ".join(row)}]}}'.encode() for row in rows]
    found = doubtful(lines)
    for i, row in enumerate(rows):
        fractions = [n for n in row if set(n) & set(".eE")]
        if i in found:
            assert any(base_of(n) != DOUBLE or len(n) >= 40 for n in fractions)
        else:
            assert all(base_of(n) == DOUBLE or abs(float(n)) >= HUGE for n in fractions)


def test_texts_that_look_like_numbers() -> None:
    assert doubtful([b'{"v": "1.2.345678901"}', b"", b'{"v": ["a:1.123456789-", 1]}', b"1e-9"]) == []
    assert doubtful([b"", b'{"v": 0.1234567890123456789}', b'{"v":1e-400}']) == [1, 2]
