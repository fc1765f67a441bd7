"""Python's objects as columns: each value of its own type, none changed, none lost."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import DataError, UsageError
from driftline.sources.in_memory import record_columns, written
from driftline.sources.inputs import paths_or_rows
from driftline.verify import in_memory
from driftline.verify.change_feeds import changes_in


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.glob("*/*")) == []


def read(data: Any) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The types of the columns, and the rows without what is null; of several columns of one key the value."""
    paths, rows = paths_or_rows(data)
    assert paths == []
    types, out = {}, []
    with written(rows) as readers:
        for reader in readers:
            for part in range(len(reader.sizes)):
                (some,) = reader.rows(part)
                for values in zip(*some.batch.columns, strict=True):
                    pairs = zip(reader.struct.fields, map(plain, values), strict=True)
                    out.append({f.name: v for f, v in pairs if v is not None})
            for f in reader.struct.fields:
                types.setdefault(f.name, set()).add(str(f.type))
    return {name: " | ".join(sorted(some)) for name, some in types.items()}, out


def independently(data: Any) -> list[dict[str, Any]]:
    """The records as `verify` reads them."""
    with TemporaryDirectory() as folder:
        return [part.record for path in in_memory.write(data, Path(folder)) for part in in_memory.read(path)]


NOON = datetime(2026, 1, 2, 12, 0, 0, 5)
VALUES: list[tuple[Any, str]] = [
    (True, "boolean"),
    (7, "long"),
    (2**63, "decimal(38, 0)"),
    (1.5, "double"),
    ("2026-01-02", "string"),
    (Decimal("1.50"), "decimal(3, 2)"),
    (NOON, "timestamp_ntz"),
    (NOON.replace(tzinfo=UTC), "timestamp"),
    (date(2026, 1, 2), "date"),
    (b"\xff", "binary"),
    ([1, 2], "list<long>"),
    ({"x": 1}, "struct<x: long>"),
]


def test_values_keep_their_types() -> None:
    """Each of its own, beside all others, at any depth."""
    for value, type_ in VALUES:
        assert read([{"a": value}, {}]) == ({"a": type_}, [{"a": value}, {}])
    many = [{"a": value} for value, _ in VALUES]
    types, rows = read(many)
    assert types["a"].split(" | ") == sorted(type_ for _, type_ in VALUES) and rows == many
    types, _ = read([{"a": [value for value, _ in VALUES]}])
    assert types["a"].count("list<") == len(VALUES) + 1
    nested, _ = read([{"s": {"a": value}} for value, _ in VALUES])
    assert nested["s"].count("a: ") == len(VALUES)


def test_values_that_tables_have_otherwise() -> None:
    assert read([{"a": time(1, 2, 3)}]) == ({"a": "string"}, [{"a": "01:02:03"}])
    assert read([{"a": timedelta(seconds=1)}]) == ({"a": "string"}, [{"a": "00:00:01"}])
    assert read([{"a": UUID(int=1)}]) == ({"a": "uuid"}, [{"a": UUID(int=1).bytes}])
    assert read([{"a": 10**40}, {"a": "x"}]) == ({"a": "string"}, [{"a": str(10**40)}, {"a": "x"}])
    east = NOON.replace(tzinfo=timezone(timedelta(hours=2)))
    assert read([{"a": east}])[1] == [{"a": east.astimezone(UTC)}]
    fine = pd.Timestamp("2026-01-02T00:00:00.000000001Z")
    assert read([{"a": fine}]) == ({"a": "string | timestamp"}, [{"a": "2026-01-02T00:00:00.000000001Z"}])
    numpy = {"i": np.int32(1), "f": np.float64(0.5), "a": np.array([1, 2]), "b": np.bool_(True), "n": pd.NaT}
    assert read([numpy]) == (
        {"i": "long", "f": "double", "a": "list<long>", "b": "boolean", "n": "void"},
        [{"i": 1, "f": 0.5, "a": [1, 2], "b": True}],
    )


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"a": {"b": {1, 2}}}, r"a\.b: a value of type set cannot be stored in a table"),
        ({"a": [1 + 2j]}, r"a\.element: a value of type complex"),
        ({"a": {1: 2}}, r"a\.1: a key of type int"),
        ({"a": "\ud800"}, r"a: .*surrogates"),
        ("text", "item 1 is a str, not a dict"),
        (dict, "item 1 is a type, not a dict"),
    ],
)
def test_what_no_table_has_is_named(record: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(iter([{"ok": 1}, record]))


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abc"),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("xyz") | st.datetimes().map(lambda at: at.replace(fold=0)),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
                max_leaves=4,
            ),
        ),
        min_size=1,
        max_size=5,
    )
)  # fmt: skip
def test_no_value_of_a_record_is_lost(records: list[dict[str, Any]]) -> None:
    struct, batch = record_columns(records)
    batch.validate(full=True)
    assert [f.name for f in struct.fields] == batch.schema.names
    for record, *values in zip(records, *batch.columns, strict=True):
        found = [leaf for value in values for leaf in leaves(value)]
        assert sorted(map(repr, found)) == sorted(map(repr, leaves(record)))


