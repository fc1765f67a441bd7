"""Records of Kafka whose values are JSON text; a null one, a tombstone, is counted and is no record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from driftline.convert.types import arrow_field
from driftline.core.planning.metadata import own_column
from driftline.core.schema.naming import METADATA
from driftline.core.schema.types import BINARY, INT, LONG, STRING, TIMESTAMP, Field, List, Struct
from driftline.observe.json_lines import Why
from driftline.readers.json.rows import Run
from driftline.readers.rejects import Origin, Reject
from driftline.readers.wire import UnreadableError, framed
from driftline.sources.texts import JsonFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KIND = "kafka"
_HEADER = Struct(
    (
        Field("key", STRING),
        Field("value", STRING),
        Field("value_bytes", BINARY, doc="the value, where it is not UTF-8"),
    )
)
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
            Field("headers", List(_HEADER)),
        )
    ),
    doc=f"{METADATA}{_KIND}\nwhere the record came from",
)


def _text_or_bytes(value: str, name: str) -> str:
    """SQL of two columns: the text, or the bytes where they are none."""
    text = f"if(is_valid_utf8({value}), cast({value} as string), null) as {name}"
    return f"{text}, if(is_valid_utf8({value}), null, {value}) as {name}_bytes"


_HEADERS = f"transform(headers, h -> struct(h.key as key, {_text_or_bytes('h.value', 'value')}))"
_METADATA = f"struct({_text_or_bytes('key', 'key')}, topic, partition, offset, timestamp"
_PLACE = ("topic", "partition", "offset")
_NO_TEXT = b'""'  # observed in place of an empty value, which is no record either


def kafka_json(frame: DataFrame, metadata: bool = False, *, schemas: bool = False) -> JsonFrame:
    """A micro-batch with the columns of Spark's Kafka source.

    ``metadata``: these columns go along, as one, which the source fills itself. ``schemas``: each text
    follows the id of a schema, which adds nothing to the text.
    """
    columns = (METADATA_COLUMN,) if metadata else ()
    return JsonFrame(frame=selected(frame, metadata), texts=_Values(schemas, metadata), columns=columns)


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of Kafka; a null one is no text.

    ``schemas``: each is behind the id of one; ``metadata``: these go along, to the table's column ``own``.
    """

    schemas: bool = False
    metadata: bool = False
    own: Field | None = None

    def tombstones(self, batch: pa.RecordBatch) -> int:
        """The number of null values."""
        count: int = batch.column(0).null_count
        return count

    def into(self, struct: Struct) -> _Values:
        """The values, whose metadata go to the column that the table has for them."""
        return replace(self, own=metadata_column(struct)) if self.metadata else self

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The texts of a batch, in a run for each stretch of one partition; a null value is no text."""
        values, offsets = batch.column(0).to_pylist(), batch.column(3).to_pylist()
        texts = [_payload(value) for value in values] if self.schemas else values
        lines = [b"" if v is None else v if v.strip() else _NO_TEXT for v in texts]
        reject_of = _reject_framed if self.schemas else _reject
        for start, stop in _runs(*batch.columns[1:4]):
            origin = Origin(topic=batch.column(1)[start].as_py(), partition=batch.column(2)[start].as_py())
            numbers = offsets[start:stop]
            reject = partial(reject_of, values[start:stop], numbers, origin)
            yield Run(lines[start:stop], origin.place.source, numbers, reject)

    def completed(self, rows: pa.RecordBatch, batch: pa.RecordBatch, at: Sequence[int]) -> pa.RecordBatch:
        """The rows, with their metadata if the table has a column for them."""
        return rows if self.own is None else with_metadata(rows, batch.column("metadata"), at, self.own)


def with_metadata(rows: pa.RecordBatch, metadata: pa.Array, at: Sequence[int], own: Field) -> pa.RecordBatch:
    """Rows of the table with their metadata, taken ``at`` these places, in the column ``own``."""
    assert isinstance(own.type, Struct)
    metadata, column = metadata.take(pa.array(at, pa.int64())), arrow_field(own)
    known = {f.name for f in metadata.type}
    inner = [
        metadata.field(f.name).cast(f.type) if f.name in known else pa.nulls(len(at), f.type)
        for f in column.type
    ]
    place = rows.schema.get_field_index(own.name)
    return rows.set_column(place, column, pa.StructArray.from_arrays(inner, fields=list(column.type)))


def selected(frame: DataFrame, metadata: bool) -> DataFrame:
    """The value, its place, and the ``metadata``; frames of others may come without headers."""
    headers = f", {_HEADERS} as headers" if "headers" in frame.columns else ""
    more = [f"{_METADATA}{headers}) as metadata"] if metadata else []
    return frame.selectExpr("value", *_PLACE, *more)


def metadata_column(struct: Struct) -> Field | None:
    """The table's column for the metadata."""
    return own_column(struct, _KIND)


def _payload(value: bytes | None) -> bytes | None:
    """The text behind the id of a schema; empty if there is no such id."""
    try:
        return None if value is None else framed(value)[1]
    except UnreadableError:
        return b""


def _reject(values: Sequence[bytes], offsets: Sequence[int], run: Origin, at: int, why: Why) -> Reject:
    value = values[at]
    return Reject(
        run._replace(offset=offsets[at]), value, why if value.strip() else "an empty value is no record"
    )


def _reject_framed(values: Sequence[bytes], offsets: Sequence[int], run: Origin, at: int, why: Why) -> Reject:
    """The reject of a framed value: the text of a record, which a replay reads, else all bytes."""
    origin = run._replace(offset=offsets[at])
    try:
        payload = framed(values[at])[1]
        msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    except UnreadableError as error:
        return Reject(origin, values[at], str(error))
    except msgspec.MsgspecError:
        return Reject(origin, values[at], why if payload.strip() else "an empty value is no record")
    return Reject(origin, payload, why)


def _runs(topics: pa.Array, partitions: pa.Array, offsets: pa.Array) -> Iterator[tuple[int, int]]:
    """The rows that are of one partition and in its order. Offsets may have gaps: records that a newer one of
    their key replaced, that a transaction left, or that only mark its end.
    """
    if not len(offsets):
        return
    names = topics.dictionary_encode().indices
    same = [np.diff(column.to_numpy()) == 0 for column in (names, partitions)]
    goes_on = same[0] & same[1] & (np.diff(offsets.to_numpy()) > 0)
    begins = (np.flatnonzero(~goes_on) + 1).tolist()
    yield from pairwise([0, *begins, len(offsets)])
