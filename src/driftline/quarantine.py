"""The quarantine of a table: a sibling table that keeps, whole, what could not be accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core.types import BINARY, LONG, STRING, TIMESTAMP, Field, Schema, Struct
from driftline.formats.iceberg import IcebergTable, Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUFFIX = "__quarantine"

SCHEMA = Schema(
    Struct(
        (
            Field("raw", STRING, 1, doc="the record as it came; bytes that are not UTF-8 are escaped"),
            Field("raw_bytes", BINARY, 2, doc="the record's bytes, where they are not UTF-8"),
            Field("reason", STRING, 3),
            Field("source", STRING, 4, doc="the file or topic"),
            Field("line", LONG, 5, doc="the line of the file, from 1"),
            Field("batch", STRING, 6),
            Field("quarantined_at", TIMESTAMP, 7),
        )
    )
)


def of(table: IcebergTable) -> IcebergTable:
    """The quarantine that belongs to a table."""
    return IcebergTable(table.spark, table.catalog, table.name + SUFFIX)


def stage(table: IcebergTable, rejected: DataFrame, batch: str) -> tuple[Transaction, int]:
    """Writes rejected records into the table's quarantine; visible once the transaction commits."""
    from pyspark.sql import functions as F

    quarantine = of(table)
    state = quarantine.load()
    transaction = quarantine.transaction(state, SCHEMA)
    rows = rejected.select(
        *("raw", "raw_bytes", "reason", "source", "line"),
        F.lit(batch).alias("batch"),
        F.current_timestamp().alias("quarantined_at"),
    )
    return transaction, transaction.append(rows, {"driftline.batch": batch})
