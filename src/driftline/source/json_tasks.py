"""JSON files observed and converted in one go, split by split."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from driftline.observe.json_files import ObservedSplits, Share, blocks, together
from driftline.observe.json_lines import Why
from driftline.source.json_rows import JsonRows, LineRows, Run
from driftline.source.rejects import Origin, Reject
from driftline.source.set_aside import PART
from driftline.source.shares import gathered
from driftline.write import SetAside


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Makes rows of the table from files of JSON.

    ``shares``: the splits of each task.
    """

    shares: Sequence[Share]
    make: JsonRows

    def rows(self, given: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, list[ObservedSplits]]:
        """The rows of one task's share; returns what was observed, in parts whose lines count from 1."""
        parts: list[ObservedSplits] = []
        lines_of, longest = LineRows(self.make), self.make.settings.max_record_bytes
        for splits in together(self.shares[given]):
            counts: dict[int, int] = {}
            # Of splits that stand together, each begins with the first line of its file.
            of_part = partial(_of_part, set_aside, splits[0][0])
            for runs in gathered(_runs(splits, longest, counts), weight):
                for rows, _ in lines_of.rows(runs, of_part):
                    yield rows
            parts.append(ObservedSplits(lines_of.observed(), counts))
        return parts


def weight(run: Run) -> tuple[int, int]:
    """How many lines a run has, and bytes."""
    return len(run.lines), sum(map(len, run.lines))


def _runs(splits: Share, longest: int, counts: dict[int, int]) -> Iterator[Run]:
    """The lines of the splits, which are counted by the split's number."""
    for number, split in splits:
        line = 1
        for lines in blocks(split, longest):
            yield Run(lines, split.path, line, partial(_reject, split.path, line, lines))
            line += len(lines)
        counts[number] = line - 1


def _reject(path: str, first: int, lines: Sequence[bytes], at: int, why: Why) -> Reject:
    return Reject(Origin(path, first + at), lines[at], why)


def _of_part(set_aside: SetAside, number: int, rejects: pa.RecordBatch) -> None:
    parts = pa.array([number] * len(rejects), pa.int32())
    set_aside(rejects.append_column(PART, parts))
