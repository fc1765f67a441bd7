"""Cuts JSON files, lines or documents, into splits that tasks read independently."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

from driftline.core.values import TruncatedText, cut
from driftline.errors import DataError
from driftline.files.text import BLOCK, BOM, LineRange, is_unpacked, lines_between, opened
from driftline.observe.observation import Observation
from driftline.readers.json.documents import ListedRecords, is_document, records_in

_SPLIT = 32 * 2**20  # bytes of a split
_HEAD = 2**20  # bytes that distinguish a document from lines


@dataclass(frozen=True, slots=True)
class Split:
    """A range of bytes of a file: the lines that start in it.

    Attributes:
        line: the number of the first.

    A ``document`` and a ``packed`` file are one split; the records of a document count as its lines.
    ``text_length``: of a packed file's text, the bytes in which the lines start; None for all of it.
    ``bounded``: the file may go on behind its last split, with lines that are not read.
    ``beside``: members added to each record, by key, as JSON. ``sheet``: of a workbook, which is one split.
    ``earlier_names``: of the columns of workbooks before it, in whose letter case its own may stand.
    ``dealt``: the file with the rows of a sheet that are read.
    """

    path: str
    start: int
    length: int
    document: bool = False
    line: int = 1
    packed: bool = False
    text_length: int | None = None
    beside: tuple[tuple[str, bytes], ...] = ()
    sheet: str = ""
    earlier_names: tuple[str, ...] = ()
    bounded: bool = False
    dealt: str = ""

    def cut(self, size: int) -> list[Split]:
        """Cut the split into parts of about this many bytes, if it can be cut."""
        # A document has no line to begin at, and a packed text is read from its beginning.
        if self.document or self.packed:
            return [self]
        parts = max(1, -(-self.length // size))
        bounds = [self.start + self.length * i // parts for i in range(parts + 1)]
        return [replace(self, start=a, length=b - a) for a, b in pairwise(bounds)]

    def head(self, size: int) -> Split:
        """The first lines of the split, of about this many bytes."""
        return replace(self, length=min(self.length, size), text_length=size)

    def to_end(self) -> Split:
        """The split extended to the end of its file, with anything added there since."""
        return self if self.bounded else replace(self, length=2**62)

    def follows(self, before: Split) -> bool:
        """True if the split goes on where another one of its file ends."""
        return bool(self.start) and (self.path, self.start) == (before.path, before.start + before.length)

    def at_line(self, line: int) -> Split:
        """The split with another number for its first line."""
        return self if line == self.line else replace(self, line=line)


Share: TypeAlias = Sequence[tuple[int, Split]]  # splits, each with its number in the batch


@dataclass(frozen=True, slots=True)
class ObservedSplits:
    """The observation of some splits.

    Attributes:
        lines: the number of lines of each, by its number, in their order.
        notes: advice for a person.
    """

    observation: Observation
    lines: Mapping[int, int]
    notes: Sequence[str] = ()

    @property
    def first(self) -> int:
        """The number of the first of the splits."""
        return next(iter(self.lines))


def splits_of(
    path: str,
    size: int = _SPLIT,
    *,
    as_documents: bool = False,
    ranges: Mapping[str, LineRange] | None = None,
) -> list[Split]:
    """The splits of a file on this machine, or in a store by its URI; in order, at least one.

    Args:
        as_documents: its lines are documents, too.
        ranges: the lines to read of some files, by path.

    Raises DataError for a compressed file that is cut off or broken, and for lines to read of a document.
    """
    with opened(path) as (file, length):
        # One byte more shows if the file goes on behind its head.
        head = file.read(_HEAD + 1)
        is_packed = is_unpacked(file)
    if (lines := (ranges or {}).get(path)) is not None:
        if as_documents:
            raise DataError(
                f"{path}: the table's setting `records` reads documents, which cannot be read by lines",
                hint="capture it with --changed-files again, skip or fail",
            )
        part = Split(path, lines.start, lines.end - lines.start, line=lines.lines + 1, bounded=True)
        return part.cut(size)
    document = as_documents or is_document(head[:_HEAD], whole=len(head) <= _HEAD)
    return Split(path, 0, length, document, packed=is_packed).cut(size)


# One observer for a thousand small files, or for all splits of a large one: a task returns one observation,
# and begins once to learn what its lines have.
def together(share: Share) -> Iterator[Share]:
    """Group the splits that are observed together, in order.

    A split that goes on where the one before it ends joins it. Those that begin their files share an
    observer, too, as their lines count from 1. Any other begins a group, because the number of its first line
    is not known yet.
    """
    group: list[tuple[int, Split]] = []
    for number, split in share:
        if group and not (split.follows(group[-1][1]) or split.start == group[0][1].start == 0):
            yield group
            group = []
        group.append((number, split))
    if group:
        yield group


def blocks(split: Split, longest: int, listed: ListedRecords | None = None) -> Iterator[list[bytes]]:
    """The lines of a split in groups, without a byte order mark; of a document its records.

    Those of more than ``longest`` bytes come as `TruncatedText`. ``listed``: takes the records out of a
    document. Raises DataError for a record that contradicts the split's ``beside``.
    """
    as_written = _blocks(split, longest, listed)
    if not split.beside:
        return as_written
    # Before they are decoded, so that the quarantine has them, too.
    return ([with_members(line, split) for line in lines] for lines in as_written)


def _blocks(split: Split, longest: int, listed: ListedRecords | None) -> Iterator[list[bytes]]:
    if split.bounded and not split.length:
        return
    with opened(split.path) as (file, _):
        if split.document:
            if listed is None:
                records = records_in(file, longest)
            else:
                # Such a document may be of any length: the limit holds for each record in its list.
                documents = records_in(file, sys.maxsize)
                records = (cut(text, longest) for document in documents for text in listed.of(document))
            yield from group_lines(([record] for record in records), BLOCK)
            return
        end = split.text_length if is_unpacked(file) else split.start + split.length
        first = split.start == 0
        for lines in _lines(lines_between(file, split.start, end), longest):
            if first and lines[0].startswith(BOM) and not isinstance(lines[0], TruncatedText):
                lines[0] = lines[0].removeprefix(BOM)
            yield lines
            first = False


def line_feeds(split: Split) -> int:
    """Count the lines of a split that another one follows in its file."""
    with opened(split.path) as (file, _):
        return sum(text.count(b"\n") for text in lines_between(file, split.start, split.start + split.length))


def with_members(line: bytes, split: Split) -> bytes:
    """Add the split's members to a record; a line that is no record stays as it is.

    >>> with_members(b'{"a": 1}', Split("f", 0, 0, beside=(("day", b"7"),)))
    b'{"a": 1,"day":7}'
    """
    text = line.strip()
    if isinstance(line, TruncatedText) or not (text.startswith(b"{") and text.endswith(b"}")):
        return line
    beside = [(json.dumps(key).encode(), key, value) for key, value in split.beside]
    written: Mapping[str, Any] = {}
    if b"\\" in text or any(name in text for name, _, _ in beside):  # else none of the keys can be there
        with suppress(ValueError, RecursionError):
            written = json.loads(text)
    for _, key, value in beside:
        in_record, in_path = written.get(key), str(json.loads(value))
        if in_record is not None and not str(in_record).startswith(in_path):  # a day may begin a moment
            raise DataError(
                f"{split.path}: {key} is {in_record} in a record, and {in_path} in the path",
                hint="--set hive=off ignores the values in paths",
            )
    members = b",".join(name + b":" + value for name, key, value in beside if written.get(key) is None)
    inside = text[:-1].rstrip()
    return inside + (b"," if members and inside != b"{" else b"") + members + b"}"


def group_lines(groups: Iterable[Sequence[bytes]], size: int) -> Iterator[list[bytes]]:
    """Join groups of records until they have at least ``size`` bytes."""
    records: list[bytes] = []
    size_so_far = 0
    for group in groups:
        records += group
        size_so_far += sum(map(len, group))
        if size_so_far >= size:
            yield records
            records, size_so_far = [], 0
    if records:
        yield records


def _lines(pieces: Iterable[bytes], longest: int) -> Iterator[list[bytes]]:
    """The lines of a text that comes in pieces; split at line feeds and nowhere else."""
    under_way = _Line(longest)
    for piece in pieces:
        lines = piece.split(b"\n")
        under_way.add(lines[0])
        if len(lines) > 1:
            last = lines.pop()
            # In a shorter piece no whole line can be too long.
            if longest < len(piece):
                lines = [cut(line, longest) for line in lines]
            lines[0] = under_way.end()
            under_way.add(last)
            yield lines
    if line := under_way.end():
        yield [line]


class _Line:
    """A line that arrives in parts. Of one that is too long, only the beginning is kept."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes) -> None:
        """Append a part, unless the line is too long already."""
        if self._size <= self._longest:
            self._parts.append(part)
            self._size += len(part)

    def end(self) -> bytes:
        """Finish the line; the next one begins."""
        line = b"".join(self._parts)
        self._parts, self._size = [], 0
        return cut(line, self._longest)
