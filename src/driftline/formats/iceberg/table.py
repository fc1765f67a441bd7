"""Iceberg tables through a Spark session's own catalog."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, UnsupportedOperationException

from driftline.core.changelog.record import LEDGER
from driftline.core.changes.defaults import defaults_of
from driftline.core.changes.evolve import VERSION
from driftline.core.schema.definition import Definition
from driftline.core.schema.schema_json import to_json
from driftline.core.schema.table_name import table_parts
from driftline.core.schema.types import Primitive, Schema
from driftline.errors import DataError, SetupError, UsageError, no_table
from driftline.formats.base import CommitConflict, State
from driftline.formats.iceberg.alteration import IcebergAlteration, rename_table
from driftline.formats.iceberg.committing import begin
from driftline.formats.iceberg.definition import definition, order_json, spec_json
from driftline.formats.iceberg.gateway import (
    failure,
    items,
    java_class,
    java_type,
    schema_of,
    short,
    strings,
    text_map,
)
from driftline.formats.iceberg.ledger import read_ledger, undone
from driftline.formats.iceberg.metrics import metrics_of_all
from driftline.formats.iceberg.spark_writer import COMMITTED_IN, ROW_ID
from driftline.formats.iceberg.table_statistics import table_statistics
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.formats.iceberg.unread import fillable, partial, readable, unreadable
from driftline.formats.iceberg.versions import branches, laid, schemas, snapshots, versions
from driftline.runtime.spark_conf import activate
from driftline.sql.quoting import literal
from driftline.sql.quoting import name as quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.core.changelog.entries import Snapshot, Versions
    from driftline.core.columns.statistics import TableStatistics
    from driftline.core.schema.partitioning import Laid

# With these set, Iceberg writes rows that are not visible yet, to be audited first.
_UNSEEN = ("spark.wap.id", "spark.wap.branch")

_WITH_ROW_IDS = 3  # the format version

_OF_METADATA = "org.apache.iceberg.BaseMetadataTable"
_NEW_TABLE = {
    "write.parquet.compression-codec": "zstd",
    # The table remembers its changes; the files of old versions would only pile up.
    "write.metadata.delete-after-commit.enabled": "true",
}


class IcebergTable:
    """One table of one catalog, by ``name``, ``namespace.table``; nothing is created before a commit."""

    blank = Definition(format_version=2)
    parts_of = None  # an Iceberg table is sorted by no expressions

    def __init__(self, spark: SparkSession, catalog: str, name: str) -> None:
        self.spark = spark
        self.catalog = catalog
        self.name = name
        parts = table_parts(name)
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._identifier: Any = java_type(jvm, "org.apache.iceberg.catalog.TableIdentifier").of(
            strings(spark, parts)
        )
        self._parsed: tuple[Any, Schema] | None = None
        self._ledger: tuple[str, dict[int, int]] = ("", {})

    @property
    def full_name(self) -> str:
        """The name for Spark SQL, quoted."""
        return ".".join(f"`{part.replace('`', '``')}`" for part in [self.catalog, *self.name.split(".")])

    @property
    def plugin(self) -> Any:
        """Spark's object for the catalog. Raises SetupError if the catalog does not answer."""
        session: Any = self.spark._jsparkSession
        activate(self.spark)  # what belongs to a session is looked up by the active one
        try:
            plugin = session.sessionState().catalogManager().catalog(self.catalog)
            plugin.icebergCatalog()
        except Exception as error:
            raise SetupError(
                f"catalog {self.catalog!r} of this Spark session is not an Iceberg catalog that answers: {short(error)}",
                hint=f"set spark.sql.catalog.{self.catalog} and its properties",
            ) from error
        return plugin

    @property
    def java_catalog(self) -> Any:
        """Java's object for the catalog."""
        return self.plugin.icebergCatalog()

    def load(self) -> State:
        """The present state of the table; its schema is empty if it does not exist."""
        table = self.java()
        if table is None:
            return State(Schema(), {}, None, False)
        return self._state(table.operations().current())

    def _state(self, metadata: Any) -> State:
        snapshot = metadata.currentSnapshot()
        uuid, schema = str(metadata.uuid()), int(metadata.currentSchemaId())
        if self._parsed is None or self._parsed[0] != (uuid, schema):  # a wide one takes its time
            self._parsed = (uuid, schema), schema_of(self._jvm, metadata)
        return State(
            self._parsed[1],
            text_map(self._jvm, metadata.properties()),
            None if snapshot is None else int(snapshot.snapshotId()),
            True,
            uuid,
            int(metadata.lastColumnId()),
            str(metadata.metadataFileLocation()),
        )

    def ledger(self, properties: Mapping[str, str]) -> dict[int, int]:
        """The snapshot that took each source file, by the file's fingerprint, as the properties have it."""
        path = properties.get(LEDGER)
        if path is None:
            return {}
        if self._ledger[0] != path:
            self._ledger = path, read_ledger(path, lambda: self.java().io())
        return self._ledger[1]

    def taken(self, state: State, files: Collection[int]) -> set[int]:
        """Which of these source files the table has taken, in snapshots that were not rolled back."""
        ledger = self.ledger(state.properties)
        entries = {file: ledger[file] for file in files if file in ledger}
        if not entries:
            return set()
        table = self.java()
        return entries.keys() - (undone(self._jvm, table, entries) if table is not None else entries.keys())

    def definition(self) -> Definition:
        """The table's present definition. Raises UsageError if there is no table."""
        table = self.java()
        if table is None:
            raise no_table(self.name)
        return definition(self._jvm, table.operations().current())

    def java(self) -> Any:
        """Iceberg's own table, freshly loaded; None if there is none."""
        try:
            table = self.java_catalog.loadTable(self._identifier)
            table.refresh()  # a catalog may cache
        except Py4JJavaError as error:
            if "NoSuchTableException" in java_class(error) or "NoSuchNamespace" in java_class(error):
                return None
            raise SetupError(f"table {self.name} cannot be loaded: {short(error)}") from error
        gateway: Any = self.spark.sparkContext._gateway
        if self.name.count(".") > 1 and is_instance_of(gateway, table, _OF_METADATA):
            raise UsageError(
                f"{self.name} is what Iceberg tells of {self.name.rpartition('.')[0]}, no table of its own",
                hint="`driftline query` reads it",
            )
        return table

    def delete(self, column: str, value: str) -> None:
        """Delete the rows whose ``column`` holds this text."""
        self._must_be_seen()
        self.spark.sql(f"delete from {self.full_name} where {quoted(column)} = {literal(value)}")

    def alteration(self) -> IcebergAlteration:
        """A change of the table's present definition. Raises UsageError if there is no table."""
        return IcebergAlteration(self)

    def versions(self) -> Versions:
        """The versions of the table's definition. Raises UsageError if there is no table."""
        return versions(self)

    def snapshots(self, latest: int | None) -> Iterator[Snapshot]:
        """A snapshot and its known ancestors."""
        return snapshots(self, latest)

    def statistics(self, schema: Schema) -> TableStatistics:
        """The statistics of the columns of ``schema``, by metadata. Raises UsageError without a table."""
        return table_statistics(self, schema)

    def read_appended(self, after: int, snapshot: int) -> DataFrame | None:
        """The rows that a snapshot appended; None if Spark cannot read all columns."""
        schema = self.load().schema
        if readable(schema) != schema:
            return None
        between = {"start-snapshot-id": str(after), "end-snapshot-id": str(snapshot)}
        return self.spark.read.options(**between).table(self.full_name)

    def appended(self, before: State, now: State) -> DataFrame | None:
        """The rows that others appended between two states of the table.

        None if others did more than append, or if that is unknown.
        """
        java, at = self.java(), now.snapshot
        while at != before.snapshot:
            snapshot = None if java is None or at is None else java.snapshot(at)
            if snapshot is None or str(snapshot.operation()) != "append":
                return None
            at = snapshot.parentId()
        if before.snapshot is None or now.snapshot is None:
            return None
        if before.snapshot == now.snapshot:
            return self.read().limit(0)
        return self.read_appended(before.snapshot, now.snapshot)

    def defaults(self) -> dict[int, frozenset[Any]]:
        """The known defaults that columns have had, by column id."""
        metadata = self.java().operations().current()
        return {} if metadata.formatVersion() < 3 else defaults_of(schemas(self._jvm, metadata).values())

    def branches(self) -> dict[str, set[int]]:
        """The branches beside main, each with the ids of the columns that it was written with."""
        return branches(self)

    def laid(self) -> list[Laid]:
        """The data files by partition spec."""
        return laid(self)

    def rename(self, name: str) -> None:
        """Rename the table to ``namespace.table``. Raises UsageError, DataError."""
        rename_table(self, name)

    def sibling(self, name: str) -> IcebergTable:
        """Another table of the same catalog."""
        return IcebergTable(self.spark, self.catalog, name)

    def read(self, snapshot: int | None = None) -> DataFrame:
        """The table's rows, as they are now or were at a snapshot.

        Raises DataError where Spark cannot read a column's type.
        """
        try:
            if snapshot is not None:
                return self.spark.sql(f"select * from {self.full_name} version as of {snapshot}")
            return self.spark.table(self.full_name)
        except UnsupportedOperationException as error:
            raise unreadable(self.name, self.load().schema) or error from error

    @property
    def as_text(self) -> frozenset[Primitive]:
        """None: there is a column for each type of value."""
        return frozenset()

    def row_ids(self, changed: str) -> list[str]:
        """SQL of a row's id, and of the number of the commit that it is from, in tables of v3."""
        if self.java().operations().current().formatVersion() < _WITH_ROW_IDS:
            return []
        return [ROW_ID, f"if({changed}, null, {COMMITTED_IN}) as {COMMITTED_IN}"]

    @property
    def new_row_ids(self) -> None:
        """None: rows of v3 keep their ids, those before have none."""
        return None

    def fillable(self, schema: Schema) -> Schema:
        """The schema without the columns that Spark cannot write."""
        return fillable(schema)

    def readable(self, schema: Schema) -> Schema:
        """The schema without the columns that Spark cannot read."""
        return readable(schema)

    def read_readable(self) -> DataFrame:
        """The table's rows as they are now, without the columns that Spark cannot read."""
        schema = self.load().schema
        if unreadable(self.name, schema) is None:
            return self.read()
        return partial(self.spark, self.java(), self.name, schema)

    def metadata_table(self, kind: str) -> DataFrame:
        """One of Iceberg's metadata tables: ``files``, ``entries``."""
        schema = self.load().schema
        if readable(schema) == schema:
            return self.spark.table(f"{self.full_name}.{kind}")
        return partial(self.spark, self.java(), self.name, schema, kind)

    def transaction(
        self, state: State, made_as: Definition | None = None, *, pinned: bool = False
    ) -> IcebergTransaction:
        """A transaction on the table, always ``pinned``; a missing table is created by its definition.

        Raises CommitConflict if the table is no longer in this ``state``, UsageError if its writes would be
        visible to nobody.
        """
        self._must_be_seen()
        if state.exists:
            table = self.java()
            if table is None:
                raise CommitConflict(f"table {self.name} was dropped meanwhile")
            java = begin(self, table)
            base = self._state(java.startMetadata())
            if not state.fits(base):
                raise CommitConflict(f"table {self.name} was changed meanwhile")
            return IcebergTransaction(self, java, base)
        self._make_namespace()
        assert made_as is not None
        try:
            return IcebergTransaction(self, self._made(made_as), None)
        except Py4JJavaError as error:
            raise failure(error, self.name) from error

    def _made(self, definition: Definition) -> Any:
        """A Java transaction that makes the table."""
        iceberg, schema = self._jvm.org.apache.iceberg, definition.schema
        java_schema = iceberg.SchemaParser.fromJson(json.dumps(to_json(schema)))
        spec, order = json.dumps(spec_json(definition)), json.dumps(order_json(definition))
        properties = {VERSION: str(definition.format_version), **_NEW_TABLE, **metrics_of_all(schema, {})}
        builder = self.java_catalog.buildTable(self._identifier, java_schema)
        builder = builder.withPartitionSpec(iceberg.PartitionSpecParser.fromJson(java_schema, spec))
        builder = builder.withSortOrder(iceberg.SortOrderParser.fromJson(java_schema, order))
        java = builder.withProperties(properties).createTransaction()
        self._check_location(str(java.table().location()))
        return java

    def _check_location(self, location: str) -> None:
        """Raise DataError where the table would lie in the folder of another, or that in its own:
        what cleans up the one, Iceberg's own procedures too, may take the other's files for litter.
        """
        parts = self.name.split(".")
        for outer in (self.sibling(".".join(parts[:n])) for n in range(2, len(parts))):
            if (java := outer.java()) is not None and _inside(location, str(java.location())):
                raise self._would_lie(f"in the folder of {outer.name}")
        namespace = strings(self.spark, parts)
        if not self.plugin.namespaceExists(namespace):
            return
        names = java_type(self._jvm, "org.apache.iceberg.catalog.Namespace").of(namespace)
        for inner in items(self.java_catalog.listTables(names)):
            java = self.java_catalog.loadTable(inner)
            if _inside(str(java.location()), location):
                raise self._would_lie(f"around the folder of {inner}")

    def _would_lie(self, where: str) -> DataError:
        return DataError(
            f"{self.name} cannot be made: its folder would lie {where}, and what cleans up the one may delete the other",
            hint="give it another name, or another namespace",
        )

    def _must_be_seen(self) -> None:
        for key in _UNSEEN:
            if (value := self.spark.conf.get(key, None)) is not None:
                raise UsageError(
                    f"{key} is {value!r} in this Spark session, and driftline writes to no branch",
                    hint=f'take it back first: spark.conf.unset("{key}")',
                )

    def _make_namespace(self) -> None:
        namespace = strings(self.spark, self.name.split(".")[:-1])
        plugin = self.plugin
        try:
            if plugin.namespaceExists(namespace):
                return
            try:
                plugin.createNamespace(namespace, self._jvm.java.util.HashMap())
            except (Py4JJavaError, PySparkException):
                # Somebody else may have created it meanwhile; each catalog has its own error for that.
                if not plugin.namespaceExists(namespace):
                    raise
        except (Py4JJavaError, PySparkException) as error:
            raise SetupError(f"namespace of {self.name} cannot be made: {short(error)}") from error


def _inside(location: str, folder: str) -> bool:
    return location.startswith(f"{folder.rstrip('/')}/")
