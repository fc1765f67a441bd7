"""CSV in plain Python, with each lawful reading of quotes."""

from __future__ import annotations

import csv
import re
from bisect import bisect_left
from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import IO, NamedTuple

from driftline.core.schema.naming import caseless
from driftline.verify.packed import pieces
from driftline.verify.values import Cell, Misquoted, ValueSettings, written

_LINE_END = re.compile("\r\n|\n|\r")
_DELIMITERS = ",;\t|"
_EXCEL = re.compile(r"sep=([^\w\s]|\t| )[ ,;\t|]*|\"sep=([^\w\s]|\t| )\"[ ,;\t|]*", re.IGNORECASE)
_BACKSLASH = "\\"
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|\+00:00)?)?")
_MARK = re.compile(r"[,;\t|\"\r\n]")
# Bytes of UTF-8, and rows, that tell how a file is written
_LOOKED, _FIRST = 65_536, 21
_FIRST_READ = 4 * _LOOKED  # bytes that have so much text


class _GoesOn(Exception):
    """A record continues after the text at hand."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record.

    Attributes:
        line: the number of its first line.
        raw: its text.
        cells: None if a quote is never closed.
    """

    line: int
    raw: str
    cells: list[Cell] | None


class CsvDialect(NamedTuple):
    """The table's settings for CSV; empty: none."""

    delimiter: str = ""
    quote: str = ""
    encoding: str = ""
    escape: str = ""
    header: str = ""
    skip_lines: str = ""
    comment: str = ""
    decimal: str = ""
    thousands: str = ""
    nulls: str = ""
    skip_empty: str = ""
    trim: str = ""
    names: str = ""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> CsvDialect:
        """The dialect in a table's properties; a tab may be there as its name.

        >>> CsvDialect.of({"driftline.delimiter": "tab", "driftline.skip-lines": "2"})[:6]
        ('\\t', '', '', '', '', '2')
        """
        said = cls(*(properties.get(f"driftline.{name.replace('_', '-')}", "") for name in cls._fields))
        return said._replace(delimiter="\t") if said.delimiter in ("tab", r"\t") else said

    @property
    def null_texts(self) -> frozenset[str]:
        """The texts of cells that are null, the empty one among them.

        >>> sorted(CsvDialect(nulls='NA, "a,b"').null_texts)
        ['', 'NA', 'a,b']
        """
        return frozenset(["", *(text.strip() for text in _listed(self.nulls))])

    @property
    def comma(self) -> bool:
        """True if the decimal sign is a comma: said, or meant by points between thousands."""
        return self.decimal == "," or self.thousands == "."

    @property
    def signs(self) -> tuple[bool, str]:
        """The signs of numbers: whether the decimal one is a comma, and the one between thousands."""
        return self.comma, self.thousands


class CellMarks(NamedTuple):
    """The marks that separate, quote and escape cells of a file, and begin its comments; empty: none."""

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    comment: str = ""
    blanks: str = ""  # that are no part of a cell where they stand next to a delimiter


def decoded(file: IO[bytes], encoding: str) -> Iterator[str]:
    """The text from the file's position, in pieces; zeros at every other byte reveal UTF-16.

    The first piece is enough to find the encoding.
    """
    head = file.read(_FIRST_READ)
    if head.startswith(BOM_UTF8):  # which goes before the encoding that was said
        encoding = ""
    elif encoding in ("", "utf-16"):
        encoding = _of_two_bytes(head[:_LOOKED]) or encoding
    decoder = getincrementaldecoder(encoding or "utf-8")("replace" if encoding else "surrogateescape")
    yield decoder.decode(head).removeprefix("\ufeff")
    yield from map(decoder.decode, pieces(file))
    yield decoder.decode(b"", final=True)