def plain(value: pa.Scalar) -> Any:
    """A value in which a key may stand several times, without what is null in records."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.StructScalar):
        values = [(f.name, plain(value[i])) for i, f in enumerate(value.type)]
        return dict(pair for pair in values if pair[1] is not None)
    return [plain(item) for item in value.values] if isinstance(value, pa.ListScalar) else value.as_py()


def leaves(value: Any) -> list[Any]:
    match value:
        case None:
            return []
        case pa.StructScalar() if value.is_valid:
            return [leaf for i in range(len(value.type)) for leaf in leaves(value[i])]
        case pa.ListScalar() if value.is_valid:
            return [leaf for item in value.values for leaf in leaves(item)]
        case pa.Scalar():
            return [] if value.as_py() is None else [value.as_py()]
        case dict():
            return [leaf for item in value.values() for leaf in leaves(item)]
        case list():
            return [leaf for item in value for leaf in leaves(item)]
        case int() if abs(value) >= 10**38:
            return [str(value)]
        case int() if not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            return [Decimal(value)]
        case _:
            return [value]


# Tables -------------------------------------------------------------------------------------------------------


def test_tables_and_readers_of_arrow() -> None:
    table = pa.table(
        {
            "n": pa.array([1, None, 3], pa.uint16()),
            "at": pa.array([1, 1_000, None], pa.timestamp("ns", "Europe/Berlin")),
            "word": pa.array(["a", "b", "a"]).dictionary_encode(),
        }
    )
    expected = (
        {"n": "int", "at": "string | timestamp", "word": "string"},
        [
            {"n": 1, "at": "1970-01-01T00:00:00.000000001Z", "word": "a"},
            {"at": datetime(1970, 1, 1, 0, 0, 0, 1, UTC), "word": "b"},
            {"n": 3, "word": "a"},
        ],
    )
    assert read(table) == read(table.to_reader(max_chunksize=2)) == expected
    assert read(table.combine_chunks().to_batches()[0]) == expected
    assert read(table.slice(0, 0)) == (expected[0], [])
    with pytest.raises(UsageError, match="a ChunkedArray is not a table"):
        read(table["n"])


def test_frames_of_pandas() -> None:
    frame = pd.DataFrame(
        {
            "mixed": [1, "x", None],
            "f": [1.5, math.nan, 2.0],
            "at": pd.to_datetime(["2026-01-02", None, "2026-01-03"]).as_unit("us"),
            "kind": pd.Categorical(["a", "b", "a"]),
            "n": pd.array([1, None, 3], dtype="Int64"),
            "d": [Decimal("1.5"), None, Decimal("2.25")],
            3: [True, False, True],
        },
        index=pd.Index(["k1", "k2", "k3"], name="key"),
    )
    types, rows = read(frame)
    assert types == {
        "key": "string", "mixed": "long | string", "f": "double", "at": "timestamp_ntz", "kind": "string",
        "n": "long", "d": "decimal(3, 2)", "3": "boolean",
    }  # fmt: skip
    assert rows[1] == {"key": "k2", "mixed": "x", "kind": "b", "3": False}
    assert rows[2]["at"] == datetime(2026, 1, 3) and rows[0]["d"] == Decimal("1.50")
    assert read(frame[["f"]].reset_index(drop=True).iloc[2:]) == (
        {"f": "double"},
        [{"f": 2.0}],
    )
    with pytest.raises(UsageError, match="more than one column named 'f'"):
        read(pd.concat([frame[["f"]], frame[["f"]]], axis=1))
    with pytest.raises(UsageError, match="a pandas Series is not a table"):
        read(frame["f"])


def test_frames_of_polars() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    frame = pl.DataFrame(
        {
            "kind": pl.Series(["a", "b"], dtype=pl.Categorical),
            "d": pl.Series([Decimal("1.50"), None], dtype=pl.Decimal(10, 2)),
            "at": pl.Series([at, None], dtype=pl.Datetime("ns", "UTC")),
            "tags": [[1, 2], []],
            "s": [{"x": 1}, {"x": 2}],
            "none": [None, None],
        }
    )
    types, rows = read(frame)
    assert types == {
        "kind": "string", "d": "decimal(10, 2)", "at": "string | timestamp", "tags": "list<long>",
        "s": "struct<x: long>", "none": "void",
    }  # fmt: skip
    assert rows[0] == {"kind": "a", "d": Decimal("1.50"), "at": at, "tags": [1, 2], "s": {"x": 1}}
    assert read(frame.lazy()) == (types, rows)


def test_null_member_of_a_record_stays_as_an_envelope_may_need_it() -> None:
    deleted = {"type": "DELETE", "data": None, "old": [{"id": "7"}]}
    assert independently([deleted]) == [deleted]
    assert len(changes_in("canal", independently([deleted])[0])) == 1


def test_polars_columns_of_objects_are_what_the_objects_are() -> None:
    """Arrow gets their addresses as bytes, which are nothing of the data."""
    ids = [UUID(int=7), None]
    frame = pl.DataFrame({"n": [1, 2], "id": ids, "mixed": pl.Series([Decimal("1.5"), "x"], dtype=pl.Object)})
    expected = (
        {"n": "long", "id": "uuid", "mixed": "decimal(2, 1) | string"},
        [{"n": 1, "id": UUID(int=7).bytes, "mixed": Decimal("1.5")}, {"n": 2, "mixed": "x"}],
    )
    assert read(frame) == read(frame.lazy()) == expected
    assert independently(frame) == [
        {"n": 1, "id": str(UUID(int=7)), "mixed": Decimal("1.5")},
        {"n": 2, "id": None, "mixed": "x"},
    ]
    with pytest.raises(UsageError, match=r"^s: a value of type set cannot be stored in a table"):
        read(pl.DataFrame({"s": [{1, 2}, {3}]}))


# Every dtype --------------------------------------------------------------------------------------------------


PANDAS: list[tuple[Any, str, list[Any]]] = [
    *((pd.Series([1, 2], dtype=name), "int", [1, 2]) for name in ("int8", "int16", "int32", "uint8", "uint16", "Int8", "UInt16", "int32[pyarrow]")),
    *((pd.Series([1, 2], dtype=name), "long", [1, 2]) for name in ("int64", "uint32", "Int64", "UInt32", "Sparse[int64]")),
    *((pd.Series([1, 2**64 - 1], dtype=name), "decimal(20, 0)", [1, 2**64 - 1]) for name in ("uint64", "UInt64")),
    *((pd.Series([0.5, None], dtype=name), "float", [0.5, None]) for name in ("float16", "float32", "Float32")),
    *((pd.Series([0.5, None], dtype=name), "double", [0.5, None]) for name in ("float64", "Float64", "Sparse[float64]")),
    *((pd.Series([True, False], dtype=name), "boolean", [True, False]) for name in ("bool", "boolean", "bool[pyarrow]")),
    *((pd.Series(["a", None], dtype=name), "string", ["a", None]) for name in ("str", "string", "string[python]", "string[pyarrow]", "category", "object")),
    (pd.Series(np.array([b"ab", b"c"])), "binary", [b"ab", b"c"]),
    (pd.Series(pd.to_datetime(["2026-01-02", None])).dt.as_unit("us"), "timestamp_ntz", [datetime(2026, 1, 2), None]),
    *((pd.Series(pd.to_datetime(["2026-01-02", None])).dt.as_unit(unit), "string | timestamp_ntz", [datetime(2026, 1, 2), None]) for unit in ("s", "ms", "ns")),
    (pd.Series(pd.to_datetime(["2026-01-02T01:00+01:00", None], utc=True)), "timestamp", [datetime(2026, 1, 2, tzinfo=UTC), None]),
    *((pd.Series([1, None, -1], dtype=f"timedelta64[{unit}]"), "string", [text, None, f"-{text}"]) for unit, text in (("s", "00:00:01"), ("ms", "00:00:00.001"), ("us", "00:00:00.000001"), ("ns", "00:00:00.000000001"))),
    (pd.Series([timedelta(days=2, seconds=1), pd.Timedelta(1, "ns")], dtype=object), "string", ["48:00:01", "00:00:00.000000001"]),
    *((pd.Series(pd.PeriodIndex(["2026-01-02", None], freq=freq)), "string", [text, None]) for freq, text in (("M", "2026-01"), ("D", "2026-01-02"), ("Q-NOV", "2026Q1"), ("W", "2025-12-29/2026-01-04"), ("h", "2026-01-02 00:00"))),
    (pd.Series(pd.arrays.IntervalArray.from_tuples([(1, 2), None], closed="left")), "struct<left: double, right: double, closed: string>", [{"left": 1.0, "right": 2.0, "closed": "left"}, None]),
]  # fmt: skip
POLARS: list[tuple[pl.Series, str, list[Any]]] = [
    *((pl.Series([1, None], dtype=dtype), "int", [1, None]) for dtype in (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16)),
    *((pl.Series([1, None], dtype=dtype), "long", [1, None]) for dtype in (pl.Int64, pl.UInt32)),
    (pl.Series([2**64 - 1], dtype=pl.UInt64), "decimal(20, 0)", [2**64 - 1]),
    (pl.Series([10**38 - 1, None, 2**127 - 1], dtype=pl.Int128), "decimal(38, 0) | string", [10**38 - 1, None, str(2**127 - 1)]),
    (pl.Series([1, 2**128 - 1], dtype=pl.UInt128), "decimal(38, 0) | string", [1, str(2**128 - 1)]),
    *((pl.Series([0.5], dtype=dtype), "float", [0.5]) for dtype in (pl.Float16, pl.Float32)),
    (pl.Series([0.5], dtype=pl.Float64), "double", [0.5]),
    (pl.Series([True, None], dtype=pl.Boolean), "boolean", [True, None]),
    *((pl.Series(["a", None], dtype=dtype), "string", ["a", None]) for dtype in (pl.String, pl.Categorical, pl.Enum(["a"]))),
    (pl.Series([b"a"], dtype=pl.Binary), "binary", [b"a"]),
    (pl.Series([Decimal("1.50")], dtype=pl.Decimal(5, 2)), "decimal(5, 2)", [Decimal("1.50")]),
    (pl.Series([date(2026, 1, 2)], dtype=pl.Date), "date", [date(2026, 1, 2)]),
    (pl.Series([time(1, 2, 3)], dtype=pl.Time), "string", ["01:02:03"]),
    (pl.Series([datetime(2026, 1, 2)], dtype=pl.Datetime("us")), "timestamp_ntz", [datetime(2026, 1, 2)]),
    *((pl.Series([datetime(2026, 1, 2)], dtype=pl.Datetime(unit)), "string | timestamp_ntz", [datetime(2026, 1, 2)]) for unit in ("ms", "ns")),
    *((pl.Series([timedelta(seconds=90)], dtype=pl.Duration(unit)), "string", ["00:01:30"]) for unit in ("ms", "us", "ns")),
    (pl.Series([[1], None], dtype=pl.List(pl.Int64)), "list<long>", [[1], None]),
    (pl.Series([[1, 2]], dtype=pl.Array(pl.Int64, 2)), "list<long>", [[1, 2]]),
    (pl.Series([{"a": 1}], dtype=pl.Struct({"a": pl.Int64})), "struct<a: long>", [{"a": 1}]),
    (pl.Series([None, None], dtype=pl.Null), "void", [None, None]),
]  # fmt: skip
NUMPY: list[tuple[Any, str, Any]] = [
    *((np.dtype(name).type(7), "long", 7) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")),
    *((np.dtype(name).type(0.5), "double", 0.5) for name in ("float16", "float32", "float64")),
    (np.bool_(True), "boolean", True),
    (np.str_("a"), "string", "a"),
    (np.bytes_(b"a"), "binary", b"a"),
    (np.datetime64("2026-01-02"), "date", date(2026, 1, 2)),
    (np.datetime64("2026-01-02", "s"), "timestamp_ntz", datetime(2026, 1, 2)),
    (np.datetime64("2026-01-02", "ns"), "timestamp_ntz", datetime(2026, 1, 2)),
    (np.datetime64("2026-01-02T00:00:00.000000001"), "string | timestamp_ntz", "2026-01-02T00:00:00.000000001"),
    (np.timedelta64(90, "s"), "string", "00:01:30"),
    (np.timedelta64(1, "ns"), "string", "00:00:00.000000001"),
    (np.array(7), "long", 7),
    (np.array([1_000], "m8[us]"), "list<string>", ["00:00:00.001"]),
    (np.array([(1, "x")], dtype=[("n", "i8"), ("t", "U1")])[0], "struct<n: long, t: string>", {"n": 1, "t": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("series", "type_", "values"), [*PANDAS, *POLARS], ids=lambda case: str(getattr(case, "dtype", ""))
)
def test_every_dtype_of_a_frame_keeps_its_values(series: Any, type_: str, values: list[Any]) -> None:
    """`verify` reads the same, by itself."""
    frame = pd.DataFrame({"x": series}) if isinstance(series, pd.Series) else pl.DataFrame({"x": series})
    types, rows = read(frame)
    assert types == {"x": type_}
    assert [row.get("x") for row in rows] == values
    numbers = [int(v) if "128" in str(series.dtype) and isinstance(v, str) else v for v in values]
    assert [record.get("x") for record in independently(frame)] == numbers


@pytest.mark.parametrize(("value", "type_", "held"), NUMPY, ids=lambda case: str(getattr(case, "dtype", "")))
def test_every_dtype_of_a_record_keeps_its_values(value: Any, type_: str, held: Any) -> None:
    types, rows = read([{"x": value}])
    assert (types, rows) == ({"x": type_}, [{"x": held}])
    assert independently([{"x": value}]) == [{"x": held}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pd.DataFrame({"x": np.array([1j])}), "x: type complex128 cannot be stored in a table: "),
        (pd.DataFrame({"x": np.array([1], np.longdouble)}), "x: type float128 cannot be stored in a table: "),
        (pd.DataFrame({"x": np.array([b"ab"], "V2")}), r"x: type .*V2 cannot be stored in a table: "),
        (pl.DataFrame({"x": pl.Series([[1]], dtype=pl.List(pl.Int128))}), r"x: type List\(Int128\) cannot be stored in a table: "),
        ([{"x": np.complex64(1)}], "x: a value of type complex cannot be stored in a table"),
        ([{"x": np.longdouble(1)}], "x: a value of type longdouble cannot be stored in a table"),
        ([{"x": np.timedelta64(1, "M")}], "x: Unsupported timedelta64 time unit"),
        (pl.Series([1]), "a Series is not a table that Arrow can read: "),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)  # fmt: skip
def test_dtype_that_no_table_has_is_refused_with_its_column(data: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        read(data)


# Values outside their type ------------------------------------------------------------------------------------


def unchecked(type_: pa.DataType, *unscaled: int) -> pa.Array:
    """Decimals by their bytes, whose digits Arrow does not look at."""
    size = type_.bit_width // 8
    data = b"".join(number.to_bytes(size, "little", signed=True) for number in unscaled)
    return pa.Array.from_buffers(type_, len(unscaled), [None, pa.py_buffer(data)])


def unchecked_text(type_: pa.DataType) -> pa.Array:
    """Two texts, the second of which is not UTF-8."""
    offsets = np.array([0, 2, 3], np.int32 if type_ == pa.string() else np.int64)
    return pa.Array.from_buffers(type_, 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"ok\xff")])


DIGITS, TEXT = "a decimal with more digits than its type has", "text that is not UTF-8"
FAULTY: list[tuple[pa.Array, str, bytes]] = [
    (unchecked(pa.decimal32(5, 2), 12345, 123456789), DIGITS, b"1234567.89"),
    (unchecked(pa.decimal64(5, 2), 12345, 10**12 + 1), DIGITS, b"10000000000.01"),
    (unchecked(pa.decimal128(5, 2), 12345, 123456789), DIGITS, b"1234567.89"),
    (unchecked(pa.decimal128(38, 0), 12345, 10**38), DIGITS, b"%d" % 10**38),
    (unchecked(pa.decimal256(5, 2), 12345, 123456789), DIGITS, b"1234567.89"),
    (unchecked(pa.decimal256(5, 0), 12345, 10**70), DIGITS, b'"%d"' % 10**70),
    (unchecked_text(pa.string()), TEXT, b'"\xff"'),
    (unchecked_text(pa.large_string()), TEXT, b'"\xff"'),
    (unchecked_text(pa.string()).dictionary_encode(), TEXT, b'"\xff"'),
]


@pytest.mark.parametrize(
    ("values", "fault", "text"), FAULTY, ids=lambda value: str(getattr(value, "type", ""))
)
def test_row_with_a_value_outside_its_type_waits(values: pa.Array, fault: str, text: bytes) -> None:
    """The other row is taken, wherever the value stands."""
    ids = pa.array([1, 2])
    inner = pa.StructArray.from_arrays([values], ["v"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), inner)
    for column, raw in ((values, text), (inner, b'{"v":%b}' % text), (lists, b'[{"v":%b}]' % text)):
        if pa.types.is_dictionary(values.type) and column is not values:
            continue  # Arrow's check looks at the words of all
        table = pa.table({"id": ids, "x": column})
        assert waiting(table) == ([1], [(b'{"id":2,"x":%b}' % raw, f"x: {fault}")])
        assert waiting(table.slice(1)) == ([], [(b'{"id":2,"x":%b}' % raw, f"x: {fault}")])
    frame = pd.DataFrame({"id": [1, 2], "x": pd.arrays.ArrowExtensionArray(pa.chunked_array([values]))})
    if fault == DIGITS and not pa.types.is_decimal128(values.type):
        with pytest.raises(DataError, match=r"^x: decimal.* has a value that cannot be read: .*precision"):
            waiting(frame)
    else:
        assert waiting(frame) == ([1], [(b'{"id":2,"x":%b}' % text, f"x: {fault}")])


def waiting(data: Any) -> tuple[list[int], list[tuple[bytes | None, Any]]]:
    """The ids of the rows that are taken; text and reason of those that wait."""
    with written(data) as readers:
        parts = [
            rows for reader in readers for part in range(len(reader.sizes)) for rows in reader.rows(part)
        ]
        for rows in parts:
            rows.batch.validate(full=True)
        ids = [n for rows in parts for n in rows.batch.column(0).to_pylist()]
        return ids, [(reject.raw, reject.why) for rows in parts for reject in rows.rejects]


def test_what_is_neither_paths_nor_rows(tmp_path: Path) -> None:
    assert paths_or_rows("a.json") == (["a.json"], None)
    assert paths_or_rows(Path(p) for p in ("a", "b")) == (["a", "b"], None)
    assert read([]) == ({}, [])
    for data, named in (
        (5, "an int"),
        (None, "a NoneType"),
        (io.StringIO("{}"), "a StringIO: not a file"),
    ):
        with pytest.raises(UsageError, match=f"cannot ingest {named}"):
            paths_or_rows(data)
    file = tmp_path / "a.jsonl"
    file.write_text("{}")
    with file.open() as opened:
        assert paths_or_rows(opened) == ([str(file)], None)
    file.unlink()


class Customer(pydantic.BaseModel):
    zip: str


class Order(pydantic.BaseModel):
    id: int
    customer: Customer


class Item(msgspec.Struct):
    at: datetime
    price: Decimal
    tags: list[str]


@dataclass
class Line:
    item: Item | None
    count: int


class Point(NamedTuple):
    x: int


def test_objects_with_named_fields_are_records() -> None:
    item = Item(NOON, Decimal("1.50"), ["a"])
    assert read([Order(id=1, customer=Customer(zip="x"))])[1] == [{"id": 1, "customer": {"zip": "x"}}]
    assert read([item])[1] == [{"at": NOON, "price": Decimal("1.50"), "tags": ["a"]}]
    assert read(Line(None, 2)) == ({"item": "void", "count": "long"}, [{"count": 2}])
    assert read([Point(1), {"x": 2}])[1] == [{"x": 1}, {"x": 2}]
    assert read({"a": 1}) == ({"a": "long"}, [{"a": 1}])


def test_records_are_streamed() -> None:
    """None is held longer than its batch."""
    alive = 0

    class Record(dict[str, Any]):
        def __init__(self, n: int) -> None:
            nonlocal alive
            super().__init__(n=n)
            alive += 1

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    most = 0

    def records() -> Iterator[Record]:
        nonlocal most
        for n in range(200_000):
            most = max(most, alive)
            yield Record(n)

    with written(paths_or_rows(records())[1]) as readers:
        assert (
            sum(some.batch.num_rows for r in readers for i in range(len(r.sizes)) for some in r.rows(i))
            == 200_000
        )
    assert most < 140_000
