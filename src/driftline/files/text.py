"""Reads text files in ranges of whole lines, decompressed and as UTF-8, judged by their first bytes."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import cramjam
import pyarrow as pa

from driftline.errors import DataError, UsageError
from driftline.files.endings import ENDINGS
from driftline.runtime import stores

BLOCK = 4 * 2**20  # bytes read at once
BOM = b"\xef\xbb\xbf"
# No setting of a table: it is about the machine, and holds before any table is known.
LIMIT = "DRIFTLINE_MAX_UNPACKED"  # a variable of the environment
_LIMIT = 64 * 2**30  # bytes of a packed file's contents
HEAD = 16  # bytes that identify a codec
_OF_ENCODING = 4  # and an encoding
_SNAPPY = b"\xff\x06\0\0sNaPpY"  # the beginning of a file of frames
_WITHOUT_TEXT = 0x80  # the first kind of their chunks that has none
_CHUNKS = 2**18  # bytes of chunks that are unpacked together
_LARGEST = 2**28  # bytes of a block

_ENCODINGS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # which begins as UTF-16 does
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
    # JSON without a mark
    b"{\0": "UTF-16-LE",
    b"[\0": "UTF-16-LE",
    b"\0{": "UTF-16-BE",
    b"\0[": "UTF-16-BE",
}
# In the character behind the bracket, which is ASCII too
_SECOND_ZERO = {"UTF-16-LE": 3, "UTF-16-BE": 2}
_BEGINNINGS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\0": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    _SNAPPY: "snappy",
    **{b"BZh%d" % level + block: "bzip2" for level in range(1, 10) for block in (b"1AY&SY", b"\x17rE8P\x90")},
}
_SIGNS = tuple(_BEGINNINGS)
_SKIPPED = b"\x2a\x4d\x18"  # behind one byte: what zstd and lz4 may have in front
# What is neither text nor packed as text may be. No text begins so.
_OTHERS = {
    b"PK\x03\x04": ("a zip", "name it .zip"),
    b"Obj\x01": ("Avro", "name it --format avro"),
    b"\x89PNG": ("a picture", None),
    b"SQLite format 3\0": ("a SQLite database", None),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "unpack it first"),
}
_BY_THE_END = (b"PAR1", b"ORC")  # text may begin so too: the end of the file decides
# pyarrow's errors are among these.
_BROKEN = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, cramjam.DecompressionError)
_DAMAGED = "the file is cut off or damaged: copy it again"


class LineRange(NamedTuple):
    """Whole lines of a file, from the byte ``start`` to ``end``; ``lines`` stand before them."""

    start: int
    end: int
    lines: int = 0


def lines_between(file: IO[bytes], start: int, end: int | None) -> Iterator[bytes]:
    """The text of the lines that start in a range of bytes of a file, to its end where ``end`` is None."""
    position, inside = start, True
    if start:
        # The line under way belongs to the range before, unless it ends right here.
        position, inside = start - 1, False
        file.seek(position)
    while data := file.read(BLOCK):
        start_of_data, position = position, position + len(data)
        if not inside:
            cut = data.find(b"\n") + 1
            if not cut:
                continue
            data, start_of_data, inside = data[cut:], start_of_data + cut, True
            if end is not None and start_of_data >= end:
                return
        # The line that is under way at the end began before it, and belongs to this range.
        stop = -1 if end is None else data.find(b"\n", max(end - 1 - start_of_data, 0))
        if stop >= 0:
            yield data[: stop + 1]
            return
        yield data


@contextmanager
def opened(path: str) -> Iterator[tuple[IO[bytes], int]]:
    """A file of this machine, or of a store by its URI, unpacked if it is compressed; and its size on disk.

    Raises DataError for a file that is no text, or not of the format that its name shows; and, while it is
    read, for a compressed one that is cut off or broken.
    """
    with stores.opened(path) as (file, length):
        codec = _codec(path, file, length)
        yield file if codec is None else _Unpacked(file, path, codec), length  # type: ignore[misc]


def is_unpacked(file: IO[bytes]) -> bool:
    """True if an open file is compressed, and read as its contents."""
    return isinstance(file, _Unpacked)


def _codec(path: str, file: Any, length: int) -> str | None:
    head, tail = file.read(HEAD), b""
    if head.startswith(_BY_THE_END):
        file.seek(max(0, length - HEAD))
        tail = file.read(HEAD)
    file.seek(0)
    return codec_of(path, head, tail)


class _Readable(Protocol):
    """A readable source of text."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to ``size`` bytes, all if it is negative; empty at the end."""
        ...


