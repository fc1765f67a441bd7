"""Records of a quarantine, on their way into the table again; each keeps the place that it came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from driftline.core.planning.plan import Settings
from driftline.core.schema.types import Schema
from driftline.observe.json_lines import Why
from driftline.readers.deletes import NO_RECORD
from driftline.readers.json.rows import Run
from driftline.readers.kafka.keys import MessageTexts, with_keys, without_keys
from driftline.readers.rejects import Origin, Origins, Reject
from driftline.sources.scan import BatchScan, Source
from driftline.sources.texts import PlainTexts, TextScan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_PLACE = Origin._fields[:-1]
_KEY = "coalesce(key_bytes, cast(key as binary)) as key"


def quarantined(frame: DataFrame) -> QuarantinedRecords:
    """The rows of a quarantine whose ``raw`` is a record."""
    # In the order of their places: the observer begins anew where a place comes before the last one.
    ordered = frame.selectExpr("raw", *_PLACE, _KEY).sortWithinPartitions(*_PLACE)
    return QuarantinedRecords(frame=ordered)


@dataclass(frozen=True, kw_only=True)
class QuarantinedRecords(Source):
    """The records of a quarantine. ``frame``: their texts and origins."""

    frame: DataFrame
    as_text: bool = True

    def open(self, schema: Schema, settings: Settings, before: BatchScan | None = None) -> TextScan:
        """Open the records for a table."""
        request, row_key = self.request(schema, settings), settings.row_key
        texts = _Raw() if row_key is None else _Raw(row_key.reads_messages, row_key.deletes_by_null)
        return TextScan(request, request.terms, self.frame, texts)


@dataclass(frozen=True, slots=True)
class _Raw(PlainTexts):
    """The texts of rejected records. ``keys``: messages of topics have their keys as a field, as when they
    came; ``nulls``: their null values delete rows.
    """

    keys: bool = False
    nulls: bool = False

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The texts of a batch, in a run for each stretch of one original source."""
        texts, *places = (column.to_pylist() for column in batch.columns)
        raw = [None if text is None else text.encode() for text in texts]
        origins = [Origin(*place) for place in zip(*places, strict=True)]
        for source, rows in groupby(range(len(raw)), lambda row: origins[row].place.source):
            numbers = list(rows)
            first, stop = numbers[0], numbers[-1] + 1
            some, some_origins = raw[first:stop], origins[first:stop]
            of_topic = some_origins[0].topic is not None
            messages = self._messages(some, some_origins) if of_topic else without_keys(some)
            lines = [text or NO_RECORD for text in messages.lines]  # each is a record, or refused again
            places = [origin.place.line for origin in some_origins]
            reject = partial(_reject, some, some_origins, messages)
            nulls = messages.nulls if of_topic else None
            told = [origin.offset if of_topic else origin.line for origin in some_origins]
            yield Run(lines, source, places, reject, nulls, Origins(some_origins[0], told))

    def _messages(self, raw: Sequence[bytes | None], origins: Sequence[Origin]) -> MessageTexts:
        """The texts of messages of a topic."""
        if not self.keys:
            return without_keys(raw)
        return with_keys(raw, [origin.key for origin in origins], nulls=self.nulls, again=True)


def _reject(
    raw: Sequence[bytes | None], origins: Sequence[Origin], messages: MessageTexts, at: int, why: Why
) -> Reject:
    return Reject(origins[at], raw[at], messages.why(at, raw[at], why))
