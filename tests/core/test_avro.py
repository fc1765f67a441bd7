"""Avro as readers give it, without Spark: logical types, unions as siblings, what is refused."""

from __future__ import annotations

import json
import struct
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

from core.shapes import schema as written_schema
from driftline.convert import Converter
from driftline.core.planning.planner import plan
from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError, UsageError
from driftline.observe.expect import expect
from driftline.readers.avro.files import AvroReader, avro_found, avro_readers, by_aliases, cuts_of
from driftline.readers.columnar.rows import RowsObserver
from driftline.readers.task import AdmissionTerms
from driftline.verify.json_texts import parse
from driftline.verify.typed_files import earlier_names, read_columns, readable
from driftline.verify.values import Single

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
    observer = RowsObserver(reader.struct, reader.label, AdmissionTerms(expect(Schema()), TableSettings()))
    for rows in reader.rows(0):
        observer.feed(rows)
    seen = observer.result()
    planned = plan(Schema(), seen.shape)
    converter = Converter(planned.schema.struct, planned.route, TableSettings())
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


UUID_BYTES, FAR, TINY = bytes(range(16)), 2**63 - 1, "0.0000000000000000001"
BIG = "decimal(38, 18) | string | binary"
DURATIONS = [struct.pack("<III", *parts) for parts in ((1, 2, 3), (0, 0, 0), (0, 1, 0), (0, 0, 61_000))]


def fixed(name: str, size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size, "logicalType": name}


# A logical type, the numbers or bytes that are written of it, the types of the columns, and what they hold.
LOGICAL: list[tuple[Any, list[Any], str, list[Any]]] = [
    (logical("int", "date"), [2932897, -719163, 2**31 - 1, -(2**31)], "date", [2932897, -719163, 2**31 - 1, -(2**31)]),
    (logical("int", "time-millis"), [-1, -719163, 86_399_999], "string", ["-00:00:00.001", "-00:11:59.163", "23:59:59.999"]),
    (logical("int", "time-millis"), [86_400_000, -3_600_000, -(2**31)], "string", ["24:00:00", "-01:00:00", "-596:31:23.648"]),
    (logical("long", "time-micros"), [-1, -3_600_000, 86_400_000_000], "string", ["-00:00:00.000001", "-00:00:03.6", "24:00:00"]),
    (logical("long", "timestamp-millis"), [-62_135_596_800_001], "timestamp | string", [-62_135_596_800_001_000]),
    (logical("long", "timestamp-millis"), [FAR], "timestamp | string", ["292278994-08-17T07:12:55.807Z"]),
    (logical("long", "timestamp-micros"), [253_402_300_800_000_000, -FAR - 1], "timestamp", [253_402_300_800_000_000, -FAR - 1]),
    (logical("long", "local-timestamp-millis"), [-62_135_596_800_001], "timestamp_ntz | string", [-62_135_596_800_001_000]),
    (logical("long", "local-timestamp-micros"), [FAR], "timestamp_ntz", [FAR]),
    (logical("long", "timestamp-nanos"), [1_000, 1_731_508_712_229_224_123], "timestamp | string", [1, "2024-11-13T14:38:32.229224123Z"]),
    (logical("long", "local-timestamp-nanos"), [1_000], "timestamp_ntz | string", [1]),
    (fixed("uuid", 16), [UUID_BYTES], "uuid", [UUID_BYTES]),
    (["null", fixed("uuid", 16)], [None, UUID_BYTES], "uuid", [None, UUID_BYTES]),
    (logical("string", "uuid"), [str(UUID(int=5)), "none"], "uuid | string", [UUID(int=5).bytes, "none"]),
    (fixed("duration", 12), DURATIONS, "string", ["P1M2DT0.003S", "PT0S", "P1D", "PT61S"]),
    (logical("bytes", "big-decimal"), [b"\x04\x30\x39\x04"], BIG, [Decimal("123.45")]),
    (logical("bytes", "big-decimal"), [b"\x02\x01\x26", b"\x05"], BIG, [TINY, b"\x05"]),
    # A logical type that may not stand on its base, or is unknown, counts for nothing.
    (logical("long", "date"), [7], "long", [7]),
    (logical("string", "timestamp-millis"), ["x"], "string", ["x"]),
    (fixed("uuid", 3), [b"abc"], "binary", [b"abc"]),
    (logical("bytes", "decimal"), [b"x"], "binary", [b"x"]),
    (logical("bytes", "decimal", precision=2, scale=5), [b"x"], "binary", [b"x"]),
    ({**fixed("decimal", 1), "precision": 30}, [b"x"], "binary", [b"x"]),
    (logical("long", "unheard-of"), [7], "long", [7]),
    # Of a union the value tells its branch.
    (["long", logical("long", "timestamp-micros"), logical("int", "date")], [7, 9], "long | timestamp | date", [7, 9]),
]  # fmt: skip