def _of_two_bytes(head: bytes) -> str:
    """UTF-16's name if zeros reveal it; empty for UTF-8, which may contain zeros too.

    >>> _of_two_bytes("a,b\\n".encode("utf-16-le")), _of_two_bytes(b"a,b\\n1,\\0\\n")
    ('utf-16-le', '')
    """
    even, odd = head[::2].count(0), head[1::2].count(0)
    # Text of two bytes has zeros at one parity alone, and many; a single one is a character of UTF-8.
    if max(even, odd) * 8 <= len(head) or max(even, odd) == 1 or min(even, odd):
        return ""
    name = "utf-16-be" if even else "utf-16-le"
    try:
        getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return name
    # Both readings are possible: the one under which more delimiters, quotes and line ends appear is right.
    wide = len(_MARK.findall(head.decode(name, "replace")))
    narrow = len(_MARK.findall(head.decode("latin1")))
    return name if wide * 2 > narrow or not narrow else ""


def said_first(text: str) -> tuple[str, int]:
    """The delimiter in a first line of its own, as Excel understands it, and the size of that line.

    >>> said_first("sep=;\\r\\na;b"), said_first("a;b\\n")
    ((';', 7), ('', 0))
    """
    end = _LINE_END.search(text)
    match = _EXCEL.fullmatch(text, 0, end.start()) if end else None
    return (match[1] or match[2], end.end()) if match and end else ("", 0)


_USUAL = CellMarks()


def without_titles(texts: Iterator[str], count: int) -> str:
    """Skip ``count`` lines, and return as much of the text after them as detecting its marks takes."""
    text = ""
    while True:
        ends = [match.end() for match in islice(_LINE_END.finditer(text), count)]
        start = ends[-1] if ends else 0
        if len(ends) == count and len(text) - start > 2 * _LOOKED:
            return text[start:]
        try:
            text += next(texts)
        except StopIteration:
            return text[start:] if len(ends) == count else ""


def said_names(dialect: CsvDialect) -> list[str]:
    """The names of all columns, if a person states them.

    >>> said_names(CsvDialect(header="id, n")), said_names(CsvDialect(header="no"))
    (['id', 'n'], [])
    """
    if dialect.header in ("", "auto", "yes", "no"):
        return []
    return [cell.strip() for cell in _listed(dialect.header)]


def _listed(text: str) -> list[str]:
    return next(csv.reader([text], skipinitialspace=True), [])


def in_case_of(names: Sequence[str], keys: Sequence[str], dialect: CsvDialect) -> list[str]:
    """A header's names as the table has them: in another letter case, if a person said so.

    >>> in_case_of(["ID", "n", "a", "A"], ["Id", "id", "N", "a"], CsvDialect(names="fold"))
    ['Id', 'N', 'a', 'A']
    """
    if dialect.names != "fold":
        return list(names)
    folded = [caseless(name) for name in names]
    first = {caseless(key): key for key in reversed(keys)}
    return [
        name if name in keys or folded.count(case) > 1 else first.get(case, name)
        for name, case in zip(names, folded, strict=True)
    ]


def names_of(header: Sequence[Cell]) -> list[str]:
    """The names in a header's cells, as written; a number distinguishes empty and repeated ones.

    >>> names_of([Cell(text) for text in ("", "a", "a", "a_2", "")])
    ['column_1', 'a', 'a_3', 'a_2', 'column_5']
    """
    texts = [getattr(cell, "written", str(cell)) for cell in header]
    names: list[str] = []
    for i, text in enumerate(texts):
        name, n = text or f"column_{i + 1}", 1
        while name in names or (name in texts and not (text and n == 1)):
            n += 1
            name = f"{text or f'column_{i + 1}'}_{n}"
        names.append(name)
    return names


class Head(NamedTuple):
    """The beginning of a text, and whether more follows."""

    text: str
    is_cut: bool

    @classmethod
    def of(cls, text: str) -> Head:
        """Read the part of a text that shows its dialect."""
        begin = text[: _LOOKED + 1].encode(errors="surrogateescape")
        return cls(begin[:_LOOKED].decode(errors="surrogateescape"), len(begin) >= _LOOKED)

    def rows(self, signs: CellMarks, most: int | None = _FIRST) -> list[Row]:
        """The first rows that are not blank, without one that may be cut off."""
        first = behind_empty(row for row in rows([self.text], signs) if row.raw)
        # `pairwise` drops the last row, which may be cut off.
        return list(islice((row for row, _ in pairwise(first)) if self.is_cut else first, most))


