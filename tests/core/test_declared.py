"""Any Arrow type as the types that tables have (rules 2.3): literal values in, literal values out."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from driftline.convert import Converter
from driftline.convert.declared import Declared, entries_of
from driftline.core.planning.planner import plan
from driftline.core.schema.types import Schema
from driftline.core.settings.table import TableSettings
from driftline.errors import UsageError
from driftline.observe.arrow import ArrowObserver
from driftline.observe.expect import expect
from driftline.observe.observation import Observation, merge_observations
from driftline.verify.typed_files import values_of

NANOS = pa.array([1_000, 1_001, None], pa.timestamp("ns", "UTC"))
WIDE = pa.decimal256(60, 2)


def observed(array: pa.Array, table: Schema) -> tuple[Observation, pa.RecordBatch, Declared]:
    schema = pa.schema([pa.field("f", array.type)])
    declared = Declared(schema)
    batch = declared.read([array])
    batch.validate(full=True)
    observer = ArrowObserver(declared.struct, expect(table), "batch")
    observer.feed(batch)
    return observer.result(), batch, declared


def table_of(array: pa.Array) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The columns, and the rows, of a table that the array came into as the field ``f``."""
    seen, batch, declared = observed(array, Schema())
    planned = plan(Schema(), seen.shape)
    struct = planned.schema.struct
    rows = Converter(struct, planned.route, TableSettings()).of_arrow(batch, declared.struct, json=False)
    rows.validate(full=True)
    return {f.name: str(f.type) for f in struct.fields}, rows.to_pylist()


def column(array: pa.Array) -> tuple[str, list[Any]]:
    """The type of the one column that the array leads to, and its values."""
    types, rows = table_of(array)
    assert list(types) == ["f"]
    return types["f"], [row["f"] for row in rows]


