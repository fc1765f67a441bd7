"""The last truncate of a table's source, kept as one of the table's properties, with the one before it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from driftline.core.schema.definition import TRUNCATED_PROPERTY


def position_of(properties: Mapping[str, str]) -> str:
    """The position of the last truncate; empty if the table knows of none."""
    position: str = json.loads(properties.get(TRUNCATED_PROPERTY, "{}")).get("position", "")
    return position


def by_batch(properties: Mapping[str, str], position: str, batch: str) -> dict[str, str]:
    """The property after a ``batch`` with a truncate at this position; ``properties``: those before it."""
    value = {"position": position, "batch": batch, "before": position_of(properties)}
    return {TRUNCATED_PROPERTY: json.dumps(value)}


def without_batch(properties: Mapping[str, str], batch: str) -> dict[str, str]:
    """The properties without the truncate of a ``batch`` that is taken back.

    >>> first = by_batch({}, "0042", "a")
    >>> position_of(without_batch(by_batch(first, "0050", "b"), "b"))
    '0042'
    >>> without_batch(first, "a"), without_batch(first, "b") == first
    ({}, True)
    """
    last = json.loads(properties.get(TRUNCATED_PROPERTY, "{}"))
    if last.get("batch") != batch:
        return dict(properties)
    others = {key: value for key, value in properties.items() if key != TRUNCATED_PROPERTY}
    before = {"position": last["before"]}
    return {**others, TRUNCATED_PROPERTY: json.dumps(before)} if last["before"] else others
