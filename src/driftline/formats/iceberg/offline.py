"""Reads a table of the embedded lake from its metadata files, without Java."""

from __future__ import annotations

import gzip
import json
import logging
import os
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from driftline.core.changes.defaults import defaults_of
from driftline.core.columns.statistics import TableStatistics
from driftline.core.history.entries import EXPIRING, LEDGER, Versions
from driftline.core.schema.schema_json import from_json
from driftline.core.schema.types import Schema
from driftline.errors import NeedsSpark
from driftline.formats.base import State
from driftline.formats.iceberg.definition import of_json
from driftline.formats.iceberg.manifests import ManifestEntry, known_entries, local_path
from driftline.formats.iceberg.relocating import CATALOG, catalog_errors, catalog_of
from driftline.formats.iceberg.seen import note_of, notes_of
from driftline.formats.iceberg.sizes import statistics_of
from driftline.formats.iceberg.versions import Metadata, current_snapshot, past

_LOCATION = """
select metadata_location from iceberg_tables
where catalog_name = ? and table_namespace = ? and table_name = ?
"""
_NAMES = "select table_namespace || '.' || table_name from iceberg_tables where catalog_name = ?"
_NO_VIEWS = " and coalesce(iceberg_type, 'TABLE') = 'TABLE'"
_MADE = "select 1 from sqlite_master where name = 'iceberg_tables'"  # Iceberg has opened the catalog once
_LOCATIONS = """
select table_namespace || '.' || table_name, metadata_location, previous_metadata_location from iceberg_tables
where catalog_name = ? and metadata_location is not null
"""
_BACK = """
update iceberg_tables set metadata_location = previous_metadata_location, previous_metadata_location = null
where catalog_name = ? and metadata_location = ?
"""
_GONE = "delete from iceberg_tables where catalog_name = ? and metadata_location = ?"
_BUSY = 20.0  # seconds to wait for a process that writes
_LOG = logging.getLogger("driftline")


class OfflineIcebergTable:
    """One table as it was when it was read. ``location``: of its metadata file."""

    def __init__(self, name: str, location: str, metadata: Metadata, lake: tuple[Path, str]) -> None:
        self.name = name
        self.location = location
        self._metadata, self._lake = metadata, lake

    @classmethod
    def of(cls, lake: Path, catalog: str, name: str) -> OfflineIcebergTable | None:
        """Return a table by ``namespace.table``; None if it does not exist, or is not on this machine."""
        try:
            location = located(lake, catalog, name)
            metadata = _read(location) if location else None
            # A power cut may have taken the newest version, and have left the one before.
            if location and metadata is None and recovered(lake, catalog):
                location = located(lake, catalog, name)
                metadata = _read(location) if location else None
        except sqlite3.Error:
            return None
        return None if metadata is None else cls(name, str(location), metadata, (lake, catalog))

    @property
    def metadata(self) -> Metadata:
        """The table's metadata file."""
        return self._metadata

    def load(self) -> State:
        """Return the table's state."""
        now = self._metadata
        defined = of_json(now)
        return State(
            defined.schema,
            defined.properties,
            current_snapshot(now),
            True,
            now["table-uuid"],
            defined.last_column,
            self.location,
        )

    def versions(self) -> Versions:
        """Return the versions of the table's definition."""
        return past(self._metadata, _read)

    def defaults(self) -> dict[int, frozenset[Any]]:
        """The known defaults that columns have had, by column id."""
        if self._metadata["format-version"] < 3:
            return {}
        return defaults_of(map(from_json, self._metadata["schemas"]))

    def statistics(self, schema: Schema, watched: frozenset[int] = frozenset()) -> TableStatistics | None:
        """The statistics of the columns from metadata, those ``watched`` by period, too.

        None if the manifests are too many, or unreadable.
        """
        entries = self.entries()
        if entries is None:
            return None
        note = note_of(self._metadata, self._read_beside)
        return statistics_of(self._metadata, entries, schema, watched, note)

    def _read_beside(self, name: str) -> bytes | None:
        """Read a file of this name next to the metadata; None if it is gone."""
        try:
            return local_path(self.location).with_name(name).read_bytes()
        except FileNotFoundError:
            return None

    def entries(self) -> list[ManifestEntry] | None:
        """List the files of the current snapshot, delete files too; None if too many or bad ones."""
        return known_entries(self._metadata)

    def beside(self, name: str) -> OfflineIcebergTable | None:
        """Another table of this lake; None if it does not exist. Raises NeedsSpark if Spark is to read it."""
        table = OfflineIcebergTable.of(*self._lake, name)
        if table is None:
            try:
                exists = located(*self._lake, name) is not None
            except sqlite3.Error as error:
                raise NeedsSpark("the catalog cannot be read") from error
            if exists:
                raise NeedsSpark(f"{name} is not on this machine")
        return table


