"""Expectations: conditions against SQLite's answers, and settings that declare them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driftline.convert.types import arrow_type
from driftline.core.schema.types import (
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Field,
    Struct,
    decimal,
)
from driftline.core.settings.condition import Expectation, IsNull, Negation
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.row_key import parse_condition
from driftline.core.values import parse
from driftline.errors import UsageError
from driftline.keys.filling import holds, record_test

FIELDS = ("a", "b")
# Wholes, fractions that are exact in two and in ten, and the neighbours of literals.
NUMBERS = st.sampled_from([-3, -1, 0, 1, 2, 10, 2**53, 0.5, -0.25, 1.5, 2.75])
TEXTS = st.sampled_from(["", "a", "A", "ab", "aé", "b", "%", "a%", "_", "é", "z\n", "😀", "\uffff"])
PATTERNS = st.sampled_from(["%", "_", "a%", "%b", "_b", "a_", "A%", "%é", "", "__", "%\n", "%%"])
COMPARED = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def comparisons(literals: st.SearchStrategy[str], *more: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Conditions of one comparison of a field."""
    return st.one_of(
        st.builds("{0} {1} {2}".format, st.sampled_from(FIELDS), COMPARED, literals),
        st.builds("{0} between {1} and {2}".format, st.sampled_from(FIELDS), literals, literals),
        st.builds("{0} not between {1} and {2}".format, st.sampled_from(FIELDS), literals, literals),
        st.builds("{0} in ({1}, {2})".format, st.sampled_from(FIELDS), literals, literals),
        st.builds("{0} is null".format, st.sampled_from(FIELDS)),
        st.builds("{0} is not null".format, st.sampled_from(FIELDS)),
        *more,
    )


def conditions(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds("not ({})".format, inner),
            st.builds("({}) and ({})".format, inner, inner),
            st.builds("({}) or ({})".format, inner, inner),
        ),
        max_leaves=6,
    )


LIKES = st.builds(
    "{0} {1} {2}".format, st.sampled_from(FIELDS), st.sampled_from(["like", "not like"]), PATTERNS.map(quoted)
)
OF_NUMBERS = conditions(comparisons(NUMBERS.map(repr)))
OF_TEXTS = conditions(comparisons(TEXTS.map(quoted), LIKES))