def codec_of(path: str, head: bytes, tail: bytes = b"") -> str | None:
    """The codec of a text file that begins and ends with these bytes; None for plain text.

    Raises DataError if the bytes are not what the name says, or no text at all.

    >>> codec_of("a.json", b"{}"), codec_of("a.json", bytes.fromhex("1f8b08")), codec_of("a.csv.sz", b"")
    (None, 'gzip', None)
    """
    if (encoding := _encoding_of(head)) is not None:
        return encoding
    # The bytes decide; a name only says which codec must be there.
    if head.startswith(_SIGNS):
        return next(codec for sign, codec in _BEGINNINGS.items() if head.startswith(sign))
    claimed = ENDINGS.get(Path(path).suffix.lower())
    if claimed is not None and head:
        return _without_a_sign(path, head, claimed)
    for sign, (kind, hint) in _OTHERS.items():
        if head.startswith(sign):
            if kind == "a zip" and Path(path).suffix.lower() == ".xlsx":
                kind, hint = "an Excel workbook", "pass --format excel, or leave --format out"
            raise DataError(f"{path}: this is {kind}, not text", hint)
    if head.startswith(b"PAR1") and tail.endswith(b"PAR1"):
        raise DataError(f"{path}: this is Parquet, not text", "pass --format parquet")
    if head.startswith(b"ORC") and tail[:-1].endswith(b"ORC"):
        raise DataError(f"{path}: this is ORC, not text", "pass --format orc")
    return None


def _encoding_of(head: bytes) -> str | None:
    encoding = next((name for mark, name in _ENCODINGS.items() if head.startswith(mark)), None)
    zero = _SECOND_ZERO.get(encoding or "")
    return encoding if zero is None or head[zero : zero + 1] == b"\0" else None


def _without_a_sign(path: str, head: bytes, claimed: str) -> str:
    if claimed in ("zstd", "lz4") and head[1:4] == _SKIPPED:
        return claimed
    if claimed in ("snappy", "lz4") and _begins_block(head):
        return f"hadoop {claimed}"
    raise DataError(
        f"{path}: its extension says {claimed}, its first bytes do not",
        "rename the file with the right extension",
    )


