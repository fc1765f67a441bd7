"""Data files as tasks write them: what a commit is told of each, and how rows are cut into files and row groups."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.convert import arrow_schema
from driftline.core.changes import AddColumn, apply
from driftline.core.planning.own_columns import REST, with_own
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.naming import MARK
from driftline.core.schema.text import parse_type
from driftline.core.schema.types import Schema, Struct
from driftline.sql.lost import most_waiting
from driftline.write import FilePlan, FileSettings, NewFile, WrittenFile, write_files

FULL, COUNTS, NONE, SHORT = "full", "counts", "none", "truncate(2)"


def schema_of(columns: str) -> Schema:
    """A schema with ids from 1 in the order of the text; nested fields follow all columns."""
    struct = parse_type(f"struct<{columns}>")
    assert isinstance(struct, Struct)
    return apply(Schema(), [AddColumn((), f) for f in struct.fields])


def ids(schema: Schema) -> dict[str, int]:
    return {".".join(path): f.id for path, f in schema.walk()}


def new_file(folder: Path, number: int) -> NewFile:
    path = folder / f"{number}.parquet"
    return NewFile(str(path), pa.OSFile(str(path), "wb"), path.unlink)


def written(
    folder: Path, schema: Schema, batches: Iterable[list[dict[str, Any]]], mode: str = FULL, **sizes: int
) -> list[WrittenFile]:
    types = arrow_schema(schema.struct)
    rows = [pa.RecordBatch.from_pylist(batch, schema=types) for batch in batches]
    target = sizes.pop("target", 2**30)
    plan = FilePlan(schema, dict.fromkeys(ids(schema).values(), mode), FileSettings(**sizes), target)
    return list(write_files(rows, plan, partial(new_file, folder)))


@pytest.mark.parametrize(
    ("column", "values", "mode", "lower", "upper"),
    [
        ("boolean", [True, False], FULL, "00", "01"),
        ("int", [3, -1], FULL, "ffffffff", "03000000"),
        ("double", [0.0, -0.0], FULL, "0000000000000080", "0000000000000000"),
        ("double", [float("nan")], FULL, None, None),
        ("float", [float("nan"), 1.5], FULL, "0000c03f", "0000c03f"),
        ("string", ["abc", "abd"], SHORT, b"ab".hex(), b"ac".hex()),
        ("string", ["ab"], SHORT, b"ab".hex(), b"ab".hex()),
        ("string", ["\U0010ffff" * 3], SHORT, ("\U0010ffff" * 2).encode().hex(), None),
        ("string", ["a\ud7ffb"], SHORT, "a\ud7ff".encode().hex(), "a\ue000".encode().hex()),
        ("string", ["x" * 5000, "y" * 9000], SHORT, b"xx".hex(), b"yz".hex()),
        ("binary", [b"\xff\xff\xff"], SHORT, "ffff", None),
        ("binary", [b"\x01\xff\x00"], SHORT, "01ff", "02"),
        ("string", ["a"], COUNTS, None, None),
        ("long", [None], FULL, None, None),
    ],
)
def test_bounds(
    tmp_path: Path, column: str, values: list[Any], mode: str, lower: str | None, upper: str | None
) -> None:
    rows = [{"a": value} for value in values]
    (file,) = written(tmp_path, schema_of(f"a: {column}"), [rows], mode)
    metrics = file.metrics
    assert (metrics.lower.get(1), metrics.upper.get(1)) == tuple(
        None if bound is None else bytes.fromhex(bound) for bound in (lower, upper)
    )
    assert metrics.values == {1: len(values)}
    assert metrics.nulls == {1: values.count(None)}


@pytest.mark.parametrize(
    "batches",
    [[["zzz"], ["a" * 5000, "bbb"]], [["a" * 5000, "bbb"], ["zzz"]], [["zzz"], [None], ["a" * 5000]]],
)
def test_long_value_leaves_bounds_of_other_batches(tmp_path: Path, batches: list[list[str | None]]) -> None:
    rows = [[{"a": value} for value in batch] for batch in batches]
    (file,) = written(tmp_path, schema_of("a: string"), rows, SHORT)
    assert (file.metrics.lower[1], file.metrics.upper[1]) == (b"aa", b"z{")


def test_columns_inside_lists_and_maps_have_sizes_alone(tmp_path: Path) -> None:
    schema = schema_of("a: long, s: struct<b: double, l: list<long>>, m: map<string, double>")
    at = ids(schema)
    row = {"a": 1, "s": {"b": 2.0, "l": [3]}, "m": [("k", float("nan"))]}
    (file,) = written(tmp_path, schema, [[row]])
    leaves = {at[path] for path in ("a", "s.b", "s.l.element", "m.key", "m.value")}
    assert file.metrics.sizes.keys() == leaves
    assert file.metrics.values.keys() == file.metrics.lower.keys() == {at["a"], at["s.b"]}
    assert file.metrics.nans == {at["s.b"]: 0}
    (nothing,) = written(tmp_path, schema, [[row]], NONE)
    assert not (nothing.metrics.sizes or nothing.metrics.values or nothing.metrics.nans)


def test_batches_are_gathered_to_row_groups(tmp_path: Path) -> None:
    batches = [[{"a": i}] for i in range(100)]
    (file,) = written(tmp_path, schema_of("a: long"), batches)
    assert pq.read_metadata(file.path).num_row_groups == 1
    (file,) = written(tmp_path, schema_of("a: long"), batches, row_group=400)
    footer = pq.read_metadata(file.path)
    assert footer.num_row_groups == 2
    assert len(file.split_offsets) == 2
    assert file.split_offsets[0] == 4
    assert file.rows == footer.num_rows == 100
    assert file.size == Path(file.path).stat().st_size
    assert file.metrics.lower[1] == bytes(8)
    assert file.metrics.upper[1] == (99).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("width", "rows", "has_dictionaries"), [(1_000, 16, False), (1_000, 17, True), (999, 1, True)]
)
def test_wide_file_of_few_rows_has_no_dictionaries(
    tmp_path: Path, width: int, rows: int, has_dictionaries: bool
) -> None:
    schema = schema_of(", ".join(f"c{i}: string" for i in range(width)))
    (file,) = written(tmp_path, schema, [[{"c0": "x"}] * rows])

    chunk = pq.read_metadata(file.path).row_group(0).column(0)
    assert chunk.has_dictionary_page == has_dictionaries


def test_file_counts_what_waits_in_its_rest_by_path(tmp_path: Path) -> None:
    (made,) = with_own(plan(Schema(), RecordShape()), [REST]).changes
    schema = apply(schema_of("a: long"), [made])
    batches: list[list[dict[str, Any]]] = [
        [{"a": 1, "_rest": [("n", "1"), ("n type", "long"), ("m[0].k", "2")]}, {"a": 2, "_rest": None}],
        [{"a": 3, "_rest": [("n", "1"), ("m[1].k", "2")]}],
    ]

    (file,) = written(tmp_path, schema, batches)
    assert file.waiting == {"n": 2, "m[0].k": 1, "m[1].k": 1}
    assert most_waiting(file.waiting, schema, MARK) == {"m.element.k": 2, "n": 2}
    (without,) = written(tmp_path, schema_of("a: long"), [[{"a": 1}]])
    assert without.waiting == {}


def test_a_file_ends_at_its_size(tmp_path: Path) -> None:
    batches = [[{"a": i}] for i in range(3)]
    files = written(tmp_path, schema_of("a: long"), batches, target=1, row_group=1)
    assert [file.rows for file in files] == [1, 1, 1]
    assert [row["a"] for file in files for row in pq.read_table(file.path).to_pylist()] == list(range(3))


def test_no_rows_no_file(tmp_path: Path) -> None:
    assert written(tmp_path, schema_of("a: long"), [[]]) == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_carries_ids_and_schema(tmp_path: Path) -> None:
    schema = schema_of("a: long, s: struct<b: string>")
    (file,) = written(tmp_path, schema, [[{"a": 1, "s": {"b": "x"}}]])
    parquet = pq.ParquetFile(file.path)
    assert b"iceberg.schema" in parquet.metadata.metadata
    assert parquet.schema_arrow.field("a").metadata[b"PARQUET:field_id"] == b"1"
    inner = parquet.schema_arrow.field("s").type.field("b")
    assert inner.metadata[b"PARQUET:field_id"] == str(ids(schema)["s.b"]).encode()


def test_settings_of_a_table() -> None:
    properties = {
        "write.parquet.compression-codec": "GZIP",
        "write.parquet.compression-level": "3",
        "write.parquet.row-group-size-bytes": "1000",
        "write.parquet.page-size-bytes": "200",
        "write.parquet.dict-size-bytes": "300",
        "write.parquet.row-group-check-min-record-count": "1",
        "write.target-file-size-bytes": "1",
    }
    assert FileSettings.of(properties, 500) == FileSettings("gzip", 3, 500, 200, 300)
    assert FileSettings.of({}, 2**40) == FileSettings()
    assert FileSettings.of({"write.parquet.compression-codec": "uncompressed"}, 2**40) == FileSettings("none")
    snappy = {"write.parquet.compression-codec": "snappy", "write.parquet.compression-level": "3"}
    assert FileSettings.of(snappy, 2**40) == FileSettings("snappy")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("bloom-filter-enabled.column.a", "true"),
        ("page-row-limit", "10"),
        ("stats-enabled.column.a", "false"),
        ("compression-codec", "lzo"),
    ],
)
def test_settings_that_arrows_writer_does_not_know(setting: str, value: str) -> None:
    assert FileSettings.of({f"write.parquet.{setting}": value}, 2**40) is None


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "lz4", "brotli", "none"])
def test_codecs(tmp_path: Path, codec: str) -> None:
    plan = FilePlan(schema_of("a: long"), {1: FULL}, FileSettings(codec), 2**30)
    rows = pa.RecordBatch.from_pylist([{"a": 1}], schema=arrow_schema(plan.schema.struct))
    (file,) = write_files([rows], plan, partial(new_file, tmp_path))
    chunk = pq.read_metadata(file.path).row_group(0).column(0)
    assert chunk.compression == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
