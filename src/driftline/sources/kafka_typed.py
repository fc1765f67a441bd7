"""Records of Kafka whose values are typed, each by the schema of a registry that it was written with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from driftline.convert import Converter
from driftline.convert.nodes import RecordNode
from driftline.core.planning.gc_pause import no_search
from driftline.core.planning.routes import Settings
from driftline.core.schema.place import Place
from driftline.core.schema.types import Schema, Struct
from driftline.observe.observation import Observation, merge_observations
from driftline.readers.columnar.rows import (
    FedRows,
    Rows,
    RowsObserver,
    admitted,
    has_required,
    rejects_of,
    table_rows,
    together,
)
from driftline.readers.decoders import Wire
from driftline.readers.rejects import Origin, Reject, reject_batch
from driftline.readers.task import TaskReader
from driftline.readers.terms import AdmissionTerms
from driftline.readers.wire import Payloads, UnreadableError, WireDecoder, framed
from driftline.sources.base import Source
from driftline.sources.kafka import METADATA_COLUMN, metadata_column, selected, with_metadata
from driftline.sources.scan import BatchScan, Observed
from driftline.write import FrameTasks, observed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    """A task's observations: the columns and contents of each kind of records, and a count of tombstones."""

    kinds: dict[Key, tuple[Struct, Observation]]
    tombstones: int


@dataclass(frozen=True, slots=True)
class Alike:
    """Records of one kind. ``places``: their rows in the batch of Kafka."""

    key: Key
    struct: Struct
    rows: Rows
    places: Sequence[int]


class KafkaValues:
    """In a task: decodes values, and observes them."""

    def __init__(self, wire: Wire, terms: AdmissionTerms) -> None:
        self._wire, self._terms = wire, terms
        self._decoders: dict[int, WireDecoder | UnreadableError] = {}
        self._observers: dict[Key, RowsObserver] = {}
        self.tombstones = 0

    def observer(self, key: Key, struct: Struct) -> RowsObserver:
        """The observer of records alike."""
        if key not in self._observers:
            self._observers[key] = RowsObserver(struct, label_of(key), self._terms)
        return self._observers[key]

    def seen(self) -> ObservedRecords:
        """The observations so far."""
        return ObservedRecords(
            {key: (one.struct, one.result()) for key, one in self._observers.items()}, self.tombstones
        )

    @no_search()
    def decoded(self, batch: pa.RecordBatch) -> tuple[list[Alike], list[Reject]]:
        """The records of a batch of Kafka's, by kind, and the rejects."""
        self.tombstones += batch.column(0).null_count
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
        """The records of these rows, read one by one, and the rejects."""
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
    """The name in reports of the records of one kind."""
    return f"{key[0]}, schema"


_HEADS = 100  # records that are looked at for a guess


def kafka_typed(frame: DataFrame, wire: Wire, metadata: bool = False) -> KafkaTyped:
    """A micro-batch with the columns of Spark's Kafka source.

    ``metadata``: these columns go along, as one, which the source fills itself.
    """
    columns = (METADATA_COLUMN,) if metadata else ()
    return KafkaTyped(frame=selected(frame, metadata), wire=wire, metadata=metadata, columns=columns)


@dataclass(frozen=True, kw_only=True)
class KafkaTyped(Source):
    """Values of Kafka with their places. ``frame``: the columns that tasks read; ``metadata``: with these."""

    frame: DataFrame
    wire: Wire
    metadata: bool = False
    in_order: bool = False  # values of one schema are converted together

    def open(self, schema: Schema, settings: Settings, before: BatchScan | None = None) -> KafkaScan:
        """Open the micro-batch for a table."""
        request = self.request(schema, settings)
        return KafkaScan(request, request.terms, self.frame, self.wire, self.metadata)


@dataclass(frozen=True, slots=True)
class KafkaScan(BatchScan):
    """A micro-batch of typed values."""

    frame: DataFrame
    wire: Wire
    metadata: bool

    def _tasks(self, conversion: Converter | None) -> FrameTasks:
        return FrameTasks([(self.frame, KafkaReader(self.wire, self.terms, conversion, self.metadata))])

    def _guess(self, last: Observation | None) -> Observed | None:
        """The observation of the table's last batch, or that of the first records.

        Returns None if the table has required columns.
        """
        if has_required(self.schema):
            return None
        if last is not None:
            return Observed(self, last)
        heads = FrameTasks([(self.frame.limit(_HEADS), KafkaReader(self.wire, self.terms))])
        return self._merged([result.observed for result in observed(heads)], converted=False)

    def _merged(self, parts: Sequence[ObservedRecords], *, converted: bool) -> Observed:
        return Observed(self, _together(parts, self.terms))


