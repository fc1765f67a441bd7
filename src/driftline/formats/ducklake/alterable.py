"""One table of a DuckLake without Spark: loaded, altered, renamed by SQL on its catalog."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self

from driftline.core.schema.types import Schema
from driftline.errors import DataError, NeedsSpark, no_table
from driftline.formats.ducklake.alteration import DuckLakeAlteration
from driftline.formats.ducklake.catalog import CatalogDatabase, Connection, NoLakeError
from driftline.formats.ducklake.commit import landed, rename
from driftline.formats.ducklake.layout import CatalogLayout, layout
from driftline.formats.ducklake.rows import AUTHOR, CommitMessage
from driftline.formats.ducklake.snapshot import LakeState, load, split
from driftline.formats.ducklake.sorting import parts_of

if TYPE_CHECKING:
    from driftline.core.schema.definition import Definition
    from driftline.formats.ducklake.table import DuckLakeTable


class AlterableDuckLakeTable:
    """One table of one DuckLake, by ``name``, ``namespace.table``."""

    parts_of = staticmethod(parts_of)

    def __init__(self, catalog: CatalogDatabase, name: str) -> None:
        split(name)
        self.catalog = catalog
        self.name = name

    def with_rows(self) -> DuckLakeTable:
        """The table with its rows, which take Spark. Raises NeedsSpark."""
        raise NeedsSpark(self.name)

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

    def alteration(self) -> DuckLakeAlteration:
        """A change of the table's definition, from what it is now."""
        state, keys = (
            self.catalog.read(self.with_layout) if self.catalog.exists() else (self.load(), CatalogLayout())
        )
        if not state.exists:
            raise no_table(self.name)
        return DuckLakeAlteration(self, state, keys)

    def definition(self) -> Definition:
        """The table's present definition. Raises UsageError if there is no table."""
        return self.alteration().before

    def rename(self, name: str) -> None:
        """Rename the table to ``namespace.table``. Raises UsageError, DataError."""
        namespace, _ = split(name)
        if namespace != split(self.name)[0]:
            raise DataError(
                f"table {self.name} cannot be renamed to {name}: DuckLake moves no table to another namespace",
                hint="keep the namespace, and change the table's own name",
            )
        message = CommitMessage(AUTHOR, f"renames {self.name} to {name}", {})
        self.catalog.write(
            lambda connection: rename(connection, self.name, name, message), partial(landed, message=message)
        )

    def sibling(self, name: str) -> Self:
        """Another table of the same lake."""
        return type(self)(self.catalog, name)
