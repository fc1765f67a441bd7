"""Lists of mixed depth as Arrow has them: in several columns of one key, each with lists of its own."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from core.test_convert_sound import plain
from driftline.convert import Converter
from driftline.convert.python_values import record_columns
from driftline.convert.row_text import row_texts
from driftline.core.planning.contract import contract
from driftline.core.planning.plan import plan
from driftline.core.planning.routes import Settings
from driftline.core.schema.types import LONG, STRING, VARIANT, Field, List, Map, Schema, Struct
from driftline.observe.arrow import ArrowObserver
from driftline.observe.expect import expect
from driftline.verify.match import differences
from driftline.verify.source_values import is_nothing
from driftline.verify.table_shape import Record


def rows_of(
    batch: pa.RecordBatch, struct: Struct, before: Schema, wanted: Settings
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
    assert rows_of(batch, struct, Schema(), Settings())[1] == [expected]


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
    wanted = Settings(max_columns=most, beyond="rest", contract=contract(new_fields=new_fields))
    table = Schema()
    for records in batches:
        struct, batch = record_columns(records)
        table, rows = rows_of(batch, struct, table, wanted)
        columns = Record.of(table.struct)
        for row, record in zip(rows, records if table.struct.fields else (), strict=True):
            found = differences(columns, row, record)
            assert [d for d in found if not (d.unproven or is_nothing(d.value))] == []


MAPS = Map(STRING, LONG)


def test_maps_and_lists_of_maps() -> None:
    """A union of both, whose values are a column each."""
    struct = Struct((Field("m", MAPS), Field("m", List(MAPS))))
    of_maps = pa.array([[("k", 1)], None, [("l", None)]], pa.map_(pa.string(), pa.int64()))
    of_lists = pa.array([None, [[("n", 2)], None, [("o", 3), ("p", 4)]], None], pa.list_(of_maps.type))
    batch = pa.RecordBatch.from_arrays([of_maps, of_lists], ["m", "m"])
    table, rows = rows_of(batch, struct, Schema(), Settings())
    columns = Record.of(table.struct)
    records: list[dict[str, Any]] = [
        {"m": {"k": 1}},
        {"m": [{"n": 2}, None, {"o": 3, "p": 4}]},
        {"m": {"l": None}},
    ]
    for row, record in zip(rows, records, strict=True):
        assert differences(columns, row, record) == []


def test_maps_of_lists_of_several_types_as_text() -> None:
    """What is refused is kept whole."""
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
    table, rows = rows_of(batch, struct, Schema(Struct((Field("a", VARIANT),))), Settings())
    assert [f.name for f in table.struct.fields] == ["a"]
    found = [VariantVal(row["a"]["value"], row["a"]["metadata"]).toPython() for row in rows]
    assert found == [[1, ["x"]], ["y"]]
