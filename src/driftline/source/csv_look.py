"""The first look at CSV files: what types their columns may have, and where they can be cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from driftline.observe.csv_types import ALL, Types, types_of
from driftline.source.csv_cells import columns
from driftline.source.csv_cut import OpenEndError, TooLongError, count_lines
from driftline.source.csv_files import Header, Stretch, Wrong, whole
from driftline.source.shares import dealt
from driftline.write import is_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of a column's texts, for some types, with the sign in numbers.
Test: TypeAlias = "Callable[[pa.Array, Types, str], Types]"
Work: TypeAlias = tuple[Stretch, Sequence[Types]]


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A file with its header, in stretches. ``types``: those that each
    column may have, once it was looked at.
    """

    path: str
    header: Header
    stretches: Sequence[Stretch]
    types: Sequence[Types] = ()


@dataclass(frozen=True, slots=True)
class CsvSample:
    """What a stretch holds. ``types``: those that each column may have; ``lines``: how
    many; ``open_end``: it ends within a cell, or begins there; ``wrong``: what cannot be
    read, with its line, counted in the stretch.
    """

    types: Sequence[Types]
    lines: int
    open_end: bool = False
    wrong: Wrong | None = None


def look(stretch: Stretch, types: Sequence[Types], test: Test) -> CsvSample:
    """Looks at the rows of a stretch, for which of the ``types`` that are asked
    for each column could have by the ``test``.
    """
    lines = 0
    try:
        for piece in stretch.at_line(1).pieces():
            if not piece.text.isascii():
                piece.text.decode()
            lines += count_lines(piece.text)
            if any(types):
                texts, _ = columns(piece, [pa.string()] * len(types))
                decimal = stretch.form.decimal
                types = [test(column, among, decimal) for column, among in zip(texts, types, strict=True)]
    except OpenEndError:
        return CsvSample(types, lines, open_end=True)
    except UnicodeDecodeError as error:
        before = count_lines(error.object[: error.start])
        return CsvSample(types, lines, wrong=Wrong.byte(lines + before + 1, error, stretch.form))
    except TooLongError as error:
        return CsvSample(types, lines, wrong=Wrong.length(error.line))
    return CsvSample(types, lines)


def with_types(spark: SparkSession, files: Sequence[CsvFile], *, strings: bool) -> list[CsvFile]:
    """The files with the types that their columns may have, none if all are ``strings``, in stretches that
    begin and end with whole records, numbered by lines.

    Raises DataError for a byte that is not UTF-8, and for a record that is too long.
    """
    asked: Types = frozenset() if strings else ALL
    done: dict[int, CsvFile] = {}
    todo = dict(enumerate(files))
    while todo:
        work = [
            (part, [asked] * len(file.header.columns)) for file in todo.values() for part in file.stretches
        ]
        looks = iter(looks_at(spark, work, types_of))
        again = {}
        for number, file in todo.items():
            typed = _with_looks(file, [next(looks) for _ in file.stretches])
            if typed is None:
                again[number] = replace(file, stretches=[whole(file.stretches)])
            else:
                done[number] = typed
        todo = again
    return [done[number] for number in range(len(files))]


def looks_at(spark: SparkSession, work: Sequence[Work], test: Test) -> list[CsvSample]:
    """A look at each of some stretches, in order: here if there is little to read, else in tasks."""
    sizes, context = [stretch.size for stretch, _ in work], spark.sparkContext
    if is_small(context, sum(sizes)):
        return [look(stretch, types, test) for stretch, types in work]
    shares = [
        [(number, *work[number]) for number in share] for share in dealt(sizes, context.defaultParallelism)
    ]
    looks = context.parallelize(shares, len(shares)).flatMap(partial(_look_share, test)).collect()
    by_number = dict(looks)
    return [by_number[number] for number in range(len(work))]


def _look_share(
    test: Test, share: Iterable[tuple[int, Stretch, Sequence[Types]]]
) -> list[tuple[int, CsvSample]]:
    return [(number, look(stretch, types, test)) for number, stretch, types in share]


def _with_looks(file: CsvFile, looks: Sequence[CsvSample]) -> CsvFile | None:
    """The file as it was seen; None where it cannot be read in these stretches."""
    if any(look.open_end for look in looks):
        return None
    line, stretches = file.stretches[0].line, []
    for stretch, stretch_look in zip(file.stretches, looks, strict=True):
        if stretch_look.wrong is not None:
            raise stretch_look.wrong.below(line - 1).of(file.path)
        stretches.append(stretch.at_line(line))
        line += stretch_look.lines
    types = [
        frozenset.intersection(*some)
        for some in zip(*(stretch_look.types for stretch_look in looks), strict=True)
    ]
    return replace(file, stretches=stretches, types=types)
