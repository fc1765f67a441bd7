"""Sources of Kafka messages with JSON text; a tombstone deletes a row, or is only counted."""

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
from driftline.core.planning.own_columns import own_column
from driftline.core.schema.naming import METADATA
from driftline.core.schema.types import BINARY, INT, LONG, STRING, TIMESTAMP, Field, List, Schema, Struct
from driftline.core.settings.row_key import RowKey
from driftline.core.settings.table import TableSettings
from driftline.observe.json_lines import Why
from driftline.readers.deletes import NO_RECORD
from driftline.readers.envelopes.columns import key_texts_of, texts_of
from driftline.readers.json.rows import Run
from driftline.readers.kafka.keys import MessageTexts, with_keys, without_keys
from driftline.readers.kafka.values import Wire
from driftline.readers.kafka.wire import UnreadableError, framed
from driftline.readers.rejects import Origin, Origins, Reject
from driftline.sources.scan import BatchScan, Source
from driftline.sources.texts import TextScan
from driftline.sql.quoting import is_utf8

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    text = f"cast({value} as string)"
    return f"if({is_utf8(text)}, {text}, null) as {name}, if({is_utf8(text)}, null, {value}) as {name}_bytes"


_HEADERS = f"transform(headers, h -> struct(h.key as key, {_text_or_bytes('h.value', 'value')}))"
_METADATA = f"struct({_text_or_bytes('key', 'key')}, topic, partition, offset, timestamp"
_PLACE = ("topic", "partition", "offset")


def kafka_json(
    frame: DataFrame, metadata: bool = False, *, schemas: bool = False, wire: Wire | None = None
) -> KafkaJson:
    """A micro-batch with the columns of Spark's Kafka source.

    Args:
        metadata: these columns go along, as one, which the source fills itself.
        schemas: each text follows the id of a schema, which adds nothing to the text.
        wire: values, and keys, are typed.
    """
    columns = (METADATA_COLUMN,) if metadata else ()
    return KafkaJson(frame=frame, texts=MessageValueTexts(schemas, metadata, wire=wire), columns=columns)


@dataclass(frozen=True, kw_only=True)
class KafkaJson(Source):
    """Values of Kafka that are JSON.

    Attributes:
        frame: with the columns of Spark's Kafka source.
    """

    frame: DataFrame
    texts: MessageValueTexts
    as_text: bool = True

    @property
    def spark(self) -> SparkSession:
        """The session of the micro-batch."""
        return self.frame.sparkSession

    @property
    def messages(self) -> DataFrame:
        """The columns of the messages that any table may read."""
        return selected(self.frame, self.texts.metadata, keys=True)

    def open(self, schema: Schema, settings: TableSettings, before: BatchScan | None = None) -> TextScan:
        """Open the micro-batch for a table."""
        request, texts = self.request(schema, settings), self.texts.of(settings.row_key)
        return TextScan(request, request.terms, selected(self.frame, texts.metadata, texts.keys), texts)


