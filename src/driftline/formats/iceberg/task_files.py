"""Data files that tasks write for an Iceberg table: whether they may, and how the table wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftline.core.types import Schema
from driftline.formats.iceberg.data_files import modes_of
from driftline.formats.iceberg.gateway import text_map
from driftline.write import FilePlan, FileSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TARGET = 512 * 2**20  # bytes of a file, where the table does not say
_GATHERED = 128 * 2**20  # bytes of rows in memory that make a row group
_SESSION = "spark.sql.iceberg."  # settings of a session that come before the table's own
# What only Iceberg's own writer knows how to do.
_UNKNOWN = ("write.parquet.bloom-filter-", "encryption.", "write.wap.enabled")


def file_plan(spark: SparkSession, table: Any, schema: Schema) -> FilePlan | None:
    """How tasks write files of a Java ``table``; None where Spark's own writer has to.

    That is so for tables whose rows are dealt out or sorted first, for other file formats, and for places and settings
    that a task does not know.
    """
    properties = text_map(spark._jvm, table.properties())
    if not (
        table.spec().isUnpartitioned()
        and table.sortOrder().isUnsorted()
        and properties.get("write.format.default", "parquet").lower() == "parquet"
        and _is_local(str(table.locationProvider().newDataLocation("f")))
        and not any(key.startswith(_UNKNOWN) for key in properties)
        and not any(key.startswith(_SESSION) for key in spark.conf.getAll)
    ):
        return None
    target = int(properties.get("write.target-file-size-bytes", _TARGET))
    return FilePlan(
        schema, modes_of(spark._jvm, table, schema), FileSettings.of(properties, _GATHERED), target
    )


def _is_local(location: str) -> bool:
    return location.startswith(("/", "file:/"))
