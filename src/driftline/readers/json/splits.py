"""Splits of files of JSON, read in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import Place
from driftline.core.values import UnlistedDocument
from driftline.observe.json_files import ObservedSplits, Share, Split, blocks, together
from driftline.observe.json_lines import JsonObserver, Why
from driftline.observe.listed import ListedRecords
from driftline.observe.observation import Observation
from driftline.readers.excel import sheet_texts
from driftline.readers.json.rows import AcceptedLines, JsonRows, LineTask, Run
from driftline.readers.origins import Origins
from driftline.readers.rejects import Origin, Reject
from driftline.readers.set_aside import PART
from driftline.readers.shares import gathered
from driftline.readers.task import TaskReader
from driftline.readers.terms import AdmissionTerms

_BEHIND_ALL = Place("\U0010ffff")


@dataclass(frozen=True, slots=True)
class SplitReader(TaskReader[int, "Sequence[Run]", AcceptedLines, "list[ObservedSplits]"]):
    """Reads splits of files of JSON.

    ``shares``: the splits of each task; ``numbered``: they have the numbers of their first lines.
    """

    shares: Sequence[Share]
    terms: AdmissionTerms
    make: JsonRows | None = None
    numbered: bool = False

    @property
    def converts(self) -> bool:
        """True if there is a plan."""
        return self.make is not None

    def open(self, share: int) -> OpenSplits:
        """Open the splits of one task."""
        return OpenSplits(self, self.shares[share])


class OpenSplits:
    """The splits of one task. They are observed in parts, in which lines count from 1."""

    def __init__(self, reader: SplitReader, share: Share) -> None:
        self._reader, self._share = reader, share
        self._lines = LineTask.of(reader.terms, reader.make)
        records = reader.terms.settings.records
        self._listed = ListedRecords(records) if records else None
        self._parts: list[ObservedSplits] = []
        self._part = 0  # the number of its first split
        self._notes: list[str] = []

    def groups(self) -> Iterator[Sequence[Run]]:
        """Read the lines; where a part ends, keep its observation."""
        for splits in together(self._share):
            # Of splits that are grouped, each begins with the first line of its file.
            self._part = splits[0][0]
            counts: dict[int, int] = {}
            yield from gathered(self._runs(splits, counts), weight)
            observation = self._lines.observed()
            if self._listed is not None:
                observation = observation.with_excluded(self._listed.taken())
            if not self._parts and self._reader.make is None:
                # The first part itself tells where that was seen: its lines are yet to be numbered.
                terms = self._reader.terms
                before = _behind_all(observation)
                observer = JsonObserver(terms.expected, terms.settings, terms.judge, before=before)
                self._lines = LineTask(observer, None, terms)
            self._parts.append(ObservedSplits(observation, counts, self._notes))
            self._notes = []

    def observe(
        self, group: Sequence[Run], everything: str | None
    ) -> tuple[AcceptedLines, pa.RecordBatch | None]:
        """Observe some lines; the rejects have the number of the part that their lines count in."""
        accepted, rejects = self._lines.observe(group, everything)
        if rejects is None or self._reader.numbered:
            return accepted, rejects
        return accepted, rejects.append_column(PART, pa.array([self._part] * len(rejects), pa.int32()))

    def convert(self, accepted: AcceptedLines) -> Iterator[pa.RecordBatch]:
        """Make rows of the lines."""
        return (rows for rows, _ in self._lines.convert(accepted))

    def observed(self) -> list[ObservedSplits]:
        """The observations of all parts."""
        return self._parts

    def _runs(self, splits: Share, counts: dict[int, int]) -> Iterator[Run]:
        """The lines of the splits, which are counted by the split's number."""
        for number, split in splits:
            first = line = split.line if self._reader.numbered else 1
            for lines in self._blocks(split):
                reject = partial(_reject, split.path, line, lines)
                # The lines before the split are known where rows tell them.
                in_file = line if self._reader.numbered else line + split.line - 1
                yield Run(lines, split.path, line, reject, None, Origins(Origin(split.path), in_file))
                line += len(lines)
            counts[number] = line - first

    def _blocks(self, split: Split) -> Iterator[list[bytes]]:
        settings = self._reader.terms.settings
        if split.sheet:
            return sheet_texts(split, settings.csv, settings.max_record_bytes, self._notes)
        return blocks(split, settings.max_record_bytes, self._listed)


def _behind_all(observation: Observation) -> RecordShape:
    """The shape of what was seen, at places behind all others, without maps.

    One part alone does not show that the keys of an object are data.
    """
    fields = observation.placed(lambda _: _BEHIND_ALL).shape.fields
    return RecordShape({key: field for key, field in fields.items() if not field.has_maps})


def weight(run: Run) -> tuple[int, int]:
    """The number of lines in a run, and of bytes."""
    return len(run.lines), sum(map(len, run.lines))


def _reject(path: str, first: int, lines: Sequence[bytes], position: int, why: Why) -> Reject:
    line = lines[position]
    raw = line.document if isinstance(line, UnlistedDocument) else line
    return Reject(Origin(path, first + position), raw, why)
