"""Reads a DuckLake table as a DataFrame by field id, whatever names and types its files have.

Spark's own reader by field id gives wrong answers for swapped names if a filter or a nested selection uses
them. So the files are read under names that nobody uses, ``__f`` and the id, and a cast gives them their
names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from driftline.core.history.entries import COMPACTED
from driftline.core.schema.types import Field, List, Map, Primitive, Schema, Struct, Type, children
from driftline.errors import DataError, no_table
from driftline.files.whole import StagedRows
from driftline.formats.base import State
from driftline.formats.ducklake.files import unchanged
from driftline.formats.ducklake.inlined import InlinedRows, duckdb_type, for_spark
from driftline.formats.ducklake.scan import MapRow, Scan, ScanGroup, scan
from driftline.formats.ducklake.seen import snapshot_properties
from driftline.formats.ducklake.snapshot import DuckLakeHandle, load
from driftline.formats.ducklake.types import read_type, rows_of, spark_name, to_sql
from driftline.formats.ducklake.write import FIELD_ID, parsed
from driftline.runtime.duckdb import instance
from driftline.runtime.duckdb import literal as duckdb_literal
from driftline.runtime.file_io import hadoop_path
from driftline.runtime.spark_conf import PLAIN, configured, literally
from driftline.runtime.spark_version import from_arrow, reads_bare_structs
from driftline.sql.quoting import each, literal, name, variable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

    from driftline.formats.ducklake.catalog import Connection
    from driftline.formats.ducklake.types import ColumnRow


@dataclass(frozen=True, slots=True)
class Columns:
    """Expressions of columns.

    Attributes:
        defaults: by id, DuckLake's text of the value that files without the column read as.
    """

    table: str
    defaults: Mapping[int, str | None]

    def all(self, struct: Struct, missing: frozenset[int]) -> list[Column]:
        """Return the columns of a scan by id, under their names and types."""
        from pyspark.sql import functions as F

        out = []
        for f in struct.fields:
            target = self.spark(f.type, f.name)
            if f.id in missing:
                column = F.expr(self.missing(f))
            elif self.plain(f.type, missing):
                column = F.col(f"__f{f.id}")
            else:
                column = F.expr(self.rebuilt(f.type, f"__f{f.id}", missing, None, f.name))
            out.append(column.cast(target).alias(f.name))
        return out

    def plain(self, type_: Type, missing: frozenset[int]) -> bool:
        """True if a cast is enough."""
        return not (isinstance(type_, Primitive) and self.special(type_)) and all(
            child.id not in missing and self.plain(child.type, missing) for child in children(type_)
        )

    def special(self, type_: Primitive) -> bool:
        """True if the type needs an expression of its own: a UUID, or a type that Spark cannot read."""
        return type_.name == "duckdb_uuid" or self.refused(type_, "") is not None

    def refused(self, type_: Type, where: str) -> str | None:
        """Return the reason Spark cannot read the type; None if it can, or can read some fields of it."""
        if isinstance(type_, Struct):
            whys = [self.refused(f.type, f"{where}.{f.name}") for f in type_.fields]
            return whys[0] if whys and all(whys) else None
        if not isinstance(type_, Primitive):
            return next((why for c in children(type_) if (why := self.refused(c.type, where))), None)
        try:
            spark_name(type_, f"{self.table}.{where}")
        except DataError as error:
            return error.message
        return None

    def missing(self, field: Field) -> str:
        """Return the value that files without the column read as."""
        text = self.defaults.get(field.id)
        if text is None or not isinstance(field.type, Primitive):
            return "null"
        if why := self.refused(field.type, field.name):
            # Only where it is read: a query of other columns succeeds.
            return f"raise_error({literal(why)})"
        return to_sql(text, field.type, f"{self.table}.{field.name}")

    def rebuilt(
        self,
        type_: Type,
        x: str,
        missing: frozenset[int],
        names: Mapping[int, MapRow] | None,
        where: str,
        has: set[int] | None = None,
    ) -> str:
        """Rebuild a value field by field.

        ``names``: those in the file, if it has no ids; ``has``: the ids that occur at all.
        """

        def child(f: Field, x: str) -> str:
            """Return SQL of a field inside the value ``x``, or of its default if the files lack it."""
            has_value = (
                f.id in names if names is not None else (has is None or f.id in has) and f.id not in missing
            )
            if not has_value:
                return self.missing(f)
            field_name = name(names[f.id].name) if names is not None else f"__f{f.id}"
            return self.rebuilt(f.type, f"{x}.{field_name}", missing, names, f"{where}.{f.name}", has)

        if why := self.refused(type_, where):
            return f"raise_error({literal(why)})"
        match type_:
            case Struct(fields):
                children_sql = ", ".join(f"{child(f, x)} as {name(f.name)}" for f in fields)
                return f"if({x} is null, null, struct({children_sql}))"
            case List(element):
                return each(x, lambda e: self.rebuilt(element, e, missing, names, where, has))
            case Map(key, value):
                k, v = variable("k"), variable("v")
                made_key = self.rebuilt(key, f"{k}", missing, names, where, has)
                made_value = self.rebuilt(value, f"{v}", missing, names, where, has)
                x = x if made_value == v else f"transform_values({x}, ({k}, {v}) -> {made_value})"
                return x if made_key == k else f"transform_keys({x}, ({k}, {v}) -> {made_key})"
            case Primitive():
                return self.leaf(type_, x, text=has is not None)

    def leaf(self, type_: Primitive, x: str, *, text: bool) -> str:
        """Return SQL of a leaf's value: a UUID of 16 bytes as its text, all else as it is."""
        if type_.name == "duckdb_uuid" and not text:
            h = f"lower(hex({x}))"
            cuts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
            joined = ", ".join(f"substr({h}, {start}, {size})" for start, size in cuts)
            # DuckDB's files have 16 bytes; Spark, where a default is one, writes the text.
            return f"case when length({x}) = 16 then concat_ws('-', {joined}) else cast({x} as string) end"
        return x

    def spark(self, type_: Type, where: str) -> DataType:
        """The Spark type of the column in the result. Raises DataError for one that Spark cannot read."""
        return _readable(type_, f"{self.table}.{where}")

    def by_id(self, struct: Struct, group: ScanGroup) -> StructType:
        """Return the struct to read from files: names and metadata by id, without the missing columns."""
        from pyspark.sql.types import StringType, StructField, StructType

        fields_there = [
            StructField(f"__f{f.id}", self.asked(f, group), True, {FIELD_ID: f.id})
            for f in struct.fields
            if f.id not in group.missing and not self.refused(f.type, "")
        ]
        # A struct of which nothing can be read is still null or not.
        return StructType(fields_there or [StructField("__none", StringType())])

    def asked(self, f: Field, group: ScanGroup) -> DataType:
        """Return the type that a column is read as: that which the files have."""
        from pyspark.sql.types import ArrayType, MapType

        inside = children(f.type)
        match f.type:
            case Struct(fields) as struct:
                self.check_bare(f, [g for g in fields if g.id not in group.missing])
                return self.by_id(struct, group)
            case List():
                return ArrayType(self.asked(inside[0], group), True)
            case Map():
                return MapType(self.asked(inside[0], group), self.asked(inside[1], group), True)
            case Primitive() as now:
                return self.leaf_asked(f.id, now, group)

    def check_bare(self, struct: Field, in_files: Sequence[Field]) -> None:
        """Raise DataError if Spark reads the struct as null wherever files have no other fields of it."""
        if not reads_bare_structs() and all(self.refused(f.type, "") for f in in_files):
            raise DataError(
                f"{self.table}: before version 4.1 Spark reads the struct {struct.name} as null in files that have none "
                "of the fields that it has now",
                hint="read the table with Spark 4.1, or with DuckDB",
            )

    def leaf_asked(self, id_: int, now: Primitive, group: ScanGroup) -> DataType:
        """Return the Spark type to read a leaf as: that of the group's files, bytes for a UUID."""
        from pyspark.sql.types import BinaryType

        earlier = dict(group.types).get(id_)
        type_ = now if earlier is None else read_type(earlier)
        return BinaryType() if type_.name == "duckdb_uuid" else parsed(spark_name(type_, self.table))

    def by_name(self, f: Field, names: Mapping[int, MapRow], group: ScanGroup) -> StructField:
        """Return a column as a mapped file has it."""
        from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

        def of(f: Field) -> DataType:
            """Return a field's Spark type, with the fields inside that the files have and Spark reads."""
            inside = children(f.type)
            match f.type:
                case Struct(fields):
                    self.check_bare(f, [g for g in fields if g.id in names])
                    fields_there = [g for g in fields if g.id in names and not self.refused(g.type, "")]
                    none = [StructField("__none", StringType())]
                    return StructType([self.by_name(g, names, group) for g in fields_there] or none)
                case List():
                    return ArrayType(of(inside[0]), True)
                case Map():
                    return MapType(of(inside[0]), of(inside[1]), True)
                case Primitive() as now:
                    return self.leaf_asked(f.id, now, group)

        return StructField(names[f.id].name, of(f))


