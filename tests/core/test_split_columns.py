"""The columns of a split: what names a row's table, the numbers of values, and the columns that have some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from driftline.core.schema.naming import mark
from driftline.core.schema.types import BOOLEAN, LONG, STRING, TIMESTAMP, Field, List, Map, Path, Struct, Type
from driftline.errors import UsageError
from driftline.ingest.pattern import Pattern
from driftline.operations.split_columns import ValueCounter, cut_columns, filled, key_sql

INNER = Struct((Field("x", LONG, required=True), Field("y", STRING, doc="a note")))
TABLE = Struct(
    (
        Field("id", LONG, 1),
        Field("one", INNER, 2),
        Field("list", List(INNER), 3),
        Field("map", Map(STRING, List(INNER)), 4, write_default="x"),
    )
)
TYPES = {
    "id": pa.int64(),
    "one": (inner := pa.struct({"x": pa.int64(), "y": pa.string()})),
    "list": pa.list_(inner),
    "map": pa.map_(pa.string(), pa.list_(inner)),
}
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "one": {"x": 1, "y": None},
        "list": [{"x": 1, "y": "a"}, None],
        "map": [("k", [{"x": 2, "y": None}])],
    },
    {"id": None, "one": None, "list": None, "map": None},
    {"id": 3, "one": {"x": None, "y": None}, "list": [], "map": [("k", None), ("l", [])]},
    {"id": 4, "one": None, "list": [{"x": None, "y": "b"}], "map": []},
]


def values(value: Any, type_: Type, path: Path) -> Iterator[Path]:
    """The path of each value that is not null, in a value as Arrow gives it."""
    if value is None:
        return
    yield path
    match type_:
        case Struct(fields):
            for f in fields:
                yield from values(value[f.name], f.type, (*path, f.name))
        case List(element):
            for inside in value:
                yield from values(inside, element, (*path, "element"))
        case Map(key, inner_type):
            for inside_key, inside in value:
                yield from values(inside_key, key, (*path, "key"))
                yield from values(inside, inner_type, (*path, "value"))


@pytest.mark.parametrize(("first", "count"), [(0, 4), (1, 3), (2, 1)])
def test_values_are_counted_by_table_also_in_parts_of_arrays(first: int, count: int) -> None:
    tables, counter = [0, 1, 0, -1], ValueCounter(2)
    for f in TABLE.fields:
        column = pa.array([row[f.name] for row in ROWS], TYPES[f.name]).slice(first, count)
        counter.count(column, f.type, (f.name,), np.array(tables)[first : first + count])
    for table in (0, 1):
        expected = Counter(
            path
            for row, of_row in list(zip(ROWS, tables, strict=True))[first : first + count]
            if of_row == table
            for f in TABLE.fields
            for path in values(row[f.name], f.type, (f.name,))
        )
        assert {path: int(n[table]) for path, n in counter.counts.items() if n[table]} == expected


def test_lists_without_offsets_as_spark_sends_none_have_no_values() -> None:
    behind = pa.py_buffer(np.array([-1], np.int32))  # the first bytes of Spark's next message
    none = pa.Array.from_buffers(
        pa.list_(pa.int64()), 0, [None, behind.slice(0, 0)], children=[pa.array([], pa.int64())]
    )
    lists = pa.Array.from_buffers(
        pa.list_(none.type), 1, [None, pa.py_buffer(np.array([0, 0], np.int32))], children=[none]
    )
    counter = ValueCounter(1)
    counter.count(lists, List(List(LONG)), ("a",), np.array([0]))
    assert {path: number.tolist() for path, number in counter.counts.items()} == {
        ("a",): [1],
        ("a", "element"): [0],
        ("a", "element", "element"): [0],
    }


def test_columns_without_a_value_are_left_out_at_any_depth() -> None:
    counts = {("one",): 1, ("list",): 1, ("list", "element"): 2, ("list", "element", "y"): 1, ("map",): 1}
    cut = filled(TABLE, counts)
    whole = Struct((Field("x", LONG), Field("y", STRING, doc="a note")))
    assert cut == Struct(
        (
            Field("one", whole),  # no struct is without a field
            Field("list", List(Struct((Field("y", STRING, doc="a note"),)))),
            Field("map", Map(STRING, List(whole))),
        )
    )
    one, list_, map_ = cut_columns(TABLE, cut)
    assert (one, map_) == ("`one` as `one`", "`map` as `map`")
    assert "named_struct('y', " in list_ and "`x`" not in list_


def test_the_narrowest_column_of_a_field_names_a_table() -> None:
    columns = Struct(
        (
            Field("e", STRING),
            Field("e_timestamp", TIMESTAMP, doc=mark("e")),
            Field("e_boolean", BOOLEAN, doc=mark("e")),
            Field("e_array", List(STRING), doc=mark("e")),
            Field("other", Struct((Field("e", LONG),))),
        )
    )
    assert key_sql(Pattern.of("s.{e}"), columns, "upsolver_evolved_from:") == (
        "to_json(array(case when `e_boolean` is not null then concat('t', cast(`e_boolean` as string)) "
        "when `e_timestamp` is not null then cast(null as string) "
        "when `e` is not null then concat('t', cast(`e` as string)) end))"
    )
    assert "`other`.`e`" in key_sql(Pattern.of("s.{other.e}"), columns, "upsolver_evolved_from:")
    with pytest.raises(UsageError, match="no column of values at other"):
        key_sql(Pattern.of("s.{other}"), columns, "upsolver_evolved_from:")