@pytest.mark.parametrize(
    ("array", "type_", "values"),
    [
        (pa.array([1, None], pa.int8()), "int", [1, None]),
        (pa.array([2**16 - 1], pa.uint16()), "int", [2**16 - 1]),
        (pa.array([2**32 - 1], pa.uint32()), "long", [2**32 - 1]),
        (pa.array([2**64 - 1], pa.uint64()), "decimal(20, 0)", [Decimal(2**64 - 1)]),
        (pa.array([np.float16(1.5), None], pa.float16()), "float", [1.5, None]),
        (pa.array(["x"], pa.large_string()), "string", ["x"]),
        (pa.array([b"xy"], pa.binary(2)), "binary", [b"xy"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "string", ["a", "b", "a"]),
        (pa.array([3_600_000_000_001], pa.time64("ns")), "string", ["01:00:00.000000001"]),
        (pa.array([90], pa.time32("s")), "string", ["00:01:30"]),
        # Times outside the day are counted on.
        (
            pa.array([-1_000, None, 5, 86_400_000], pa.time32("ms")),
            "string",
            ["-00:00:01", None, "00:00:00.005", "24:00:00"],
        ),
        (
            pa.array([-1, 360_000_500_000_000], pa.time64("ns")),
            "string",
            ["-00:00:00.000000001", "100:00:00.5"],
        ),
        (
            pa.array([7, -1, 108_300_000, None, 2**62], pa.duration("ms")),
            "string",
            ["00:00:00.007", "-00:00:00.001", "30:05:00", None, "1281023894007:36:27.904"],
        ),
        (pa.array([Decimal("1.25")], pa.decimal256(5, 2)), "decimal(5, 2)", [Decimal("1.25")]),
        (pa.array([[1], None], pa.large_list(pa.int64())), "list<long>", [[1], None]),
        (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), "list<long>", [[1, 2], None]),
        (pa.array([b"0123456789abcdef"], pa.uuid()), "uuid", [b"0123456789abcdef"]),
        (pa.array([{"a": 1}, None]), "struct<a: long>", [{"a": 1}, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_types(array: pa.Array, type_: str, values: list[Any]) -> None:
    assert column(array) == (type_, values)


@pytest.mark.parametrize(("value", "sample"), [(b"abc", "abc"), (b"\xff", r"b'\xff'")])
def test_bytes_are_told_as_text_or_as_python_spells_them(value: bytes, sample: str) -> None:
    shape = observed(pa.array([value]), Schema())[0].shape
    assert [profile.sample for profile in shape.fields["f"].facets.values()] == [sample]


def test_lists_and_maps_that_are_all_null_hold_any_type() -> None:
    """Arrow flattens no lists of structs with a UUID where all are null, as in a small row group."""
    record, key = pa.struct([("id", pa.uuid())]), pa.string()
    for type_ in (pa.list_(record), pa.large_list(record), pa.list_(record, 2), pa.list_view(record)):
        assert column(pa.nulls(2, type_)) == ("list<struct<id: uuid>>", [None, None]), type_
    assert column(pa.nulls(2, pa.map_(key, pa.uuid()))) == ("map<string, uuid>", [None, None])
    assert column(pa.nulls(1, pa.list_(pa.list_(record)))) == ("list<list<struct<id: uuid>>>", [None])


def test_a_column_of_nulls_is_none() -> None:
    assert table_of(pa.nulls(2)) == ({}, [])


def test_what_is_finer_than_a_microsecond_is_text_of_its_own() -> None:
    types, rows = table_of(NANOS)
    assert types == {"f": "timestamp", "f_string": "string"}
    assert [(row["f"] and row["f"].microsecond, row["f_string"]) for row in rows] == [
        (1, "1970-01-01T00:00:00.000001Z"),
        (None, "1970-01-01T00:00:00.000001001Z"),
        (None, None),
    ]


def test_days_in_milliseconds_that_are_moments() -> None:
    days = pa.array([86_400_000, 86_400_001, None, -1], pa.int64())
    types, rows = table_of(pa.Array.from_buffers(pa.date64(), 4, days.buffers()))
    assert types == {"f": "timestamp_ntz", "f_date": "date"}
    assert [row["f_date"] for row in rows] == [date(1970, 1, 2), None, None, None]
    midnight, last = datetime(1970, 1, 2), datetime(1969, 12, 31, 23, 59, 59, 999_000)
    assert [row["f"] for row in rows] == [midnight, midnight.replace(microsecond=1000), None, last]


def test_nanoseconds_that_are_whole_microseconds_need_no_text() -> None:
    assert table_of(NANOS.filter(pa.array([True, False, True])))[0] == {"f": "timestamp"}


def test_finer_ones_inside_lists_maps_and_structs_keep_their_places() -> None:
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3]), NANOS)
    types, rows = table_of(lists)
    assert types == {"f": "list<timestamp>", "f_array_string": "list<string>"}
    assert [row["f_array_string"] for row in rows] == [
        ["1970-01-01T00:00:00.000001Z", "1970-01-01T00:00:00.000001001Z"],
        [None],
    ]
    assert [value and value.microsecond for value in rows[0]["f"]] == [1, None]
    maps = pa.MapArray.from_arrays(pa.array([0, 3]), pa.array(["a", "b", "c"]), NANOS)
    types, rows = table_of(maps)
    assert types == {"f": "map<string, timestamp>", "f_map_string": "map<string, string>"}
    assert rows[0]["f_map_string"][1] == ("b", "1970-01-01T00:00:00.000001001Z")
    types, _ = table_of(pa.StructArray.from_arrays([NANOS], ["at"]))
    assert types == {"f": "struct<at: timestamp, at_string: string>"}


def test_decimals_beyond_38_digits_are_text() -> None:
    small, large = Decimal("1.25"), Decimal(10**50)
    types, rows = table_of(pa.array([small, large, None], WIDE))
    assert types == {"f": "decimal(38, 2)", "f_string": "string"}
    assert [tuple(row.values()) for row in rows] == [(small, "1.25"), (None, str(10**50)), (None, None)]
    assert column(pa.array([Decimal("0.5")], pa.decimal256(60, 50))) == ("string", ["0.5"])


def test_a_map_with_records_for_keys_is_a_list_of_entries() -> None:
    type_ = pa.map_(pa.struct({"k": pa.int64()}), pa.string())
    array = pa.array([[({"k": 1}, "x"), ({"k": 2}, None)], None], type_)
    assert column(array) == (
        "list<struct<key: struct<k: long>, value: string>>",
        [[{"key": {"k": 1}, "value": "x"}, {"key": {"k": 2}, "value": None}], None],
    )


def test_maps_keep_the_type_of_their_keys() -> None:
    array = pa.array([[(1, "x")], None, []], pa.map_(pa.int16(), pa.string()))
    assert column(array) == ("map<int, string>", [[(1, "x")], None, []])


def test_words_of_a_struct_that_is_null() -> None:
    """Arrow has a place among words that are none there."""
    array = pa.array([None], pa.struct({"w": pa.dictionary(pa.int32(), pa.string())}))
    assert array.field(0).indices.to_pylist() == [0] and values_of(array) == [None]
    assert column(array) == ("struct<w: string>", [None])


def test_a_slice_is_read_from_where_it_begins() -> None:
    maps = pa.array([[(1, [1, 2])], None, [(2, None), (3, [3])]], pa.map_(pa.int64(), pa.list_(pa.int8())))
    assert column(maps.slice(1)) == ("map<long, list<int>>", [None, [(2, None), (3, [3])]])


def test_a_type_that_no_table_has_is_named() -> None:
    with pytest.raises(UsageError, match=r"a\.element: type month_day_nano_interval cannot be stored"):
        Declared(pa.schema({"a": pa.list_(pa.month_day_nano_interval())}))


ONE_BATCH = [
    pa.array([7, None], pa.int64()),
    pa.array([["x"], None], pa.list_(pa.string())),
    pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    pa.array([[(1, True)], None], pa.map_(pa.int32(), pa.bool_())),
    pa.array([{"a": 1}, None]),
    pa.array([[{"a": "x"}], None]),
    NANOS.slice(1),
]


BROUGHT = {
    array.type: value
    for array, value in zip(
        ONE_BATCH,
        (
            7,
            ["x"],
            ("k", 1),
            (1, True),
            {"a": 1},
            {"a_long": None, "a": "x"},
            "00.000001001Z",
        ),
        strict=True,
    )
}


def test_files_of_several_schemas_make_one_table() -> None:
    """The routes are those of all of them; each array brings what it has."""
    seen = [observed(array, Schema()) for array in ONE_BATCH]
    planned = plan(Schema(), merge_observations(one for one, _, _ in seen).shape)
    assert not planned.conflicts
    converter = Converter(planned.schema.struct, planned.route, TableSettings())
    for array, (_, batch, declared) in zip(ONE_BATCH, seen, strict=True):
        rows = converter.of_arrow(batch, declared.struct, json=False)
        rows.validate(full=True)
        first, second = rows.to_pylist()
        assert str(BROUGHT[array.type]) in str(list(first.values())), first
        assert set(second.values()) == {None}


def test_a_map_with_a_null_for_a_struct_of_fields_that_are_never_null() -> None:
    struct = pa.struct([pa.field("z", pa.int32(), nullable=False)])
    maps = pa.array([[("a", {"z": 1}), ("b", None)], None], pa.map_(pa.string(), struct))
    assert entries_of(maps).to_pylist() == [
        [{"key": "a", "value": {"z": 1}}, {"key": "b", "value": None}],
        None,
    ]


@pytest.mark.parametrize(
    ("array", "type_", "texts"),
    [
        (
            pa.array([0, 2**50, None], pa.timestamp("s")),
            "timestamp_ntz",
            ["1970-01-01T00:00:00", "35680317-09-25T18:57:04", None],
        ),
        (
            pa.array([0, 2**63 - 1, None], pa.timestamp("ms", "UTC")),
            "timestamp",
            ["1970-01-01T00:00:00Z", "292278994-08-17T07:12:55.807Z", None],
        ),
    ],
    ids=["seconds", "milliseconds"],
)
def test_moments_that_no_count_of_microseconds_reaches_are_text_beside(
    array: pa.Array, type_: str, texts: list[str | None]
) -> None:
    """As where the greatest number stands for "never"."""
    types, rows = table_of(array)
    assert types == {"f": type_, "f_string": "string"}
    assert [row["f_string"] for row in rows] == texts
    assert [row["f"] is None for row in rows] == [False, True, True]


@pytest.mark.parametrize("type_", [pa.list_view(pa.int64()), pa.large_list_view(pa.int64())])
def test_views_of_lists_are_lists(type_: pa.DataType) -> None:
    assert column(pa.array([[1, None], None, [], [3]], type_)) == ("list<long>", [[1, None], None, [], [3]])


@pytest.mark.parametrize(
    ("values", "inner"),
    [
        ([[("x", None), ("y", None)], [("z", None)]], pa.map_(pa.string(), pa.null())),
        ([[("x", {"p": None}), ("y", None)], []], pa.map_(pa.string(), pa.struct([("p", pa.null())]))),
        ([[{"r": None}, {"r": None}], [{"r": None}]], pa.list_(pa.struct([("r", pa.null())]))),
        ([[None, None], [None]], pa.list_(pa.null())),
        ([{"p": [None, None], "q": 1}, None], pa.struct([("p", pa.list_(pa.null())), ("q", pa.int64())])),
    ],
)
def test_maps_whose_values_have_parts_without_a_type(values: list[Any], inner: pa.DataType) -> None:
    first, second = values
    rows = [[("a", first), ("b", second)], [("c", second)], None, [], [("d", None)]]
    array = pa.array(rows, pa.map_(pa.string(), inner))
    for start in range(len(rows)):
        _, batch, _ = observed(array.slice(start), Schema())
        assert batch.column(0).to_pylist() == rows[start:]
