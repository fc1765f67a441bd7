"""One table of a DuckLake, altered and renamed by SQL on its catalog, without Spark."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self

from driftline.errors import DataError, NeedsSpark, no_table
from driftline.formats.ducklake.alteration import DuckLakeAlteration
from driftline.formats.ducklake.commit import landed, rename
from driftline.formats.ducklake.layout import CatalogLayout
from driftline.formats.ducklake.loader import DuckLakeLoader
from driftline.formats.ducklake.rows import AUTHOR, CommitMessage
from driftline.formats.ducklake.snapshot import split
from driftline.formats.ducklake.sorting import parts_of

if TYPE_CHECKING:
    from driftline.core.schema.definition import Definition
    from driftline.formats.base import CatalogTable


class AlterableDuckLakeTable(DuckLakeLoader):
    """One table of one DuckLake, with changes of its definition and its name."""

    parts_of = staticmethod(parts_of)

    def with_rows(self) -> CatalogTable:
        """The table with its rows, which take Spark. Raises NeedsSpark."""
        raise NeedsSpark(f"the rows of {self.name}")

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
