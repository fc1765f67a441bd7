"""Deals the records of a source among the tables of a pattern, by a reading of patterns of its own."""

from __future__ import annotations

import json
import pickle
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cached_property, partial
from hashlib import sha256
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from driftline.core.settings.fields import parse_path
from driftline.files.endings import ENDINGS, FORMATS
from driftline.verify.comparison import begin_task
from driftline.verify.files import Read
from driftline.verify.match import MissingRecords, packed, unpacked
from driftline.verify.messages import naming
from driftline.verify.values import Cell, Misquoted, Pairs, ValueSettings, written

if TYPE_CHECKING:
    from pyspark import RDD

OTHER = "_other"
_FILE = ("_file.stem", "_file.folder")
_TOPIC, _KEY = "_topic", "_key"
_PART = re.compile(r"(?:\{[^{}]*\}|[^.{}])+")
_PIECE = re.compile(r"\{([^{}]*)\}|([^{}]+)")
_LONGEST = 100  # bytes of a name without its digest
_ZEROS = 400  # of a number that is written without an exponent
_LENGTHS = (6, 12, 24, 64)  # of digests: a longer one where another value has the name
_ENDS_SO = re.compile(rf"_({'|'.join(f'[0-9a-f]{{{length}}}' for length in _LENGTHS)})\Z")
_RESERVED = re.compile(r"_other|.*(__quarantine|__deletes)")
_BRANCHES = re.compile(r"(branch|tag)_.*|(at_timestamp|snapshot_id)_\d+")
_OF_ICEBERG = re.compile(
    r"(all_)?(data_files|delete_files|entries|files|manifests)|history|metadata_log_entries|partitions"
    "|position_deletes|refs|snapshots"
)
_REMEMBERED = 10_000  # values whose tables a task knows
_RUN = 2_000  # records that a task holds before it writes them
_OF_TASK = 16 * 2**20  # bytes of dealt records that a task reads