def behind_empty(records: Iterable[Row]) -> Iterator[Row]:
    """The records without those of no text above the first that has some, unless that one has values."""
    empty, others = [], iter(records)
    for row in others:
        if row.cells is not None and len(row.cells) > 1 and not any(row.cells):
            empty.append(row)
            continue
        if any(_kind(cell, ValueSettings()) for cell in row.cells or ()):
            yield from empty
        yield row
        yield from others
        return
    yield from empty


def marks_of(head: Head, dialect: CsvDialect) -> CellMarks:
    r"""Detect the delimiter, the quote and the escape.

    The delimiter is the one that gives the header the most cells, and half of the first rows as many; else a
    comma. The quote is a single one if only that gives all rows as many cells. A backslash is the escape if
    quotes stand where they may only with it, and all rows have as many cells.

    >>> texts = "a;b;c\n1;2,5;3", "a;b\n1", "a,b\n'1,2',3", 'a,b\n"1\\"2",3'
    >>> ["".join(marks_of(Head.of(text), CsvDialect())) for text in texts]
    [';"', ',"', ",'", ',"\\']
    """
    delimiters = dialect.delimiter or _DELIMITERS
    none = {"none": ""}
    quote, escape = none.get(dialect.quote, dialect.quote or '"'), none.get(dialect.escape, dialect.escape)
    signs = CellMarks(delimiters[0], quote, escape, dialect.comment, " \t" if dialect.trim == "yes" else "")
    best, even = _best(head, delimiters, signs)
    if quote and not dialect.escape and _BACKSLASH + quote in head.text:
        escaped, _ = _best(head, delimiters, signs._replace(escape=_BACKSLASH))
        if _closes_only_so(head, escaped):
            return escaped
    if dialect.trim in ("", "auto"):
        short, all_even = _best(head, delimiters, signs._replace(blanks=" \t"))
        if all_even and _needs_trim(head, short):
            return short
    if dialect.quote or even or "'" not in head.text:
        return best
    single, single_even = _best(head, delimiters, signs._replace(quote="'"))
    return single if single_even else best


def _best(head: Head, delimiters: str, signs: CellMarks) -> tuple[CellMarks, bool]:
    """The signs with the delimiter, and whether all of the first rows have as many cells, more than one."""
    best, most, even = delimiters[0], 1, False
    for delimiter in delimiters:
        first = head.rows(signs._replace(delimiter=delimiter))
        header, *others = [len(row.cells or ()) for row in first] or [0]
        if header > most and others.count(header) * 2 >= len(others):
            best, most, even = delimiter, header, set(others) <= {header}
    return signs._replace(delimiter=best), even


def _needs_trim(head: Head, signs: CellMarks) -> bool:
    """True if a quote or a number stands behind blanks in the first rows."""
    for whole, short in zip(head.rows(signs._replace(blanks="")), head.rows(signs), strict=False):
        for cell in whole.cells or ():
            inner = getattr(cell, "written", str(cell)).lstrip(" \t")
            if signs.quote and inner != getattr(cell, "written", str(cell)) and inner.startswith(signs.quote):
                return True
        if len(whole.cells or ()) == len(short.cells or ()):
            pairs = zip(whole.cells or (), short.cells or (), strict=True)
            if any(a[:1] in (" ", "\t") and _kind(b, ValueSettings()) == "number" for a, b in pairs):
                return True
    return False


def _closes_only_so(head: Head, signs: CellMarks) -> bool:
    """True if quotes stand where they may only with the escape, and all rows have as many cells."""
    first = head.rows(signs, None)
    if len({len(row.cells or ()) for row in first}) != 1:
        return False
    last = first[-1].line + len(_LINE_END.findall(first[-1].raw))
    ends = [match.end() for match in islice(_LINE_END.finditer(head.text), last)]
    # Whole rows alone: a quote of the row that is cut off would seem not to close.
    sample = head.text[: ends[-1]] if len(ends) == last else head.text
    return _is_sound(sample, signs) and not _is_sound(sample, signs._replace(escape=""))