def in_sqlite(condition: str, record: Mapping[str, Any]) -> bool | None:
    """Ask SQLite, whose columns without a type keep values as they are."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute("pragma case_sensitive_like = on")
        connection.execute("create table t (a, b)")
        connection.execute("insert into t values (?, ?)", [record.get(name) for name in FIELDS])
        (answer,) = connection.execute(f"select {condition} from t").fetchone()
    connection.close()
    return None if answer is None else bool(answer)


def in_columns(condition: str, record: Mapping[str, Any], type_: Any) -> bool | None:
    """Ask the record as a row of columns of one type."""
    struct = Struct(tuple(Field(name, type_) for name in FIELDS))
    batch = pa.record_batch([pa.array([record.get(name)], arrow_type(type_)) for name in FIELDS], FIELDS)
    answer: bool | None = holds(parse_condition(condition), batch, struct)[0].as_py()
    return answer


@given(OF_NUMBERS, st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, st.none() | NUMBERS)))
@example("a < 9007199254740993", {"a": 2**53})
@example("not (a > 1 and b > 1)", {"a": 0})
def test_numbers_are_compared_as_sqlite_does(condition: str, record: dict[str, Any]) -> None:
    expected = in_sqlite(condition, record)

    assert record_test(parse_condition(condition))(parse(as_json(record))) is expected
    assert in_columns(condition, record, DOUBLE) is expected


@given(OF_TEXTS, st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, st.none() | TEXTS)))
@example("a < '\U0001f600'", {"a": "\uffff"})  # UTF-16 sorts them the other way round
def test_texts_are_compared_as_sqlite_does(condition: str, record: dict[str, Any]) -> None:
    expected = in_sqlite(condition, record)

    assert record_test(parse_condition(condition))(parse(as_json(record))) is expected
    assert in_columns(condition, record, STRING) is expected


def as_json(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record).encode()


EXACT = [
    # literal, type, value, and what the value is: below, at or above the literal
    ("0.1", DOUBLE, 0.1, 0),
    ("0.10000000000000001", DOUBLE, 0.1, -1),
    ("0.09999999999999999", DOUBLE, 0.1, 1),
    ("1e400", DOUBLE, 1.7e308, -1),
    ("1e400", DOUBLE, float("inf"), 1),
    ("-1e400", LONG, -(2**63), 1),
    ("9223372036854775807.5", LONG, 2**63 - 1, -1),
    ("-9223372036854775808", LONG, -(2**63), 0),
    ("-9223372036854775808.5", LONG, -(2**63), 1),
    ("2.5", INT, 2, -1),
    ("-2.5", INT, -2, 1),
    ("9007199254740993", LONG, 2**53 + 1, 0),
    ("1.005", decimal(5, 2), Decimal("1.00"), -1),
    ("1.005", decimal(5, 2), Decimal("1.01"), 1),
    ("-1.005", decimal(5, 2), Decimal("-1.01"), -1),
    ("999.99", decimal(5, 2), Decimal("999.99"), 0),
    ("1000", decimal(5, 2), Decimal("999.99"), -1),
    ("-1000", decimal(5, 2), Decimal("-999.99"), 1),
]


@pytest.mark.parametrize(("literal", "type_", "value", "sign"), EXACT)
def test_numbers_are_compared_exactly(literal: str, type_: Any, value: Any, sign: int) -> None:
    answers = {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}

    assert {sign: in_columns(f"a {sign} {literal}", {"a": value}, type_) for sign in answers} == answers


def test_nan_is_unknown() -> None:
    assert in_columns("a >= 0", {"a": float("nan")}, DOUBLE) is None


MOMENTS = [
    (DATE, date(2026, 1, 1), "2026-01-01"),
    (TIMESTAMP, datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
    (TIMESTAMP_NTZ, datetime(2026, 1, 1), "2026-01-01 00:00:00"),
    (STRING, "2026-01-01T02:00:00+02:00", "2026-01-01T02:00:00+02:00"),
]


@pytest.mark.parametrize(("type_", "value", "text"), MOMENTS, ids=[str(case[0]) for case in MOMENTS])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a >= date '2026-01-01'", True),
        ("a > date '2026-01-01'", False),
        ("a = date '2026-01-01'", True),
        ("a != timestamp '2026-01-01 01:00:00+01:00'", False),
        ("a < timestamp '2026-01-01 00:00:00.000001'", True),
        ("a in (date '2025-01-01', date '2026-01-01')", True),
        ("a > 5", None),
    ],
)
def test_dates_and_texts_that_spell_one_are_compared_by_time(
    condition: str, expected: bool | None, type_: Any, value: Any, text: str
) -> None:
    assert in_columns(condition, {"a": value}, type_) is expected
    assert record_test(parse_condition(condition))({"a": text}) is expected


def test_a_text_that_is_no_date_is_unknown() -> None:
    for text in ("soon", "2026-1-1", "2026-02-30", 20260101):
        assert record_test(parse_condition("a >= date '2026-01-01'"))({"a": text}) is None


DRIFTING = [
    ({"price": 5}, True),
    ({"price": -1}, False),
    ({"price": "-1"}, None),
    ({"price": [-1]}, None),
    ({"price": {"amount": -1}}, None),
    ({"price": True}, None),
    ({"price": None}, None),
    ({}, None),
]


def test_a_field_that_drifts_gets_the_same_answer_beside_its_siblings() -> None:
    asks = record_test(parse_condition("price >= 0"))
    together = Struct((Field("price", LONG), Field("price", STRING)))
    batch = pa.record_batch(
        [pa.array([5, -1, None], pa.int64()), pa.array([None, None, "-1"])], ["price"] * 2
    )

    assert [asks(record) for record, _ in DRIFTING] == [expected for _, expected in DRIFTING]
    assert holds(parse_condition("price >= 0"), batch, together).to_pylist() == [True, False, None]


def test_expectations_are_settings_by_name_which_stay_and_can_be_removed() -> None:
    stated = as_properties({"expect": {"price": "price >= 0 ELSE Quarantine", "named": "name is not null"}})
    settings = from_properties(stated)

    assert stated["driftline.expect.price"] == "price >= 0 ELSE Quarantine"
    assert [(e.name, e.action, e.reason) for e in settings.expect] == [
        ("named", "warn", "expect named"),
        ("price", "quarantine", "expect price"),
    ]
    assert settings.expect[0] == Expectation("named", Negation(IsNull(("name",))), "warn")
    assert from_properties({**stated, **as_properties({"expect.price": ""})}).expect == settings.expect[:1]


def test_else_in_a_text_is_no_action() -> None:
    (expectation,) = from_properties(as_properties({"expect.a": "a != ' else warn' else fail"})).expect

    assert expectation.action == "fail"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"expect.a.b": "a > 1"}, "expect.a.b: 'a.b' does not name an expectation: a name has"),
        ({"expect.1": "a > 1"}, "'1' does not name an expectation"),
        ({"expect.x": "a > 1 else drop"}, "expect.x: 'drop' does not follow else: warn, quarantine, fail do"),
        ({"expect.x": "a > 1 else"}, r"unexpected token at 'else' \(column 7\)"),
        ({"expect.x": "a > b"}, r"expect.x: b is nothing to compare with: .* \(column 5\)"),
        ({"expect.x": "else warn"}, "is not a condition"),
        ({"expect": "a > 1"}, "there is no setting 'expect'"),
    ],
)
def test_an_expectation_that_cannot_be_read_says_why(settings: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        as_properties(settings)