@pytest.mark.parametrize(("field", "values", "types", "held"), LOGICAL, ids=lambda case: str(case)[:60])
def test_logical_type_is_read_as_it_was_written(
    tmp_path: Path, field: Any, values: list[Any], types: str, held: list[Any]
) -> None:
    """By the rules of Parquet's types, whatever Python has for them."""
    bare = json.loads(json.dumps(field).replace("logicalType", "logicalTyp_"))
    file = written(tmp_path / "a.avro", bare, *values)
    file.write_bytes(file.read_bytes().replace(b"logicalTyp_", b"logicalType"))
    (reader,) = avro_readers([str(file)])
    (rows,) = reader.rows(0)
    assert " | ".join(str(f.type) for f in reader.struct.fields) == types
    columns = [as_counted(column) for column in rows.batch.columns]
    assert [next((v for v in row if v is not None), None) for row in zip(*columns, strict=True)] == held
    if types in ("string", "long", "binary", BIG) and readable(str(file), "avro"):
        independently = [record.record["f"] for record in read_columns(str(file), "avro")]
        assert [str(value) for value in independently] == [
            str(value).replace(TINY, "1E-19") for value in held
        ]


def test_logical_type_that_counts_for_nothing_is_noted_once(tmp_path: Path) -> None:
    files = [written(tmp_path / name, logical("long", "unheard-of"), 7) for name in ("a.avro", "b.avro")]
    note = f"unheard-of is no logical type of long, so its values are read as long ({files[0]})"
    assert avro_found(list(map(str, files))).notes == [note]
    assert avro_found([str(written(tmp_path / "c.avro", logical("int", "date"), 7))]).notes == []


def record_file(path: Path, *fields: dict[str, Any], values: dict[str, Any] | None = None) -> str:
    fields = tuple({"type": "long", **field} for field in fields)
    with path.open("wb") as file:
        fastavro.writer(
            file,
            {"type": "record", "name": "Top", "fields": fields},
            [values or {f["name"]: 1 for f in fields}],
        )
    return str(path)


@pytest.mark.parametrize(
    ("table", "fields", "columns"),
    [
        (["messageId"], [{"name": "id", "aliases": ["messageId"]}], ["messageId"]),
        (["messageId"], [{"name": "id", "aliases": ["other", "messageId"]}], ["messageId"]),
        ([], [{"name": "id", "aliases": ["messageId"]}], ["id"]),
        (["messageId", "id"], [{"name": "id", "aliases": ["messageId"]}], ["id"]),
        (
            ["messageId"],
            [{"name": "id", "aliases": ["messageId"]}, {"name": "messageId"}],
            ["id", "messageId"],
        ),
        (
            ["a"],
            [{"name": "b", "aliases": ["a"]}, {"name": "c", "aliases": ["a"]}],
            ["a", "c"],  # one column takes one field
        ),
    ],
)
def test_field_with_alias_fills_column_of_its_earlier_name(
    table: list[str], fields: list[dict[str, Any]], columns: list[str], tmp_path: Path
) -> None:
    file = record_file(tmp_path / "a.avro", *fields)
    schema = Schema(Struct(tuple(Field(name, LONG) for name in table)))
    found = by_aliases(avro_found([file]), expect(schema), TableSettings(), None)
    (reader,) = found.readers
    assert [f.name for f in reader.struct.fields] == columns
    assert [rows.batch.schema.names for rows in reader.rows(0)] == [columns]
    names = dict(zip([f["name"] for f in fields], columns, strict=True))
    renamed = {name: column for name, column in names.items() if name != column}
    assert earlier_names(file, {name: {} for name in table}) == {
        name: (column, {}) for name, column in renamed.items()
    }
    said = "its earlier name by an alias of the schema"
    assert found.notes == [
        f"the field {name} fills {column}, {said} ({file})" for name, column in renamed.items()
    ]


def test_field_with_alias_joins_older_files_of_its_batch(tmp_path: Path) -> None:
    old = record_file(tmp_path / "a.avro", {"name": "messageId"})
    new = record_file(tmp_path / "b.avro", {"name": "id", "aliases": ["messageId"]})
    found = by_aliases(avro_found([old, new]), expect(Schema()), TableSettings(), None)
    assert [[f.name for f in reader.struct.fields] for reader in found.readers] == [["messageId"]] * 2


def test_fields_with_aliases_inside_records_fill_columns_of_their_earlier_names(tmp_path: Path) -> None:
    inner = {
        "type": "record",
        "name": "Inner",
        "fields": [
            {"name": "sku", "aliases": ["article"], "type": "string"},
            {"name": "n", "aliases": ["unknown"], "type": "long"},
        ],
    }
    file = record_file(
        tmp_path / "a.avro",
        {"name": "one", "aliases": ["first"], "type": ["null", inner]},
        {"name": "many", "type": {"type": "array", "items": "Inner"}},
        {"name": "new", "type": "Inner"},
        values={"one": {"sku": "x", "n": 1}, "many": [{"sku": "y", "n": 2}], "new": {"sku": "z", "n": 3}},
    )
    schema = written_schema("first: {article: string, n: long}, many: {article: string}[1], other: long")
    found = by_aliases(avro_found([file]), expect(schema), TableSettings(), None)
    (reader,) = found.readers
    ((rows,),) = [list(reader.rows(0))]
    assert rows.batch.to_pylist() == [
        {"first": {"article": "x", "n": 1}, "many": [{"article": "y", "n": 2}], "new": {"sku": "z", "n": 3}}
    ]
    assert [str(f.type) for f in reader.struct.fields] == [
        "struct<article: string, n: long>",
        "list<struct<article: string, n: long>>",
        "struct<sku: string, n: long>",
    ]
    said = f"its earlier name by an alias of the schema ({file})"
    assert found.notes == [
        f"the field one fills first, {said}",
        f"the field first.sku fills first.article, {said}",
        f"the field many.sku fills many.article, {said}",
    ]
    keys = {"first": {"article": {}, "n": {}}, "many": {"article": {}}, "other": {}}
    inside = {"sku": ("article", {})}
    assert earlier_names(file, keys) == {"one": ("first", inside), "many": ("many", inside)}


