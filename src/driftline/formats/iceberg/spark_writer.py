"""Iceberg's own writer in Spark: appends and overwrites with the rows of a frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from driftline.formats.iceberg.gateway import items
from driftline.runtime.java_types import java_type
from driftline.runtime.spark_version import rewritten_table, rows_of, spark_table

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
