"""The versions of an Iceberg table, from its log of metadata files and the changes it remembers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

from driftline.core.history import entries
from driftline.core.history.entries import CHANGE_RECORD, Ids, Version, Versions
from driftline.core.schema.definition import Definition, known_by
from driftline.core.schema.schema_json import from_json
from driftline.core.schema.types import Schema
from driftline.formats.iceberg.definition import ids_of_json, of_json, partition_fields, sort_fields
from driftline.formats.iceberg.gateway import items, schema_of

Metadata: TypeAlias = Mapping[str, Any]
_At: TypeAlias = Callable[[int], Metadata | None]


def past(current: Metadata, read: Callable[[str], Metadata | None]) -> Versions:
    """The versions up to a table's ``current`` metadata, in their JSON form (Iceberg spec, "Table Metadata").

    ``read``: returns the JSON form of a metadata file, None if it is gone.
    """
    changes = changes_in_log(current, read)
    is_complete = not changes[0].get("metadata-log")
    parts = _Parts(changes)
    out: list[Version] = []
    properties: Mapping[str, str] = {}
    if not is_complete:
        out, is_complete = _remembered(changes[0], parts)
        properties = _properties(changes[0])
    last: object = None
    for before, metadata in zip([None, *changes], changes, strict=False):
        ids = ids_of_json(metadata), known_by(_properties(metadata))
        if ids != last or metadata is current:
            if out and before is not None:
                out[-1] = _until(out[-1], before)
            out.append(_version(metadata, properties))
        last, properties = ids, _properties(metadata)
    return Versions(tuple(out), parts.schemas, is_complete)


class _Parts:
    """The parts of definitions by id, gathered from several versions of a table's metadata."""

    def __init__(self, changes: Iterable[Metadata]) -> None:
        self.schemas: dict[int, Schema] = {}
        self._specs: dict[int, Any] = {}
        self._orders: dict[int, Any] = {}
        for metadata in changes:
            for schema in metadata["schemas"]:
                if schema["schema-id"] not in self.schemas:  # a wide one takes its time
                    self.schemas[schema["schema-id"]] = from_json(schema)
            self._specs |= {spec["spec-id"]: spec for spec in metadata["partition-specs"]}
            self._orders |= {order["order-id"]: order for order in metadata["sort-orders"]}

    def has(self, ids: Ids) -> bool:
        """True if all parts with these ids are known."""
        return ids.schema in self.schemas and ids.spec in self._specs and ids.order in self._orders

    def definition(self, ids: Ids, like: Metadata, properties: Mapping[str, str]) -> Definition:
        """Build the definition of these ids and ``properties``, else as ``like``."""
        return Definition(
            self.schemas[ids.schema],
            partition_fields(self._specs[ids.spec], like["format-version"]),
            sort_fields(self._orders[ids.order]),
            properties,
            like["format-version"],
            like["last-column-id"],
        )


def _remembered(oldest: Metadata, parts: _Parts) -> tuple[list[Version], bool]:
    """Build the versions up to the ``oldest`` one of the log, by the changes that the table remembers.

    Where two changes do not meet, others have changed the table in between. Also returns True if the first
    version is the table's very first.
    """
    out: list[Version] = []
    ids, properties = ids_of_json(oldest), _properties(oldest)

    def add(ids: Ids, change: entries.PastChange | None = None) -> None:
        """Append the version with these ids, which the ``change`` led to."""
        definition = parts.definition(ids, oldest, properties)
        arguments = (
            (change.at, definition, change.step.snapshot, change.record) if change else (None, definition)
        )
        out.append(Version(*arguments))

    for change in reversed(entries.last_changes(properties)):
        step = change.step
        if step.after != ids:
            add(ids)
        if not parts.has(step.after):
            break
        add(step.after, change)
        properties = change.properties_before(properties)
        if step.before is None:
            return out[::-1], True
        if not parts.has(step.before):
            break
        ids = step.before
    else:
        if out:
            add(ids)
    return out[::-1], False


def _version(metadata: Metadata, before: Mapping[str, str]) -> Version:
    """Return a version of the table. ``before``: the properties of the version right before it."""
    properties = _properties(metadata)
    made_by = entries.author_of(properties, before)
    return Version(metadata["last-updated-ms"], of_json(metadata), current_snapshot(metadata), made_by)


def current_snapshot(metadata: Metadata) -> int | None:
    """Return the id of the snapshot that a table has now."""
    snapshot: int | None = metadata.get("current-snapshot-id")
    return None if snapshot == -1 else snapshot


def _until(version: Version, last: Metadata) -> Version:
    """Return the version with the properties that it had in the end."""
    return replace(version, definition=replace(version.definition, properties=_properties(last)))


def _properties(metadata: Metadata) -> Mapping[str, str]:
    properties: Mapping[str, str] = metadata.get("properties", {})
    return properties


def schemas(jvm: Any, metadata: Any) -> dict[int, Schema]:
    """Return the schemas that a version of the table has, by id."""
    return {int(schema.schemaId()): schema_of(jvm, schema) for schema in items(metadata.schemas())}


def changes_in_log(current: Metadata, read: Callable[[str], Metadata | None]) -> list[Metadata]:
    """Return the oldest known metadata, those right before and after each change, and the ``current`` ones.

    A table that is fed every minute has a log of a hundred files, and few changes. A change that others made
    and took back shows only by a new schema, partition spec or sort order. ``read``: returns the JSON form of
    a file, None if it is gone; then all older files are gone, too.
    """
    files = [entry["metadata-file"] for entry in current.get("metadata-log", ())]
    last = len(files)

    @cache
    def at(place: int) -> Metadata | None:
        """Return the metadata file at a place of the log; None if it was cleaned away."""
        return current if place == last else read(files[place])

    first = _first(at, 0, last)
    while True:
        try:
            places = sorted({first, *_between(at, first, last), last})
        # Another process may clean the log meanwhile, from its oldest end.
        except _Gone as gone:
            first = _first(at, gone.place + 1, last)
        else:
            return [metadata for place in places if (metadata := at(place)) is not None]


class _Gone(Exception):
    def __init__(self, place: int) -> None:
        self.place = place


def _first(version_at: _At, low: int, high: int) -> int:
    """Return the first place from ``low`` on that is there, where the oldest are gone."""
    while version_at(low) is None:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if version_at(middle) is None else (low + 1, middle)
    return low


def _between(version_at: _At, old: int, new: int) -> Iterator[int]:
    if new - old < 2 or _state_of(version_at(old)) == _state_of(version_at(new)):
        return
    middle = (old + new) // 2
    if version_at(middle) is None:
        raise _Gone(middle)
    yield from _between(version_at, old, middle)
    yield middle
    yield from _between(version_at, middle, new)


def _state_of(metadata: Metadata | None) -> tuple[object, ...]:
    """Return the parts of metadata that differ before and after a change."""
    assert metadata is not None
    properties = metadata.get("properties", {})
    return (
        ids_of_json(metadata),
        max(s["schema-id"] for s in metadata["schemas"]),
        len(metadata["partition-specs"]),
        len(metadata["sort-orders"]),
        properties.get(entries.LAST_CHANGES),
        properties.get(CHANGE_RECORD),
    )
