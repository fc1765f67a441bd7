"""Lists of mixed depth as Arrow has them: in several columns of one key, each with lists of its own."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from core.shapes import schema as written
from core.test_convert_sound import plain
from driftline.convert import Converter, arrow_type
from driftline.convert.rest import row_texts
from driftline.core.planning.planner import plan
from driftline.core.schema.types import LONG, STRING, VARIANT, Field, List, Map, Schema, Struct, Type
from driftline.core.settings.fields import field_settings
from driftline.core.settings.table import TableSettings
from driftline.observe.arrow import ArrowObserver
from driftline.observe.expect import expect
from driftline.sources.in_memory import record_columns
from driftline.verify.match import differences
from driftline.verify.matching_key import TableStruct
from driftline.verify.values import is_nothing


def record(type_: Type) -> Struct:
    return Struct((Field("m", type_),))


def rows_of(
    batch: pa.RecordBatch, struct: Struct, before: Schema, wanted: TableSettings
) -> tuple[Schema, list[dict[str, Any]]]:
    """The table after the batch, and its rows of it."""
    observer = ArrowObserver(struct, expect(before, wanted), "batch")
    observer.feed(batch)
    planned = plan(before, observer.result().shape, wanted)
    assert planned.conflicts == ()
    rows = Converter(planned.schema.struct, planned.route, wanted).of_arrow(batch, struct, json=False)
    rows.validate(full=True)
    return planned.schema, plain(rows, planned.schema.struct)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, ["x"]], {"a_array_long": [1, None], "a": [["1"], ["x"]]}),
        ([[], "x", [["y"]]], {"a_array_string": [None, "x", None], "a": [[], [["x"]], [["y"]]]}),
        ([b"x", [1]], {"a_array_binary": [b"x", None], "a": [None, [1]]}),
        (
            [{"x": 1}, [{"y": 2}]],
            {"a_array_record": [{"x": 1}, None], "a": [[{"x": 1, "y": None}], [{"x": None, "y": 2}]]},
        ),
    ],
)
def test_a_shallower_element_is_wrapped_where_it_stands(value: Any, expected: dict[str, Any]) -> None:
    struct, batch = record_columns([{"a": value}])
    assert rows_of(batch, struct, Schema(), TableSettings())[1] == [expected]


def test_beside_deeper_elements_too() -> None:
    """A column that does not take those has the others where they stand; the whole waits, for a part would not tell
    how deep it stood."""
    table = written("a: string[2]")
    wanted = TableSettings(beyond="rest", max_columns=1)
    struct, batch = record_columns([{"a": ["x", [[1.5]]]}])
    table, (row,) = rows_of(batch, struct, table, wanted)
    assert row == {"a": [["x"], None], "_rest": {"a": '["x",[[1.5]]]'}}
    assert differences(TableStruct.of(table.struct), row, {"a": ["x", [[1.5]]]}) == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.sampled_from([7, 2**53 + 1, 2**63, 0.5, "x", "y"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["p", "q"]), inner, max_size=2)
    ),
    max_leaves=6,
)
BATCHES = st.lists(
    st.lists(st.dictionaries(st.sampled_from("ab"), VALUES, min_size=1), min_size=1, max_size=3),
    min_size=1,
    max_size=3,
)


@settings(max_examples=50)
@given(BATCHES, st.sampled_from([1, 3, 10_000]), st.sampled_from(["add", "hold"]))
def test_rows_hold_records_of_any_depth(
    batches: list[list[dict[str, Any]]], most: int, new_fields: str
) -> None:
    """In columns, or in the rest."""
    wanted = TableSettings(max_columns=most, beyond="rest", fields=field_settings(new_fields=new_fields))
    table = Schema()
    for records in batches:
        struct, batch = record_columns(records)
        table, rows = rows_of(batch, struct, table, wanted)
        columns = TableStruct.of(table.struct)
        for row, record in zip(rows, records if table.struct.fields else (), strict=True):
            found = differences(columns, row, record)
            assert [d for d in found if not (d.unproven or is_nothing(d.value))] == []


LONGS, TEXTS = Map(STRING, LONG), Map(STRING, STRING)
LIMITED, ROOMIER = (TableSettings(max_columns=n, beyond="rest") for n in (1, 3))
CASES: dict[str, tuple[list[Type], list[Any]]] = {
    "maps, and lists of maps": ([LONGS, List(LONGS)], [{"k": 1}, [{"n": 2}, None, {"o": 3, "p": 4}], {"l": None}]),
    "maps of longs, and of texts": ([LONGS, TEXTS], [{"k": 1}, {"j": "x"}, {"k": 2}]),
    "maps of longs, and of records": ([LONGS, Map(STRING, record(LONG))], [{"k": 1}, {"j": {"m": 2}}]),
    "records with a map each": ([record(LONGS), record(LONGS)], [{"m": {"k": 1}}, {"m": {"j": 2}}]),
    "records with maps of two types": ([record(LONGS), record(TEXTS)], [{"m": {"k": 1}}, {"m": {"j": "x"}}]),
    "records by turns": ([record(LONG), record(STRING)], [{"m": 1}, {"m": "x"}, {"m": 2}]),
    "records with lists by turns": (
        [record(List(LONG)), record(List(STRING))], [{"m": []}, {"m": ["x"]}, {"m": [1]}]
    ),
    "records with maps, and lists of such": (
        [record(LONGS), List(record(LONGS))], [{"m": {"k": 1}}, [{"m": {"j": 2}}, {"m": {"i": 3}}]]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("wanted", [TableSettings(), LIMITED, ROOMIER], ids=["", "1", "3"])
def test_unions(case: str, wanted: TableSettings) -> None:
    """A column for each of the types, every value in one of them, and none in another record's row."""
    types, values = CASES[case]
    struct = Struct((Field("id", LONG), *(Field("a", type_) for type_ in types)))
    arrays = [
        pa.array([v if n % len(types) == i else None for n, v in enumerate(values)], arrow_type(type_))
        for i, type_ in enumerate(types)
    ]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(len(values))), *arrays], [f.name for f in struct.fields]
    )
    table, rows = rows_of(batch, struct, Schema(), wanted)
    columns = TableStruct.of(table.struct)
    for n, (row, value) in enumerate(zip(rows, values, strict=True)):
        assert differences(columns, row, {"id": n, "a": value}) == []


