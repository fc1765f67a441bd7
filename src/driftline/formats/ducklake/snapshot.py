"""A DuckLake table as its catalog describes it at one snapshot, and the source files it has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.core.schema.naming import table_parts
from driftline.core.schema.types import Schema
from driftline.errors import DataError, NeedsSpark
from driftline.formats.base import REMEMBERED, State
from driftline.formats.ducklake.catalog import CatalogDatabase, Connection, NoLakeError
from driftline.formats.ducklake.types import COMMENT, ColumnRow, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MAPPING = "driftline.mapping"  # the tag that `mapping` keeps its own book in
# Behind a table's name: the table of the deletes that it remembers
DELETES_SUFFIX = "__deletes"
DELETES_OF = "driftline.deletes-of"  # the tag of such a table: the uuid of the other
# Rows that a snapshot sees, with the snapshot as the parameter, twice.
LIVE = "begin_snapshot <= ? AND (end_snapshot IS NULL OR end_snapshot > ?)"


def live(alias: str) -> str:
    """`LIVE` of one table of a join."""
    return f"{alias}.begin_snapshot <= ? AND ({alias}.end_snapshot IS NULL OR {alias}.end_snapshot > ?)"


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table's row in the catalog. ``folder``: of its files, absolute, with a slash at its end."""

    id: int
    schema_id: int
    uuid: str
    folder: str


@dataclass(frozen=True, slots=True)
class LakeState(State):
    """A DuckLake table as it was loaded."""

    table: TableRow | None = None
    columns: tuple[ColumnRow, ...] = ()


@dataclass(frozen=True, slots=True)
class DuckLakeHandle:
    """One table of one DuckLake, existing or not: what its readers, alterations and transactions hold.

    Attributes:
        catalog: the lake's database.
        name: ``namespace.table``.
        session: of Spark; None without Spark.
    """

    catalog: CatalogDatabase
    name: str
    session: SparkSession | None = None

    def __post_init__(self) -> None:
        split(self.name)

    @property
    def spark(self) -> SparkSession:
        """The Spark session. Raises NeedsSpark if there is none."""
        if self.session is None:
            raise NeedsSpark(f"the rows of {self.name}")
        return self.session

    def load(self, snapshot: int | None = None) -> LakeState:
        """Load the table as it is now, or was at a snapshot; its schema is empty if it does not exist."""
        nothing = LakeState(Schema(), {}, None, False)
        if not self.catalog.exists():
            return nothing
        try:
            return self.catalog.read(lambda connection: load(connection, self.name, snapshot))
        except NoLakeError:
            # A Postgres database exists before its first commit makes it a lake.
            if self.catalog.kind != "postgres":
                raise
            return nothing


def latest(connection: Connection) -> int:
    """The lake's newest snapshot."""
    row = connection.one("SELECT max(snapshot_id) FROM meta.ducklake_snapshot")
    return int(row[0]) if row else 0


def split(name: str) -> tuple[str, str]:
    """``namespace.table`` in its two parts. Raises UsageError for a name of other parts."""
    namespace, table = table_parts(name, two=True)
    return namespace, table


def load(connection: Connection, name: str, snapshot: int | None = None) -> LakeState:
    """The table ``namespace.table`` at a snapshot, the newest if none is named.

    Raises DataError where only the letter case is another, and for a snapshot that is not there.
    """
    number = latest(connection) if snapshot is None else snapshot
    if snapshot is not None and not connection.rows(
        "SELECT 1 FROM meta.ducklake_snapshot WHERE snapshot_id = ?", [snapshot]
    ):
        raise DataError(f"{name}: there is no snapshot {snapshot}", hint="it may have expired")
    table = find(connection, name, number)
    return LakeState(Schema(), {}, number, False) if table is None else state_of(connection, table, number)


# What a snapshot says never changes, so nothing is asked twice. That saves 13 of 69 statements of a small
# batch.
def load_again(connection: Connection, name: str, known: LakeState | None) -> LakeState:
    """The table as it is now: the one that is ``known``, if the lake has had no snapshot since."""
    if known is not None and known.table is not None and latest(connection) == known.snapshot:
        # A lake that was made anew meanwhile counts its snapshots from 0 again.
        same = connection.one(
            "SELECT 1 FROM meta.ducklake_table WHERE table_id = ? AND table_uuid = ? AND end_snapshot IS NULL",
            [known.table.id, known.table.uuid],
        )
        if same:
            return known
    return load(connection, name)


