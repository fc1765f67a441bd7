"""Writes and deletes the files of an Iceberg table, by tasks or by Iceberg's own writer in Spark.

Each transaction has a folder of its own, which shows that its files belong to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import numpy as np
from py4j.java_gateway import get_method, is_instance_of
from py4j.protocol import Py4JJavaError

from driftline.convert.types import convertible
from driftline.core.schema.definition import Transform
from driftline.core.schema.types import UNKNOWN, Primitive, Schema, Type, children
from driftline.core.support import LruCache
from driftline.formats.iceberg.definition import partition_fields, sort_fields
from driftline.formats.iceberg.gateway import items, java_errors, java_schema, json_of, text_map
from driftline.formats.iceberg.reader import WRITTEN_LEDGER
from driftline.formats.iceberg.seen import WRITTEN_NOTE
from driftline.formats.iceberg.unread import telling
from driftline.formats.lakes import Orphan
from driftline.formats.leftovers import listed
from driftline.runtime.disk import NEW, delete_by_file_io, delete_by_hadoop, on_disk
from driftline.runtime.file_io import options, vended
from driftline.runtime.spark_version import java_type, rewritten_table, rows_of, spark_table
from driftline.write import (
    STAGED,
    WRITTEN,
    BatchFolder,
    Destination,
    Distribution,
    FilePlan,
    FileSettings,
    InFolder,
    InStore,
    Key,
    Partition,
    RowTasks,
    WrittenFile,
    write_in_tasks,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_RESOLVING = "ResolvingFileIO"
_WITH_CREDENTIALS = "org.apache.iceberg.io.SupportsStorageCredentials"


def options_of(spark: Any, table: Any, location: str) -> dict[str, str] | None:
    """Return the options of `stores.filesystem` for files of a Java ``table`` at the URI ``location``.

    They include secrets. Returns None if only Java can reach the store.
    """
    io = table.io()
    properties = text_map(spark._jvm, io.properties())
    if is_instance_of(spark.sparkContext._gateway, io, _WITH_CREDENTIALS):
        handed = [
            (str(credential.prefix()), text_map(spark._jvm, credential.config()))
            for credential in items(io.credentials())
        ]
        properties |= vended(handed, location)
    return options(_class(io, location), properties, location)


def in_store(table: Any, folder: str) -> bool:
    """True if the table's own FileIO, and not Hadoop, lists this folder of its files."""
    return _class(table.io(), folder) != "HadoopFileIO"


def files_in(spark: SparkSession, table: Any, folder: str, before: float) -> Iterator[Orphan]:
    """All files in a folder of a Java table that were last changed ``before`` then, in seconds since 1970."""
    return _stored(table, folder, before) if in_store(table, folder) else listed(spark, folder, before)


def _stored(table: Any, folder: str, before: float) -> Iterator[Orphan]:
    """Yield all files in a folder of a store that were made ``before`` then, in seconds since 1970."""
    for file in items(table.io().listPrefix(f"{folder.rstrip('/')}/")):
        if int(file.createdAtMillis()) / 1000 <= before:
            yield Orphan(str(file.location()), int(file.size()))


def remove_all(io: Any, prefix: str) -> None:
    """Delete all files of this process whose URIs begin so; any that cannot be deleted are orphans."""
    with suppress(Py4JJavaError), java_errors():
        for file in items(io.listPrefix(prefix)):
            delete_by_file_io(io, str(file.location()), NEW)


def delete_folder(spark: Any, table: Any, folder: str) -> None:
    """Delete a folder of files that this process has made; any that cannot be deleted are orphans."""
    if in_store(table, folder):
        remove_all(table.io(), f"{folder}/")
    else:
        with suppress(Py4JJavaError):
            delete_by_hadoop(spark, folder, NEW)


def _class(io: Any, location: str) -> str:
    """Return the class of the FileIO that has this location, without its package."""
    name = str(io.getClass().getSimpleName())
    return str(io.ioClass(location).getSimpleName()) if name == _RESOLVING else name


_METRICS = "write.metadata.metrics."  # properties that say which metrics there are
_modes: LruCache[tuple[Schema, str, dict[str, str]], dict[int, str]] = LruCache(16)


def data_file(jvm: Any, spec: Any, file: WrittenFile, keys: Sequence[Key] = (), sort_order: int = 0) -> Any:
    """Build Java's data file of a written one.

    Args:
        spec: the table's partition spec, as Java has it.
        keys: its fields.
        sort_order: the id of the order of the file's rows.
    """
    # By its JSON, in one call: Java's builder takes one for each metric of each column.
    parser = java_type(jvm, "org.apache.iceberg.ContentFileParser")
    specs = java_type(jvm, "java.util.HashMap")()
    specs.put(spec.specId(), spec)
    node = (
        java_type(jvm, "org.apache.iceberg.util.JsonUtil")
        .mapper()
        .readTree(_json(file, spec.specId(), keys, sort_order))
    )
    return parser.fromJson(node, specs)


