"""Values of fields that a person has folded into one type, by both roads of conversion."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.random_steps import Json, Typed
from core.shapes import schema as written
from core.table_in_memory import TableInMemory, plain_rows
from core.test_convert_sound import plain
from driftline.core.settings.properties import as_properties, from_properties, resolved_as
from driftline.verify.match import differences
from driftline.verify.matching_key import TableStruct
from driftline.verify.moments import takes_offsets, written_dates
from driftline.verify.values import ValueSettings


def properties_of(path: str, to: str, **others: str) -> dict[str, str]:
    """The properties of a table one of whose fields was resolved."""
    return as_properties(others) | resolved_as(tuple(path.split(".")), to, {})


def rows_of(columns: str, properties: dict[str, str], *values: Any) -> list[dict[str, Any]]:
    """The rows of records with these values of `a`, as two roads make them and `verify` finds them."""
    table = TableInMemory(from_properties(properties), written(columns))
    table.take(Json(tuple({"a": value} for value in values)))
    rows = plain_rows(table.rows[-1])
    of_verify = ValueSettings(
        offsets=takes_offsets(properties), resolved=True, patterns=written_dates(properties)
    )
    struct = TableStruct.of(table.schema.struct)
    for row, source in zip(plain(table.rows[-1], table.schema.struct), table.sources, strict=True):
        assert differences(struct, row, source.for_verify, of_verify) == []
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


@pytest.mark.parametrize(
    ("to", "columns", "value", "row"),
    [
        ("double", "a: double", "12.50", {"a": 12.5}),
        ("double", "a: double", "7", {"a": 7.0}),
        ("double", "a: double", 7, {"a": 7.0}),
        ("double", "a: double", "9007199254740993", {"a_string": "9007199254740993"}),
        ("double", "a: double", "12,50", {"a_string": "12,50"}),
        ("double", "a: double, a_string@a: string", "12.50", {"a": 12.5, "a_string": "12.50"}),
        ("double", "a: double, a_string@a: string", "12,50", {"a_string": "12,50"}),
        ("long", "a: long", "-12", {"a": -12}),
        ("long", "a: long", "12.0", {"a_string": "12.0"}),
        ("long", "a: long", "007", {"a_string": "007"}),
        ("long", "a: long", " 7", {"a_string": " 7"}),
        ("long", "a: long", "9223372036854775808", {"a_string": "9223372036854775808"}),
        ("int", "a: int", "2147483647", {"a": 2147483647}),
        ("int", "a: int", "2147483648", {"a_string": "2147483648"}),
        ("float", "a: float", "0.1", {"a": pytest.approx(0.1)}),
        ("float", "a: float", "0.123456789", {"a_string": "0.123456789"}),
        ("decimal(9,2)", "a: decimal(9,2)", "12.50", {"a": Decimal("12.50")}),
        ("decimal(9,2)", "a: decimal(9,2)", "1.255", {"a_string": "1.255"}),
        ("decimal(9,2)", "a: decimal(9,2), a_double@a: double", 6, {"a": Decimal("6.00"), "a_double": 6.0}),
        ("boolean", "a: boolean", "true", {"a": True}),
        ("boolean", "a: boolean", "True", {"a_string": "True"}),
        ("boolean", "a: boolean, a_string@a: string", "true", {"a": True, "a_string": "true"}),
        ("string", "a: string", 12.5, {"a": "12.5"}),
        ("string", "a: string", True, {"a": "true"}),
        ("array<long>", "a: long[1]", ["1", 2], {"a": [1, 2]}),
        ("array<long>", "a: long[1]", "3", {"a": [3]}),
        ("array<long>", "a: long[1]", ["1", "x"], {"a": [1, None], "a_array_string": ["1", "x"]}),
        ("date('dd.MM.yyyy')", "a: date", "01.03.2026", {"a": date(2026, 3, 1)}),
        ("date('dd.MM.yyyy')", "a: date", "2026-03-01", {"a": date(2026, 3, 1)}),
        ("date('dd.MM.yyyy')", "a: date", "30.02.2026", {"a_string": "30.02.2026"}),
        (
            "timestamptz",
            "a: timestamp",
            "2026-03-01T12:00:00+02:00",
            {"a": datetime(2026, 3, 1, 10, tzinfo=UTC)},
        ),
    ],
)
def test_value_that_is_exact_in_the_resolved_column_goes_there(
    to: str, columns: str, value: Any, row: dict[str, Any]
) -> None:
    assert rows_of(columns, properties_of("a", to), value) == [row]


VALUES = st.sampled_from(
    [None, True, 7, -3, 0.25, 2**53 + 1, 1.255, "7", "12.50", "007", "x", "true", "1e400", "-0", "-0.0", "2026-03-01", [], ["7"], {"b": "7"}]
)  # fmt: skip


@given(
    values=st.lists(VALUES, min_size=1, max_size=6),
    to=st.sampled_from(["long", "double", "decimal(9,2)", "boolean", "string", "array<double>", "date"]),
    batches=st.integers(1, 3),
)
def test_batches_after_a_resolve_hold_every_value_by_both_roads(
    values: list[Any], to: str, batches: int
) -> None:
    column = "double[1]" if to == "array<double>" else to
    table = TableInMemory(from_properties(properties_of("a", to)), written(f"a: {column}"))
    for start in range(batches):
        if batch := values[start::batches]:
            table.take(Json([{"a": value} for value in batch]))
    struct, of_verify = TableStruct.of(table.schema.struct), ValueSettings(resolved=True)
    rows = [row for batch in table.rows for row in plain(batch, table.schema.struct)]
    for row, source in zip(rows, table.sources, strict=True):
        assert differences(struct, row, source.for_verify, of_verify) == []


def test_nested_field_and_values_of_a_map_are_read_as_they_were_resolved() -> None:
    properties = properties_of("l.q", "long") | properties_of("m", "map<string, double>")
    table = TableInMemory(from_properties(properties), written("l: {q: long}[1], m: map<string, double>"))
    table.take(Json([{"l": [{"q": "3"}, {"q": "x"}], "m": {"1": "2.5", "2": 4}}]))
    assert plain_rows(table.rows[0]) == [
        {"l": [{"q": 3, "q_string": "3"}, {"q": None, "q_string": "x"}], "m": {"1": 2.5, "2": 4.0}}
    ]


TEXTS = st.sampled_from([None, "7", "12.50", "007", "x", "-0.0", "9007199254740993", "true", ""])
RECORDS = st.none() | st.fixed_dictionaries({"q": TEXTS, "r": st.sampled_from([None, 1])})
NESTED = written(
    "q: string, s: {q: string, r: long}, l: {q: string, r: long}[1], d: {l: {q: string, r: long}[2]}"
)


@pytest.mark.parametrize("siblings", [False, True])
@given(
    records=st.lists(
        st.fixed_dictionaries(
            {
                "q": TEXTS,
                "s": RECORDS,
                "l": st.none() | st.lists(RECORDS, max_size=3),
                "d": st.none()
                | st.fixed_dictionaries({"l": st.lists(st.lists(RECORDS, max_size=2), max_size=2)}),
            }
        ),
        min_size=1,
        max_size=4,
    ),
    to=st.sampled_from(["long", "double", "decimal(9,2)", "boolean"]),
)
@settings(max_examples=25)
def test_declared_texts_inside_structs_and_lists_are_read_as_those_of_json(
    siblings: bool, records: list[dict[str, Any]], to: str
) -> None:
    # JSON's numbers go by their own type where the folded one has no room for their digits.
    assume(to != "decimal(9,2)" or "9007199254740993" not in str(records))
    paths = ("q", "s.q", "l.q", "d.l.q")
    properties = {name: text for path in paths for name, text in properties_of(path, to).items()}
    column = f"q: {to}" + ", q_string@q: string" * siblings
    columns = (
        f"{column}, s: {{{column}, r: long}}, l: {{{column}, r: long}}[1], d: {{l: {{{column}, r: long}}[2]}}"
    )
    tables = [TableInMemory(from_properties(properties), written(columns)) for _ in range(2)]
    tables[0].take(Typed(NESTED.struct, records))
    tables[1].take(Json(tuple(records)))
    held = [
        [compared(row, siblings) for row in plain(table.rows[0], table.schema.struct)] for table in tables
    ]
    assert held[0] == held[1]


def compared(value: Any, siblings: bool) -> Any:
    """The value without members that are null, as a batch of JSON makes no column for them.

    A column of texts that the batch makes has all values of its field, as each road prints them.
    """
    if isinstance(value, list):
        return [compared(item, siblings) for item in value]
    if not isinstance(value, dict):
        return value
    held = {key: compared(item, siblings) for key, item in value.items() if item is not None}
    return {key: item for key, item in held.items() if siblings or key != "q_string" or "q" not in held}


def test_signs_of_the_table_are_those_of_texts() -> None:
    properties = properties_of("a", "double", thousands=".")
    table = TableInMemory(from_properties(properties), written("a: double, a_string@a: string"))
    table.take(Json([{"a": "1.234,50"}, {"a": "1.5"}, {"a": 1.5}]))
    assert plain_rows(table.rows[0]) == [
        {"a": 1234.5, "a_string": "1.234,50"},
        {"a": None, "a_string": "1.5"},
        {"a": 1.5, "a_string": "1.5"},
    ]


@pytest.mark.parametrize(
    "properties",
    [
        as_properties({"hints": {"a": "double"}}),
        properties_of("a", "double") | as_properties({"hints": {"a": "long"}}),
    ],
)
def test_hint_alone_does_not_read_texts(properties: dict[str, str]) -> None:
    assert "a_string" in rows_of("a: double", properties, "12.5")[0]


def test_field_of_the_key_keeps_texts_and_numbers_apart() -> None:
    settings = from_properties(properties_of("a", "long", key="a"))
    assert settings.fields.of("a").texts is None
    assert settings.fields.of("b").texts is None
