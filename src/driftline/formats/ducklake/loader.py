"""One table of a DuckLake as its catalog has it, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core.schema.types import Schema
from driftline.errors import NeedsSpark
from driftline.formats.ducklake.catalog import CatalogDatabase, Connection, NoLakeError
from driftline.formats.ducklake.catalog_layout import CatalogLayout, layout
from driftline.formats.ducklake.snapshot import LakeState, load, split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DuckLakeLoader:
    """Loads one table of one DuckLake, by ``name``, ``namespace.table``."""

    def __init__(self, catalog: CatalogDatabase, name: str) -> None:
        split(name)
        self.catalog = catalog
        self.name = name

    def load(self, snapshot: int | None = None) -> LakeState:
        """Load the table as it is now, or was at a snapshot; its schema is empty if it does not exist."""
        nothing = LakeState(Schema(), {}, None, False)
        if not self.catalog.exists():
            return nothing
        try:
            return self.catalog.read(lambda connection: load(connection, self.name, snapshot))
        except NoLakeError:
            if self.catalog.kind != "postgres":
                raise
            return nothing  # a database that is yet to become a lake

    def with_layout(self, connection: Connection) -> tuple[LakeState, CatalogLayout]:
        """The table as it is now, and the layout of its files."""
        state = load(connection, self.name)
        if state.table is None or state.snapshot is None:
            return state, CatalogLayout()
        return state, layout(connection, state.table.id, state.snapshot, state.schema)

    def read_as(self, schema: Schema) -> DataFrame:
        """The rows, as they would be with another schema. Raises NeedsSpark without Spark."""
        raise NeedsSpark(f"the rows of {self.name}")