def as_counted(column: pa.Array) -> list[Any]:
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def test_float_beside_double_and_text_is_of_its_own_branch(tmp_path: Path) -> None:
    union = ["null", {"type": "float"}, "double", "string"]
    values = [("double", 1e300), "x", ("float", 0.1), ("double", 0.1), None]
    for field in (union, {"type": "array", "items": union}, {"type": "map", "values": union}):
        nested = [{"k": v} if "values" in field else [v] if "items" in field else v for v in values]
        read = [
            record.record["f"]
            for record in read_columns(str(written(tmp_path / "u", field, *nested)), "avro")
            if record.record
        ]
        plain = [v["k"] if isinstance(v, dict) else v[0] if isinstance(v, list) else v for v in read]
        assert [(type(v), v) for v in plain[:4]] == [
            (float, 1e300),
            (str, "x"),
            (Single, 0.10000000149011612),
            (float, 0.1),
        ]


def test_verify_reads_uuids_and_moments_as_they_were_written(tmp_path: Path) -> None:
    file = written(tmp_path / "u.avro", ["null", fixed("uuid", 16)], None, UUID_BYTES)
    assert [record.record for record in read_columns(str(file), "avro")] == [
        {},
        {"f": str(UUID(bytes=UUID_BYTES))},
    ]
    file = written(tmp_path / "t.avro", logical("long", "timestamp-nanos"), 1_000, 1_001, 2**63 - 1)
    assert [record.record for record in read_columns(str(file), "avro")] == [
        {"f": datetime(1970, 1, 1, 0, 0, 0, 1, UTC)},
        {"f": "1970-01-01T00:00:00.000001001Z"},
        {"f": "2262-04-11T23:47:16.854775807Z"},
    ]


def test_record_with_a_decimal_of_any_length_waits(tmp_path: Path) -> None:
    """The others are taken, each with the number of its record."""
    numbers = [15, -(10**45), 25, 10**5000]
    bare = {"type": "bytes", "logicalTyp_": "decimal", "precision": 9, "scale": 1}
    file = written(tmp_path / "a.avro", bare, *[n.to_bytes(2100, "big", signed=True) for n in numbers])
    file.write_bytes(file.read_bytes().replace(b"logicalTyp_", b"logicalType"))
    (reader,) = avro_readers([str(file)])
    parts = list(reader.rows(0))
    assert [n for rows in parts for n in rows.batch.column(0).to_pylist()] == [Decimal("1.5"), Decimal("2.5")]
    assert [n for rows in parts for n in rows.lines.tolist()] == [1, 3]
    rejects = [reject for rows in parts for reject in rows.rejects]
    assert [reject.origin.line for reject in rejects] == [2, 4]
    assert rejects[0].raw == b'{"f":"-1%b"}' % (b"0" * 44) and len(rejects[1].raw) > 5000
    assert all(reject.why.startswith("a value that its type has no room for: ") for reject in rejects)
    assert [len(str(record.record["f"])) for record in read_columns(str(file), "avro")] == [3, 48, 3, 5002]


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


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_broken_block_is_named_by_ingest_and_verify(tmp_path: Path, codec: str) -> None:
    file = written(tmp_path / "a.avro", ["null", "string"], *map(str, range(10_000)), codec=codec)
    whole = file.read_bytes()
    at = len(whole) // 2
    file.write_bytes(whole[:at] + b"\x7f" * 50 + whole[at + 50 :])

    (reader,) = avro_readers([str(file)])
    with pytest.raises(DataError, match=r"a\.avro: cannot be read: "):
        list(reader.rows(0))
    with pytest.raises(DataError, match=r"a\.avro: cannot be read: "):
        list(read_columns(str(file), "avro"))


def test_value_of_no_branch_of_its_union_has_a_cause_in_words(tmp_path: Path) -> None:
    file = written(tmp_path / "a.avro", ["null", "string"], "abc", codec="null")
    file.write_bytes(file.read_bytes().replace(b"\x02\x06abc", b"\x0a\x06abc"))

    (reader,) = avro_readers([str(file)])
    words = r"a\.avro: cannot be read: its values are not what its schema says\n"
    with pytest.raises(DataError, match=words):
        list(reader.rows(0))
    with pytest.raises(DataError, match=words):
        list(read_columns(str(file), "avro"))


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
