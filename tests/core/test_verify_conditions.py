"""Expectations as the check asks them, by its own code: against SQLite, the road's answers, and by file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.shapes import schema
from core.test_expectations import DRIFTING, FIELDS, NUMBERS, OF_NUMBERS, OF_TEXTS, TEXTS, in_sqlite
from driftline.core.schema.naming import MARK
from driftline.core.schema.schema_json import to_json
from driftline.core.settings.condition import Expectation
from driftline.core.settings.row_key import parse_condition
from driftline.core.values import parse as parsed
from driftline.keys.filling import record_test
from driftline.verify.comparison import LEFT, Comparison, Terms
from driftline.verify.conditions import ConditionReader, ExpectedRecords
from driftline.verify.files import Read, SourcePlace
from driftline.verify.json_texts import parse
from driftline.verify.match import Copies, not_quarantined
from driftline.verify.matching_key import TableStruct
from driftline.verify.moments import FarMoment
from driftline.verify.values import Cell, Single, ValueSettings


def answer(condition: str, record: Mapping[str, Any], columns: str = "a: double") -> bool | None:
    struct = TableStruct.of(schema(columns).struct)
    return ConditionReader.of(parse_condition(condition), struct, ValueSettings()).holds(record)


@given(OF_NUMBERS, st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, st.none() | NUMBERS)))
@example("a < 9007199254740993", {"a": 2**53})
@example("not (a > 1 and b > 1)", {"a": 0})
def test_numbers_are_compared_as_sqlite_does(condition: str, record: dict[str, Any]) -> None:
    assert answer(condition, parse(json.dumps(record).encode())) is in_sqlite(condition, record)


@given(OF_TEXTS, st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, st.none() | TEXTS)))
@example("a < '\U0001f600'", {"a": "\uffff"})  # UTF-16 sorts them the other way round
def test_texts_are_compared_as_sqlite_does(condition: str, record: dict[str, Any]) -> None:
    assert answer(condition, parse(json.dumps(record).encode())) is in_sqlite(condition, record)


ASKED = [
    "a >= 0", "a < 1.0000000000000000001", "a = 7", "a != '7'", "a > '2026'", "a like '2026-%'",
    "a >= date '2026-01-01'", "a < timestamp '2026-01-01 00:00:00.5'", "a = date '2026-01-01'", "a is null",
    "a between date '2025-12-31' and date '2026-01-01'", r"a like '%\%_'", "not a like '_'",
]  # fmt: skip
VALUES = [
    "0", "-0.0", "7", "7.00", "1.0000000000000000001", "1e400", "-1e-400", "null", "true", "[7]", "{}",
    '"7"', '"2026-01-01"', '"2026-01-01T00:00:00Z"', '"2026-01-01 00:00:00.25"', '"2026-01-01T02:00:00+02:00"',
    '"2026-1-1"', '"2026-02-30"', '"10000-01-01"', '"50%!"', '"50%"', r'"\n"', '"\u00e9"', '"\U0001f600"',
]  # fmt: skip


@pytest.mark.parametrize("condition", ASKED)
def test_answer_is_that_of_the_road(condition: str) -> None:
    asks = record_test(parse_condition(condition))
    lines = [b'{"a": %s}' % value.encode() for value in VALUES]

    assert [answer(condition, parse(line)) for line in lines] == [asks(parsed(line)) for line in lines]


@pytest.mark.parametrize(("record", "expected"), DRIFTING)
def test_field_that_drifts_gets_the_same_answer_beside_its_siblings(
    record: dict[str, Any], expected: bool | None
) -> None:
    for columns in ("price: long", "price: string", "price: double, price_string@price: string"):
        assert answer("price >= 0", record, columns) is expected


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ("a > 0.1", Single(0.1), False),
        ("a > 0.1", 0.1, False),
        ("a >= 0", float("nan"), None),
        ("a < 1e400", float("inf"), False),
        ("a = 1.50", Decimal("1.5"), True),
        ("a >= date '2026-01-01'", date(2026, 1, 1), True),
        ("a > timestamp '2026-01-01 00:00:00'", datetime(2026, 1, 1, tzinfo=UTC), False),
        ("a > timestamp '2026-01-01 00:00:00'", FarMoment("date", 10**7), True),
        ("a >= '2026-01-01'", date(2026, 1, 1), True),
        ("a >= 0", b"1", None),
        ("a >= 0", Cell("7"), True),
        ("a >= 0", Cell("007"), None),
        ("a >= date '2026-01-01'", Cell("2026-01-01"), True),
    ],
)
def test_typed_values_and_cells_are_compared_by_their_kind(
    condition: str, value: Any, expected: bool | None
) -> None:
    assert answer(condition, {"a": value}) is expected


PRICE = Expectation("price", parse_condition("price >= 0"), "quarantine")
GOOD, BAD, UNKNOWN = '{"id": 1, "price": 2}', '{"id": 2, "price": -2}', '{"id": 3, "price": "-2"}'
ROWS = {GOOD: {"id": 1, "price": 2}, BAD: {"id": 2, "price": -2}, UNKNOWN: {"id": 3, "price_string": "-2"}}
NOT_THERE = "it does not meet the expectation price, and is not in quarantine"


def differences(
    comparison: Comparison, reads: Sequence[Read], rows: Sequence[str], waiting: Sequence[tuple[str, bool]]
) -> Iterator[tuple[int, str]]:
    """The lines of records that are missing, each with the reason, by what tasks do."""
    judged = ExpectedRecords([PRICE], frozenset({"new"})).judged(comparison.meeting, reads)
    keyed = [*comparison.keyed_records(judged), *comparison.keyed_rows([ROWS[line] for line in rows])]
    copies: dict[bytes, Copies] = {}
    for text, n in comparison.keyed_raw((line.encode(), unmet) for line, unmet in waiting):
        copies[text] = copies.get(text, Copies()) + n
    for kind, left in comparison.compared(sorted(keyed, key=itemgetter(0))):
        if kind == LEFT:
            text, missing = left
            yield from ((x.place.line, x.why) for x in not_quarantined((text, (missing, copies.get(text)))))


@pytest.mark.parametrize(
    ("file", "rows", "waiting", "found"),
    [
        ("new", [GOOD, UNKNOWN], [(BAD, True)], []),
        ("new", [GOOD, UNKNOWN], [(BAD, False)], []),
        ("new", [GOOD, BAD, UNKNOWN], [], [(2, NOT_THERE)]),
        ("new", [GOOD, UNKNOWN], [], [(2, NOT_THERE)]),
        ("new", [UNKNOWN], [(GOOD, True), (BAD, True)], [(1, "it waits for an expectation that it meets")]),
        ("new", [GOOD], [(BAD, True), (UNKNOWN, True)], [(3, "it waits for an expectation that it meets")]),
        ("new", [UNKNOWN], [(GOOD, False), (BAD, True)], []),
        # The table took other files before it had the expectation, or does not remember.
        ("old", [GOOD, BAD, UNKNOWN], [], []),
        ("old", [UNKNOWN], [(GOOD, True), (BAD, True)], []),
        ("old", [GOOD, UNKNOWN], [], [(2, "")]),
    ],
)
def test_record_waits_exactly_if_it_does_not_meet_an_expectation(
    file: str, rows: list[str], waiting: list[tuple[str, bool]], found: list[tuple[int, str]]
) -> None:
    columns = schema("id: long, price: long, price_string@price: string")
    terms = Terms(json.dumps(to_json(columns)), MARK, 0, ValueSettings(), "json", (), {}, False)
    reads = [
        Read(SourcePlace(file, 0, number), parse(line.encode()))
        for number, line in enumerate([GOOD, BAD, UNKNOWN], 1)
    ]

    assert list(differences(Comparison.by(terms), reads, rows, waiting)) == found
