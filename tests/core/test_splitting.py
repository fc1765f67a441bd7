"""The field that would split a table best."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from driftline.core.schema.naming import MARK, mark
from driftline.core.schema.types import LONG, STRING, Field, List, Struct
from driftline.core.values import Number
from driftline.ingest.split_by_field import SplitByField
from driftline.ingest.splitting import best_split
from driftline.operations.split_columns import best_split_of


def record(number: int, kind: Any) -> dict[str, Any]:
    """A record with twelve fields that other kinds do not have."""
    return {"id": number, "kind": kind, **{f"{kind}_{n}": number for n in range(12)}}


def test_the_field_with_the_fewest_cells_is_named_and_of_equal_ones_that_with_the_fewest_tables() -> None:
    records = [record(number, "abc"[number % 3]) for number in range(30)]
    assert best_split(records) == SplitByField(("kind",), 3, 14, 14 / 38, 30)


def test_a_field_inside_an_object_counts_and_one_that_is_deeper_does_not() -> None:
    nested = [{"at": {"x": record(number, "abc"[number % 3])}} for number in range(30)]
    assert best_split(nested) is None
    split = best_split([each["at"] for each in nested])
    assert split is not None and split.field == ("x", "kind")


def test_a_number_and_the_text_that_spells_it_are_one_value() -> None:
    values = [
        ("1", "one"),
        (Number("1"), "one"),
        (Number("1.0"), "one"),
        ("2", "two"),
        (Number("3"), "three"),
    ]
    records = [{"kind": value, **{f"{name}_{n}": 1 for n in range(20)}} for value, name in values * 8]
    split = best_split(records)
    assert split is not None and (split.field, split.tables) == (("kind",), 3)


@pytest.mark.parametrize(
    "records",
    [
        [],
        [{"kind": "ab"[number % 2], f"c{number % 2}": 1} for number in range(10)],
        [record(number, "abc"[number % 3]) if number % 15 else {"id": number} for number in range(30)],
        [{**record(number, "a"), f"own_{number}": 1} for number in range(30)],
        [
            {**record(number, "a"), "kind": "ab"[number % 2], **{f"d{n}": 1 for n in range(30)}}
            for number in range(30)
        ],
    ],
    ids=[
        "no record",
        "few columns",
        "a field that some lack",
        "a field of one record each",
        "a split that saves little",
    ],
)
def test_nothing_is_advised_of(records: list[dict[str, Any]]) -> None:
    assert best_split([each for each in records if each]) is None


def test_a_field_of_more_values_than_tables_is_passed_over() -> None:
    records = [record(number, f"k{number % 5}") for number in range(50)]
    assert best_split(records, most=4) is None


def test_rows_are_split_by_the_same_field_as_the_records_that_they_were() -> None:
    """By a field in two columns, in an object; beside lists, a column that no row fills, and one that is not read."""
    columns = [Field(f"{key}_{n}", LONG) for key in "abc" for n in range(12)]
    inner = Struct((Field("kind", LONG), Field("kind_string", STRING, doc=mark("kind")), *columns))
    lines = Field("lines", List(Struct((Field("sku", STRING), Field("qty", LONG)))))
    outer = (Field("id", LONG), Field("at", inner), lines, Field("never", LONG), Field("hidden", LONG))
    records, rows = [], []
    for number in range(120):
        kind, key = [(7, "a"), ("seven", "b"), ("7", "a"), ("c", "c")][number % 4]
        filled, skus = {f"{key}_{n}": number for n in range(12)}, [{"sku": "x"}] * (key == "b")
        where = "kind_string" if isinstance(kind, str) else "kind"
        named = number % 40 != 0
        records.append({"id": number, "at": {**({"kind": kind} if named else {}), **filled}, "lines": skus})
        rows.append({"id": number, "at": {**({where: kind} if named else {}), **filled}, "lines": skus})
    split = best_split(records)
    assert split is not None and (split.field, split.tables) == (("at", "kind"), 4)
    numbers = [(column.name, pa.int64()) for column in columns]
    types = pa.schema([
        ("id", pa.int64()),
        ("at", pa.struct([("kind", pa.int64()), ("kind_string", pa.string()), *numbers])),
        ("lines", pa.list_(pa.struct([("sku", pa.string()), ("qty", pa.int64())]))),
        ("never", pa.int64()),
    ])  # fmt: skip
    table = pa.Table.from_pylist(rows, types)
    by_rows = best_split_of(table, Struct(outer), MARK)
    assert by_rows is not None and (by_rows.field, by_rows.tables) == (split.field, split.tables)
    # The field has a column more in the table than in the records.
    assert by_rows.columns - split.columns in (0, 1) and by_rows.cells == pytest.approx(split.cells, abs=0.03)
    assert best_split_of(table, Struct(outer), MARK, most=3) is None