def target(struct: Struct, table: str) -> StructType:
    """Return the Spark type of the table's rows. Raises DataError for a column that Spark cannot read."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, _readable(f.type, f"{table}.{f.name}")) for f in struct.fields])


def _readable(type_: Type, where: str) -> DataType:
    """Return the Spark type; text for a type that Spark cannot read, which fails once it is read."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    match type_:
        case Struct(fields):
            return StructType([StructField(f.name, _readable(f.type, where)) for f in fields])
        case List(element):
            return ArrayType(_readable(element, where), True)
        case Map(key, value):
            return MapType(_readable(key, where), _readable(value, where), True)
        case Primitive():
            try:
                return parsed(spark_name(type_, where))
            except DataError:
                return StringType()


SNAPSHOT = "_ducklake_internal_snapshot_id"  # in files that hold rows of several snapshots
_OPTIONS = {"datetimeRebaseMode": "CORRECTED", "recursiveFileLookup": "false"}
_PATH, _ROW = "__path", "__row"
_SCHEME = "^[a-z0-9+.-]+:/+"  # file:/ is file:/// in places


def read(spark: SparkSession, scan: Scan, table: str) -> DataFrame:
    """Return the rows. Raises DataError where a file is not as it was registered, or Spark cannot open it."""
    # A column that was renamed has its former name in older files, and the same id.
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    unchanged({**scan.files}, table)
    for path, column in scan.unopened.items():
        raise DataError(
            f"{table}: this version of Spark cannot open {path}, which has {column}",
            hint="read the table with Spark 4.1, or with DuckDB",
        )
    with configured(spark, PLAIN):
        return _rows(spark, scan, table)


