"""Data files that tasks write for an Iceberg table: whether they may, and how the table wants them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.convert.types import convertible
from driftline.core.schema.partitioning import Transform
from driftline.core.schema.types import UNKNOWN, Primitive, Schema
from driftline.formats.iceberg.data_files import data_file, modes_of
from driftline.formats.iceberg.definition import partition_fields, sort_fields
from driftline.formats.iceberg.gateway import java_type, text_map
from driftline.formats.iceberg.store import options_of, remove_all
from driftline.write import (
    BatchFolder,
    Destination,
    Distribution,
    FilePlan,
    FileSettings,
    InFolder,
    InStore,
    Key,
    Partition,
    WrittenFile,
    on_disk,
    write_in_tasks,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.write import RowTasks

_TARGET = 512 * 2**20  # bytes of a file, where the table does not say
_GATHERED = 128 * 2**20  # bytes of rows in memory that make a row group
# Settings of a session that come before the table's own.
_SESSION = "spark.sql.iceberg."
_OF_FILES = ("compression-codec", "compression-level")
_OF_SNAPSHOTS = _SESSION + "snapshot-property."
_WITH_VOID = 2  # the format version in whose specs all fields stand
_ANY = "any"  # name of a file
# What only Iceberg's own writer knows how to do.
_UNKNOWN = ("encryption.", "write.wap.enabled")


def write_tasks(
    spark: SparkSession,
    session: Mapping[str, str],
    table: Any,
    schema: Schema,
    tasks: RowTasks,
    folder: BatchFolder,
) -> list[Any] | None:
    """Has the tasks write files of a Java ``table`` that has this ``schema``, in the batch's
    ``folder`` first; returns them as Java has them. ``session``: Spark's settings.

    None where Spark's own writer has to, and nothing was written.
    """
    plan = _file_plan(spark, session, table, schema)
    if plan is None:
        return None
    spec, order = table.spec(), int(table.sortOrder().orderId())

    def as_java(file: WrittenFile) -> Any:
        return data_file(spark._jvm, spec, file, plan.dealing.partition, order)

    place = _place(spark, table, folder, as_java)
    if place is None:
        return None
    return [as_java(file) for file in write_in_tasks(spark.sparkContext, tasks, plan, folder, place)]


def _place(
    spark: SparkSession, table: Any, folder: BatchFolder, as_java: Callable[[WrittenFile], Any]
) -> Destination | None:
    """Where the files of a Java ``table`` are written; None where tasks do not get there."""
    locations, spec, location = table.locationProvider(), table.spec(), location_of(table)

    def located(name: str, file: WrittenFile) -> str:
        if not file.partition:
            return str(locations.newDataLocation(name))
        return str(locations.newDataLocation(spec, as_java(file).partition(), name))

    def prefix(batch: str, partition: Partition) -> str:
        return located(batch, WrittenFile(_ANY, 1, 1, partition=partition))

    if on_disk(location) is not None:
        return InFolder(folder, lambda file: located(Path(file.path).name, file))
    options = options_of(spark, table, location)
    if options is None or not prefix(_ANY, ()).endswith(_ANY):
        return None
    return InStore(options, prefix, partial(remove_all, table.io()))


def location_of(table: Any) -> str:
    """Where the data files of a Java ``table`` lie: a layout for object
    stores may put something before their names.
    """
    return str(table.locationProvider().newDataLocation("f")).rpartition("/")[0]


def snapshot_properties(
    spark: SparkSession, session: Mapping[str, str], summary: Mapping[str, str]
) -> dict[str, str]:
    """What a snapshot says of itself: the ``summary``, and what
    Iceberg's own writer would add in a session with these settings.
    """
    commit = java_type(spark._jvm, "org.apache.iceberg.spark.CommitMetadata").commitProperties()
    of_session = {
        key.removeprefix(_OF_SNAPSHOTS): value
        for key, value in session.items()
        if key.startswith(_OF_SNAPSHOTS)
    }
    app = str(spark.sparkContext.applicationId)
    return {"spark.app.id": app, **of_session, **summary, **text_map(spark._jvm, commit)}


def _file_plan(
    spark: SparkSession, session: Mapping[str, str], table: Any, schema: Schema
) -> FilePlan | None:
    """How tasks write files of a Java ``table``; None where Spark's own writer has to.

    That is so for other file formats, and for types, keys, places and settings that a task does not know.
    """
    properties = text_map(spark._jvm, table.properties())
    properties |= {
        f"write.parquet.{key}": session[_SESSION + key] for key in _OF_FILES if _SESSION + key in session
    }
    settings = FileSettings.of(properties, _GATHERED)
    dealing = _dealing(spark._jvm, table, schema)
    if settings is None or not (
        convertible(schema.struct)
        and dealing.known
        and properties.get("write.format.default", "parquet").lower() == "parquet"
        and not any(key.startswith(_UNKNOWN) for key in properties)
    ):
        return None
    target = int(properties.get("write.target-file-size-bytes", _TARGET))
    return FilePlan(schema, modes_of(spark._jvm, table, schema, properties), settings, target, dealing)


def _dealing(jvm: Any, table: Any, schema: Schema) -> Distribution:
    """The keys of the table's partition spec and of its sort order."""
    columns = {f.id: (path, f.type) for path, f in schema.walk()}

    def key(source: int, transform: Transform, *, descending: bool = False, nulls_first: bool = True) -> Key:
        # The column of a void field may be gone.
        path, type_ = columns.get(source, ((), UNKNOWN))
        primitive = type_ if isinstance(type_, Primitive) else UNKNOWN
        return Key(path, primitive, transform, descending=descending, nulls_first=nulls_first)

    spec = json.loads(java_type(jvm, "org.apache.iceberg.PartitionSpecParser").toJson(table.spec()))
    order = json.loads(java_type(jvm, "org.apache.iceberg.SortOrderParser").toJson(table.sortOrder()))
    return Distribution(
        tuple(key(f.source, f.transform) for f in partition_fields(spec, _WITH_VOID)),
        tuple(
            key(f.source, f.transform, descending=f.descending, nulls_first=f.nulls_first)
            for f in sort_fields(order)
        ),
    )
