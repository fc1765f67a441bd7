"""The values of a record that a row holds, as literal tables: columns, row, record, and the paths where they part.

Schemas are in the notation of `shapes`, records are JSON as written, rows are what a plain reader gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from core.shapes import schema
from driftline.core.schema.types import Schema
from driftline.verify.json_texts import parse
from driftline.verify.match import differences
from driftline.verify.matching_key import Meeting, Slot, TableStruct, key
from driftline.verify.moments import FarMoment, date_at, far_moment, micros
from driftline.verify.typed_files import values_of
from driftline.verify.values import Cell, Misquoted, Pairs, Single, ValueSettings, single
from driftline.verify.verdict import RowDifference

D = Decimal
NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)
NOON_MS = 1704196800000
LAST = datetime(2262, 4, 11, 23, 47, 16, 854775, tzinfo=UTC)  # 2^63 - 1 nanoseconds


def apart(
    table: Schema, row: dict[str, Any], record: dict[str, Any], how: ValueSettings
) -> list[RowDifference]:
    return differences(TableStruct.of(table.struct), row, record, how)


def keys(
    table: Schema, row: dict[str, Any], record: dict[str, Any], how: ValueSettings, floats: int = 0
) -> tuple[int, int]:
    columns = TableStruct.of(table.struct)
    meeting = Meeting(columns, Slot.of(table.struct, columns, floats), how)
    return key(meeting.of_row(row)), key(meeting.of_record(record))


Row = dict[str, Any]

HELD: list[tuple[str, Row, str]] = [
    # Nothing to hold
    ("a: long", {}, '{}'),
    ("a: long", {}, '{"a": null}'),
    ("a: long", {}, '{"a": [], "b": {}, "c": [[], {}, null], "d": {"e": null}}'),
    ("a: long[1], b: {c: long}", {"a": [], "b": {}}, '{"a": [], "b": {}}'),
    ("a: long[1]", {"a": [None]}, '{"a": [null]}'),
    ("a: long", {"a": 1}, '{"": 5, "a": 1}'),
    # Booleans
    ("a: boolean", {"a": True}, '{"a": true}'),
    ("a: long", {"a": 1}, '{"a": true}'),
    ("a: int", {"a": 0}, '{"a": false}'),
    ("a: double", {"a": 1.0}, '{"a": true}'),
    ("a: decimal(5,2)", {"a": D("1.00")}, '{"a": true}'),
    ("a: string", {"a": "false"}, '{"a": false}'),
    ("a: boolean, a_string@a: string", {"a": True, "a_string": "true"}, '{"a": true}'),
    # Integers
    ("a: long", {"a": 9007199254740993}, '{"a": 9007199254740993}'),
    ("a: double, a_long@a: long", {"a_long": 9007199254740993}, '{"a": 9007199254740993}'),
    ("a: double", {"a": 9007199254740992.0}, '{"a": 9007199254740992}'),
    ("a: decimal(38,0)", {"a": D(2**70)}, f'{{"a": {2**70}}}'),
    ("a: string", {"a": str(2**70)}, f'{{"a": {2**70}}}'),
    ("a: string", {"a": "1" * 40}, f'{{"a": {"1" * 40}}}'),
    ("a: string", {"a": "9" * 5000}, f'{{"a": {"9" * 5000}}}'),
    ("a: float", {"a": 16777216.0}, '{"a": 16777216}'),
    ("a: long", {"a": 0}, '{"a": -0}'),
    ("a: decimal(18,2)", {"a": D("20.00")}, '{"a": 20}'),
    # Numbers with a fraction or an exponent
    ("a: double", {"a": 1.5}, '{"a": 1.50}'),
    ("a: double", {"a": 0.1}, '{"a": 0.10000000000000001}'),
    ("a: double", {"a": 1e23}, '{"a": 1e23}'),
    ("a: double", {"a": -0.0}, '{"a": -0.0}'),
    ("a: double", {"a": 5e-324}, '{"a": 5e-324}'),
    ("a: decimal(38,18)", {"a": D("0.123456789012345678")}, '{"a": 0.123456789012345678}'),
    ("a: decimal(38,18)", {"a": D("9007199254740993.000000000000000000")}, '{"a": 9007199254740993.0}'),
    ("a: decimal(38,0)", {"a": D("1e23")}, '{"a": 1e23}'),
    ("a: string", {"a": "0.1234567890123456789"}, '{"a": 0.1234567890123456789}'),
    ("a: double, a_string@a: string", {"a_string": "1e400"}, '{"a": 1e400}'),
    ("a: string", {"a": "1e99999999999999999999"}, '{"a": 1e99999999999999999999}'),
    ("a: string", {"a": "1.5"}, '{"a": 1.50}'),
    ("a: float", {"a": single(0.1)}, '{"a": 0.1}'),
    ("a: double, a_string@a: string", {"a": 1.5, "a_string": "1.50"}, '{"a": 1.50}'),
    # Strings
    ("a: string", {"a": "é\n\x00"}, r'{"a": "é\n\u0000"}'),
    ("a: string", {"a": ""}, '{"a": ""}'),
    ("a: date", {"a": date(2024, 1, 2)}, '{"a": "2024-01-02"}'),
    ("a: timestamp", {"a": NOON}, '{"a": "2024-01-02T12:00:00Z"}'),
    ("a: timestamp", {"a": NOON}, '{"a": "2024-01-02T12:00:00.000+00:00"}'),
    ("a: timestamp_ntz", {"a": NOON.replace(tzinfo=None)}, '{"a": "2024-01-02T12:00:00"}'),
    ("a: timestamp", {"a": datetime(2024, 1, 2, tzinfo=UTC)}, '{"a": "2024-01-02"}'),
    ("a: timestamp_ntz", {"a": datetime(2024, 1, 2)}, '{"a": "2024-01-02"}'),
    ("a: string", {"a": "2024-01-02T12:00:00.000Z"}, '{"a": "2024-01-02T12:00:00.000Z"}'),
    ("a: long", {"a": NOON_MS}, '{"a": "2024-01-02T12:00:00Z"}'),
    ("a: double", {"a": float(NOON_MS)}, '{"a": "2024-01-02T12:00:00"}'),
    ("a: long, a_timestamp@a: timestamp", {"a_timestamp": NOON.replace(microsecond=1)},
     '{"a": "2024-01-02T12:00:00.000001Z"}'),
    ("a: uuid", {"a": "0b4f7d5e-0000-4000-8000-000000000001"}, '{"a": "0b4f7d5e-0000-4000-8000-000000000001"}'),
    ("a: binary", {"a": "é".encode()}, '{"a": "é"}'),
    # Rule 10: a long beside its instant, by magnitude
    ("a: timestamp, a_long@a: long", {"a": NOON, "a_long": NOON_MS}, f'{{"a": {NOON_MS}}}'),
    ("a: timestamp, a_long@a: long", {"a": NOON, "a_long": NOON_MS // 1000}, f'{{"a": {NOON_MS // 1000}}}'),
    ("a: timestamp, a_long@a: long, a_string@a: string", {"a_long": 2**62, "a_string": str(2**62)}, f'{{"a": {2**62}}}'),
    ("a: timestamp[1], a_array_long@a: long[1]", {"a": [NOON, NOON], "a_array_long": [NOON_MS, NOON_MS]},
     f'{{"a": ["2024-01-02T12:00:00Z", {NOON_MS}]}}'),
    ("a: timestamp, a_string@a: string", {"a": LAST, "a_string": str(2**63 - 1)}, f'{{"a": {2**63 - 1}}}'),
    ("a: timestamp, a_string@a: string", {"a": NOON, "a_string": str(NOON_MS // 1000)}, f'{{"a": {NOON_MS // 1000}}}'),
    ("a: timestamp, a_string@a: string", {"a": NOON, "a_string": "2024-01-02T12:00:00.0Z"}, '{"a": "2024-01-02T12:00:00.0Z"}'),
    ("a: timestamp[1], a_array_string@a: string[1]", {"a": [NOON, LAST], "a_array_string": ["2024-01-02T12:00:00Z", str(2**63 - 1)]},
     f'{{"a": ["2024-01-02T12:00:00Z", {2**63 - 1}]}}'),
    # Names
    ("ID_long@ID: long, id: long", {"ID_long": 1, "id": 2}, '{"ID": 1, "id": 2}'),
    ('"a_b@a.b": long'.replace('"a_b@a.b"', 'a_b@"a.b"'), {"a_b": 1}, '{"a.b": 1}'),
    ("a_string: string, a: long, a_string_2@a: string", {"a_string": "x", "a_string_2": "y"}, '{"a_string": "x", "a": "y"}'),
    # Objects
    ("a: {b: long, c: {d: string}}", {"a": {"b": 1, "c": {"d": "x"}}}, '{"a": {"b": 1, "c": {"d": "x"}, "e": null}}'),
    ("a: {b: long}[1], a_record@a: {b: long}", {"a": [{"b": 1}], "a_record": {"b": 1}}, '{"a": {"b": 1}}'),
    ("a: {b: long, c: long}[1], a_record@a: {b: long}", {"a": [{"b": 1, "c": 2}], "a_record": {"b": 1}}, '{"a": {"b": 1, "c": 2}}'),
    ("a: {b: long}, a_string@a: string", {"a_string": "x"}, '{"a": "x"}'),
    ("a: map<string, long>", {"a": Pairs({"x": 1, "y": None})}, '{"a": {"x": 1, "y": null}}'),
    ("a: map<string, long>, a_map_string@a: map<string, string>",
     {"a": Pairs({"x": 1, "y": None}), "a_map_string": Pairs({"x": "1", "y": "z"})}, '{"a": {"x": 1, "y": "z"}}'),
    ("a: map<string, {b: long}>", {"a": Pairs({"k": {"b": 1}})}, '{"a": {"k": {"b": 1}}}'),
    ("a: variant", {"a": {"b": [1, D("0.5"), "x", True]}}, '{"a": {"b": [1.0, 5e-1, "x", true], "c": null}}'),
    ("a: variant[1]", {"a": [1, {"b": D("0.5")}, ["x"]]}, '{"a": [1, {"b": 0.5}, ["x"]]}'),
    ("a: variant[1]", {"a": [{"b": 1}]}, '{"a": {"b": 1}}'),
    # Lists
    ("a: long[1]", {"a": [1, None, 2]}, '{"a": [1, null, 2]}'),
    ("a: long[2]", {"a": [[1]]}, '{"a": 1}'),
    ("a: long[2]", {"a": [[1, 2]]}, '{"a": [1, 2]}'),
    ("a: long[2]", {"a": [[1], [2]]}, '{"a": [1, [2]]}'),
    ("a: long[3]", {"a": [[[1]], [[2]]]}, '{"a": [1, [[2]]]}'),
    ("a: long[2]", {"a": [[1], []]}, '{"a": [1, []]}'),
    ("a: long[2]", {"a": [[1, None]]}, '{"a": [1, []]}'),
    ("a: long[1], a_array_string@a: string[1]", {"a": [1, None], "a_array_string": ["1", "x"]}, '{"a": [1, "x"]}'),
    ("a: {b: long}[1], a_array_string@a: string[1]", {"a": [{"b": 1}, None], "a_array_string": [None, "x"]},
     '{"a": [{"b": 1}, "x"]}'),
    ("a: {b: long}[2]", {"a": [[{"b": 1}], [{"b": 2}]]}, '{"a": [{"b": 1}, [{"b": 2}]]}'),
    ("a: string[1], a_array2_string@a: string[2]", {"a": ["x"], "a_array2_string": [["x"]]}, '{"a": ["x"]}'),
    ("a: {b: long, b_string@b: string}[1]", {"a": [{"b": 1}, {"b_string": "x"}]}, '{"a": [{"b": 1}, {"b": "x"}]}'),
]  # fmt: skip

# The same, with the paths where a value is lost (or, in the last part, where one is that the record has not).
APART: list[tuple[str, Row, str, list[str]]] = [
    ("a: long", {}, '{"a": 1}', ["a"]),
    ("a: long", {"a": 2}, '{"a": 1}', ["a"]),
    ("b: long", {"b": 1}, '{"a": 1}', ["a", "b"]),
    ("a: boolean", {"a": True}, '{"a": 1}', ["a"]),
    ("a: boolean", {"a": True}, '{"a": false}', ["a"]),
    ("a: string", {"a": "1"}, '{"a": true}', ["a"]),
    ("a: boolean", {"a": True}, '{"a": "true"}', ["a"]),
    ("a: long", {"a": 1}, '{"a": "1"}', ["a"]),
    ("a: string", {"a": "01"}, '{"a": 1}', ["a"]),
    ("a: string", {"a": "1.0"}, '{"a": "1"}', ["a"]),
    # Exactness
    ("a: double", {"a": 9007199254740992.0}, '{"a": 9007199254740993}', ["a"]),
    ("a: double", {"a": float(2**70 + 1)}, f'{{"a": {2**70 + 1}}}', ["a"]),
    ("a: double", {"a": 0.12345678901234568}, '{"a": 0.1234567890123456789}', ["a"]),
    ("a: double", {"a": 0.1}, '{"a": 0.1000000000000000055}', ["a"]),
    ("a: double", {"a": float("inf")}, '{"a": 1e400}', ["a"]),
    ("a: double", {"a": 0.0}, '{"a": 1e-400}', ["a"]),
    ("a: double", {"a": 0.10000000000000002}, '{"a": 0.1}', ["a"]),
    ("a: double", {"a": 0.0}, '{"a": -0.0}', ["a"]),
    ("a: double", {"a": -0.0}, '{"a": 0.0}', ["a"]),
    ("a: float", {"a": 0.0}, '{"a": -0.0}', ["a"]),
    ("a: double[1]", {"a": [0.0, 1.0]}, '{"a": [-0.0, 1.0]}', ["a.element"]),
    ("a: string", {"a": "0.0"}, '{"a": -0.0}', ["a"]),
    ("a: double, a_string@a: string", {"a": -0.0, "a_string": "0.0"}, '{"a": -0.0}', ["a"]),
    ("a: float", {"a": single(0.123456789)}, '{"a": 0.123456789}', ["a"]),
    ("a: float", {"a": 16777216.0}, '{"a": 16777217}', ["a"]),
    ("a: decimal(18,2)", {"a": D("19.99")}, '{"a": 19.994}', ["a"]),
    ("a: decimal(38,18)", {"a": D("0.123456789012345679")}, '{"a": 0.1234567890123456789}', ["a"]),
    ("a: decimal(38,0)", {"a": D("9" * 38)}, f'{{"a": {"9" * 40}}}', ["a"]),
    ("a: string", {"a": "0.12345678901234568"}, '{"a": 0.1234567890123456789}', ["a"]),
    ("a: string", {"a": "Infinity"}, '{"a": 1e400}', ["a"]),
    # Text and dates
    ("a: string", {"a": "trunc"}, '{"a": "truncated"}', ["a"]),
    ("a: string", {"a": "x"}, '{"a": "x "}', ["a"]),
    ("a: string", {"a": None}, '{"a": ""}', ["a"]),
    ("a: string", {"a": "e\u0301"}, '{"a": "\u00e9"}', ["a"]),
    ("a: date", {"a": date(2024, 1, 2)}, '{"a": "2024-01-03"}', ["a"]),
    ("a: date", {"a": date(2024, 1, 2)}, '{"a": "2024-01-02T12:00:00Z"}', ["a"]),
    ("a: date", {"a": date(2024, 1, 2)}, '{"a": "20240102"}', ["a"]),
    ("a: timestamp", {"a": NOON}, '{"a": "2024-01-02T12:00:00"}', ["a"]),
    ("a: timestamp", {"a": NOON}, '{"a": "2024-01-02T12:00Z"}', ["a"]),
    ("a: timestamp", {"a": NOON}, '{"a": "2024-01-02T12:00:00.0000001Z"}', ["a"]),
    ("a: timestamp", {"a": NOON}, '{"a": "2024-01-02T17:00:00+05:00"}', ["a"]),
    ("a: timestamp_ntz", {"a": NOON.replace(tzinfo=None)}, '{"a": "2024-01-02T12:00:00Z"}', ["a"]),
    ("a: long", {"a": NOON_MS}, '{"a": "2024-01-02T12:00:00.0004Z"}', ["a"]),
    ("a: long", {"a": NOON_MS // 1000}, '{"a": "2024-01-02T12:00:00Z"}', ["a"]),
    ("a: uuid", {"a": "0b4f7d5e-0000-4000-8000-000000000001"}, '{"a": "0B4F7D5E-0000-4000-8000-000000000001"}', ["a"]),
    ("a: timestamp", {"a": NOON}, f'{{"a": {NOON_MS}}}', ["a"]),
    # Objects
    ("a: {b: long}", {"a": {}}, '{"a": {"b": 1}}', ["a"]),
    ("a: {b: long, c: long}", {"a": {"c": 2}}, '{"a": {"b": 1, "c": 2}}', ["a.b"]),
    ("a: {b: long, c: long}", {"a": {"b": 2, "c": 1}}, '{"a": {"b": 1, "c": 2}}', ["a.b", "a.c"]),
    ("a: {b: long}[1], a_record@a: {c: long}", {"a": [{"b": 1}], "a_record": {"c": 2}}, '{"a": {"b": 1, "c": 2}}', ["a.c"]),
    ("a: string", {"a": '{"b": 1}'}, '{"a": {"b": 1}}', ["a"]),
    ("a: map<string, long>", {"a": Pairs({"x": 1})}, '{"a": {"x": 1, "y": 2}}', ["a.y"]),
    ("a: variant", {"a": {"b": 1}}, '{"a": {"b": 2}}', ["a", "a"]),
    # Lists
    ("a: long[1]", {"a": [1, 2]}, '{"a": [1, 2, 3]}', ["a"]),
    ("a: long[1]", {"a": [1, None, 3]}, '{"a": [1, 2, 3]}', ["a.element"]),
    ("a: long[1]", {"a": [2, 1]}, '{"a": [1, 2]}', ["a.element", "a.element"]),
    ("a: long[1]", {"a": [1]}, '{"a": [1, null]}', ["a"]),
    ("a: long[2]", {"a": [[1], [2]]}, '{"a": [1, 2]}', ["a"]),
    ("a: long[2]", {"a": [[1, 2]]}, '{"a": [1, [2]]}', ["a"]),
    ("a: long[2]", {"a": [[1], [2]]}, '{"a": 1}', ["a"]),
    ("a: long[1], a_array_string@a: string[1]", {"a": [1, None]}, '{"a": [1, "x"]}', ["a.element"]),
    ("a: {b: long}[1]", {"a": [{"b": 1}, {"b": 3}]}, '{"a": [{"b": 1}, {"b": 2}]}', ["a.element.b"]),
    # Invented: in a column, but not in the record
    ("a: long, b: long", {"a": 1, "b": 2}, '{"a": 1}', ["b"]),
    ("a: long, b: {c: long}", {"a": 1, "b": {"c": 2}}, '{"a": 1, "b": {}}', ["b"]),
    ("a: long, a_string@a: string", {"a": 1, "a_string": "2"}, '{"a": 1}', ["a"]),
    ("a: long[1], a_array_string@a: string[1]", {"a": [1, 2], "a_array_string": ["1", "3"]}, '{"a": [1, 2]}', ["a.element"]),
    ("a: {b: long}[1], a_record@a: {b: long}", {"a": [{"b": 1}], "a_record": {"b": 2}}, '{"a": {"b": 1}}', ["a.b"]),
    ("a: map<string, long>", {"a": Pairs({"x": 1, "y": 2})}, '{"a": {"x": 1}}', ["a.y"]),
    ("a: timestamp, a_long@a: long", {"a": NOON, "a_long": NOON_MS + 1}, f'{{"a": {NOON_MS + 1}}}', ["a"]),
    ("a: long[1]", {"a": [1, 2]}, '{"a": [1, null]}', ["a.element"]),
    # Lists without a value
    ("a: long[1]", {"a": []}, '{}', ["a"]),
    ("a: long[1]", {"a": []}, '{"a": null}', ["a"]),
    ("a: long[1]", {"a": [None]}, '{"a": []}', ["a"]),
    ("a: long[1]", {"a": []}, '{"a": [null]}', ["a"]),
    ("a: long[2]", {"a": [[1], None]}, '{"a": [[1], []]}', ["a.element"]),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "row", "record"), HELD, ids=str)
def test_held(columns: str, row: Row, record: str) -> None:
    table, v, how = schema(columns), parse(record.encode()), ValueSettings()

    assert apart(table, row, v, how) == []
    assert len(set(keys(table, row, v, how))) == 1, "what holds must meet"


def changed(v: Any) -> Iterator[Any]:
    """The value with each of its scalars changed by the least, one at a time."""
    match v:
        case dict():
            yield from (type(v)({**v, k: other}) for k, x in v.items() for other in changed(x))
        case list():
            yield from ([*v[:i], other, *v[i + 1 :]] for i, x in enumerate(v) for other in changed(x))
        case None:
            return
        case bool():
            yield not v
        case float():
            yield math.nextafter(v, math.inf)
        case int():
            yield v + 1
        case D():
            yield v.next_plus(Context(prec=len(v.as_tuple().digits)))
        case str():
            yield v + "~"
            yield v[:-1] + "~"
        case bytes():
            yield v + b"~"
        case datetime():
            yield v.replace(microsecond=(v.microsecond + 1) % 1_000_000)
        case date():
            yield v.replace(day=v.day % 28 + 1)


@pytest.mark.parametrize(("columns", "row", "record"), HELD, ids=str)
def test_any_change_is_found(columns: str, row: Row, record: str) -> None:
    table, v = schema(columns), parse(record.encode())

    for other in changed(row):
        assert other == row or apart(table, other, v, ValueSettings()), other


@pytest.mark.parametrize(("columns", "row", "record", "paths"), APART, ids=str)
def test_apart(columns: str, row: Row, record: str, paths: list[str]) -> None:
    found = apart(schema(columns), row, parse(record.encode()), ValueSettings())

    assert [d.path for d in found] == paths


# "a\\"b": the quotes end before the cell does.
MISQUOTED = Misquoted.of('a\\b"', '"a\\"b"')
TYPED: list[tuple[str, Any, Any, bool]] = [
    ("int", 5, 5, True),
    ("decimal(12,2)", D("5.00"), 5, True),
    ("double", 2.0**60, 2**60, True),
    ("double", float("nan"), float("nan"), True),
    ("double", 0.0, -0.0, False),
    ("string", "0.1", 0.1, True),
    ("string", "1.0E10", 1e10, True),
    ("string", "-Infinity", float("-inf"), True),
    ("string", "NaN", float("nan"), True),
    ("string", "0.1", Single(single(0.1)), True),
    ("double", single(0.1), Single(single(0.1)), True),
    ("string", "0.12", 0.1, False),
    ("long", 1, 1.5, False),
    ("decimal(9,3)", D("1.500"), D("1.5"), True),
    ("string", "1.5", D("1.50"), True),
    ("double", 1.5, "1.5", False),
    ("date", date(2024, 1, 2), date(2024, 1, 2), True),
    ("timestamp", datetime(2024, 1, 2, tzinfo=UTC), date(2024, 1, 2), True),
    ("string", "2024-01-02", date(2024, 1, 2), True),
    ("string", "2024-01-02T12:00:00Z", NOON, True),
    ("string", "2024-01-02T12:00:00", NOON, False),
    ("timestamp_ntz", NOON.replace(tzinfo=None), NOON, False),
    ("long", NOON_MS, NOON, True),
    ("binary", b"\xff", b"\xff", True),
    ("string", "é", "é".encode(), True),
    ("string", "true", True, True),
    ("string", "7", Cell("7"), True),
    ("long", 7, Cell("7"), True),
    ("long", 7, Cell("007"), False),
    ("long", 7, Cell("+7"), False),
    ("string", "7.0", Cell("7"), True),
    ("string", "7", Cell("007"), False),
    ("string", "1.5", Cell("1.50"), True),
    ("string", "1.5", Cell("01.50"), False),
    ("double", 1.5, Cell("1.5"), True),
    ("double", 1.5, Cell("1.50"), True),
    ("double", 1.5, Cell("1.51"), False),
    ("double", 0.0, Cell("-0.0"), False),
    ("double", -0.0, Cell("-0.0"), True),
    ("string", 'a\\b"', MISQUOTED, True),
    ("string", '"a\\"b"', MISQUOTED, True),
    ("string", 'a"b', MISQUOTED, False),
    ("double", 1e10, Cell("1.0E10"), True),
    ("double", 1e22, Cell("1e+22"), True),
    ("double", 1e10, Cell("1e10"), False),
    ("double", 1.5e-5, Cell("1.5E-05"), True),
    ("double", 1.5e-5, Cell("1.50e-5"), True),
    ("double", 1.5e-5, Cell("1.51e-5"), False),
    ("double", 0.04, Cell("4E-2"), False),
    ("boolean", True, Cell("true"), True),
    ("boolean", True, Cell("TRUE"), True),
    ("date", date(2024, 1, 2), Cell("2024-01-02"), True),
    ("string", "", Cell(""), True),
    ("string", None, Cell(""), True),
    ("decimal(9,2)", D("0.00"), D("0.0"), True),
    ("decimal(9,2)", D("0.00"), D("-0.0"), False),
    ("double", -0.0, D("-0.0"), True),
]


@pytest.mark.parametrize(("type_", "stored", "v", "held"), TYPED, ids=str)
def test_typed(type_: str, stored: Any, v: Any, held: bool) -> None:
    table, row, record = schema(f"a: {type_}"), {"a": stored}, {"a": v}

    assert (apart(table, row, record, ValueSettings()) == []) == held
    if held:
        assert len(set(keys(table, row, record, ValueSettings(), floats=2))) == 1


@pytest.mark.parametrize(
    ("columns", "row", "record", "keys"),
    [
        ("a: long[1]", {}, '{"a": []}', [("a",)]),
        ("a: long, a_array_long@a: long[1]", {}, '{"a": [[null]]}', [("a",)]),
        ("a: long[1], a_array_string@a: string[1]", {"a_array_string": []}, '{"a": []}', []),
        ("a: {b: long[1]}", {"a": {}}, '{"a": {"b": []}}', [("a", "b")]),
        ("a: {b: long, c: {d: long[2]}}", {"a": {"b": 1, "c": {}}}, '{"a": {"b": 1, "c": {"d": []}}}', [("a", "c", "d")]),
        ("a: {b: long[1]}[1]", {"a": [{"b": [1]}, {}]}, '{"a": [{"b": [1]}, {"b": []}]}', [("a", "b")]),
        ("a: {b: long[1]}", {}, '{"a": {"b": []}}', []),
        ("a: long", {}, '{"a": []}', []),
        ("a: long[1]", {}, '{"a": {}}', []),
    ],
)  # fmt: skip
def test_a_list_without_a_value_may_be_older_than_its_column(
    columns: str, row: Row, record: str, keys: list[tuple[str, ...]]
) -> None:
    found = apart(schema(columns), row, parse(record.encode()), ValueSettings())

    assert [d.keys for d in found if d.unproven] == [d.keys for d in found] == keys


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.list_(pa.null()), []),
        (pa.list_(pa.null()), [None]),
        (pa.large_list(pa.list_(pa.null())), [[]]),
        (pa.list_(pa.struct({"b": pa.null()})), [{}]),
    ],
)
def test_a_list_that_no_type_has_values_for_may_have_no_column(type_: pa.DataType, value: list[Any]) -> None:
    table = schema("a: long[2]")
    (untyped,) = values_of(pa.array([value], type_))
    assert untyped == value
    assert apart(table, {}, {"a": untyped}, ValueSettings()) == []
    assert [d.path for d in apart(table, {}, {"a": value}, ValueSettings())] == ["a"]


def test_a_typed_map_keeps_entries_without_a_value() -> None:
    table = schema("a: map<long, string>")

    assert apart(table, {"a": Pairs({1: None})}, {"a": Pairs({1: None})}, ValueSettings()) == []
    assert [
        d.path for d in apart(table, {"a": Pairs({1: "x"})}, {"a": Pairs({1: "x", 2: None})}, ValueSettings())
    ] == ["a.2"]


def test_settings_of_the_table_are_read() -> None:
    table = schema("a: timestamp, b: long")
    row, record = (
        {"a": NOON, "b": NOON_MS // 1000},
        {"a": "2024-01-02T17:00:00+05:00", "b": "2024-01-02T12:00:00Z"},
    )

    assert [d.path for d in apart(table, row, record, ValueSettings())] == ["a", "b"]
    assert apart(table, row, record, ValueSettings("s", offsets=True)) == []


def test_a_path_may_have_an_epoch_unit_of_its_own() -> None:
    table = schema("a: {t: long}[1], u: long")
    row = {"a": [{"t": NOON_MS // 1000}], "u": NOON_MS}
    record = {"a": [{"t": "2024-01-02T12:00:00Z"}], "u": "2024-01-02T12:00:00Z"}

    assert apart(table, row, record, ValueSettings(units={"a": "s"})) == []
    assert [d.path for d in apart(table, row, record, ValueSettings())] == ["a.element.t"]


def test_a_difference_says_what_is_where() -> None:
    (lost,) = apart(schema("a: double"), {"a": 9007199254740992.0}, {"a": 9007199254740993}, ValueSettings())
    (invented,) = apart(schema("a: long"), {"a": 1}, {}, ValueSettings())

    assert lost.why == "9007199254740993 is in no column; column a holds 9007199254740992.0"
    assert (invented.why, invented.lost) == ("a holds 1, the record has no value there", False)


DEFAULTS = {
    1: (7, 5),
    2: ("it's",),
    3: (D("1.50"),),
    4: ("2026-01-02T03:04:05.000001+00:00",),
    6: (single(0.1),),
}
DEFAULTED = "n: long, t: string, d: decimal(9, 2), at: timestamp, s: {f: float, x: long}"
AT = datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("row", "record", "paths"),
    [
        ({"n": 7, "t": "it's", "d": D("1.50"), "at": AT}, "{}", []),
        ({"n": 5}, '{"n": null}', []),
        ({"n": 8}, "{}", ["n"]),
        ({"t": "its"}, "{}", ["t"]),
        ({"d": D("1.51")}, "{}", ["d"]),
        ({"at": NOON}, "{}", ["at"]),
        ({"n": 7}, '{"n": 3}', ["n"]),
        ({"s": {"f": single(0.1), "x": None}}, '{"s": {}}', []),
        ({"s": {"f": single(0.1), "x": 1}}, '{"s": {"x": 1}}', []),
        ({"s": {"f": single(0.2), "x": None}}, '{"s": {}}', ["s"]),
        ({"s": {"f": single(0.1), "x": None}}, "{}", ["s"]),
        ({"s": {"f": None, "x": 1}}, '{"s": {}}', ["s"]),
    ],
)
def test_a_record_without_a_value_has_a_default_and_nothing_else(
    row: dict[str, Any], record: str, paths: list[str]
) -> None:
    columns = TableStruct.of(schema(DEFAULTED).struct, defaults=DEFAULTS)
    assert [d.path for d in differences(columns, row, parse(record.encode()))] == paths


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (-719_163, "0000-12-31"),
        (-719_529, "-0001-12-31"),
        (2_932_897, "10000-01-01"),
        (2**31 - 1, "5881580-07-11"),
        (-(2**31), "-5877641-06-23"),
    ],
)
def test_far_date_is_its_count_and_its_text(count: int, text: str) -> None:
    far = date_at(count)
    assert (str(far), far_moment(text)) == (text, far)
    assert micros(far) == count * 86_400_000_000


def test_least_count_of_microseconds_is_a_moment() -> None:
    (value,) = values_of(pa.array([-(2**63)]).cast(pa.timestamp("us", "UTC")))
    assert value == FarMoment("instant", -(2**63))