def _rows(spark: SparkSession, scan: Scan, table: str) -> DataFrame:
    columns = Columns(table, {row.id: row.initial_default for row in scan.state.columns})
    struct = scan.state.schema.struct
    frames = [
        _of_files(spark, scan, group, paths, columns).select(*columns.all(struct, group.missing))
        if group.mapping is None
        else _of_mapped(spark, scan, group, paths, columns)
        for group, paths in scan.groups.items()
    ]
    frames += [_of_inlined(spark, rows, struct, columns) for rows in scan.inlined]
    if not frames:
        return spark.createDataFrame([], target(struct, table))
    return reduce(lambda a, b: a.unionAll(b), frames)


def _of_files(
    spark: SparkSession, scan: Scan, group: ScanGroup, paths: list[str], columns: Columns
) -> DataFrame:
    """Files with field ids, their columns named by them."""
    from pyspark.sql.types import LongType, StructField, StructType

    struct = columns.by_id(scan.state.schema.struct, group)
    if group.partial:
        struct = StructType([*struct.fields, StructField(SNAPSHOT, LongType())])
    return _live(spark, _loaded(spark, struct, paths), scan, group, paths)


def _of_mapped(
    spark: SparkSession, scan: Scan, group: ScanGroup, paths: list[str], columns: Columns
) -> DataFrame:
    """Files whose columns are found by the names that they had when they were registered."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    assert group.mapping is not None
    rows = scan.mappings[group.mapping]
    names = {row.id: row for row in rows}
    struct = scan.state.schema.struct
    readable = [f for f in struct.fields if f.id in names and not columns.refused(f.type, "")]
    inside = [f for f in readable if not names[f.id].hive]
    hive = {f.id: names[f.id].name for f in readable if names[f.id].hive}
    schema = StructType([columns.by_name(f, names, group) for f in inside])
    frame = _live(spark, _loaded(spark, schema, paths), scan, group, paths)
    if hive:
        frame = _with_hive(spark, frame, scan, hive, paths, columns.table)
    columns_sql = []
    for f in struct.fields:
        if f.id in hive:
            x = f"__h{f.id}"
        elif f.id in names:
            x = columns.rebuilt(f.type, name(names[f.id].name), group.missing, names, f.name)
        else:
            x = columns.missing(f)
        columns_sql.append(F.expr(x).cast(columns.spark(f.type, f.name)).alias(f.name))
    return frame.select(*columns_sql)


def _with_hive(
    spark: SparkSession, frame: DataFrame, scan: Scan, keys: Mapping[int, str], paths: list[str], table: str
) -> DataFrame:
    """Add the texts in the paths of the files: a column ``__h`` and its id for each of ``keys``."""
    from pyspark.sql import functions as F

    as_spark = _as_spark_says(spark)
    rows = {keys[row.id]: row for row in scan.state.columns if row.id in keys}
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    values = from_arrow(spark, _hive_values({path: as_spark(path) for path in paths}, rows, zone, table))
    return frame.withColumn(_PATH, _bare_path()).join(
        F.broadcast(values.withColumnRenamed("path", _PATH)), _PATH, "left"
    )


def _of_inlined(spark: SparkSession, rows: InlinedRows, struct: Struct, columns: Columns) -> DataFrame:
    """Read rows from the catalog. They have the columns of their time, and the defaults of later ones."""
    from pyspark.sql import functions as F

    has = {row.id for row in rows.columns}
    # Spark computes all columns of rows that it holds itself, before it knows
    # which are asked for: also one that fails.
    frame = from_arrow(spark, rows.rows).coalesce(1)
    missing = frozenset(i for i in columns.defaults if i not in has)
    selected = []
    for f in struct.fields:
        x = (
            columns.rebuilt(f.type, f"__f{f.id}", missing, None, f.name, has)
            if f.id in has
            else columns.missing(f)
        )
        selected.append(F.expr(x).cast(columns.spark(f.type, f.name)).alias(f.name))
    return frame.select(*selected)


def _loaded(spark: SparkSession, schema: StructType, paths: list[str]) -> DataFrame:
    return spark.read.options(**_OPTIONS).schema(schema).parquet(*map(literally, paths))


def _live(spark: SparkSession, frame: DataFrame, scan: Scan, group: ScanGroup, paths: list[str]) -> DataFrame:
    """Return the rows that are not deleted, nor later than the snapshot."""
    from pyspark.sql import functions as F

    if group.partial:
        frame = frame.where(F.col(SNAPSHOT) <= F.lit(scan.state.snapshot))
    if not group.deletes:
        return frame
    gone = _deleted(spark, scan, paths)
    names = frame.columns
    numbered = frame.select("*", _bare_path().alias(_PATH), F.col("_metadata.row_index").alias(_ROW))
    # The columns that follow from the path are still asked for, behind the join.
    return numbered.join(F.broadcast(gone), [_PATH, _ROW], "left_anti").select(*(F.col(c) for c in names))


def _deleted(spark: SparkSession, scan: Scan, paths: list[str]) -> DataFrame:
    """Return the path, in Spark's spelling, and the number of each deleted row."""
    from pyspark.sql import functions as F

    as_spark = _as_spark_says(spark)
    schema = f"{_PATH} string, {_ROW} bigint"
    parts = []
    inlined = [(as_spark(path), row) for path in paths for row in scan.deleted.get(path, ())]
    if inlined:
        parts.append(spark.createDataFrame(inlined, schema))
    data_of = {as_spark(scan.deletes[path]): as_spark(path) for path in paths if path in scan.deletes}
    if data_of:
        files = _delete_files(spark, sorted({scan.deletes[path] for path in paths if path in scan.deletes}))
        which = spark.createDataFrame(list(data_of.items()), "delete_path string, data_path string")
        rows = files.select("pos", SNAPSHOT, _bare_path().alias("delete_path")).join(
            F.broadcast(which), "delete_path"
        )
        now = F.col(SNAPSHOT).isNull() | (F.col(SNAPSHOT) <= F.lit(scan.state.snapshot))
        parts.append(rows.where(now).select(F.col("data_path").alias(_PATH), F.col("pos").alias(_ROW)))
    return reduce(lambda a, b: a.unionAll(b), parts)


