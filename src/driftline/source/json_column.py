"""A DataFrame's string column of JSON text; each text is a record."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from driftline.core.routes import Plan, Settings
from driftline.core.types import Schema, Struct
from driftline.engine import CASE, FILES
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation, merge_observations
from driftline.observe.walk import expect
from driftline.route import json_source
from driftline.route.source import has_twins, tags_needed
from driftline.route.sql import name
from driftline.source.json_text import LINES, Origin, checked, rejected_lines, routed

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
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The frame's own plan runs under these too: it keeps its way with case, unless the keys need another.
        spark = self.frame.sparkSession
        self.conf = {**FILES, CASE: str(spark.conf.get(CASE))}

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        import pickle

        texts = self.frame.select(name(self.column))
        seen = texts.mapInArrow(
            partial(_observe_texts, expect(schema, settings.mark), settings, self.column), "seen binary"
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
            self.checked = texts = texts.mapInArrow(partial(_check_texts, tag, self.column), LINES)
        return routed(texts, plan, parsed, struct, settings)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        return rejected_lines(self.checked, everything)

    def be_careful(self) -> bool:
        before, self.careful = self.careful, True
        return not before


def _check_texts(tag: str | None, column: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        lines = ((Origin(column), text.encode()) for text in batch.column(0).to_pylist() if text is not None)
        yield from checked(lines, tag)


def _observe_texts(
    known: Any, settings: Settings, column: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pickle

    import pyarrow as pa

    observer = JsonObserver(known, settings)
    line = 1
    for batch in batches:
        texts = batch.column(0).to_pylist()
        observer.feed([b"" if text is None else text.encode() for text in texts], column, line)
        line += len(texts)
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(observer.result())], pa.binary())], ["seen"])
