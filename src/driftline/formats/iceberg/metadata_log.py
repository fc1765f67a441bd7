"""A table's log of metadata files; only those right before and after a change are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

from driftline.core.changelog import last_changes, record
from driftline.formats.iceberg.definition import ids_of_json

Metadata: TypeAlias = Mapping[str, Any]
_At: TypeAlias = Callable[[int], Metadata | None]


def changes_in_log(current: Metadata, read: Callable[[str], Metadata | None]) -> list[Metadata]:
    """The oldest known metadata, those right before and after each change, and the ``current`` ones.

    A table that is fed every minute has a log of a hundred files, and few changes. A change that others made
    and took back shows only by a new schema, partition spec or sort order. ``read``: returns the JSON form of
    a file, None if it is gone; then all older files are gone, too.
    """
    files = [entry["metadata-file"] for entry in current.get("metadata-log", ())]
    last = len(files)

    @cache
    def at(place: int) -> Metadata | None:
        """The metadata file at a place of the log; None if it was cleaned away."""
        return current if place == last else read(files[place])

    first = _first(at, 0, last)
    while True:
        try:
            places = sorted({first, *_between(at, first, last), last})
        except _Gone as gone:
            first = _first(at, gone.place + 1, last)
        else:
            return [metadata for place in places if (metadata := at(place)) is not None]


class _Gone(Exception):
    def __init__(self, place: int) -> None:
        self.place = place


def _first(version_at: _At, low: int, high: int) -> int:
    """The first place from ``low`` on that is there, where the oldest are gone."""
    while version_at(low) is None:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if version_at(middle) is None else (low + 1, middle)
    return low


def _between(version_at: _At, old: int, new: int) -> Iterator[int]:
    if new - old < 2 or _mark(version_at(old)) == _mark(version_at(new)):
        return
    middle = (old + new) // 2
    if version_at(middle) is None:
        raise _Gone(middle)
    yield from _between(version_at, old, middle)
    yield middle
    yield from _between(version_at, middle, new)


def _mark(metadata: Metadata | None) -> tuple[object, ...]:
    """The parts of metadata that differ before and after a change."""
    assert metadata is not None
    properties = metadata.get("properties", {})
    return (
        ids_of_json(metadata),
        max(s["schema-id"] for s in metadata["schemas"]),
        len(metadata["partition-specs"]),
        len(metadata["sort-orders"]),
        properties.get(last_changes.PROPERTY),
        properties.get(record.PROPERTY),
    )
