"""Columns of types that Spark cannot represent; tables are read and written without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import VARIANT, Primitive, Schema, dotted, without_types
from driftline.errors import DataError
from driftline.formats.iceberg.gateway import items, java_schema
from driftline.runtime.spark_version import has_variants, java_type, rows_of, spark_table, unknown_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMES = ("time", "timestamp_ns", "timestamptz_ns")
_SHAPES = ("geometry", "geography")  # what they are measured in stands behind


def _unread() -> tuple[str, ...]:
    """Types with one of which Spark knows no such table."""
    return (*_TIMES, *unknown_types())


def _unseen() -> tuple[str, ...]:
    """Types of which Spark has no values."""
    return (*_unread(), *_SHAPES)


def readable(schema: Schema) -> Schema:
    """Return the schema without what Spark cannot read: a struct, list or map goes with all that is in it."""
    return _without(schema, _unseen())


def fillable(schema: Schema) -> Schema:
    """Return the schema without what Spark cannot write either."""
    return _without(schema, (*_unseen(), "unknown"))


def _without(schema: Schema, gone: tuple[str, ...]) -> Schema:
    return without_types(schema, lambda type_: _is_of(type_, gone))


def _is_of(type_: Primitive, names: tuple[str, ...]) -> bool:
    return type_.name.partition("(")[0] in names


def left_out(schema: Schema) -> list[str]:
    """Return the columns whose values Spark has not, each with its type."""
    unseen = _unseen()
    return [
        f"{dotted(path)}, a {type_name(f.type)}"
        for path, f in schema.walk()
        if isinstance(f.type, Primitive) and _is_of(f.type, unseen)
    ]


def unreadable(table: str, schema: Schema) -> DataError | None:
    """Return the reason that Spark cannot read the table; None if it can."""
    unread = _unread()
    for path, f in schema.walk():
        if isinstance(f.type, Primitive) and f.type.name in unread:
            return DataError(
                f"{table}: Spark cannot read {dotted(path)}, a {type_name(f.type)}, nor what stands beside it",
                f"read it with another engine, or DROP COLUMN {dotted(path)}; ingest then works without it",
            )
    return None


def warnings(before: Schema, after: Schema) -> list[str]:
    """Sentences for readers of the table about new columns of types that they may not know."""
    before_ids, unread = {f.id for _, f in before.walk()}, _unread()
    out = []
    for path, f in after.walk():
        if f.id in before_ids or not isinstance(f.type, Primitive):
            continue
        if f.type.name in unread:
            out.append(f"Spark cannot read the table while it has {dotted(path)}, a {type_name(f.type)}")
        elif f.type == VARIANT:
            out.append(
                f"{dotted(path)} is a variant: pyiceberg, and other readers that do not know the type, "
                "cannot load the table"
            )
    return out


def check_variants(table: str, schema: Schema, before: Schema | None = None) -> None:
    """Check that Spark has values of each VARIANT that was not there ``before``. Raises DataError."""
    if has_variants():
        return
    ids_before = {f.id for _, f in before.walk()} if before else set()
    for path, f in schema.walk():
        if f.type == VARIANT and f.id not in ids_before:
            raise DataError(
                f"{table}: {dotted(path)} is a variant, a type that Spark 3.5 does not have",
                f"use Spark 4.0 or newer, or DROP COLUMN {dotted(path)}",
            )


def check_left_out(table: str, schema: Schema) -> None:
    """Check that rows without these columns are complete: null there, or the default. Raises DataError."""
    ids = {f.id for _, f in fillable(schema).walk()}
    for path, f in schema.walk():
        if f.id not in ids and (f.required or f.initial_default != f.write_default):
            refusal = "is required" if f.required else "has a default of its own for new rows"
            raise DataError(
                f"{table}: {dotted(path)}, a {type_name(f.type)}, {refusal}, and Spark cannot write it",
                f"ALTER TABLE {table} ALTER COLUMN {dotted(path)} DROP {'NOT NULL' if f.required else 'DEFAULT'}",
            )


def with_schema(jvm: Any, java: Any, schema: Schema) -> Any:
    """Begin a Java transaction on the table, of this schema with the same ids, never to be committed."""
    # Spark takes the columns of a table from its metadata, so it gets metadata without those that it cannot
    # read.
    transaction = java.newTransaction()
    operations = transaction.table().operations()
    base = operations.current()
    fields = java_schema(jvm, schema)
    last = max(base.lastColumnId(), schema.highest_id())
    builder = (
        java_type(jvm, "org.apache.iceberg.TableMetadata").buildFrom(base).setCurrentSchema(fields, last)
    )
    operations.commit(base, builder.build())
    return transaction


_OPTIONS = 4  # the place among the fields of a relation


def frame_of(spark: SparkSession, java: Any, options: Mapping[str, str] | None = None) -> DataFrame:
    """Return the rows of a Java table, which no catalog need know, read by ``options``."""
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    none = java_type(jvm, "scala.Option").empty()
    # Not by a name, which Spark would look up and load again, as others have left the table by then.
    relation = java_type(jvm, "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation").create(
        spark_table(spark, java), none, none
    )
    if options is not None:
        # A case class: of later versions of Spark it has further fields behind these.
        parts = [relation.productElement(number) for number in range(relation.productArity())]
        parts[_OPTIONS] = java_type(jvm, "org.apache.spark.sql.util.CaseInsensitiveStringMap")({**options})
        relation = relation.copy(*parts)
    return DataFrame(rows_of(spark, spark._jsparkSession, relation), spark)


def partial(
    spark: SparkSession,
    java: Any,
    name: str,
    schema: Schema,
    metadata: str = "",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows of a Java table, or of one of its ``metadata`` tables, without columns that Spark cannot read.

    ``name``: the table's, for messages; ``schema``: the table's, whose unreadable columns are left out;
    ``options``: as of `frame_of`.
    """
    jvm: Any = spark._jvm
    operations = with_schema(jvm, java, readable(schema)).table().operations()
    view = java_type(jvm, "org.apache.iceberg.BaseTable")(operations, name)
    if metadata:
        kind = getattr(java_type(jvm, "org.apache.iceberg.MetadataTableType"), metadata.upper())
        view = java_type(jvm, "org.apache.iceberg.MetadataTableUtils").createMetadataTableInstance(view, kind)
    return frame_of(spark, view, options)


def telling(table: Any, snapshot: Any = None) -> list[str]:
    """Return the metadata files that a snapshot of a Java table has of its own, by default its latest one."""
    snapshot, io = snapshot or table.currentSnapshot(), table.io()
    manifests = [
        m.path() for m in items(snapshot.allManifests(io)) if m.snapshotId() == snapshot.snapshotId()
    ]
    return [*map(str, manifests), str(snapshot.manifestListLocation())]
