"""Files whose records are columns of declared types, read in the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from driftline.convert import Converter
from driftline.convert.types import convertible
from driftline.core.judge import Judge
from driftline.core.routes import Conflict, Plan, Settings, lean
from driftline.core.types import Schema, Struct
from driftline.engine import FILES
from driftline.observe.observation import Observation, merge_observations
from driftline.observe.walk import Expect, expect
from driftline.source.base import REJECTED
from driftline.source.column_rows import Rows, RowsObserver, Terms, observed_rows, rejected_rows, together
from driftline.source.json_tasks import ObservedSplits
from driftline.source.shares import dealt
from driftline.write.frame import frame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

_SMALL = 8 * 2**20  # bytes that are observed faster here than by starting a Python worker
_HEADS = 32  # readers of which the first rows are looked at for a guess


class ColumnReader(Protocol):
    """Files of one schema. A reader is sent to tasks, so it is small.

    ``struct``: the types of the columns, by key; ``label``: how reports name where they came from; ``sizes``: the bytes of
    each part. A part is what one task reads at least.
    """

    @property
    def struct(self) -> Struct: ...

    @property
    def label(self) -> str: ...

    @property
    def sizes(self) -> Sequence[int]: ...

    def rows(self, part: int) -> Iterator[Rows]:
        """The rows of a part, some at a time."""
        ...


class Part(NamedTuple):
    """A part of one of the readers."""

    reader: int
    part: int
    size: int


@dataclass(frozen=True, slots=True)
class Work:
    """What tasks know of a batch: the readers, all their parts, and what rows are held against."""

    readers: Sequence[ColumnReader]
    parts: Sequence[Part]
    terms: Terms

    def rows(self, number: int) -> tuple[Iterator[Rows], ColumnReader]:
        """The rows of a part, and its reader."""
        part = self.parts[number]
        reader = self.readers[part.reader]
        return reader.rows(part.part), reader

    def observed(self, number: int) -> Observation:
        """What the rows of a part are."""
        rows, reader = self.rows(number)
        return observed_rows(rows, reader.struct, reader.label, self.terms)

    def together(self, parts: Mapping[int, Observation]) -> Observation:
        """One observation of all parts."""
        by_reader: dict[int, list[Observation]] = {i: [] for i in range(len(self.readers))}
        for number in sorted(parts):
            by_reader[self.parts[number].reader].append(parts[number])
        return merge_observations(
            together(some, self.readers[i].struct, self.readers[i].label, self.terms)
            for i, some in by_reader.items()
        )


@dataclass(frozen=True, slots=True)
class ColumnTasks:
    """Tasks that make rows of the table, and tell in ``observed`` what the rows of each part were.

    ``shares``: the parts of each task; ``sizes``: bytes that each reads.
    """

    work: Work
    shares: Sequence[Sequence[int]]
    sizes: Sequence[int]
    converter: Converter
    observed: Accumulator[dict[int, Observation]]

    def rows(self, task: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task's share."""
        for number in self.shares[task]:
            rows, reader = self.work.rows(number)
            observer = RowsObserver(reader.struct, reader.label, self.work.terms)
            yield from _converted(rows, reader.struct, observer, self.converter)
            self.observed.add({number: observer.result()})


def _converted(
    rows: Iterable[Rows], struct: Struct, observer: RowsObserver, converter: Converter
) -> Iterator[pa.RecordBatch]:
    """The accepted rows as the table's, for as long as its columns take them; all are observed."""
    from driftline.convert import Lost

    taken = True
    for some in rows:
        batch = observer.feed(some)
        if taken and batch.num_rows:
            try:
                table_rows = converter.of_arrow(batch, struct, json=False)
            except Lost:  # the plan was a guess: what was observed leads to another one
                taken = False
            else:
                yield table_rows


