"""Files of JSON, lines or documents, cut into splits that tasks observe and read on their own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec

from driftline.core.planning.admission import Judge
from driftline.core.planning.routes import Settings
from driftline.observe.expect import Expect
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation
from driftline.observe.ranges import BLOCK, BOM, lines_between, opened, packed

_SPLIT = 32 * 2**20  # bytes of a split
_HEAD = 2**20  # bytes that tell a document from lines
_BLANKS = re.compile(r"[ \t\r\n]*")

_scan = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Split:
    """A range of bytes of a file: the lines that start in it. ``line``: the number of the first of them.

    A ``document`` and a compressed file are one split; the records of a document count as its lines.
    """

    path: str
    start: int
    length: int
    document: bool = False
    line: int = 1

    @property
    def whole(self) -> bool:
        """Whether it can only be read from its start to its end."""
        return self.document or packed(self.path)

    def cut(self, size: int) -> list[Split]:
        """The split in parts of about this many bytes, where it can be cut."""
        if self.whole:
            return [self]
        parts = max(1, -(-self.length // size))
        bounds = [self.start + self.length * i // parts for i in range(parts + 1)]
        return [replace(self, start=a, length=b - a) for a, b in pairwise(bounds)]

    def head(self, size: int) -> Split:
        """The first lines of the split, of about this many bytes."""
        return replace(self, length=min(self.length, size))

    def to_end(self) -> Split:
        """The split and all that follows it in its file, whatever has been added there."""
        return replace(self, length=2**62)

    def at_line(self, line: int) -> Split:
        """The split, its first line numbered so."""
        return replace(self, line=line)


def splits_of(path: str, size: int = _SPLIT) -> list[Split]:
    """The splits of a local file, or of one that pyarrow knows by its URI; in order, at least one.

    Raises DataError for a compressed file that is cut off or broken.
    """
    with opened(path) as (file, length):
        head = file.read(_HEAD + 1)
    return Split(path, 0, length, is_document(head[:_HEAD], whole=len(head) <= _HEAD)).cut(size)


def observe_split(known: Expect, settings: Settings, judge: Judge | None, split: Split) -> Observation:
    """Every type of every path of every record of a split, against what a table has; lines count from 1."""
    observer = JsonObserver(known, settings, judge)
    line = 1
    for lines in blocks(split):
        observer.feed(lines, split.path, line)
        line += len(lines)
    return observer.result()


def is_document(head: bytes, *, whole: bool) -> bool:
    """Whether a file that begins so is an array, or has records over several lines; ``whole``: this is all of it.

    >>> is_document(b'{"a": 1}\\n{"a": 2}', whole=True), is_document(b'[{"a": 1},\\n{"a": 2}]', whole=True)
    (False, True)
    >>> is_document(b'{\\n "a": 1\\n}\\n{\\n "a": 2\\n}', whole=True)
    True
    """
    text = head.decode(errors="replace").removeprefix("\ufeff").lstrip()
    first, _, rest = text.partition("\n")
    if not text.startswith(("{", "[")):
        return False
    if len(first) == len(text) and not whole:
        return text.startswith("[")
    if _begins(first, whole=True) == len(first):
        return text.startswith("[") and not rest.strip()
    end = _begins(text, whole=whole)
    # Behind a record over several lines there may be others.
    return end == len(text) or (
        end > 0 and text.startswith("{") and not text[end:].partition("\n")[0].strip()
    )


def _begins(text: str, *, whole: bool) -> int:
    """Where the JSON value ends that the text begins with, and blanks behind it; 0 where it begins with none.

    ``whole``: the text is all there is; else what is no value yet may become one.
    """
    try:
        _, end = _scan(text)
    except json.JSONDecodeError as error:
        cut = error.msg.startswith("Unterminated string") or error.pos > len(text) - 16
        return len(text) if cut and not whole else 0
    except RecursionError:
        return 0
    return len(text) if not text[end:].strip() else end


def records_of(document: bytes) -> Iterator[bytes]:
    """The text of each record of a document: of each element of an array, or of the values that follow one another.

    What is no JSON comes as it is, up to the next line that begins with a brace.
    """
    text = document.removeprefix(BOM).strip()
    if text.startswith(b"["):
        try:
            elements = msgspec.json.decode(text, type=list[msgspec.Raw])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            yield text
        else:
            yield from map(bytes, elements)
        return
    chars = text.decode("latin-1")  # a character for each byte, and the same braces and quotes
    at = 0
    while at < len(chars):
        try:
            _, end = _scan(chars, at)
        except (json.JSONDecodeError, RecursionError):
            following = chars.find("\n{", at + 1)
            end = following if following >= 0 else len(chars)
        yield text[at:end]
        blanks = _BLANKS.match(chars, end)
        at = blanks.end() if blanks is not None else end


def blocks(split: Split) -> Iterator[list[bytes]]:
    """The lines of a split, some at a time, without a byte order mark; of a document its records."""
    with opened(split.path) as (file, _):
        if split.document:
            yield from _gathered(records_of(file.read()))
            return
        end = None if packed(split.path) else split.start + split.length
        first = split.start == 0
        for lines in _lines(lines_between(file, split.start, end)):
            if first:
                lines[0] = lines[0].removeprefix(BOM)
            yield lines
            first = False


def _gathered(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The records, as many at a time as are read of lines."""
    some: list[bytes] = []
    size = 0
    for record in records:
        some.append(record)
        size += len(record)
        if size >= BLOCK:
            yield some
            some, size = [], 0
    if some:
        yield some


def _lines(pieces: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The lines of a text that comes in pieces; split at line feeds and nowhere else."""
    rest: list[bytes] = []
    for piece in pieces:
        lines = piece.split(b"\n")
        rest.append(lines[0])
        if len(lines) > 1:
            lines[0] = b"".join(rest)
            rest = [lines.pop()]
            yield lines
    if last := b"".join(rest):
        yield [last]
