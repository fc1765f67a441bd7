"""Sources of Kafka messages with typed values, by the schemas of a registry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from driftline.convert import Converter
from driftline.core.planning.own_columns import asks_for_place
from driftline.core.schema.types import Schema, SourceLocation, Struct
from driftline.core.settings.row_key import RowKey
from driftline.core.settings.table import PLACE, TableSettings
from driftline.core.support import gc_paused
from driftline.observe.observation import Observation, merge_observations
from driftline.readers.columnar.filled import FilledFields, cut, with_fields
from driftline.readers.columnar.rows import (
    FedRows,
    RowsObserver,
    admitted,
    has_required,
    table_rows,
    together,
)
from driftline.readers.columnar.split import read_resolved
from driftline.readers.deletes import DeleteFilter
from driftline.readers.json.rows import in_order
from driftline.readers.kafka.keys import NULL_VALUE, MessageKeys
from driftline.readers.kafka.values import Alike, RecordKind, Wire, WireValues, alike_of, origin_of
from driftline.readers.rejects import ORIGIN, Reject, reject_batch
from driftline.readers.task import AdmissionTerms, TaskReader
from driftline.sources.kafka import (
    METADATA_COLUMN,
    KafkaJson,
    kafka_json,
    metadata_column,
    selected,
    with_metadata,
)
from driftline.sources.scan import BatchScan, Observed, Source
from driftline.sources.texts import TextScan
from driftline.write import FrameTasks, observed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNREADABLE = RecordKind("", 0, "")


@dataclass(slots=True)
class ObservedRecords:
    """A task's observations: the columns and contents of each kind of records, and a count of tombstones."""

    kinds: dict[RecordKind, tuple[Struct, Observation]]
    tombstones: int


class KafkaValues:
    """In a task: decodes values, and observes them.

    Args:
        filled: the declared fields that count, by kind; None: all.
    """

    def __init__(
        self, wire: Wire, terms: AdmissionTerms, filled: Mapping[RecordKind, FilledFields] | None = None
    ) -> None:
        row_key = terms.settings.row_key
        self._filled = filled or {}
        self._values, self._terms = WireValues(wire), terms
        self._keys = MessageKeys(wire) if row_key is not None and row_key.reads_messages else None
        self._deletes = DeleteFilter.of(terms) if row_key is not None and row_key.deletes_by_null else None
        self._observers: dict[RecordKind, RowsObserver] = {}
        self.tombstones = 0

    def observer(self, key: RecordKind, struct: Struct) -> RowsObserver:
        """The observer of records alike."""
        if key not in self._observers:
            self._observers[key] = RowsObserver(struct, label_of(key), self._terms, null=key.null)
        return self._observers[key]

    def seen(self) -> ObservedRecords:
        """The observations so far."""
        return ObservedRecords(
            {key: (one.struct, one.result()) for key, one in self._observers.items()}, self.tombstones
        )

    @gc_paused()
    def decoded(self, batch: pa.RecordBatch) -> tuple[list[Alike], list[Reject]]:
        """The records of a batch of Kafka's, by kind, and the rejects."""
        values = batch.column(0)
        alike, unreadable = self._values.read(batch, values)
        alike = [_narrowed(some_alike, self._filled) for some_alike in alike]
        wrong = dict(unreadable)
        if self._keys is not None:
            alike, of_keys = self._keys.beside(alike, batch, nulls=self._deletes is not None)
            alike, of_nulls = self._deleting(alike, batch)
            wrong |= {**of_keys, **of_nulls}
        if self._deletes is None:
            self.tombstones += values.null_count
        rejects = [Reject(origin_of(batch, row), values[row].as_py(), why) for row, why in wrong.items()]
        # Counted under a kind without columns, as nobody knows what they were to be.
        if rejects:
            self.observer(_UNREADABLE, Struct(())).refused(rejects)
        return [*map(self._resolved, alike)], rejects

    def _resolved(self, alike: Alike) -> Alike:
        """Read the texts of fields that a person has folded into one type."""
        rows, struct = read_resolved(alike.rows, alike.struct, self._terms)
        return replace(alike, rows=rows, struct=struct)

    def _deleting(
        self, alike: Sequence[Alike], batch: pa.RecordBatch
    ) -> tuple[list[Alike], Mapping[int, str]]:
        """The records without null values that delete nothing, and the reasons of these, by row."""
        records: list[Alike] = []
        wrong: dict[int, str] = {}
        for some in alike:
            if not some.key.null:
                records.append(some)
                continue
            assert self._deletes is not None
            _, flags = self._deletes.of_message(null=True).rows(some.rows.batch, some.struct)
            arrays = some.rows.batch.filter(flags).columns
            places, deletes = np.asarray(some.places), flags.to_numpy(zero_copy_only=False)
            records.append(alike_of(some.key, some.struct, arrays, places[deletes].tolist(), batch))
            wrong |= dict.fromkeys(places[~deletes].tolist(), NULL_VALUE)
        return records, wrong


def _narrowed(alike: Alike, filled: Mapping[RecordKind, FilledFields]) -> Alike:
    """The records with those fields of their kind alone that count."""
    fields = filled.get(alike.key)
    if fields is None:
        return alike
    struct = with_fields(alike.struct, fields)
    arrays = [cut(alike.rows.batch.column(place), column) for place, column in fields]
    batch = pa.RecordBatch.from_arrays(arrays, [f.name for f in struct.fields])
    return replace(alike, struct=struct, rows=replace(alike.rows, batch=batch))


def label_of(key: RecordKind) -> str:
    """The name in reports of the records of one kind."""
    return f"{key.topic}, schema"


_HEADS = 100  # records that are looked at for a guess