@dataclass(frozen=True, slots=True)
class MessageValueTexts:
    """Values of Kafka; a null one is no text, or, with ``nulls``, one that has the message's key alone.

    Attributes:
        schemas: each is behind the id of one.
        metadata: these go along, to the table's column ``own``.
        keys: so do the keys, as a field of each record.
        wire: values and keys are typed, and read as texts.
    """

    schemas: bool = False
    metadata: bool = False
    own: Field | None = None
    keys: bool = False
    nulls: bool = False
    wire: Wire | None = None

    def of(self, row_key: RowKey | None) -> MessageValueTexts:
        """The values as a table reads them whose rows are known by this key."""
        if row_key is None:
            return self
        return replace(self, keys=row_key.reads_messages, nulls=row_key.deletes_by_null)

    def tombstones(self, batch: pa.RecordBatch) -> int:
        """The number of null values that are no texts."""
        count: int = 0 if self.nulls else batch.column(0).null_count
        return count

    def into(self, struct: Struct) -> MessageValueTexts:
        """The values, whose metadata go to the column that the table has for them."""
        return replace(self, own=metadata_column(struct)) if self.metadata else self

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The texts of a batch, in a run for each stretch of one partition."""
        read = self._read(batch)
        for start, stop in _runs(*batch.columns[1:4]):
            origin = Origin(topic=batch.column(1)[start].as_py(), partition=batch.column(2)[start].as_py())
            reject = partial(read.reject, start, origin)
            numbers, nulls = read.offsets[start:stop], read.texts.nulls_in(start, stop)
            origins = Origins(origin, numbers)
            yield Run(read.texts.lines[start:stop], origin.location.source, numbers, reject, nulls, origins)

    def _read(self, batch: pa.RecordBatch) -> _ReadValues:
        if self.wire is not None:
            return self._read_wire(self.wire, batch)
        values, offsets = batch.column(0).to_pylist(), batch.column(3).to_pylist()
        texts = [_payload(value) for value in values] if self.schemas else values
        if not self.keys:
            return _ReadValues(values, [None] * len(values), offsets, without_keys(texts), self.schemas)
        keys = self.key_texts(batch)
        return _ReadValues(values, keys, offsets, with_keys(texts, keys, nulls=self.nulls), self.schemas)

    def key_texts(self, batch: pa.RecordBatch) -> Sequence[bytes | None]:
        """The keys of messages, as texts."""
        if self.wire is not None:
            return key_texts_of(self.wire, batch)[0]
        keys: list[bytes | None] = batch.column("key").to_pylist()
        # Keys need no schema, though the values have one each.
        return [_payload(key) or key for key in keys] if self.schemas else keys

    def _read_wire(self, wire: Wire, batch: pa.RecordBatch) -> _ReadValues:
        """The texts of typed values, with their keys.

        Keys are typed, or as they came; a value or key that is neither keeps its bytes.
        """
        values, wrong = texts_of(wire, batch, batch.column(0))
        keys, wrong_keys = key_texts_of(wire, batch)
        # Of a message with two faults, that of its value is reported.
        wrong = {**wrong_keys, **wrong}
        lines = [NO_RECORD if place in wrong else value for place, value in enumerate(values)]
        texts = with_keys(lines, keys, nulls=self.nulls)
        texts = texts._replace(wrong={**texts.wrong, **wrong})
        return _ReadValues(values, keys, batch.column(3).to_pylist(), texts, False)

    def completed(self, rows: pa.RecordBatch, batch: pa.RecordBatch, at: Sequence[int]) -> pa.RecordBatch:
        """The rows, with their metadata if the table has a column for them."""
        return rows if self.own is None else with_metadata(rows, batch.column("metadata"), at, self.own)


def with_metadata(rows: pa.RecordBatch, metadata: pa.Array, at: Sequence[int], own: Field) -> pa.RecordBatch:
    """Rows of the table with their metadata, taken ``at`` these places, in the column ``own``."""
    assert isinstance(own.type, Struct)
    metadata, column = metadata.take(pa.array(at, pa.int64())), arrow_field(own)
    fields = {f.name for f in metadata.type}
    inner = [
        metadata.field(f.name).cast(f.type) if f.name in fields else pa.nulls(len(at), f.type)
        for f in column.type
    ]
    place = rows.schema.get_field_index(own.name)
    return rows.set_column(place, column, pa.StructArray.from_arrays(inner, fields=list(column.type)))


def selected(frame: DataFrame, metadata: bool, keys: bool = False) -> DataFrame:
    """The value, its place, the ``metadata`` and the ``keys``; frames of others may come without headers."""
    headers = f", {_HEADERS} as headers" if "headers" in frame.columns else ""
    more = [f"{_METADATA}{headers}) as metadata"] if metadata else []
    return frame.selectExpr("value", *_PLACE, *more, *(["key"] if keys else []))


def metadata_column(struct: Struct) -> Field | None:
    """The table's column for the metadata."""
    return own_column(struct, _KIND)


def _payload(value: bytes | None) -> bytes | None:
    """The text behind the id of a schema; empty if there is no such id."""
    try:
        return None if value is None else framed(value)[1]
    except UnreadableError:
        return b""


@dataclass(frozen=True, slots=True)
class _ReadValues:
    """The values of a batch, and their texts.

    Attributes:
        schemas: each value is behind the id of one.
    """

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    offsets: Sequence[int]
    texts: MessageTexts
    schemas: bool

    def reject(self, start: int, run: Origin, at: int, why: Why) -> Reject:
        """The reject of a value in the run that begins at ``start``.

        Of a framed value it has the text, which a replay reads; all bytes where that is no record.
        """
        place = start + at
        raw = text = self.values[place]
        origin = run._replace(offset=self.offsets[place], key=self.keys[place])
        if self.schemas and raw is not None:
            try:
                # A replay reads `raw` as a record, so the id in front of the text goes.
                text = framed(raw)[1]
                msgspec.json.decode(text, type=dict[str, msgspec.Raw])
                raw = text
            except UnreadableError as error:
                return Reject(origin, raw, str(error))
            except msgspec.MsgspecError:
                pass
        return Reject(origin, raw, self.texts.why(place, text, why))


def _runs(topics: pa.Array, partitions: pa.Array, offsets: pa.Array) -> Iterator[tuple[int, int]]:
    """Yield the begins and ends of runs: rows of one partition, in its order.

    Offsets may have gaps: records that a newer one of their key replaced, that a transaction left, or that
    only mark its end.
    """
    if not len(offsets):
        return
    names = topics.dictionary_encode().indices
    same = [np.diff(column.to_numpy()) == 0 for column in (names, partitions)]
    # The observer takes line numbers in rising order only, within one source.
    goes_on = same[0] & same[1] & (np.diff(offsets.to_numpy()) > 0)
    begins = (np.flatnonzero(~goes_on) + 1).tolist()
    yield from pairwise([0, *begins, len(offsets)])
