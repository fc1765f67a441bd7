"""Iceberg's own writer in Spark: appends the rows of a frame, or makes files of them to be committed.

The files of each transaction are in a folder of its own, which shows whose they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from driftline.core.schema.types import Schema
from driftline.formats.iceberg.gateway import items, java_schema
from driftline.formats.iceberg.unread import telling
from driftline.runtime.disk import NEW, delete_by_file_io
from driftline.runtime.spark_version import java_type, rewritten_table, rows_of, spark_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A column of data files: the sequence number of each row's last change.
COMMITTED_IN = "_last_updated_sequence_number"

_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_Command: TypeAlias = Callable[[Any, Any, Any], Any]  # of relation, rows and options: what Spark is to do


@dataclass(frozen=True, slots=True)
class SparkWriter:
    """Writes into Java tables. ``catalog``: as Spark has it, with the functions by which rows
    are handed to the writers of partitions.
    """

    spark: SparkSession
    catalog: Any

    def append(self, table: Any, frame: DataFrame, summary: Mapping[str, str]) -> None:
        """Append the rows."""
        options = {f"snapshot-property.{key}": value for key, value in summary.items()}
        append = self._java(f"{_PLANS}AppendData").byName
        self._run(spark_table(self.spark, table), frame, options, append)

    def files_with_ids(self, table: Any, frame: DataFrame) -> list[Any]:
        """The rows as files that are to be committed. The frame has ids, which no other writer takes
        than the one that compacts tables.
        """
        group = uuid4().hex
        coordinator = self._java("org.apache.iceberg.spark.FileRewriteCoordinator").get()
        try:
            append = self._java(f"{_PLANS}AppendData").byName
            target, options = rewritten_table(self.spark, table, group)
            self._run(target, frame, options, append)
            return items(coordinator.fetchNewFiles(table, group))
        finally:
            coordinator.clearRewrite(table, group)

    def _run(self, target: Any, frame: DataFrame, options: Mapping[str, str], command: _Command) -> None:
        relation = self._java("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
        option = self._java("scala.Option")
        into = relation.create(target, option.apply(self.catalog), option.empty())
        scala = self._java("org.apache.spark.api.python.PythonUtils").toScalaMap(dict(options))
        jdf: Any = frame._jdf
        rows_of(self.spark, jdf.sparkSession(), command(into, jdf.logicalPlan(), scala))

    def _java(self, name: str) -> Any:
        return java_type(self.spark._jvm, name)


# Checksums, which begin with a dot, are deleted with their files.
WRITTEN_BY_SPARK = re.compile(r"/driftline-[0-9a-f]{32}/(.+/)?[^./][^/]*$")

_DATA = "write.data.path"
_PATHS = (_DATA, "write.object-storage.path", "write.folder-storage.path")


def data_folders(table: Any) -> Iterator[str]:
    """The possible folders of a Java table's data files, the likeliest first."""
    properties = table.properties()
    for name in _PATHS:
        if (path := properties.get(name)) is not None:
            yield str(path).rstrip("/")
    yield f"{table.location()}/data"


def new_folder(table: Any) -> str:
    """A folder for files of a Java table, of a name that nothing has yet."""
    return f"{next(data_folders(table))}/driftline-{uuid4().hex}"


def staging_transaction(jvm: Any, java: Any, inside: Any, schema: Schema, folder: str) -> Any:
    """A Java transaction on the table ``java``, never to be committed, whose data files go into the folder.

    Its table is as it is ``inside`` another transaction, but for the columns that ``schema`` lacks.
    """
    transaction = java.newTransaction()
    operations, now = transaction.table().operations(), inside.operations().current()
    builder = java_type(jvm, "org.apache.iceberg.TableMetadata").buildFrom(now).setProperties({_DATA: folder})
    builder.setCurrentSchema(java_schema(jvm, schema), max(now.lastColumnId(), schema.highest_id()))
    operations.commit(operations.current(), builder.build())
    return transaction


def taken_files(table: Any, before: Any) -> list[Any]:
    """The data files that a staging transaction has added since the snapshot ``before``.

    ``table``: the transaction's. The metadata files of the addition are deleted.
    """
    snapshot = table.currentSnapshot()
    if snapshot is None or (before is not None and snapshot.snapshotId() == before.snapshotId()):
        return []
    files = items(snapshot.addedDataFiles(table.io()))
    for path in telling(table):
        delete_by_file_io(table.io(), path, NEW)
    return files