def modes_of(jvm: Any, table: Any, schema: Schema, properties: Mapping[str, str]) -> dict[int, str]:
    """Return the metrics that a Java table wants of each leaf column, by its id.

    They are ``none``, ``counts``, ``truncate(n)`` or ``full``, by the table's ``schema`` and ``properties``.
    """
    order = str(java_type(jvm, "org.apache.iceberg.SortOrderParser").toJson(table.sortOrder()))
    cache_key = schema, order, {key: value for key, value in properties.items() if key.startswith(_METRICS)}
    if (cached := _modes.get(cache_key)) is not None:
        return cached
    by_name, default = _modes_by_name(jvm, table)
    out: dict[int, str] = {}

    def visit(type_: Type, name: str, id_: int) -> None:
        """Note the mode of each leaf column inside a type; ``name`` is the dotted path."""
        if isinstance(type_, Primitive):
            out[id_] = by_name.get(name, default)
        for f in children(type_):
            visit(f.type, f"{name}.{f.name}" if name else f.name, f.id)

    visit(schema.struct, "", 0)
    _modes.put(cache_key, out)
    return out


def _modes_by_name(jvm: Any, table: Any) -> tuple[dict[str, str], str]:
    """The modes that a Java table has for some columns, by their dotted paths, and the mode of all others.

    They are read from private fields: the public method answers for one column, and two calls for each take
    seconds where there are tens of thousands.
    """
    config = java_type(jvm, "org.apache.iceberg.MetricsConfig").forTable(table)

    def private(name: str) -> Any:
        field = config.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field.get(config)

    modes = private("columnModes")
    names = json_of(jvm, modes.keySet())
    texts = str(get_method(modes, "values")().toString())[1:-1].split(", ")  # no mode has a comma in its text
    return dict(zip(names, texts if names else (), strict=True)), str(private("defaultMode").toString())


def _json(file: WrittenFile, spec: int, keys: Sequence[Key], sort_order: int) -> str:
    metrics = file.metrics
    return json.dumps(
        {
            "spec-id": spec,
            "content": "data",
            "file-path": file.path,
            "file-format": "parquet",
            "partition": [_partition_value(k, value) for k, value in zip(keys, file.partition, strict=True)],
            "file-size-in-bytes": file.size,
            "record-count": file.rows,
            "column-sizes": _by_id(metrics.sizes),
            "value-counts": _by_id(metrics.values),
            "null-value-counts": _by_id(metrics.nulls),
            "nan-value-counts": _by_id(metrics.nans),
            "lower-bounds": _by_id({id_: bound.hex().upper() for id_, bound in metrics.lower.items()}),
            "upper-bounds": _by_id({id_: bound.hex().upper() for id_, bound in metrics.upper.items()}),
            "split-offsets": list(file.split_offsets),
            "sort-order-id": sort_order,
        }
    )


