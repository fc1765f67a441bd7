"""One Iceberg table by its name, loaded through Iceberg's own Java."""

from __future__ import annotations

from collections.abc import Callable
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
from driftline.formats.iceberg.offline import recovered
from driftline.formats.iceberg.relocating import displaced_lake
from driftline.runtime.disk import Bounds
from driftline.runtime.session import embedded_lake
from driftline.runtime.spark_conf import activate
from driftline.runtime.spark_version import java_type
from driftline.sql.quoting import name as quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_UNREAD = ("RuntimeIOException", "NotFoundException", "UncheckedIOException")
_OF_METADATA = "org.apache.iceberg.BaseMetadataTable"


class IcebergHandle:
    """One table of one catalog, existing or not: what its readers, alterations and transactions hold.

    Attributes:
        gateway: py4j's, to the Java that has the catalog.
        name: ``namespace.table``.
        lake: the folder of a lake with an embedded catalog.
        session: of Spark; None without Spark.
        catalog: the catalog's name in that session.
        dated_ahead: by metadata file, metadata that a wrong clock dated ahead, as they are in the file.
        ledger: the last ledger of source files that was read, with its path.
    """

    def __init__(
        self, gateway: Any, catalog_of: Callable[[], Any], name: str, lake: Path | None = None
    ) -> None:
        """Hold a table by its name.

        Args:
            gateway: py4j's, to the Java that has the catalog.
            catalog_of: returns Iceberg's object for the catalog.
            name: ``namespace.table``.
            lake: the folder of a lake with an embedded catalog.
        """
        self.gateway = gateway
        self.name = name
        self.lake = lake
        self.session: SparkSession | None = None
        self.catalog = ""
        self.jvm: Any = gateway.jvm
        parts = strings(gateway, table_parts(name))
        self.identifier: Any = java_type(self.jvm, "org.apache.iceberg.catalog.TableIdentifier").of(parts)
        self.dated_ahead: dict[str, Any] = {}
        self.ledger: tuple[str, dict[int, int]] = ("", {})
        self._catalog_of = catalog_of
        self._parsed: tuple[Any, Schema] | None = None
        self._was_missing = False  # when it was last loaded

    @classmethod
    def of(cls, spark: SparkSession, catalog: str, name: str) -> IcebergHandle:
        """Hold a table of a catalog of a Spark session."""
        context: Any = spark.sparkContext
        handle = cls(
            context._gateway,
            lambda: plugin_of(spark, catalog).icebergCatalog(),
            name,
            embedded_lake(spark, catalog),
        )
        handle.session, handle.catalog = spark, catalog
        return handle

    def other_table(self, name: str) -> IcebergHandle:
        """Return another table of the same catalog."""
        other = IcebergHandle(self.gateway, self._catalog_of, name, self.lake)
        other.session, other.catalog = self.session, self.catalog
        return other

    @property
    def spark(self) -> SparkSession:
        """The Spark session. Raises NeedsSpark if there is none."""
        if self.session is None:
            raise NeedsSpark(f"the rows of {self.name}")
        return self.session

    @property
    def full_name(self) -> str:
        """The name for Spark SQL, quoted."""
        return ".".join(map(quoted, (self.catalog, *self.name.split("."))))

    @property
    def plugin(self) -> Any:
        """Spark's object for the catalog. Raises SetupError if the catalog does not respond."""
        return plugin_of(self.spark, self.catalog)

    @property
    def java_catalog(self) -> Any:
        """Java's object for the catalog. Raises SetupError if the catalog does not respond."""
        return self._catalog_of()

    def java(self) -> Any:
        """Load Iceberg's own table; None if there is none."""
        try:
            # A question is cheap. An error of Java's takes many calls until PySpark has made it its own.
            if self._was_missing and not self._is_there():
                return None
            table = self.recovering(self._loaded)
            self._was_missing = False
        except Py4JJavaError as error:
            if "NoSuchTableException" in java_class(error) or "NoSuchNamespace" in java_class(error):
                self._was_missing = True
                return None
            elsewhere = None if self.lake is None else displaced_lake(self.lake)
            if elsewhere is not None:
                raise elsewhere.refusal() from error
            raise SetupError(f"table {self.name} cannot be loaded: {short(error)}") from error
        if self.name.count(".") > 1 and is_instance_of(self.gateway, table, _OF_METADATA):
            raise UsageError(
                f"{self.name} is metadata of {self.name.rpartition('.')[0]}, not a table of its own",
                hint="`driftline query` reads it",
            )
        return table

    def check_writable(self) -> None:
        """Raise UsageError if the lake is a copy of another, or was moved."""
        elsewhere = None if self.lake is None else displaced_lake(self.lake)
        if elsewhere is not None:
            raise elsewhere.refusal()

    def bounds(self, java: Any) -> Bounds:
        """Return the bounds of deletions: the folder of the embedded lake, else the table's own location."""
        return Bounds((str(self.lake or java.location()),))

    def _loaded(self) -> Any:
        with java_errors():
            table = self.java_catalog.loadTable(self.identifier)
            table.refresh()  # a catalog may cache
            return table

    def _is_there(self) -> bool:
        with java_errors():
            return bool(self.java_catalog.tableExists(self.identifier))

    def recovering(self, work: Callable[[], T]) -> T:
        """Do the work, again if a metadata file cannot be read and `recovered` has gone back from it."""
        try:
            return work()
        except Py4JJavaError as error:
            unread = java_class(error).endswith(_UNREAD)
            if not unread or self.lake is None or not recovered(self.lake, str(self.java_catalog.name())):
                raise
            return work()

    def existing(self) -> Any:
        """Load Iceberg's own table. Raises UsageError if there is none."""
        java = self.java()
        if java is None:
            raise no_table(self.name)
        return java

    def load(self) -> State:
        """Load the present state of the table; its schema is empty if it does not exist."""
        table = self.java()
        if table is None:
            return State(Schema(), {}, None, False)
        return self.state(table.operations().current())

    def state(self, metadata: Any) -> State:
        """Return the state of the table as Java's metadata have it."""
        snapshot = metadata.currentSnapshot()
        uuid, schema = str(metadata.uuid()), int(metadata.currentSchemaId())
        # To parse a schema of many columns takes long, and it rarely changes.
        if self._parsed is None or self._parsed[0] != (uuid, schema):
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
        """Return the metadata of a loaded Java table, in JSON form."""
        return metadata_json(self.jvm, java.operations().current())


def plugin_of(spark: SparkSession, catalog: str) -> Any:
    """Return Spark's object for a catalog. Raises SetupError if the catalog does not respond."""
    session: Any = spark._jsparkSession
    # What belongs to a session is looked up by the active one
    activate(spark)
    catalogs = session.sessionState().catalogManager()
    try:
        try:
            plugin = catalogs.catalog(catalog)
        except Exception:
            # JdbcCatalog adds a column to a new catalog without a lock: of two that do, one fails.
            plugin = catalogs.catalog(catalog)
        plugin.icebergCatalog()
    except Exception as error:
        raise SetupError(
            f"catalog {catalog!r} of this Spark session is not an Iceberg catalog, or does not respond: {short(error)}",
            hint=f"set spark.sql.catalog.{catalog} and its properties",
        ) from error
    return plugin
