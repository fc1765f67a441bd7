"""Measures how much of a growing text file a capture takes, and proves that what it took is still there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import IO, Any, NamedTuple

import msgspec

from driftline.core.schema.text import counted
from driftline.files.text import BLOCK, HEAD, codec_of
from driftline.readers.json.documents import is_document

TEXTS = ("json", "csv")  # the formats of files of lines
_HEAD = 2**20  # bytes that distinguish a document from lines
_LAST = 2**24  # bytes of a last line that is parsed to see if it is whole
_QUOTE = b'"'


class Portion(NamedTuple):
    """The bytes of a file that one list of the log takes.

    Attributes:
        start: the first byte.
        end: the byte behind the last one.
        first: the line feeds before ``start``.
        last: the line feeds before ``end``.
        digest: the hash of all bytes before ``end``.
        before: the hash of all bytes before ``start``; empty at the beginning of the file.
        ended: the last byte is a line feed.
        length: the bytes that the file had; those behind ``end`` are a line that has no end yet.
        is_cut: it is whole lines, and nothing behind them is read.
        inode: the number of the file on its disk.
    """

    start: int
    end: int
    first: int
    last: int
    digest: str
    before: str
    ended: bool
    length: int
    is_cut: bool
    inode: int = 0

    @property
    def lines(self) -> int:
        """The number of lines in it."""
        return self.last - self.first + (not self.ended and self.end > self.start)

    @property
    def taken_before(self) -> Portion | None:
        """The bytes before it, all of which were taken; None if it begins the file."""
        if not self.start:
            return None
        return Portion(0, self.start, 0, self.first, self.before, "", True, self.start, True)

    @property
    def waits(self) -> bool:
        """True if the file went on behind it with a line that had no end."""
        return self.end < self.length


class NotProven(Exception):
    """The file does not begin with what was taken of it, or cannot be continued there: the reason."""


def not_lines(path: str, kind: str) -> str | None:
    """Return the reason that nothing can be appended to a file of this format; None for a file of lines."""
    if kind not in TEXTS:
        return f"{kind} is written as a whole"
    with open(path, "rb") as file:
        head = file.read(_HEAD + 1)
    if (codec := codec_of(path, head[:HEAD])) is not None:
        return f"its text is {codec}" if codec.startswith("UTF") else f"it is packed: {codec}"
    if b"\0" in head[:HEAD]:
        return "it is no text of single bytes"
    if kind == "json" and is_document(head[:_HEAD], whole=len(head) <= _HEAD):
        return "it is a document, not lines"
    return None


def measured(path: str, length: int) -> Portion:
    """Measure all of a file's first ``length`` bytes. Raises OSError."""
    with open(path, "rb") as file:
        text = _Text()
        for block in _blocks(file, length):
            text.add(block)
        return text.portion(_Text(), length, is_cut=False)._replace(inode=_inode(file))


def lines_behind(path: str, length: int, kind: str, taken: Portion | None = None) -> Portion:
    """Measure the whole lines among a file's first ``length`` bytes, behind those that were ``taken``.

    A last line without its end waits for the rest, unless it is a JSON object: that is whole as it is.

    Raises:
        NotProven: the file does not begin with what was taken.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        text = _Text()
        if taken is not None and taken.end:
            _read_taken(file, length, taken, text)
        start, end = text.copy(), text.copy()
        inside, torn = 0, b""
        for block in _blocks(file, length - start.size):
            cut = _last_end(block, inside) if kind == "csv" else block.rfind(b"\n") + 1
            inside = (inside + block.count(_QUOTE)) % 2 if kind == "csv" else 0
            text.add(block[:cut])
            if cut:
                end, torn = text.copy(), b""
            text.add(block[cut:])
            torn = torn[:_LAST] + block[cut:]
        if kind == "json" and _is_object(torn):
            end = text
        return end.portion(start, length, is_cut=True)._replace(inode=_inode(file))


def is_begun_by(path: str, taken: Portion) -> bool:
    """True if a file begins with the bytes that were taken of it. Raises OSError."""
    text = _Text()
    with open(path, "rb") as file:
        for block in _blocks(file, taken.end):
            text.add(block)
    return text.digest == taken.digest


def _read_taken(file: IO[bytes], length: int, taken: Portion, text: _Text) -> None:
    """Read what was taken, with the line end behind it. Raises NotProven."""
    if length < taken.end:
        raise NotProven(f"{counted(taken.end, 'byte')} of it were taken, and it has {length}")
    for block in _blocks(file, taken.end):
        text.add(block)
    if text.digest != taken.digest:
        raise NotProven(f"its first {counted(taken.end, 'byte')} are not those that were taken")
    if not taken.ended and length > taken.end:
        end = file.readline(2)
        if end not in (b"\n", b"\r\n"):
            raise NotProven("its last line had no end when it was taken, and goes on")
        text.add(end)


def _last_end(block: bytes, inside: int) -> int:
    """The place behind the last line feed that is not in a quoted cell; 0 without one.

    >>> _last_end(b'a,"b\\n', 0), _last_end(b'1\\n2,"b\\n', 0), _last_end(b'b"\\n', 1)
    (0, 2, 3)
    """
    quotes, end = (inside + block.count(_QUOTE)) % 2, len(block)
    while True:
        if not quotes and (feed := block.rfind(b"\n", 0, end)) > block.rfind(_QUOTE, 0, end):
            return feed + 1
        end = block.rfind(_QUOTE, 0, end)
        if end < 0:
            return 0
        quotes = 1 - quotes


def _is_object(text: bytes) -> bool:
    if not text.strip().startswith(b"{") or len(text) > _LAST:
        return False
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def _inode(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_ino


def _blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0 and (block := file.read(min(BLOCK, size))):
        size -= len(block)
        yield block


@dataclass(slots=True)
class _Text:
    """The text of a file up to some byte: its hash, and its lines."""

    size: int = 0
    lines: int = 0
    ended: bool = True
    _hash: Any = field(default_factory=lambda: blake2b(digest_size=16))

    def add(self, data: bytes) -> None:
        if data:
            self._hash.update(data)
            self.size += len(data)
            self.lines += data.count(b"\n")
            self.ended = data.endswith(b"\n")

    def copy(self) -> _Text:
        return _Text(self.size, self.lines, self.ended, self._hash.copy())

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())

    def portion(self, start: _Text, length: int, *, is_cut: bool) -> Portion:
        """The portion from another text, a beginning of this one, to its end."""
        before = start.digest if start.size else ""
        lines, digest = (start.lines, self.lines), self.digest
        return Portion(start.size, self.size, *lines, digest, before, self.ended, length, is_cut)