def _by_id(values: dict[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}


def _partition_value(key: Key, value: Any) -> Any:
    """Return a partition value as Iceberg's JSON has it (Iceberg spec, appendix D)."""
    kind = {"identity": key.type.name, "truncate": key.type.name, "day": "date"}.get(key.transform.name)
    if value is None:
        return None
    match kind:
        case "date":
            return _moment(np.int64(value).astype("datetime64[D]"))
        case "timestamp_ntz":
            return _moment(np.int64(value).astype("datetime64[us]"))
        case "timestamp":
            return _moment(np.int64(value).astype("datetime64[us]")) + "+00:00"
        case "decimal":
            return format(value, "f")
        case "binary":
            return value.hex().upper()
        case _:
            return value


def _moment(value: Any) -> str:
    text = str(value)
    return text if text.startswith("-") or text.index("-") == 4 else f"+{text}"


_TARGET = 512 * 2**20  # bytes of a file, where the table does not say
_GATHERED = 128 * 2**20  # bytes of rows in memory that make a row group
# Settings of a session that come before the table's own.
_SESSION = "spark.sql.iceberg."
_OF_FILES = ("compression-codec", "compression-level")
_OF_SNAPSHOTS = _SESSION + "snapshot-property."
_WITH_VOID = 2  # a format version of which `partition_fields` keeps void fields too
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
    """Have tasks write files of a Java ``table`` with this ``schema``, in the batch's ``folder`` first.

    ``session``: Spark's settings. Returns the files as Java's; None, with nothing written, if Spark's own
    writer must.
    """
    plan = _file_plan(spark, session, table, schema)
    if plan is None:
        return None
    spec, order = table.spec(), int(table.sortOrder().orderId())

    def as_java(file: WrittenFile) -> Any:
        """Return the written file as Java's data file."""
        return data_file(spark._jvm, spec, file, plan.distribution.partition, order)

    place = _place(spark, table, folder, as_java)
    if place is None:
        return None
    return [as_java(file) for file in write_in_tasks(spark.sparkContext, tasks, plan, folder, place)]


def writes_in_tasks(spark: SparkSession, session: Mapping[str, str], table: Any, schema: Schema) -> bool:
    """True if tasks may write files of a Java ``table`` with this ``schema``, instead of Spark's writer."""
    return _file_plan(spark, session, table, schema) is not None


def _place(
    spark: SparkSession, table: Any, folder: BatchFolder, as_java: Callable[[WrittenFile], Any]
) -> Destination | None:
    """Return the destination of files of a Java ``table``; None if tasks cannot reach it."""
    # Iceberg is asked once for each partition, with the batch's id in the name: a layout for object stores
    # spreads batches then, not files.
    locations, spec, location = table.locationProvider(), table.spec(), location_of(table)

    def located(name: str, file: WrittenFile) -> str:
        """Return the location that the table's provider gives a file of this name."""
        if not file.partition:
            return str(locations.newDataLocation(name))
        return str(locations.newDataLocation(spec, as_java(file).partition(), name))

    def prefix(batch: str, partition: Partition) -> str:
        """Return the beginning of the locations of a batch's files in one partition."""
        return located(batch, WrittenFile(_ANY, 1, 1, partition=partition))

    if on_disk(location) is not None:
        return InFolder(folder, lambda file: located(Path(file.path).name, file))
    options = options_of(spark, table, location)
    # A location provider of the owner's own may put the name anywhere.
    if options is None or not prefix(_ANY, ()).endswith(_ANY):
        return None
    return InStore(options, prefix, partial(remove_all, table.io()))


def location_of(table: Any) -> str:
    """The folder of the data files of a Java ``table``; a layout for object stores may add a hash to it."""
    return str(table.locationProvider().newDataLocation("f")).rpartition("/")[0]


def snapshot_properties(
    spark: SparkSession, session: Mapping[str, str], summary: Mapping[str, str]
) -> dict[str, str]:
    """The summary properties of a snapshot: ``summary``, and those that Iceberg's own writer would add.

    ``session``: the settings of the Spark session, which may name some.
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
    """Return the plan by which tasks write files of a Java ``table``; None if Spark's own writer must.

    That is so for other file formats, and for types, keys, places and settings that tasks do not know.
    """
    properties = text_map(spark._jvm, table.properties())
    properties |= {
        f"write.parquet.{key}": session[_SESSION + key] for key in _OF_FILES if _SESSION + key in session
    }
    settings = FileSettings.of(properties, _GATHERED)
    distribution = _distribution(spark._jvm, table, schema)
    if settings is None or distribution is None:
        return None
    if not (
        convertible(schema.struct)
        and properties.get("write.format.default", "parquet").lower() == "parquet"
        and not any(key.startswith(_UNKNOWN) for key in properties)
    ):
        return None
    target = int(properties.get("write.target-file-size-bytes", _TARGET))
    return FilePlan(schema, modes_of(spark._jvm, table, schema, properties), settings, target, distribution)


def _distribution(jvm: Any, table: Any, schema: Schema) -> Distribution | None:
    """Return the keys of the table's spec and of its sort order; None if tasks cannot divide rows by them."""
    # By its fields: Java calls a spec of void ones alone unpartitioned, and its files have values of them.
    if table.spec().fields().isEmpty() and table.sortOrder().isUnsorted():
        return Distribution()
    columns = {f.id: (path, f.type) for path, f in schema.walk()}

    def key(source: int, transform: Transform, *, descending: bool = False, nulls_first: bool = True) -> Key:
        """The key of a partition field or a sort field; a void one, whose column may be gone, has no type."""
        # The column of a void field may be gone.
        path, type_ = columns.get(source, ((), UNKNOWN))
        primitive = type_ if isinstance(type_, Primitive) else UNKNOWN
        return Key(path, primitive, transform, descending=descending, nulls_first=nulls_first)

    spec = json.loads(java_type(jvm, "org.apache.iceberg.PartitionSpecParser").toJson(table.spec()))
    order = json.loads(java_type(jvm, "org.apache.iceberg.SortOrderParser").toJson(table.sortOrder()))
    distribution = Distribution(
        tuple(key(f.source, f.transform) for f in partition_fields(spec, _WITH_VOID)),
        tuple(
            key(f.source, f.transform, descending=f.descending, nulls_first=f.nulls_first)
            for f in sort_fields(order)
        ),
    )
    return distribution if distribution.known else None


# A column of data files: the sequence number of each row's last change.

_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
# Of relation, rows and options: what Spark is to do
_Command: TypeAlias = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, slots=True)
class SparkWriter:
    """Spark's writer into Java tables.

    Attributes:
        catalog: as Spark has it, with the functions by which rows are handed to the writers of partitions.
    """

    spark: SparkSession
    catalog: Any

    def append(self, table: Any, frame: DataFrame, summary: Mapping[str, str]) -> None:
        """Append the rows."""
        options = {f"snapshot-property.{key}": value for key, value in summary.items()}
        append = self._java(f"{_PLANS}AppendData").byName
        self._run(spark_table(self.spark, table), frame, options, append)

    def files_with_ids(self, table: Any, frame: DataFrame) -> list[Any]:
        """Write the rows with their ids as files that are to be committed.

        No writer but the one that compacts tables takes ids.
        """
        group = uuid4().hex
        # Iceberg's Spark writer accepts `_row_id` only in copy-on-write and compaction.
        coordinator = self._java("org.apache.iceberg.spark.FileRewriteCoordinator").get()
        try:
            append = self._java(f"{_PLANS}AppendData").byName
            target, options = rewritten_table(self.spark, table, group)
            self._run(target, frame, options, append)
            return items(coordinator.fetchNewFiles(table, group))
        finally:
            coordinator.clearRewrite(table, group)

    def _run(self, target: Any, frame: DataFrame, options: Mapping[str, str], command: _Command) -> None:
        # Spark's internal plans, as CREATE TABLE AS SELECT has them, are the only way for Spark to append to
        # an open transaction.
        relation = self._java("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
        option = self._java("scala.Option")
        into = relation.create(target, option.apply(self.catalog), option.empty())
        scala = self._java("org.apache.spark.api.python.PythonUtils").toScalaMap(dict(options))
        jdf: Any = frame._jdf
        rows_of(self.spark, jdf.sparkSession(), command(into, jdf.logicalPlan(), scala))

    def _java(self, name: str) -> Any:
        return java_type(self.spark._jvm, name)


# Checksums, which begin with a dot, are deleted with their files.
_WRITTEN_BY_SPARK = re.compile(r"/driftline-[0-9a-f]{32}/(.+/)?[^./][^/]*$")

DATA_PATH = "write.data.path"
_PATHS = (DATA_PATH, "write.object-storage.path", "write.folder-storage.path")


def data_folders(properties: Any, location: str) -> Iterator[str]:
    """Yield the possible folders of a table's data files, the likeliest first.

    ``properties``: the table's, Java's map or Python's.
    """
    for name in _PATHS:
        if (path := properties.get(name)) is not None:
            yield str(path).rstrip("/")
    yield f"{location}/data"


def is_ours(path: str, *, remote: bool = False) -> bool:
    """True for the path of a file that driftline writes for a table. ``remote``: it is in a store."""
    patterns = (WRITTEN, _WRITTEN_BY_SPARK, WRITTEN_LEDGER, WRITTEN_NOTE, *([STAGED] if remote else []))
    return any(pattern.search(path) for pattern in patterns)


def new_folder(table: Any) -> str:
    """Return a folder for files of a Java table, of a name that nothing has yet."""
    return f"{next(data_folders(table.properties(), table.location()))}/driftline-{uuid4().hex}"


def staging_transaction(jvm: Any, java: Any, inside: Any, schema: Schema, folder: str) -> Any:
    """A Java transaction on the table ``java``, never to be committed, whose data files go into the folder.

    Its table is as it is ``inside`` another transaction, but for the columns that ``schema`` lacks.
    """
    transaction = java.newTransaction()
    operations, now = transaction.table().operations(), inside.operations().current()
    builder = (
        java_type(jvm, "org.apache.iceberg.TableMetadata").buildFrom(now).setProperties({DATA_PATH: folder})
    )
    # Only this transaction lacks the columns that Spark has no type for: dropped from the table's schema,
    # their values would vanish from time travel.
    builder.setCurrentSchema(java_schema(jvm, schema), max(now.lastColumnId(), schema.highest_id()))
    operations.commit(operations.current(), builder.build())
    return transaction


def taken_files(table: Any, before: Any) -> list[Any]:
    """Return the data files that a staging transaction has added since the snapshot ``before``.

    ``table``: the transaction's. The metadata files of the addition are deleted.
    """
    snapshot = table.currentSnapshot()
    if snapshot is None or (before is not None and snapshot.snapshotId() == before.snapshotId()):
        return []
    files = items(snapshot.addedDataFiles(table.io()))
    for path in telling(table):
        delete_by_file_io(table.io(), path, NEW)
    return files
