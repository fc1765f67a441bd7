"""Records in a DataFrame of JSON texts: observed, converted and rejected in tasks, batch by batch."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa

from driftline.core.planning.routes import Plan, Settings
from driftline.core.schema.types import Schema, Struct
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation, merge_observations
from driftline.observe.walk import FEWER_KEYS, MANY_KEYS
from driftline.source.base import REJECTED, Source
from driftline.source.json_rows import JsonRows, LineRows, Run, reject_batches, rejected_of
from driftline.source.rejects import Reject
from driftline.source.scan import BatchScan, Observed
from driftline.write import FrameTasks, RowTasks, SetAside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HEADS = 10_000  # records that are looked at for a guess


class Texts(Protocol):
    """The texts in the rows of a frame, and their origins. It is sent to the tasks."""

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The texts of an Arrow batch, one a row, in its order; an empty one is no record."""
        ...

    def tombstones(self, batch: pa.RecordBatch) -> int:
        """The number of rows of an Arrow batch that only say that a key is gone."""
        ...

    def into(self, struct: Struct) -> Texts:
        """The texts, whose metadata go to the column that a table has for them."""
        ...

    def completed(self, rows: pa.RecordBatch, batch: pa.RecordBatch, at: Sequence[int]) -> pa.RecordBatch:
        """The rows with the metadata of the texts that they were made of, which are ``at`` these places."""
        ...


class PlainTexts:
    """Texts without metadata."""

    def tombstones(self, batch: pa.RecordBatch) -> int:
        """None: a null is a text that is missing."""
        return 0

    def into(self, struct: Struct) -> Self:
        """The texts, unchanged."""
        return self

    def completed(self, rows: pa.RecordBatch, batch: pa.RecordBatch, at: Sequence[int]) -> pa.RecordBatch:
        """The rows, unchanged."""
        return rows


@dataclass(frozen=True, kw_only=True)
class JsonFrame(Source):
    """A DataFrame whose rows are texts of JSON, one record each.

    ``frame``: the columns that ``texts`` reads, the text first.
    """

    frame: DataFrame
    texts: Texts

    def open(self, schema: Schema, settings: Settings, before: BatchScan | None = None) -> TextScan:
        """Open the frame for a table."""
        request = self.request(schema, settings)
        return TextScan(request, request.terms, self.frame, self.texts)


@dataclass(frozen=True, slots=True)
class TextScan(BatchScan):
    """A frame of texts of JSON."""

    frame: DataFrame
    texts: Texts

    def tasks(self, plan: Plan, struct: Struct, seen: Observation) -> RowTasks:
        """Tasks that convert the texts by the plan, and observe them."""
        make = JsonRows.of(plan, struct, self.terms, seen)
        return FrameTasks([(self.frame, _TextRows(self.texts.into(struct), make))])

    def _guess(self, last: Observation | None) -> Observed:
        """The observation of the table's last batch, or that of the first records."""
        return (
            self._merged(self._observed(self.frame.limit(_HEADS), FEWER_KEYS))
            if last is None
            else Observed(self, last)
        )

    def _observe(self) -> Observed:
        return self._merged(self._observed(self.frame))

    def _merged(self, parts: Sequence[Observation]) -> Observed:
        return Observed(self, merge_observations(parts))

    def _rejected(self, everything: str | None) -> DataFrame:
        return self.frame.mapInArrow(partial(_rejected, self.texts, self._observer(), everything), REJECTED)

    def _observed(self, frame: DataFrame, many: int = MANY_KEYS) -> list[Observation]:
        """Observe the texts of a frame, in a part for each task."""
        observed = partial(_observed, self.texts, self._observer(many))
        collected = frame.mapInArrow(observed, "seen binary").collect()
        return [pickle.loads(row.seen) for row in collected]  # noqa: S301  our own bytes

    def _observer(self, many: int = MANY_KEYS) -> Callable[[], JsonObserver]:
        return partial(JsonObserver, self.terms.known, self.terms.settings, self.terms.judge, many=many)


@dataclass(frozen=True, slots=True)
class _TextRows:
    """The row maker of a frame's texts."""

    texts: Texts
    make: JsonRows

    def rows(
        self, given: Iterator[pa.RecordBatch], set_aside: SetAside
    ) -> Generator[pa.RecordBatch, None, Observation]:
        """Convert the texts batch by batch; returns the observation."""
        lines, tombstones = LineRows(self.make), 0
        for batch in given:
            tombstones += self.texts.tombstones(batch)
            for rows, places in lines.rows([*self.texts.runs(batch)], set_aside):
                yield self.texts.completed(rows, batch, places)
        return lines.observed().with_tombstones(tombstones)


def _observed(
    texts: Texts, observer_of: Callable[[], JsonObserver], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    observer, tombstones = observer_of(), 0
    for batch in batches:
        tombstones += texts.tombstones(batch)
        for run in texts.runs(batch):
            observer.feed(run.lines, run.source, run.line)
    pickled = pickle.dumps(observer.result().with_tombstones(tombstones))
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
