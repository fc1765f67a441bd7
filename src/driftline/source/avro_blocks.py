"""The blocks of Avro files: where a file can be cut, and codecs that fastavro has no library for."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from driftline.runtime.stores import opened
from driftline.source.julian import JulianCalendar, calendar_of, unread

_MAGIC = b"Obj\x01"
_SYNC = 16  # bytes behind the header, and behind each block
_OTHERS = ("snappy", "zstandard")  # codecs that are undone here


@dataclass(frozen=True, slots=True)
class BlockRange:
    """Whole blocks of a file, behind the byte ``start``. ``calendar``: the one that the file's dates are
    counted by, if not today's.
    """

    path: str
    start: int
    size: int
    calendar: JulianCalendar | None = None


def cuts_of(path: str, target: int) -> tuple[bytes, list[BlockRange]]:
    """A file's schema, and its blocks in cuts of ``target`` bytes, or one block more. Raises
    EOFError where the file ends within one.
    """
    cuts = []
    with opened(path) as (file, end):
        metadata, _ = _header(file)
        calendar = calendar_of({key.encode(): value for key, value in metadata.items()})
        start = file.tell()
        while file.tell() < end:
            _long(file)
            size = _long(file)
            file.seek(size + _SYNC, io.SEEK_CUR)
            if file.tell() > end:
                raise EOFError("it ends within a block")
            if file.tell() - start >= target or file.tell() == end:
                cuts.append(BlockRange(path, start, file.tell() - start, calendar))
                start = file.tell()
    return metadata["avro.schema"], cuts


def container_of(cut: BlockRange) -> IO[bytes]:
    """An Avro file of the cut's blocks alone, of a codec that fastavro knows. Its dates and timestamps are
    integers, `unread`, if they are by an old calendar.
    """
    with opened(cut.path) as (file, _):
        metadata, sync = _header(file)
        file.seek(cut.start)
        blocks = file.read(cut.size)
    codec = metadata.get("avro.codec", b"null").decode()
    if cut.calendar is not None:
        metadata["avro.schema"] = unread(metadata["avro.schema"]).encode()
    if codec in _OTHERS:
        metadata["avro.codec"] = b"null"
        blocks = b"".join(_undone(io.BytesIO(blocks), codec, sync))
    # Other metadata may be bytes, and fastavro takes all for text.
    named = {key: value for key, value in metadata.items() if key in ("avro.schema", "avro.codec")}
    return io.BytesIO(_MAGIC + _map(named) + sync + blocks)


def _undone(blocks: IO[bytes], codec: str, sync: bytes) -> Iterator[bytes]:
    """The blocks without their codec."""
    while count := blocks.read(1):
        blocks.seek(-1, io.SEEK_CUR)
        count = _varint(_long(blocks))
        data = _unpacked(blocks.read(_long(blocks)), codec)
        if blocks.read(_SYNC) != sync:
            raise ValueError("a block does not end where it should")
        yield count + _varint(len(data)) + data + sync


def _unpacked(data: bytes, codec: str) -> bytes:
    if codec == "zstandard":
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read())
    packed, check = data[:-4], int.from_bytes(data[-4:], "big")
    size = _unsigned(io.BytesIO(packed))
    text: bytes = pa.Codec("snappy").decompress(packed, decompressed_size=size, asbytes=True)
    if zlib.crc32(text) != check:
        raise ValueError("a block's checksum is wrong")
    return text


def _header(file: IO[bytes]) -> tuple[dict[str, bytes], bytes]:
    """A file's metadata, and the mark that its blocks end with. Raises
    ValueError where it is no Avro file.
    """
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it does not begin as Avro files do")
    metadata: dict[str, Any] = {}
    while count := _long(file):
        if count < 0:  # its bytes stand behind the number of its entries
            count, _ = -count, _long(file)
        for _ in range(count):
            key = file.read(_long(file)).decode()
            metadata[key] = file.read(_long(file))
    return metadata, file.read(_SYNC)


def _map(entries: dict[str, bytes]) -> bytes:
    parts = [_varint(len(entries))] if entries else []
    for key, value in entries.items():
        name = key.encode()
        parts += [_varint(len(name)), name, _varint(len(value)), value]
    return b"".join([*parts, _varint(0)])


def _unsigned(file: IO[bytes]) -> int:
    number = shift = 0
    while True:
        byte = file.read(1)
        if not byte:
            raise EOFError("it ends within a number")
        number |= (byte[0] & 0x7F) << shift
        shift += 7
        if not byte[0] & 0x80:
            return number


def _long(file: IO[bytes]) -> int:
    number = _unsigned(file)
    return (number >> 1) ^ -(number & 1)


def _varint(number: int) -> bytes:
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
