"""An Iceberg catalog of a Spark session."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors.exceptions.captured import UnsupportedOperationException

from driftline.errors import DataError, DriftlineError
from driftline.formats.iceberg.gateway import items, java_type
from driftline.formats.iceberg.orphans import clean
from driftline.formats.iceberg.table import IcebergTable
from driftline.formats.iceberg.unread import unreadable
from driftline.formats.lakes import Orphan
from driftline.sql.quoting import name as quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class IcebergCatalog:
    """The tables of a catalog. ``name``: its name in the Spark session."""

    spark: SparkSession
    name: str

    @property
    def folder(self) -> str | None:
        """The catalog's warehouse; None if it names none, or only by a name of its own."""
        catalog = f"spark.sql.catalog.{self.name}"
        warehouse = self.spark.conf.get(f"{catalog}.warehouse", None)
        by_name = self.spark.conf.get(f"{catalog}.type", None) == "rest" and "/" not in (warehouse or "")
        return None if by_name else warehouse

    @property
    def writes(self) -> str:
        """The way to run a statement that writes, for errors about one in a query."""
        return "`Lake.sql` in Python runs it"

    @property
    def has_views(self) -> bool:
        """True: most Iceberg catalogs keep Spark's views beside the tables."""
        return True

    def sql_name(self, name: str) -> str:
        """A table or view by ``namespace.table``, quoted for Spark SQL."""
        return ".".join(map(quoted, (self.name, *name.split("."))))

    def on(self, spark: SparkSession) -> IcebergCatalog:
        """Open the catalog in another session of the running Spark."""
        return replace(self, spark=spark)

    def table(self, name: str) -> IcebergTable:
        """A table by ``namespace.table``. Raises UsageError for an impossible name."""
        return IcebergTable(self.spark, self.name, name)

    def sql(self, query: str) -> DataFrame:
        """Run any statement of Spark's SQL. Raises DataError where a
        table has a column that Spark cannot read.
        """
        try:
            return self.spark.sql(query)
        except UnsupportedOperationException as error:
            raise self._unreadable(query) or error from error

    def clean(self, older_than: float, *, dry_run: bool) -> list[Orphan]:
        """Delete the files that driftline's tasks wrote and no snapshot has, last changed more than
        ``older_than`` seconds ago; returns them.
        """
        return clean(self.spark, self.folder, map(self.table, self.tables()), older_than, dry_run=dry_run)

    def tables(self) -> list[str]:
        """The names of all tables of the catalog."""
        namespace = java_type(self.spark._jvm, "org.apache.iceberg.catalog.Namespace")
        any_table = self.table("any.table")
        plugin, java = any_table.plugin, any_table.java_catalog
        names: list[str] = []
        # Spark's plugin knows the namespaces; Iceberg's own catalog does not where it caches.
        waiting = [*plugin.listNamespaces()]
        while waiting:
            parts = waiting.pop()
            waiting += plugin.listNamespaces(parts)
            names += [str(table.toString()) for table in items(java.listTables(namespace.of(parts)))]
        return names

    def _unreadable(self, query: str) -> DataError | None:
        """Why Spark cannot read a table of the query, if it cannot."""
        session: Any = self.spark._jsparkSession
        plan = str(session.sessionState().sqlParser().parsePlan(query))
        for relation in re.findall(r"UnresolvedRelation \[(.*?)\]", plan):
            parts = relation.split(", ")
            name = ".".join(parts[1:] if parts[0] == self.name else parts)
            with suppress(DriftlineError):
                error = unreadable(name, self.table(name).load().schema)
                if error is not None:
                    return error
        return None
