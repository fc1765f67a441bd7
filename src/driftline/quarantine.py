"""The quarantine of a table: a sibling table that keeps, whole, what could not be accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.core.types import BINARY, INT, LONG, STRING, TIMESTAMP, Field, Schema, Struct
from driftline.formats.iceberg import IcebergTable, Transaction
from driftline.source.base import REJECTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUFFIX = "__quarantine"

SCHEMA = Schema(
    Struct(
        (
            Field("raw", STRING, 1, doc="the record as it came; bytes that are not UTF-8 are escaped"),
            Field("raw_bytes", BINARY, 2, doc="the record's bytes, where they are not UTF-8"),
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
        )
    )
)


def of(table: IcebergTable) -> IcebergTable:
    """The quarantine that belongs to a table."""
    return IcebergTable(table.spark, table.catalog, table.name + SUFFIX)


@dataclass(frozen=True, slots=True)
class Staged:
    """Rejected records, written but not visible until `commit`. ``rows``: how many."""

    transaction: Transaction
    rows: int
    batch: str

    def commit(self) -> None:
        self.transaction.commit()

    def undo(self) -> None:
        """Takes them out again: the batch that they belong to has failed."""
        table = self.transaction.table
        if self.transaction.committed:
            table.spark.sql(f"delete from {table.full_name} where batch = '{self.batch}'")
        else:
            self.transaction.abandon()


def stage(table: IcebergTable, rejected: DataFrame, batch: str) -> Staged:
    """Writes rejected records into the table's quarantine."""
    from pyspark.sql import functions as F

    quarantine = of(table)
    transaction = quarantine.transaction(quarantine.load(), SCHEMA)
    rows = rejected.select(
        *(column.split()[0] for column in REJECTED.split(", ")),
        F.lit(batch).alias("batch"),
        F.current_timestamp().alias("quarantined_at"),
    )
    return Staged(transaction, transaction.append(rows, {"driftline.batch": batch}), batch)
