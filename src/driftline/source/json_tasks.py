"""JSON files observed and converted in one go, split by split."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from driftline.observe.json_files import Split, blocks, gathered
from driftline.observe.json_lines import Why
from driftline.observe.observation import Observation
from driftline.source.json_rows import JsonRows, LineRows, Run
from driftline.source.rejects import Origin, Reject
from driftline.source.set_aside import PART
from driftline.write import SetAside

# Lines that are converted at once, or bytes of them: each column of a batch
# costs some time, however few rows there are.
_MANY, _LARGE = 4_000, 32 * 2**20

Share = Sequence[tuple[int, Split]]  # splits for one task, each with its number


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Makes rows of the table from files of JSON.

    ``shares``: the splits of each task.
    """

    shares: Sequence[Share]
    make: JsonRows

    def rows(
        self, given: int, set_aside: SetAside
    ) -> Generator[pa.RecordBatch, None, dict[int, Observation]]:
        """The rows of one task's share; returns what was observed by the number
        of the split. Lines count from 1 in each.
        """
        seen: dict[int, Observation] = {}
        lines_of = LineRows(self.make)
        for number, split in self.shares[given]:
            of_part = partial(_of_part, set_aside, number)
            line = 1
            for lines in gathered(blocks(split, self.make.settings.max_record_bytes), _LARGE, _MANY):
                run = Run(lines, split.path, line, 0, partial(_reject, split.path, line, lines))
                for rows, _ in lines_of.rows(run, of_part):
                    yield rows
                line += len(lines)
            seen[number] = lines_of.observed()
        return seen


def _reject(path: str, first: int, lines: Sequence[bytes], at: int, why: Why) -> Reject:
    return Reject(Origin(path, first + at), lines[at], why)


def _of_part(set_aside: SetAside, number: int, rejects: pa.RecordBatch) -> None:
    parts = pa.array([number] * len(rejects), pa.int32())
    set_aside(rejects.append_column(PART, parts))
