"""Deals messages of typed values by table, and tells which fields of their schemas each table has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from driftline.ingest.deal import HeldBatches, Share
from driftline.ingest.deal_messages import text_of_key
from driftline.ingest.deal_rows import Tables, texts_at
from driftline.ingest.pattern import TOPIC, Brace, Pattern, Values
from driftline.readers.columnar.filled import FilledFields, filled_fields, merged
from driftline.readers.envelopes.columns import key_texts_of
from driftline.readers.kafka.values import Alike, RecordKind, Wire, WireValues
from driftline.runtime.disk import Bounds, delete_file
from driftline.sources.kafka_typed import KafkaTyped
from driftline.tasks.written import batches_of, written_parts

Filled = Mapping[RecordKind, FilledFields]  # the fields that have values in one table, by kind


@dataclass(slots=True)
class TypedDeal:
    """Messages that were dealt.

    Attributes:
        shares: of the tables.
        filled: by table.
        nulls: the number of null values that name no table.
    """

    shares: dict[str, Share] = field(default_factory=dict)
    filled: dict[str, dict[RecordKind, FilledFields]] = field(default_factory=dict)
    nulls: int = 0

    def note(self, alike: Alike, values: Sequence[Values | None], named: Mapping[Values, str]) -> None:
        """Note the fields that have values among records of one kind, by their table."""
        places: dict[str, list[int]] = {}
        for place, row in enumerate(alike.places):
            of_row = values[row]
            assert of_row is not None  # as it is a record
            places.setdefault(named[of_row], []).append(place)
        for table, of_table in places.items():
            rows = alike.rows.batch.take(pa.array(of_table, pa.int64()))
            kinds = self.filled.setdefault(table, {})
            fields = filled_fields(alike.struct, [rows.columns])
            kinds[alike.key] = merged(alike.struct, kinds.get(alike.key, ()), fields)


def deal_typed(source: KafkaTyped, pattern: Pattern, tables: Tables, spool: Path) -> TypedDeal:
    """Deal messages of typed values into a ``spool`` file.

    Args:
        source: of the messages.
        pattern: of the tables.
        tables: the tables of values, which come in the order in which they are first seen.
        spool: the file; tasks write theirs beside it.
    """
    deal, reader = TypedDeal(), TypedMessageValues(pattern, source.wire)
    with ExitStack() as stack:
        batches = HeldBatches(spool, stack, deal.shares)
        for path in written_parts(source.messages, spool.parent):
            for batch in batches_of(path):
                alike, values = reader.read(batch)
                named = tables(list(dict.fromkeys(of_row for of_row in values if of_row is not None)))
                batches.add(batch, values, named)
                deal.nulls += values.count(None)
                for of_kind in alike:
                    deal.note(of_kind, values, named)
            delete_file(path, Bounds((str(spool.parent),)))
        batches.flush()
    return deal


class TypedMessageValues:
    """Reads the values of a pattern's braces from messages of typed values."""

    def __init__(self, pattern: Pattern, wire: Wire) -> None:
        self._pattern, self._wire, self._values = pattern, wire, WireValues(wire)
        places = range(len(pattern.braces))
        self._paths = [pattern.path(place) for place in places]
        self._in_key = [pattern.path_in_key(place) for place in places]
        self._of_table = {piece.number for piece in pattern.parts[-1] if isinstance(piece, Brace)}

    def read(self, batch: pa.RecordBatch) -> tuple[list[Alike], list[Values | None]]:
        """Return the records of a batch by kind, and the values of each message; None for a null without."""
        alike, _ = self._values.read(batch, batch.column(0))
        beside = self._beside(batch)
        values: list[Values | None] = [self._without_record(of_row) for of_row in beside]
        for row in batch.column(0).is_null().to_numpy(zero_copy_only=False).nonzero()[0].tolist():
            names = not any(self._paths) and self._pattern.names(beside[row])
            values[row] = beside[row] if names else None
        for of_kind in alike:
            texts = [
                [None] * len(of_kind.places)
                if path is None
                else texts_at(of_kind.struct, of_kind.rows.batch, path)
                for path in self._paths
            ]
            for row, of_record in zip(of_kind.places, zip(*texts, strict=True), strict=True):
                values[row] = tuple(
                    text if path is not None else beside_text
                    for path, text, beside_text in zip(self._paths, of_record, beside[row], strict=True)
                )
        return alike, values

    def _beside(self, batch: pa.RecordBatch) -> list[Values]:
        """For each message what its topic and key say; None for paths of its value."""
        topics, keys = batch.column("topic").to_pylist(), key_texts_of(self._wire, batch)[0]
        return [
            tuple(
                topic if brace == TOPIC else None if path is None or key is None else text_of_key(key, path)
                for brace, path in zip(self._pattern.braces, self._in_key, strict=True)
            )
            for topic, key in zip(topics, keys, strict=True)
        ]

    def _without_record(self, beside: Values) -> Values:
        """The values of a message that cannot be read, which name its namespace alone."""
        return tuple(None if number in self._of_table else text for number, text in enumerate(beside))
