"""One Iceberg table as Iceberg's own Java alters and renames it, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from py4j.protocol import Py4JJavaError

from driftline.errors import DataError, NeedsSpark, no_table
from driftline.formats.iceberg.alteration import IcebergAlteration
from driftline.formats.iceberg.definition import definition
from driftline.formats.iceberg.gateway import java_class, short
from driftline.formats.iceberg.loader import IcebergLoader

if TYPE_CHECKING:
    from driftline.core.schema.definition import Definition
    from driftline.formats.base import CatalogTable


class AlterableIcebergTable(IcebergLoader):
    """One table of one catalog, with changes of its definition and its name."""

    parts_of = None  # an Iceberg table is sorted by no expressions

    def with_rows(self) -> CatalogTable:
        """The table with its rows, which take Spark. Raises NeedsSpark."""
        raise NeedsSpark(f"the rows of {self.name}")

    def definition(self) -> Definition:
        """The table's present definition. Raises UsageError if there is no table."""
        return definition(self.jvm, self.existing().operations().current())

    def alteration(self) -> IcebergAlteration:
        """A change of the table's present definition. Raises UsageError if there is no table."""
        return IcebergAlteration(self)

    def rename(self, name: str) -> None:
        """Rename the table to ``namespace.table``. Raises UsageError, DataError."""
        renamed, before = self.sibling(name), self.existing()
        try:
            self.java_catalog.renameTable(self.identifier, renamed.identifier)
        except Py4JJavaError as error:
            now = renamed.java()
            if now is not None and now.uuid() == before.uuid():  # its answer was lost
                return
            kind = java_class(error)
            if "NoSuchTable" in kind:
                raise no_table(self.name) from error
            if "AlreadyExists" in kind:
                raise DataError(f"there is a table {name} already") from error
            if "NoSuchNamespace" in kind:
                raise DataError(
                    f"table {self.name} cannot be renamed to {name}: there is no namespace {name.rpartition('.')[0]}",
                    "keep the namespace, or ingest a first table into the other, which creates it",
                ) from error
            raise DataError(f"table {self.name} cannot be renamed to {name}: {short(error)}") from error

    def sibling(self, name: str) -> Self:
        """Another table of the same catalog."""
        return type(self)(self.gateway, self._catalog_of, name)