class _Unpacked:
    """Reads a packed file as its contents, and UTF-16 or UTF-32, packed or not, as UTF-8 with a byte order
    mark.

    ``path``: its name in errors. Reading raises DataError if the file is broken or cut off, or holds more
    than it may.
    """

    def __init__(self, file: IO[bytes], path: str, codec: str) -> None:
        self._path, self.codec, self._limit = path, codec, largest()
        self._size = 0
        self._stream = self._checked(partial(_READERS[codec], file))
        if codec not in _ENCODINGS.values():
            # What is packed may be UTF-16, which only its own first bytes tell.
            head = self._checked(partial(self._stream.read, _OF_ENCODING))
            begun = _Begun(head, self._stream)
            inner_codec = _encoding_of(head)
            self._stream = begun if inner_codec is None else _READERS[inner_codec](begun)

    def read(self, size: int = -1, /) -> bytes:
        """Read this many bytes, fewer only at the end; all that is left if negative."""
        if size < 0:
            return b"".join(iter(partial(self.read, BLOCK), b""))
        data: bytes = self._checked(partial(self._stream.read, size))
        self._size += len(data)
        # A few kilobytes may unpack to any size.
        if self._size > self._limit:
            raise too_large(self._path, self._limit)
        return data

    def _checked(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except _BROKEN as error:
            name = self.codec.rpartition(" ")[2]
            raise DataError(f"{self._path}: broken {name}: {error}", hint=_DAMAGED) from error


class _Begun:
    """A file whose first bytes, the ``head``, are already read."""

    def __init__(self, head: bytes, file: _Readable) -> None:
        self._head, self._file = head, file

    def read(self, size: int) -> bytes:
        """Read from the head while it lasts, then from the file."""
        if not self._head:
            return self._file.read(size)
        head, self._head = self._head[:size], self._head[size:]
        return head + self._file.read(size - len(head))


class _Joined:
    """Texts of any sizes, read as one file."""

    def __init__(self, texts: Iterator[bytes]) -> None:
        self._texts, self._left = texts, b""

    def read(self, size: int) -> bytes:
        """Read ``size`` bytes; fewer only at the end."""
        texts, length = [self._left], len(self._left)
        while length < size and (text := next(self._texts, None)) is not None:
            texts.append(text)
            length += len(text)
        data = b"".join(texts)
        self._left = data[size:]
        return data[:size]


def _by_arrow(codec: str, file: IO[bytes]) -> _Readable:
    stream: _Readable = pa.CompressedInputStream(pa.PythonFile(file, "r"), codec)
    return stream


def _text(encoding: str, file: _Readable) -> _Joined:
    return _Joined(_as_utf8(encoding, file))


def _as_utf8(encoding: str, file: _Readable) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    yield codecs.BOM_UTF8
    while data := file.read(BLOCK):
        yield decoder.decode(data).encode()
    yield decoder.decode(b"", final=True).encode()


# Snappy as one block has no such frames, and is refused: it would need the whole file in memory.
def _frames(file: IO[bytes]) -> Iterator[bytes]:
    """The text of a file of snappy's frames, whose checksums are compared."""
    # cramjam takes a text as a whole, never a stream, so it gets some chunks at a time.
    while chunks := _chunks(file):
        yield bytes(cramjam.snappy.decompress(_SNAPPY + chunks))


def _chunks(file: IO[bytes]) -> bytes:
    """The next chunks of a file of frames, as whole ones; empty at its end."""
    parts, size = [], 0
    while size < _CHUNKS and (head := file.read(4)):
        chunk = _exactly(file, int.from_bytes(_whole(head, 4)[1:], "little"))
        # Padding, and chunks that readers may skip, have no text.
        if head[0] < _WITHOUT_TEXT:
            parts += [head, chunk]
            size += len(chunk)
    return b"".join(parts)


def _blocks(codec: str, file: IO[bytes]) -> Iterator[bytes]:
    """The text of a file of Hadoop's blocks, packed by ``codec`` in Arrow's spelling."""
    while head := file.read(4):
        remaining = int.from_bytes(_whole(head, 4), "big")
        while remaining:
            packed = _exactly(file, int.from_bytes(_exactly(file, 4), "big"))
            size = cramjam.snappy.decompress_raw_len(packed) if codec == "snappy" else remaining
            if size > min(remaining, _LARGEST):
                raise ValueError("a block is larger than it says, or may be")
            # Not by cramjam, which fills a block of lz4 that is too short with zeros.
            yield pa.Codec(codec).decompress(packed, decompressed_size=size, asbytes=True)
            remaining -= size


def _begins_block(head: bytes) -> bool:
    """True if a file with these first bytes may be one of Hadoop's blocks.

    >>> _begins_block(bytes.fromhex("0000000a0000000c")), _begins_block(b'{"a": 1}')
    (True, False)
    """
    size, packed = (int.from_bytes(head[offset : offset + 4], "big") for offset in (0, 4))
    return len(head) >= 8 and size <= _LARGEST and 0 < packed <= size + size // 6 + 64


def _exactly(file: IO[bytes], size: int) -> bytes:
    if size > _LARGEST:
        raise ValueError(f"a block of {size} bytes")
    return _whole(file.read(size), size)


def _whole(data: Any, size: int) -> bytes:
    if len(data) < size:
        raise EOFError("the file is cut off within a block")
    return bytes(data)


_READERS: dict[str, Callable[[Any], Any]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file),
    "zstd": partial(_by_arrow, "zstd"),
    "lz4": partial(_by_arrow, "lz4"),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    **{encoding: partial(_text, encoding) for encoding in _ENCODINGS.values()},
    "snappy": lambda file: _Joined(_frames(file)),
    "hadoop snappy": lambda file: _Joined(_blocks("snappy", file)),
    "hadoop lz4": lambda file: _Joined(_blocks("lz4_raw", file)),
}


