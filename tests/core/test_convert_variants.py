"""Values as VARIANT: exactly, or not at all."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal

from driftline.convert import Converter
from driftline.convert.declared import Declared
from driftline.convert.variants import variants
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import without_excluded
from driftline.core.schema.types import VARIANT, Field, List, Schema, Struct
from driftline.core.settings.fields import OfPaths, field_settings
from driftline.core.settings.table import TableSettings
from driftline.core.values import parse
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver


def value_of(array: pa.Array, at: int = 0) -> Any:
    one = array[at].as_py()
    return None if one is None else VariantVal(one["value"], one["metadata"]).toPython()


EXACT: dict[str, Any] = {
    "1": 1, "-128": -128, "9223372036854775807": 2**63 - 1, "9223372036854775808": Decimal(2**63), "true": True,
    "0.1": Decimal("0.1"), "1.50": Decimal("1.50"), "1e5": 1e5, "-1.5e-300": -1.5e-300, "-0": 0, "null": None,
    "0.10000000000000001": Decimal("0.10000000000000001"), "12345678901234567890.5": Decimal("12345678901234567890.5"),
    "123456789012345678.25e1": Decimal("1234567890123456782.5"), f"{10**37}": Decimal(10**37), '"7"': "7", '"é"': "é",
    '{"b": [1, {"a": 0.25}, []], "a": {}}': {"b": [1, {"a": Decimal("0.25")}, []], "a": {}},
}  # fmt: skip
INEXACT = ["1e400", f"{10**38}", "0.1000000000000000055511151231257827021181583404541015625", "1234567890.12345678901234567890123456789e-20"]  # fmt: skip


@pytest.mark.parametrize("text", EXACT)
def test_exact(text: str) -> None:
    value = parse(f'{{"v": {text}}}'.encode())["v"]
    assert value_of(variants([value])) == EXACT[text]
    assert value_of(variants([{"k": [value]}])) == {"k": [EXACT[text]]}


def test_a_negative_zero_keeps_its_sign() -> None:
    assert str(value_of(variants([parse(b'{"v": -0.0}')["v"]]))) == "-0.0"


@pytest.mark.parametrize("text", INEXACT)
def test_not_exact(text: str) -> None:
    value = parse(f'{{"v": {text}}}'.encode())["v"]
    assert variants([value, [value], {"a": value}, 1]).is_null().to_pylist() == [True, True, True, False]


def test_what_typed_sources_bring() -> None:
    values = [
        date(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC), datetime(1, 1, 1), b"\x00\xff", Decimal("1.5"), 0.5,
    ]  # fmt: skip
    assert [value_of(variants(values), at) for at in range(len(values))] == values


def ingested(*lines: str) -> tuple[dict[str, str], pa.RecordBatch]:
    """The columns that a batch makes in a table with VARIANT columns, and its rows."""
    schema = Schema(Struct((Field("v", VARIANT, 2), Field("l", List(VARIANT, 4), 3))))
    observer = JsonObserver(expect(schema), TableSettings())
    observer.feed([line.encode() for line in lines], "batch", 1)
    planned = plan(schema, observer.result().shape, TableSettings())
    made = {".".join(change.path): str(change.column.type) for change in planned.changes}  # type: ignore[attr-defined]
    converter = Converter(planned.schema.struct, planned.route, TableSettings())
    return made, converter.of_json([parse(line.encode()) for line in lines])


def test_a_column_takes_whatever_is_exact() -> None:
    values = ["5", '{"a": 1}', "[1, [2]]", "[]", "null", '"x"', "{}"]
    made, rows = ingested(*(f'{{"v": {value}}}' for value in values))
    assert made == {}
    assert [value_of(rows.column("v"), at) for at in range(7)] == [5, {"a": 1}, [1, [2]], [], None, "x", {}]


def test_what_is_not_exact_gets_a_column_beside() -> None:
    made, rows = ingested('{"v": 1e400}', '{"v": 5}')
    assert made == {"v_string": "string"}
    assert [value_of(rows.column("v"), at) for at in range(2)] == [None, 5]
    assert rows.column("v_string").to_pylist() == ["1e400", "5"]
    made, rows = ingested('{"v": {"a": [1e400]}}')
    assert made["v_record"] == "struct<a: list<string>>"
    assert rows.to_pylist() == [{"v": None, "l": None, "v_record": {"a": ["1e400"]}}]


def test_lists_of_them_take_elements() -> None:
    made, rows = ingested('{"l": [1, "x", {"a": true}]}', '{"l": 7}', '{"l": []}')
    assert made == {}
    lists = [[VariantVal(**one).toPython() for one in row] for row in rows.column("l").to_pylist()]
    assert lists == [[1, "x", {"a": True}], [7], []]


LINE = (
    b'{"v": {"a": 1, "secret": 2, "in": [{"secret": 3, "b": 4}], "all": {"secret": 5}}, "n": {"secret": 6}}'
)
HIDDEN = [("v", "secret"), ("v", "in", "secret"), ("v", "all", "secret"), ("n", "secret")]


def test_what_is_excluded_enters_no_variant() -> None:
    """Below one, in lists too, whether records come as they are parsed or as columns."""
    schema = Schema(Struct((Field("v", VARIANT, 2),)))
    settings = TableSettings(fields=field_settings(paths=OfPaths(exclude=HIDDEN)))
    record = parse(LINE)
    typed = pa.RecordBatch.from_pylist([json.loads(LINE), {"v": None}]).select(["v"])
    declared = Declared(typed.schema)
    observer = JsonObserver(expect(schema, settings), settings)
    observer.feed([LINE], "batch", 1)
    shape = without_excluded(observer.result().shape, settings.fields)
    planned = plan(schema, shape, settings)
    converter = Converter(planned.schema.struct, planned.route, settings)
    expected = {"a": 1, "in": [{"b": 4}], "all": {}}
    assert value_of(converter.of_json([record]).column("v")) == expected
    rows = converter.of_arrow(declared.read(typed.columns), declared.struct, json=True)
    assert [value_of(rows.column("v"), at) for at in range(2)] == [expected, None]
