"""Deletes by position: written as readers of others read them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap, BitMap64

from driftline.errors import DataError
from driftline.write.positions import (
    ICEBERG_IDS,
    read_positions,
    read_vector,
    vector_bytes,
    write_positions,
    write_puffin,
)


@given(st.sets(st.one_of(st.integers(0, 300), st.integers(0, 2**40))))
def test_a_vector_comes_back(positions: set[int]) -> None:
    assert set(read_vector(vector_bytes(BitMap64(positions)), "f")) == positions


def test_a_vector_has_the_bytes_of_the_spec() -> None:
    blob = vector_bytes(BitMap64([1, 3]))

    assert blob[:16] == bytes.fromhex("00000024 d1d33964 0100000000000000")
    assert blob[16:-4] == bytes(4) + BitMap([1, 3]).serialize()


def test_a_damaged_vector_is_refused() -> None:
    blob = bytearray(vector_bytes(BitMap64([1, 3])))
    blob[-6] ^= 1

    with pytest.raises(DataError, match="f: a deletion vector is damaged"):
        read_vector(bytes(blob), "f")


def test_pyiceberg_reads_the_vectors_of_a_puffin_file(tmp_path: Path) -> None:
    vectors = {"a.parquet": BitMap64([0, 7, 70_000]), "b.parquet": BitMap64(range(10, 5000))}
    with pa.OSFile(str(tmp_path / "f"), "wb") as stream:
        places = write_puffin(stream, vectors)

    data = (tmp_path / "f").read_bytes()
    read = deletion_vectors_from_puffin_file(PuffinFile(data))

    held = {v.referenced_data_file: set(v.to_vector().to_pylist()) for v in read}
    assert held == {path: set(positions) for path, positions in vectors.items()}
    for path, place in places.items():
        assert read_vector(data[place.offset : place.offset + place.length], "f") == vectors[path]


def test_a_file_of_positions_has_the_reserved_columns(tmp_path: Path) -> None:
    with pa.OSFile(str(tmp_path / "f"), "wb") as stream:
        write_positions(stream, "a.parquet", BitMap64([5, 2]), ICEBERG_IDS)

    schema = pq.read_schema(tmp_path / "f")

    assert pq.read_table(tmp_path / "f").to_pylist() == [
        {"file_path": "a.parquet", "pos": 2},
        {"file_path": "a.parquet", "pos": 5},
    ]
    assert [(f.metadata[b"PARQUET:field_id"], f.nullable) for f in schema] == [
        (b"2147483546", False),
        (b"2147483545", False),
    ]
    with pa.OSFile(str(tmp_path / "f")) as stream:
        assert set(read_positions(stream, "a.parquet")) == {2, 5}
    with pa.OSFile(str(tmp_path / "f")) as stream:
        assert not read_positions(stream, "b.parquet")
