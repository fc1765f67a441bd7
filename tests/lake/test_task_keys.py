"""The keys of rows as tasks compute them, against Iceberg's own transforms."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from driftline.convert.types import arrow_type
from driftline.core.schema.definition import Transform
from driftline.core.schema.text import parse_type
from driftline.core.schema.types import Primitive
from driftline.runtime.spark_version import as_arrow, from_arrow
from driftline.write.distribution import Key


def type_of(text: str) -> Primitive:
    found = parse_type(text)
    assert isinstance(found, Primitive)
    return found


INTS = [0, 1, -1, 34, 2**31 - 1, -(2**31), 7, -7, 100, -100]
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int": INTS,
    "long": [*INTS, 2**63 - 1, -(2**63), 2**40, -(2**40)],
    "decimal(9, 2)": [Decimal(text) for text in ("14.20", "-0.01", "0.00", "1.28", "-1.28", "9999999.99", "-1.29")],
    "decimal(38, 10)": [Decimal(text) for text in ("1234567890123456789012345678.0123456789", "-1E-10", "-12.5")],
    "string": ["", "a", "iceberg", "abcde", "é", "日本語テスト", "\U0010ffff\U0001f600xyz", "x" * 33, "null"],
    "binary": [b"", b"\x00", b"\xff\xfe", b"\x00\x01\x02\x03", b"abcdefghi"],
    "date": [date(1970, 1, 1), date(1969, 12, 31), date(2017, 11, 16), date(1, 1, 1), date(9999, 12, 31), date(1968, 2, 29)],
    "timestamp_ntz": [
        datetime(1970, 1, 1),
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(1969, 1, 1, 0, 0, 0, 1),
        datetime(2017, 11, 16, 22, 31, 8, 123_456),
        datetime(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999_999),
    ],
}  # fmt: skip
VALUES["timestamp"] = [moment.replace(tzinfo=UTC) for moment in VALUES["timestamp_ntz"]]
FUNCTIONS = {
    "bucket[16]": "bucket(16, a)",
    "bucket[2147483647]": "bucket(2147483647, a)",
    "truncate[1]": "truncate(1, a)",
    "truncate[3]": "truncate(3, a)",
    "truncate[1000]": "truncate(1000, a)",
    "year": "years(a)",
    "month": "months(a)",
    "day": "days(a)",
    "hour": "hours(a)",
}


@pytest.mark.parametrize(
    ("type_", "transform"),
    [(type_, name) for type_ in VALUES for name in FUNCTIONS if Transform.read(name).takes(type_of(type_))],
)
def test_keys_are_those_of_iceberg(spark: SparkSession, type_: str, transform: str) -> None:
    key = Key(("a",), type_of(type_), Transform.read(transform))
    assert key.parts
    rows = pa.table({"a": pa.array([*VALUES[type_], None], arrow_type(key.type))})
    frame = from_arrow(spark, rows).selectExpr(f"lake.system.{FUNCTIONS[transform]} as k")
    theirs = as_arrow(frame)["k"]
    theirs = theirs.cast(pa.int32()) if pa.types.is_date(theirs.type) else theirs
    assert key.values(rows).to_pylist() == theirs.to_pylist()


@pytest.mark.parametrize("type_", VALUES)
def test_rows_are_dealt_out_by_values_and_by_nothing(type_: str) -> None:
    rows = pa.table({"a": pa.array([*VALUES[type_], None], arrow_type(type_of(type_)))})
    whole = Key(("a",), type_of(type_)).values(rows)
    assert len(set(whole.to_pylist())) == len(rows)
    nothing = Key(("a",), type_of(type_), Transform("void")).values(rows)
    assert nothing.null_count == len(rows)


def test_floats_are_sorted_with_zeros_apart_and_nan_last() -> None:
    values = [math.inf, -math.inf, math.nan, 0.0, -0.0, 1.5, -1.5, 5e-324]
    keys = Key(("a",), type_of("double")).values(pa.table({"a": values}))
    order = pc.sort_indices(keys).to_pylist()
    assert [str(values[i]) for i in order] == ["-inf", "-1.5", "-0.0", "0.0", "5e-324", "1.5", "inf", "nan"]


def test_a_key_within_a_struct_is_null_where_that_is() -> None:
    rows = pa.table({"s": pa.array([{"a": 1}, None, {"a": None}])})
    assert Key(("s", "a"), type_of("long")).values(rows).to_pylist() == [1, None, None]
