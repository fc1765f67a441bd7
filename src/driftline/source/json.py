"""Files of JSON: lines, or documents.

Observed in Python tasks, read by Spark's own JSON reader. Where that is not enough (malformed lines, documents,
numbers whose text matters) the lines come through Python once more, checked and tagged: the careful road.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from driftline.core.judge import Judge
from driftline.core.routes import Conflict, Plan, Settings
from driftline.core.types import Schema, Struct, leaves
from driftline.engine import FILES, literally
from driftline.observe.json_files import Split, observe_split, read_split, splits_of
from driftline.observe.observation import Observation, merge_observations
from driftline.observe.walk import Expect, expect
from driftline.route import Source, json_source, select
from driftline.route.source import tags_needed
from driftline.route.sql import name
from driftline.source.json_text import (
    LINES,
    Check,
    Origin,
    checked,
    completed,
    ddl_of,
    from_json,
    reader_options,
    rejected_lines,
    routed,
    selected,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SMALL = 8 * 2**20  # bytes that are observed faster here than by starting a Python worker
_TWICE = 2**20  # bytes for each column from which on it pays to have a second way to read it


@dataclass(slots=True)
class JsonFiles:
    """Files of JSON lines, or documents, as one batch."""

    spark: SparkSession
    files: Sequence[str]
    splits: list[Split] = field(default_factory=list)
    careful: bool = False
    judge: Judge | None = None
    known: Expect = field(default_factory=Expect)
    checked: DataFrame | None = None
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        self.splits = [split for file in self.files for split in splits_of(file)]
        self.known = expect(schema, settings)
        observe = partial(observe_split, self.known, settings, self.judge)
        if _here(self.spark, sum(s.length for s in self.splits)):
            seen = [observe(split) for split in self.splits]
        else:
            seen = self._in_tasks(observe)
        self.splits, whole = _numbered(self.splits, seen)
        self.careful = self.careful or whole.tally.careful
        return whole

    def _in_tasks(self, observe: Callable[[Split], Observation]) -> list[Observation]:
        """Each split observed; one task a core, because starting a Python task costs as much as ten megabytes."""
        sc = self.spark.sparkContext
        shares = _shared(self.splits, sc.defaultParallelism)
        parts = sc.parallelize(shares, len(shares)).map(partial(_observe_share, observe)).collect()
        by_place = dict(pair for part in parts for pair in part)
        return [by_place[i] for i in range(len(self.splits))]

    def rows(self, plan: Plan, struct: Struct, settings: Settings) -> DataFrame:
        tag = uuid.uuid4().hex if tags_needed(plan.route) else None
        parsed = json_source(plan.route, tag)
        if not (self.careful or tag):
            return self._parsed(plan, parsed, struct, settings)
        shares = _shared(self.splits, 2 * self.spark.sparkContext.defaultParallelism)
        self.checked = self.spark.range(0, len(shares), 1, len(shares)).mapInArrow(
            partial(_read_shares, shares, Check(self.known, settings, self.judge, tag)), LINES
        )
        return routed(self.checked, plan, parsed, struct, settings)

    def _parsed(self, plan: Plan, parsed: Source, struct: Struct, settings: Settings) -> DataFrame:
        """The records, read by Spark alone: where there are many, as their fields' first types, and those that drift once
        more, as they are."""
        many = sum(split.length for split in self.splits) >= _TWICE * leaves(struct)
        usual, options = json_source(plan.route, None, usual=many), reader_options()
        columns = select(struct, plan.route, usual, settings)
        read, files = self.spark.read.options(**options), [literally(file) for file in self.files]
        if usual == parsed:
            return completed(read.schema(ddl_of(usual)).json(files), usual, columns, struct)
        drifted, row = name(options["columnNameOfCorruptRecord"]), name(f"__row_{uuid.uuid4().hex}")
        lines = read.option("mode", "PERMISSIVE").schema(f"{ddl_of(usual)}, {drifted} string")
        again = f"if({drifted} is null, null, {from_json(drifted, parsed)})"
        rows = lines.json(files).selectExpr("*", f"{again} as {row}")
        other = select(struct, plan.route, parsed, settings, row=row)
        either = [f"if({row} is null, {a}, {b})" for a, b in zip(columns, other, strict=True)]
        return selected(rows, either, struct)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        return rejected_lines(self.checked, everything)

    def refuse(self, judge: Judge, conflicts: Sequence[Conflict]) -> None:
        self.judge, self.careful = judge, True

    def be_careful(self) -> bool:
        before, self.careful = self.careful, True
        return not before


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


def _numbered(splits: list[Split], seen: Sequence[Observation]) -> tuple[list[Split], Observation]:
    """Lines counted within each split become lines of the file."""
    out, shifted = [], []
    file, line = "", 1
    for split, one in zip(splits, seen, strict=True):
        line = line if split.path == file else 1
        file = split.path
        out.append(split.at_line(line))
        shifted.append(one.shifted(line - 1))
        line += one.lines
    return out, merge_observations(shifted)


def _read_shares(
    shares: Sequence[_Share], check: Check, ids: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in ids:
        for i in batch.column(0).to_pylist():
            for _, split in shares[i]:
                lines = ((Origin(split.path, line), raw) for line, raw in read_split(split))
                yield from checked(lines, check)
