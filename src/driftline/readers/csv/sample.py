"""Looks at stretches of CSV files: types of columns, line numbers, and what cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.core.schema.types import SourceLocation
from driftline.core.settings.csv import Signs
from driftline.core.support import gc_paused
from driftline.readers.csv.cells import NoRow, columns, row_lines
from driftline.readers.csv.cut import OpenEndError, Piece, TooLongError, count_lines, is_escaped
from driftline.readers.csv.open import Header, Stretch, Wrong, whole
from driftline.readers.csv.tally import ColumnTally, Place, tallied
from driftline.readers.csv.types import Types
from driftline.readers.rejects import Origin
from driftline.readers.task import assign_parts
from driftline.write import is_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_BEGIN = 64 * 2**10  # bytes of a piece whose lines are counted first
# Of a column: the types that its texts may have, or a tally of all texts.
State = TypeVar("State", Types, ColumnTally)
# Adds texts, with the signs in their numbers and their places.
Test: TypeAlias = "Callable[[pa.Array, State, Signs, Place], State]"
Work: TypeAlias = "tuple[Stretch, Sequence[State]]"


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A file with its header, in stretches.

    Attributes:
        tallies: those of its columns, once it was looked at.
        escaped: a backslash may escape its quotes.
        nulls: the cells of each text that is null.
        empty: the rows without a value.
    """

    path: str
    header: Header
    stretches: Sequence[Stretch]
    tallies: Sequence[ColumnTally] = ()
    escaped: bool = False
    nulls: Mapping[str, int] = field(default_factory=dict)
    empty: int = 0


@dataclass(frozen=True, slots=True)
class CsvSample(Generic[State]):
    """The observation of a stretch.

    Attributes:
        columns: the possible types, or the tally, of each column.
        lines: their number.
        open_end: the stretch is cut off within a cell, or begins there.
        wrong: the text that cannot be read, with its line, counted in the stretch.
        escaped: cells may close only where a backslash escapes quotes.
        nulls: the cells of each text that is null.
        empty: the rows without a value.
    """

    columns: Sequence[State]
    lines: int
    open_end: bool = False
    wrong: Wrong | None = None
    escaped: bool = False
    nulls: Mapping[str, int] = field(default_factory=dict)
    empty: int = 0


@gc_paused()
def sample_stretch(stretch: Stretch, states: Sequence[State], test: Test[State]) -> CsvSample[State]:
    """Observe the rows of a stretch.

    Args:
        stretch: the stretch.
        states: the candidate types of each column, or a tally of no text.
        test: adds the texts of a column.
    """
    lines, escaped, empty, form = 0, False, 0, stretch.form
    nulls: Counter[str] = Counter()
    try:
        for piece in stretch.at_line(1).pieces():
            escaped = escaped or (not piece.plain and is_escaped(piece.text, piece.marks))
            # Only a check: ASCII is UTF-8, and is found faster.
            if not piece.text.isascii():
                piece.text.decode()
            lines += piece.height
            if any(states) or form.nulls or form.skip_empty:
                texts, others = columns(piece, [pa.string()] * len(states))
                texts = [_without(column, form.nulls, nulls) for column in texts] if form.nulls else texts
                empty += int(empty_rows(texts).sum())
                place = RowPlaces(stretch.path, piece, len(states), others)
                states = [
                    test(column, state, form.signs, place)
                    for column, state in zip(texts, states, strict=True)
                ]
    except OpenEndError:
        return CsvSample(states, lines, open_end=True)
    except UnicodeDecodeError as error:
        before = count_lines(error.object[: error.start])
        return CsvSample(states, lines, wrong=Wrong.byte(lines + before + 1, error, stretch.form))
    except TooLongError as error:
        return CsvSample(states, lines, wrong=Wrong.length(error.line))
    return CsvSample(states, lines, escaped=escaped, nulls=nulls, empty=empty)


@dataclass(slots=True)
class RowPlaces:
    """The places of a piece's rows, whose lines are counted once somebody asks for one."""

    path: str
    piece: Piece
    width: int
    others: Sequence[NoRow]
    lines: NDArray[np.int64] | None = None
    is_begin: bool = False  # the lines are of the beginning alone

    def __call__(self, row: int) -> SourceLocation:
        if self.lines is None:
            # What differs within a column mostly differs at once, and to count all lines takes long.
            self.is_begin = self.piece.plain and len(self.piece.text) > _BEGIN
            begin = replace(self.piece, text=self.piece.text[:_BEGIN]) if self.is_begin else self.piece
            self.lines = row_lines(begin, self.width, self.others)
        # The last row of the beginning may be cut off.
        if self.is_begin and row >= len(self.lines) - 1:
            self.is_begin, self.lines = False, row_lines(self.piece, self.width, self.others)
        return SourceLocation(self.path, int(self.lines[row]))

    def origin(self, row: int) -> Origin:
        """The origin of a row."""
        return Origin(self.path, self(row).line)

    def origin_among(self, rows: NDArray[np.int64], number: int) -> Origin:
        """The origin of one of some rows, by its number among them."""
        return self.origin(int(rows[number]))


