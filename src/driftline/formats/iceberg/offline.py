"""A table of the embedded lake, read from its metadata files without Java, for commands that only read."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from driftline.core.changelog.entries import Versions
from driftline.core.columns.statistics import TableStatistics
from driftline.core.schema.types import Schema
from driftline.errors import NeedsSpark
from driftline.formats.base import State
from driftline.formats.iceberg.definition import of_json
from driftline.formats.iceberg.manifests import ManifestEntry, entries_of, local_path
from driftline.formats.iceberg.table_statistics import table_statistics
from driftline.formats.iceberg.versions import Metadata, current_snapshot, past

_TABLE = """
select metadata_location from iceberg_tables
where catalog_name = ? and table_namespace = ? and table_name = ? and coalesce(iceberg_type, 'TABLE') = 'TABLE'
"""
_NAMES = "select table_namespace || '.' || table_name from iceberg_tables where catalog_name = ?"
_NO_VIEWS = " and coalesce(iceberg_type, 'TABLE') = 'TABLE'"
_BUSY = 20.0  # seconds to wait for a process that writes


class OfflineIcebergTable:
    """One table as it was when it was read."""

    def __init__(self, name: str, location: str, metadata: Metadata, lake: tuple[Path, str]) -> None:
        self.name = name
        self._location, self._metadata, self._lake = location, metadata, lake

    @classmethod
    def of(cls, lake: Path, catalog: str, name: str) -> OfflineIcebergTable | None:
        """A table by ``namespace.table``; None if it does not exist, or is not on this machine."""
        try:
            location = _located(lake, catalog, name)
        except sqlite3.Error:
            return None
        metadata = _read(location) if location else None
        return None if metadata is None else cls(name, str(location), metadata, (lake, catalog))

    @property
    def metadata(self) -> Metadata:
        """The table's metadata file."""
        return self._metadata

    def load(self) -> State:
        """The table's state."""
        now = self._metadata
        defined = of_json(now)
        return State(
            defined.schema,
            defined.properties,
            current_snapshot(now),
            True,
            now["table-uuid"],
            defined.last_column,
            self._location,
        )

    def versions(self) -> Versions:
        """The versions of the table's definition."""
        return past(self._metadata, _read)

    def statistics(self, schema: Schema) -> TableStatistics | None:
        """The statistics of the columns from metadata; None if the manifests are too many, or unreadable."""
        entries = self.entries()
        if entries is None:
            return None
        return table_statistics(self._metadata, schema, lambda summation: summation.sums(entries))

    def entries(self) -> list[ManifestEntry] | None:
        """The files of the current snapshot, delete files too; None if there are too many manifests, or
        bad ones.
        """
        current = current_snapshot(self._metadata)
        try:
            return [] if current is None else list(entries_of(self._metadata, current))
        except Exception:  # whatever is wrong with a file, Spark reports it
            return None

    def beside(self, name: str) -> OfflineIcebergTable | None:
        """Another table of this lake; None if it does not exist. Raises NeedsSpark if Spark is to read it."""
        table = OfflineIcebergTable.of(*self._lake, name)
        if table is None:
            try:
                exists = _located(*self._lake, name) is not None
            except sqlite3.Error as error:
                raise NeedsSpark("the catalog cannot be read") from error
            if exists:
                raise NeedsSpark(f"{name} is not on this machine")
        return table


def table_names(lake: Path, catalog: str, *, views: bool = True) -> list[str] | None:
    """The lake's tables, and ``views``, by ``namespace.table``; None if its catalog cannot be read."""
    names = _NAMES if views else _NAMES + _NO_VIEWS
    try:
        with closing(_opened(lake)) as database:
            return [name for (name,) in database.execute(names, (catalog,))]
    except sqlite3.Error:
        return None


def _opened(lake: Path) -> sqlite3.Connection:
    """The lake's catalog, to be read."""
    uri = f"file:{quote(str(lake.resolve() / 'catalog.db'))}?mode=ro"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY)


def _located(lake: Path, catalog: str, name: str) -> str | None:
    """The path of a table's metadata file; None if there is no such table."""
    namespace, _, table = name.rpartition(".")
    with closing(_opened(lake)) as database:
        row = database.execute(_TABLE, (catalog, namespace, table)).fetchone()
    return row[0] if row else None


def _read(location: str) -> Any:
    """A metadata file; None where it is gone, or not of this machine, or of a
    form older than the table's schemas have.
    """
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
