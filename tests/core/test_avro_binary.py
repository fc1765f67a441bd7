"""Avro's binary form, read in whole columns: the same as one by one, and nothing of what that would not take."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import UsageError
from driftline.readers.avro.files import avro_readers
from driftline.readers.kafka.registry import Registered
from driftline.readers.kafka.values import AvroDecoder
from driftline.readers.kafka.wire import Payloads, UnreadableError


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": k, "type": t} for k, t in fields.items()]}


def logical(type_: str, name: str, /, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
DOUBLE = st.floats(allow_nan=False)
TIMES, CLOCK = LONG, st.integers(0, 86_399_999)
FIXED = st.binary(min_size=3, max_size=3)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# A schema of each kind, and the values that are written for it: numbers, where it is a logical type.
LEAVES: list[tuple[Any, Any]] = [
    ("boolean", st.booleans()),
    ("int", INT),
    ("long", LONG),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", DOUBLE),
    ("string", TEXT),
    ("bytes", st.binary(max_size=20)),
    ({"type": "enum", "name": "Kind", "symbols": ["NEW", "PAID", "SENT"]}, st.sampled_from(["NEW", "SENT"])),
    ({"type": "fixed", "name": "Three", "size": 3}, FIXED),
    (logical("int", "date"), INT),
    (logical("int", "time-millis"), INT | CLOCK),
    (logical("long", "time-micros"), LONG | CLOCK),
    (logical("long", "timestamp-millis"), TIMES | CLOCK),
    (logical("long", "timestamp-micros"), TIMES | CLOCK),
    (logical("long", "local-timestamp-micros"), TIMES | CLOCK),
    (logical("long", "timestamp-nanos"), TIMES | CLOCK),
    (logical("string", "uuid"), TEXT | st.uuids().map(str)),
    (logical("fixed", "uuid", name="Id", size=16), st.binary(min_size=16, max_size=16)),
    (logical("fixed", "duration", name="Span", size=12), st.binary(min_size=12, max_size=12)),
    (logical("bytes", "big-decimal"), st.binary(max_size=5)),
    (logical("bytes", "decimal", precision=9, scale=2), st.binary(max_size=18)),
    (logical("bytes", "decimal", precision=50, scale=2), st.binary(max_size=18)),
    (logical("fixed", "decimal", precision=6, scale=2, name="Sum", size=3), FIXED),
    (logical("long", "unheard-of"), LONG),
    ("null", st.none()),
    (["string", "null", "double", logical("long", "timestamp-millis")], TEXT | st.none() | DOUBLE | CLOCK),
]


@st.composite
def places(draw: st.DrawFn, depth: int = 0) -> tuple[Any, Any]:
    """A schema of some place, and a strategy of its values."""
    inner = places(depth + 1)
    kind = draw(st.sampled_from(["leaf"] * 3 + (["list", "map", "record", "union"] if depth < 3 else [])))
    if kind == "leaf":
        schema, values = draw(st.sampled_from(LEAVES))
        if isinstance(schema, dict) and "name" in schema:  # which may be there once
            schema = {**schema, "name": f"N{draw(st.uuids()).hex}"}
        return schema, values
    if kind == "record":
        fields = draw(st.lists(inner, max_size=3))
        return (
            record(f"R{draw(st.uuids()).hex}", **{f"f{i}": schema for i, (schema, _) in enumerate(fields)}),
            st.fixed_dictionaries({f"f{i}": values for i, (_, values) in enumerate(fields)}),
        )
    schema, values = draw(inner.filter(lambda place: not isinstance(place[0], list)))
    if kind == "union":
        branches = draw(st.permutations(["null", schema])) if schema != "null" else ["null"]
        return branches, st.none() | values
    if kind == "list":
        return {"type": "array", "items": schema}, st.lists(values, max_size=4)
    return {"type": "map", "values": schema}, st.dictionaries(TEXT, values, max_size=3)


def plain(schema: Any) -> Any:
    """The schema without logical types: what writes numbers as they are."""
    if isinstance(schema, list):
        return [plain(branch) for branch in schema]
    if isinstance(schema, dict):
        return {key: plain(value) for key, value in schema.items() if key != "logicalType"}
    return schema


def written(schema: Any, values: Sequence[Any]) -> list[bytes]:
    parsed, out = fastavro.parse_schema(plain(schema)), []
    for value in values:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, parsed, value)
        out.append(file.getvalue())
    return out


def whole(decoder: AvroDecoder, payloads: Sequence[bytes]) -> tuple[list[int], list[pa.Array]]:
    """Which are read at once, and their columns."""
    values = pa.array([b"\0\0\0\0\x01" + payload for payload in payloads], pa.binary())
    read = decoder.whole(Payloads.of(values))
    assert read is not None
    for array in read.arrays:
        array.validate(full=True)
    return read.numbers.tolist(), list(read.arrays)


def single(decoder: AvroDecoder, payload: bytes) -> list[pa.Array] | None:
    """The columns of one; None where it has none."""
    try:
        name, one = decoder.record(payload)
        return decoder.nodes[name].columns([one])
    except (UnreadableError, pa.ArrowException, ValueError, TypeError, OverflowError):
        return None


def as_text(arrays: Sequence[pa.Array], row: int) -> list[str]:
    """A row, in which NaN equals itself, and -0.0 is not 0.0."""
    return [f"{array.type} {plain_value(array[row])!r}" for array in arrays]


def plain_value(value: pa.Scalar) -> Any:
    """A value of Python's; of a struct a list, as a key may stand there several times."""
    if isinstance(value, pa.StructScalar):
        return [plain_value(value[i]) for i in range(len(value.type))] if value.is_valid else None
    if isinstance(value, pa.ListScalar):  # maps, too
        return [plain_value(item) for item in value.values] if value.is_valid else None
    is_counted = pa.types.is_temporal(value.type)  # beyond the years that Python has, too
    return value.value if is_counted else value.as_py()


