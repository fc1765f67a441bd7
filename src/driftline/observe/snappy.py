"""Snappy's frames, and Hadoop's blocks of snappy and lz4: packed text for which Arrow has no reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

import cramjam
import pyarrow as pa

T = TypeVar("T")

_BEGINNING = b"\xff\x06\0\0sNaPpY"  # of a file of frames
_SKIPPED = 0x80  # chunks from this kind on have no text
_CHUNKS = 2**18  # bytes of chunks that are unpacked together
_LARGEST = 2**28  # bytes of a block


def frames(file: IO[bytes]) -> Iterator[bytes]:
    """The text of a file of snappy's frames. Raises ValueError if it is broken, EOFError if it is cut off."""
    while chunks := _chunks(file):
        yield bytes(_by_cramjam(cramjam.snappy.decompress, _BEGINNING + chunks))


def _chunks(file: IO[bytes]) -> bytes:
    """The next chunks of a file of frames, as whole ones; empty at its end."""
    parts, size = [], 0
    while size < _CHUNKS and (head := file.read(4)):
        chunk = _exactly(file, int.from_bytes(_whole(head, 4)[1:], "little"))
        if head[0] < _SKIPPED:
            parts += [head, chunk]
            size += len(chunk)
    return b"".join(parts)


def blocks(file: IO[bytes], codec: str) -> Iterator[bytes]:
    """The text of a file of Hadoop's blocks, packed by ``codec`` in Arrow's spelling.

    Raises as `frames` does.
    """
    while head := file.read(4):
        left = int.from_bytes(_whole(head, 4), "big")
        while left:
            packed = _exactly(file, int.from_bytes(_exactly(file, 4), "big"))
            size = _unpacked_size(packed) if codec == "snappy" else left
            if size > left:
                raise ValueError("a block is larger than it says")
            yield pa.Codec(codec).decompress(packed, decompressed_size=size, asbytes=True)
            left -= size


def begins_block(head: bytes) -> bool:
    """True if a file with these first bytes may be one of Hadoop's blocks.

    >>> begins_block(bytes.fromhex("0000000a0000000c")), begins_block(b'{"a": 1}')
    (True, False)
    """
    size, packed = (int.from_bytes(head[at : at + 4], "big") for at in (0, 4))
    return len(head) >= 8 and size <= _LARGEST and 0 < packed <= size + size // 6 + 64


def _unpacked_size(packed: bytes) -> int:
    """The unpacked size of a block, which its first bytes state."""
    size = _by_cramjam(cramjam.snappy.decompress_raw_len, packed)
    if size > _LARGEST:
        raise ValueError(f"a block of {size} bytes")
    return size


def _by_cramjam(unpack: Callable[[bytes], T], packed: bytes) -> T:
    try:
        return unpack(packed)
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error


def _exactly(file: IO[bytes], size: int) -> bytes:
    if size > _LARGEST:
        raise ValueError(f"a block of {size} bytes")
    return _whole(file.read(size), size)


def _whole(data: Any, size: int) -> bytes:
    if len(data) < size:
        raise EOFError("the file ends within a block")
    return bytes(data)
