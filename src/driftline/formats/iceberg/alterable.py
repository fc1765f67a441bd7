"""One Iceberg table as Iceberg's own Java has it, without Spark: loaded, altered, renamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError

from driftline.core.schema.table_name import table_parts
from driftline.core.schema.types import Schema
from driftline.errors import DataError, NeedsSpark, SetupError, UsageError, no_table
from driftline.formats.base import State
from driftline.formats.iceberg.alteration import IcebergAlteration
from driftline.formats.iceberg.definition import definition
from driftline.formats.iceberg.gateway import java_class, java_type, schema_of, short, strings, text_map

if TYPE_CHECKING:
    from driftline.core.schema.definition import Definition
    from driftline.formats.iceberg.table import IcebergTable

_OF_METADATA = "org.apache.iceberg.BaseMetadataTable"


class AlterableIcebergTable:
    """One table of one catalog, by ``name``, ``namespace.table``.

    ``gateway``: py4j's, to the Java that has the catalog; ``catalog_of``: gives Iceberg's object for it.
    """

    parts_of = None  # an Iceberg table is sorted by no expressions

    def __init__(self, gateway: Any, catalog_of: Callable[[], Any], name: str) -> None:
        self.gateway = gateway
        self.name = name
        self.jvm: Any = gateway.jvm
        parts = strings(gateway, table_parts(name))
        self.identifier: Any = java_type(self.jvm, "org.apache.iceberg.catalog.TableIdentifier").of(parts)
        self._catalog_of = catalog_of
        self._parsed: tuple[Any, Schema] | None = None

    @property
    def java_catalog(self) -> Any:
        """Java's object for the catalog. Raises SetupError if the catalog does not respond."""
        return self._catalog_of()

    def with_rows(self) -> IcebergTable:
        """The table with its rows, which take Spark. Raises NeedsSpark."""
        raise NeedsSpark(self.name)

    def java(self) -> Any:
        """Iceberg's own table, freshly loaded; None if there is none."""
        try:
            table = self.java_catalog.loadTable(self.identifier)
            table.refresh()  # a catalog may cache
        except Py4JJavaError as error:
            if "NoSuchTableException" in java_class(error) or "NoSuchNamespace" in java_class(error):
                return None
            raise SetupError(f"table {self.name} cannot be loaded: {short(error)}") from error
        if self.name.count(".") > 1 and is_instance_of(self.gateway, table, _OF_METADATA):
            raise UsageError(
                f"{self.name} is what Iceberg tells of {self.name.rpartition('.')[0]}, no table of its own",
                hint="`driftline query` reads it",
            )
        return table

    def existing(self) -> Any:
        """Iceberg's own table. Raises UsageError if there is none."""
        java = self.java()
        if java is None:
            raise no_table(self.name)
        return java

    def load(self) -> State:
        """The present state of the table; its schema is empty if it does not exist."""
        table = self.java()
        if table is None:
            return State(Schema(), {}, None, False)
        return self.state(table.operations().current())

    def state(self, metadata: Any) -> State:
        """The state of the table as Java's metadata have it."""
        snapshot = metadata.currentSnapshot()
        uuid, schema = str(metadata.uuid()), int(metadata.currentSchemaId())
        if self._parsed is None or self._parsed[0] != (uuid, schema):  # a wide one takes its time
            self._parsed = (uuid, schema), schema_of(self.jvm, metadata)
        return State(
            self._parsed[1],
            text_map(self.jvm, metadata.properties()),
            None if snapshot is None else int(snapshot.snapshotId()),
            True,
            uuid,
            int(metadata.lastColumnId()),
            str(metadata.metadataFileLocation()),
        )

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
            raise DataError(f"table {self.name} cannot be renamed to {name}: {short(error)}") from error

    def sibling(self, name: str) -> Self:
        """Another table of the same catalog."""
        return type(self)(self.gateway, self._catalog_of, name)