def kafka_typed(frame: DataFrame, wire: Wire, metadata: bool = False) -> KafkaTyped:
    """A micro-batch with the columns of Spark's Kafka source.

    Args:
        metadata: these columns go along, as one, which the source fills itself.
    """
    columns = (METADATA_COLUMN,) if metadata else ()
    return KafkaTyped(frame=frame, wire=wire, metadata=metadata, columns=columns)


@dataclass(frozen=True, kw_only=True)
class KafkaTyped(Source):
    """Values of Kafka.

    Attributes:
        frame: with the columns of Spark's Kafka source.
        metadata: these go along.
    """

    frame: DataFrame
    wire: Wire
    metadata: bool = False

    @property
    def spark(self) -> SparkSession:
        """The session of the micro-batch."""
        return self.frame.sparkSession

    @property
    def messages(self) -> DataFrame:
        """The columns of the messages that any table may read."""
        return selected(self.frame, self.metadata, keys=True)

    def as_texts(self) -> KafkaJson:
        """The messages as texts, as those in an envelope are read."""
        return kafka_json(self.frame, self.metadata, wire=self.wire)

    def reads_messages(self, row_key: RowKey) -> bool:
        """True except for patches in Protobuf, whose texts cannot distinguish nulls."""
        return self.wire.format == "avro" or not row_key.patch

    def open(
        self, schema: Schema, settings: TableSettings, before: BatchScan | None = None
    ) -> KafkaScan | TextScan:
        """Open the micro-batch for a table. Messages in an envelope are read as texts."""
        row_key = settings.row_key
        if row_key is not None and row_key.envelope and self.reads_messages(row_key):
            return self.as_texts().open(schema, settings, before)
        request = self.request(schema, settings)
        keys = row_key is not None and row_key.reads_messages
        frame = selected(self.frame, self.metadata, keys)
        return KafkaScan(request, request.terms, frame, self.wire, self.metadata)


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
        return Observed(self, observed_together(parts, self.terms))


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
    """Reads typed values of Kafka.

    Attributes:
        metadata: these go to the table's column for them.
        filled: see `KafkaValues`.
    """

    wire: Wire
    terms: AdmissionTerms
    converter: Converter | None = None
    metadata: bool = False
    filled: Mapping[RecordKind, FilledFields] | None = None

    @property
    def converts(self) -> bool:
        """True if there is a plan."""
        return self.converter is not None

    def open(self, batches: Iterator[pa.RecordBatch]) -> OpenValues:
        """Open the batches of one task."""
        return OpenValues(self, batches)


class OpenValues:
    """The values of one task."""

    def __init__(self, reader: KafkaReader, batches: Iterable[pa.RecordBatch]) -> None:
        self._values, self._batches = KafkaValues(reader.wire, reader.terms, reader.filled), batches
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
            observer = self._values.observer(alike.key, alike.struct)
            fed = observer.feed(alike.rows)
            refused = observer.rejects(fed.rows, everything)
            # The value of such a message was null, and stays so in quarantine.
            rejects += (reject._replace(raw=None) for reject in refused) if alike.key.null else refused
            accepted.append((alike, fed))
        return AcceptedValues(group.batch, accepted), reject_batch(rejects) if rejects else None

    def convert(self, accepted: AcceptedValues) -> Iterator[pa.RecordBatch]:
        """Make rows of the records, with their metadata; of changes by key in the order of their offsets."""
        converted = self._converted(accepted)
        if self._terms.settings.row_key is not None:
            # Records are read kind by kind, but the later change of a row has to come later.
            converted = in_order(list(converted))
        return (rows for rows, _ in converted)

    def _converted(self, accepted: AcceptedValues) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
        """Rows of the table, kind by kind, with those of the batch that they are made of."""
        assert self._converter is not None
        for alike, fed in accepted.alike:
            if fed.accepted.num_rows:
                rows = table_rows(self._converter, [fed], alike.struct)
                flags = admitted(fed.rows, alike.struct, self._terms)
                at: list[int] = np.asarray(alike.places)[flags].tolist()
                if asks_for_place(self._terms.settings.metadata):
                    rows = rows.append_column(ORIGIN, _origins(accepted.batch, at))
                if self._own is not None:
                    rows = with_metadata(rows, accepted.batch.column("metadata"), at, self._own)
                yield rows, at

    def observed(self) -> ObservedRecords:
        """The observations by kind."""
        return self._values.seen()


def _origins(batch: pa.RecordBatch, at: Sequence[int]) -> pa.StructArray:
    """The origins of rows of a batch of Kafka."""
    places = batch.select([1, 2, 3]).take(pa.array(at, pa.int64()))
    names = pa.nulls(len(at), pa.string())
    topics, partitions, offsets = places.columns
    arrays = names, pa.nulls(len(at), pa.int64()), topics, partitions, offsets
    return pa.StructArray.from_arrays(list(arrays), list(PLACE))


def observed_together(parts: Sequence[ObservedRecords], terms: AdmissionTerms) -> Observation:
    """Merge the observations of tasks. Of schemas, the one with the lower id counts as the first."""
    kinds: dict[RecordKind, tuple[Struct, list[Observation]]] = {}
    for part in parts:
        for key, (struct, seen) in part.kinds.items():
            kinds.setdefault(key, (struct, []))[1].append(seen)
    return merge_observations(
        together(some, struct, label_of(key), terms).placed(partial(_numbered, key))
        for key, (struct, some) in kinds.items()
    ).with_tombstones(sum(part.tombstones for part in parts))


def _numbered(key: RecordKind, location: SourceLocation) -> SourceLocation:
    return replace(location, line=key.schema) if location.source == label_of(key) else location
