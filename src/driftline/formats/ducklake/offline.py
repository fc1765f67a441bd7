"""A table of a DuckLake, read from its catalog by DuckDB alone, for commands that only read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.formats.ducklake.snapshot import load
from driftline.formats.ducklake.table_statistics import table_statistics
from driftline.formats.ducklake.versions import versions_of

if TYPE_CHECKING:
    from driftline.core.changelog.entries import Versions
    from driftline.core.columns.statistics import TableStatistics
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

    def rows_of(self, name: str) -> int | None:
        """The number of rows of another table of this lake, 0 if it does not exist; None if unknown."""
        other = OfflineDuckLakeTable(self.catalog, name)
        state = other.load()
        return other.statistics(state.schema).live if state.exists else 0