@dataclass(frozen=True)
class TableNames:
    """The tables of a pattern.

    Attributes:
        pattern: as in ``hooks.{event}``, and known to be one.
        tables: those in its namespaces, each with the values that named it; none for one that the pattern did
            not make.
        files: other names for files, by path.
        of_lines: the tables of a file's lines, where they are known.
        ascii_only: letters and digits of names are those of ASCII.
        signs: those that numbers in cells may have: if a comma is the decimal one, and the one between
            thousands. A record is in the table that it names by the first of them by which there is one.
    """

    pattern: str
    tables: Mapping[str, Sequence[Sequence[str | None]]]
    files: Mapping[str, str] = field(default_factory=dict)
    ascii_only: bool = False
    signs: Sequence[tuple[bool, str]] = ((False, ""),)
    of_lines: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def parts(self) -> list[list[tuple[str, str]]]:
        """The pieces of each part of the pattern: what stands in braces, or else a text."""
        return [_PIECE.findall(part) for part in _PART.findall(self.pattern)]

    @cached_property
    def paths(self) -> dict[str, Sequence[str]]:
        """The paths of the record in braces."""
        braces = (brace for part in self.parts for brace, _ in part)
        return {brace: parse_path(brace) for brace in braces if brace and brace not in (*_FILE, _TOPIC)}

    @cached_property
    def remembered(self) -> dict[tuple[bool, tuple[str | None, ...]], str]:
        """Tables of records that are readable or not, with these values."""
        return {}

    def table_of(self, read: Read) -> str:
        """The table in which a record should be."""
        if (of_lines := self.of_lines.get(read.place.file)) is not None:
            return of_lines[read.place.line - 1]
        tables = [self._table_by(signs, read) for signs in self.signs]
        return next((table for table in tables if not table.endswith(f".{OTHER}")), tables[0])

    def _table_by(self, signs: tuple[bool, str], read: Read) -> str:
        texts = [[self._text(brace, read, signs) for brace, _ in part if brace] for part in self.parts]
        known_by = (read.record is not None, tuple(text for part in texts for text in part))
        if (table := self.remembered.get(known_by)) is None:
            if len(self.remembered) >= _REMEMBERED:
                self.remembered.clear()
            table = self.remembered[known_by] = self._named(texts, is_record=read.record is not None)
        return table

    def _named(self, texts: Sequence[Sequence[str | None]], *, is_record: bool) -> str:
        *spaces, of_table = zip(self.parts, texts, strict=True)
        namespace = ".".join(self._part(*space) for space in spaces)
        if not all(of_table[1]) or (of_table[1] and not is_record):
            return f"{namespace}.{OTHER}"
        values = [text for part in texts for text in part]
        first = self._part(*of_table, several=len(spaces) > 1)
        longer = (f"{_ENDS_SO.sub('', first)}_{_digest(values, length)}" for length in _LENGTHS[1:])
        candidates = (f"{namespace}.{name}" for name in [first, *longer])
        return next((table for table in candidates if self._is_of(table, values)), f"{namespace}.{OTHER}")

    def _is_of(self, table: str, values: Sequence[str | None]) -> bool:
        """True if there is such a table, and it is that of these values, in any letter case."""
        named = self.tables.get(table)
        if not named:
            return named is not None
        return any(_lower(spelled) == _lower(values) for spelled in named)

    def _text(self, brace: str, read: Read, signs: tuple[bool, str]) -> str | None:
        if brace in _FILE:
            return _of_path(PurePosixPath(self.files.get(read.place.file, read.place.file)), brace)
        if brace == _TOPIC:
            return self.files[read.place.file].rpartition("/")[0]  # the partition
        path = self.paths[brace]
        if path[0] == _KEY and read.beside is not None:
            decoded = read.beside.decoded
            named = naming(read.beside.key, path[1:]) if decoded is None else _inside(decoded, path[1:])
            return text_of(named)
        inside = _inside(read.record, path)
        return _of_cell(inside, signs) if isinstance(inside, Cell) else text_of(inside)

    def _part(
        self, pieces: Sequence[tuple[str, str]], texts: Sequence[str | None], *, several: bool = False
    ) -> str:
        """A part of a name. ``several``: of a table, in a namespace of several parts."""
        if not texts:
            return "".join(text for _, text in pieces)
        if not all(texts):
            return OTHER
        remaining = iter(texts)
        spelled = "".join(str(next(remaining)) if brace else text for brace, text in pieces)
        composed = unicodedata.normalize("NFC", spelled)
        lower = unicodedata.normalize("NFC", composed.lower())
        name = "".join(letter if self._is_kept(letter) else "_" for letter in lower)
        cut = name.encode()[:_LONGEST].decode(errors="ignore")
        has_lost = composed != spelled or cut != lower
        is_branch = several and bool(_BRANCHES.fullmatch(name))
        is_reserved = bool(_RESERVED.fullmatch(name)) or (several and bool(_OF_ICEBERG.fullmatch(name)))
        if not (has_lost or is_branch or is_reserved or _ENDS_SO.search(name)):
            return name
        return f"{'_' if is_branch else ''}{cut}_{_digest(texts, _LENGTHS[0])}"

    def _is_kept(self, letter: str) -> bool:
        is_plain = letter.isascii() or not self.ascii_only
        return letter == "_" or (is_plain and (letter.isalpha() or letter.isdecimal()))


def _inside(value: Any, path: Sequence[str]) -> Any:
    """The value at a path of keys; None where there is none."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) and not isinstance(value, Pairs) else None
    return value


def _of_cell(cell: Cell, signs: tuple[bool, str]) -> str | None:
    """The text by which a cell of CSV names a table: as it is written, if its quotes end elsewhere."""
    text = cell.written if isinstance(cell, Misquoted) else cell
    comma, thousands = signs
    number = written(text, ValueSettings(comma=comma, thousands=thousands))
    return text_of(str(text) if number is None else number)


def text_of(value: Any) -> str | None:
    """The text by which a value names a table; None for one that names none.

    >>> text_of("Push"), text_of(True), text_of(Decimal("7.0")), text_of(Decimal("1e3")), text_of({})
    ('Push', 'true', '7', '1000', None)
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str(value) or None
    if isinstance(value, float):
        return _number(Decimal(repr(float(value)))) if isfinite(value) else None
    if isinstance(value, int | Decimal):
        return _number(Decimal(value))
    return value.isoformat() if type(value) is date else None


