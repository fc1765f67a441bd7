"""Parquet files as readers give them, without Spark."""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet.encryption import CryptoFactory, EncryptionConfiguration, KmsClient, KmsConnectionConfig

from driftline.errors import DataError, UsageError
from driftline.readers.columnar.parquet import OldTimestamps, ParquetReader, parquet_readers
from driftline.verify.json_texts import parse
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


def broken(type_: pa.DataType, values: pa.Array) -> pa.Array:
    """The bytes of values as those of another type."""
    return pa.Array.from_buffers(type_, len(values), values.buffers())


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
    with pytest.raises(
        DataError, match=r"at: INT96 has a day .* finer than a microsecond beside some beyond"
    ):
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


def test_values_that_do_not_unpack_are_named_by_ingest_and_verify(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(3000)}), file)
    content = file.read_bytes()
    file.write_bytes(content[:20] + b"\xff" * 30 + content[50:])
    (reader,) = parquet_readers([str(file)])
    with pytest.raises(DataError, match=r"a\.parquet: row group 0: a: cannot be read: "):
        read(reader)
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read: "):
        list(read_columns(str(file), "parquet"))


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
    message = r"row group 0: it holds 37 rows, but the footer says 40"
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


def test_words_of_an_enum_are_text(tmp_path: Path) -> None:
    """Arrow writes none: its mark for text is made one for them."""
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"word": ["a", None, "b"], "words": [["a"], [], None]}), file, store_schema=False)
    text, enum = b"\x25\x00\x4c\x1c\x00\x00", b"\x25\x08\x4c\x4c\x00\x00"
    assert file.read_bytes().count(text) == 2
    file.write_bytes(file.read_bytes().replace(text, enum))
    (reader,) = parquet_readers([str(file)])
    assert str(reader.struct) == "struct<word: string, words: list<string>>"
    assert [row["word:string"] for row in read(reader)] == ["a", None, "b"]
    records = [record.record for record in read_columns(str(file), "parquet")]
    assert records == [{"word": "a", "words": ["a"]}, {"words": []}, {"word": "b"}]


@pytest.mark.parametrize(
    ("column", "why", "raw"),
    [
        (broken(pa.string(), pa.array([b"a", b'\xff"', b"b"])), "text that is not UTF-8", b'"\xff\\""'),
        (
            broken(
                pa.decimal128(3, 1),
                pa.array([Decimal(n) for n in ("1.1", "1234.5", "2")], pa.decimal128(9, 1)),
            ),
            "a decimal with more digits than its type has",
            b"1234.5",
        ),
    ],
)
def test_rows_with_values_that_are_none_of_their_type_are_set_aside(
    tmp_path: Path, column: pa.Array, why: str, raw: bytes
) -> None:
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], column)
    words = column.dictionary_encode() if pa.types.is_string(column.type) else column
    for values, written in (column, raw), (words, raw), (lists, b"[%b]" % raw):
        pq.write_table(pa.table({"n": [1, 2, 3], "x": values}), tmp_path / "a.parquet")
        (reader,) = parquet_readers([str(tmp_path / "a.parquet")])
        (rows,) = reader.rows(0)
        assert rows.batch.column(0).to_pylist() == [1, 3]
        (reject,) = rows.rejects
        assert (reject.raw, reject.why) == (b'{"n":2,"x":%b}' % written, f"row group 0, row 1: x: {why}")
        found = [read.record for read in read_columns(str(tmp_path / "a.parquet"), "parquet")]
        assert found[1] == parse(reject.raw, "surrogateescape")


def test_keys_of_a_map_that_are_not_utf_8(tmp_path: Path) -> None:
    keys = broken(pa.string(), pa.array([b"a", b"\xff", b"b"]))
    maps = pa.MapArray.from_arrays([0, 2, 3], keys, pa.array(["x", "y", "z"]))
    pq.write_table(pa.table({"m": maps}), tmp_path / "a.parquet")
    (reader,) = parquet_readers([str(tmp_path / "a.parquet")])
    (rows,) = reader.rows(0)
    assert rows.batch.to_pylist() == [{"m": [("b", "z")]}]
    assert [reject.raw for reject in rows.rejects] == [b'{"m":{"a":"x","\xff":"y"}}']