def _is_sound(text: str, signs: CellMarks) -> bool:
    """True if each quote opens a cell, closes it, or counts as one within it; of a text with comments not."""
    if signs.comment and any(line.startswith(signs.comment) for line in _LINE_END.split(text)):
        return False
    d, q, e = map(re.escape, signs[:3])
    pair = f"|{e}[{q}{e}]?+" if e else ""
    # Possessive (`*+`): a text that does not fit is refused in one pass, without trying other divisions.
    quoted = rf"{q}(?:[^{q}{e}]|{q}{q}{pair})*+{q}(?=[{d}\r\n]|\Z)"
    cell = rf"(?:{quoted}|[^{q}{d}\r\n]*+)(?:{d}|\r\n|\r|\n|\Z)"
    return bool(re.fullmatch(f"(?:{cell})*+", text))


def has_names(first: Sequence[Row], dialect: CsvDialect) -> bool:
    r"""True unless the table says no, or the first row has only values, of the same kinds as those below.

    Whole numbers that rise or fall may be names.

    >>> [has_names(list(rows([text])), CsvDialect()) for text in ("a,b\n1,2", "1.5,7\n2,3", "1,2\n1,2")]
    [True, False, True]
    """
    if dialect.header not in ("", "auto"):
        return dialect.header == "yes"
    names = first[0].cells if first else None
    if not names or not all(names):
        return True
    settings = ValueSettings(comma=dialect.comma, thousands=dialect.thousands)
    kinds, nulls = [_kind(name, settings) for name in names], dialect.null_texts
    if "" in kinds or not nulls.isdisjoint(names):
        return True
    for row in first[1:]:
        if row.cells is not None and len(row.cells) == len(names):
            pairs = zip(kinds, row.cells, strict=True)
            if any(cell not in nulls and _kind(cell, settings) != kind for kind, cell in pairs):
                return True
    if not all(re.fullmatch("-?[0-9]{1,18}", name) for name in names):
        return False
    steps = [int(after) - int(before) for before, after in pairwise(names)]
    return all(step > 0 for step in steps) or all(step < 0 for step in steps)


def _kind(cell: Cell, settings: ValueSettings) -> str:
    """The type that a cell is a value of, by its letters; empty: text."""
    if cell.lower() in ("true", "false"):
        return "boolean"
    if match := _DAY.fullmatch(cell):
        return "moment" if match[1] else "date"
    is_number = "e" not in cell.lower() and written(cell, settings) is not None
    return "number" if is_number else ""


def rows(texts: Iterable[str], signs: CellMarks = _USUAL) -> Iterator[Row]:
    """The records of a text that comes in pieces, blank lines among them.

    At most one record is buffered, or what follows a quote that is never closed.

    >>> [(row.line, row.cells) for row in rows(['1,"a ""b""\\r\\nc"', '\\n2,"d\\n3,e'])]
    [(1, ['1', 'a "b"\\r\\nc']), (3, None), (4, ['3', 'e'])]
    """
    buffer, size, lines = "", 0, 0
    for text in texts:
        buffer += text
        if len(buffer) >= size:
            consumed, passed = yield from _complete_rows(buffer, lines, signs, is_all=False)
            buffer, lines = buffer[consumed:], lines + passed
            # Tried again only once the text has doubled: a long open quote would else be read from its start
            # for each piece.
            size = 2 * len(buffer)
    yield from _complete_rows(buffer, lines, signs, is_all=True)


def _complete_rows(
    text: str, before: int, signs: CellMarks, *, is_all: bool
) -> Generator[Row, None, tuple[int, int]]:
    """The records of a text that begins after ``before`` lines.

    Returns the start of the first that may continue after the text, and the number of lines before it.
    """
    ends = [match.span() for match in _LINE_END.finditer(text)]
    if is_all and not text.endswith(("\r", "\n")):
        ends.append((len(text), len(text)))
    elif not is_all and text.endswith("\r"):  # a line feed may follow
        ends.pop()
    stops = [stop for stop, _ in ends]
    position = line = 0
    while line < len(ends) and position < len(text):
        stop = stops[line]
        cells: list[Cell] | None
        if signs.comment and text.startswith(signs.comment, position):
            position = ends[line][1]
            line += 1
            continue
        if signs.quote and signs.quote in text[position:stop]:
            try:
                cells, stop = _cells(text, position, stops, line, signs, is_all=is_all)
            except _GoesOn:
                break
        else:
            blanks = signs.blanks.replace(signs.delimiter, "")
            cells = [
                Cell(cell.strip(blanks) if blanks else cell)
                for cell in text[position:stop].split(signs.delimiter)
            ]
        yield Row(before + line + 1, text[position:stop], cells)
        line = bisect_left(stops, stop, line)
        position = ends[line][1]
        line += 1
    return position, line


