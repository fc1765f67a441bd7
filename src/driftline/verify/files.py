"""Source files in plain Python: JSON with numbers as written, CSV as text."""

from __future__ import annotations

import io
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, dropwhile
from typing import IO, Any, NamedTuple

from driftline.runtime.stores import buffered, is_stored
from driftline.verify.csv import (
    CsvDialect,
    Head,
    Row,
    behind_empty,
    decoded,
    has_names,
    in_case_of,
    marks_of,
    names_of,
    rows,
    said_first,
    said_names,
    without_titles,
)
from driftline.verify.json_texts import (
    BEGINNING,
    MalformedText,
    TextBlock,
    is_of_objects,
    line_texts,
    listed,
    of_file,
    parse,
    texts_of,
)
from driftline.verify.json_texts import lines as lines_of
from driftline.verify.messages import MESSAGES, with_key
from driftline.verify.messages import read as read_messages
from driftline.verify.packed import is_packed, unpacked
from driftline.verify.values import Cell, Misquoted, SignedCell

_BLANK = b" \t\r\n"
_CHUNK = 16 * 2**20
LONGEST = 128 * 2**20  # bytes of a record, where the table does not say
_ANY = 2**40  # bytes of a document whose records are in a list
_SHOWN = 4 * 2**10  # bytes of a longer one that the quarantine has
_NOTHING = CsvDialect()


@dataclass(frozen=True, slots=True, order=True)
class SourcePlace:
    """The place of a record in a source.

    Attributes:
        start: the byte behind which lines are counted; in a file without lines it rises from record to
            record, if it is known.
        line: its line, from 1; 0 where the file has no lines.
    """

    file: str
    start: int = 0
    line: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        # A task knows only the lines of its part, so those before it are counted when a place is printed.
        before = 0
        if self.start:
            with opened(self.file) as f:
                remaining = self.start
                while remaining and (block := f.read(min(remaining, _CHUNK))):
                    before += block.count(b"\n")
                    remaining -= len(block)
        return f"{self.file}:{before + self.line}"


class BesideValue(NamedTuple):
    """The key of a message.

    Attributes:
        is_null: its value is null.
        decoded: what a typed key is, as JSON; None for any other key.
    """

    key: bytes | None
    is_null: bool
    decoded: Any = None


