"""Parquet files as readers give them, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.errors import DataError, UsageError
from driftline.source.int96 import OldTimestamps
from driftline.source.parquet import ParquetReader, parquet_readers
from driftline.verify.typed_files import read_columns

TIMES = [
    (1, pa.time32("s")),
    (10**3, pa.time32("ms")),
    (10**6, pa.time64("us")),
    (10**9, pa.time64("ns")),
]
SECOND = 10**9  # nanoseconds


def old_file(path: Path, column: pa.Array) -> Path:
    pq.write_table(
        pa.table({"a.b": [0] * len(column), "at": column}), path, use_deprecated_int96_timestamps=True
    )
    return path


def read(reader: ParquetReader) -> list[dict[str, Any]]:
    found = [rows.batch for part in range(len(reader.sizes)) for rows in reader.rows(part)]
    names = [f.name for f in reader.struct.fields]
    types = [str(f.type) for f in reader.struct.fields]
    keys = [f"{name}:{type_}" for name, type_ in zip(names, types, strict=True)]
    return [row for batch in found for row in batch.rename_columns(keys).to_pylist()]


def test_old_timestamps_are_instants(tmp_path: Path) -> None:
    file = old_file(tmp_path / "a.parquet", pa.array([0, SECOND, None], pa.timestamp("ns")))
    (reader,) = parquet_readers([str(file)])
    assert [row["at:timestamp"] for row in read(reader)] == [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        None,
    ]


def test_old_timestamps_in_any_year(tmp_path: Path) -> None:
    years = [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)]
    file = old_file(tmp_path / "a.parquet", pa.array(years, pa.timestamp("us")))
    (reader,) = parquet_readers([str(file)])
    assert [(row["at:timestamp"], row["at:string"]) for row in read(reader)] == [
        (year.replace(tzinfo=UTC), None) for year in years
    ]


def test_old_timestamps_that_are_finer(tmp_path: Path) -> None:
    nanos = pa.array([[-1, 1_000], None], pa.list_(pa.timestamp("ns")))
    file = old_file(tmp_path / "a.parquet", nanos)
    (reader,) = parquet_readers([str(file)])
    first, second = read(reader)
    assert first["at:list<string>"] == ["1969-12-31T23:59:59.999999999Z", None]
    assert first["at:list<timestamp>"] == [None, datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]
    assert second["at:list<string>"] is second["at:list<timestamp>"] is None


def test_old_timestamps_that_arrow_reads_exactly_in_no_unit(tmp_path: Path) -> None:
    file = old_file(tmp_path / "a.parquet", pa.array([0], pa.timestamp("ns")))
    with pq.ParquetFile(file) as opened:
        old = OldTimestamps(opened)
    micros = np.array([-62_135_596_800_000_000], np.int64)  # of the year 1
    with pytest.raises(DataError, match="at: timestamps finer than a microsecond, beside some beyond"):
        old.exact(1, pa.array(micros, pa.timestamp("us")), pa.array(micros * 1000 + 1, pa.timestamp("ns")))


def test_groups_are_read_apart_and_files_of_one_schema_together(tmp_path: Path) -> None:
    for name, column in (("1", [1, 2, 3]), ("2", ["x"]), ("3", [4])):
        pq.write_table(pa.table({"a": column}), tmp_path / name, row_group_size=2)
    numbers, texts = parquet_readers([str(tmp_path / name) for name in "123"])
    assert [row["a:long"] for row in read(numbers)] == [1, 2, 3, 4]
    assert len(numbers.sizes) == 3
    assert numbers.label == str(tmp_path / "1")
    assert read(texts) == [{"a:string": "x"}]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "no.parquet").write_bytes(b"no such file")
    with pytest.raises(UsageError, match=r"no\.parquet: cannot be read as parquet: "):
        parquet_readers([str(tmp_path / "no.parquet")])
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(UsageError, match=r"twice\.parquet: two columns are named 'a'"):
        parquet_readers([str(tmp_path / "twice.parquet")])


def test_a_row_group_with_fewer_rows_than_its_footer_says_is_an_error(tmp_path: Path) -> None:
    """Arrow gives the rows that there are, and no error."""
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(37)}), file)
    size = pq.read_metadata(file).row_group(0).total_byte_size
    before, after = (b"\x16" + varint(size) + b"\x16" + varint(rows) for rows in (37, 40))
    content = file.read_bytes()
    assert content.count(before) == 1
    file.write_bytes(content.replace(before, after))
    (reader,) = parquet_readers([str(file)])
    message = r"row group 0: it holds 37 rows, and the footer says 40"
    with pytest.raises(DataError, match=rf"a\.parquet: {message}"):
        read(reader)
    with pytest.raises(DataError, match=message):
        list(read_columns(str(file), "parquet"))


def test_times_outside_the_day_are_counted_on(tmp_path: Path) -> None:
    times = [pa.array([-1, None, 86_400 * second], type_) for second, type_ in TIMES]
    pq.write_table(pa.table(times, names=["s", "ms", "us", "ns"]), tmp_path / "a.parquet")
    (reader,) = parquet_readers([str(tmp_path / "a.parquet")])
    records = [read.record for read in read_columns(str(tmp_path / "a.parquet"), "parquet")]
    rows = [row for rows in reader.rows(0) for row in rows.batch.to_pylist()]
    assert records == [{name: text for name, text in row.items() if text is not None} for row in rows]
    assert rows[0] == {
        "s": "-00:00:01",
        "ms": "-00:00:00.001",
        "us": "-00:00:00.000001",
        "ns": "-00:00:00.000000001",
    }


def varint(number: int) -> bytes:
    """A number as Parquet's footers have it."""
    number, out = number << 1, b""
    while number > 127:
        number, out = number >> 7, out + bytes([number & 127 | 128])
    return out + bytes([number])
