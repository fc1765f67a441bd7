"""A shop that takes in its orders by driftline: what a program of somebody else's says, with all types checked."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession

from driftline import (
    PACKAGES,
    Batch,
    CaptureQuery,
    DataError,
    DriftlineError,
    History,
    Lake,
    Quarantine,
    Replay,
    Resolved,
    Result,
    Stats,
    Table,
    TableSchema,
    Undone,
    Verdict,
    View,
    prepare_environment,
)

LOG = logging.getLogger("shop")


@dataclass
class Order:
    """An order of the shop."""

    id: int


class Return(NamedTuple):
    """An order that came back."""

    id: int


class Refund(msgspec.Struct):
    """The money for it."""

    id: int


class Invoice:
    """A model as Pydantic's are."""

    def model_dump(self, *, mode: str = "python", exclude_none: bool = False) -> dict[str, Any]:
        """Its fields."""
        return {"id": 1, "mode": mode, "exclude_none": exclude_none}


def session(master: str, warehouse: Path) -> SparkSession:
    """A session of its own, with what driftline needs of Java."""
    prepare_environment()
    packages: Sequence[str] = PACKAGES
    builder: SparkSession.Builder = SparkSession.builder
    return (
        builder.master(master)
        .config("spark.jars.packages", ",".join(packages))
        .config("spark.sql.catalog.prod", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.prod.warehouse", str(warehouse))
        .getOrCreate()
    )


def lake_of(spark: SparkSession | None, folder: Path) -> Lake:
    """The shop's lake: on a session, or embedded."""
    return Lake.open(folder) if spark is None else Lake.attach(spark, catalog="prod")


def take(orders: Table, day: list[dict[str, Any]]) -> int:
    """Takes a day's orders; how many were set aside. What is wrong is said, and no order of the day is in."""
    try:
        result: Result = orders.ingest(day, policy="preserve", hints={"price": "double"})
    except DataError as error:
        LOG.exception("%s (%s)", error.message, error.hint or "no idea")
        raise
    report = result.to_dict()
    assert report["rows_read"] == result.rows_read
    return result.rows_quarantined


def take_all(orders: Table, folder: Path, frame: DataFrame) -> None:
    """Takes orders in every form that the shop has them."""

    def lines() -> Iterator[dict[str, int]]:
        """Orders one by one."""
        yield {"id": 1}

    orders.ingest(str(folder))
    orders.ingest(folder)
    orders.ingest([folder / "a.json", str(folder / "b.json")])
    with (folder / "a.json").open() as text, (folder / "b.json").open("rb") as data:
        orders.ingest(text)
        orders.ingest(data)
    orders.ingest(frame)
    orders.ingest(frame.collect())
    orders.ingest(lines())
    orders.ingest({"id": i} for i in range(3))
    for record in ({"id": 1}, Order(1), Return(1), Refund(1), Invoice()):
        orders.ingest(record)
    orders.ingest([Order(1), Order(2)])
    orders.ingest([Return(1), Refund(1), {"id": 1, "tags": ["x"]}], metadata="batch", exclude=["tags"])


def capture(orders: Table, folder: Path, seen: list[Batch]) -> None:
    """Takes what is new in a folder."""
    query: CaptureQuery = orders.capture(
        folder, name="orders", on_batch=seen.append, policy="widen", hints={"price": "double"}
    )
    query.awaitTermination()


def look(orders: Table) -> tuple[list[str], float]:
    """The fields that drifted, and how many values all columns have."""
    stats: Stats = orders.stats()
    history: History = orders.history()
    schema: TableSchema = orders.schema()
    assert schema.to_dict()["type"] == "struct"
    assert history.to_dict() is not None
    values = stats.to_dict()["columns"]
    return sorted(column["path"] for column in values), float(len(values))


def settle(orders: Table, field: str) -> DataFrame:
    """One column of a field that drifted."""
    view: View = orders.view(make=False)
    resolved: Resolved = orders.resolve(field, "string", dry_run=True)
    assert view.to_dict() is not None and resolved.to_dict() is not None
    return orders.read().select(field)


def totals(folder: Path) -> int:
    """The number of rows that have a total, by a lake that is closed after it."""
    with Lake.open(folder) as lake:
        rows = lake.table("shop.orders").to_polars(["id", "customer.zip"], where="total is not null")
    return rows.height


def mend(orders: Table, source: Path) -> bool:
    """Sends what waits through again, and whether all of the source is there then."""
    try:
        waiting: Quarantine = orders.quarantine()
        again: Replay = orders.replay()
    except DriftlineError:
        return False
    assert waiting.to_dict() is not None and again.to_dict() is not None
    verdict: Verdict = orders.verify(source)
    return verdict.ok


def regret(orders: Table) -> Undone:
    """Takes the last change of the schema back."""
    return orders.undo(yes=True)