@dataclass(frozen=True, slots=True)
class Read:
    """A record of a file; None, with the bytes and a reason, if they are no record.

    Attributes:
        message: that in whose envelope it came; one that cannot be read is the record itself, with a reason.
            Of a topic, the value without its key.
        unmet: the expectation for which it must wait in quarantine; empty if it meets all, None if they are
            not asked.
        beside: of a message of a topic that is to be dealt, what its table may read beside its value.
        is_null: a message of a topic whose value is null, False for one with a value; None for other records.
    """

    place: SourcePlace
    record: dict[str, Any] | None
    raw: bytes = b""
    reason: str = ""
    message: dict[str, Any] | None = None
    unmet: str | None = None
    beside: BesideValue | None = None
    is_null: bool | None = None


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file, or the lines of it that begin within these bytes (``end`` None: the whole file).

    Attributes:
        size: bytes on disk.
        longest: bytes that a record of JSON may have.
        dialect: of CSV.
        records: the keys that lead to the list of records in each document of JSON.
        own_signs: numbers in cells are read by the dialect, not by the table's settings.
        keys: of the table's fields, which headers of CSV may fill in another letter case.
    """

    file: str
    fmt: str
    start: int = 0
    end: int | None = None
    size: int = 0
    longest: int = LONGEST
    dialect: CsvDialect = _NOTHING
    records: Sequence[str] = ()
    own_signs: bool = False
    keys: Sequence[str] = ()


def parts(
    files: Sequence[str],
    fmt: str,
    longest: int = LONGEST,
    dialect: CsvDialect = _NOTHING,
    records: Sequence[str] = (),
) -> list[FilePart]:
    """Cut files into pieces, each of at most one task's size; only plain files of JSON lines are cut.

    The other arguments are those of the parts.
    """
    out = []
    for file in files:
        size = size_of(file)
        is_whole = fmt != "json" or records or size <= _CHUNK or has_packed(file)
        if is_whole or not _begins_with_a_record(file, longest):
            out.append(FilePart(file, fmt, size=size, longest=longest, dialect=dialect, records=records))
        else:
            out += lines_of_file(file, 0, size, longest)
    return out


def lines_of_file(file: str, start: int, end: int, longest: int = LONGEST) -> list[FilePart]:
    """Cut the lines of JSON that begin within these bytes of a file into pieces, as `parts` does."""
    cuts = [(begin, min(begin + _CHUNK, end)) for begin in range(start, end, _CHUNK)]
    return [FilePart(file, "json", begin, stop, stop - begin, longest) for begin, stop in cuts]


def grouped(pieces: Sequence[FilePart], cores: int) -> list[list[FilePart]]:
    """The pieces for each task, in order.

    A task costs more than a small file, so each core gets one at least.

    >>> [len(task) for task in grouped([FilePart("a", "json", size=5)] * 5, 2)]
    [3, 2]
    """
    most = min(_CHUNK, -(-sum(piece.size for piece in pieces) // cores))
    out: list[list[FilePart]] = []
    # Full from the start, so that the first piece begins a task.
    filled = most
    for piece in pieces:
        if filled >= most:
            out.append([])
            filled = 0
        out[-1].append(piece)
        filled += piece.size
    return out


def read(part: FilePart, lines: Collection[int] | None = None) -> Iterator[Read]:
    """The records of the part, and its texts that are none, in order.

    Args:
        lines: of JSON, only the records that begin in these lines.
    """
    if part.fmt == "csv":
        for row in _csv(part.file, part.dialect, part.keys):
            yield _with_signs(row, part.dialect) if part.own_signs else row
        return
    if part.fmt == MESSAGES:
        yield from (found for found in _messages(part) if lines is None or found.place.line in lines)
        return
    if part.records:
        yield from _listed(part)
        return
    for start, found in texts(part):
        for line, raw in zip(*found, strict=True):
            if lines is None or line in lines:
                yield _read(part, SourcePlace(part.file, start, line), raw)


def texts(part: FilePart) -> Iterator[tuple[int, TextBlock]]:
    """The texts of a part of JSON, with the byte of the file that their lines are counted from."""
    with opened(part.file) as file:
        if part.fmt == MESSAGES:
            yield from ((0, TextBlock(found.offsets, found.texts)) for found in read_messages(file))
            return
        if part.end is None:
            yield from ((0, found) for found in texts_of(unpacked(file, part.file), part.longest))
            return
        begin = _first_line(file, part)
        if begin < part.end:
            # A part that ends within a byte order mark has the line behind it.
            size = max(1, part.end - file.tell())
            yield from ((begin, found) for found in line_texts(file, part.longest, size))


def has_packed(file: str) -> bool:
    """True if a file is compressed, or text in another encoding than UTF-8."""
    with opened(file) as f:
        return is_packed(f.read(16), file)


def opened(file: str) -> IO[bytes]:
    """A file of this machine, or of a store by its URI."""
    return buffered(file) if is_stored(file) else open(file, "rb")


def size_of(file: str) -> int:
    """The bytes of a file."""
    with opened(file) as f:
        return f.seek(0, io.SEEK_END)


# JSON ---------------------------------------------------------------------------------------------------


def _read(part: FilePart, place: SourcePlace, raw: bytes) -> Read:
    if len(raw) > part.longest:
        beginning = raw[:_SHOWN] + "…".encode()
        return Read(place, None, beginning, f"longer than {part.longest} bytes")
    try:
        return Read(place, parse(raw))
    except MalformedText as error:
        return Read(place, None, raw, str(error))


def _messages(part: FilePart) -> Iterator[Read]:
    """The records of messages, with offsets for lines; each has its message's key, if keys are read."""
    for found in messages_to_deal(part):
        yield from as_read(found, keys=found.beside is not None, nulls=True)


def messages_to_deal(part: FilePart) -> Iterator[Read]:
    """The records of messages, with offsets for lines, and what is beside them, if keys are read."""
    with opened(part.file) as file:
        for offsets, texts_, raws, keys in read_messages(file):
            for number, (offset, text, raw) in enumerate(zip(offsets, texts_, raws, strict=True)):
                place = SourcePlace(part.file, 0, offset)
                beside = None if keys is None else BesideValue(keys[number], is_null=raw is None)
                try:
                    # A null value has no fields.
                    yield Read(place, {} if raw is None else parse(text), text, beside=beside)
                except MalformedText as error:
                    yield Read(place, None, raw or b"", str(error), beside=beside)


def as_read(
    message: Read,
    *,
    keys: bool,
    nulls: bool,
    keyed_by: Callable[[dict[str, Any], bytes | None], dict[str, Any]] = with_key,
) -> list[Read]:
    """A message as a table reads it; none for a null value, unless it reads ``nulls``.

    ``keyed_by``: gives a record its message's key.
    """
    record, beside = message.record, message.beside
    if beside is not None and beside.is_null and not nulls:
        return []
    message = replace(message, beside=None)
    if record is None:
        return [message]
    if beside is None or not keys:
        return [replace(message, raw=b"")]
    try:
        keyed = keyed_by(record, beside.key)
        return [replace(message, record=keyed, raw=b"", message=record, is_null=beside.is_null)]
    except MalformedText as error:
        return [replace(message, record=None, reason=str(error))]


