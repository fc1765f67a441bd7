"""Snappy's frames, and Hadoop's blocks of snappy and lz4: packed text for which Arrow has no reader."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_PACKED, _PLAIN, _MAY_BE_SKIPPED = 0x00, 0x01, 0x80  # kinds of a frame's chunks
_LARGEST = 2**28  # bytes of a block
_ROW = 256  # bytes over which checksums are worked out side by side


def frames(file: IO[bytes]) -> Iterator[bytes]:
    """The text of a file of snappy's frames. Raises ValueError if it is broken, EOFError if it is cut off."""
    snappy = pa.Codec("snappy")
    while head := file.read(4):
        kind, chunk = head[0], _exactly(file, int.from_bytes(_whole(head, 4)[1:], "little"))
        if kind in (_PACKED, _PLAIN):
            text = chunk[4:]
            if kind == _PACKED:
                text = snappy.decompress(text, decompressed_size=_size(text), asbytes=True)
            if int.from_bytes(chunk[:4], "little") != checksum(text):
                raise ValueError("a checksum does not fit")
            yield text
        elif kind < _MAY_BE_SKIPPED:
            raise ValueError(f"no chunk is of kind {kind:#x}")


def blocks(file: IO[bytes], codec: str) -> Iterator[bytes]:
    """The text of a file of Hadoop's blocks, packed by ``codec`` in Arrow's spelling.

    Raises as `frames` does.
    """
    unpack = pa.Codec(codec)
    while head := file.read(4):
        left = int.from_bytes(_whole(head, 4), "big")
        while left:
            packed = _exactly(file, int.from_bytes(_exactly(file, 4), "big"))
            size = _size(packed) if codec == "snappy" else left
            if size > left:
                raise ValueError("a block is larger than it says")
            yield unpack.decompress(packed, decompressed_size=size, asbytes=True)
            left -= size


def begins_block(head: bytes) -> bool:
    """True if a file with these first bytes may be one of Hadoop's blocks.

    >>> begins_block(bytes.fromhex("0000000a0000000c")), begins_block(b'{"a": 1}')
    (True, False)
    """
    size, packed = (int.from_bytes(head[at : at + 4], "big") for at in (0, 4))
    return len(head) >= 8 and size <= _LARGEST and 0 < packed <= size + size // 6 + 64


def checksum(text: bytes) -> int:
    """CRC-32C, masked as in a frame.

    >>> hex(checksum(b"123456789"))
    '0xc78ab0e5'
    """
    crc = _crc(text) ^ 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc(text: bytes) -> int:
    codes = np.frombuffer(bytes(-len(text) % _ROW) + text, np.uint8).astype(np.uint32)
    begin = -len(text) % _ROW  # zeros in front of a text change nothing
    if len(text) < 4:
        crc = 0xFFFFFFFF
        for code in text:
            crc = int(_table()[(crc ^ code) & 0xFF]) ^ crc >> 8
        return crc
    codes[begin : begin + 4] ^= 0xFF
    rows = _advanced(np.zeros(len(codes) // _ROW, np.uint32), codes.reshape(-1, _ROW).T)
    by_byte, crc = _over_a_row(), 0
    for row in rows.tolist():
        first, second, third, fourth = crc.to_bytes(4, "little")
        crc = by_byte[0][first] ^ by_byte[1][second] ^ by_byte[2][third] ^ by_byte[3][fourth] ^ row
    return crc


@cache
def _table() -> NDArray[np.uint32]:
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, crc >> 1 ^ np.uint32(0x82F63B78), crc >> 1)
    return crc


@cache
def _over_a_row() -> list[list[int]]:
    """For each byte of a checksum its value after a row of zeros."""
    crc = (np.arange(256, dtype=np.uint32)[None, :] << np.array([[0], [8], [16], [24]], np.uint32)).ravel()
    table: list[list[int]] = _advanced(crc, np.zeros((_ROW, len(crc)), np.uint32)).reshape(4, 256).tolist()
    return table


def _advanced(crc: NDArray[np.uint32], codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Advance some checksums by one byte each at a time."""
    table = _table()
    for column in codes:
        crc = table[(crc ^ column) & 0xFF] ^ crc >> 8
    return crc


def _size(packed: bytes) -> int:
    """The unpacked size of a snappy text, which its first bytes state."""
    size, shift = 0, 0
    for code in packed[:5]:
        size |= (code & 0x7F) << shift
        shift += 7
        if code < 0x80:
            break
    if size > _LARGEST:
        raise ValueError(f"a block of {size} bytes")
    return size


def _exactly(file: IO[bytes], size: int) -> bytes:
    if size > _LARGEST:
        raise ValueError(f"a block of {size} bytes")
    return _whole(file.read(size), size)


def _whole(data: Any, size: int) -> bytes:
    if len(data) < size:
        raise EOFError("the file ends within a block")
    return bytes(data)
