"""Records in a DataFrame of JSON texts: observed, converted and rejected in tasks, batch by batch."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.routes import Conflict, Plan, Settings
from driftline.core.schema.types import Schema, Struct
from driftline.observe.expect import ExpectedField, expect
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation, merge_observations
from driftline.observe.walk import FEWER_KEYS, MANY_KEYS
from driftline.runtime.spark_conf import FILES
from driftline.source.base import REJECTED
from driftline.source.json_rows import JsonRows, LineRows, Run, reject_batches, rejected_of
from driftline.source.likely import likely, remember
from driftline.source.rejects import Reject
from driftline.source.set_aside import Rejects
from driftline.write import FrameTasks, RowTasks, SetAside, observed_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HEADS = 10_000  # records that are looked at for a guess

_Seen = tuple[Observation, int]  # of a task: what its texts are, and how many rows have none


class Texts(Protocol):
    """The texts in the rows of a frame, and their origins. It is sent to the tasks."""

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The texts of an Arrow batch, one a row, in its order; an empty one is no record."""
        ...

    def completed(self, rows: pa.RecordBatch, batch: pa.RecordBatch, at: Sequence[int]) -> pa.RecordBatch:
        """The rows with the metadata of the texts that they were made of, which are ``at`` these places."""
        ...


class PlainTexts:
    """Texts without metadata."""

    def completed(self, rows: pa.RecordBatch, batch: pa.RecordBatch, at: Sequence[int]) -> pa.RecordBatch:
        """The rows, unchanged."""
        return rows


@dataclass(slots=True)
class JsonFrame:
    """A DataFrame whose rows are texts of JSON, one record each.

    ``frame``: the columns that ``texts`` reads, the text first; ``nulls``: the number of null texts, once
    observed. ``asked``: the schema and settings of the last observation; ``seen``: the observation that a
    plan is made for.
    """

    frame: DataFrame
    texts: Texts
    judge: AdmissionCheck | None = None
    known: ExpectedField = field(default_factory=ExpectedField)
    settings: Settings = field(default_factory=Settings)
    asked: tuple[Schema, Settings] | None = None
    seen: Observation = field(default_factory=Observation)
    nulls: int = 0
    begun: FrameTasks | None = None
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))

    def guess(self, schema: Schema, settings: Settings) -> Observation | None:
        """The observation of the table's last batch, or that of the first records; None if there are none."""
        self._ask(schema, settings)
        seen = likely(schema, settings)
        if seen is None:
            seen = merge_observations(
                part for part, _ in self._observed(self.frame.limit(_HEADS), FEWER_KEYS)
            )
        self.seen = seen
        return seen if seen.tally.records else None

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        """Observe all texts; observations of tasks for the same schema and settings are reused."""
        same = self.asked == (schema, settings) and self.judge is None
        parts = observed_by(self.begun) if same else None
        if parts is None:
            self._ask(schema, settings)
            parts = self._observed(self.frame)
        self.nulls = sum(nulls for _, nulls in parts)
        whole = merge_observations(seen for seen, _ in parts)
        self.seen = whole
        remember(schema, settings, whole)
        return whole

    def tasks(self, plan: Plan, struct: Struct, settings: Settings) -> RowTasks:
        """Tasks that convert the texts by the plan, and observe them."""
        make = JsonRows.of(plan, struct, self.known, self.seen, settings, self.judge)
        self.begun = FrameTasks([(self.frame, _TextRows(self.texts, make))])
        return self.begun

    def set_aside(self) -> Rejects | None:
        """The texts that the tasks set aside; None if they have not run."""
        return None if self.begun is None else Rejects.of(self.begun)

    def rejected(self, everything: str | None = None) -> DataFrame:
        """Read the frame once more for the rejected texts."""
        return self.frame.mapInArrow(partial(_rejected, self.texts, self._observer(), everything), REJECTED)

    def refuse(self, judge: AdmissionCheck, conflicts: Sequence[Conflict]) -> None:
        """Reject records by the ``judge`` alone, without the conflicts."""
        self.judge = judge

    def _ask(self, schema: Schema, settings: Settings) -> None:
        self.known, self.settings = expect(schema, settings), settings
        self.asked, self.begun = (schema, settings), None

    def _observed(self, frame: DataFrame, many: int = MANY_KEYS) -> list[_Seen]:
        """Observe the texts of a frame, in a part for each task."""
        observed = partial(_observed, self.texts, self._observer(many))
        collected = frame.mapInArrow(observed, "seen binary").collect()
        return [pickle.loads(row.seen) for row in collected]  # noqa: S301  our own bytes

    def _observer(self, many: int = MANY_KEYS) -> Callable[[], JsonObserver]:
        return partial(JsonObserver, self.known, self.settings, self.judge, many=many)


@dataclass(frozen=True, slots=True)
class _TextRows:
    """The row maker of a frame's texts."""

    texts: Texts
    make: JsonRows

    def rows(
        self, given: Iterator[pa.RecordBatch], set_aside: SetAside
    ) -> Generator[pa.RecordBatch, None, _Seen]:
        """Convert the texts batch by batch; returns the observation, and the number of null texts."""
        lines, nulls = LineRows(self.make), 0
        for batch in given:
            nulls += batch.column(0).null_count
            for rows, places in lines.rows([*self.texts.runs(batch)], set_aside):
                yield self.texts.completed(rows, batch, places)
        return lines.observed(), nulls


def _observed(
    texts: Texts, observer_of: Callable[[], JsonObserver], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    observer, nulls = observer_of(), 0
    for batch in batches:
        nulls += batch.column(0).null_count
        for run in texts.runs(batch):
            observer.feed(run.lines, run.source, run.line)
    pickled = pickle.dumps((observer.result(), nulls))
    yield pa.RecordBatch.from_arrays([pa.array([pickled], pa.binary())], ["seen"])


def _rejected(
    texts: Texts,
    observer_of: Callable[[], JsonObserver],
    everything: str | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    observer = observer_of()

    def rejects() -> Iterator[Reject]:
        """The rejected texts of all batches."""
        for batch in batches:
            for run in texts.runs(batch):
                judged = observer.feed(run.lines, run.source, run.line)
                for place, why in rejected_of(run.lines, judged, everything):
                    yield run.reject(place, why)

    yield from reject_batches(rejects())
