"""Deletes by position: deletion vectors in Puffin files, and position delete files in Parquet."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from driftline.convert.types import FIELD_ID
from driftline.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Positions: TypeAlias = "NDArray[np.int64]"  # of rows in a data file

# The reserved field ids of both specs differ by 100; readers find the columns by them alone.
# Of the columns of a file of positions: path, position
ICEBERG_IDS = (2147483546, 2147483545)
DUCKLAKE_IDS = (2147483646, 2147483645)

_PUFFIN = b"PFA1"
_VECTOR = b"\xd1\xd3\x39\x64"
_BLOB_TYPE = "deletion-vector-v1"
# The columns of rows that move: their ids, and the sequence numbers of their last changes.
ROW_ID, CHANGED = "_row_id", "_last_updated_sequence_number"
ROW_ID_COLUMN, CHANGED_COLUMN = ROW_IDS = 2147483540, 2147483539  # reserved in Iceberg and in DuckLake
_POSITION_ID = 2147483645  # the reserved id of a row's position


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """The position of a blob in its file, in bytes."""

    offset: int
    length: int


def vector_bytes(positions: BitMap64) -> bytes:
    """A deletion vector as a blob of type `deletion-vector-v1` (Puffin spec)."""
    # pyroaring's portable 64-bit form is the one that Iceberg specifies. Iceberg's own writer cannot be
    # called from outside its packages.
    body = _VECTOR + positions.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def read_vector(blob: bytes, file: str) -> BitMap64:
    """The positions in such a blob of a ``file``. Raises DataError if it is damaged."""
    body = blob[4:-4]
    whole = len(blob) > 12 and struct.unpack(">I", blob[:4])[0] == len(body) and body.startswith(_VECTOR)
    if not whole or struct.unpack(">I", blob[-4:])[0] != zlib.crc32(body):
        raise DataError(f"{file}: a deletion vector is damaged", "restore the file, or roll the table back")
    return BitMap64.deserialize(body[len(_VECTOR) :])


def write_puffin(stream: pa.NativeFile, vectors: Mapping[str, BitMap64]) -> dict[str, BlobPlace]:
    """Write a Puffin file with a deletion vector for each data file; return the place of each."""
    stream.write(_PUFFIN)
    offset, places, blobs = len(_PUFFIN), {}, []
    for data_file, positions in vectors.items():
        blob = vector_bytes(positions)
        stream.write(blob)
        places[data_file] = BlobPlace(offset, len(blob))
        blobs.append(
            {
                "type": _BLOB_TYPE,
                "fields": [_POSITION_ID],
                # Unknown until the commit: the spec of Puffin asks for -1, and readers inherit both from the
                # manifest.
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": offset,
                "length": len(blob),
                "properties": {"referenced-data-file": data_file, "cardinality": str(len(positions))},
            }
        )
        offset += len(blob)
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": "driftline"}}).encode()
    stream.write(_PUFFIN + footer + struct.pack("<ii", len(footer), 0) + _PUFFIN)
    return places


def write_positions(stream: pa.NativeFile, data_file: str, positions: BitMap64, ids: tuple[int, int]) -> None:
    """Write a Parquet file of the positions in one data file; ``ids``: of its columns."""
    fields = [
        pa.field(name, type_, nullable=False, metadata={FIELD_ID: str(id_)})
        for name, type_, id_ in zip(("file_path", "pos"), (pa.string(), pa.int64()), ids, strict=True)
    ]
    # A bitmap yields its numbers in rising order, which the spec asks of a file of positions.
    numbers = pa.array(positions.to_array(), pa.uint64()).cast(pa.int64())
    path = pa.repeat(pa.scalar(data_file), len(numbers))
    table = pa.Table.from_arrays([path, numbers], schema=pa.schema(fields))
    pq.write_table(table, stream, compression="zstd", store_schema=False)


def with_data_files(rows: pa.Table, now: Callable[[str], str], stream: BinaryIO) -> None:
    """Write the rows of a file of positions with the paths of ``now`` in place of theirs."""
    paths = rows["file_path"].combine_chunks()
    changed = {path: now(path) for path in pc.unique(paths).to_pylist()}
    table = rows.set_column(
        rows.schema.get_field_index("file_path"),
        rows.schema.field("file_path"),
        pa.array([changed[path] for path in paths.to_pylist()], pa.string()),
    )
    pq.write_table(table, stream, compression="zstd", store_schema=False)


def read_positions(stream: pa.NativeFile, data_file: str | None = None) -> BitMap64:
    """The positions in a Parquet file of positions; with ``data_file`` those of that file alone."""
    if data_file is None:
        return BitMap64(pq.read_table(stream, columns=["pos"])["pos"].to_pylist())
    rows = pq.read_table(stream, columns=["file_path", "pos"])
    return BitMap64(rows["pos"].filter(pc.equal(rows["file_path"], data_file)).to_pylist())