def _delete_files(spark: SparkSession, paths: list[str]) -> DataFrame:
    from pyspark.sql.types import LongType, StructField, StructType

    return _loaded(
        spark, StructType([StructField("pos", LongType()), StructField(SNAPSHOT, LongType())]), paths
    )


def _bare_path() -> Column:
    """Return the row's file, as `_as_spark_says` has it."""
    from pyspark.sql import functions as F

    return F.regexp_replace(F.col("_metadata.file_path"), _SCHEME, "/")


def _as_spark_says(spark: SparkSession) -> Callable[[str], str]:
    session: Any = spark._jsparkSession
    conf = session.sessionState().newHadoopConf()

    def said(path: str) -> str:
        """Return a path in the form of Spark's column of file names."""
        java = hadoop_path(spark, path)
        qualified = str(java.getFileSystem(conf).makeQualified(java).toUri().toString())
        return re.sub(_SCHEME, "/", qualified)

    return said


def read_table(table: DuckLakeHandle, snapshot: int | None = None) -> DataFrame:
    """Read the table's rows, as they are now or were at a snapshot. Raises UsageError without a table."""
    return read(table.spark, scanned(table, snapshot), table.name)


def scanned(table: DuckLakeHandle, snapshot: int | None = None) -> Scan:
    """Scan the table as it is now or was at a snapshot. Raises UsageError without a table."""

    def look(connection: Connection) -> Scan:
        """Scan the table at the snapshot."""
        state = load(connection, table.name, snapshot)
        if not state.exists:
            raise no_table(table.name)
        return scan(connection, state)

    return table.catalog.read(look)