def _listed(part: FilePart) -> Iterator[Read]:
    """The records in the lists of a file's documents, numbered as lines."""
    with opened(part.file) as packed:
        # A document is read whole, however long: its limit holds for each record in the list.
        found = chain.from_iterable(
            listed(text.raw, part.records) for text in of_file(unpacked(packed, part.file), _ANY)
        )
        for number, (raw, is_record) in enumerate(found, 1):
            place = SourcePlace(part.file, 0, number)
            yield _read(part, place, raw) if is_record else Read(place, None, raw, "it has no such list")


def _first_line(file: IO[bytes], part: FilePart) -> int:
    """Go to the first line that begins in the part, behind a byte order mark; returns where it begins."""
    begin = part.start
    if part.start:
        # From the byte before: if it is a line feed, the part begins with a line of its own.
        file.seek(part.start - 1)
        begin = part.start - 1 + next((size for _, size in lines_of(file, part.longest)), 0)
    elif file.read(len(BOM_UTF8)) == BOM_UTF8:
        return 0
    file.seek(begin)
    return begin


def _begins_with_a_record(file: str, longest: int) -> bool:
    """True if the first non-blank line is one JSON object and none spans lines, or if all are blank."""
    with opened(file) as f:
        if is_of_objects(f.read(BEGINNING), is_whole=False):
            return False
        f.seek(0)
        for line, _ in lines_of(f, longest):
            raw = line.removeprefix(BOM_UTF8).strip(_BLANK)
            if raw:
                return (
                    _read(FilePart(file, "json", longest=longest), SourcePlace(file), raw).record is not None
                )
    return True


# CSV ----------------------------------------------------------------------------------------------------


def _csv(file: str, dialect: CsvDialect, keys: Sequence[str]) -> Iterator[Read]:
    """Records by the first row's names, or by places: a cell is text, an empty one null.

    A row of another width is malformed; a blank line is a row only of a single column.
    """
    header: Sequence[str] | None = in_case_of(said_names(dialect), keys, dialect) or None
    nulls = dialect.null_texts
    for row, is_header in _csv_rows(file, dialect):
        if header is None and row.cells is not None:
            # Without a header, the first whole row only says how many columns there are.
            header = names_of(row.cells if is_header else [Cell() for _ in row.cells])
            header = in_case_of(header, keys, dialect)
        if is_header or header is None:
            continue
        # Of a single column, a blank line is a row whose cell is empty.
        if not row.raw and len(header) > 1:
            continue
        raw = row.raw.encode(errors="surrogateescape")
        reason = ""
        if row.cells is None:
            reason = "a quote is never closed"
        elif len(row.cells) != len(header):
            reason = f"{len(row.cells)} cells, where the header has {len(header)}"
        elif not _is_text(raw):
            reason = "not UTF-8"
        place = SourcePlace(file, 0, row.line)
        if reason or row.cells is None:
            yield Read(place, None, raw, reason)
        else:
            cells = [Cell() if _is_null(cell, nulls) else cell for cell in row.cells]
            if dialect.skip_empty == "true" and not any(cells):
                continue
            yield Read(place, dict(zip(header, cells, strict=True)))


def _is_null(cell: Cell, nulls: Collection[str]) -> bool:
    """True if the cell is one of the texts that are null, as it is written."""
    return cell in nulls and not isinstance(cell, Misquoted)


def as_part(dialects: Mapping[str, CsvDialect], keys: Sequence[str], row: Read, *, own_signs: bool) -> Read:
    """A dealt row as `read` gives it of a part of its file.

    Args:
        dialects: of files.
        keys: those of the part.
        row: the row.
        own_signs: those of the part.
    """
    dialect = dialects[row.place.file]
    if row.record is None:
        return row
    names = in_case_of(list(row.record), keys, dialect)
    row = replace(row, record=dict(zip(names, row.record.values(), strict=True)))
    return _with_signs(row, dialect) if own_signs else row


def _with_signs(row: Read, dialect: CsvDialect) -> Read:
    if row.record is None:
        return row
    return replace(row, record={key: _signed(cell, dialect) for key, cell in row.record.items()})


def _signed(cell: Cell, dialect: CsvDialect) -> Cell:
    return cell if isinstance(cell, Misquoted) else SignedCell.of(cell, dialect.signs)


def _csv_rows(file: str, dialect: CsvDialect) -> Iterator[tuple[Row, bool]]:
    """The rows from the first that is not blank, and whether each is the header."""
    skipped = int(dialect.skip_lines or 0)
    with opened(file) as packed:
        texts = decoded(unpacked(packed, file), dialect.encoding)
        first = without_titles(texts, skipped)
        delimiter, start = said_first(first)
        first, sniffed = first[start:], dialect._replace(delimiter=dialect.delimiter or delimiter)
        head = Head.of(first)
        signs = marks_of(head, sniffed)
        is_header = has_names(head.rows(signs), dialect)
        filled = dropwhile(lambda row: row.raw == "", rows(chain([first], texts), signs))
        for row in behind_empty(filled):
            yield replace(row, line=row.line + skipped + (start > 0)), is_header
            is_header = False


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
