"""Records of Kafka: each value is JSON text; a null one, a tombstone, is counted and is no record."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from driftline.core.judge import Judge
from driftline.core.metadata import own_column
from driftline.core.naming import METADATA
from driftline.core.routes import Conflict, Plan, Settings
from driftline.core.types import BINARY, INT, LONG, STRING, TIMESTAMP, Field, Schema, Struct
from driftline.engine import FILES
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation, merge_observations
from driftline.observe.walk import Expect, expect
from driftline.route import json_source
from driftline.route.source import tags_needed
from driftline.route.sql import name
from driftline.source.json_text import LINES, Check, Origin, checked, rejected_lines, rejects, routed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_KIND = "kafka"
METADATA_COLUMN = Field(
    "_kafka",
    Struct(
        (
            Field("key", STRING),
            Field("key_bytes", BINARY, doc="the key, where it is not UTF-8"),
            Field("topic", STRING),
            Field("partition", INT),
            Field("offset", LONG),
            Field("timestamp", TIMESTAMP),
        )
    ),
    doc=f"{METADATA}{_KIND}\nwhere the record came from",
)
_METADATA = (
    "struct(if(is_valid_utf8(key), cast(key as string), null) as key, if(is_valid_utf8(key), null, key) as key_bytes, "
    "topic, partition, offset, timestamp)"
)
_PLACE = ("topic", "partition", "offset")
_NO_TEXT = b'""'  # observed in place of an empty value, which is no record either


@dataclass(slots=True)
class KafkaJson:
    """A micro-batch with the columns of Spark's Kafka source. ``metadata``: these go along, in one column."""

    frame: DataFrame
    metadata: bool = False
    tombstones: int = 0
    checked: DataFrame | None = None
    careful: bool = False
    judge: Judge | None = None
    known: Expect = field(default_factory=Expect)
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))

    @property
    def columns(self) -> tuple[Field, ...]:
        """What the source fills by itself."""
        return (METADATA_COLUMN,) if self.metadata else ()

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        import pickle

        self.known = expect(schema, settings)
        seen = (
            self.frame.select("value", *_PLACE)
            .mapInArrow(partial(_observe, self.known, settings, self.judge), "seen binary, tombstones bigint")
            .collect()
        )
        self.tombstones = sum(row.tombstones for row in seen)
        whole = merge_observations(pickle.loads(row.seen) for row in seen)  # noqa: S301  our own bytes
        self.careful = self.careful or whole.tally.careful
        return whole

    def rows(self, plan: Plan, struct: Struct, settings: Settings) -> DataFrame:
        tag = uuid.uuid4().hex if tags_needed(plan.route) else None
        parsed = json_source(plan.route, tag)
        own = own_column(struct, _KIND) if self.metadata else None
        also = [] if own is None else [f"{_METADATA} as {name(own.name)}"]
        if self.careful or tag:
            values = self.frame.selectExpr("value", *_PLACE, *also)
            more = "" if own is None else f", {values.schema[own.name].simpleString()}"
            check = Check(self.known, settings, self.judge, tag)
            self.checked = texts = values.mapInArrow(partial(_check, check), LINES + more)
        else:
            texts = self.frame.selectExpr("cast(value as string) as text", *also)
        return routed(texts, plan, parsed, struct, settings, carried=None if own is None else own.name)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        return rejected_lines(self.checked, everything)

    def refuse(self, judge: Judge, conflicts: Sequence[Conflict]) -> None:
        self.judge, self.careful = judge, True

    def be_careful(self) -> bool:
        before, self.careful = self.careful, True
        return not before


def _observe(
    known: Expect, settings: Settings, judge: Judge | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pickle

    import pyarrow as pa

    observer = JsonObserver(known, settings, judge)
    tombstones = 0
    for batch in batches:
        values, *place = (column.to_pylist() for column in batch.columns)
        tombstones += batch.column(0).null_count
        lines = [b"" if v is None else v if v.strip() else _NO_TEXT for v in values]
        for start, stop in _runs(*place):
            observer.feed(lines[start:stop], f"{place[0][start]}/{place[1][start]}", place[2][start])
    seen = pa.array([pickle.dumps(observer.result())], pa.binary())
    yield pa.RecordBatch.from_arrays([seen, pa.array([tombstones])], ["seen", "tombstones"])


def _runs(
    topics: Sequence[str], partitions: Sequence[int], offsets: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Where offsets follow one another in one partition, as lines do in a file."""
    start = 0
    for i in range(1, len(offsets) + 1):
        if (
            i == len(offsets)
            or offsets[i] != offsets[i - 1] + 1
            or partitions[i] != partitions[start]
            or topics[i] != topics[start]
        ):
            yield start, i
            start = i


def _check(check: Check, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches as `LINES`, and behind those what is carried along."""
    for batch in batches:
        values, topics, partitions, offsets = (batch.column(i).to_pylist() for i in range(4))
        origins = [
            Origin(topic=t, partition=p, offset=o)
            for t, p, o in zip(topics, partitions, offsets, strict=True)
        ]
        full = [i for i, v in enumerate(values) if v is not None and v.strip()]
        empty = [i for i, v in enumerate(values) if v is not None and not v.strip()]
        done = 0
        for out in checked(((origins[i], values[i]) for i in full), check):
            yield _along(out, batch, full[done : done + out.num_rows])
            done += out.num_rows
        if empty:
            yield _along(
                rejects((origins[i], values[i], "an empty value is no record") for i in empty), batch, empty
            )


def _along(out: pa.RecordBatch, batch: pa.RecordBatch, at: Sequence[int]) -> pa.RecordBatch:
    import pyarrow as pa

    rows = batch.take(pa.array(at))
    for i in range(1 + len(_PLACE), batch.num_columns):
        out = out.append_column(batch.schema.field(i), rows.column(i))
    return out