def read_files(table: DuckLakeHandle, paths: Sequence[str], snapshot: int) -> DataFrame:
    """Read the rows of some of the table's files, whose ``paths`` are below its folder."""

    def look(connection: Connection) -> Scan:
        """Scan these files alone."""
        state = load(connection, table.name, snapshot)
        if state.table is None:
            raise no_table(table.name)
        return scan(connection, state).of({state.table.folder + path for path in paths})

    return read(table.spark, table.catalog.read(look), table.name)


def read_as(table: DuckLakeHandle, schema: Schema) -> DataFrame:
    """Read the table's rows, as they would be with another schema."""

    def look(connection: Connection) -> Scan:
        """Scan the table's files under the other schema."""
        state = load(connection, table.name)
        rows = rows_of(schema, state.schema, state.columns, table.name)
        return scan(connection, replace(state, schema=schema, columns=tuple(rows)))

    return read(table.spark, table.catalog.read(look), table.name)


def read_behind(table: DuckLakeHandle, change: Callable[[Connection], int], before: int | None) -> StagedRows:
    """Read the table's rows behind a change that makes a snapshot, and that nobody else ever sees.

    Those alone that it appends to a snapshot ``before``.
    """

    def look(connection: Connection) -> Scan:
        """Scan the table at the snapshot."""
        behind = scan(connection, load(connection, table.name, change(connection)))
        if before is None:
            return behind
        appended = behind.beyond(scan(connection, load(connection, table.name, before)))
        assert appended is not None, "a change that only appends leaves the rows that were there"
        return appended

    found = table.catalog.tried(look)
    return StagedRows(read(table.spark, found, table.name), found.whole_files)


