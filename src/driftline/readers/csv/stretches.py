"""CSV files in stretches of whole records, which tasks read on their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice, pairwise
from typing import NamedTuple

from driftline.core.settings.csv import Dialect
from driftline.errors import DataError
from driftline.files.text import BOM, is_unpacked, lines_between, opened
from driftline.readers.csv.cut import LONGEST, CsvRecord, Piece, TooLongError, count_lines, pieces, records
from driftline.readers.csv.sniff import HEAD, PLAIN, Form, as_utf8, check_signs, encoding_of, form_of

ANY = Dialect()
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a line feed may follow a return that ends a block


class CsvColumn(NamedTuple):
    """A column of a file. ``made``: why its name is not the file's own; empty where it is."""

    name: str
    made: str = ""


@dataclass(frozen=True, slots=True)
class Header:
    """A file's columns, by its header or its first row. ``size``: the bytes, and ``lines`` the lines, in
    front of the first row; ``feeds``: lines end in line feeds, at which a file can be cut, unless it is
    ``packed``. ``length``: bytes of the file as it lies there.
    """

    columns: tuple[CsvColumn, ...]
    size: int
    lines: int
    feeds: bool
    form: Form = PLAIN
    length: int = 0
    packed: bool = False


@dataclass(frozen=True, slots=True)
class Wrong:
    """A line that cannot be read: why, and what to do."""

    line: int
    why: str
    hint: str

    @classmethod
    def byte(cls, line: int, error: UnicodeDecodeError, form: Form) -> Wrong:
        """A byte of the line is not of the file's encoding. ``error``: of its text as UTF-8."""
        byte = form.wrong_byte(error)
        if form.encoding:
            why = f"byte {byte:#x} is not {form.encoding}"
            return cls(line, why, "name the encoding that the file has: --encoding")
        hint = "name the encoding: --encoding cp1252 (Windows in the west), latin1, cp1250, shift_jis, …"
        return cls(line, f"byte {byte:#x} is not UTF-8", hint)

    @classmethod
    def length(cls, line: int) -> Wrong:
        """The record is too long."""
        return cls(line, f"a record of more than {LONGEST >> 20} MiB", "is the file CSV, with line ends?")

    def below(self, lines: int) -> Wrong:
        """Move the line number down by ``lines``."""
        return replace(self, line=self.line + lines)

    def of(self, path: str) -> DataError:
        """The error for the file of this path."""
        return DataError(f"{path}:{self.line}: {self.why}", hint=self.hint)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records of a file: those behind the first line feed that ends at ``start`` or later, up to such a line
    feed at ``end``; None for all that follows in the file.

    ``skip``: bytes in front of the first record; ``line``: the number of its line. ``size``: bytes on disk.
    """

    path: str
    start: int
    end: int | None
    size: int
    skip: int = 0
    line: int = 1
    form: Form = PLAIN

    def pieces(self) -> Iterator[Piece]:
        """The records, in pieces. Raises OpenEndError where the stretch ends within a cell."""
        with opened(self.path) as (file, _):
            text = as_utf8(lines_between(file, self.start, self.end), self.form.encoding)
            behind = _behind(text, self.skip)
            yield from pieces(behind, self.line, whole=self.end is None, marks=self.form.marks)

    def at_line(self, line: int) -> Stretch:
        """The stretch, its first line numbered so."""
        return replace(self, line=line)


def stretches_of(path: str, header: Header, size: int) -> list[Stretch]:
    """The rows of a file in stretches of about ``size`` bytes; in one, if it is compressed."""
    length = header.length
    in_one = header.packed or header.size > size or not (header.feeds and header.form.can_be_cut)
    count = 1 if in_one else max(1, length // size)
    bounds = [length * i // count for i in range(count + 1)]
    parts = [Stretch(path, start, end, end - start, form=header.form) for start, end in pairwise(bounds)]
    parts[-1] = replace(parts[-1], end=None)
    parts[0] = replace(parts[0], skip=header.size, line=header.lines + 1)
    return parts


def whole(parts: Sequence[Stretch]) -> Stretch:
    """All stretches of a file as one."""
    return replace(parts[0], end=None, size=sum(part.size for part in parts))


def header_of(path: str, dialect: Dialect = ANY) -> Header | None:
    """The header of a file, which is its first line that is not blank, or is made for its first row; None if
    there is none. ``dialect``: what is known of how the file is written.

    Raises DataError where it cannot be read.
    """
    with opened(path) as (file, length):
        raw = lines_between(file, 0, None)
        first = next(raw, b"")
        encoding = "" if first.startswith(BOM) else encoding_of(first, dialect.encoding)
        size, blocks = _behind_titles(as_utf8(chain([first], raw), encoding), int(dialect.skip_lines or 0))
        text = next(blocks, b"")
        form = form_of(text, dialect, encoding)
        if dialect.kept and not dialect.delimiter:
            check_signs(text[form.ahead :], form, path)
        size, line = size + form.ahead, 1 + int(dialect.skip_lines or 0) + form.lines_ahead
        try:
            for piece in pieces(chain([text[form.ahead :]], blocks), line, marks=form.marks):
                for record in records(piece.text, piece.line, form.marks):
                    if record.raw:
                        feeds = piece.text[: record.end].endswith(b"\n")
                        columns = _columns(path, record, form, dialect.names)
                        lines = record.line - 1 + form.has_header * (1 + count_lines(record.raw))
                        size += record.end if form.has_header else record.begin
                        return Header(columns, size, lines, feeds, form, length, is_unpacked(file))
                size += len(piece.text)
        except TooLongError as error:
            raise Wrong.length(error.line).of(path) from error
    return None


def _behind_titles(blocks: Iterator[bytes], count: int) -> tuple[int, Iterator[bytes]]:
    """The bytes of a mark of the byte order and of ``count`` lines, and the text behind them, whose first
    block is long enough to tell its form.
    """
    text = next(blocks, b"")
    size = len(BOM) if text.startswith(BOM) else 0
    text = text[size:]
    while True:
        ends = [match.end() for match in islice(_LINE_END.finditer(text), count)]
        end = ends[-1] if ends else 0
        size, text, count = size + end, text[end:], count - len(ends)
        block = b"" if not count and len(text) >= HEAD else next(blocks, b"")
        if not block:
            return size, chain([b"" if count else text], blocks)
        text += block


def _columns(path: str, first: CsvRecord, form: Form, names: Sequence[str]) -> tuple[CsvColumn, ...]:
    """The columns of a file, by its first record that is not blank; ``names``: those that a person states."""
    if first.cells is None:
        row = "header" if form.has_header else "first row"
        raise DataError(
            f"{path}:{first.line}: a quote is never closed in the {row}", "close it, or double it"
        )
    if names and len(names) != len(first.cells):
        raise DataError(
            f"{path}:{first.line}: the first row has {len(first.cells)} cells, where --header names {len(names)}",
            "name each column",
        )
    if names:
        return tuple(map(CsvColumn, names))
    if not form.has_header:
        return tuple(CsvColumn(f"column_{place}") for place in range(1, len(first.cells) + 1))
    try:
        return named([cell.decode() for cell in first.cells])
    except UnicodeDecodeError as error:
        raise Wrong.byte(first.line, error, form).of(path) from error


def named(cells: Sequence[str]) -> tuple[CsvColumn, ...]:
    """The columns of a header: one without a name is named by its place, one whose name stands
    before by how often it does, each so that it has no other's name.

    >>> [column.name for column in named(["", "price", "price", "price_2", ""])]
    ['column_1', 'price', 'price_3', 'price_2', 'column_5']
    """
    taken, columns = set(cells), []
    first: dict[str, int] = {}
    for place, cell in enumerate(cells, 1):
        if cell and cell not in first:
            first[cell] = place
            columns.append(CsvColumn(cell))
            continue
        stem = cell or f"column_{place}"
        names = (f"{stem}_{number}" for number in count(2))
        name = next(name for name in (chain([stem], names) if not cell else names) if name not in taken)
        taken.add(name)
        reason = f"has the name of column {first[cell]}" if cell else "has no name"
        columns.append(CsvColumn(name, f"column {place} {reason}"))
    return tuple(columns)


def _behind(texts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """A text without its first bytes."""
    for text in texts:
        yield text[size:]
        size = max(0, size - len(text))
