"""Values of Kafka in a registry's wire format, as columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from driftline.convert.nodes import RecordNode
from driftline.core.schema.types import Struct
from driftline.readers.columnar.rows import Rows
from driftline.readers.decoders import Wire
from driftline.readers.rejects import Origin
from driftline.readers.wire import Payloads, UnreadableError, WireDecoder, framed


class RecordKind(NamedTuple):
    """The traits that records of one kind share: their topic, the id of their schema and the record's name.

    ``keys``: the types of their messages' keys, where these are read; ``null``: their values are null.
    """

    topic: str
    schema: int
    name: str
    keys: Struct | None = None
    null: bool = False


Records: TypeAlias = tuple[list[int], list[Mapping[str, Any]]]  # by their rows in a batch of Kafka
_WRONG = (
    pa.ArrowException,
    ValueError,
    TypeError,
    OverflowError,
)  # what Arrow raises for values of no column


@dataclass(frozen=True, slots=True)
class Alike:
    """Records of one kind. ``places``: their rows in the batch of Kafka."""

    key: RecordKind
    struct: Struct
    rows: Rows
    places: Sequence[int]


class WireValues:
    """In a task: decodes values of one format."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._decoders: dict[int, WireDecoder | UnreadableError] = {}

    def read(self, batch: pa.RecordBatch, values: pa.Array) -> tuple[list[Alike], Mapping[int, str]]:
        """The records among the ``values`` of a batch of Kafka's, by kind, and why others are none, by row.

        A null is neither.
        """
        records, unread = self._whole(batch, values)
        single, unreadable = self._single(batch, values, unread)
        return records + single, unreadable

    def _whole(self, batch: pa.RecordBatch, values: pa.Array) -> tuple[list[Alike], Sequence[int]]:
        """The records that are read at once, and the rows that are not."""
        topics = batch.column(1).dictionary_encode()
        payloads, codes = Payloads.of(values), topics.indices.to_numpy()
        unread = values.is_valid().to_numpy(zero_copy_only=False).copy()
        alike = []
        kinds = payloads.schemas * len(topics.dictionary) + codes
        for kind in np.unique(kinds[unread & (payloads.schemas >= 0)]).tolist():
            number, code = divmod(kind, len(topics.dictionary))
            rows = np.flatnonzero(unread & (kinds == kind))
            with suppress(UnreadableError):  # which is said of each of them
                read = self._decoder(number).whole(payloads.some(rows))
                if read is not None and len(read.numbers):
                    rows = rows[read.numbers]
                    unread[rows] = False
                    key = RecordKind(topics.dictionary[code].as_py(), number, read.name)
                    alike.append(alike_of(key, read.struct, read.arrays, rows.tolist(), batch))
        return alike, np.flatnonzero(unread).tolist()

    def _single(
        self, batch: pa.RecordBatch, values: pa.Array, rows: Sequence[int]
    ) -> tuple[list[Alike], dict[int, str]]:
        """The records of these rows, read one by one, and the reasons of those that are none."""
        some_values, topics = (
            column.take(pa.array(rows, pa.int64())).to_pylist() for column in (values, batch.column(1))
        )
        records: dict[RecordKind, Records] = defaultdict(lambda: ([], []))
        unreadable: dict[int, str] = {}
        for row, value, topic in zip(rows, some_values, topics, strict=True):
            try:
                number, payload = framed(value)
                decoder = self._decoder(number)
                name, record = decoder.record(payload)
                if not decoder.nodes[name].nodes:
                    raise UnreadableError(f"{name} has no fields")
            except UnreadableError as error:
                unreadable[row] = str(error)
                continue
            places, some = records[RecordKind(topic, number, name)]
            places.append(row)
            some.append(record)
        alike = []
        for key, (places, some) in records.items():
            node = self._decoder(key.schema).nodes[key.name]
            arrays, wrong = _arrays(node, some)
            unreadable |= {places[i]: why for i, why in wrong.items()}
            places = [row for i, row in enumerate(places) if i not in wrong]
            alike.append(alike_of(key, node.struct, arrays, places, batch))
        return alike, unreadable

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


def alike_of(
    key: RecordKind, struct: Struct, arrays: Sequence[pa.Array], places: Sequence[int], batch: pa.RecordBatch
) -> Alike:
    columns = pa.RecordBatch.from_arrays(arrays, [f.name for f in struct.fields])
    """Records of one kind: columns, and the rows of a batch of Kafka's that these are of."""
    rows = Rows(columns, key.topic, origin=lambda number: origin_of(batch, places[number]))
    return Alike(key, struct, rows, places)


def origin_of(batch: pa.RecordBatch, row: int) -> Origin:
    """The origin of a row of Kafka's."""
    topic, partition, offset = (batch.column(i)[row].as_py() for i in range(1, 4))
    key = batch.column("key")[row].as_py() if "key" in batch.schema.names else None
    return Origin(topic=topic, partition=partition, offset=offset, key=key)


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