@pytest.mark.slow
@given(st.data())
def test_what_is_read_at_once_is_what_one_by_one_it_would_be(data: st.DataObject) -> None:
    fields = data.draw(st.lists(places(), min_size=1, max_size=4))
    schema = record("Top", **{f"f{i}": schema for i, (schema, _) in enumerate(fields)})
    rows = st.fixed_dictionaries({f"f{i}": values for i, (_, values) in enumerate(fields)})
    payloads = written(schema, data.draw(st.lists(rows, min_size=1, max_size=6)))
    for number in data.draw(st.sets(st.integers(0, len(payloads) - 1))):  # some that are broken
        cut = data.draw(st.integers(0, len(payloads[number])))
        payloads[number] = payloads[number][:cut] + data.draw(st.binary(max_size=12))
    decoder = AvroDecoder(Registered("AVRO", json.dumps(schema)))
    numbers, arrays = whole(decoder, payloads)
    for row, number in enumerate(numbers):
        expected = single(decoder, payloads[number])
        assert expected is not None
        assert as_text(arrays, row) == as_text(expected, 0)


ORDER = record(
    "Order",
    id="long",
    tags={"type": "array", "items": "string"},
    note=["null", "string"],
    lines={
        "type": "array",
        "items": record("Line", sku="string", prices={"type": "map", "values": "double"}),
    },
)


def order(number: int) -> dict[str, Any]:
    lines = [{"sku": f"s{i}", "prices": {"EUR": i / 4}} for i in range(number % 3)]
    return {"id": number, "tags": ["a"] * (number % 5), "note": "x" * (number % 2) or None, "lines": lines}


def test_a_broken_record_is_left_and_all_others_are_read_at_once() -> None:
    payloads = written(ORDER, [order(i) for i in range(200)])
    payloads[3] = payloads[3][:-1]
    payloads[50] += b"\0"
    payloads[51] = b""
    payloads[199] = b"\x02" + b"\xff" * 20
    numbers, arrays = whole(AvroDecoder(Registered("AVRO", json.dumps(ORDER))), payloads)
    assert numbers == [i for i in range(200) if i not in (3, 50, 51, 199)]
    assert arrays[0].to_pylist() == numbers
    assert arrays[3].to_pylist()[4] == [
        {"sku": "s0", "prices": [("EUR", 0.0)]},
        {"sku": "s1", "prices": [("EUR", 0.25)]},
    ]


def test_a_value_that_swallows_the_next_one_is_left() -> None:
    schema = record("Top", text="string")
    payloads = [b"\x10" + b"ab", b"\x04cd"]  # eight bytes are said: two, and the next value with its header
    assert whole(AvroDecoder(Registered("AVRO", json.dumps(schema))), payloads)[0] == [1]


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ({"type": "array", "items": "null"}, b"\x80\x80\x80\x80\x10\0"),  # more nulls than memory has
        ({"type": "array", "items": "null"}, b"\xff" * 9 + b"\x01\0"),  # -2**63 of them
        ("string", b"\xfe" + b"\xff" * 8 + b"\x01"),  # 2**63 - 1 bytes
        ("bytes", b"\x01"),  # -1 byte
        ("long", b"\xff" * 9 + b"\x7f"),  # more than 64 bits
        (["null", "long"], b"\x03\x02"),  # branch -2
        ("boolean", b"\x02"),
        ({"type": "map", "values": "null"}, b"\x04\x02a\x02a\0"),  # a key twice, of which the last counts
    ],
)
def test_hostile_bytes_are_left(type_: Any, payload: bytes) -> None:
    schema = record("Top", f=type_)
    decoder = AvroDecoder(Registered("AVRO", json.dumps(schema)))
    assert whole(decoder, [payload, payload]) == ([], whole(decoder, [])[1])


def test_a_branch_whose_values_may_stand_for_another_is_read_one_by_one() -> None:
    decoder = AvroDecoder(Registered("AVRO", json.dumps(record("Top", f=["int", "long"]))))
    assert decoder.whole(Payloads.of(pa.array([], pa.binary()))) is None


def test_a_schema_that_is_nested_too_deep(tmp_path: Path) -> None:
    """Python's own error came out of a registry's, and of a file's."""
    levels = 50_000
    field = '{"type": "array", "items": ' * levels + '"long"' + "}" * levels
    text = f'{{"type": "record", "name": "R", "fields": [{{"name": "f", "type": {field}}}]}}'
    with pytest.raises(UsageError, match="its schema is nested too deeply"):
        AvroDecoder(Registered("AVRO", text))
    head, sync = b"Obj\x01\x02\x16avro.schema", bytes(16)
    (tmp_path / "a.avro").write_bytes(head + _varint(len(text)) + text.encode() + b"\x00" + sync)
    with pytest.raises(UsageError, match=r"a\.avro: its schema is nested too deeply"):
        avro_readers([str(tmp_path / "a.avro")])


def _varint(number: int) -> bytes:
    number, out = number * 2, b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])
