"""Deals the messages of a micro-batch by table into a spool file, from which each table reads its share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from driftline.core.schema.types import Path as FieldPath
from driftline.core.values import Malformed, parse
from driftline.ingest.deal import HeldBatches, RecordValues, Share, text_at
from driftline.ingest.pattern import TOPIC, Pattern, Values
from driftline.runtime.disk import Bounds, delete_file
from driftline.sources.kafka import MessageValueTexts
from driftline.tasks.written import batches_of, written_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def deal_messages(
    frame: DataFrame,
    reader: MessageValues,
    tables: Callable[[Sequence[Values]], Mapping[Values, str]],
    spool: Path,
) -> dict[str, Share]:
    """Deal messages into a ``spool`` file; returns the share of each table.

    Args:
        frame: of the messages.
        reader: reads the values that name a table.
        tables: the tables of values, which come in the order in which they are first seen.
        spool: the file; tasks write theirs beside it.
    """
    shares: dict[str, Share] = {}
    with ExitStack() as stack:
        dealt = HeldBatches(spool, stack, shares)
        for path in written_parts(frame, spool.parent):
            for batch in batches_of(path):
                values = reader.values(batch)
                named = tables(list(dict.fromkeys(of_row for of_row in values if of_row is not None)))
                dealt.add(batch, values, named)
            delete_file(path, Bounds((str(spool.parent),)))
        dealt.flush()
    return shares


class MessageValues:
    """Reads the values of a pattern's braces from messages, whose texts ``texts`` reads.

    Attributes:
        nulls: the number of null values that name no table.
    """

    def __init__(self, pattern: Pattern, texts: MessageValueTexts) -> None:
        self.nulls = 0
        self._pattern, self._texts, self._records = pattern, texts, RecordValues(pattern, {})
        places = range(len(pattern.braces))
        self._in_key = [pattern.path_in_key(place) for place in places]
        self._in_record = any(pattern.path(place) is not None for place in places)

    def values(self, batch: pa.RecordBatch) -> list[Values | None]:
        """The values of the messages of a batch; None for a null one that names no table."""
        topics = batch.column("topic").to_pylist()
        keys = self._texts.key_texts(batch)
        texts = [text for run in self._texts.runs(batch) for text in run.lines]
        return [self._of(*message) for message in zip(texts, topics, keys, strict=True)]

    def _of(self, text: bytes, topic: str, key: bytes | None) -> Values | None:
        beside = [
            topic if brace == TOPIC else None if path is None or key is None else text_of_key(key, path)
            for brace, path in zip(self._pattern.braces, self._in_key, strict=True)
        ]
        if text != b"":
            return self._records.of_text(text, beside)
        values = tuple(beside)
        if not self._in_record and self._pattern.names(values):
            return values
        self.nulls += 1
        return None


def text_of_key(key: bytes, path: FieldPath) -> str | None:
    """The text of a key, JSON or plain text, or of a value in it; None for one that names no table."""
    try:
        return text_at(parse(key), path)
    except Malformed:  # no object
        if path:
            return None
    try:
        return msgspec.json.decode(key, type=str) or None
    except msgspec.MsgspecError:
        pass
    try:
        return key.decode() or None
    except UnicodeDecodeError:
        return None
