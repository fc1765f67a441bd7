"""A table of the embedded lake as its metadata files tell, without Java: for commands that only look at its definition."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from driftline.formats.base import State
from driftline.formats.iceberg.definition import of_json
from driftline.formats.iceberg.versions import Metadata, Versions, current_snapshot, past

_TABLE = """
select metadata_location from iceberg_tables
where catalog_name = ? and table_namespace = ? and table_name = ? and coalesce(iceberg_type, 'TABLE') = 'TABLE'
"""
_BUSY = 20.0  # seconds to wait for a process that writes


class StillTable:
    """One table as it was when it was looked at."""

    def __init__(self, name: str, location: str, metadata: Metadata) -> None:
        self.name = name
        self._location, self._metadata = location, metadata

    @classmethod
    def of(cls, lake: Path, catalog: str, name: str) -> StillTable | None:
        """A table by ``namespace.table``; None where it is not to be had so: there is none, or not on this machine."""
        namespace, _, table = name.rpartition(".")
        uri = f"file:{quote(str(lake.resolve() / 'catalog.db'))}?mode=ro"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY)) as database:
                found = database.execute(_TABLE, (catalog, namespace, table)).fetchone()
        except sqlite3.Error:
            return None
        metadata = _read(found[0]) if found else None
        return None if metadata is None else cls(name, found[0], metadata)

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


def _read(location: str) -> Any:
    """A metadata file; None where it is gone, or not of this machine, or of a form older than the table's schemas have."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return None
    # Hadoop writes paths as they are, without escapes.
    path = Path(location.removeprefix("file:")) if parts.scheme else Path(location)
    try:
        text = path.read_bytes()
        found = json.loads(gzip.decompress(text) if ".gz" in path.suffixes else text)
    except (OSError, ValueError, EOFError):
        return None
    return found if "schemas" in found and "partition-specs" in found and "sort-orders" in found else None
