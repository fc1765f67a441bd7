"""Records of Kafka: each value is JSON text; a null one, a tombstone, is counted and is no record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from driftline.convert.types import arrow_field
from driftline.core.planning.metadata import own_column
from driftline.core.planning.routes import Plan, Settings
from driftline.core.schema.naming import METADATA
from driftline.core.schema.types import BINARY, INT, LONG, STRING, TIMESTAMP, Field, Struct
from driftline.observe.json_lines import Why
from driftline.source.json_frame import JsonFrame
from driftline.source.json_rows import Run
from driftline.source.rejects import Origin, Reject

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from driftline.write import RowTasks

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
    "topic, partition, offset, timestamp) as metadata"
)
_PLACE = ("topic", "partition", "offset")
_NO_TEXT = b'""'  # observed in place of an empty value, which is no record either


class KafkaJson(JsonFrame):
    """A micro-batch with the columns of Spark's Kafka source. ``metadata``: these go along, in one column."""

    def __init__(self, frame: DataFrame, metadata: bool = False) -> None:
        more = [_METADATA] if metadata else []
        super().__init__(frame.selectExpr("value", *_PLACE, *more), _Values())
        self.metadata, self._source = metadata, frame

    @property
    def columns(self) -> tuple[Field, ...]:
        """What the source fills by itself."""
        return (METADATA_COLUMN,) if self.metadata else ()

    @property
    def tombstones(self) -> int:
        """How many of the values are null."""
        return self.nulls

    def tasks(self, plan: Plan, struct: Struct, settings: Settings) -> RowTasks:
        self.texts = _Values(own_column(struct, _KIND) if self.metadata else None)
        return super().tasks(plan, struct, settings)


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of Kafka; a null one is no text. ``own``: the table's column that the metadata go to."""

    own: Field | None = None

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        values, topics, partitions, offsets = (batch.column(i).to_pylist() for i in range(4))
        lines = [b"" if v is None else v if v.strip() else _NO_TEXT for v in values]
        for start, stop in _runs(topics, partitions, offsets):
            origin = Origin(topic=topics[start], partition=partitions[start], offset=offsets[start])
            reject = partial(_reject, values[start:stop], origin)
            source = f"{origin.topic}/{origin.partition}"
            yield Run(lines[start:stop], source, offsets[start], start, reject)

    def completed(self, rows: pa.RecordBatch, batch: pa.RecordBatch, at: Sequence[int]) -> pa.RecordBatch:
        if self.own is None:
            return rows
        import pyarrow as pa

        assert isinstance(self.own.type, Struct)
        metadata = batch.column("metadata").take(pa.array(at, pa.int64()))
        inner = [metadata.field(f.name) for f in self.own.type.fields]
        column = arrow_field(self.own)
        types = [column.type.field(i) for i in range(len(inner))]
        made = [array.cast(f.type) for array, f in zip(inner, types, strict=True)]
        place = rows.schema.get_field_index(self.own.name)
        return rows.set_column(place, column, pa.StructArray.from_arrays(made, fields=types))


def _reject(values: Sequence[bytes], first: Origin, at: int, why: Why) -> Reject:
    value = values[at]
    origin = first._replace(offset=(first.offset or 0) + at)
    return Reject(origin, value, why if value.strip() else "an empty value is no record")


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