class ValueGroup(NamedTuple):
    """The records of a batch of Kafka by kind, and the rejects."""

    batch: pa.RecordBatch
    alike: Sequence[Alike]
    rejects: Sequence[Reject]


class AcceptedValues(NamedTuple):
    """The accepted records of a batch by kind, each with the rows that they are of."""

    batch: pa.RecordBatch
    alike: Sequence[tuple[Alike, FedRows]]


@dataclass(frozen=True, slots=True)
class KafkaReader(TaskReader["Iterator[pa.RecordBatch]", ValueGroup, AcceptedValues, ObservedRecords]):
    """Reads typed values of Kafka. ``metadata``: these go to the table's column for them."""

    wire: Wire
    terms: AdmissionTerms
    converter: Converter | None = None
    metadata: bool = False

    @property
    def converts(self) -> bool:
        """True if there is a plan."""
        return self.converter is not None

    def open(self, given: Iterator[pa.RecordBatch]) -> OpenValues:
        """Open the batches of one task."""
        return OpenValues(self, given)


class OpenValues:
    """The values of one task."""

    def __init__(self, reader: KafkaReader, batches: Iterable[pa.RecordBatch]) -> None:
        self._values, self._batches = KafkaValues(reader.wire, reader.terms), batches
        self._terms = reader.terms
        self._converter = converter = reader.converter
        self._own = metadata_column(converter.struct) if converter is not None and reader.metadata else None

    def groups(self) -> Iterator[ValueGroup]:
        """Read the values, batch by batch."""
        for batch in self._batches:
            yield ValueGroup(batch, *self._values.decoded(batch))

    def observe(
        self, group: ValueGroup, everything: str | None
    ) -> tuple[AcceptedValues, pa.RecordBatch | None]:
        """Observe the records of a batch that are accepted."""
        rejects, accepted = list(group.rejects), []
        for alike in group.alike:
            fed = self._values.observer(alike.key, alike.struct).feed(alike.rows)
            rejects += rejects_of(fed.rows, alike.struct, self._terms, everything)
            accepted.append((alike, fed))
        return AcceptedValues(group.batch, accepted), reject_batch(rejects) if rejects else None

    def convert(self, accepted: AcceptedValues) -> Iterator[pa.RecordBatch]:
        """Make rows of the records, with their metadata."""
        assert self._converter is not None
        for alike, fed in accepted.alike:
            if fed.accepted.num_rows:
                rows = table_rows(self._converter, [fed], alike.struct)
                yield self._completed(rows, accepted.batch, alike, fed)

    def observed(self) -> ObservedRecords:
        """The observations by kind."""
        return self._values.seen()

    def _completed(
        self, rows: pa.RecordBatch, batch: pa.RecordBatch, alike: Alike, fed: FedRows
    ) -> pa.RecordBatch:
        if self._own is None:
            return rows
        flags = admitted(fed.rows, alike.struct, self._terms)
        at: list[int] = np.asarray(alike.places)[flags].tolist()
        return with_metadata(rows, batch.column("metadata"), at, self._own)


def _together(parts: Sequence[ObservedRecords], terms: AdmissionTerms) -> Observation:
    """Merge the observations of tasks. Of schemas, the one with the lower id counts as the first."""
    kinds: dict[Key, tuple[Struct, list[Observation]]] = {}
    for part in parts:
        for key, (struct, seen) in part.kinds.items():
            kinds.setdefault(key, (struct, []))[1].append(seen)
    return merge_observations(
        together(some, struct, label_of(key), terms).placed(partial(_numbered, key))
        for key, (struct, some) in kinds.items()
    ).with_tombstones(sum(part.tombstones for part in parts))


def _numbered(key: Key, place: Place) -> Place:
    return replace(place, line=key[1]) if place.source == label_of(key) else place
