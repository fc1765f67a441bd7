"""Rows that are read by file and position have the columns that the table has now."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.convert import arrow_schema
from driftline.core.schema.types import (
    DOUBLE,
    LONG,
    STRING,
    UUID,
    Field,
    List,
    Map,
    Primitive,
    Struct,
    decimal,
)
from driftline.errors import DataError
from driftline.keys.stored import StoredRows

INT, FLOAT = Primitive("int"), Primitive("float")
OLD = Struct(
    (
        Field("n", INT, 1),
        Field("old name", STRING, 2),
        Field("s", Struct((Field("x", FLOAT, 4), Field("gone", LONG, 5))), 3),
        Field("l", List(Struct((Field("y", INT, 8),)), 7), 6),
        Field("m", Map(STRING, decimal(4, 2), 10, 11), 9),
        Field("u", UUID, 12),
    )
)
NOW = Struct(
    (
        Field("u", UUID, 12),
        Field("new", LONG, 20, initial_default=7),
        Field("n", LONG, 1),
        Field("name", STRING, 2),
        Field("s", Struct((Field("fresh", STRING, 21, initial_default="d"), Field("x", DOUBLE, 4))), 3),
        Field("l", List(Struct((Field("y", LONG, 8), Field("z", STRING, 22))), 7), 6),
        Field("m", Map(STRING, decimal(9, 2), 10, 11), 9),
    )
)


def row(i: int) -> dict[str, Any]:
    return {
        "n": i, "old name": f"t{i}", "s": {"x": i / 2, "gone": i} if i % 3 else None, "u": bytes([i] * 16),
        "l": [{"y": i}, None] if i % 2 else None, "m": {"k": Decimal(i)} if i % 4 else {},
    }  # fmt: skip


def as_it_is_now(i: int) -> dict[str, Any]:
    old = row(i)
    return {
        "u": old["u"], "new": 7, "n": i, "name": f"t{i}",
        "s": {"fresh": "d", "x": i / 2} if old["s"] else None,
        "l": None if old["l"] is None else [{"y": i, "z": None}, None],
        "m": list(old["m"].items()),
    }  # fmt: skip


def stored(tmp_path: Path, struct: Struct) -> StoredRows:
    for name, numbers in (("a", range(10)), ("b", range(10, 15))):
        rows = pa.Table.from_pylist([row(i) for i in numbers], arrow_schema(OLD))
        pq.write_table(rows, tmp_path / name, row_group_size=4, store_schema=False)
    return StoredRows(struct, lambda name: pa.OSFile(str(tmp_path / name)))


def test_rows_have_the_columns_of_now_in_the_order_asked_for(tmp_path: Path) -> None:
    places = [("b", 4), ("a", 9), ("a", 0), ("b", 0), ("a", 3), ("a", 4)]
    files, positions = zip(*places, strict=True)

    read = stored(tmp_path, NOW).read(pa.array(files), np.array(positions))

    assert read.schema.equals(arrow_schema(NOW), check_metadata=True)
    assert read.to_pylist() == [as_it_is_now(i + 10 * (file == "b")) for file, i in places]
    assert len(stored(tmp_path, NOW).read(pa.array([], pa.string()), np.array([], np.int64))) == 0


def test_a_value_that_the_column_does_not_have_is_no_silent_loss(tmp_path: Path) -> None:
    struct = Struct((Field("n", STRING, 1),))

    with pytest.raises(DataError, match="a: n: a string is stored there as int32"):
        stored(tmp_path, struct).read(pa.array(["a"]), np.array([1]))
