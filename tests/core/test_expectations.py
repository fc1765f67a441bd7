"""Expectations: conditions against SQLite's answers, and settings that declare them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driftline.convert.types import arrow_type
from driftline.core.planning.planner import plan
from driftline.core.schema.types import (
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Field,
    Schema,
    SourceLocation,
    Struct,
    decimal,
)
from driftline.core.settings.condition import Expectation, IsNull, Negation
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.row_key import parse_condition
from driftline.core.settings.table import TableSettings
from driftline.core.values import RefusedText, parse
from driftline.errors import UsageError
from driftline.keys.filling import holds, record_test
from driftline.observe.expect import expect
from driftline.observe.observation import Tally, Violations
from driftline.readers.expectations import ExpectationCheck
from driftline.readers.json.rows import JsonRows, LineTask, Run
from driftline.readers.rejects import Origin, Reject
from driftline.readers.task import AdmissionTerms

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


def checked(
    settings: Mapping[str, str], records: Sequence[Mapping[str, Any]]
) -> tuple[list[str | None], dict[str, Violations]]:
    """Hold records against expectations: the reason for which each is set aside, and the counts."""
    expectations = from_properties(as_properties({"expect": settings})).expect
    check = ExpectationCheck(expectations)
    kept = check.lines(list(map(as_json, records)), None, "a.jsonl", 1)
    reasons = [str(line.why) if isinstance(line, RefusedText) else None for line in kept]
    return reasons, check.drain()


FIVE = {
    "a": "price >= 0 else quarantine",
    "b": "price < 100 else quarantine",
    "c": "name is not null else quarantine",
    "d": "price >= 0",
    "e": "name like 'n%' or price > 5",
}
OVERLAPPING: list[dict[str, Any]] = [
    {"price": 1, "name": "n"},
    {"price": -1, "name": None},  # a, c and d
    {"price": 200},  # b and c
    {"price": 0.0},
    {"name": "x", "price": 2},  # e alone
    {"price": "-1", "name": "n"},
    {"price": [-1], "name": "n"},
    {"price": True, "name": "x"},
    {"price": -1e-400, "name": "n"},
]


def test_a_record_is_set_aside_once_and_warnings_count_all() -> None:
    lines = list(map(as_json, OVERLAPPING))
    lines[-1] = b'{"price": -1e-400, "name": "n"}'  # to a double it is 0
    check = ExpectationCheck(from_properties(as_properties({"expect": FIVE})).expect)
    kept = check.lines(lines, None, "a.jsonl", 1)
    reasons = [str(line.why) if isinstance(line, RefusedText) else None for line in kept]

    assert reasons == [None, "expect a", "expect b", "expect c", None, None, None, None, "expect a"]
    counts = {name: (part.count, part.location.line, part.sample) for name, part in check.drain().items()}
    assert counts == {
        "a": (2, 2, '{"price": -1}'),
        "b": (1, 3, '{"price": 200}'),
        "c": (1, 4, "{}"),
        "d": (2, 2, '{"price": -1}'),
        "e": (1, 5, '{"name": "x", "price": 2}'),
    }
    assert check.drain() == {}


@pytest.mark.slow
@given(
    st.lists(OF_NUMBERS | OF_TEXTS, min_size=1, max_size=5),
    st.lists(
        st.fixed_dictionaries(
            {}, optional=dict.fromkeys(FIELDS, st.none() | NUMBERS | TEXTS | st.just([1]) | st.booleans())
        ),
        max_size=6,
    ),
)
@example(["a in ('b')", "a like 'a%'"], [{"a": "a"}, {"a": "b"}])
@example(["a like 'b%'", "a in ('b')"], [{"a": "a"}, {"a": "b"}])
@example(["a in ('a', 'b')", "a in ('b', 'c')"], [{"a": "a"}, {"a": "b"}, {"a": 1}])
@example(["a in ('a')", "a in ('b')", "a > 1"], [{"a": "a"}, {"a": "b"}, {"a": 2}])
@example(["a in ('\ud800', 'a')"], [{"a": "a"}, {"a": "b"}])
@example(
    ["a like 'b%'", "b > 0"], [{"a": "b", "b": 1}, {"a": "x", "b": -1}, {"a": 1}, {"a": "x\n", "b": 1}, {}]
)
@example(["a > 0.5 and a < 2", "b is not null"], [{"a": 1, "b": 1}, {"a": 0.5, "b": 2}, {"a": 2}])
def test_lines_are_held_against_all_expectations_however_they_are_read(
    conditions: list[str], records: list[dict[str, Any]]
) -> None:
    """A decoder passes over lines that meet expectations for certain; it must pass over no other."""
    expected = {f"e{n}": f"{condition} else quarantine" for n, condition in enumerate(conditions)}
    tests = [record_test(parse_condition(condition)) for condition in conditions]

    reasons, violations = checked(expected, records)

    firsts = [
        next((n for n, test in enumerate(tests) if test(record) is False), None)
        for record in map(parse, map(as_json, records))
    ]
    assert reasons == [None if first is None else f"expect e{first}" for first in firsts]
    assert {name: part.count for name, part in violations.items()} == {
        f"e{n}": firsts.count(n) for n in set(firsts) if n is not None
    }


def in_task(
    settings: TableSettings, lines: Sequence[bytes], make: JsonRows | None = None
) -> tuple[Any, dict[int, str], list[Any]]:
    """Run lines in a task: what it observed, the reasons of rejects by line, and the rows by line."""
    known = expect(Schema(), settings)
    task, refused = LineTask.of(AdmissionTerms(known, settings), make), dict[int, str]()

    def reject(place: int, why: Any) -> Reject:
        refused[place] = str(why)
        return Reject(Origin("a.jsonl", 1 + place), lines[place], why)

    accepted, rejects = task.observe([Run(lines, "a.jsonl", 1, reject)])
    assert len(rejects or ()) == len(refused)
    made = [] if make is None else list(task.convert(accepted))
    rows = [
        (places[row], batch.slice(row, 1).to_pylist()) for batch, places in made for row in range(len(batch))
    ]
    observed = task.observed()
    # A sample has the fields that were asked for together.
    counts = {name: replace(part, sample="") for name, part in observed.tally.violations.items()}
    return (
        replace(observed, tally=replace(observed.tally, violations=counts)),
        refused,
        sorted(rows, key=itemgetter(0)),
    )


DRIFTING_RECORDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "a": st.none() | NUMBERS | st.sampled_from([1e300, 2**60]),
        "b": st.none() | TEXTS | st.sampled_from(["2026-01-01", "\ud800"]),
        "c": st.fixed_dictionaries({}, optional={"a": st.none() | st.booleans(), "b": NUMBERS | st.just([])}),
    },
) | st.fixed_dictionaries({}, optional={"a": TEXTS, "b": st.just([1]), "c": st.just("x")})
INSIDE = st.sampled_from(
    ["c.b >= 1", "c.a = true", "c.a is not null", "c.b is null", "c.b between 0 and 1.5"]
)
AT_DATES = st.sampled_from(
    ["b < timestamp '2026-06-01 00:00:00'", "b >= date '2026-01-01' and a > 1", "b is not null"]
)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(OF_NUMBERS | OF_TEXTS | INSIDE | AT_DATES, st.sampled_from(["warn", "quarantine"])),
        min_size=1,
        max_size=4,
    ),
    st.lists(DRIFTING_RECORDS.map(as_json), max_size=12),
    st.lists(
        st.sampled_from(
            [b"", b"no record", b'{"a": 0.10000000000000001}', b'{"a": -1e-400}', b'{"a": -0.0, "a": 2}']
        )
    ),
)
@example([("a >= 1", "quarantine"), ("b like 'a%'", "warn")], [b'{"a": 1, "b": "b"}', b'{"a": -1}'], [])
@example([("a <= 0.1", "quarantine")], [b'{"a": 0.1}', b'{"a": 0.5}'], [b'{"a": 0.10000000000000001}'])
@example([("a > 0", "quarantine")], [b'{"a": 1.5}', b'{"a": "x"}', b'{"a": 5e-324}'], [b'{"a": -1e-400}'])
def test_rows_of_a_plan_meet_what_the_lines_would(
    conditions: list[tuple[str, str]], records: list[bytes], others: list[bytes]
) -> None:
    """A task that makes rows asks their columns, where these have the records' values."""
    stated = {f"e{n}": f"{condition} else {action}" for n, (condition, action) in enumerate(conditions)}
    settings = from_properties(as_properties({"expect": stated}))
    lines = [*records, *others, *records]

    observed, refused, _ = in_task(settings, lines)
    planned = plan(Schema(), observed.shape, settings)
    terms = AdmissionTerms(expect(Schema(), settings), settings)
    make = JsonRows.of(planned, planned.schema.struct, terms, observed)
    by_columns = in_task(settings, lines, make)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(JsonRows, "as_written", lambda *_: False)
        by_lines = in_task(settings, lines, make)

    assert by_columns == by_lines
    assert (observed.tally, refused) == (by_columns[0].tally, by_columns[1])


