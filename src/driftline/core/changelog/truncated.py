"""The last truncate of a table's source, kept as one of the table's properties, with the one before it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from driftline.core.schema.definition import TRUNCATED_PROPERTY


def place_of(properties: Mapping[str, str]) -> tuple[int, str]:
    """The epoch and the position of the last truncate; an empty one if the table knows of none."""
    epoch, position = json.loads(properties.get(TRUNCATED_PROPERTY, "{}")).get("place", (0, ""))
    return epoch, position


def by_batch(properties: Mapping[str, str], place: tuple[int, str], batch: str) -> dict[str, str]:
    """The property after a ``batch`` with a truncate at this place; ``properties``: those before it."""
    value = {"place": place, "batch": batch, "before": place_of(properties)}
    return {TRUNCATED_PROPERTY: json.dumps(value)}


def without_batch(properties: Mapping[str, str], batch: str) -> dict[str, str]:
    """The properties without the truncate of a ``batch`` that is taken back.

    >>> first = by_batch({}, (0, "0042"), "a")
    >>> place_of(without_batch(by_batch(first, (1, "0007"), "b"), "b"))
    (0, '0042')
    >>> without_batch(first, "a"), without_batch(first, "b") == first
    ({}, True)
    """
    last = json.loads(properties.get(TRUNCATED_PROPERTY, "{}"))
    if last.get("batch") != batch:
        return dict(properties)
    others = {key: value for key, value in properties.items() if key != TRUNCATED_PROPERTY}
    if not last["before"][1]:
        return others
    return {**others, TRUNCATED_PROPERTY: json.dumps({"place": last["before"]})}
