"""Which rows of typed columns a conflict is in, and what is kept of them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from driftline.convert.declared import Declared
from driftline.convert.rest import row_texts
from driftline.core.planning.plan import Conflict
from driftline.core.planning.shape import RECORD, Facet
from driftline.core.schema.types import DOUBLE, LONG, STRING, Field, Map, Path, Struct
from driftline.readers.columnar.rows import first_conflicts, having

RECORDS = pa.list_(pa.struct({"x": pa.string(), "n": pa.int64()}))


def read(**columns: pa.Array) -> tuple[pa.RecordBatch, Struct]:
    declared = Declared(pa.schema({key: array.type for key, array in columns.items()}))
    return declared.read(list(columns.values())), declared.struct


def conflict(path: Path, facet: Facet | None, inexact: Facet | None = None) -> Conflict:
    return Conflict(path, "long", facet, "why", inexact=inexact)


LISTS = pa.array([[{"x": "a"}], [{"x": None}], None, [], [None, {"x": "b", "n": 2**60}]], RECORDS)
MAPS = pa.array([None, [("k", 1)], [("k", None)], [], None], pa.map_(pa.string(), pa.int64()))


@pytest.mark.parametrize(
    ("path", "facet", "inexact", "rows"),
    [
        (("l", "element", "x"), Facet(0, STRING), None, [0, 4]),
        (("l", "x"), Facet(0, STRING), None, [0, 4]),
        (("l",), Facet(1, RECORD), None, [0, 1, 4]),
        (("l", "element"), Facet(1, RECORD), None, [0, 1, 4]),
        (("l",), Facet(0, STRING), None, []),
        (("l", "element", "n"), Facet(0, LONG), Facet(0, DOUBLE), [4]),
        (("m", "value"), Facet(0, LONG), None, [1]),
        (("m",), None, None, [0, 4]),
        (("other",), None, None, [0, 1, 2, 3, 4]),
        (("l", "element", "other"), None, None, [0, 1, 4]),
        (("other",), Facet(0, STRING), None, []),
    ],
)
def test_rows_with_a_conflict(
    path: Path, facet: Facet | None, inexact: Facet | None, rows: list[int]
) -> None:
    batch, struct = read(l=LISTS, m=MAPS)
    found = having(batch, struct, path, conflict(path, facet, inexact))
    assert found.nonzero()[0].tolist() == rows


def test_the_first_conflict_is_the_one_that_is_told() -> None:
    batch, struct = read(l=LISTS, m=MAPS)
    conflicts = [conflict(("m",), None), conflict(("l", "element", "x"), Facet(0, STRING))]
    assert first_conflicts(batch, struct, conflicts).tolist() == [0, -1, -1, -1, 0]


def test_rows_with_a_value() -> None:
    batch, struct = read(l=LISTS, m=MAPS)
    assert having(batch, struct, ("l", "element", "x")).tolist() == [True, False, False, False, True]
    assert having(batch, struct, ("m",)).tolist() == [False, True, True, True, False]


def test_a_timestamp_is_missing_only_where_it_is_no_text_either() -> None:
    batch, struct = read(at=pa.array([1_000, 1_001, None], pa.timestamp("ns")))
    assert having(batch, struct, ("at",), conflict(("at",), None)).tolist() == [False, False, True]


def test_the_text_of_a_row_keeps_every_value() -> None:
    batch, struct = read(
        at=pa.array([1_001, 1_000, None], pa.timestamp("ns", "UTC")),
        ats=pa.array([[1_001, 1_000, None], None, []], pa.list_(pa.timestamp("ns"))),
        bytes=pa.array([b"\xff\x00", None, b""]),
        number=pa.array([0.1, float("nan"), 1e300], pa.float64()),
        small=pa.array([0.1, None, None], pa.float32()),
        money=pa.array([Decimal("12345678901234567890.50"), None, None], pa.decimal128(38, 2)),
        long=pa.array([2**63 - 1, None, None]),
        on=pa.array([date(2024, 2, 29), None, None]),
        maps=pa.array(
            [[(1, datetime(2024, 1, 1, tzinfo=UTC))], None, []],
            pa.map_(pa.int64(), pa.timestamp("us", "UTC")),
        ),
        record=pa.array([{"x": True, "y": None}, None, {}], pa.struct({"x": pa.bool_(), "y": pa.string()})),
    )
    assert row_texts(batch, struct) == [
        (
            b'{"at":"1970-01-01T00:00:00.000001001Z",'
            b'"ats":["1970-01-01T00:00:00.000001001","1970-01-01T00:00:00.000001",null],"bytes":"/wA=","number":0.1,'
            b'"small":0.1,"money":12345678901234567890.5,"long":9223372036854775807,"on":"2024-02-29",'
            b'"maps":{"1":"2024-01-01T00:00:00Z"},"record":{"x":true}}'
        ),
        b'{"at":"1970-01-01T00:00:00.000001Z","number":"NaN"}',
        b'{"ats":[],"bytes":"","number":1e+300,"maps":{},"record":{}}',
    ]


def test_a_map_that_has_a_key_twice_is_kept_whole() -> None:
    type_ = pa.map_(pa.string(), pa.int64())
    batch = pa.record_batch({"m": pa.array([[("a", 1), ("a", 2)], [("b", 3)]], type_)})
    assert row_texts(batch, Struct((Field("m", Map(STRING, LONG)),))) == [
        b'{"m":{"a":1,"a":2}}',
        b'{"m":{"b":3}}',
    ]
