"""Which columns came with drift, and which of them may go once no row has a value in them."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from driftline.core.columns.unused import drift_columns, droppable
from driftline.core.schema.definition import Definition, SortField
from driftline.core.schema.naming import mark
from driftline.core.schema.types import (
    DATE,
    DOUBLE,
    LONG,
    STRING,
    Field,
    List,
    Map,
    Schema,
    Struct,
    Type,
    decimal,
    dotted,
)
from driftline.core.settings.properties import from_properties

_ids = count(1)


def column(name: str, type_: Type = LONG, of: str = "", comment: str = "") -> Field:
    doc = "\n".join(filter(None, (mark(of) if of else "", comment)))
    return Field(name, type_, next(_ids), doc=doc or None)


def numbered(*columns: Field) -> Schema:
    return Schema(Struct(columns))


def outcome(schema: Schema, **properties: str) -> dict[str, str]:
    """The columns that came with drift, each with the reason that it stays."""
    named = {f"driftline.{key.replace('__', '.')}": text for key, text in properties.items()}
    definition = Definition(schema, properties=named)
    return {dotted(c.path): c.needed for c in drift_columns(definition, from_properties(named), {})}


OPEN = (column("words", Struct((column("n"), column("n_string", STRING, of="n")))),)
CLOSED = (
    column("by_day", Struct((column("2026-01-01"), column("2026-01-02", Struct((column("deep"),)))))),
    column("by_day_map_long", Map(STRING, LONG), of="by_day"),
)
APART = (
    column("mixed", Struct((column("name", STRING), column("2026-01-01")))),
    column("mixed_map_long", Map(STRING, LONG), of="mixed"),
)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        pytest.param([column("a"), column("a_string", STRING, of="a")], {"a_string": ""}, id="a sibling"),
        pytest.param([column("ID_long", of="ID"), column("id", STRING)], {}, id="a field's only column"),
        pytest.param(
            [column("a_date", DATE, of="a"), column("a_string", STRING, of="a")],
            {"a_string": ""},
            id="all but the first of a field whose natural column is gone",
        ),
        pytest.param([column("a"), column("text", STRING, of="a")], {}, id="none that was renamed"),
        pytest.param(
            [column("a"), column("a_string_2", STRING, of="a")], {"a_string_2": ""}, id="a taken name"
        ),
        pytest.param([column("a", STRING), column("a_int", LONG, of="a")], {"a_int": ""}, id="a widened one"),
        pytest.param(
            [column("a", STRING), column("a_decimal_5_2", decimal(9, 2), of="a")],
            {"a_decimal_5_2": ""},
            id="a widened decimal",
        ),
        pytest.param(
            [column("a"), column("a_string", STRING, of="a", comment="by hand")],
            {"a_string": "it has a comment"},
            id="one with a comment",
        ),
        pytest.param(
            [column("a"), replace(column("a_double", DOUBLE, of="a"), write_default=1.5)],
            {"a_double": "it has a default"},
            id="one with a default",
        ),
        pytest.param(OPEN, {"words.n_string": ""}, id="one in a struct"),
        pytest.param(
            [column("l", List(Struct((column("n"), column("n_string", STRING, of="n")))))],
            {"l.element.n_string": ""},
            id="one in a list",
        ),
        pytest.param(
            CLOSED,
            {"by_day.2026-01-01": "", "by_day.2026-01-02": "", "by_day.2026-01-02.deep": ""},
            id="fields of a closed struct, and not the map beside it",
        ),
        pytest.param(APART, {"mixed.2026-01-01": ""}, id="words stay open to more"),
        pytest.param(
            [column("m", Map(STRING, LONG)), column("m_map_string", Map(STRING, STRING), of="m")],
            {"m_map_string": ""},
            id="a map's sibling",
        ),
    ],
)
def test_columns_of_drift_are_siblings_and_fields_of_closed_structs(
    columns: list[Field], expected: dict[str, str]
) -> None:
    assert outcome(numbered(*columns)) == expected


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"key": "a"}, "the table knows its rows by it"),
        ({"key": "b", "order_by": "a"}, "the table knows its rows by it"),
        ({"hints__a": "string"}, "a hint declares it"),
        ({"hints__a": "long"}, ""),
        ({"policies__a": "strict"}, "the policy strict would not make it again"),
        ({"policy": "widen"}, "the policy widen would not make it again"),
    ],
)
def test_a_sibling_stays_that_a_setting_needs(properties: dict[str, str], reason: str) -> None:
    schema = numbered(column("a"), column("a_string", STRING, of="a"), column("b"))
    named = {key.replace("order_by", "order-by"): text for key, text in properties.items()}
    assert outcome(schema, **named) == {"a_string": reason}


def test_a_sibling_stays_that_the_sort_order_or_another_reason_needs() -> None:
    schema = numbered(column("a"), column("a_string", STRING, of="a"), *OPEN)
    sibling, inside = (schema.find(path) for path in (("a_string",), ("words", "n_string")))
    assert sibling is not None and inside is not None
    definition = Definition(schema, sort=(SortField(sibling.id),))
    columns = drift_columns(definition, from_properties({}), {inside.id: "someone reads it"})
    assert [c.needed for c in columns] == ["the sort order is made of it", "someone reads it"]


def test_of_a_struct_whose_fields_could_all_go_the_first_stays_and_what_is_inside_goes_along() -> None:
    schema = numbered(*CLOSED)
    columns = drift_columns(Definition(schema), from_properties({}), {})
    assert [dotted(c.path) for c in droppable(schema, columns)] == ["by_day.2026-01-02"]
    assert [dotted(c.path) for c in droppable(schema, columns[2:])] == []
    assert [dotted(c.path) for c in droppable(schema, columns[:1])] == ["by_day.2026-01-01"]
