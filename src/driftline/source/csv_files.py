"""CSV files in stretches of whole records, which tasks read on their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from driftline.core.planning.dialect import Dialect
from driftline.errors import DataError, UsageError
from driftline.observe.ranges import BOM, lines_between, opened, packed
from driftline.source.csv_cut import LONGEST, Piece, Record, TooLongError, count_lines, pieces, records
from driftline.source.csv_sniff import PLAIN, Form, as_utf8, form_of

ANY = Dialect()


@dataclass(frozen=True, slots=True)
class Header:
    """The names of a file's columns. ``size``: the bytes, and ``lines`` the lines, in front of the first row;
    ``feeds``: lines end in line feeds, at which a file can be cut.
    """

    names: tuple[str, ...]
    size: int
    lines: int
    feeds: bool
    form: Form = PLAIN


@dataclass(frozen=True, slots=True)
class Wrong:
    """What cannot be read in a line: why, and what to do."""

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
        """The same, so many lines further down in its file."""
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
    length = size_of(path)
    whole = packed(path) or header.size > size or not (header.feeds and header.form.can_be_cut)
    count = 1 if whole else max(1, length // size)
    bounds = [length * i // count for i in range(count + 1)]
    parts = [Stretch(path, start, end, end - start, form=header.form) for start, end in pairwise(bounds)]
    parts[-1] = replace(parts[-1], end=None)
    parts[0] = replace(parts[0], skip=header.size, line=header.lines + 1)
    return parts


def size_of(path: str) -> int:
    """Bytes on disk."""
    with opened(path) as (_, length):
        return length


def whole(parts: Sequence[Stretch]) -> Stretch:
    """All stretches of a file as one."""
    return replace(parts[0], end=None, size=sum(part.size for part in parts))


def header_of(path: str, dialect: Dialect = ANY) -> Header | None:
    """The header of a file, which is its first line that is not blank; None if there is none. ``dialect``:
    what is known of how the file is written.

    Raises DataError where it cannot be read, UsageError where two columns have one name.
    """
    with opened(path) as (file, _):
        raw = lines_between(file, 0, None)
        first = next(raw, b"")
        form = form_of(first, replace(dialect, encoding="utf-8") if first.startswith(BOM) else dialect)
        blocks = as_utf8(chain([first], raw), form.encoding)
        first = next(blocks, b"")
        size = len(BOM) if first.startswith(BOM) else 0
        try:
            for piece in pieces(chain([first[size:]], blocks), marks=form.marks):
                for record in records(piece.text, piece.line, form.marks):
                    if record.raw:
                        lines = record.line + count_lines(record.raw)
                        feeds = piece.text[: record.end].endswith(b"\n")
                        return Header(_names(path, record, form), size + record.end, lines, feeds, form)
                size += len(piece.text)
        except TooLongError as error:
            raise Wrong.length(error.line).of(path) from error
    return None


def _names(path: str, header: Record, form: Form) -> tuple[str, ...]:
    if header.cells is None:
        raise DataError(
            f"{path}:{header.line}: a quote is never closed in the header", "close it, or double it"
        )
    try:
        names = tuple(cell.decode() for cell in header.cells)
    except UnicodeDecodeError as error:
        raise Wrong.byte(header.line, error, form).of(path) from error
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise UsageError(f"{path}: two columns are named {twice[0]!r}", hint="rename one in the header")
    return names


def _behind(texts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """A text without its first bytes."""
    for text in texts:
        yield text[size:]
        size = max(0, size - len(text))
