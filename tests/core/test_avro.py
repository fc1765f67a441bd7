"""Avro as readers give it, without Spark: logical types, unions as siblings, what is refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from fastavro import _write_py

from driftline.convert import Converter
from driftline.core.planning.plan import plan
from driftline.core.planning.routes import Settings
from driftline.core.schema.types import Schema
from driftline.errors import DataError, UsageError
from driftline.observe.expect import expect
from driftline.readers.avro import AvroReader, avro_readers, cuts_of
from driftline.readers.columnar.rows import RowsObserver
from driftline.readers.terms import AdmissionTerms
from driftline.verify.json_texts import parse
from driftline.verify.typed_files import read_columns, readable

LONGS = {"type": "array", "items": "long"}
CREATED = {
    "type": "record",
    "name": "Created",
    "fields": [{"name": "x", "type": "int"}, {"name": "l", "type": LONGS}],
}
SHIPPED = {
    "type": "record",
    "name": "Shipped",
    "fields": [{"name": "x", "type": "string"}, {"name": "l", "type": LONGS}],
}


def logical(type_: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


def written(path: Path, field: Any, *values: Any, codec: str = "null") -> Path:
    schema = {"type": "record", "name": "Top", "fields": [{"name": "f", "type": field}]}
    with path.open("wb") as file:
        fastavro.writer(file, schema, [{"f": value} for value in values], codec)
    return path


def table_of(file: Path) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The columns, and the rows, of a table that the file came into."""
    (reader,) = avro_readers([str(file)])
    observer = RowsObserver(reader.struct, reader.label, AdmissionTerms(expect(Schema()), Settings()))
    for rows in reader.rows(0):
        observer.feed(rows)
    seen = observer.result()
    planned = plan(Schema(), seen.shape)
    converter = Converter(planned.schema.struct, planned.route, Settings())
    rows = []
    for some in reader.rows(0):
        batch = converter.of_arrow(some.batch, reader.struct, json=False)
        batch.validate(full=True)
        rows += batch.to_pylist()
    return {f.name: str(f.type) for f in planned.schema.struct.fields}, rows