def empty_rows(arrays: Sequence[pa.Array]) -> NDArray[np.bool_]:
    """Flag the rows that have no value."""
    flags = np.ones(len(arrays[0]) if arrays else 0, np.bool_)
    for array in arrays:
        if not (array.null_count and flags.any()):
            return np.zeros(len(flags), np.bool_)
        flags &= array.is_null().to_numpy(zero_copy_only=False)
    return flags


def _without(texts: pa.Array, nulls: Sequence[str], counts: Counter[str]) -> pa.Array:
    """The texts without those that are null, which are counted."""
    chosen = pc.is_in(texts, value_set=pa.array(nulls, pa.string()))
    if not pc.any(chosen).as_py():
        return texts
    for count in pc.value_counts(texts.filter(chosen)).to_pylist():
        counts[count["values"]] += count["counts"]
    return pc.if_else(chosen, pa.scalar(None, pa.string()), texts)


def with_types(spark: SparkSession, files: Sequence[CsvFile], *, strings: bool) -> list[CsvFile]:
    """Find the possible types of the files' columns, none if all are ``strings``.

    The files' stretches then begin and end with whole records, numbered by lines. Raises DataError for a
    byte that is not UTF-8, and for a record that is too long.
    """
    finished: dict[int, CsvFile] = {}
    todo = dict(enumerate(files))
    while todo:
        work = [
            (part, [ColumnTally()] * len(file.header.columns))
            for file in todo.values()
            for part in file.stretches
        ]
        looks = iter(looks_at(spark, work, _not_tallied if strings else tallied))
        again = {}
        for number, file in todo.items():
            typed = _with_looks(file, [next(looks) for _ in file.stretches])
            if typed is None:
                # A cut fell into a quoted cell. One wrong cut makes all later ones doubtful, so the file is
                # read in one.
                again[number] = replace(file, stretches=[whole(file.stretches)])
            else:
                finished[number] = typed
        todo = again
    return [finished[number] for number in range(len(files))]


def _not_tallied(texts: pa.Array, state: ColumnTally, signs: Signs, place: Place) -> ColumnTally:
    return state


def looks_at(spark: SparkSession, work: Sequence[Work[State]], test: Test[State]) -> list[CsvSample[State]]:
    """Look at stretches, in order: in this process if there is little to read, else in tasks."""
    sizes, context = [stretch.size for stretch, _ in work], spark.sparkContext
    if is_small(context, sum(sizes)):
        return [sample_stretch(stretch, states, test) for stretch, states in work]
    shares = [
        [(number, work[number][0], work[number][1]) for number in share]
        for share in assign_parts(sizes, context.defaultParallelism)
    ]
    looks = context.parallelize(shares, len(shares)).flatMap(partial(_look_share, test)).collect()
    by_number = dict(looks)
    return [by_number[number] for number in range(len(work))]


def _look_share(
    test: Test[State], share: Iterable[tuple[int, Stretch, Sequence[State]]]
) -> list[tuple[int, CsvSample[State]]]:
    return [(number, sample_stretch(stretch, states, test)) for number, stretch, states in share]


def _with_looks(file: CsvFile, looks: Sequence[CsvSample[ColumnTally]]) -> CsvFile | None:
    """Return the file as it was seen; None if it cannot be read in these stretches."""
    if any(look.open_end for look in looks):
        return None
    line, stretches = file.stretches[0].line, []
    tallies = [ColumnTally()] * len(file.header.columns)
    for stretch, stretch_look in zip(file.stretches, looks, strict=True):
        if stretch_look.wrong is not None:
            raise stretch_look.wrong.below(line - 1).of(file.path)
        # Lines are counted from 1 in each stretch; here they get their numbers in the file.
        stretches.append(stretch.at_line(line))
        behind = (tally.below(line - 1) for tally in stretch_look.columns)
        tallies = [before.merge(tally) for before, tally in zip(tallies, behind, strict=True)]
        line += stretch_look.lines
    nulls = sum((Counter(look.nulls) for look in looks), Counter[str]())
    escaped = any(look.escaped for look in looks)
    empty = sum(look.empty for look in looks)
    return replace(file, stretches=stretches, tallies=tallies, escaped=escaped, nulls=nulls, empty=empty)
