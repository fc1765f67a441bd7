"""Records of a quarantine, on their way into the table again; each keeps the place that it came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from driftline.observe.json_lines import Why
from driftline.readers.json.rows import Run
from driftline.readers.rejects import Origin, Reject
from driftline.sources.texts import JsonFrame, PlainTexts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def quarantined(frame: DataFrame) -> JsonFrame:
    """The rows of a quarantine whose ``raw`` is a record."""
    # In the order of their places: the observer begins anew where a place comes before the last one.
    ordered = frame.select("raw", *Origin._fields).sortWithinPartitions(*Origin._fields)
    return JsonFrame(frame=ordered, texts=_Raw())


class _Raw(PlainTexts):
    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The texts of a batch, in a run for each stretch of one original source."""
        texts, *places = (column.to_pylist() for column in batch.columns)
        raw = [text.encode() for text in texts]
        origins = [Origin(*place) for place in zip(*places, strict=True)]
        for source, rows in groupby(range(len(raw)), lambda row: origins[row].place.source):
            numbers = list(rows)
            first = numbers[0]
            texts_of_source = raw[first : first + len(numbers)]
            lines = [origins[row].place.line for row in numbers]
            yield Run(texts_of_source, source, lines, partial(_reject, raw, origins, first))


def _reject(raw: Sequence[bytes], origins: Sequence[Origin], first: int, at: int, why: Why) -> Reject:
    return Reject(origins[first + at], raw[first + at], why)
