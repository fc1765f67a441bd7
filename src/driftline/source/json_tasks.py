"""JSON lines observed and converted in one go, where what they hold is known well enough beforehand.

Each task decodes its lines as observing does. Those that hold nothing but the usual types are parsed by Arrow as whole
columns, the others one by one; all become rows of the table there. What was observed is told when a split ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.accumulators import AccumulatorParam

from driftline.convert import Converter
from driftline.convert.usual import limited
from driftline.core.routes import Settings
from driftline.core.shape import RecordShape
from driftline.core.types import Struct
from driftline.observe.json_files import Split, blocks
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation
from driftline.observe.parse import parse
from driftline.observe.walk import Expect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator

_FEW = 64  # lines that are not halved any more to find the one that Arrow's parser refuses

Share = Sequence[tuple[int, Split]]  # splits for one task, each with its number


class ObservedSplits(AccumulatorParam[dict[int, Observation]]):
    """What tasks observed, by split: a task that runs twice tells the same."""

    def zero(self, value: dict[int, Observation]) -> dict[int, Observation]:
        return {}

    def addInPlace(  # noqa: N802  pyspark's name
        self, value1: dict[int, Observation], value2: dict[int, Observation]
    ) -> dict[int, Observation]:
        return {**value1, **value2}


@dataclass(frozen=True, slots=True)
class JsonTasks:
    """Tasks that make rows of the table from JSON lines.

    ``shares``: the splits of each task; ``sizes``: bytes that each reads. ``expected``: what the plan was made for; a task that meets more makes no rows
    from then on. ``usual``: what Arrow parses the fields as. ``observed``: is given the observation of each split.
    """

    shares: Sequence[Share]
    sizes: Sequence[int]
    converter: Converter
    expected: Observation
    usual: Struct
    known: Expect
    settings: Settings
    observed: Accumulator[dict[int, Observation]]

    def rows(self, task: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task's share."""
        for number, split in self.shares[task]:
            observer = JsonObserver(self.known, self.settings, usual=self._usual)
            for lines, others in self._expected(split, observer):
                yield from self._converted(lines, others)
            self.observed.add({number: observer.result()})

    def _expected(
        self, split: Split, observer: JsonObserver
    ) -> Iterator[tuple[Sequence[bytes], Sequence[int]]]:
        """The lines of a split, some at a time, with the places of those that are not of the usual types, for as long as
        all is as expected; but all are observed."""
        line, expected, learnt = 1, True, -1
        for lines, _ in blocks(split):
            others = observer.feed(lines, split.path, line)
            line += len(lines)
            if expected and observer.learnt != learnt:
                seen, learnt = observer.result(), observer.learnt
                expected = not seen.tally.malformed and self.expected.shape.covers(seen.shape)
            if expected:
                yield lines, others

    def _usual(self, shape: RecordShape) -> RecordShape:
        return limited(shape, self.usual)

    def _converted(self, lines: Sequence[bytes], others: Sequence[int]) -> Iterator[pa.RecordBatch]:
        usual = list(lines)
        for place in others:
            usual[place] = b""
        yield from self._whole([line for line in usual if line.strip()])
        yield from self._single([line for place in others if (line := lines[place]).strip()])

    def _whole(self, lines: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Lines that Arrow parses; one by one where it does not, for a key that stands twice, say."""
        import pyarrow as pa

        if not lines:
            return
        try:
            batches = _parsed(b"\n".join(lines), self.usual)
        except pa.ArrowInvalid:
            if len(lines) <= _FEW:
                yield from self._single(lines)
                return
            half = len(lines) // 2
            yield from self._whole(lines[:half])
            yield from self._whole(lines[half:])
            return
        for batch in batches:
            yield self.converter.of_arrow(batch, self.usual, json=True)

    def _single(self, lines: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        if lines:
            yield self.converter.of_json([parse(line) for line in lines])


def _parsed(text: bytes, usual: Struct) -> list[pa.RecordBatch]:
    import pyarrow as pa
    from pyarrow import json

    from driftline.convert import arrow_schema

    table = json.read_json(
        pa.BufferReader(text),
        json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        json.ParseOptions(explicit_schema=arrow_schema(usual), unexpected_field_behavior="ignore"),
    )
    return table.to_batches()  # type: ignore[no-any-return]
