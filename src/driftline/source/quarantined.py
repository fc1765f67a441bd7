"""Records of a quarantine, on their way into the table again; each keeps the place that it came from."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from driftline.core.judge import Judge
from driftline.core.routes import Conflict, Plan, Settings
from driftline.core.types import Schema, Struct
from driftline.engine import FILES
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation, merge_observations
from driftline.observe.walk import Expect, expect
from driftline.route import json_source
from driftline.route.source import tags_needed
from driftline.source.json_text import LINES, Check, Origin, checked, rejected_lines, routed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_COLUMNS = ("raw", *Origin._fields)


@dataclass(slots=True)
class Quarantined:
    """Rows of a quarantine whose ``raw`` is a record."""

    frame: DataFrame
    checked: DataFrame | None = None
    judge: Judge | None = None
    known: Expect = field(default_factory=Expect)
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        import pickle

        self.known = expect(schema, settings)
        # In the order of their places: the observer begins anew where a place comes before the last one.
        rows = self.frame.select(*_COLUMNS).sortWithinPartitions(*Origin._fields)
        observe = partial(_observe, self.known, settings, self.judge)
        seen = rows.mapInArrow(observe, "seen binary").collect()
        return merge_observations(pickle.loads(row.seen) for row in seen)  # noqa: S301  our own bytes

    def rows(self, plan: Plan, struct: Struct, settings: Settings) -> DataFrame:
        tag = uuid.uuid4().hex if tags_needed(plan.route) else None
        check = Check(self.known, settings, self.judge, tag)
        self.checked = self.frame.select(*_COLUMNS).mapInArrow(partial(_check, check), LINES)
        return routed(self.checked, plan, json_source(plan.route, tag), struct, settings)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        return rejected_lines(self.checked, everything)

    def refuse(self, judge: Judge, conflicts: Sequence[Conflict]) -> None:
        self.judge = judge

    def be_careful(self) -> bool:
        return False


def _records(batch: pa.RecordBatch) -> Iterator[tuple[Origin, bytes]]:
    for raw, *origin in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield Origin(*origin), raw.encode()


def _observe(
    known: Expect, settings: Settings, judge: Judge | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pickle

    import pyarrow as pa

    observer = JsonObserver(known, settings, judge)
    for batch in batches:
        for (source, line), records in groupby(_records(batch), lambda record: _place(record[0])):
            observer.feed([raw for _, raw in records], source, line)
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(observer.result())], pa.binary())], ["seen"])


def _place(origin: Origin) -> tuple[str, int]:
    if origin.topic is not None:
        return f"{origin.topic}/{origin.partition}", origin.offset or 0
    return origin.source or "", origin.line or 0


def _check(check: Check, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from checked(_records(batch), check)