def _number(number: Decimal) -> str | None:
    if not number.is_finite():
        return None
    sign, digits, exponent = number.as_tuple()
    significant = "".join(map(str, digits)).rstrip("0")
    if not significant:
        return "0"
    power = int(exponent) + len(digits) - len(significant)
    if abs(power) > _ZEROS:
        return f"{'-' if sign else ''}{significant}e{power}"
    return format(Decimal((sign, tuple(map(int, significant)), power)), "f")


def _of_path(path: PurePosixPath, brace: str) -> str | None:
    if brace == "_file.folder":
        return path.parent.name or None
    for endings in (ENDINGS, FORMATS):
        path = path.with_name(path.stem) if path.suffix.lower() in endings else path
    return path.name or None


def _digest(values: Sequence[str | None], length: int) -> str:
    texts = [value or "" for value in values]
    text = json.dumps(texts) if len(texts) > 1 else texts[0]
    return sha256(text.lower().encode(errors="surrogatepass")).hexdigest()[:length]


def _lower(values: Sequence[str | None]) -> list[str]:
    return [(value or "").lower() for value in values]


# The deal ----------------------------------------------------------------------------------------------


class RecordSlice(NamedTuple):
    """Dealt records of a table: so many ``records``, at these bytes of a file."""

    table: str
    file: str
    start: int
    size: int
    records: int


@dataclass(frozen=True, slots=True)
class DealtRecords:
    """The records of a source that one table should have.

    Attributes:
        sources: the files that they came from.
        floats: as `typed_files.floats_in` has them.
        slices: the records, as `deal` wrote them.
    """

    sources: Sequence[str]
    fmt: str
    floats: int
    slices: Sequence[RecordSlice]

    @property
    def size(self) -> int:
        """The bytes of the dealt records."""
        return sum(part.size for part in self.slices)

    def tasks(self) -> list[list[RecordSlice]]:
        """The slices for each task, in order."""
        tasks: list[list[RecordSlice]] = []
        filled = _OF_TASK
        for part in self.slices:
            if filled >= _OF_TASK:
                tasks.append([])
                filled = 0
            tasks[-1].append(part)
            filled += part.size
        return tasks


def deal(names: TableNames, folder: Path, reads: Iterable[Read]) -> Iterator[RecordSlice]:
    """Write records into a file of the folder, those of a table together; yields its slices."""
    begin_task()
    buffer: dict[str, list[Read]] = {}
    with (folder / uuid4().hex).open("wb") as file:
        for number, read in enumerate(reads, 1):
            table = names.table_of(read)
            # A null value that names no table is no record
            if read.beside is None or not read.beside.is_null or not table.endswith(f".{OTHER}"):
                buffer.setdefault(table, []).append(read)
            if not number % _RUN:
                yield from _written(buffer, file)
        yield from _written(buffer, file)


def _written(buffer: dict[str, list[Read]], file: IO[bytes]) -> Iterator[RecordSlice]:
    for table, reads in buffer.items():
        start, size = file.tell(), file.write(packed(reads))
        yield RecordSlice(table, file.name, start, size, len(reads))
    buffer.clear()


def dealt(task: Iterable[RecordSlice]) -> Iterator[Read]:
    """The records of slices, in order."""
    begin_task()
    for part in task:
        with open(part.file, "rb") as file:
            file.seek(part.start)
            yield from pickle.loads(file.read(part.size))  # noqa: S301  our own bytes


@dataclass(slots=True)
class LostRecords:
    """The records that a table and its quarantine lack, once it was checked.

    Attributes:
        folder: for files of them.
        slices: the records.
    """

    folder: Path
    slices: Sequence[RecordSlice] = ()

    def keep(self, lost: RDD[MissingRecords]) -> None:
        """Write the records to files, in place of those of an earlier check."""
        self.slices = lost.mapPartitions(partial(_kept, self.folder)).collect()


def _kept(folder: Path, lost: Iterable[MissingRecords]) -> Iterator[RecordSlice]:
    begin_task()
    buffer: list[Read] = []
    with (folder / uuid4().hex).open("wb") as file:
        for records in lost:
            # A text that is no record is in the quarantine alone
            if records.record is None:
                continue
            buffer += [Read(records.place, unpacked(records.record)) for _ in range(records.n)]
            if len(buffer) >= _RUN:
                yield from _written({"": buffer}, file)
                buffer = []
        if buffer:
            yield from _written({"": buffer}, file)
