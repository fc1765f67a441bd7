"""Files whose records are columns of declared types, read in the tasks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from driftline.convert import Converter
from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.routes import Conflict, Plan, Settings, lean
from driftline.core.schema.types import Schema, Struct
from driftline.observe.expect import ExpectedField, expect
from driftline.observe.observation import Observation, merge_observations
from driftline.runtime.spark_conf import FILES
from driftline.source.base import REJECTED
from driftline.source.column_rows import (
    ColumnReader,
    Rows,
    RowsObserver,
    RowTerms,
    converted_rows,
    has_required,
    rejected_rows,
    together,
)
from driftline.source.hive import PathTexts, partitioned
from driftline.source.set_aside import Rejects
from driftline.source.shares import dealt
from driftline.write import PartTasks, RowTasks, SetAside, is_small, observed_by

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_HEADS = 32  # readers of which the first rows are looked at for a guess


Finder: TypeAlias = "Callable[[ExpectedField, Settings], Sequence[ColumnReader]]"


class ReaderPart(NamedTuple):
    """A part of one of the readers."""

    reader: int
    part: int
    size: int


@dataclass(frozen=True, slots=True)
class Work:
    """The work on a batch, as sent to tasks: the readers, all their parts, and the terms for rows."""

    readers: Sequence[ColumnReader]
    parts: Sequence[ReaderPart]
    terms: RowTerms

    def rows(self, number: int) -> Iterator[Rows]:
        """The rows of a part."""
        part = self.parts[number]
        return self.readers[part.reader].rows(part.part)

    def reader(self, number: int) -> ColumnReader:
        """The reader of a part."""
        return self.readers[self.parts[number].reader]

    def observed(self, numbers: Iterable[int]) -> Seen:
        """Observe the rows of some parts, given by their numbers."""
        observers = Observers(self)
        for number in numbers:
            for some in self.rows(number):
                observers.of(number).feed(some)
        return observers.result()

    def together(self, parts: Iterable[Seen]) -> Observation:
        """Merge the observations of several tasks."""
        by_reader: dict[int, list[Observation]] = {i: [] for i in range(len(self.readers))}
        for some in parts:
            for reader, observation in some.items():
                by_reader[reader].append(observation)
        return merge_observations(
            together(some, self.readers[i].struct, self.readers[i].label, self.terms)
            for i, some in by_reader.items()
        )


Seen: TypeAlias = Mapping[int, Observation]  # what was observed, by the number of the reader


class Observers:
    """An observer for each reader that some parts are of."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._by_reader: dict[int, RowsObserver] = {}

    def of(self, number: int) -> RowsObserver:
        """The observer for the rows of a part."""
        reader = self._work.reader(number)
        place = self._work.parts[number].reader
        if place not in self._by_reader:
            self._by_reader[place] = RowsObserver(reader.struct, reader.label, self._work.terms)
        return self._by_reader[place]

    def result(self) -> Seen:
        """The observations so far, by reader."""
        return {place: observer.result() for place, observer in self._by_reader.items()}


@dataclass(frozen=True, slots=True)
class PartRows:
    """The row maker of parts of files. ``shares``: the parts of each task."""

    work: Work
    shares: Sequence[Sequence[int]]
    converter: Converter

    def rows(self, given: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, Seen]:
        """The rows of one task's share; returns their observation."""
        observers = Observers(self.work)
        # Parts of one reader stay together, because small ones are converted together.
        for _, numbers in groupby(self.shares[given], lambda number: self.work.parts[number].reader):
            parts = list(numbers)
            rows = chain.from_iterable(map(self.work.rows, parts))
            yield from converted_rows(rows, observers.of(parts[0]), self.converter, set_aside)
        return observers.result()


@dataclass(slots=True)
class ColumnFiles:
    """Files of columns as one batch.

    ``readers``: or a function that finds them for the table's known columns and its settings. ``texts``: the
    texts in the paths of the files. ``in_order``: the rows come in the order of the records.
    """

    spark: SparkSession
    readers: Sequence[ColumnReader] | Finder
    files: Sequence[str]
    texts: PathTexts = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))
    conflicts: tuple[Conflict, ...] = ()
    asked: tuple[Schema, Settings] | None = None
    work: Work | None = None
    begun: PartTasks | None = None
    in_order: bool = True

    @property
    def notes(self) -> Sequence[str]:
        """Notes for a person on how the files were read."""
        notes: Sequence[str] = getattr(self.readers, "notes", ())
        return notes

    def guess(self, schema: Schema, settings: Settings) -> Observation | None:
        """Observe the first rows of each reader.

        Returns None if there are no rows, too many readers, or required columns.
        """
        if has_required(schema):
            return None
        work = self._work(schema, settings)
        if len(work.readers) > _HEADS:
            return None
        heads = Observers(work)
        for number, part in enumerate(work.parts):
            first = next(work.rows(number), None) if part.part == 0 else None
            if first is not None:
                heads.of(number).feed(first)
        seen = work.together([heads.result()])
        return seen if seen.tally.records else None

    def tasks(self, plan: Plan, struct: Struct, settings: Settings) -> RowTasks:
        """Tasks that observe and convert the rows."""
        work = self.work
        assert work is not None, "to be observed, or guessed, first"
        shares = dealt([part.size for part in work.parts], self.spark.sparkContext.defaultParallelism)
        sizes = [sum(work.parts[number].size for number in share) for share in shares]
        converter = Converter(struct, lean(plan.route), settings)
        self.begun = PartTasks(self.spark, sizes, PartRows(work, shares, converter))
        return self.begun

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        """Observe all rows; observations of tasks for the same schema and settings are reused."""
        same = self.work is not None and (schema, settings) == self.asked
        parts = observed_by(self.begun) if same and not self.conflicts else None
        if parts is None or self.work is None:
            work = self._work(schema, settings)
            return work.together(self._observed(work))
        return self.work.together(parts)

    def refuse(self, judge: AdmissionCheck, conflicts: Sequence[Conflict]) -> None:
        """Reject rows by the conflicts alone, without the ``judge``."""
        self.conflicts += tuple(conflicts)

    def set_aside(self) -> Rejects | None:
        """The rows that the tasks set aside; None if they have not run."""
        return None if self.begun is None else Rejects.of(self.begun)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        """Read all parts once more for the rejected rows."""
        work = self.work
        assert work is not None, "to be observed first"
        count = len(work.parts)
        return self.spark.range(0, count, 1, max(1, count)).mapInArrow(
            partial(_rejected, work, everything), REJECTED
        )

    def _work(self, schema: Schema, settings: Settings) -> Work:
        known = expect(schema, settings)
        readers = self.readers(known, settings) if callable(self.readers) else self.readers
        if settings.hive:
            readers = partitioned(readers, self.texts)
        parts = [ReaderPart(i, n, size) for i, r in enumerate(readers) for n, size in enumerate(r.sizes)]
        terms = RowTerms(known, settings, self.conflicts)
        self.asked, self.work, self.begun = (schema, settings), Work(readers, parts, terms), None
        return self.work

    def _observed(self, work: Work) -> list[Seen]:
        sizes, context = [part.size for part in work.parts], self.spark.sparkContext
        if is_small(context, sum(sizes)):
            return [work.observed(range(len(sizes)))]
        shares = dealt(sizes, context.defaultParallelism)
        return context.parallelize(shares, len(shares)).map(work.observed).collect()


def _rejected(
    work: Work, everything: str | None, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for some in work.rows(number):
                yield from rejected_rows(some, work.reader(number).struct, work.terms, everything)
