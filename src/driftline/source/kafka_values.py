"""Typed values of Kafka in a task: decoded, and put together with those that are alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from driftline.convert.nodes import RecordNode
from driftline.core.planning.gc_pause import no_search
from driftline.core.schema.types import Struct
from driftline.observe.observation import Observation
from driftline.source.column_rows import Rows, RowsObserver, RowTerms
from driftline.source.decoders import Wire
from driftline.source.rejects import Origin, Reject
from driftline.source.wire import Payloads, UnreadableError, WireDecoder, framed

Key: TypeAlias = tuple[
    str, int, str
]  # of records alike: their topic, the id of their schema, the record's name
Records: TypeAlias = tuple[list[int], list[Mapping[str, Any]]]  # by their rows in a batch of Kafka
_UNREADABLE: Key = ("", 0, "")
_WRONG = (
    pa.ArrowException,
    ValueError,
    TypeError,
    OverflowError,
)  # what Arrow raises for values of no column


@dataclass(slots=True)
class ObservedRecords:
    """What a task saw: by kind of records their columns and what these hold, and how many values are null."""

    kinds: dict[Key, tuple[Struct, Observation]]
    nulls: int


@dataclass(frozen=True, slots=True)
class Alike:
    """Records of one kind. ``places``: their rows in the batch of Kafka."""

    key: Key
    struct: Struct
    rows: Rows
    places: Sequence[int]


class KafkaValues:
    """In a task: decodes values, and observes what they are."""

    def __init__(self, wire: Wire, terms: RowTerms) -> None:
        self._wire, self._terms = wire, terms
        self._decoders: dict[int, WireDecoder | UnreadableError] = {}
        self._observers: dict[Key, RowsObserver] = {}
        self.nulls = 0

    def observer(self, key: Key, struct: Struct) -> RowsObserver:
        """The observer of records alike."""
        if key not in self._observers:
            self._observers[key] = RowsObserver(struct, label_of(key), self._terms)
        return self._observers[key]

    def seen(self) -> ObservedRecords:
        """What was observed so far."""
        return ObservedRecords(
            {key: (one.struct, one.result()) for key, one in self._observers.items()}, self.nulls
        )

    @no_search()
    def decoded(self, batch: pa.RecordBatch) -> tuple[list[Alike], list[Reject]]:
        """The records of a batch of Kafka's, by what they are; and what is none."""
        self.nulls += batch.column(0).null_count
        whole, left = self._whole(batch)
        single, rejects = self._single(batch, left)
        if rejects:
            self.observer(_UNREADABLE, Struct(())).refused(rejects)
        return whole + single, rejects

    def _whole(self, batch: pa.RecordBatch) -> tuple[list[Alike], Sequence[int]]:
        """The records that are read at once, and the rows that are not."""
        values, topics = batch.column(0), batch.column(1).dictionary_encode()
        payloads, codes = Payloads.of(values), topics.indices.to_numpy()
        left = values.is_valid().to_numpy(zero_copy_only=False).copy()
        alike = []
        kinds = payloads.schemas * len(topics.dictionary) + codes
        for kind in np.unique(kinds[left & (payloads.schemas >= 0)]).tolist():
            number, code = divmod(kind, len(topics.dictionary))
            rows = np.flatnonzero(left & (kinds == kind))
            with suppress(UnreadableError):  # which is said of each of them
                read = self._decoder(number).whole(payloads.some(rows))
                if read is not None and len(read.numbers):
                    rows = rows[read.numbers]
                    left[rows] = False
                    key = (topics.dictionary[code].as_py(), number, read.name)
                    alike.append(_alike(key, read.struct, read.arrays, rows.tolist(), batch))
        return alike, np.flatnonzero(left).tolist()

    def _single(self, batch: pa.RecordBatch, rows: Sequence[int]) -> tuple[list[Alike], list[Reject]]:
        """The records of these rows, read one by one; and what is none."""
        values, topics = (batch.column(i).take(pa.array(rows, pa.int64())).to_pylist() for i in range(2))
        records: dict[Key, Records] = defaultdict(lambda: ([], []))
        rejects: list[Reject] = []
        for row, value, topic in zip(rows, values, topics, strict=True):
            try:
                number, payload = framed(value)
                decoder = self._decoder(number)
                name, record = decoder.record(payload)
                if not decoder.nodes[name].nodes:
                    raise UnreadableError(f"{name} has no fields")
            except UnreadableError as error:
                rejects.append(Reject(_origin(batch, row), value, str(error)))
                continue
            places, some = records[topic, number, name]
            places.append(row)
            some.append(record)
        alike = []
        for key, (places, some) in records.items():
            node = self._decoder(key[1]).nodes[key[2]]
            arrays, wrong = _arrays(node, some)
            for i, why in wrong.items():
                rejects.append(Reject(_origin(batch, places[i]), batch.column(0)[places[i]].as_py(), why))
            places = [row for i, row in enumerate(places) if i not in wrong]
            alike.append(_alike(key, node.struct, arrays, places, batch))
        return alike, rejects

    def _decoder(self, number: int) -> WireDecoder:
        if number not in self._decoders:
            try:
                self._decoders[number] = self._wire.decoder(number)
            except UnreadableError as error:
                self._decoders[number] = error
        decoder = self._decoders[number]
        if isinstance(decoder, UnreadableError):
            raise decoder
        return decoder


def _alike(
    key: Key, struct: Struct, arrays: Sequence[pa.Array], places: Sequence[int], batch: pa.RecordBatch
) -> Alike:
    columns = pa.RecordBatch.from_arrays(arrays, [f.name for f in struct.fields])
    rows = Rows(columns, key[0], origin=lambda number: _origin(batch, places[number]))
    return Alike(key, struct, rows, places)


def _origin(batch: pa.RecordBatch, row: int) -> Origin:
    topic, partition, offset = (batch.column(i)[row].as_py() for i in range(1, 4))
    return Origin(topic=topic, partition=partition, offset=offset)


def _arrays(
    node: RecordNode, records: Sequence[Mapping[str, Any]]
) -> tuple[list[pa.Array], Mapping[int, str]]:
    """The columns of those records that have some; and why others have not."""
    try:
        return node.columns(records), {}
    except _WRONG:
        wrong: dict[int, str] = {}
    for i, record in enumerate(records):
        try:
            node.columns([record])
        except _WRONG as error:
            wrong[i] = f"no column can have it: {error}"
    return node.columns([record for i, record in enumerate(records) if i not in wrong]), wrong


def label_of(key: Key) -> str:
    """How reports name where records alike came from."""
    return f"{key[0]}, schema"