@pytest.mark.parametrize(
    ("field", "value", "type_", "read"),
    [
        ("boolean", True, "boolean", True),
        ("int", 7, "int", 7),
        ("float", 1.5, "float", 1.5),
        ("bytes", b"\xff", "binary", b"\xff"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", "string", "A"),
        ({"type": "fixed", "name": "F", "size": 2}, b"xy", "binary", b"xy"),
        (logical("int", "date"), date(2024, 2, 29), "date", date(2024, 2, 29)),
        (logical("int", "time-millis"), time(1, 2, 3, 4000), "string", "01:02:03.004"),
        (logical("long", "time-micros"), time(1, 2), "string", "01:02:00"),
        (
            logical("long", "timestamp-micros"),
            datetime(1, 1, 1, tzinfo=UTC),
            "timestamp",
            datetime(1, 1, 1, tzinfo=UTC),
        ),
        (
            logical("long", "local-timestamp-millis"),
            datetime(2024, 1, 1),
            "timestamp_ntz",
            datetime(2024, 1, 1),
        ),
        (logical("string", "uuid"), UUID(int=5), "uuid", UUID(int=5).bytes),
        (
            logical("bytes", "decimal", precision=9, scale=2),
            Decimal("1.25"),
            "decimal(9, 2)",
            Decimal("1.25"),
        ),
        (logical("bytes", "decimal", precision=50, scale=2), Decimal(10**45), "string", str(10**45)),
        (LONGS, [1, 2], "list<long>", [1, 2]),
        ({"type": "map", "values": LONGS}, {"k": [1]}, "map<string, list<long>>", [("k", [1])]),
    ],
    ids=str,
)
def test_types(tmp_path: Path, field: Any, value: Any, type_: str, read: Any) -> None:
    assert table_of(written(tmp_path / "a", ["null", field], value, None)) == (
        {"f": type_},
        [{"f": read}, {"f": None}],
    )


def test_unions_are_siblings(tmp_path: Path) -> None:
    types, rows = table_of(written(tmp_path / "a", ["null", "long", "string"], 7, "x", None))
    assert types == {"f_long": "long", "f": "string"}
    assert [(row["f_long"], row["f"]) for row in rows] == [(7, "7"), (None, "x"), (None, None)]


def test_unions_of_one_family_are_its_widest(tmp_path: Path) -> None:
    assert table_of(written(tmp_path / "a", ["int", "long"], 7, 2**40)) == (
        {"f": "long"},
        [{"f": 7}, {"f": 2**40}],
    )


def test_a_value_or_a_list_of_them(tmp_path: Path) -> None:
    types, rows = table_of(written(tmp_path / "a", ["long", LONGS], 7, [8, 9], []))
    assert types == {"f_long": "long", "f": "list<long>"}
    assert [(row["f_long"], row["f"]) for row in rows] == [(7, [7]), (None, [8, 9]), (None, [])]


def test_records_of_several_names_are_one(tmp_path: Path) -> None:
    created, shipped = ("Created", {"x": 1, "l": [1]}), ("Shipped", {"x": "q", "l": [2, 3]})
    types, rows = table_of(written(tmp_path / "a", ["null", CREATED, SHIPPED], shipped, None, created))
    assert types == {"f": "struct<x_int: int, x: string, l: list<long>>"}
    assert [row["f"] for row in rows] == [
        {"x_int": None, "x": "q", "l": [2, 3]}, None, {"x_int": 1, "x": "1", "l": [1]}
    ]  # fmt: skip


def test_unions_inside_lists_and_maps_keep_their_places(tmp_path: Path) -> None:
    types, rows = table_of(
        written(tmp_path / "a", {"type": "array", "items": ["null", "long", "string"]}, [7, None, "x"])
    )
    assert types == {"f_array_long": "list<long>", "f": "list<string>"}
    assert rows == [{"f_array_long": [7, None, None], "f": ["7", None, "x"]}]
    types, rows = table_of(
        written(
            tmp_path / "b",
            {"type": "map", "values": ["boolean", CREATED]},
            {"a": True, "b": ("Created", {"x": 1, "l": []})},
        )
    )
    assert dict(rows[0]["f_map_boolean"]) == {"a": True, "b": None}
    assert dict(rows[0]["f"])["b"] == {"x": 1, "l": []}


def test_a_recursive_type_is_refused(tmp_path: Path) -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    file = written(tmp_path / "a.avro", node, {"next": None})
    with pytest.raises(UsageError, match=r"a\.avro: f\.next: the type Node is recursive"):
        avro_readers([str(file)])


def test_text_that_is_not_utf_8_is_set_aside(tmp_path: Path) -> None:
    file = written(tmp_path / "a.avro", ["null", "string"], "ok", "XX", None)
    file.write_bytes(file.read_bytes().replace(b"XX", b"\xff\xc3"))
    (reader,) = avro_readers([str(file)])
    (rows,) = reader.rows(0)
    assert rows.batch.to_pylist() == [{"f": "ok"}, {"f": None}]
    (reject,) = rows.rejects
    assert (reject.raw, reject.why) == (b'{"f":"\xff\xc3"}', "f: text that is not UTF-8")
    assert [read.record for read in read_columns(str(file), "avro")][1] == parse(
        reject.raw, "surrogateescape"
    )


def test_decimals_with_more_digits_than_their_type_are_set_aside(tmp_path: Path) -> None:
    field = logical("bytes", "decimal", precision=9, scale=1)
    file = written(tmp_path / "a.avro", ["null", field], Decimal("123456.7"), Decimal("12.5"), None)
    file.write_bytes(file.read_bytes().replace(b'"precision": 9', b'"precision": 3'))
    (reader,) = avro_readers([str(file)])
    (rows,) = reader.rows(0)
    assert rows.batch.to_pylist() == [{"f": Decimal("12.5")}, {"f": None}]
    (reject,) = rows.rejects
    assert (reject.raw, reject.why) == (b'{"f":123456.7}', "f: a decimal with more digits than its type has")
    assert next(read.record for read in read_columns(str(file), "avro")) == parse(reject.raw)


def test_all_digits_of_a_decimal_that_is_text(tmp_path: Path) -> None:
    value = Decimal(10**45 + 1)
    file = written(tmp_path / "a.avro", logical("bytes", "decimal", precision=50), value)
    file.write_bytes(file.read_bytes().replace(b'"precision": 50', b'"precision": 40'))
    assert table_of(file) == ({"f": "string"}, [{"f": str(value)}])
    assert [read.record for read in read_columns(str(file), "avro")] == [{"f": value}]


def test_what_is_broken_is_named(tmp_path: Path) -> None:
    (tmp_path / "no.avro").write_bytes(b"no such file")
    with pytest.raises(UsageError, match=r"no\.avro: cannot be read as avro: "):
        avro_readers([str(tmp_path / "no.avro")])
    file = written(tmp_path / "half.avro", "string", *map(str, range(10_000)))
    whole = file.read_bytes()
    file.write_bytes(whole[:20_000])
    with pytest.raises(UsageError, match=r"half\.avro: cannot be read as avro: it is cut off within a block"):
        avro_readers([str(file)])
    file.write_bytes(whole[:20_000] + b"Z" * 2_000 + whole[22_000:])
    (reader,) = avro_readers([str(file)])
    with pytest.raises(DataError, match=r"half\.avro: cannot be read: "):
        list(reader.rows(0))


@pytest.mark.parametrize("wrong", [b'"inx"', b'"i t"', b"12345", b"[[1]]"])
def test_a_schema_that_does_not_parse_is_named(tmp_path: Path, wrong: bytes) -> None:
    file = written(tmp_path / "a.avro", "int", 1)
    file.write_bytes(file.read_bytes().replace(b'"int"', wrong))
    with pytest.raises(UsageError, match=r"a\.avro: (its schema does not parse|its values are)"):
        avro_readers([str(file)])


def test_metadata_of_a_file_may_be_bytes(tmp_path: Path) -> None:
    """Such as the mark that its blocks end with."""
    file = written(tmp_path / "a.avro", "int", 1)
    file.write_bytes(file.read_bytes().replace(b"Obj\x01\x04", b"Obj\x01\x06\x02b\x04\xff\xfe", 1))
    (reader,) = avro_readers([str(file)])
    assert [row for some in reader.rows(0) for row in some.batch.to_pylist()] == [{"f": 1}]
    assert not readable(str(file), "avro")


# As Spark, and others, pack them.
def snappy(data: bytes) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return packed + zlib.crc32(data).to_bytes(4, "big")


def zstandard(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


@pytest.mark.parametrize(("codec", "pack"), [("snappy", snappy), ("zstandard", zstandard)])
def test_codecs_that_fastavro_leaves_to_others(
    tmp_path: Path, codec: str, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def packed_block(encoder: Any, block: bytes, _: object) -> None:
        data = pack(block)
        encoder.write_long(len(data))
        encoder._fo.write(data)

    monkeypatch.setitem(_write_py.BLOCK_WRITERS, codec, packed_block)
    monkeypatch.setattr(fastavro, "writer", _write_py.writer)
    texts = [str(number) for number in range(20_000)]
    (reader,) = avro_readers([str(written(tmp_path / "a.avro", "string", *texts, codec=codec))])
    assert [row["f"] for some in reader.rows(0) for row in some.batch.to_pylist()] == texts


def test_large_files_are_cut_between_blocks(tmp_path: Path) -> None:
    texts = [str(number) for number in range(20_000)]
    file = written(tmp_path / "a.avro", "string", *texts)
    _, cuts = cuts_of(str(file), 40_000)
    assert len(cuts) > 1
    parts = AvroReader(avro_readers([str(file)])[0].struct, str(file), cuts)
    found = [row["f"] for n in range(len(cuts)) for some in parts.rows(n) for row in some.batch.to_pylist()]
    assert found == texts
