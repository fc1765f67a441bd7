"""Loads one Iceberg table through Iceberg's own Java, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError

from driftline.core.schema.naming import table_parts
from driftline.core.schema.types import Schema
from driftline.errors import NeedsSpark, SetupError, UsageError, no_table
from driftline.formats.base import State
from driftline.formats.iceberg.gateway import (
    java_class,
    java_errors,
    metadata_json,
    schema_of,
    short,
    strings,
    text_map,
)
from driftline.formats.iceberg.manifests import FileNulls, by_entries, entries_of, null_count
from driftline.formats.iceberg.offline import recovered
from driftline.formats.iceberg.relocating import displaced_lake
from driftline.runtime.disk import Bounds
from driftline.runtime.spark_version import java_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.core.changes import NullCount
    from driftline.core.schema.types import Field

T = TypeVar("T")

_UNREAD = ("RuntimeIOException", "NotFoundException", "UncheckedIOException")
_OF_METADATA = "org.apache.iceberg.BaseMetadataTable"


class IcebergLoader:
    """Loads one table of one catalog, by ``name``, ``namespace.table``.

    ``gateway``: py4j's, to the Java that has the catalog; ``catalog_of``: gives Iceberg's object for it;
    ``lake``: the folder of a lake with an embedded catalog.
    """

    def __init__(
        self, gateway: Any, catalog_of: Callable[[], Any], name: str, lake: Path | None = None
    ) -> None:
        self.gateway = gateway
        self.name = name
        self.lake = lake
        self.jvm: Any = gateway.jvm
        parts = strings(gateway, table_parts(name))
        self.identifier: Any = java_type(self.jvm, "org.apache.iceberg.catalog.TableIdentifier").of(parts)
        self._catalog_of = catalog_of
        # By metadata file: metadata that a wrong clock dated ahead, as they are in the file.
        self.dated_ahead: dict[str, Any] = {}
        self._parsed: tuple[Any, Schema] | None = None

    @property
    def java_catalog(self) -> Any:
        """Java's object for the catalog. Raises SetupError if the catalog does not respond."""
        return self._catalog_of()

    def java(self) -> Any:
        """Iceberg's own table, freshly loaded; None if there is none."""
        try:
            table = self.recovering(self._loaded)
        except Py4JJavaError as error:
            if "NoSuchTableException" in java_class(error) or "NoSuchNamespace" in java_class(error):
                return None
            elsewhere = None if self.lake is None else displaced_lake(self.lake)
            if elsewhere is not None:
                raise elsewhere.refusal() from error
            raise SetupError(f"table {self.name} cannot be loaded: {short(error)}") from error
        if self.name.count(".") > 1 and is_instance_of(self.gateway, table, _OF_METADATA):
            raise UsageError(
                f"{self.name} is what Iceberg tells of {self.name.rpartition('.')[0]}, no table of its own",
                hint="`driftline query` reads it",
            )
        return table

    def check_writable(self) -> None:
        """Raise UsageError if the lake is a copy of another, or was moved."""
        elsewhere = None if self.lake is None else displaced_lake(self.lake)
        if elsewhere is not None:
            raise elsewhere.refusal()

    def bounds(self, java: Any) -> Bounds:
        """The folder below which files that the table names may be deleted: the embedded lake's, else the
        table's own location.
        """
        return Bounds((str(self.lake or java.location()),))

    def _loaded(self) -> Any:
        with java_errors():
            table = self.java_catalog.loadTable(self.identifier)
            table.refresh()  # a catalog may cache
            return table

    def recovering(self, work: Callable[[], T]) -> T:
        """The result of work; where a metadata file cannot be read, once more after `recovered` has gone back
        from those that a power cut has left.
        """
        try:
            return work()
        except Py4JJavaError as error:
            unread = java_class(error).endswith(_UNREAD)
            if not unread or self.lake is None or not recovered(self.lake, str(self.java_catalog.name())):
                raise
            return work()

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
            self._parsed = (uuid, schema), schema_of(self.jvm, metadata.schema())
        return State(
            self._parsed[1],
            text_map(self.jvm, metadata.properties()),
            None if snapshot is None else int(snapshot.snapshotId()),
            True,
            uuid,
            int(metadata.lastColumnId()),
            str(metadata.metadataFileLocation()),
        )

    def metadata(self, java: Any) -> Any:
        """The metadata of a loaded Java table, in JSON form."""
        return metadata_json(self.jvm, java.operations().current())

    def nulls(self, java: Any, column: Field) -> NullCount:
        """The number of nulls in a column of the loaded table, over main and every other branch."""
        metadata = self.metadata(java)
        return null_count(metadata, column, lambda head: self.file_nulls(metadata, head, column.id))

    def file_nulls(self, metadata: Mapping[str, Any], snapshot: int, column: int) -> Iterable[FileNulls]:
        """The nulls of a column, by its id, in the data files of a snapshot of the table with this metadata.

        Raises NeedsSpark where only Spark reads the manifests.
        """
        try:
            return list(by_entries(entries_of(metadata, snapshot), column))
        except Exception as error:  # whatever is wrong with a file, Spark reports it
            raise NeedsSpark(f"the manifests of {self.name}") from error

    def read_as(self, java: Any, schema: Schema) -> DataFrame:
        """The rows as another Java table of the same files has them, of this schema. Raises NeedsSpark."""
        raise NeedsSpark(f"the rows of {self.name}")