def state_of(connection: Connection, table: TableRow, snapshot: int) -> LakeState:
    """The table at a snapshot, whatever it was named then."""
    columns = columns_of(connection, table.id, snapshot)
    docs = {
        int(column): str(text)
        for column, text in connection.rows(
            f"SELECT column_id, value FROM meta.ducklake_column_tag WHERE table_id = ? AND key = ? AND {LIVE}",
            [table.id, COMMENT, snapshot, snapshot],
        )
    }
    properties = {
        str(key): str(value)
        for key, value in connection.rows(
            f"SELECT key, value FROM meta.ducklake_tag WHERE object_id = ? AND {LIVE}",
            [table.id, snapshot, snapshot],
        )
        if key != MAPPING
    }
    last = connection.one("SELECT max(column_id) FROM meta.ducklake_column WHERE table_id = ?", [table.id])
    version = connection.one(
        "SELECT max(schema_version) FROM meta.ducklake_schema_versions WHERE table_id = ? AND begin_snapshot <= ?",
        [table.id, snapshot],
    )
    schema = schema_of(columns, docs)
    return LakeState(
        Schema(schema.struct, int(version[0] or 0) if version else 0),
        properties,
        snapshot,
        True,
        table.uuid,
        int(last[0] or 0) if last else 0,
        # A lake that is made anew counts its snapshots from 0 again
        f"{table.uuid}:{snapshot}",
        table,
        tuple(columns),
    )


def find(connection: Connection, name: str, snapshot: int) -> TableRow | None:
    """The table of this name; None if there is none."""
    namespace, table = split(name)
    rows = connection.rows(
        f"""SELECT t.table_id, s.schema_id, CAST(t.table_uuid AS VARCHAR), s.schema_name, t.table_name,
            s.path, CAST(s.path_is_relative AS BOOLEAN), t.path, CAST(t.path_is_relative AS BOOLEAN)
            FROM meta.ducklake_table t JOIN meta.ducklake_schema s ON t.schema_id = s.schema_id
            WHERE lower(s.schema_name) = lower(?) AND lower(t.table_name) = lower(?)
            AND {live("t")}
            AND {live("s")}""",
        [namespace, table, snapshot, snapshot, snapshot, snapshot],
    )
    if not rows:
        return None
    table_id, schema_id, uuid, schema_name, table_name, schema_path, schema_rel, path, rel = rows[0]
    if (schema_name, table_name) != (namespace, table):
        raise DataError(
            f"there is a table {schema_name}.{table_name}: DuckLake takes {name} for the same name",
            hint="use its exact spelling, or choose another name",
        )
    base = schema_path if not schema_rel else connection.data_path + schema_path
    return TableRow(int(table_id), int(schema_id), uuid, path if not rel else base + path)


def columns_of(connection: Connection, table: int, snapshot: int) -> list[ColumnRow]:
    """The table's columns at a snapshot, nested ones included."""
    rows = connection.rows(
        f"""SELECT column_id, column_order, column_name, column_type, parent_column,
            CAST(nulls_allowed AS BOOLEAN), initial_default, default_value, default_value_type,
            default_value_dialect
            FROM meta.ducklake_column WHERE table_id = ? AND {LIVE} ORDER BY column_order, column_id""",
        [table, snapshot, snapshot],
    )
    return [
        ColumnRow(
            int(id_),
            int(order),
            str(name),
            str(type_),
            None if parent is None else int(parent),
            bool(nullable),
            initial,
            default,
            kind or "",
            dialect or "duckdb",
        )
        for id_, order, name, type_, parent, nullable, initial, default, kind, dialect in rows
    ]


_NAME = "driftline_files"


def ingested_files(connection: Connection, table: int, files: Collection[int]) -> set[int]:
    """The files among these, by their fingerprints, that the table with this id has taken."""
    import duckdb

    listed = ", ".join(map(str, files))
    try:
        rows = connection.rows(
            f"SELECT fingerprint FROM meta.{_NAME} WHERE table_id = {table} AND fingerprint IN ({listed})"
        )
    except duckdb.CatalogException:  # no batch of this lake has taken files yet
        return set()
    return {int(fingerprint) for (fingerprint,) in rows}


def remember(connection: Connection, table: int, snapshot: int, files: Sequence[int]) -> None:
    """Add the files to those that the table has taken; the oldest are dropped."""
    if not files:
        return
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS meta.{_NAME} "
        "(table_id BIGINT, number BIGINT, fingerprint BIGINT, snapshot_id BIGINT)"
    )
    row = connection.one(f"SELECT max(number) FROM meta.{_NAME} WHERE table_id = {table}")
    first = 1 if row is None or row[0] is None else int(row[0]) + 1
    entries = list(enumerate(files, first))
    forgotten = entries[-1][0] - REMEMBERED
    if forgotten > 0:
        connection.execute(f"DELETE FROM meta.{_NAME} WHERE table_id = {table} AND number <= {forgotten}")
    rows = [f"({table}, {n}, {fingerprint}, {snapshot})" for n, fingerprint in entries if n > forgotten]
    connection.execute(f"INSERT INTO meta.{_NAME} VALUES {', '.join(rows)}")


def forget_all(connection: Connection, table: int) -> None:
    """Drop all files that the table took."""
    if _NAME in connection.tables():
        connection.execute(f"DELETE FROM meta.{_NAME} WHERE table_id = {table}")


def forget(connection: Connection, table: int, snapshot: int) -> None:
    """Drop the files that the table took in a snapshot."""
    if _NAME in connection.tables():
        connection.execute(f"DELETE FROM meta.{_NAME} WHERE table_id = {table} AND snapshot_id = {snapshot}")
