"""DataFrames of JSON texts, observed, converted and rejected in tasks, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import pyarrow as pa

from driftline.core.planning.plan import Plan
from driftline.core.schema.types import Schema, Struct
from driftline.core.settings.table import TableSettings
from driftline.observe.json_lines import Why
from driftline.observe.observation import Observation
from driftline.observe.walk import FEWER_KEYS, MANY_KEYS
from driftline.readers.json.rows import AcceptedLines, JsonRows, LineTask, Run
from driftline.readers.rejects import Origin, Origins, Reject
from driftline.readers.task import AdmissionTerms, TaskReader
from driftline.runtime.spark_conf import CASE, FILES
from driftline.sources.scan import BatchScan, Observed, Source
from driftline.sql.quoting import name
from driftline.tasks.run import numbered
from driftline.write import FrameTasks, observed

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

    Attributes:
        frame: the columns that ``texts`` reads, the text first.
    """

    frame: DataFrame
    texts: Texts
    as_text: bool = True

    def open(self, schema: Schema, settings: TableSettings, before: BatchScan | None = None) -> TextScan:
        """Open the frame for a table."""
        request = self.request(schema, settings)
        return TextScan(request, request.terms, self.frame, self.texts)


@dataclass(frozen=True, slots=True)
class TextScan(BatchScan):
    """A frame of texts of JSON."""

    frame: DataFrame
    texts: Texts

    def _conversion(self, plan: Plan, struct: Struct, observation: Observation) -> JsonRows:
        return JsonRows.of(plan, struct, self.terms, observation)

    def _tasks(self, conversion: JsonRows | None) -> FrameTasks:
        texts = self.texts if conversion is None else self.texts.into(conversion.converter.struct)
        return FrameTasks([(self.frame, TextReader(texts, self.terms, conversion))])

    def _guess(self, last: Observation | None) -> Observed:
        """The observation of the table's last batch, or that of the first records."""
        if last is not None:
            return Observed(self, last)
        heads = FrameTasks([(self.frame.limit(_HEADS), TextReader(self.texts, self.terms, many=FEWER_KEYS))])
        return self._merged([result.observed for result in observed(heads)], converted=False)


class TextGroup(NamedTuple):
    """The texts of an Arrow batch."""

    batch: pa.RecordBatch
    runs: Sequence[Run]


AcceptedTexts = tuple["pa.RecordBatch", AcceptedLines]


@dataclass(frozen=True, slots=True)
class TextReader(TaskReader["Iterator[pa.RecordBatch]", TextGroup, AcceptedTexts, Observation]):
    """Reads texts in the rows of a frame.

    Attributes:
        many: see `JsonObserver`.
    """

    texts: Texts
    terms: AdmissionTerms
    make: JsonRows | None = None
    many: int = MANY_KEYS

    @property
    def converts(self) -> bool:
        """True if there is a plan."""
        return self.make is not None

    def open(self, batches: Iterator[pa.RecordBatch]) -> OpenTexts:
        """Open the batches of one task."""
        return OpenTexts(self, batches)


class OpenTexts:
    """The texts of one task."""

    def __init__(self, reader: TextReader, batches: Iterable[pa.RecordBatch]) -> None:
        self._texts, self._batches, self._tombstones = reader.texts, batches, 0
        self._lines = LineTask.of(reader.terms, reader.make, reader.many)

    def groups(self) -> Iterator[TextGroup]:
        """Read the texts, batch by batch."""
        for batch in self._batches:
            self._tombstones += self._texts.tombstones(batch)
            yield TextGroup(batch, [*self._texts.runs(batch)])

    def observe(
        self, group: TextGroup, everything: str | None
    ) -> tuple[AcceptedTexts, pa.RecordBatch | None]:
        """Observe the texts of a batch."""
        accepted, rejects = self._lines.observe(group.runs, everything)
        return (group.batch, accepted), rejects

    def convert(self, accepted: AcceptedTexts) -> Iterator[pa.RecordBatch]:
        """Make rows of the texts, with their metadata."""
        batch, lines = accepted
        return (self._texts.completed(rows, batch, places) for rows, places in self._lines.convert(lines))

    def observed(self) -> Observation:
        """The observation of all texts."""
        return self._lines.observed().with_tombstones(self._tombstones)


def json_column(frame: DataFrame, column: str) -> JsonFrame:
    """The records of the frame's ``column``."""
    # The frame's own plan runs under these settings too: it keeps its way with case.
    conf = {**FILES, CASE: str(frame.sparkSession.conf.get(CASE))}
    return JsonFrame(frame=numbered(frame.select(name(column))), texts=_TextColumn(column), conf=conf)


@dataclass(slots=True)
class _TextColumn(PlainTexts):
    """A column of texts.

    Attributes:
        line: the number, from 1, of the next text in its partition.
    """

    column: str
    line: int = field(default=1)

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The texts of a batch as one run; null and blank ones are no records."""
        lines = [b"" if text is None else text.encode() for text in batch.column(0).to_pylist()]
        origin = Origin(self.column)
        reject = partial(_reject, origin, lines)
        yield Run(lines, self.column, self.line, reject, None, Origins(origin))
        self.line += len(lines)


def _reject(origin: Origin, lines: Sequence[bytes], row: int, why: Why) -> Reject:
    return Reject(origin, lines[row], why)
