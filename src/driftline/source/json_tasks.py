"""JSON files observed and converted in one go, split by split. What was observed is told when a split ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.observe.json_files import Split, blocks
from driftline.observe.observation import Observation
from driftline.source.json_rows import JsonRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator

Share = Sequence[tuple[int, Split]]  # splits for one task, each with its number


@dataclass(frozen=True, slots=True)
class JsonTasks:
    """Tasks that make rows of the table from files of JSON.

    ``shares``: the splits of each task; ``sizes``: bytes that each reads. ``expected``: what the plan was made for; a
    task that meets more makes no rows from then on. ``observed``: is given the observation of each split.
    """

    shares: Sequence[Share]
    sizes: Sequence[int]
    make: JsonRows
    expected: Observation
    observed: Accumulator[dict[int, Observation]]

    def rows(self, task: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task's share."""
        for number, split in self.shares[task]:
            observer = self.make.observer()
            line, as_expected, learnt = 1, True, -1
            for lines in blocks(split):
                looked = observer.feed(lines, split.path, line)
                line += len(lines)
                if as_expected and observer.learnt != learnt:
                    as_expected, learnt = self._covers(observer.result()), observer.learnt
                if as_expected:
                    yield from (rows for rows, _ in self.make.of_lines(lines, looked))
            self.observed.add({number: observer.result()})

    def _covers(self, seen: Observation) -> bool:
        expected = self.expected
        return expected.shape.covers(seen.shape) and (
            not seen.tally.malformed or bool(expected.tally.malformed)
        )
