"""Typed values of Kafka in a task: decoded, and put together with those that are alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from driftline.convert.nodes import RecordNode
from driftline.core.planning.gc_pause import no_search
from driftline.core.schema.types import Struct
from driftline.observe.observation import Observation
from driftline.source.column_rows import Rows, RowsObserver, Terms
from driftline.source.decoders import Wire
from driftline.source.rejects import Origin, Reject
from driftline.source.wire import Decoder, UnreadableError, framed

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
class Seen:
    """What a task saw: by kind of records their columns and what these hold, and how many values are null."""

    kinds: dict[Key, tuple[Struct, Observation]]
    nulls: int


@dataclass(frozen=True, slots=True)
class Alike:
    """Records of one kind. ``places``: their rows in the batch of Kafka; ``wrong``: rows that no columns can
    have, and why.
    """

    key: Key
    struct: Struct
    rows: Rows
    places: Sequence[int]
    wrong: Sequence[tuple[int, str]]


class Values:
    """In a task: decodes values, and observes what they are."""

    def __init__(self, wire: Wire, terms: Terms) -> None:
        self._wire, self._terms = wire, terms
        self._decoders: dict[int, Decoder | UnreadableError] = {}
        self._observers: dict[Key, RowsObserver] = {}
        self.nulls = 0

    def observer(self, key: Key, struct: Struct) -> RowsObserver:
        """The observer of records alike."""
        if key not in self._observers:
            self._observers[key] = RowsObserver(struct, label_of(key), self._terms)
        return self._observers[key]

    def seen(self) -> Seen:
        """What was observed so far."""
        return Seen({key: (one.struct, one.result()) for key, one in self._observers.items()}, self.nulls)

    @no_search()
    def decoded(self, batch: pa.RecordBatch) -> tuple[list[Alike], list[Reject]]:
        """The records of a batch of Kafka's, by what they are; and what is none."""
        values, topics, partitions, offsets = (batch.column(i).to_pylist() for i in range(4))
        self.nulls += batch.column(0).null_count
        alike: dict[Key, Records] = defaultdict(lambda: ([], []))
        rejects: list[Reject] = []

        def origin(row: int) -> Origin:
            return Origin(topic=topics[row], partition=partitions[row], offset=offsets[row])

        for row, value in enumerate(values):
            if value is None:
                continue
            try:
                number, payload = framed(value)
                decoder = self._decoder(number)
                name, record = decoder.record(payload)
                if not decoder.nodes[name].nodes:
                    raise UnreadableError(f"{name} has no fields")
            except UnreadableError as error:
                rejects.append(Reject(origin(row), value, str(error)))
                continue
            places, records = alike[topics[row], number, name]
            places.append(row)
            records.append(record)
        some = [
            _some(key, self._decoder(key[1]).nodes[key[2]], records, places, origin)
            for key, (places, records) in alike.items()
        ]
        rejects += [Reject(origin(row), values[row], why) for one in some for row, why in one.wrong]
        if rejects:
            self.observer(_UNREADABLE, Struct(())).refused(rejects)
        return some, rejects

    def _decoder(self, number: int) -> Decoder:
        if number not in self._decoders:
            try:
                self._decoders[number] = self._wire.decoder(number)
            except UnreadableError as error:
                self._decoders[number] = error
        decoder = self._decoders[number]
        if isinstance(decoder, UnreadableError):
            raise decoder
        return decoder


def _some(
    key: Key,
    node: RecordNode,
    records: Sequence[Mapping[str, Any]],
    places: Sequence[int],
    origin: Callable[[int], Origin],
) -> Alike:
    arrays, wrong = _arrays(node, records)
    places, struct = [row for i, row in enumerate(places) if i not in wrong], node.struct
    batch = pa.RecordBatch.from_arrays(arrays, [f.name for f in struct.fields])
    rows = Rows(batch, key[0], origin=lambda number: origin(places[number]))
    return Alike(key, struct, rows, places, [(places[i], why) for i, why in wrong.items()])


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
