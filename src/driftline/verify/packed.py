"""Decompresses files as they are read, by their first bytes or else by their name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE, getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from struct import error as StructError
from struct import unpack
from typing import IO, Any

import cramjam
import pyarrow as pa

from driftline.errors import DataError

_HEAD = 16  # bytes that show how a file is packed
_OF_ENCODING = 4  # and its encoding
_BLOCK = 2**20
_FRAMES = b"\xff\x06\0\0sNaPpY"
_SIGNS: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "gzip"), (b"BZh", "bz2"), (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"), (_FRAMES, "snappy"),
)  # fmt: skip
_ENCODINGS: tuple[tuple[bytes, str], ...] = (
    (BOM_UTF32_LE, "utf-32"), (BOM_UTF32_BE, "utf-32"), (BOM_UTF16_LE, "utf-16"), (BOM_UTF16_BE, "utf-16"),
    (b"{\0", "utf-16-le"), (b"[\0", "utf-16-le"), (b"\0{", "utf-16-be"), (b"\0[", "utf-16-be"),
)  # fmt: skip
_BLOCKS = {".snappy": "snappy", ".lz4": "lz4"}  # Hadoop's, which begin with a length

# Errors by which a file is recognised that is cut off, or has foreign bytes.
_BROKEN = (OSError, EOFError, ValueError, StructError, zlib.error, lzma.LZMAError, cramjam.DecompressionError)

_Reader = Callable[[IO[bytes]], Iterator[bytes]]


class Stream(io.RawIOBase):
    """Pieces of bytes, one after the other, as a file."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        """True: it is read as a file."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as the present piece goes; 0 at the end."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size


def is_packed(head: bytes, file: str) -> bool:
    """True if a file that begins so is compressed, or text in another encoding than UTF-8."""
    return (_reader(head, file) or _encoding(head)) is not None


def unpacked(packed: IO[bytes], file: str) -> IO[bytes]:
    """The contents of a file, read on demand, with UTF-16 and UTF-32 as UTF-8 with a byte order mark.

    ``packed``: the file, open at its beginning. Reading raises DataError if it cannot be unpacked.
    """
    head = packed.read(_HEAD)
    packed.seek(0)
    if not is_packed(head, file):
        return packed
    texts = (_reader(head, file) or pieces)(packed)
    return io.BufferedReader(Stream(_whole(_as_utf8(texts), file)), _BLOCK)


def _whole(texts: Iterator[bytes], file: str) -> Iterator[bytes]:
    try:
        yield from texts
    except _BROKEN as error:
        raise DataError(
            f"{file}: cannot be unpacked: {error}", "the file is cut off or damaged: copy it again"
        ) from error


def _reader(head: bytes, file: str) -> _Reader | None:
    for sign, name in _SIGNS:
        # `BZh` may begin a text; behind it stands the mark of a block, or of the end of an empty file.
        if head.startswith(sign) and (name != "bz2" or head[4:10] in (b"1AY&SY", b"\x17rE8P\x90")):
            return _READERS[name]
    ending = next((codec for ending, codec in _BLOCKS.items() if file.lower().endswith(ending)), None)
    # A skippable frame comes first, which looks the same in both formats.
    if file.lower().endswith((".zst", ".lz4")) and head[1:4] == b"\x2a\x4d\x18":
        return _READERS["zstd" if file.lower().endswith(".zst") else "lz4"]
    return None if ending is None or not head else partial(_blocks, codec=ending)


def pieces(file: Any) -> Iterator[bytes]:
    """The rest of a file, some of it at a time."""
    while piece := file.read(_BLOCK):
        yield bytes(piece)


def _by_arrow(packed: IO[bytes], codec: str) -> Iterator[bytes]:
    return pieces(pa.CompressedInputStream(pa.PythonFile(packed, "r"), codec))


def _by_python(packed: IO[bytes], opened: Callable[..., Any]) -> Iterator[bytes]:
    return pieces(opened(packed))


def _frames(packed: IO[bytes]) -> Iterator[bytes]:
    while head := packed.read(4):
        kind, size = head[0], int.from_bytes(head[1:], "little")
        text = packed.read(size)[4:]  # behind a checksum
        if len(text) < size - 4:
            raise EOFError("it is cut off within a chunk")
        if kind < 2:
            yield text if kind else bytes(cramjam.snappy.decompress_raw(text))


def _blocks(packed: IO[bytes], codec: str) -> Iterator[bytes]:
    while head := packed.read(4):
        (remaining,) = unpack(">I", head)
        # A block may come in several chunks, each with its own size.
        while remaining:
            (size,) = unpack(">I", packed.read(4))
            chunk = packed.read(size)
            text = (
                bytes(cramjam.snappy.decompress_raw(chunk)) if codec == "snappy" else _plain(chunk, remaining)
            )
            yield text
            remaining -= len(text)


def _plain(packed: bytes, size: int) -> bytes:
    return bytes(pa.Codec("lz4_raw").decompress(packed, decompressed_size=size, asbytes=True))


def _encoding(head: bytes) -> str | None:
    encoding = next((name for sign, name in _ENCODINGS if head.startswith(sign)), None)
    # Without a mark, the second character decides: JSON's is one byte and a zero.
    second = {"utf-16-le": head[3:4], "utf-16-be": head[2:3]}.get(encoding or "", b"\0")
    return encoding if second == b"\0" else None


def _as_utf8(texts: Iterator[bytes]) -> Iterator[bytes]:
    head = b""
    while len(head) < _OF_ENCODING and (text := next(texts, b"")):
        head += text
    encoding = _encoding(head)
    if encoding is None:
        yield from chain([head], texts)
        return
    decoder = getincrementaldecoder(encoding)()
    yield BOM_UTF8
    for text in chain([head], texts):
        yield decoder.decode(text).encode()
    yield decoder.decode(b"", final=True).encode()


_READERS: dict[str, _Reader] = {
    "gzip": partial(_by_python, opened=gzip.open),
    "bz2": partial(_by_python, opened=bz2.BZ2File),
    "xz": partial(_by_python, opened=lzma.LZMAFile),
    "zstd": partial(_by_arrow, codec="zstd"),
    "lz4": partial(_by_arrow, codec="lz4"),
    "snappy": _frames,
}
