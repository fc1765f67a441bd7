"""Compressed files, unpacked whole: by their first bytes, and by their name where those say nothing."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Callable
from functools import partial
from struct import unpack_from

import pyarrow as pa

_FRAMES = b"\xff\x06\0\0sNaPpY"
_SIGNS: tuple[tuple[bytes, str], ...] = (
    (BOM_UTF32_LE, "utf-32"), (BOM_UTF32_BE, "utf-32"), (BOM_UTF16_LE, "utf-16"), (BOM_UTF16_BE, "utf-16"),
    (b"\x1f\x8b", "gzip"), (b"BZh", "bz2"), (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"), (_FRAMES, "snappy"),
)  # fmt: skip
_BLOCKS = {".snappy": "snappy", ".lz4": "lz4_raw"}  # Hadoop's, which begin with a length


def is_packed(head: bytes, file: str) -> bool:
    """Whether a file that begins so is compressed."""
    return _reader(head, file) is not None


def unpacked(data: bytes, file: str) -> bytes:
    """What a file holds."""
    reader = _reader(data[:16], file)
    return data if reader is None else reader(data)


def _reader(head: bytes, file: str) -> Callable[[bytes], bytes] | None:
    for sign, name in _SIGNS:
        if head.startswith(sign) and (name != "bz2" or head[4:10] in (b"1AY&SY", b"\x17rE8P\x90")):
            return _READERS[name]
    ending = next((codec for ending, codec in _BLOCKS.items() if file.lower().endswith(ending)), None)
    if file.lower().endswith((".zst", ".lz4")) and head[1:4] == b"\x2a\x4d\x18":
        return _READERS["zstd" if file.lower().endswith(".zst") else "lz4"]
    return None if ending is None or not head else lambda data: _blocks(data, ending)


def _by_arrow(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(pa.CompressedInputStream(pa.BufferReader(data), codec).read())


def _frames(data: bytes) -> bytes:
    out, at = io.BytesIO(), 0
    while at < len(data):
        kind, size = data[at], int.from_bytes(data[at + 1 : at + 4], "little")
        text = data[at + 8 : at + 4 + size]
        if kind < 2:
            out.write(text if kind else _snappy(text))
        at += 4 + size
    return out.getvalue()


def _blocks(data: bytes, codec: str) -> bytes:
    out, at = io.BytesIO(), 0
    while at < len(data):
        (left,) = unpack_from(">I", data, at)
        at += 4
        while left:
            (size,) = unpack_from(">I", data, at)
            packed = data[at + 4 : at + 4 + size]
            text = _snappy(packed) if codec == "snappy" else _plain(packed, left, codec)
            out.write(text)
            at, left = at + 4 + size, left - len(text)
    return out.getvalue()


def _snappy(packed: bytes) -> bytes:
    size = place = 0
    while packed[place] & 0x80:
        size |= (packed[place] & 0x7F) << 7 * place
        place += 1
    return _plain(packed, size | packed[place] << 7 * place, "snappy")


def _plain(packed: bytes, size: int, codec: str) -> bytes:
    return bytes(pa.Codec(codec).decompress(packed, decompressed_size=size, asbytes=True))


def _text(encoding: str, data: bytes) -> bytes:
    return data.decode(encoding).encode()


_READERS: dict[str, Callable[[bytes], bytes]] = {
    **{encoding: partial(_text, encoding) for encoding in ("utf-16", "utf-32")},
    "gzip": gzip.decompress,
    "bz2": bz2.decompress,
    "xz": lzma.decompress,
    "zstd": _by_arrow("zstd"),
    "lz4": _by_arrow("lz4"),
    "snappy": _frames,
}
