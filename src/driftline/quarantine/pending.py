"""A loaded quarantine: the records that wait, and those that can be replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from driftline.core.history.batch_properties import Token
from driftline.core.schema.types import Schema
from driftline.core.settings.condition import EXPECT
from driftline.core.settings.table import TableSettings
from driftline.formats.base import CatalogTable, State
from driftline.formats.commit import Retry, rewriting
from driftline.observe.json_lines import Why
from driftline.quarantine import table as quarantine
from driftline.quarantine.replays import REPLAY, last_replay, waits
from driftline.readers.deletes import NO_RECORD
from driftline.readers.json.rows import Run
from driftline.readers.kafka.keys import MessageTexts, with_keys, without_keys
from driftline.readers.rejects import Origin, Origins, Reject
from driftline.sources.scan import BatchScan, Source
from driftline.sources.texts import PlainTexts, TextScan
from driftline.sql.quoting import literal, name, spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# Text that is no JSON record stays so, whatever the table becomes.
_NO_COLUMNS = "'no columns yet'"
RECORDS = (
    f"(path is not null or reason in ({_NO_COLUMNS}, '{quarantine.AUDIT}', '{quarantine.TABLE}') "
    f"or startswith(reason, {literal(EXPECT)}))"
)


@dataclass(slots=True)
class Pending:
    """A quarantine as it was loaded.

    Attributes:
        table: the quarantine itself.
        state: its loaded state.
        reached: the last replay that the table has.
        open: batches of captures that are in quarantine, but not in the table yet.
    """

    table: CatalogTable
    state: State
    reached: int = 0
    open: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: CatalogTable) -> Pending | None:
        """Load the quarantine of a table; None if there is none."""
        quarantined = quarantine.of(table)
        state = quarantined.load()
        if not state.exists:
            return None
        pending, now = cls(quarantined, state), table.load()
        pending.reached = last_replay(state, now.properties)
        if now.exists:
            # The quarantine commits first, so a token that it has and the table lacks is a batch cut in
            # between.
            last = map(Token.of, state.properties.items())
            pending.open = tuple(token.batch for token in last if token and not token.reached(now.properties))
        return pending

    @property
    def waits(self) -> str:
        """SQL that is true of a row that still waits."""
        return waits(self.reached)

    @property
    def settled(self) -> str:
        """SQL that is true of a row whose batch has ended.

        A capture that died in its batch takes its rejects back and ingests the records again.
        """
        # Sent again here, such a record would come twice.
        if not self.open:
            return "true"
        listed = ", ".join(map(literal, self.open))
        return f"(batch not in ({listed}) or reason in ({_NO_COLUMNS}, '{quarantine.TABLE}'))"

    @property
    def ready(self) -> str:
        """SQL that is true of a row that is a record and may be replayed."""
        return f"{RECORDS} and {self.settled}"

    def left(self) -> tuple[int, int]:
        """The number that wait but are no records, and the number that are not ready."""
        stay, held = f"not {RECORDS}", f"{RECORDS} and not ({self.ready})"
        row = self.rows().where(self.waits).selectExpr(f"count_if({stay})", f"count_if({held})").head()
        assert row is not None
        return int(row[0]), int(row[1])

    def rows(self) -> DataFrame:
        """All rows of the quarantine."""
        return completed(self.table.read())

    def pending(self) -> list[int]:
        """The replays that the table has not, in their order."""
        rows = self.rows().where(f"{REPLAY} > {self.reached}").select(REPLAY).distinct().collect()
        return sorted(int(row[0]) for row in rows)

    def assign_replay(self, chosen: str, number: Callable[[int], str], retry: Retry) -> int:
        """Set the replay of chosen rows in one commit, and return their number.

        Args:
            chosen: SQL that is true of the rows.
            number: returns the SQL of the new value, given the last replay.
            retry: how long to wait for other writers.

        Raises:
            CommitConflict: other writers were faster for too long.
        """
        from pyspark.sql import functions as F

        with rewriting(self.table, self.state, retry) as rewrite:
            rows = completed(rewrite.rows)
            counts = rows.selectExpr(f"count_if({chosen})", f"max({REPLAY})").head()
            assert counts is not None
            if not counts[0]:
                return 0
            # A quarantine of an earlier version may lack the very column that is set here.
            rewrite.transaction.evolve(quarantine.missing(self.state.schema))
            # The quarantine may have lost numbers that the table knows, as when its rows were deleted; a
            # number that is given twice would make new rows count as replayed.
            value = number(max(self.reached, counts[1] or 0))
            ids = self.table.row_ids(chosen)

            def marked(rows: DataFrame) -> DataFrame:
                """The rows, with the value in those that are chosen."""
                rows = completed(rows).selectExpr("*", *ids)
                return rows.withColumn(REPLAY, F.expr(f"if({chosen}, {value}, {REPLAY})"))

            rewrite.replace(marked, {})
        return int(counts[0])


def completed(rows: DataFrame) -> DataFrame:
    """The rows of a quarantine; one of an earlier version gets the columns that it lacks, empty."""
    missing = [f for f in quarantine.SCHEMA.struct.fields if f.name not in rows.columns]
    added = [f"cast(null as {spark_type(f.type)}) as {name(f.name)}" for f in missing]
    return rows.selectExpr("*", *added) if added else rows


_PLACE = Origin._fields[:-1]
_KEY = "coalesce(key_bytes, cast(key as binary)) as key"


def quarantined(frame: DataFrame) -> QuarantinedRecords:
    """The rows of a quarantine whose ``raw`` is a record."""
    # In the order of their places: the observer begins again where a place comes before the last one.
    ordered = frame.selectExpr("raw", *_PLACE, _KEY).sortWithinPartitions(*_PLACE)
    return QuarantinedRecords(frame=ordered)


@dataclass(frozen=True, kw_only=True)
class QuarantinedRecords(Source):
    """The records of a quarantine.

    Attributes:
        frame: their texts and origins.
    """

    frame: DataFrame
    as_text: bool = True

    def open(self, schema: Schema, settings: TableSettings, before: BatchScan | None = None) -> TextScan:
        """Open the records for a table."""
        request, row_key = self.request(schema, settings), settings.row_key
        texts = _Raw() if row_key is None else _Raw(row_key.reads_messages, row_key.deletes_by_null)
        return TextScan(request, request.terms, self.frame, texts)


@dataclass(frozen=True, slots=True)
class _Raw(PlainTexts):
    """The texts of rejected records.

    Attributes:
        keys: messages of topics have their keys as a field, as when they were first read.
        nulls: their null values delete rows.
    """

    keys: bool = False
    nulls: bool = False

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The texts of a batch, in a run for each stretch of one original source."""
        texts, *places = (column.to_pylist() for column in batch.columns)
        raw = [None if text is None else text.encode() for text in texts]
        origins = [Origin(*place) for place in zip(*places, strict=True)]
        # `groupby` needs neighbours: the frame is sorted by place (see `quarantined`).
        for source, rows in groupby(range(len(raw)), lambda row: origins[row].location.source):
            numbers = list(rows)
            first, stop = numbers[0], numbers[-1] + 1
            some, some_origins = raw[first:stop], origins[first:stop]
            of_topic = some_origins[0].topic is not None
            messages = self._messages(some, some_origins) if of_topic else without_keys(some)
            lines = [text or NO_RECORD for text in messages.lines]  # each is a record, or refused again
            places = [origin.location.line for origin in some_origins]
            reject = partial(_reject, some, some_origins, messages)
            nulls = messages.nulls if of_topic else None
            positions = [origin.offset if of_topic else origin.line for origin in some_origins]
            yield Run(lines, source, places, reject, nulls, Origins(some_origins[0], positions))

    def _messages(self, raw: Sequence[bytes | None], origins: Sequence[Origin]) -> MessageTexts:
        """The texts of messages of a topic."""
        if not self.keys:
            return without_keys(raw)
        # `again`: a reject of a typed value has its key in the JSON already, and keeps it.
        return with_keys(raw, [origin.key for origin in origins], nulls=self.nulls, again=True)


def _reject(
    raw: Sequence[bytes | None], origins: Sequence[Origin], messages: MessageTexts, at: int, why: Why
) -> Reject:
    return Reject(origins[at], raw[at], messages.why(at, raw[at], why))
