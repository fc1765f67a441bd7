"""One table of an Iceberg catalog, with its rows if it has Spark."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JJavaError

from driftline.core.changes.defaults import defaults_of
from driftline.core.changes.evolve import VERSION
from driftline.core.history.entries import BATCH, MOVED, Snapshot
from driftline.core.history.retention import DELETES_BRANCH
from driftline.core.schema.definition import Definition, Laid
from driftline.core.schema.types import Schema
from driftline.errors import DataError, SetupError
from driftline.formats.base import CatalogTable, LastBatch, State
from driftline.formats.iceberg.alteration import IcebergAlteration, rename_table
from driftline.formats.iceberg.commit import begin, commit
from driftline.formats.iceberg.definition import (
    definition,
    metrics_of_all,
    order_json,
    partition_fields,
    spec_json,
)
from driftline.formats.iceberg.gateway import (
    failure,
    items,
    java_class,
    java_errors,
    java_schema,
    metadata_json,
    schema_of,
    short,
    strings,
    text_map,
)
from driftline.formats.iceberg.handle import IcebergHandle
from driftline.formats.iceberg.manifests import known_entries, sums_by_spark, table_statistics
from driftline.formats.iceberg.reader import (
    before_compaction,
    check_seen,
    ledger_of,
    metadata_table,
    note_in,
    read_appended,
    read_between,
    read_deletes,
    read_readable,
    read_table,
    undone,
    whole_files,
)
from driftline.formats.iceberg.sizes import sizes_by_spark, statistics_of
from driftline.formats.iceberg.unread import check_variants, fillable, readable
from driftline.formats.iceberg.versions import past, schemas
from driftline.runtime.spark_conf import SMALL, configured
from driftline.runtime.spark_version import java_type
from driftline.sql.quoting import literal
from driftline.sql.quoting import name as quoted
from driftline.write.positions import CHANGED, ROW_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.core.columns.statistics import TableStatistics
    from driftline.core.history.entries import Versions
    from driftline.core.schema.definition import PartitionField
    from driftline.formats.iceberg.transaction import IcebergTransaction

_WITH_ROW_IDS = 3  # the format version

_NEW_TABLE = {
    "write.parquet.compression-codec": "zstd",
    # The table remembers its changes; the files of old versions would only pile up.
    "write.metadata.delete-after-commit.enabled": "true",
}


class IcebergTable(CatalogTable):
    """One table of one catalog, by ``name``, ``namespace.table``; nothing is created before a commit.

    Without Spark it can be altered and renamed; whatever touches rows raises NeedsSpark.
    """

    blank = Definition(format_version=2)
    parts_of = None  # an Iceberg table is sorted by no expressions
    can_compact = True

    def __init__(self, handle: IcebergHandle) -> None:
        self.handle = handle
        self.name = handle.name

    @property
    def spark(self) -> SparkSession:
        """The Spark session. Raises NeedsSpark if there is none."""
        return self.handle.spark

    def with_rows(self) -> IcebergTable:
        """The table itself. Raises NeedsSpark without Spark."""
        _ = self.spark
        return self

    def other_table(self, name: str) -> Self:
        """Another table of the same catalog."""
        return type(self)(self.handle.other_table(name))

    def load(self) -> State:
        """Load the present state of the table; its schema is empty if it does not exist."""
        return self.handle.load()

    def definition(self) -> Definition:
        """Return the table's present definition. Raises UsageError if there is no table."""
        return definition(self.handle.jvm, self.handle.existing().operations().current())

    def alteration(self) -> IcebergAlteration:
        """Begin a change of the table's present definition. Raises UsageError if there is no table."""
        self.handle.check_writable()
        return IcebergAlteration(self.handle)

    def rename(self, name: str) -> None:
        """Rename the table to ``namespace.table``. Raises UsageError, DataError."""
        rename_table(self.handle, name)

    def read(self, snapshot: int | None = None) -> DataFrame:
        """Return the table's rows, as they are now or were at a snapshot."""
        return read_table(self.handle, snapshot)

    def read_readable(self) -> DataFrame:
        """Return the table's present rows, without the columns that Spark cannot read."""
        return read_readable(self.handle)

    def whole_files(self) -> list[str]:
        """Return the files of the present rows; none if rows are deleted, or values are not in the files."""
        return whole_files(self.handle.existing(), self.load().schema)

    def remembered_deletes(self, order: str) -> DataFrame | None:
        """Return the deletes that the table remembers, in its columns of the key and the ``order``."""
        return read_deletes(self.handle)

    def read_appended(self, after: int, snapshot: int) -> DataFrame | None:
        """Return the rows that a snapshot appended; None if they cannot be read alone."""
        return read_appended(self.handle, after, snapshot)

    def appended(self, before: State, now: State) -> DataFrame | None:
        """Return the rows that others appended between two states of the table; None if they did more."""
        return read_between(self.handle, before, now)

    def ingested_files(self, state: State, files: Collection[int]) -> set[int]:
        """Select the source files that the table has from snapshots that were not rolled back."""
        ledger = ledger_of(self.handle, state.properties)
        entries = {file: ledger[file] for file in files if file in ledger}
        if not entries:
            return set()
        table = self.handle.java()
        return entries.keys() - (
            undone(self.handle.jvm, table, entries) if table is not None else entries.keys()
        )

    def delete(self, column: str, value: str) -> None:
        """Delete the rows whose ``column`` holds this text."""
        from driftline.formats.commit import Retry  # late: alterations need none

        self.handle.check_writable()
        check_seen(self.spark)
        Retry(self.name).run(partial(self._deleted, column, value))

    def _deleted(self, column: str, value: str) -> None:
        """Delete the rows once. Spark rewrites files that also have other rows."""
        java = begin(self.handle, self.handle.existing())
        where = java_type(self.handle.jvm, "org.apache.iceberg.expressions.Expressions").equal(column, value)
        try:
            with java_errors():
                # Files without other rows go by metadata alone, which takes no job of Spark's.
                java.newDelete().deleteFromRowFilter(where).commit()
        except Py4JJavaError as error:
            if "ValidationException" not in java_class(error):
                raise failure(error, self.name) from error
            self.spark.sql(f"delete from {self.handle.full_name} where {quoted(column)} = {literal(value)}")
            return
        snapshot = int(java.table().currentSnapshot().snapshotId())
        commit(self.handle, java, lambda now: now.snapshot(snapshot) is not None)

    def versions(self) -> Versions:
        """Return the versions of the table, by its log. Raises UsageError if there is no table."""
        java = self.handle.existing()
        parser = java_type(self.handle.jvm, "org.apache.iceberg.TableMetadataParser")

        def read(location: str) -> Any:
            """Read a metadata file; None if it was cleaned away."""
            try:
                with java_errors():
                    return metadata_json(self.handle.jvm, parser.read(java.io(), location))
            except Py4JJavaError:  # cleaned away
                return None

        return past(self.handle.metadata(java), read)

    def last_batch(self) -> LastBatch | None:
        """Return the batch that made the current snapshot; None if it rewrote rows, or another writer did."""
        snapshot, behind = before_compaction(self.handle.existing())
        summary = {} if snapshot is None else text_map(self.handle.jvm, snapshot.summary())
        if BATCH not in summary or (MOVED not in summary and int(summary.get("deleted-data-files", 0))):
            return None
        added, gone, deleted, removed, moved = (
            int(summary.get(name, 0))
            for name in (
                "added-records",
                "deleted-records",
                "added-position-deletes",
                "removed-position-deletes",
                MOVED,
            )
        )
        before = gone - moved + deleted - removed
        return LastBatch(summary[BATCH], int(snapshot.snapshotId()), added - moved, before, behind)

    def snapshots(self, latest: int | None) -> Iterator[Snapshot]:
        """Yield a snapshot and its known ancestors."""
        java = self.handle.java()
        while latest is not None:
            snapshot = java.snapshot(latest)
            if snapshot is None:
                return
            yield Snapshot(latest, int(snapshot.schemaId() or 0))
            latest = snapshot.parentId()

    def statistics(self, schema: Schema, watched: frozenset[int] = frozenset()) -> TableStatistics:
        """Read column statistics of ``schema`` from metadata, those ``watched`` by period, too.

        Raises UsageError if there is no table.
        """
        metadata = self.handle.metadata(self.handle.existing())
        note = note_in(self.handle, metadata)
        # Two jobs of Spark's take longer than to read a few files.
        if (entries := known_entries(metadata)) is not None:
            return statistics_of(metadata, entries, schema, watched, note)
        with configured(self.spark, SMALL):
            sums = partial(sums_by_spark, metadata_table(self.handle, "entries"))
            statistics = table_statistics(metadata, schema, sums, watched, note)
            return replace(statistics, sizes=sizes_by_spark(metadata, metadata_table(self.handle, "files")))

    def defaults(self) -> dict[int, frozenset[Any]]:
        """Return the known defaults that columns have had, by column id."""
        metadata = self.handle.java().operations().current()
        return (
            # Defaults came with v3; to parse all schemas of a wide table takes long.
            {} if metadata.formatVersion() < 3 else defaults_of(schemas(self.handle.jvm, metadata).values())
        )

    def branches(self) -> dict[str, set[int]]:
        """Return branches other than main and driftline's own, each with the column ids it was written by."""
        java = self.handle.java()
        out = {}
        for ref_name in items(java.refs().keySet()):
            ref = java.refs().get(ref_name)
            if ref.isBranch() and ref_name not in ("main", DELETES_BRANCH):
                # Snapshots of early versions of Iceberg name no schema.
                schema = java.schemas().get(java.snapshot(ref.snapshotId()).schemaId()) or java.schema()
                out[str(ref_name)] = {f.id for _, f in schema_of(self.handle.jvm, schema).walk()}
        return out

    def laid(self) -> list[Laid]:
        """Return the data files by partition spec, of specs with files and the current one."""
        java = self.handle.java()
        rows = (
            metadata_table(self.handle, "files")
            .where("content = 0")
            .groupBy("spec_id")
            .agg({"*": "count", "record_count": "sum", "file_size_in_bytes": "sum"})
            .selectExpr(
                "spec_id",
                "`count(1)` as files",
                "`sum(record_count)` as n",
                "`sum(file_size_in_bytes)` as size",
            )
        )
        counts = {row.spec_id: (row.files, row.n, row.size) for row in rows.collect()}
        current = int(java.spec().specId())
        return [
            Laid(spec, fields, *counts.get(spec, (0, 0, 0)), spec == current)
            for spec, fields in sorted(self._partition_specs(java).items())
            if spec in counts or spec == current
        ]

    def _partition_specs(self, java: Any) -> dict[int, tuple[PartitionField, ...]]:
        """All partition specs by id."""
        parse = java_type(self.handle.jvm, "org.apache.iceberg.PartitionSpecParser").toJson
        version = int(java.operations().current().formatVersion())
        return {
            int(spec.specId()): partition_fields(json.loads(parse(spec)), version)
            for spec in list(java.specs().values())
        }

    def row_ids(self, changed: str) -> list[str]:
        """Return SQL for a row's id and the number of its commit, in tables of v3."""
        if self.handle.java().operations().current().formatVersion() < _WITH_ROW_IDS:
            return []
        return [ROW_ID, f"if({changed}, null, {CHANGED}) as {CHANGED}"]

    def fillable(self, schema: Schema) -> Schema:
        """Return the schema without the columns that Spark cannot write.

        Raises DataError for a VARIANT in Spark 3.5, which has none.
        """
        check_variants(self.name, schema)
        return fillable(schema)

    def readable(self, schema: Schema) -> Schema:
        """Return the schema without the columns that Spark cannot read.

        Raises DataError for a VARIANT in Spark 3.5, which has none.
        """
        check_variants(self.name, schema)
        return readable(schema)

    def transaction(self, state: State, new_definition: Definition | None = None) -> IcebergTransaction:
        """Begin a transaction on the table; a missing table is created by its definition.

        Raises CommitConflict if the table is no longer in this ``state``, UsageError if its writes would be
        visible to nobody.
        """
        from driftline.formats.iceberg.transaction import IcebergTransaction  # late: alterations need none

        self.handle.check_writable()
        if state.exists:
            return IcebergTransaction.on(self.handle, state)
        check_seen(self.spark)
        self._make_namespace()
        assert new_definition is not None
        try:
            with java_errors():
                return IcebergTransaction(self.handle, self._made(new_definition), None)
        except Py4JJavaError as error:
            raise failure(error, self.name) from error

    def staged(self) -> Any:
        """Iceberg's own table as the catalog would make it, without columns: with its location and FileIO."""
        self._make_namespace()
        try:
            with java_errors():
                return self._made(self.blank).table()
        except Py4JJavaError as error:
            raise failure(error, self.name) from error

    def _made(self, definition: Definition) -> Any:
        """Begin a Java transaction that creates the table, and check its location."""
        schema = java_schema(self.handle.jvm, definition.schema)
        specs = java_type(self.handle.jvm, "org.apache.iceberg.PartitionSpecParser")
        orders = java_type(self.handle.jvm, "org.apache.iceberg.SortOrderParser")
        spec, order = json.dumps(spec_json(definition)), json.dumps(order_json(definition))
        properties = {
            VERSION: str(definition.format_version),
            **_NEW_TABLE,
            **metrics_of_all(definition.schema, {}),
        }
        builder = self.handle.java_catalog.buildTable(self.handle.identifier, schema)
        builder = builder.withPartitionSpec(specs.fromJson(schema, spec))
        builder = builder.withSortOrder(orders.fromJson(schema, order))
        java = builder.withProperties(properties).createTransaction()
        self._check_location(str(java.table().location()))
        return java

    def _check_location(self, location: str) -> None:
        """Raise DataError if the table would lie in the folder of another, or that in its own.

        Whatever cleans up the one, Iceberg's own procedures too, may delete files of the other.
        """
        parts = self.name.split(".")
        for outer in (self.handle.other_table(".".join(parts[:n])) for n in range(2, len(parts))):
            if (java := outer.java()) is not None and _inside(location, str(java.location())):
                raise self._would_lie(f"in the folder of {outer.name}")
        namespace = strings(self.handle.gateway, parts)
        try:
            with java_errors():
                if not self.handle.plugin.namespaceExists(namespace):
                    return
        except Py4JJavaError as error:
            # A catalog that has no namespace of several parts, as Glue, refuses to look for one.
            if java_class(error) != "org.apache.iceberg.exceptions.ValidationException":
                raise
            return
        names = java_type(self.handle.jvm, "org.apache.iceberg.catalog.Namespace").of(namespace)
        for identifier in items(self.handle.java_catalog.listTables(names)):
            java = self.handle.java_catalog.loadTable(identifier)
            if _inside(str(java.location()), location):
                raise self._would_lie(f"around the folder of {identifier}")

    def _would_lie(self, where: str) -> DataError:
        return DataError(
            f"{self.name} cannot be created: its folder would be {where}, so cleaning up one could delete files of the other",
            hint="use another name or namespace",
        )

    def _make_namespace(self) -> None:
        namespace = strings(self.handle.gateway, self.name.split(".")[:-1])
        plugin = self.handle.plugin
        try:
            with java_errors():
                if plugin.namespaceExists(namespace):
                    return
                try:
                    with java_errors():
                        plugin.createNamespace(namespace, java_type(self.handle.jvm, "java.util.HashMap")())
                except Py4JJavaError:
                    # Somebody else may have created it meanwhile; each catalog has its own error for that.
                    if not plugin.namespaceExists(namespace):
                        raise
        except Py4JJavaError as error:
            raise SetupError(f"namespace of {self.name} cannot be created: {short(error)}") from error


def _inside(location: str, folder: str) -> bool:
    return location.startswith(f"{folder.rstrip('/')}/")
