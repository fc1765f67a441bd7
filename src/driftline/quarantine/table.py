"""The quarantine of a table: a sibling table that keeps rejected records whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from driftline.core.changes import AddColumn
from driftline.core.history.batch_properties import FEED, Token
from driftline.core.schema.naming import QUARANTINE
from driftline.core.schema.types import BINARY, INT, LONG, STRING, TIMESTAMP, Field, Schema, Struct
from driftline.formats.base import CatalogTable, State, Transaction
from driftline.formats.commit import Retry, commit
from driftline.quarantine.replays import REPLAY
from driftline.readers.rejects import REJECTED, Rejects
from driftline.write import folder_of_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TableT = TypeVar("TableT", bound=CatalogTable)

AUDIT = "audit"  # the reason of records whose batch failed its audit
TABLE = "table"  # the reason of records whose table could not take them

SCHEMA = Schema(
    Struct(
        (
            Field("raw", STRING, 1, doc="the record as it came; bytes that are not UTF-8 are escaped"),
            Field("raw_bytes", BINARY, 2, doc="the record's bytes, where they are no text"),
            Field("reason", STRING, 3),
            Field("path", STRING, 4, doc="the field that does not fit"),
            Field("table_type", STRING, 5, doc="the type that the table has there"),
            Field("incoming_type", STRING, 6, doc="the type that came"),
            Field("source", STRING, 7, doc="the file"),
            Field("line", LONG, 8, doc="the line of the file, from 1"),
            Field("topic", STRING, 9),
            Field("partition", INT, 10),
            Field("offset", LONG, 11),
            Field("batch", STRING, 12),
            Field("quarantined_at", TIMESTAMP, 13),
            Field(REPLAY, LONG, 14, doc="the replay that took it into the table; 0: discarded"),
            # `raw` is the value as it came, and null for a null value, so the key needs a column.
            Field("key", STRING, 15, doc="the key of its message, where the table reads it"),
            Field("key_bytes", BINARY, 16, doc="the key's bytes, where they are no text"),
        )
    )
)


def of(table: TableT) -> TableT:
    """Return the quarantine that belongs to a table."""
    return table.other_table(table.name + QUARANTINE)


def with_feed(table: CatalogTable, state: State) -> State:
    """Give a table that does not exist yet the properties that waiting batches have left for it."""
    if state.exists:
        return state
    # A first batch that is refused whole makes no table, so its settings wait with its records.
    kept = of(table).load().properties.get(FEED)
    return state if kept is None else replace(state, properties=json.loads(kept))


@dataclass(frozen=True, slots=True)
class Staged:
    """Rejected records, written but invisible until `commit`.

    Attributes:
        rows: their number.
    """

    table: CatalogTable
    transaction: Transaction
    rows: int
    batch: str

    def commit(self, retry: Retry) -> None:
        """Make the rows visible in the quarantine, after other writers."""
        commit(self.transaction, self.table.load, retry)

    def rebase(self) -> None:
        """Have the rows fit the quarantine as it is now. Raises as `UpkeepTransaction.rebase`."""
        self.transaction.rebase(self.table.load())

    def undo(self) -> None:
        """Remove the rows again, because their batch failed."""
        if not self.transaction.visible:
            self.transaction.abandon()
        # The quarantine has changed since, so the snapshot cannot go; the rows go by their batch.
        elif not self.transaction.undo():
            self.table.delete("batch", self.batch)

    def withdraw(self, *, tried: bool) -> None:
        """Remove this process's rejects, because another process ingested the batch with rejects of its own.

        Args:
            tried: this process took the other's rejects for those of an earlier attempt and replaced them, so
                its own rejects stay.
        """
        if not self.transaction.visible:
            self.transaction.abandon()
        elif not tried:
            self.transaction.undo()  # where the files are gone, the other process has taken them for those of a try


def stage(
    table: CatalogTable,
    rejected: Rejects | DataFrame,
    batch: str,
    token: Token | None = None,
) -> Staged:
    """Write rejected records into the table's quarantine."""
    quarantine = of(table)
    state = quarantine.load()
    transaction = quarantine.transaction(state, replace(quarantine.blank, schema=SCHEMA))
    if state.exists:
        transaction.evolve(missing(state.schema))
    constants = {"batch": batch, "quarantined_at": datetime.now(UTC)}
    summary = {"driftline.batch": batch}
    if isinstance(rejected, Rejects):
        tasks = rejected.tasks(table.spark, transaction.row_type, constants)
        with folder_of_batch(table.spark, transaction) as folder:
            written = transaction.write(tasks, folder, summary)
    else:
        written = transaction.append(_rows(rejected, constants), summary)
    if token is not None:
        # In the commit of the rejects: an attempt after a crash finds by it what to take back (`forget`).
        transaction.set(token.properties)
    return Staged(quarantine, transaction, written, batch)


def _rows(rejected: DataFrame, constants: Mapping[str, Any]) -> DataFrame:
    from pyspark.sql import functions as F

    return rejected.select(
        *(column.split()[0] for column in REJECTED.split(", ")),
        *(F.lit(value).alias(column) for column, value in constants.items()),
        F.lit(None).cast("bigint").alias(REPLAY),
    )


def forget(table: CatalogTable, token: Token) -> bool:
    """Delete what an earlier attempt at a micro-batch left; returns False if there was nothing."""
    quarantine = of(table)
    state = quarantine.load()
    if not (state.exists and token.reached(state.properties)):
        return False
    quarantine.delete("batch", token.batch)
    return True


def missing(schema: Schema) -> list[AddColumn]:
    """Return the columns missing from a quarantine created by an earlier version."""
    has = {column.name for column in schema.struct.fields}
    return [AddColumn((), column) for column in SCHEMA.struct.fields if column.name not in has]
