"""A DataFrame's string column of JSON text; each text is a record."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from driftline.core.judge import Judge
from driftline.core.routes import Conflict, Plan, Settings
from driftline.core.types import Schema, Struct
from driftline.engine import CASE, FILES
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation, merge_observations
from driftline.observe.walk import Expect, expect
from driftline.route import json_source
from driftline.route.source import has_twins, tags_needed
from driftline.route.sql import name
from driftline.source.json_text import LINES, Check, Origin, checked, rejected_lines, routed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class JsonColumn:
    """A DataFrame's string column of JSON text; each text is a record."""

    frame: DataFrame
    column: str
    checked: DataFrame | None = None
    careful: bool = False
    judge: Judge | None = None
    known: Expect = field(default_factory=Expect)
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The frame's own plan runs under these too: it keeps its way with case, unless the keys need another.
        spark = self.frame.sparkSession
        self.conf = {**FILES, CASE: str(spark.conf.get(CASE))}

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        import pickle

        texts = self.frame.select(name(self.column))
        self.known = expect(schema, settings)
        seen = texts.mapInArrow(
            partial(_observe_texts, self.known, settings, self.judge, self.column), "seen binary"
        ).collect()
        whole = merge_observations(pickle.loads(row.seen) for row in seen)  # noqa: S301  our own bytes
        self.careful = self.careful or whole.tally.careful
        return whole

    def rows(self, plan: Plan, struct: Struct, settings: Settings) -> DataFrame:
        tag = uuid.uuid4().hex if tags_needed(plan.route) else None
        parsed = json_source(plan.route, tag)
        texts = self.frame.selectExpr(f"{name(self.column)} as text")
        if has_twins(parsed):
            self.frame.sparkSession.conf.set(CASE, "true")
        if self.careful or tag:
            self.checked = texts = texts.mapInArrow(
                partial(_check_texts, Check(self.known, settings, self.judge, tag), self.column), LINES
            )
        return routed(texts, plan, parsed, struct, settings)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        return rejected_lines(self.checked, everything)

    def refuse(self, judge: Judge, conflicts: Sequence[Conflict]) -> None:
        self.judge, self.careful = judge, True

    def be_careful(self) -> bool:
        before, self.careful = self.careful, True
        return not before


def _check_texts(check: Check, column: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        lines = ((Origin(column), text.encode()) for text in batch.column(0).to_pylist() if text is not None)
        yield from checked(lines, check)


def _observe_texts(
    known: Expect, settings: Settings, judge: Judge | None, column: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pickle

    import pyarrow as pa

    observer = JsonObserver(known, settings, judge)
    line = 1
    for batch in batches:
        texts = batch.column(0).to_pylist()
        observer.feed([b"" if text is None else text.encode() for text in texts], column, line)
        line += len(texts)
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(observer.result())], pa.binary())], ["seen"])