@dataclass(slots=True)
class ColumnFiles:
    """Files of columns as one batch. ``fitted``: the readers for a table of which so much is known, where their types hang on
    it."""

    spark: SparkSession
    readers: Sequence[ColumnReader]
    files: Sequence[str]
    fitted: Callable[[Expect], Sequence[ColumnReader]] | None = None
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))
    conflicts: tuple[Conflict, ...] = ()
    asked: tuple[Schema, Settings] | None = None
    work: Work | None = None
    begun: ColumnTasks | None = None

    def guess(self, schema: Schema, settings: Settings) -> Observation | None:
        """What the first rows of each reader say."""
        if len(self.readers) > _HEADS:
            return None
        work = self._work(schema, settings)
        heads = {}
        for number, part in enumerate(work.parts):
            if part.part == 0:
                rows, reader = work.rows(number)
                first = (some for some in [next(rows, None)] if some is not None)
                heads[number] = observed_rows(first, reader.struct, reader.label, work.terms)
        seen = work.together(heads)
        return seen if seen.tally.records and not seen.tally.malformed else None

    def suits(self, struct: Struct, settings: Settings) -> bool:
        """Whether tasks can make rows of these columns."""
        return convertible(struct)

    def tasks(self, plan: Plan, struct: Struct, settings: Settings) -> ColumnTasks:
        """Tasks that observe and convert the rows."""
        work = self.work
        assert work is not None, "to be observed, or guessed, first"
        context = self.spark.sparkContext
        shares = dealt([part.size for part in work.parts], context.defaultParallelism)
        self.begun = ColumnTasks(
            work,
            shares,
            [sum(work.parts[number].size for number in share) for share in shares],
            Converter(struct, lean(plan.route), settings),
            context.accumulator({}, ObservedSplits()),
        )
        return self.begun

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        same = self.work is not None and (schema, settings) == self.asked
        seen = self._seen_by_tasks() if same and not self.conflicts else None
        if seen is None:
            work = self._work(schema, settings)
            seen = work.together(self._observed(work))
        return seen

    def refuse(self, judge: Judge, conflicts: Sequence[Conflict]) -> None:
        self.conflicts += tuple(conflicts)

    def rows(self, plan: Plan, struct: Struct, settings: Settings) -> DataFrame:
        table_rows = frame(self.spark, self.tasks(plan, struct, settings), struct)
        assert table_rows is not None, "pandas is not installed"
        return table_rows

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        work = self.work
        assert work is not None, "to be observed first"
        count = len(work.parts)
        return self.spark.range(0, count, 1, max(1, count)).mapInArrow(
            partial(_rejected, work, everything), REJECTED
        )

    def be_careful(self) -> bool:
        return False

    def _work(self, schema: Schema, settings: Settings) -> Work:
        known = expect(schema, settings)
        readers = self.readers if self.fitted is None else self.fitted(known)
        parts = [Part(i, n, size) for i, r in enumerate(readers) for n, size in enumerate(r.sizes)]
        terms = Terms(known, settings, self.conflicts)
        self.asked, self.work, self.begun = (schema, settings), Work(readers, parts, terms), None
        return self.work

    def _observed(self, work: Work) -> Mapping[int, Observation]:
        sizes, context = [part.size for part in work.parts], self.spark.sparkContext
        if sum(sizes) <= _SMALL and str(context.master).startswith("local"):
            return {number: work.observed(number) for number in range(len(sizes))}
        shares = dealt(sizes, context.defaultParallelism)
        parts = context.parallelize(shares, len(shares)).flatMap(partial(_observed_share, work)).collect()
        return dict(parts)

    def _seen_by_tasks(self) -> Observation | None:
        """What the tasks told, if all have."""
        if self.begun is None or self.work is None:
            return None
        seen, self.begun.observed.value = (
            self.begun.observed.value,
            {},
        )  # pyspark keeps an accumulator for ever
        return self.work.together(seen) if len(seen) == len(self.work.parts) else None


def _observed_share(work: Work, share: Sequence[int]) -> list[tuple[int, Observation]]:
    return [(number, work.observed(number)) for number in share]


def _rejected(
    work: Work, everything: str | None, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            rows, reader = work.rows(number)
            for some in rows:
                yield from rejected_rows(some, reader.struct, work.terms, everything)
