"""Names of tables, as a person writes them: ``namespace.table``, the namespace of one part or more."""

from __future__ import annotations

import re

from driftline.errors import UsageError

# Behind a table's name: its quarantine,
QUARANTINE = "__quarantine"
VIEW_SUFFIX = "_settled"  # and its view, if it has no other name

# What Iceberg's Spark catalog takes, behind a table's name, for a part of its history.
_SELECTORS = {
    "branch": re.compile(r"branch_(.*)", re.DOTALL),
    "tag": re.compile(r"tag_(.*)", re.DOTALL),
    "time": re.compile(r"at_timestamp_(\d+)"),
    "snapshot": re.compile(r"snapshot_id_(\d+)"),
}


def must_take_records(name: str) -> None:
    """Raise UsageError for a quarantine: what it holds comes with the records of its table."""
    table = name.removesuffix(QUARANTINE)
    if table != name:
        raise UsageError(f"{name} is the quarantine of {table}", hint=f"ingest into {table}")


def table_parts(name: str, *, two: bool = False) -> list[str]:
    """The parts of a table's name. ``two``: the namespace has one part only.

    >>> table_parts("shop.eu.orders")
    ['shop', 'eu', 'orders']

    Raises UsageError for what names no table, or a part of one's history.
    """
    parts = name.split(".")
    if len(parts) < 2 or not all(part.strip() and part.isprintable() for part in parts):
        raise UsageError(f"{name!r} is not a table name", hint="use namespace.table, as in shop.orders")
    if two and len(parts) > 2:
        raise UsageError(
            f"{name!r} is not a DuckLake table name", hint="use namespace.table, as in shop.orders"
        )
    table = ".".join(parts[:-1])
    for selector, pattern in _SELECTORS.items():
        if len(parts) > 2 and (match := pattern.fullmatch(parts[-1])):
            raise UsageError(
                f"{name!r} is not a table name: to Spark it is the {selector} {match[1]!r} of {table}",
                hint=f"write {table}; driftline writes tables as they are now, not their branches",
            )
    return parts
