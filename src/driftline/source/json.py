"""Files of JSON: lines, or documents.

Observed in Python tasks, read by Spark's own JSON reader. Much plain text goes in one go: observed, converted and written
in the tasks, by a plan that its first lines gave. Where neither is enough (malformed lines, documents, numbers whose text matters) the
lines come through Python once more, checked and tagged: the careful road.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from driftline.convert import Converter
from driftline.convert.types import convertible
from driftline.convert.usual import usual_struct
from driftline.core.exclude import excluded_paths
from driftline.core.judge import Judge
from driftline.core.routes import Conflict, Plan, Settings, lean
from driftline.core.types import Schema, Struct, leaves
from driftline.engine import FILES, literally
from driftline.observe.json_files import Split, observe_split, read_split, splits_of
from driftline.observe.observation import Observation, merge_observations
from driftline.observe.walk import Expect, expect
from driftline.route import json_source, select
from driftline.route.source import tags_needed
from driftline.source.json_tasks import JsonTasks, ObservedSplits
from driftline.source.json_text import (
    LINES,
    Check,
    Origin,
    checked,
    completed,
    ddl_of,
    reader_options,
    rejected_lines,
    routed,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SMALL = 8 * 2**20  # bytes that are observed faster here than by starting a Python worker
_MUCH = 2**20  # bytes for each column from which on one go pays
# Bytes of the first split that a guess is made of, where the order of the columns is decided; and of so many others.
_FIRST, _HEAD, _HEADS = 2**22, 2**17, 32


@dataclass(slots=True)
class JsonFiles:
    """Files of JSON lines, or documents, as one batch."""

    spark: SparkSession
    files: Sequence[str]
    splits: list[Split] = field(default_factory=list)
    careful: bool = False
    judge: Judge | None = None
    known: Expect = field(default_factory=Expect)
    asked: tuple[Schema, Settings] | None = None
    seen: Observation = field(default_factory=Observation)
    whole: Observation | None = None
    checked: DataFrame | None = None
    go: JsonTasks | None = None
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))

    def guess(self, schema: Schema, settings: Settings) -> Observation | None:
        """What the first lines of some splits say, if that is worth it."""
        self.asked, self.known, self.splits = (schema, settings), expect(schema, settings), self._cut()
        plain = not any(split.whole for split in self.splits) and not any(excluded_paths(settings.contract))
        if self.careful or not plain or self._size < _MUCH:
            return None
        some = self.splits[:: max(1, len(self.splits) // _HEADS)]
        heads = [split.head(_HEAD if i else _FIRST) for i, split in enumerate(some)]
        # Which line of its file a split begins with is not known yet, but none is before its first byte's number.
        parts = zip(self._observed(heads, settings), heads, strict=True)
        self.seen = seen = merge_observations(part.shifted(head.start) for part, head in parts)
        return seen if seen.tally.records and not seen.tally.careful else None

    def suits(self, struct: Struct, settings: Settings) -> bool:
        """Whether tasks can observe and convert in one go, and it pays."""
        whole = (
            self.careful
            or any(split.whole for split in self.splits)
            or any(excluded_paths(settings.contract))
        )
        return not whole and self._size >= _MUCH * leaves(struct) and convertible(struct)

    def tasks(self, plan: Plan, struct: Struct, settings: Settings) -> JsonTasks:
        """Tasks that observe and convert in one go, by a plan that `guess` led to."""
        context, route = self.spark.sparkContext, lean(plan.route)
        last = set({split.path: i for i, split in enumerate(self.splits)}.values())
        shares = _shared(self.splits, context.defaultParallelism)
        sizes = [sum(split.length for _, split in share) for share in shares]
        shares = [[(i, split.to_end() if i in last else split) for i, split in share] for share in shares]
        self.go = JsonTasks(
            shares,
            sizes,
            Converter(struct, route, settings),
            self.seen,
            usual_struct(route),
            self.known,
            settings,
            context.accumulator({}, ObservedSplits()),
        )
        return self.go

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        asked = schema, settings
        if asked != self.asked or self.judge is not None or (whole := self.whole or self._told()) is None:
            self.asked, self.known, self.splits = asked, expect(schema, settings), self._cut()
            whole = self._numbered(self._observed(self.splits, settings))
        self.careful, self.seen, self.whole = self.careful or whole.tally.careful, whole, whole
        return whole

    def rows(self, plan: Plan, struct: Struct, settings: Settings) -> DataFrame:
        tag = uuid.uuid4().hex if tags_needed(plan.route) else None
        parsed = json_source(plan.route, tag)
        if not (self.careful or tag):
            read = self.spark.read.options(**reader_options()).schema(ddl_of(parsed))
            columns = select(struct, plan.route, parsed, settings)
            return completed(read.json([literally(file) for file in self.files]), parsed, columns, struct)
        shares = _shared(self.splits, 2 * self.spark.sparkContext.defaultParallelism)
        self.checked = self.spark.range(0, len(shares), 1, len(shares)).mapInArrow(
            partial(_read_shares, shares, Check(self.known, settings, self.judge, tag)), LINES
        )
        return routed(self.checked, plan, parsed, struct, settings)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        return rejected_lines(self.checked, everything)

    def refuse(self, judge: Judge, conflicts: Sequence[Conflict]) -> None:
        self.judge, self.careful = judge, True

    def be_careful(self) -> bool:
        before, self.careful, self.whole, self.go = self.careful, True, None, None
        return not before

    @property
    def _size(self) -> int:
        return sum(split.length for split in self.splits)

    def _cut(self) -> list[Split]:
        """The files' splits, at least two a core where they can be cut so."""
        splits = [split for file in self.files for split in splits_of(file)]
        share = sum(split.length for split in splits) // (2 * self.spark.sparkContext.defaultParallelism)
        return [part for split in splits for part in split.cut(max(share, _SMALL // 2))]

    def _observed(self, splits: Sequence[Split], settings: Settings) -> list[Observation]:
        observe = partial(observe_split, self.known, settings, self.judge)
        if _here(self.spark, sum(split.length for split in splits)):
            return [observe(split) for split in splits]
        # One task a core, because starting a Python task costs as much as ten megabytes.
        sc = self.spark.sparkContext
        shares = _shared(splits, sc.defaultParallelism)
        parts = sc.parallelize(shares, len(shares)).map(partial(_observe_share, observe)).collect()
        by_place = dict(pair for part in parts for pair in part)
        return [by_place[i] for i in range(len(splits))]

    def _told(self) -> Observation | None:
        """What was observed in one go, if all of it is there."""
        if self.go is None:
            return None
        seen, self.go.observed.value = self.go.observed.value, {}  # pyspark keeps an accumulator for ever
        return self._numbered([seen[i] for i in sorted(seen)]) if len(seen) == len(self.splits) else None

    def _numbered(self, seen: Sequence[Observation]) -> Observation:
        """One observation of all splits, each of which has its lines counted from 1."""
        splits, shifted = [], []
        file, line = "", 1
        for split, one in zip(self.splits, seen, strict=True):
            line = line if split.path == file else 1
            file = split.path
            splits.append(split.at_line(line))
            shifted.append(one.shifted(line - 1))
            line += one.lines
        self.splits = splits
        return merge_observations(shifted)


def _here(spark: SparkSession, size: int) -> bool:
    """Whether observing in this process is as good as in a task: little text, and the files are on this machine."""
    return size <= _SMALL and str(spark.sparkContext.master).startswith("local")


_Share = list[tuple[int, Split]]


def _shared(splits: Sequence[Split], tasks: int) -> list[_Share]:
    """The splits, with their places, dealt out to so many tasks, the largest first to the least laden."""
    shares: list[_Share] = [[] for _ in range(max(1, min(tasks, len(splits))))]
    laden = [0] * len(shares)
    for i, split in sorted(enumerate(splits), key=lambda s: -s[1].length):
        least = laden.index(min(laden))
        shares[least].append((i, split))
        laden[least] += split.length
    return shares


def _observe_share(observe: Callable[[Split], Observation], share: _Share) -> list[tuple[int, Observation]]:
    return [(i, observe(split)) for i, split in share]


def _read_shares(
    shares: Sequence[_Share], check: Check, ids: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in ids:
        for i in batch.column(0).to_pylist():
            for _, split in shares[i]:
                lines = ((Origin(split.path, line), raw) for line, raw in read_split(split))
                yield from checked(lines, check)
