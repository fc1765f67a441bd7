"""Iceberg tables through a Spark session's own catalog.

A batch is one Iceberg transaction: the schema update, the files that Spark wrote, and the batch's token become
visible together, in one metadata version, or not at all. Spark writes straight into the transaction's table, as
it does for CREATE TABLE AS SELECT; so a new table, too, appears with its first rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from driftline.core.changes import AddColumn, Change, RelaxColumn, WidenColumn, fresh
from driftline.core.schema_json import from_json, to_json
from driftline.core.types import Field, Schema, Struct, dotted
from driftline.errors import DataError, SetupError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NEW_TABLE = {"format-version": "2", "write.parquet.compression-codec": "zstd"}
_CONFLICTS = (
    "CommitFailedException",
    "PendingUpdateFailedException",
    "AlreadyExistsException",
    "ValidationException",
)


class CommitConflict(Exception):
    """Someone else changed the table meanwhile: load it again and plan anew."""


@dataclass(frozen=True, slots=True)
class State:
    """A table as it was loaded."""

    schema: Schema
    properties: Mapping[str, str]
    snapshot: int | None
    exists: bool


class IcebergTable:
    """One table of one catalog. ``name`` is ``namespace.table``; nothing is made before the first commit."""

    def __init__(self, spark: SparkSession, catalog: str, name: str) -> None:
        self.spark = spark
        self.catalog = catalog
        self.name = name
        parts = name.split(".")
        if len(parts) < 2 or not all(parts):
            raise UsageError(
                f"{name!r} is not a table's name", hint="write namespace.table, as in shop.orders"
            )
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._identifier: Any = jvm.org.apache.iceberg.catalog.TableIdentifier.of(_strings(spark, parts))

    @property
    def full_name(self) -> str:
        """The name for Spark SQL, quoted."""
        return ".".join(f"`{part.replace('`', '``')}`" for part in [self.catalog, *self.name.split(".")])

    @property
    def _plugin(self) -> Any:
        session: Any = self.spark._jsparkSession
        # Spark looks up what belongs to a session by the thread's active one.
        self._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
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
    def _catalog(self) -> Any:
        return self._plugin.icebergCatalog()

    def load(self) -> State:
        """The table as it is now; an empty schema where it does not exist."""
        table = self.java()
        if table is None:
            return State(Schema(), {}, None, False)
        snapshot = table.currentSnapshot()
        return State(
            _schema(self._jvm, table),
            dict(table.properties()),
            None if snapshot is None else snapshot.snapshotId(),
            True,
        )

    def java(self) -> Any:
        """Iceberg's own table, freshly loaded; None where there is none."""
        try:
            table = self._catalog.loadTable(self._identifier)
            table.refresh()  # a catalog may cache
            return table
        except Py4JJavaError as error:
            if "NoSuchTableException" in _java_class(error) or "NoSuchNamespace" in _java_class(error):
                return None
            raise SetupError(f"table {self.name} cannot be loaded: {short(error)}") from error

    def read(self) -> DataFrame:
        return self.spark.table(self.full_name)

    def transaction(self, state: State, schema: Schema | None = None) -> Transaction:
        """A transaction on the table; for one that does not exist, ``schema`` is what it is made with."""
        if state.exists:
            table = self.java()
            if table is None:
                raise CommitConflict(f"table {self.name} was dropped meanwhile")
            return Transaction(self, table.newTransaction(), made=False)
        self._make_namespace()
        assert schema is not None
        java_schema = self._jvm.org.apache.iceberg.SchemaParser.fromJson(json.dumps(to_json(schema)))
        spec = self._jvm.org.apache.iceberg.PartitionSpec.unpartitioned()
        try:
            made = self._catalog.newCreateTableTransaction(self._identifier, java_schema, spec, _NEW_TABLE)
        except Py4JJavaError as error:
            raise _failure(error, self.name) from error
        return Transaction(self, made, made=True)

    def _make_namespace(self) -> None:
        namespace = _strings(self.spark, self.name.split(".")[:-1])
        plugin = self._plugin
        try:
            if not plugin.namespaceExists(namespace):
                plugin.createNamespace(namespace, self._jvm.java.util.HashMap())
        except Py4JJavaError as error:
            if "AlreadyExists" not in _java_class(error):
                raise SetupError(f"namespace of {self.name} cannot be made: {short(error)}") from error


