"""Files of JSON: lines, or documents.

Tasks observe them, convert them and write the table's rows, in one pass if the plan is known beforehand, or
likely.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from driftline.core.planning.routes import Plan, Settings
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import Schema, Struct
from driftline.core.values.parse import NOT_UTF8
from driftline.observe.json_files import (
    ObservedSplits,
    Share,
    Split,
    blocks,
    observe_splits,
    splits_of,
    together,
)
from driftline.observe.json_lines import JsonObserver, Why
from driftline.observe.observation import Observation, copied, merge_observations
from driftline.observe.walk import FEWER_KEYS
from driftline.runtime.stores import at_once, mapped
from driftline.source.base import REJECTED, Source
from driftline.source.hive import PathTexts, json_members
from driftline.source.json_rows import JsonRows, LineRows, Run, reject_batches, rejected_of
from driftline.source.rejects import Origin, Reject
from driftline.source.scan import AdmissionTerms, BatchScan, Observed, ScanRequest
from driftline.source.set_aside import PART
from driftline.source.shares import dealt, gathered
from driftline.write import PartTasks, RowTasks, SetAside, is_small

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SplitRows:
    """The row maker of files of JSON.

    ``shares``: the splits of each task.
    """

    shares: Sequence[Share]
    make: JsonRows

    def rows(self, given: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, list[ObservedSplits]]:
        """The rows of one task's share; returns its observation, in parts whose lines count from 1."""
        parts: list[ObservedSplits] = []
        lines_of, longest = LineRows(self.make), self.make.settings.max_record_bytes
        for splits in together(self.shares[given]):
            counts: dict[int, int] = {}
            # Of splits that are grouped, each begins with the first line of its file.
            of_part = partial(_of_part, set_aside, splits[0][0])
            for runs in gathered(_runs(splits, longest, counts), weight):
                for rows, _ in lines_of.rows(runs, of_part):
                    yield rows
            parts.append(ObservedSplits(lines_of.observed(), counts))
        return parts


def weight(run: Run) -> tuple[int, int]:
    """The number of lines in a run, and of bytes."""
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


_SMALL = 4 * 2**20  # bytes of which a split is at least
# Bytes of the first lines that a guess is made of, where the order of the
# columns is decided; and of those at so many places behind them.
_FIRST, _HEAD, _HEADS = 2**22, 2**17, 32
_TEXT = 8  # bytes of text in one of a packed file, about


@dataclass(frozen=True, kw_only=True)
class JsonFiles(Source):
    """Files of JSON lines, or documents, as one batch. ``texts``: the texts in the paths of the files."""

    spark: SparkSession
    texts: PathTexts = field(default_factory=dict)

    def open(self, schema: Schema, settings: Settings, before: BatchScan | None = None) -> JsonScan:
        """Cut the files into splits, unless they were cut so ``before``."""
        request = self.request(schema, settings)
        if isinstance(before, JsonScan) and before.is_cut_for(request):
            splits = before.splits
        else:
            splits = self._splits(settings)
        return JsonScan(request, request.terms, self.spark, splits)

    def _splits(self, settings: Settings) -> Sequence[Split]:
        """At least two splits a core, where the files can be cut so."""
        splits = [split for of_file in mapped(splits_of, self.files) for split in of_file]
        share = sum(split.length for split in splits) // (2 * self.spark.sparkContext.defaultParallelism)
        members = json_members(self.texts) if settings.hive else {}
        return [
            replace(part, beside=members.get(part.path, ()))
            for split in splits
            for part in split.cut(max(share, _SMALL))
        ]


