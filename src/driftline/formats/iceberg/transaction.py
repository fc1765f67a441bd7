"""One batch's changes to an Iceberg table: visible together, in one metadata version, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from driftline.core.changes import Change
from driftline.core.types import Schema
from driftline.formats.iceberg.gateway import failure, items, schema_of
from driftline.formats.iceberg.schema_update import update_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.formats.iceberg.table import IcebergTable


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
        return schema_of(self._jvm, self._java.table())

    @property
    def snapshot(self) -> int | None:
        snapshot = self._java.table().currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    def evolve(self, changes: Iterable[Change]) -> None:
        """Applies the changes as one schema update."""
        update_schema(self._jvm, self._java, changes, self.table.name)

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
        self._written += [file.location() for file in items(snapshot.addedDataFiles(table.io()))]
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
            raise failure(error, self.table.name) from error
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
