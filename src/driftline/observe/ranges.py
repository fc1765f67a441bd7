"""Files of text, plain or packed, read in ranges of whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from driftline.observe.codecs import BY_THE_END, HEAD, Unpacked, codec_of
from driftline.runtime import stores

BLOCK = 4 * 2**20  # bytes read at once
BOM = b"\xef\xbb\xbf"


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
        yield file if codec is None else Unpacked(file, path, codec), length  # type: ignore[misc]


def is_unpacked(file: IO[bytes]) -> bool:
    """True if an open file is compressed, and read as its contents."""
    return isinstance(file, Unpacked)


def _codec(path: str, file: Any, length: int) -> str | None:
    head, tail = file.read(HEAD), b""
    if head.startswith(BY_THE_END):
        file.seek(max(0, length - HEAD))
        tail = file.read(HEAD)
    file.seek(0)
    return codec_of(path, head, tail)
