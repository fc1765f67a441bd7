"""Records of Kafka whose values are typed, each by the schema of a registry that it was written with."""

from __future__ import annotations

import pickle
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from driftline.convert import Converter, Lost
from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.routes import Conflict, Plan, Settings, lean
from driftline.core.schema.place import Place
from driftline.core.schema.types import Field, Schema, Struct
from driftline.observe.expect import ExpectedField, expect
from driftline.observe.observation import Observation, merge_observations
from driftline.runtime.spark_conf import FILES
from driftline.source.base import REJECTED
from driftline.source.column_rows import RowTerms, has_required, rejected_rows, together
from driftline.source.decoders import Wire
from driftline.source.kafka import METADATA_COLUMN, metadata_column, selected, with_metadata
from driftline.source.kafka_values import Alike, KafkaValues, Key, ObservedRecords, label_of
from driftline.source.likely import likely, remember
from driftline.source.rejects import reject_batch
from driftline.source.set_aside import Rejects
from driftline.write import FrameTasks, RowTasks, SetAside, observed_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_HEADS = 100  # records that are looked at for a guess


@dataclass(slots=True)
class KafkaTyped:
    """A micro-batch with the columns of Spark's Kafka source. ``metadata``: these go along, in one column."""

    source: DataFrame
    wire: Wire
    metadata: bool = False
    conflicts: tuple[Conflict, ...] = ()
    known: ExpectedField = field(default_factory=ExpectedField)
    asked: tuple[Schema, Settings] | None = None
    begun: FrameTasks | None = None
    tombstones: int = 0
    conf: Mapping[str, str] = field(default_factory=lambda: dict(FILES))

    @property
    def columns(self) -> tuple[Field, ...]:
        """What the source fills by itself."""
        return (METADATA_COLUMN,) if self.metadata else ()

    @property
    def frame(self) -> DataFrame:
        return selected(self.source, self.metadata)

    def guess(self, schema: Schema, settings: Settings) -> Observation | None:
        """What the last batch of the table was, or what the first records' schemas say."""
        self._ask(schema, settings)
        if has_required(schema):
            return None
        if (last := likely(schema, settings)) is not None:
            return last
        heads = _together(self._seen(self.frame.limit(_HEADS), settings), self._terms(settings))
        return heads if heads.tally.records else None

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        same = self.asked == (schema, settings) and not self.conflicts
        parts = observed_by(self.begun) if same else None
        if parts is None:
            self._ask(schema, settings)
            parts = self._seen(self.frame, settings)
        self.tombstones = sum(part.nulls for part in parts)
        whole = _together(parts, self._terms(settings))
        remember(schema, settings, whole)
        return whole

    def refuse(self, judge: AdmissionCheck, conflicts: Sequence[Conflict]) -> None:
        self.conflicts += tuple(conflicts)

    def tasks(self, plan: Plan, struct: Struct, settings: Settings) -> RowTasks:
        converter = Converter(struct, lean(plan.route), settings)
        own = metadata_column(struct) if self.metadata else None
        self.begun = FrameTasks([(self.frame, _TypedRows(self.wire, self._terms(settings), converter, own))])
        return self.begun

    def set_aside(self) -> Rejects | None:
        return None if self.begun is None else Rejects.of(self.begun)

    def rejected(self, everything: str | None = None) -> DataFrame:
        reject = partial(_rejected, self.wire, self._terms(Settings()), everything)
        return self.frame.mapInArrow(reject, REJECTED)

    def _terms(self, settings: Settings) -> RowTerms:
        return RowTerms(self.known, settings, self.conflicts)

    def _seen(self, frame: DataFrame, settings: Settings) -> list[ObservedRecords]:
        observe = partial(_observed, self.wire, self._terms(settings))
        rows = frame.mapInArrow(observe, "seen binary").collect()
        return [pickle.loads(row.seen) for row in rows]  # noqa: S301  our own bytes

    def _ask(self, schema: Schema, settings: Settings) -> None:
        self.known, self.asked, self.begun = expect(schema, settings), (schema, settings), None


@dataclass(frozen=True, slots=True)
class _TypedRows:
    """Makes rows of the table from values of Kafka. ``own``: the column that the metadata go to."""

    wire: Wire
    terms: RowTerms
    converter: Converter
    own: Field | None

    def rows(
        self, given: Iterator[pa.RecordBatch], set_aside: SetAside
    ) -> Generator[pa.RecordBatch, None, ObservedRecords]:
        values, taken = KafkaValues(self.wire, self.terms), True
        for batch in given:
            alike, rejects = values.decoded(batch)
            if rejects:
                set_aside(reject_batch(rejects))
            for some in alike:
                accepted = values.observer(some.key, some.struct).feed(some.rows)
                for refused in rejected_rows(some.rows, some.struct, self.terms, None):
                    set_aside(refused)
                if taken and accepted.num_rows:
                    try:
                        rows = self.converter.of_arrow(accepted, some.struct, json=False)
                    except Lost:  # the plan was a guess: what was observed leads to another one
                        taken = False
                    else:
                        yield self._completed(rows, batch, some)
        return values.seen()

    def _completed(self, rows: pa.RecordBatch, batch: pa.RecordBatch, some: Alike) -> pa.RecordBatch:
        if self.own is None:
            return rows
        at: list[int] = np.asarray(some.places)[self.terms.places(some.rows, some.struct)].tolist()
        return with_metadata(rows, batch.column("metadata"), at, self.own)


def _observed(wire: Wire, terms: RowTerms, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    values = KafkaValues(wire, terms)
    for batch in batches:
        for some in values.decoded(batch)[0]:
            values.observer(some.key, some.struct).feed(some.rows)
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(values.seen())], pa.binary())], ["seen"])


def _rejected(
    wire: Wire, terms: RowTerms, everything: str | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    values = KafkaValues(wire, terms)
    for batch in batches:
        alike, rejects = values.decoded(batch)
        if rejects:
            yield reject_batch(rejects)
        for some in alike:
            yield from rejected_rows(some.rows, some.struct, terms, everything)


def _together(parts: Iterable[ObservedRecords], terms: RowTerms) -> Observation:
    """One observation of what tasks saw. Of schemas, the one with the lower id came first."""
    kinds: dict[Key, tuple[Struct, list[Observation]]] = {}
    for part in parts:
        for key, (struct, seen) in part.kinds.items():
            kinds.setdefault(key, (struct, []))[1].append(seen)
    return merge_observations(
        together(some, struct, label_of(key), terms).placed(partial(_numbered, key))
        for key, (struct, some) in kinds.items()
    )


def _numbered(key: Key, place: Place) -> Place:
    return replace(place, line=key[1]) if place.source == label_of(key) else place
