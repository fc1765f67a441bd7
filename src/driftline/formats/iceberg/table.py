"""One Iceberg table, as a batch and the other operations use it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JJavaError

from driftline.core.changes.defaults import defaults_of
from driftline.core.changes.evolve import VERSION
from driftline.core.history.entries import BATCH, MOVED, Snapshot
from driftline.core.history.retention import DELETES_BRANCH
from driftline.core.schema.definition import Definition, Laid
from driftline.core.schema.types import Primitive, Schema
from driftline.errors import DataError, SetupError
from driftline.formats.base import LastBatch, State
from driftline.formats.commit import Retry
from driftline.formats.iceberg.commit import begin, commit
from driftline.formats.iceberg.definition import metrics_of_all, order_json, partition_fields, spec_json
from driftline.formats.iceberg.files import COMMITTED_IN
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
from driftline.formats.iceberg.manifests import sums_by_spark, table_statistics
from driftline.formats.iceberg.reader import IcebergReader, undone
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.formats.iceberg.unread import check_variants, fillable, readable
from driftline.formats.iceberg.versions import past, schemas
from driftline.runtime.spark_conf import SMALL, configured
from driftline.runtime.spark_version import java_type
from driftline.sql.quoting import literal
from driftline.sql.quoting import name as quoted
from driftline.write.positions import ROW_ID

if TYPE_CHECKING:
    from driftline.core.columns.statistics import TableStatistics
    from driftline.core.history.entries import Versions
    from driftline.core.schema.definition import PartitionField

_WITH_ROW_IDS = 3  # the format version

_NEW_TABLE = {
    "write.parquet.compression-codec": "zstd",
    # The table remembers its changes; the files of old versions would only pile up.
    "write.metadata.delete-after-commit.enabled": "true",
}


class IcebergTable(IcebergReader):
    """One table of one catalog, by ``name``, ``namespace.table``; nothing is created before a commit."""

    blank = Definition(format_version=2)

    def taken(self, state: State, files: Collection[int]) -> set[int]:
        """The source files, of these, that the table has taken in snapshots that were not rolled back."""
        ledger = self.ledger(state.properties)
        entries = {file: ledger[file] for file in files if file in ledger}
        if not entries:
            return set()
        table = self.java()
        return entries.keys() - (undone(self.jvm, table, entries) if table is not None else entries.keys())

    def delete(self, column: str, value: str) -> None:
        """Delete the rows whose ``column`` holds this text."""
        self.check_writable()
        self.check_seen()
        Retry(self.name).run(partial(self._deleted, column, value))

    def _deleted(self, column: str, value: str) -> None:
        """Delete the rows once. Spark rewrites files that also have other rows."""
        java = begin(self, self.existing())
        where = java_type(self.jvm, "org.apache.iceberg.expressions.Expressions").equal(column, value)
        try:
            with java_errors():
                java.newDelete().deleteFromRowFilter(where).commit()
        except Py4JJavaError as error:
            if "ValidationException" not in java_class(error):
                raise failure(error, self.name) from error
            self.spark.sql(f"delete from {self.full_name} where {quoted(column)} = {literal(value)}")
            return
        snapshot = int(java.table().currentSnapshot().snapshotId())
        commit(self, java, lambda now: now.snapshot(snapshot) is not None)

    def versions(self) -> Versions:
        """The versions of the table, by its log. Raises UsageError if there is no table."""
        java = self.existing()
        parser = java_type(self.jvm, "org.apache.iceberg.TableMetadataParser")

        def read(location: str) -> Any:
            """Read a metadata file; None if it was cleaned away."""
            try:
                with java_errors():
                    return metadata_json(self.jvm, parser.read(java.io(), location))
            except Py4JJavaError:  # cleaned away
                return None

        return past(self.metadata(java), read)

    def last_batch(self) -> LastBatch | None:
        """Return the batch that made the current snapshot; None if it rewrote rows, or another writer did."""
        snapshot = self.existing().currentSnapshot()
        summary = {} if snapshot is None else text_map(self.jvm, snapshot.summary())
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
        return LastBatch(summary[BATCH], int(snapshot.snapshotId()), added - moved, before)

    def snapshots(self, latest: int | None) -> Iterator[Snapshot]:
        """A snapshot and its known ancestors."""
        java = self.java()
        while latest is not None:
            snapshot = java.snapshot(latest)
            if snapshot is None:
                return
            yield Snapshot(latest, int(snapshot.schemaId() or 0))
            latest = snapshot.parentId()

    def statistics(self, schema: Schema) -> TableStatistics:
        """The statistics of the columns of ``schema``, by metadata. Raises UsageError without a table."""
        metadata = self.metadata(self.existing())
        with configured(self.spark, SMALL):
            entries = self.metadata_table("entries")
            return table_statistics(metadata, schema, partial(sums_by_spark, entries=entries))

    def defaults(self) -> dict[int, frozenset[Any]]:
        """The known defaults that columns have had, by column id."""
        metadata = self.java().operations().current()
        return {} if metadata.formatVersion() < 3 else defaults_of(schemas(self.jvm, metadata).values())

    def branches(self) -> dict[str, set[int]]:
        """Return branches other than main and driftline's own, each with the column ids it was written by."""
        java = self.java()
        out = {}
        for ref_name in items(java.refs().keySet()):
            ref = java.refs().get(ref_name)
            if ref.isBranch() and ref_name not in ("main", DELETES_BRANCH):
                schema = java.schemas().get(java.snapshot(ref.snapshotId()).schemaId()) or java.schema()
                out[str(ref_name)] = {f.id for _, f in schema_of(self.jvm, schema).walk()}
        return out

    def laid(self) -> list[Laid]:
        """The data files by partition spec; specs without files are left out, but for the current one."""
        java = self.java()
        rows = (
            self.metadata_table("files")
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
        parse = java_type(self.jvm, "org.apache.iceberg.PartitionSpecParser").toJson
        version = int(java.operations().current().formatVersion())
        return {
            int(spec.specId()): partition_fields(json.loads(parse(spec)), version)
            for spec in list(java.specs().values())
        }

    def with_rows(self) -> IcebergTable:
        """The table itself."""
        return self

    def sibling(self, name: str) -> Self:
        """Another table of the same catalog."""
        return type(self)(self.spark, self.catalog, name)

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
        """The schema without the columns that Spark cannot write.

        Raises DataError for a VARIANT in Spark 3.5, which has none.
        """
        check_variants(self.name, schema)
        return fillable(schema)

    def readable(self, schema: Schema) -> Schema:
        """The schema without the columns that Spark cannot read.

        Raises DataError for a VARIANT in Spark 3.5, which has none.
        """
        check_variants(self.name, schema)
        return readable(schema)

    def transaction(self, state: State, new_definition: Definition | None = None) -> IcebergTransaction:
        """A transaction on the table; a missing table is created by its definition.

        Raises CommitConflict if the table is no longer in this ``state``, UsageError if its writes would be
        visible to nobody.
        """
        self.check_writable()
        if state.exists:
            return IcebergTransaction.on(self, state)
        self.check_seen()
        self._make_namespace()
        assert new_definition is not None
        try:
            with java_errors():
                return IcebergTransaction(self, self._made(new_definition), None)
        except Py4JJavaError as error:
            raise failure(error, self.name) from error

    def _made(self, definition: Definition) -> Any:
        """A Java transaction that makes the table."""
        schema = java_schema(self.jvm, definition.schema)
        specs = java_type(self.jvm, "org.apache.iceberg.PartitionSpecParser")
        orders = java_type(self.jvm, "org.apache.iceberg.SortOrderParser")
        spec, order = json.dumps(spec_json(definition)), json.dumps(order_json(definition))
        properties = {
            VERSION: str(definition.format_version),
            **_NEW_TABLE,
            **metrics_of_all(definition.schema, {}),
        }
        builder = self.java_catalog.buildTable(self.identifier, schema)
        builder = builder.withPartitionSpec(specs.fromJson(schema, spec))
        builder = builder.withSortOrder(orders.fromJson(schema, order))
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
        namespace = strings(self.gateway, parts)
        try:
            with java_errors():
                if not self.plugin.namespaceExists(namespace):
                    return
        except Py4JJavaError as error:
            # A catalog that has no namespace of several parts, as Glue, refuses to look for one.
            if java_class(error) != "org.apache.iceberg.exceptions.ValidationException":
                raise
            return
        names = java_type(self.jvm, "org.apache.iceberg.catalog.Namespace").of(namespace)
        for identifier in items(self.java_catalog.listTables(names)):
            java = self.java_catalog.loadTable(identifier)
            if _inside(str(java.location()), location):
                raise self._would_lie(f"around the folder of {identifier}")

    def _would_lie(self, where: str) -> DataError:
        return DataError(
            f"{self.name} cannot be created: its folder would be {where}, so cleaning up one could delete files of the other",
            hint="use another name or namespace",
        )

    def _make_namespace(self) -> None:
        namespace = strings(self.gateway, self.name.split(".")[:-1])
        plugin = self.plugin
        try:
            with java_errors():
                if plugin.namespaceExists(namespace):
                    return
                try:
                    with java_errors():
                        plugin.createNamespace(namespace, java_type(self.jvm, "java.util.HashMap")())
                except Py4JJavaError:
                    # Somebody else may have created it meanwhile; each catalog has its own error for that.
                    if not plugin.namespaceExists(namespace):
                        raise
        except Py4JJavaError as error:
            raise SetupError(f"namespace of {self.name} cannot be made: {short(error)}") from error


def _inside(location: str, folder: str) -> bool:
    return location.startswith(f"{folder.rstrip('/')}/")
