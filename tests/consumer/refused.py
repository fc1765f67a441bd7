"""Calls that the types refuse: mypy reports an ignored error that is none."""

from __future__ import annotations

from driftline import Lake, Table


def not_records(orders: Table) -> None:
    """Passes what holds no records."""
    orders.ingest(3)  # type: ignore[arg-type]
    orders.ingest(None)  # type: ignore[arg-type]
    orders.ingest([1, 2])  # type: ignore[list-item]
    orders.verify(3)  # type: ignore[arg-type]


def not_settings(orders: Table) -> None:
    """Passes settings that are not there, or of the wrong type."""
    orders.ingest({"id": 1}, polcy="strict")  # type: ignore[call-arg]
    orders.ingest({"id": 1}, policy=3)  # type: ignore[arg-type]
    orders.ingest({"id": 1}, policy="strcit")  # type: ignore[arg-type]
    orders.ingest({"id": 1}, maps={"tags": "no"}, dates="never")  # type: ignore[dict-item, arg-type]
    orders.ingest("in.txt", format="jsonl")  # type: ignore[arg-type]
    orders.capture("kafka://broker/orders", name="orders", value_format="jsn")  # type: ignore[arg-type]
    orders.capture("in", name="orders", changed_files="never", resume_from="start")  # type: ignore[arg-type]
    orders.capture("in", name="orders", max_columns="many")  # type: ignore[arg-type]


def not_columns(lake: Lake) -> None:
    """Chooses columns by number."""
    lake.table("shop.orders").to_pandas([1])  # type: ignore[list-item]