def named_in(metadata: Metadata) -> set[str]:
    """Return the paths of the files that metadata name themselves, but for their own and the manifests."""
    properties = metadata.get("properties", {})
    paths = {entry["metadata-file"] for entry in metadata.get("metadata-log", ())}
    paths |= {s["manifest-list"] for s in metadata.get("snapshots", ()) if "manifest-list" in s}
    for kind in ("statistics", "partition-statistics"):
        paths |= {entry["statistics-path"] for entry in metadata.get(kind, ())}
    paths |= set(notes_of(metadata))
    return paths | {properties[key] for key in (LEDGER, EXPIRING) if key in properties}


def table_names(lake: Path, catalog: str, *, views: bool = True) -> list[str] | None:
    """Return the lake's tables, and ``views``, by ``namespace.table``; None if its catalog cannot be read."""
    names = _NAMES if views else _NAMES + _NO_VIEWS
    try:
        with closing(_opened(lake)) as database:
            return [name for (name,) in database.execute(names, (catalog,))]
    except sqlite3.Error:
        return None


def table_versions(lake: Path, catalog: str) -> dict[str, str]:
    """Return the metadata file of each table; nothing if the catalog cannot be read."""
    try:
        with closing(_opened(lake)) as database:
            tables = database.execute(_LOCATIONS + _NO_VIEWS, (catalog,))
            return {name: location for name, location, _ in tables}
    except sqlite3.Error:
        return {}


def recovered(lake: Path, catalog: str, moved: Callable[[str], str] = str) -> bool:
    """Go back to the metadata file before, for each table and view whose newest one a power cut took.

    Each commit syncs its metadata file before it is acknowledged, so whatever is lost was not acknowledged. A
    table that was being made is then not there. ``moved``: returns the path at which a file of the catalog
    lies now. False if there was nothing to go back from. Raises SetupError if the catalog cannot be read.
    """
    with catalog_errors(lake), catalog_of(lake) as connection:
        if not connection.execute(_MADE).fetchall():
            return False
        mended = [
            _gone_back(connection, catalog, name, (location, before), moved)
            for name, location, before in connection.execute(_LOCATIONS, (catalog,)).fetchall()
            if _is_cut(moved(location))
        ]
    return any(mended)


def _gone_back(
    connection: sqlite3.Connection,
    catalog: str,
    name: str,
    versions: tuple[str, str | None],
    moved: Callable[[str], str],
) -> bool:
    """Go back from a metadata file that is cut, or not there; False if there is nothing to go back to."""
    location, before = versions
    if before is None:
        path = local_path(moved(location))
        # A table that is being made has its folder on the disk before the catalog has its row. Without that
        # folder, or with another version in it, the file is elsewhere: a lake that was moved.
        if not path.exists() and (not path.parent.is_dir() or any(path.parent.glob("*.metadata.json"))):
            return False
        statement, now = _GONE, "which was being made, is not there"
    elif local_path(moved(before)).exists() and not _is_cut(moved(before)):
        statement, now = _BACK, f"is as in {before}, the one before it"
    else:
        return False
    # Only if the catalog still names that file: another process may have gone back by now, or committed.
    count = connection.execute(statement, (catalog, location)).rowcount
    if count:
        _LOG.warning("%s: %s is not whole, as after a power cut; the table %s", name, location, now)
    return bool(count)


def _is_cut(location: str) -> bool:
    """True if a metadata file of this machine is not there, or ends too early."""
    try:
        path = local_path(location)
        if ".gz" in path.suffixes:
            text = gzip.decompress(path.read_bytes())
        else:  # a cut takes the end, and wide tables have megabytes of it
            with path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                text = file.read()
    except (FileNotFoundError, EOFError, zlib.error, gzip.BadGzipFile):
        return True
    except (ValueError, OSError):  # it is in a store, or this user may not read it
        return False
    # A file whose length was on the disk, and whose bytes were not, reads as zeros.
    return b"\0" in text or not text.rstrip().endswith(b"}")


def _opened(lake: Path) -> sqlite3.Connection:
    """Return the lake's catalog, to be read."""
    uri = f"file:{quote(str(lake.resolve() / CATALOG))}?mode=ro"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY)


def located(lake: Path, catalog: str, name: str, *, views: bool = False) -> str | None:
    """Return the path of a table's metadata file, or of a view's; None if there is none of the name."""
    namespace, _, table = name.rpartition(".")
    statement = _LOCATION if views else _LOCATION + _NO_VIEWS
    with closing(_opened(lake)) as connection:
        row = connection.execute(statement, (catalog, namespace, table)).fetchone()
    return row[0] if row else None


def _read(location: str) -> Any:
    """Read a metadata file; None if it is gone or not of this machine, or older than schemas in tables."""
    try:
        path = local_path(location)
        text = path.read_bytes()
        metadata = json.loads(gzip.decompress(text) if ".gz" in path.suffixes else text)
    except (OSError, ValueError, EOFError):
        return None
    return (
        metadata
        if "schemas" in metadata and "partition-specs" in metadata and "sort-orders" in metadata
        else None
    )