def read_between(table: DuckLakeHandle, before: State, now: State) -> DataFrame | None:
    """Read the rows that others appended between two states of the table; None if they did more."""

    def look(connection: Connection) -> list[Scan | None]:
        """Scan the files added between the snapshots; None among them if there were other changes."""

        def between(first: int, last: int) -> Scan | None:
            """Scan the files added between two snapshots that have no compaction between them."""
            start, end = (scan(connection, load(connection, table.name, each)) for each in (first, last))
            return end.beyond(start)

        return [between(*stretch) for stretch in _stretches(connection, before, now)]

    scans = table.catalog.read(look)
    added = [read(table.spark, each, table.name) for each in scans if each is not None]
    return reduce(lambda a, b: a.unionAll(b), added) if len(added) == len(scans) else None


def _stretches(connection: Connection, before: State, now: State) -> list[tuple[int, int]]:
    """Return the first and the last snapshot of each stretch without compactions between two states.

    A compaction moves rows of the stretch before it, and of those before, which are read where they came.
    """
    assert before.snapshot is not None
    assert now.snapshot is not None
    compactions = [
        int(snapshot)
        for snapshot, extra in connection.rows(
            "SELECT snapshot_id, commit_extra_info FROM meta.ducklake_snapshot_changes "
            "WHERE snapshot_id > ? AND snapshot_id <= ? AND commit_extra_info LIKE ? ORDER BY 1",
            [before.snapshot, now.snapshot, f"%{COMPACTED}%"],
        )
        if COMPACTED in snapshot_properties(extra)
    ]
    firsts, lasts = [before.snapshot, *compactions], [*(each - 1 for each in compactions), now.snapshot]
    return list(zip(firsts, lasts, strict=True))


_HIVE_NULLS = ("null", "__hive_default_partition__")


def _hive_values(paths: Mapping[str, str], columns: Mapping[str, ColumnRow], zone: str, table: str) -> Any:
    """An Arrow table: the second name of each path as ``path``, and its values as columns ``__h`` and the id.

    ``columns`` by key; ``zone``: of instants that name none. Raises
    DataError for a value that the type has not.
    """
    import duckdb
    import pyarrow as pa

    keys = [_in_path(path) for path in paths]
    columns_of_values: dict[str, Any] = {"path": list(paths.values())}
    for key, row in columns.items():
        columns_of_values[f"__h{row.id}"] = pa.array(
            [_text_in_path(partition.get(key), row.type) for partition in keys], pa.string()
        )
    texts = pa.table(columns_of_values)  # noqa: F841  DuckDB finds the local variable by its name
    casts = ", ".join(
        f"{for_spark(f'CAST(__h{row.id} AS {duckdb_type(row, {})})', row, {})} AS __h{row.id}"
        for row in columns.values()
    )
    with instance() as connection:
        connection.execute(f"SET TimeZone = {duckdb_literal(zone)}")
        try:
            return connection.execute(f"SELECT path, {casts} FROM texts").to_arrow_table()
        except duckdb.Error as error:
            raise DataError(
                f"{table}: a value in the path of a file does not fit its column: {str(error).splitlines()[0]}",
                hint=f"it is in one of {len(paths)} files, as {next(iter(paths))}",
            ) from error


def _in_path(path: str) -> dict[str, str]:
    """Return the keys and values of a path, as they are spelled there; of a key that stands twice the first.

    >>> _in_path("/in/a=1/b=x%20y/a=2/c=3.parquet"), _in_path("/a=b=c/=1/d?=2/x")
    ({'a': '1', 'b': 'x%20y'}, {})
    """
    out: dict[str, str] = {}
    for part in re.split(r"[/\\\\]", path)[:-1]:
        key, sign, value = part.partition("=")
        if key and sign and not re.search(r"[=?\n]", key + value):
            out.setdefault(key, value)
    return out


def _text_in_path(value: str | None, type_: str) -> str | None:
    if value is None or value.lower() in _HIVE_NULLS or (not value and type_.lower() != "varchar"):
        return None
    return unquote(value)
