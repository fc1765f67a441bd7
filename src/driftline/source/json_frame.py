"""Records that stand in a DataFrame as texts of JSON: observed, converted and rejected in tasks, batch by batch."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from driftline.core.planning.admission import Judge
from driftline.core.planning.routes import Conflict, Plan, Settings
from driftline.core.schema.types import Schema, Struct
from driftline.observe.expect import Expect, expect
from driftline.observe.json_lines import JsonObserver, Why
from driftline.observe.observation import Observation, merge_observations
from driftline.runtime.spark_conf import FILES
from driftline.source.base import REJECTED
from driftline.source.json_rows import JsonRows, reject_batches, rejected_of
from driftline.source.rejects import Reject
from driftline.write.frame import mapped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class Run(NamedTuple):
    """Texts that follow one another where they come from: in ``source`` from ``line`` on. ``first``: the row of the Arrow
    batch that has the first of them; ``reject``: makes a reject of one of them by its place, and why."""

    lines: Sequence[bytes]
    source: str
    line: int
    first: int
    reject: Callable[[int, Why], Reject]


class Texts(Protocol):
    """How the texts stand in the rows of a frame; it is sent to the tasks."""

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The texts of an Arrow batch, in its order; an empty one is no record."""
        ...

    def completed(self, rows: pa.RecordBatch, batch: pa.RecordBatch, at: Sequence[int]) -> pa.RecordBatch:
        """Rows of the table with what goes along from those rows of the batch that they were made of."""
        ...


class PlainTexts:
    """Texts beside which nothing goes along."""

    def completed(self, rows: pa.RecordBatch, batch: pa.RecordBatch, at: Sequence[int]) -> pa.RecordBatch:
        return rows


@dataclass(slots=True)
class JsonFrame:
    """A DataFrame whose rows are texts of JSON, one record each. ``frame``: the columns that ``texts`` reads, the text
    first; ``nulls``: how many rows have none, once they were observed."""

    frame: DataFrame
    texts: Texts
    judge: Judge | None = None
    known: Expect = field(default_factory=Expect)
    settings: Settings = field(default_factory=Settings)
    nulls: int = 0
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        self.known, self.settings = expect(schema, settings), settings
        observed = partial(_observed, self.texts, self._observer())
        found = self.frame.mapInArrow(observed, "seen binary, nulls bigint").collect()
        self.nulls = sum(row.nulls for row in found)
        return merge_observations(pickle.loads(row.seen) for row in found)  # noqa: S301  our own bytes

    def rows(self, plan: Plan, struct: Struct, settings: Settings) -> DataFrame:
        make = JsonRows.of(plan, struct, self.known, settings, self.judge)
        return mapped(self.frame, partial(_rows, self.texts, make), struct)

    def rejected(self, everything: str | None = None) -> DataFrame:
        return self.frame.mapInArrow(partial(_rejected, self.texts, self._observer(), everything), REJECTED)

    def refuse(self, judge: Judge, conflicts: Sequence[Conflict]) -> None:
        self.judge = judge

    def _observer(self) -> Callable[[], JsonObserver]:
        return partial(JsonObserver, self.known, self.settings, self.judge)


def _observed(
    texts: Texts, observer_of: Callable[[], JsonObserver], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    observer, nulls = observer_of(), 0
    for batch in batches:
        nulls += batch.column(0).null_count
        for run in texts.runs(batch):
            observer.feed(run.lines, run.source, run.line)
    seen = pa.array([pickle.dumps(observer.result())], pa.binary())
    yield pa.RecordBatch.from_arrays([seen, pa.array([nulls])], ["seen", "nulls"])


def _rows(texts: Texts, make: JsonRows, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    observer = make.observer()
    for batch in batches:
        for run in texts.runs(batch):
            looked = observer.feed(run.lines, run.source, run.line)
            for rows, places in make.of_lines(run.lines, looked):
                yield texts.completed(rows, batch, [run.first + place for place in places])


def _rejected(
    texts: Texts,
    observer_of: Callable[[], JsonObserver],
    everything: str | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    observer = observer_of()

    def rejects() -> Iterator[Reject]:
        for batch in batches:
            for run in texts.runs(batch):
                looked = observer.feed(run.lines, run.source, run.line)
                for place, why in rejected_of(run.lines, looked, everything):
                    yield run.reject(place, why)

    yield from reject_batches(rejects())