def largest() -> int:
    """The number of bytes a packed file may contain. Raises UsageError if the setting is not a number."""
    text = os.environ.get(LIMIT, "")
    if text and not text.isdecimal():
        raise UsageError(f"{LIMIT} = {text!r} is not a whole number of bytes")
    return int(text or _LIMIT)


def too_large(path: str, limit: int) -> DataError:
    """The error for a file that contains more."""
    return DataError(f"{path}: holds more than {limit} bytes", hint=f"if that is intended, raise {LIMIT}")


_SHOWN = 2**16  # bytes by which an encoding shows
_CSV_MARKS = b',;\t|"\r\n'
_UTF8 = ("utf-8", "utf-8-sig")
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # which begins as UTF-16 does
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Stands in UTF-8 that was made of another encoding for a byte that is none of it
_WRONG = 0xFF
_MARKED = "driftline_marked"


def _marked(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return f"{chr(0xDC00 + _WRONG)}{error.object[error.start]:02x}", error.end


codecs.register_error(_MARKED, _marked)


def as_utf8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Convert text to UTF-8, in blocks.

    Bytes invalid in its encoding become bytes invalid in UTF-8: see `Form.wrong_byte`.
    """
    if not encoding:
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)(_MARKED)
    for block in blocks:
        yield decoder.decode(block).encode(errors="surrogateescape")
    yield decoder.decode(b"", final=True).encode(errors="surrogateescape")


@cache
def of_single_bytes(encoding: str) -> bool:
    """True for an encoding of one byte a character that has ASCII's where ASCII has them."""
    plain = bytes(range(128))
    pairs = (bytes((first, second)) for first in range(128, 256) for second in range(256))
    return plain.decode(encoding, "replace") == plain.decode() and all(
        len(pair.decode(encoding, "replace")) == len(pair) for pair in pairs
    )


def encoding_of(first: bytes, encoding: str) -> str:
    """Detect an encoding by byte order marks or the places of zeros; empty for UTF-8."""
    if encoding in _UTF8:
        return ""
    by_mark = next((name for mark, name in _BYTE_ORDER_MARKS.items() if first.startswith(mark)), "")
    if by_mark or encoding not in ("", "utf-16"):
        return encoding or by_mark
    head = first[:_SHOWN]
    # No other encoding is guessed: Latin-1 and its like take almost any bytes, so a wrong guess would change
    # texts unnoticed.
    zeros = head[::2].count(0), head[1::2].count(0)
    big = bool(zeros[0])
    # Of letters of the west, or commas; a single zero may be a cell of its own.
    is_half = max(zeros) > max(1, len(head) // 8) and not min(zeros)
    if is_half and _are_pairs(head, big):
        return "utf-16-be" if big else "utf-16-le"
    return encoding


def _are_pairs(head: bytes, big: bool) -> bool:
    """True if text with many zeros is UTF-16: invalid UTF-8, or with a zero at most CSV marks."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return True
    pairs = zip(head[not big :: 2], head[big::2], strict=False)
    paired = sum(not high and low in _CSV_MARKS for high, low in pairs)
    marks = sum(byte in _CSV_MARKS for byte in head)
    return 2 * paired > marks or not marks
