"""Files whose records are columns of declared types, read in the tasks."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from driftline.convert import Converter
from driftline.core.planning.routes import Plan, Settings, lean
from driftline.core.schema.types import Schema, Struct
from driftline.observe.expect import ExpectedField
from driftline.observe.observation import Observation, merge_observations
from driftline.source.base import REJECTED, Source
from driftline.source.column_rows import (
    ColumnReader,
    Rows,
    RowsObserver,
    converted_rows,
    has_required,
    rejected_rows,
    together,
)
from driftline.source.hive import PathTexts, partitioned
from driftline.source.scan import AdmissionTerms, BatchScan, Observed
from driftline.source.shares import dealt
from driftline.write import PartTasks, RowTasks, SetAside, is_small

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_HEADS = 32  # readers of which the first rows are looked at for a guess


@dataclass(frozen=True, slots=True)
class FoundReaders:
    """Readers of files. ``notes``: for a person, on how the files are read."""

    readers: Sequence[ColumnReader]
    notes: Sequence[str] = ()


class ReaderFinder(Protocol):
    """Finds the readers of files for a table of which so much is known, by its settings."""

    def __call__(self, known: ExpectedField, settings: Settings, before: FoundReaders | None) -> FoundReaders:
        """Find the readers; ``before``: those of an earlier state of the table."""
        ...


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
    terms: AdmissionTerms

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


@dataclass(frozen=True, kw_only=True)
class ColumnFiles(Source):
    """Files of columns as one batch.

    ``found``: their readers, or those for a table. ``texts``: the texts in the paths of the files.
    """

    spark: SparkSession
    found: Sequence[ColumnReader] | ReaderFinder
    texts: PathTexts = field(default_factory=dict)

    def open(self, schema: Schema, settings: Settings, before: BatchScan | None = None) -> ColumnScan:
        """Find the readers for a table, from what was found ``before``."""
        request = self.request(schema, settings)
        terms = request.terms
        earlier = before.found if isinstance(before, ColumnScan) else None
        found = (
            self.found(terms.known, settings, earlier) if callable(self.found) else FoundReaders(self.found)
        )
        readers = partitioned(found.readers, self.texts) if settings.hive else found.readers
        parts = [ReaderPart(i, n, size) for i, r in enumerate(readers) for n, size in enumerate(r.sizes)]
        return ColumnScan(request, terms, self.spark, found, readers, parts)


@dataclass(frozen=True, slots=True)
class ColumnScan(BatchScan):
    """Readers of files of columns, and all their parts."""

    spark: SparkSession
    found: FoundReaders
    readers: Sequence[ColumnReader]
    parts: Sequence[ReaderPart]

    @property
    def repeats(self) -> bool:
        """False: what the files declare says more than the last batch."""
        return False

    @property
    def work(self) -> Work:
        """All that tasks need to read the rows."""
        return Work(self.readers, self.parts, self.terms)

    def tasks(self, plan: Plan, struct: Struct, seen: Observation) -> RowTasks:
        """Tasks that observe and convert the rows."""
        shares = dealt([part.size for part in self.parts], self.spark.sparkContext.defaultParallelism)
        sizes = [sum(self.parts[number].size for number in share) for share in shares]
        converter = Converter(struct, lean(plan.route), self.settings)
        return PartTasks(self.spark, sizes, PartRows(self.work, shares, converter))

    def _guess(self, last: Observation | None) -> Observed | None:
        """Observe the first rows of each reader.

        Returns None if there are too many readers, or required columns.
        """
        work = self.work
        if has_required(self.schema) or len(work.readers) > _HEADS:
            return None
        heads = Observers(work)
        for number, part in enumerate(work.parts):
            first = next(work.rows(number), None) if part.part == 0 else None
            if first is not None:
                heads.of(number).feed(first)
        return self._merged([heads.result()])

    def _observe(self) -> Observed:
        work, sizes, context = self.work, [part.size for part in self.parts], self.spark.sparkContext
        if is_small(context, sum(sizes)):
            return self._merged([work.observed(range(len(sizes)))])
        shares = dealt(sizes, context.defaultParallelism)
        return self._merged(context.parallelize(shares, len(shares)).map(work.observed).collect())

    def _merged(self, parts: Sequence[Seen]) -> Observed:
        return Observed(self, self.work.together(parts))

    def _rejected(self, everything: str | None) -> DataFrame:
        count = len(self.parts)
        return self.spark.range(0, count, 1, max(1, count)).mapInArrow(
            partial(_rejected, self.work, everything), REJECTED
        )

    def _notes(self, seen: Observation) -> Sequence[str]:
        return self.found.notes


def _rejected(
    work: Work, everything: str | None, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for some in work.rows(number):
                yield from rejected_rows(some, work.reader(number).struct, work.terms, everything)