def test_inside_a_record_a_field_is_expected_as_outside() -> None:
    records = [{"a": {"b c": 1}}, {"a": {"b c": None}}, {"a": None}, {}, {"a": 5}, {"a": {"b c": "x"}}]

    reasons, _ = checked({"x": "a.`b c` is not null else quarantine"}, records)
    assert [reason is not None for reason in reasons] == [False, True, True, True, False, False]
    reasons, _ = checked({"x": "a.`b c` < 1 else quarantine"}, records)
    assert [reason is not None for reason in reasons] == [True, False, False, False, False, False]


def test_text_inside_a_record_is_matched_behind_lines_that_no_decoder_takes() -> None:
    records: list[Any] = [{"a": 5}, {"a": {"b": "nb"}}, {"a": {"b": 1}}, {"a": None}, {"a": {"b": "x"}}, {}]

    reasons, violations = checked({"x": "a.b like 'n_' else quarantine"}, records)
    assert reasons == [None, None, None, None, "expect x", None]
    assert violations["x"].location.line == 5


def test_a_line_that_is_no_record_meets_no_expectation_and_misses_none() -> None:
    check = ExpectationCheck(
        from_properties(as_properties({"expect": {"a": "a > 1 else quarantine"}})).expect
    )
    lines = [b"", b"nothing", b'{"a": 0', b'{"a": 0, "b": NaN}', b"[1]", b'{"a": 0, "a": 2}']

    assert check.lines(lines, None, "", 1) == lines
    assert check.drain() == {}


def test_violations_add_up_with_the_first_place() -> None:
    one = Violations(SourceLocation("b", 1), "x", 2)
    other = Violations(SourceLocation("a", 9), "y", 3)

    assert one + other == other + one == Violations(SourceLocation("a", 9), "y", 5)
    both = Tally(violations={"e": one}) + Tally(violations={"e": other, "f": one})
    assert both.violations == {"e": one + other, "f": one}
