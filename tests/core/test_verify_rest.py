"""The check of what is in the rest: each value is there as it was, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from driftline.core.planning.own_columns import REST, element, step, steps
from driftline.core.schema.schema_json import type_text
from driftline.core.schema.types import LONG, STRING, Field, List, Map, Struct
from driftline.verify.json_texts import parse
from driftline.verify.match import differences
from driftline.verify.matching_key import Meeting, Slot, TableStruct
from driftline.verify.values import Single, ValueSettings

COLUMNS = Struct(
    (
        Field("a", LONG),
        Field("items", List(Struct((Field("x", LONG),)))),
        Field("m", Map(STRING, LONG)),
        replace(REST, name="_rest_2"),
    )
)


def apart(row: dict[str, Any], record: Any) -> list[str]:
    if isinstance(record, str):
        record = parse(record.encode())
    return [d.path for d in differences(TableStruct.of(COLUMNS), row, record)]


def keys(row: dict[str, Any], record: Any) -> bool:
    columns = TableStruct.of(COLUMNS)
    meeting = Meeting(columns, Slot.of(COLUMNS, columns), ValueSettings())
    if isinstance(record, str):
        record = parse(record.encode())
    return meeting.of_row(row) == meeting.of_record(record)


@pytest.mark.parametrize(
    ("row", "record"),
    [
        ({"a": 1, "_rest_2": {"b": "1.50"}}, '{"a": 1, "b": 1.5}'),
        ({"a": None, "_rest_2": {"a": '"x"'}}, '{"a": "x"}'),
        ({"items": [{"x": 1}, {"x": None}], "_rest_2": {"items[1].y": "[1]"}}, '{"items": [{"x": 1}, {"y": [1]}]}'),
        ({"_rest_2": {"items[0]": "1", "items[1]": '"x"'}}, '{"items": [1, "x"]}'),
        ({"m": {"k": 1, "l": None}, "_rest_2": {"m.l": '"x"'}}, '{"m": {"k": 1, "l": "x"}}'),
        ({"a": 1, "_rest_2": {"`b.c`.`d e`[0]": "true"}}, '{"a": 1, "b.c": {"d e": [true]}}'),
        ({"_rest_2": {"b": '{"c":null,"d":""}'}}, '{"b": {"c": null, "d": ""}}'),
    ],
)  # fmt: skip
def test_what_waits_is_held(row: dict[str, Any], record: str) -> None:
    assert apart(row, record) == []
    assert keys(row, record)


@pytest.mark.parametrize(
    ("row", "record", "paths"),
    [
        ({"a": 1, "_rest_2": None}, '{"a": 1, "b": 2}', ["b"]),
        ({"a": 1, "_rest_2": {"b": "3"}}, '{"a": 1, "b": 2}', ["b", "b"]),
        ({"a": 1, "_rest_2": {"b": '"2"'}}, '{"a": 1, "b": 2}', ["b", "b"]),
        ({"a": 1, "_rest_2": {"b": "2", "c": "3"}}, '{"a": 1, "b": 2}', ["c"]),
        ({"a": 1, "_rest_2": {"items[0].y": "1"}}, '{"a": 1, "items": [{}, {"y": 1}]}', ["items", "items.element.y"]),
        ({"a": 1, "_rest_2": {"b": '{"c":1}'}}, '{"a": 1, "b": {"c": 1, "d": 2}}', ["b", "b"]),
    ],
)  # fmt: skip
def test_what_is_not_there_is_missed(row: dict[str, Any], record: str, paths: list[str]) -> None:
    assert apart(row, record) == paths


KEPT = [
    # The row, the record, and the paths that differ where empty keys are kept, and where they are not.
    ({"a": 1, "_rest_2": {"``": "2"}}, '{"a": 1, "": 2}', [], []),
    ({"a": 1}, '{"a": 1, "": 2}', [""], []),
    ({"a": 1, "_rest_2": {"``": "3"}}, '{"a": 1, "": 2}', ["", ""], [""]),
    ({"a": 1, "_rest_2": {"``": "3"}}, '{"a": 1}', [""], [""]),
    ({"_rest_2": {"b": '{"":2}'}}, '{"b": {"": 2}}', [], []),
    ({}, '{"b": {"": 2}}', ["b"], []),
    ({"_rest_2": {"b": "{}"}}, '{"b": {"": 2}}', ["b", "b"], []),
    ({"items": [{"x": 1}, {"x": None}], "_rest_2": {"items[1].``": "2"}}, '{"items": [{"x": 1}, {"": 2}]}', [], []),
    ({"items": [{"x": 1}, {"x": None}]}, '{"items": [{"x": 1}, {"": 2}]}', ["items.element"], []),
    ({"m": {"": 1}}, '{"m": {"": 1}}', [], []),
    ({"m": {"": 1}}, '{"m": {"": 2}}', ["m."], ["m."]),
]  # fmt: skip


@pytest.mark.parametrize(("row", "record", "kept", "dropped"), KEPT)
def test_empty_keys_count_where_they_are_kept(
    row: dict[str, Any], record: str, kept: list[str], dropped: list[str]
) -> None:
    columns, v = TableStruct.of(COLUMNS), parse(record.encode())
    for how, paths in ((ValueSettings(empty_names=True), kept), (ValueSettings(), dropped)):
        assert [d.path for d in differences(columns, row, v, how)] == paths
        meeting = Meeting(columns, Slot.of(COLUMNS, columns), how)
        if not paths:
            assert meeting.of_row(row) == meeting.of_record(v)


@pytest.mark.parametrize(
    ("text", "type_", "v"),
    [
        ('"AP8="', "binary", b"\x00\xff"),
        ("1.5", "decimal(9, 2)", Decimal("1.50")),
        ("0.1", "float", Single(0.10000000149011612)),
        ('"NaN"', "double", float("nan")),
        ('"2024-01-02T03:04:05Z"', "timestamptz", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ('{"x":[1]}', type_text(Struct((Field("x", List(LONG)),))), {"x": [1]}),
    ],
)  # fmt: skip
def test_typed_values_wait_as_text_with_their_type(text: str, type_: str, v: Any) -> None:
    row = {"a": 1, "_rest_2": {"b": text, "b type": type_}}
    assert apart(row, {"a": 1, "b": v}) == []
    assert keys(row, {"a": 1, "b": v})
    assert apart(row, {"a": 1, "b": b"\x00"}) != []


@pytest.mark.parametrize(
    ("text", "v"),
    [
        ('"AP8="', b"\x00\xff"),
        ('"2024-01-02T03:04:05Z"', datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ('{"x":["2024-01-02",1],"y":"NaN"}', {"x": [date(2024, 1, 2), 1], "y": float("nan")}),
    ],
)
def test_typed_values_of_several_types_wait_as_text_alone(text: str, v: Any) -> None:
    row = {"a": 1, "_rest_2": {"b": text}}
    assert apart(row, {"a": 1, "b": v}) == []
    assert keys(row, {"a": 1, "b": v})
    for other in (b"\x00", date(2024, 1, 1), 1, float("inf")):
        assert apart(row, {"a": 1, "b": other}) != []


@pytest.mark.parametrize(
    "key", ["a", "a.b", "a[0]", "[", "`", "``", "a b", " ", "type", "é", "\n", "0", "]", ""]
)
def test_a_path_is_read_back(key: str) -> None:
    text = step(element(step(step("", key), key), [3, 0]), key)
    assert steps(text) == (key, key, 3, 0, key)
    assert steps(step("", key)) == (key,)