class Transaction:
    """Changes of one batch, visible together when committed."""

    def __init__(self, table: IcebergTable, java: Any, *, made: bool) -> None:
        self.table = table
        self.made = made
        self._java = java
        self._jvm: Any = table.spark._jvm
        self.committed = False
        self._written: list[str] = []

    @property
    def schema(self) -> Schema:
        """The schema inside the transaction."""
        return _schema(self._jvm, self._java.table())

    @property
    def snapshot(self) -> int | None:
        snapshot = self._java.table().currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    def evolve(self, changes: Iterable[Change]) -> None:
        """Applies the changes as one schema update."""
        pending = [c for c in changes if not (isinstance(c, AddColumn) and c.within)]
        if not pending:
            return
        update = self._java.updateSchema()
        for change in pending:
            match change:
                case AddColumn(parent, column):
                    update.addColumn(dotted(parent) or None, column.name, self._type(column), column.doc)
                case WidenColumn(path, type_):
                    update.updateColumn(dotted(path), self._type(Field("x", type_)))
                case RelaxColumn(path):
                    update.makeColumnOptional(dotted(path))
        try:
            update.commit()
        except Py4JJavaError as error:
            raise _failure(error, self.table.name) from error

    def append(self, frame: DataFrame, summary: Mapping[str, str]) -> int:
        """Writes the frame's rows, which must have the table's columns; returns how many were written."""
        jvm = self._jvm
        before = self.snapshot
        target = jvm.org.apache.iceberg.spark.source.SparkTable(self._java.table())
        none = jvm.scala.Option.empty()
        relation = jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create(
            target, none, none
        )
        options = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(
            {f"snapshot-property.{k}": v for k, v in summary.items()}
        )
        jdf: Any = frame._jdf
        plan = jvm.org.apache.spark.sql.catalyst.plans.logical.AppendData.byName(
            relation, jdf.logicalPlan(), options
        )
        jvm.org.apache.spark.sql.classic.Dataset.ofRows(jdf.sparkSession(), plan)
        if self.snapshot == before:
            return 0
        table = self._java.table()
        snapshot = table.currentSnapshot()
        self._written += [file.location() for file in _items(snapshot.addedDataFiles(table.io()))]
        return int(snapshot.summary().get("added-records") or 0)

    def set(self, properties: Mapping[str, str]) -> None:
        """Sets table properties."""
        if properties:
            update = self._java.updateProperties()
            for key, value in properties.items():
                update.set(key, value)
            update.commit()

    def commit(self) -> None:
        """Makes everything visible at once. Raises CommitConflict where someone else was faster."""
        try:
            self._java.commitTransaction()
        except Py4JJavaError as error:
            raise _failure(error, self.table.name) from error
        self.committed = True

    def abandon(self) -> None:
        """Deletes the files that were written; the table was never touched. Nothing once it is committed."""
        if self.committed:
            return
        io = self._java.table().io()
        for location in self._written:
            with suppress(
                Py4JJavaError
            ):  # what cannot be deleted is an orphan, which Iceberg's own clean-up removes
                io.deleteFile(location)

    def _type(self, column: Field) -> Any:
        holder = Schema(Struct((fresh(column, 0),)))
        parsed = self._jvm.org.apache.iceberg.SchemaParser.fromJson(json.dumps(to_json(holder)))
        return parsed.columns().get(0).type()


def _schema(jvm: Any, table: Any) -> Schema:
    return from_json(json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(table.schema())))


def _items(java: Any) -> list[Any]:
    out, iterator = [], java.iterator()
    while iterator.hasNext():
        out.append(iterator.next())
    return out


def _strings(spark: SparkSession, parts: list[str]) -> Any:
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.java.lang.String, len(parts))
    for i, part in enumerate(parts):
        array[i] = part
    return array


def _java_class(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getName())


def short(error: BaseException) -> str:
    """What went wrong, on one line."""
    if isinstance(error, Py4JJavaError):
        message = error.java_exception.getMessage() or _java_class(error)
        return str(message).split("\n", 1)[0]
    return str(error).split("\n", 1)[0]


def _failure(error: Py4JJavaError, name: str) -> Exception:
    if any(conflict in _java_class(error) for conflict in _CONFLICTS):
        return CommitConflict(f"{name}: {short(error)}")
    return DataError(f"table {name} refused the batch: {short(error)}")