def test_a_group_that_nothing_is_in_is_no_column(tmp_path: Path) -> None:
    """Arrow writes none: it is put into the footer, as the first column."""
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), file, store_schema=False)
    *pages, footer = file.read_bytes()[:-8].rpartition(b"\x15\x04\x19\x2c")
    assert footer.count(b"\x06schema\x15\x02\x00") == 1
    group = b"\x35\x02\x18\x01g\x15\x00\x00"
    footer = footer.replace(b"\x06schema\x15\x02\x00", b"\x06schema\x15\x04\x00" + group)
    footer = b"\x15\x04\x19\x3c" + footer
    file.write_bytes(pages[0] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert pq.read_schema(file).names == ["g", "a"]
    (reader,) = parquet_readers([str(file)])
    assert read(reader) == [{"a:long": 1}, {"a:long": 2}]
    assert [record.record for record in read_columns(str(file), "parquet")] == [{"a": 1}, {"a": 2}]


def varint(number: int) -> bytes:
    """A number as Parquet's footers have it."""
    number, out = number << 1, b""
    while number > 127:
        number, out = number >> 7, out + bytes([number & 127 | 128])
    return out + bytes([number])


def test_column_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Decimals of 20 bytes, of a footer that says 38 digits."""
    file = tmp_path / "a.parquet"
    wide = pa.array([Decimal("1.25")], pa.decimal256(47, 2))
    pq.write_table(pa.table({"id": [1], "d": wide}), file, store_schema=False)
    file.write_bytes(file.read_bytes().replace(bytes([2 * 47]), bytes([2 * 38])))
    (reader,) = parquet_readers([str(file)])
    with pytest.raises(
        DataError, match=r"a\.parquet: row group 0: d: cannot be read: Length of byte array"
    ) as caught:
        read(reader)
    assert "complete" not in str(caught.value.hint)


MAP = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("type_", "value", "declared", "instead", "said"),
    [
        (
            MAP,
            [("a", 1)],
            b"\x18\x01m\x15\x02\x15\x02\x4c\x2c\x00\x00",
            b"\x18\x01m\x15\x02\x15\x08\x4c\x4c\x00\x00",
            r"s\.m: cannot be read as parquet: .* Enum cannot be applied",
        ),
        (
            pa.struct({"a": pa.string()}),
            {"a": "x"},
            b"\x18\x01m\x15\x02\x00",
            b"\x18\x01m\x15\x02\x15\x08\x00",
            r"s\.m: cannot be read as parquet: Invalid logical type: Enum",
        ),
        (
            MAP,
            [("a", 1)],
            b"\x25\x00\x18\x03key",
            b"\x25\x02\x18\x03key",
            r"s\.m\.key_value\.key: cannot be read as parquet: Map keys",
        ),
    ],
    ids=["map that is an enum", "struct that is an enum", "map with optional keys"],
)
def test_column_that_a_footer_declares_as_what_it_cannot_be_is_named(
    tmp_path: Path, type_: pa.DataType, value: object, declared: bytes, instead: bytes, said: str
) -> None:
    file = tmp_path / "a.parquet"
    struct = pa.struct({"b": pa.int64(), "m": type_})
    table = pa.table({"id": [1], "s": pa.array([{"b": 2, "m": value}], struct)})
    pq.write_table(table, file, store_schema=False)
    content = file.read_bytes()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") : -8]
    assert footer.count(declared) == 1
    changed = footer.replace(declared, instead)
    length = len(changed).to_bytes(4, "little")
    file.write_bytes(content[: -8 - len(footer)] + changed + length + b"PAR1")
    with pytest.raises(UsageError, match=rf"a\.parquet: {said}") as caught:
        parquet_readers([str(file)])
    assert "complete" not in str(caught.value.hint)


class _Keys(KmsClient):
    """Keys that are no secrets."""

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return b64decode(wrapped_key)


@pytest.mark.parametrize("footer", [False, True], ids=["all", "all but the footer"])
def test_encrypted_file_is_said_to_be_that(tmp_path: Path, *, footer: bool) -> None:
    file = str(tmp_path / "a.parquet")
    factory = CryptoFactory(lambda _: _Keys())
    how = EncryptionConfiguration(footer_key="f", column_keys={"k": ["n"]}, plaintext_footer=footer)
    properties = factory.file_encryption_properties(KmsConnectionConfig(), how)
    pq.write_table(pa.table({"n": [1], "m": [2]}), file, encryption_properties=properties)
    with pytest.raises((UsageError, DataError), match=r"a\.parquet: it is encrypted\nwrite it without"):
        read(parquet_readers([file])[0])
