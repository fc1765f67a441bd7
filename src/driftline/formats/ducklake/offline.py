"""A DuckLake's tables, read from its catalog by DuckDB alone, for commands that only read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.formats.ducklake.snapshot import DELETES_OF, LIVE, latest, live, load
from driftline.formats.ducklake.table_statistics import table_statistics
from driftline.formats.ducklake.versions import versions_of

if TYPE_CHECKING:
    from driftline.core.columns.statistics import TableStatistics
    from driftline.core.history.entries import Versions
    from driftline.core.schema.types import Schema
    from driftline.formats.base import State
    from driftline.formats.ducklake.catalog import CatalogDatabase


@dataclass(frozen=True, slots=True)
class OfflineDuckLakeTable:
    """A table by its name, ``namespace.table``. Each read is a transaction of its own."""

    catalog: CatalogDatabase
    name: str

    @classmethod
    def of(cls, catalog: CatalogDatabase, name: str) -> OfflineDuckLakeTable | None:
        """The table; None if it does not exist."""
        table = cls(catalog, name)
        return table if catalog.exists() and table.load().exists else None

    def load(self) -> State:
        """The table's state."""
        return self.catalog.read(lambda connection: load(connection, self.name))

    def versions(self) -> Versions:
        """The known past of the table."""
        return self.catalog.read(lambda connection: versions_of(connection, self.name))

    def statistics(self, schema: Schema) -> TableStatistics:
        """The catalog's statistics for the columns of ``schema``."""
        return self.catalog.read(lambda connection: table_statistics(connection, self.name, schema))

    def beside(self, name: str) -> OfflineDuckLakeTable | None:
        """Another table of this lake; None if it does not exist."""
        return OfflineDuckLakeTable.of(self.catalog, name)


def tables(catalog: CatalogDatabase) -> list[tuple[str, str]]:
    """The tables of the lake, each with its namespace before it, without those of remembered deletes."""
    if not catalog.exists():
        return []
    snapshot = catalog.read(latest)
    return [
        (str(namespace), str(name))
        for namespace, name in catalog.read(
            lambda c: c.rows(
                "SELECT s.schema_name, t.table_name FROM meta.ducklake_table t JOIN meta.ducklake_schema s "
                f"ON s.schema_id = t.schema_id WHERE {live('t')} AND {live('s')} AND t.table_id NOT IN "
                f"(SELECT object_id FROM meta.ducklake_tag WHERE key = ? AND {LIVE}) ORDER BY 1, 2",
                [snapshot, snapshot, snapshot, snapshot, DELETES_OF, snapshot, snapshot],
            )
        )
    ]