@dataclass(frozen=True, slots=True)
class JsonScan(BatchScan):
    """Splits of files of JSON; once observed, they have the numbers of their first lines.

    ``first``: the shape of the first lines, if they were observed.
    """

    spark: SparkSession
    splits: Sequence[Split]
    first: RecordShape = field(default_factory=RecordShape)

    def is_cut_for(self, request: ScanRequest) -> bool:
        """True if another request has the same splits."""
        mine = self.request
        return (mine.settings.hive, mine.versions) == (request.settings.hive, request.versions)

    def tasks(self, plan: Plan, struct: Struct, seen: Observation) -> RowTasks:
        """Tasks that convert the lines by the plan, and observe them."""
        make = JsonRows.of(plan, struct, self.terms, seen).beginning_with(self.first)
        last = set({split.path: i for i, split in enumerate(self.splits)}.values())
        shares = self._shares()
        sizes = [sum(split.length for _, split in share) for share in shares]
        shares = [[(i, split.to_end() if i in last else split) for i, split in share] for share in shares]
        return PartTasks(self.spark, sizes, SplitRows(shares, make))

    def _guess(self, last: Observation | None) -> Observed | None:
        """The observation of the table's last batch, or that of the first lines of large files.

        Returns None for small files, and for documents: such files are observed first.
        """
        if last is not None and self._size:
            return Observed(self, last)
        if is_small(self.spark.sparkContext, self._size) or any(split.document for split in self.splits):
            return None
        return self._first_lines()

    def _observe(self) -> Observed:
        parts = self._observed()
        first = parts[0].seen.shape if parts else RecordShape()
        return self._numbered(parts, first)

    def _merged(self, parts: Sequence[Sequence[ObservedSplits]]) -> Observed:
        return self._numbered([part for task in parts for part in task], self.first)

    def _lines(self) -> Sequence[int]:
        return [split.line - 1 for split in self.splits]

    def _rejected(self, everything: str | None) -> DataFrame:
        terms = self.terms
        observer = partial(JsonObserver, terms.known, terms.settings, terms.judge)
        shares = _shared(self.splits, self.spark.sparkContext.defaultParallelism)
        longest = terms.settings.max_record_bytes
        numbers = self.spark.range(0, len(shares), 1, len(shares))
        return numbers.mapInArrow(partial(_rejected, shares, observer, longest, everything), REJECTED)

    def _notes(self, seen: Observation) -> Sequence[str]:
        """Files with text that is not UTF-8."""
        not_utf8 = [bad.place.source for bad in seen.tally.reasons if bad.reason.startswith(NOT_UTF8)]
        return [
            f"JSON is read as UTF-8, and not all of {file} is that: "
            "from Windows' encoding, `iconv -f cp1252 -t utf-8` makes it"
            for file in dict.fromkeys(not_utf8)
        ]

    @property
    def _size(self) -> int:
        return sum(split.length for split in self.splits)

    def _shares(self) -> list[Share]:
        tasks = (
            1 if is_small(self.spark.sparkContext, self._size) else self.spark.sparkContext.defaultParallelism
        )
        return _shared(self.splits, tasks)

    def _first_lines(self) -> Observed:
        """Observe a few lines of some splits, in this process."""
        terms, first = self.terms, RecordShape()
        beginning, behind = _heads(self.splits)
        observer = JsonObserver(terms.known, terms.settings, terms.judge, many=FEWER_KEYS)
        for heads in (beginning, behind):
            read = at_once(lambda head: list(blocks(head, terms.settings.max_record_bytes)), heads)
            for head, texts in zip(heads, read, strict=True):
                # Which line of its file a split begins with is not known yet, but
                # none is before its first byte's number.
                line = 1 + head.start
                for lines in texts:
                    observer.feed(lines, head.path, line)
                    line += len(lines)
            if heads is beginning:
                first = copied(observer.result().shape)
        return Observed(replace(self, first=first), observer.result())

    def _observed(self) -> list[ObservedSplits]:
        """Observe all splits, in parts; the part with the first split is first."""
        observe, sc = partial(_observe_share, self.terms), self.spark.sparkContext
        if is_small(sc, self._size):
            return observe(list(enumerate(self.splits)))
        # One task a core, because starting a Python task costs as much as ten megabytes.
        shares = _shared(self.splits, sc.defaultParallelism)
        parts = sc.parallelize(shares, len(shares)).map(observe).collect()
        return sorted(chain.from_iterable(parts), key=lambda part: part.first)

    def _numbered(self, parts: Sequence[ObservedSplits], first: RecordShape) -> Observed:
        """One observation of all parts, in each of which lines count from 1."""
        counts = {number: count for part in parts for number, count in part.lines.items()}
        splits, line = [], 1
        for number, split in enumerate(self.splits):
            line = line if split.start else 1
            splits.append(split.at_line(line))
            line += counts[number]
        seen = merge_observations(part.seen.shifted(splits[part.first].line - 1) for part in parts)
        return Observed(replace(self, splits=splits, first=first), seen)


def _heads(splits: Sequence[Split]) -> tuple[list[Split], list[Split]]:
    """The first lines of the splits whose line numbers are known, and those at even distances behind them."""
    first = list(_first(splits, _FIRST))
    rest = splits[len(first) :]
    step = max(1, len(rest) // _HEADS)
    behind = [head for at in range(0, len(rest), step) for head in _first(rest[at : at + step], _HEAD)]
    return first, behind


def _first(splits: Sequence[Split], size: int) -> Iterator[Split]:
    """The first lines of the splits, of so many bytes: of the first split, and of those behind it that begin
    their files.
    """
    for number, split in enumerate(splits):
        if size <= 0 or (number and split.start):
            return
        yield split.head(size)
        size -= split.length * (_TEXT if split.packed else 1)


def _shared(splits: Sequence[Split], tasks: int) -> list[Share]:
    """The splits, with their places, dealt out to so many tasks."""
    shares = dealt([split.length for split in splits], tasks)
    return [[(place, splits[place]) for place in share] for share in shares]


def _observe_share(terms: AdmissionTerms, share: Share) -> list[ObservedSplits]:
    return list(observe_splits(terms.known, terms.settings, terms.judge, share))


def _rejected(
    shares: Sequence[Share],
    observer: Callable[[], JsonObserver],
    longest: int,
    everything: str | None,
    numbers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In a task: the rejected lines of its shares."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for _, split in shares[number]:
                yield from reject_batches(_rejected_of(split, observer(), longest, everything))


def _rejected_of(
    split: Split, observer: JsonObserver, longest: int, everything: str | None
) -> Iterator[Reject]:
    line = split.line
    for lines in blocks(split, longest):
        judged = observer.feed(lines, split.path, line)
        for place, why in rejected_of(lines, judged, everything):
            yield Reject(Origin(split.path, line + place), lines[place], why)
        line += len(lines)