def cells(raw: bytes) -> list[Cell]:
    """The cells of one CSV record; the text itself if it is none."""
    text = raw.decode(errors="surrogateescape")
    cut = [cell for row in rows([text]) for cell in row.cells or [Cell(row.raw)]]
    return cut or [Cell(text)]


def _cells(
    text: str, position: int, stops: list[int], line: int, signs: CellMarks, *, is_all: bool
) -> tuple[list[Cell] | None, int]:
    """The cells of the record that begins at ``position``, and its end; None if a quote is never closed.

    The record is its line then. Raises _GoesOn if the record may continue after the text.
    """
    delimiter, quote, escape = signs[:3]
    blanks = signs.blanks.replace(delimiter, "")
    out: list[Cell] = []
    while True:
        stop = stops[line]
        begin = _after(text, position, blanks)
        if text.startswith(quote, begin):
            position = begin
        if text.startswith(quote, position):
            close = _close(text, position, quote, escape)
            # A quote at the end of a piece may be the first of a doubled one.
            behind = len(text) if close is None else _after(text, close + 1, blanks)
            if not is_all and behind == len(text):
                raise _GoesOn
            if close is not None and text[behind : behind + 1] in ("", delimiter, "\r", "\n"):
                out.append(Cell(_unescaped(text[position + 1 : close], quote, escape)))
                end = behind
            elif close is not None and close < stop:
                end = _next(text, delimiter, position, stop)
                written = text[position:end].rstrip(blanks) if blanks else text[position:end]
                lenient = (
                    _unescaped(written[1 : close - position], quote, escape) + written[close - position + 1 :]
                )
                out.append(Misquoted.of(lenient, written))
            else:
                # A quote that is never closed spoils its line alone: the next line begins a record.
                return None, stop
            line = bisect_left(stops, end, line)
            if line == len(stops):
                raise _GoesOn
        else:
            end = _next(text, delimiter, position, stop)
            out.append(Cell(text[position:end].strip(blanks) if blanks else text[position:end]))
        if not text.startswith(delimiter, end):
            return out, end
        position = end + 1


def _next(text: str, delimiter: str, position: int, stop: int) -> int:
    """The position of the line's next delimiter, or of its end."""
    place = text.find(delimiter, position, stop)
    return stop if place < 0 else place


def _after(text: str, position: int, blanks: str) -> int:
    """The first position that has none of the blanks."""
    while blanks and text[position : position + 1] in tuple(blanks):
        position += 1
    return position


def _close(text: str, position: int, quote: str, escape: str) -> int | None:
    """The end of the text whose quote is at ``position``: the next quote neither doubled nor escaped."""
    # Without an escape, a search for the quote alone is enough.
    place = text.find(quote, position + 1)
    if escape and place >= 0 and text.find(escape, position + 1, place) >= 0:
        q, e = re.escape(quote), re.escape(escape)
        signs = re.compile(f"{e}[{e}{q}]|{q}{q}|{q}").finditer(text, position + 1)
        return next((sign.start() for sign in signs if sign[0] == quote), None)
    while place >= 0 and text.startswith(quote, place + 1):
        place = text.find(quote, place + 2)
    return None if place < 0 else place


def _unescaped(text: str, quote: str, escape: str) -> str:
    if not escape or escape not in text:
        return text.replace(quote * 2, quote)
    q, e = re.escape(quote), re.escape(escape)
    return re.sub(f"[{e}]([{e}{q}])|{q}({q})", lambda match: match[1] or match[2], text)