@pytest.mark.parametrize("others", [[], [record(LONG)]], ids=["", "beside records"])
def test_maps_of_values_of_several_types_wait_whole(others: list[Type]) -> None:
    types = [*others, LONGS, TEXTS]
    struct = Struct((Field("id", LONG), *(Field("m", type_) for type_ in types)))
    maps = [
        *(pa.nulls(1, arrow_type(type_)) for type_ in others),
        pa.array([[("k", 1), ("l", None)]], arrow_type(LONGS)),
        pa.array([[("k", None), ("l", "x")]], arrow_type(TEXTS)),
    ]
    batch = pa.RecordBatch.from_arrays([pa.array([7]), *maps], [f.name for f in struct.fields])
    table, (row,) = rows_of(batch, struct, Schema(), LIMITED)
    assert row == {"id": 7, "_rest": {"m": '{"k":1,"l":"x"}'}}
    assert differences(TableStruct.of(table.struct), row, {"id": 7, "m": {"k": 1, "l": "x"}}) == []


@pytest.mark.parametrize("most", [1, 4, 10_000])
@pytest.mark.parametrize("new_fields", ["add", "hold"])
def test_a_struct_that_turned_out_to_be_a_map_takes_typed_structs(most: int, new_fields: str) -> None:
    table = written("b: {a: long}, b_map_long@b: map<string, long>")
    wanted = TableSettings(max_columns=most, beyond="rest", fields=field_settings(new_fields=new_fields))
    type_ = Struct((Field("a", STRING), Field("c", LONG)))
    batch = pa.RecordBatch.from_arrays([pa.array([{"a": "x", "c": 5}], arrow_type(type_))], ["b"])
    table, (row,) = rows_of(batch, Struct((Field("b", type_),)), table, wanted)
    assert differences(TableStruct.of(table.struct), row, {"b": {"a": "x", "c": 5}}) == []


def test_maps_of_lists_of_several_types_as_text() -> None:
    """A refused record is kept whole."""
    types = [Map(STRING, List(STRING)), Map(STRING, List(LONG))]
    arrays = [
        pa.array([[("k", [None, "x"]), ("l", None)]], pa.map_(pa.string(), pa.list_(pa.string()))),
        pa.array([[("k", [1, None]), ("l", None)]], pa.map_(pa.string(), pa.list_(pa.int64()))),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, ["m", "m"])
    (text,) = row_texts(batch, Struct(tuple(Field("m", type_) for type_ in types)))
    assert json.loads(text) == {"m": {"k": [1, "x"], "l": None}}


def test_a_variant_of_lists_of_mixed_depth() -> None:
    struct, batch = record_columns([{"a": [1, ["x"]]}, {"a": ["y"]}])
    table, rows = rows_of(batch, struct, Schema(Struct((Field("a", VARIANT),))), TableSettings())
    assert [f.name for f in table.struct.fields] == ["a"]
    found = [VariantVal(row["a"]["value"], row["a"]["metadata"]).toPython() for row in rows]
    assert found == [[1, ["x"]], ["y"]]
