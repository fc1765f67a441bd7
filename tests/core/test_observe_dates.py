"""Strings of JSON: dates and timestamps (rule 2.2), uuids and times."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driftline.core.schema.types import DATE, STRING, TIME, TIMESTAMP, TIMESTAMP_NTZ, UUID, Primitive
from driftline.core.values import DATELIKE, declared_string_base, far, fraction, known_pattern, string_base

CASES = {
    DATE: "2024-01-31 2024-02-29 2000-02-29 0001-01-01 9999-12-31 1999-11-30",
    TIMESTAMP: "2024-01-01T00:00:00Z 2024-01-01T23:59:59+00:00 2024-01-01T00:00:00.1Z 2024-01-01T00:00:00.123456+00:00",
    TIMESTAMP_NTZ: "2024-01-01T00:00:00 2024-02-29T12:30:45.000000 0001-01-01T00:00:00",
    STRING: "2023-02-29 1900-02-29 0000-01-01 0000-02-29 2024-00-10 2024-13-01 2024-04-31 2024-01-32 2024-01-00 24-01-01 "
            "2024-1-1 20240131 2024-01-31Z 2024-01-01T24:00:00Z 2024-01-01T00:60:00Z 2024-01-01T00:00:60Z 2024-01-01T00:00Z "
            "2024-01-01T00:00:00. 2024-01-01T00:00:00.1234567Z 2024-01-01T00:00:00+02:00 2024-01-01T00:00:00-00:00 "
            "2024-01-01t00:00:00Z 2024-01-01T00:00:00z 2024-01-01T00:00:00+0000 2024-01-01T00:00:00+00 +2024-01-01 "
            "12024-01-01 \u0662\u0660\u0662\u0664-01-01 2024-01-01T00:00:00,5Z - 2024- 2024-W01-1 2024-01-01T000000Z",
}  # fmt: skip
SPACED = [
    "",
    " 2024-01-31",
    "2024-01-31 ",
    "2024-01-31\n",
    "2024-01-01  00:00:00Z",
    "2024-01-01 00:00",
    "2024-01-01 00:00:00 Z",
    "2024-01-01\t00:00:00",
    "2024-01-01T00:00:00Z\n",
    "2024-01-31\x00",
]


@pytest.mark.parametrize(("base", "text"), [(b, t) for b, texts in CASES.items() for t in texts.split()])
def test_string_base(base: Primitive, text: str) -> None:
    assert string_base(text, "on") == base
    assert string_base(text, "off") == STRING


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("2024-01-01 00:00:00Z", TIMESTAMP),
        ("2024-01-01 00:00:00.5+00:00", TIMESTAMP),
        ("2026-03-01 12:00:00", TIMESTAMP_NTZ),
    ],
)
def test_a_blank_stands_for_the_t(text: str, base: Primitive) -> None:
    assert string_base(text, "on") == base
    assert string_base(text, "off") == STRING


@pytest.mark.parametrize("text", SPACED)
def test_nothing_stands_around_a_date(text: str) -> None:
    assert string_base(text, "instant") == STRING


OFFSETS = {
    TIMESTAMP: "2024-01-01T00:00:00+02:00 2024-01-01T00:00:00.5-18:00 2024-01-01T00:00:00-00:00 0001-01-01T00:00:00Z "
               "9999-12-31T23:59:59+00:00 0002-01-01T00:00:00+18:00 2024-01-01T00:00:00+02 2024-01-01T00:00:00.25-0330 2024-01-01T00:00:00+18",
    STRING: "0001-01-01T00:00:00+01:00 9999-12-31T23:00:00-01:00 2024-01-01T00:00:00+18:01 2024-01-01T00:00:00+2 "
            "2024-01-01T00:00:00+020 2024-01-01T00:00:00+1830 2024-01-01T00:00:00+00:60 2024-01-01T00:00:00+02: "
            "0001-01-01T00:00:00+01 9999-12-31T23:00:00-0100",
}  # fmt: skip


@pytest.mark.parametrize(("base", "text"), [(b, t) for b, texts in OFFSETS.items() for t in texts.split()])
def test_instants_with_an_offset(base: Primitive, text: str) -> None:
    assert string_base(text, "instant") == base


UUID_TEXT = "123e4567-e89b-12d3-a456-426614174000"
DECLARED = [
    (UUID_TEXT, {UUID}, UUID),
    (UUID_TEXT, {UUID, STRING}, UUID),
    (UUID_TEXT, {STRING}, STRING),
    (UUID_TEXT.upper(), {UUID}, STRING),
    ("{" + UUID_TEXT + "}", {UUID}, STRING),
    ("10:30:00", {TIME}, TIME),
    ("10:30:00.5", {TIME, DATE}, TIME),
    ("10:30", {TIME}, STRING),
    ("24:00:00", {TIME}, STRING),
    ("2024-01-31", {TIME, UUID}, DATE),
]


@pytest.mark.parametrize(("text", "declared", "base"), DECLARED)
def test_declared_string_base(text: str, declared: set[Primitive], base: Primitive) -> None:
    assert declared_string_base(text, declared, "on") == base


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("", 0),
        (".0", 0),
        (".000000", 0),
        (".5", 3),
        (".100", 3),
        (".123", 3),
        (".1000", 3),
        (".1234", 6),
        (".000001", 6),
    ],
)
@pytest.mark.parametrize("zone", ["", "Z", "+00:00", "-05:30"])
def test_fraction(text: str, digits: int, zone: str) -> None:
    assert fraction(f"2024-01-01T00:00:00{text}{zone}") == digits


FAR = [
    ("1970-01-01", False), ("1969-12-31", True), ("2199-12-31T23:59:59.999999Z", False), ("2200-01-01T00:00:00", True),
    ("1970-01-01T00:00:00+00:00", False), ("1970-01-01T00:00:00+05:00", True), ("2199-12-31T23:00:00-05:00", True),
    ("1971-01-01T00:00:00+05:00", False), ("1970-01-01T00:00:00+05", True), ("1970-06-01T00:00:00-0330", True), ("2198-12-31T23:00:00.5-05:00", False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), FAR)
def test_far(text: str, expected: bool) -> None:
    assert far(text) is expected


NEARLY = st.builds(
    "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}{}".format,
    st.one_of(st.integers(0, 9999), st.sampled_from([0, 1, 1900, 1969, 1970, 2000, 2199, 2200, 9999])),
    st.integers(0, 13), st.one_of(st.integers(0, 32), st.integers(28, 31)), st.integers(0, 24), st.integers(0, 60),
    st.integers(0, 60), st.sampled_from(["", ".", ".0", ".5", ".123", ".1230", ".123456", ".1234567"]),
    st.sampled_from(["", "Z", "+00:00", "-00:00", "+05:30", "-18:00", "+19:00", "z", "+02", "-0330", "+00"]),
)  # fmt: skip


@given(st.one_of(NEARLY, NEARLY.map(lambda t: t[:10])), st.sampled_from(["on", "instant"]))
@example("1900-02-29", "on")
@example("2400-02-29", "on")
def test_patterns_agree_with_the_calendar_and_with_each_other(text: str, mode: str) -> None:
    base = string_base(text, mode)
    try:
        possible = bool(datetime.fromisoformat(text))
    except ValueError:
        possible = False
    assert base == STRING or possible
    if possible and len(text) == 10:
        assert base == DATE
    if possible and len(text) > 10 and re.fullmatch(r".*T[0-9:]{8}(\.[0-9]{1,6})?(Z|\+00:00)?", text):
        assert base == (TIMESTAMP if text.endswith(("Z", "+00:00")) else TIMESTAMP_NTZ)
    for kind in DATELIKE:
        for digits in (0, 3, 6):
            for beyond in (False, True):
                known = re.fullmatch(known_pattern(kind, digits, beyond, mode), text)
                assert bool(known) == (
                    base == kind and fraction(text) <= digits and (beyond or not far(text))
                )
