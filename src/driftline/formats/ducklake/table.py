"""One table of a DuckLake, with its rows if it has Spark."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from driftline.core.history.entries import Snapshot, Versions
from driftline.core.schema.definition import Definition
from driftline.core.schema.text import quoted
from driftline.core.schema.types import UUID, Primitive, Schema, without_types
from driftline.core.settings.row_key import KEY_TEXT
from driftline.errors import no_table
from driftline.formats.base import CatalogTable, LastBatch, State
from driftline.formats.ducklake.alteration import DuckLakeAlteration, new_layout, rename_table
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.commit import folder_of
from driftline.formats.ducklake.files import local
from driftline.formats.ducklake.layout import FORMAT, laid, parts_of, versions_of
from driftline.formats.ducklake.read import read_as, read_between, read_table, scanned
from driftline.formats.ducklake.reverting import last_batch
from driftline.formats.ducklake.snapshot import (
    DELETES_OF,
    DELETES_SUFFIX,
    DuckLakeHandle,
    LakeState,
    ingested_files,
    load,
    split,
)
from driftline.formats.ducklake.statistics import table_statistics
from driftline.formats.ducklake.types import defaults_ever, readable, why_unreadable
from driftline.sql.quoting import name as quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.core.changes.text import PartsOf
    from driftline.core.columns.statistics import TableStatistics
    from driftline.core.schema.definition import Laid
    from driftline.formats.ducklake.catalog import Connection
    from driftline.formats.ducklake.transaction import DuckLakeTransaction


class DuckLakeTable(CatalogTable):
    """One table of one DuckLake, by ``name``, ``namespace.table``; nothing is created before a commit.

    Without Spark it can be altered and renamed; whatever touches rows raises NeedsSpark.
    """

    blank = Definition(format_version=FORMAT)
    can_compact = True

    def __init__(self, spark: SparkSession | None, catalog: CatalogDatabase, name: str) -> None:
        self.handle = DuckLakeHandle(catalog, name, spark)
        self.catalog = catalog
        self.name = name

    @property
    def spark(self) -> SparkSession:
        """The Spark session. Raises NeedsSpark if there is none."""
        return self.handle.spark

    @property
    def parts_of(self) -> PartsOf:
        """The function that parses a sort expression."""
        return parts_of

    def with_rows(self) -> DuckLakeTable:
        """Return the table itself. Raises NeedsSpark without Spark."""
        _ = self.spark
        return self

    def other_table(self, name: str) -> Self:
        """Return another table of the same lake."""
        return type(self)(self.handle.session, self.catalog, name)

    def load(self, snapshot: int | None = None) -> LakeState:
        """Load the table as it is now, or was at a snapshot; its schema is empty if it does not exist."""
        return self.handle.load(snapshot)

    def definition(self) -> Definition:
        """Return the table's present definition. Raises UsageError if there is no table."""
        return self.alteration().before

    def alteration(self) -> DuckLakeAlteration:
        """Begin a change of the table's present definition. Raises UsageError if there is no table."""
        return DuckLakeAlteration.of(self.handle)

    def rename(self, name: str) -> None:
        """Rename the table to ``namespace.table``. Raises UsageError, DataError."""
        rename_table(self.handle, name)

    def read(self, snapshot: int | None = None) -> DataFrame:
        """Return the table's rows, as they are now or were at a snapshot."""
        return read_table(self.handle, snapshot)

    def read_readable(self) -> DataFrame:
        """Return the table's present rows, without what Spark cannot read."""
        return read_as(self.handle, readable(self.load().schema))

    def whole_files(self) -> list[str]:
        """Return the files of the present rows; none if rows are deleted, or values are not in the files."""
        return scanned(self.handle).whole_files()

    def remembered_deletes(self, order: str) -> DataFrame | None:
        """Return the deletes that the table remembers: each key as one text, and its ``order``."""
        deletes = self.other_table(self.name + DELETES_SUFFIX)
        owner = deletes.load().properties.get(DELETES_OF)
        if owner is None or owner != self.load().uuid:
            return None
        return deletes.read().selectExpr(f"key as {quoted_name(KEY_TEXT)}", f"_order as {quoted_name(order)}")

    def appended(self, before: State, now: State) -> DataFrame | None:
        """Return the rows that others appended between two states of the table; None if they did more."""
        return read_between(self.handle, before, now)

    def ingested_files(self, state: State, files: Collection[int]) -> set[int]:
        """Select the source files, by fingerprint, that the table has."""
        assert isinstance(state, LakeState)
        if state.table is None or not files:
            return set()
        table = state.table.id
        return self.catalog.read(lambda connection: ingested_files(connection, table, files))

    def transaction(self, state: State, new_definition: Definition | None = None) -> DuckLakeTransaction:
        """Begin a transaction on the table; one that does not exist is created by its definition."""
        from driftline.formats.ducklake.transaction import DuckLakeTransaction

        assert isinstance(state, LakeState)
        if state.exists:
            return DuckLakeTransaction.on(self.handle, state)
        assert new_definition is not None
        keys = new_layout(new_definition, self.name)
        self.catalog.make()
        folder = self.catalog.read(lambda connection: folder_of(connection, self.name))
        return DuckLakeTransaction(self.handle, None, new_definition.schema, folder, keys)

    def versions(self) -> Versions:
        """Return the versions of the table's definition, which the catalog keeps as long as their snapshots.

        Raises UsageError if there is no table.
        """
        if not self.catalog.exists():
            raise no_table(self.name)
        return self.catalog.read(lambda connection: versions_of(connection, self.name))

    def last_batch(self) -> LastBatch | None:
        """Return the batch that last changed rows; None if it rewrote them, or another writer did."""
        return self.catalog.read(lambda connection: last_batch(connection, self.name))

    def snapshots(self, latest: int | None) -> Iterator[Snapshot]:
        """Yield a snapshot and its known ancestors. ``schema``: the table's version then."""
        if latest is None:
            return
        state = self.load()
        assert state.table is not None
        id_ = state.table.id
        rows = self.catalog.read(
            lambda connection: connection.rows(
                "SELECT s.snapshot_id, (SELECT max(v.schema_version) FROM meta.ducklake_schema_versions v "
                "WHERE v.table_id = ? AND v.begin_snapshot <= s.snapshot_id) "
                "FROM meta.ducklake_snapshot s WHERE s.snapshot_id <= ? ORDER BY s.snapshot_id DESC",
                [id_, latest],
            )
        )
        for snapshot, version in rows:
            if version is not None:
                yield Snapshot(int(snapshot), int(version))

    def statistics(self, schema: Schema, watched: frozenset[int] = frozenset()) -> TableStatistics:
        """Read column statistics of ``schema`` from the catalog, those ``watched`` by period, too.

        Raises UsageError if there is no table.
        """
        return self.catalog.read(lambda connection: table_statistics(connection, self.name, schema, watched))

    def defaults(self) -> dict[int, frozenset[Any]]:
        """Return the known defaults that columns have had, by column id."""
        state = self.load()
        if state.table is None:
            return {}
        table = state.table.id
        return self.catalog.read(lambda connection: defaults_ever(connection, table))

    def laid(self) -> list[Laid]:
        """Return the data files by partition spec."""

        def look(connection: Connection) -> list[Laid]:
            """Read the layout; empty for a table that does not exist."""
            state = load(connection, self.name)
            if state.table is None or state.snapshot is None:
                return []
            return laid(connection, state.table.id, state.snapshot, state.schema)

        return self.catalog.read(look)

    @property
    def as_text(self) -> frozenset[Primitive]:
        """UUIDs, which Spark does not read from DuckLake's files."""
        return frozenset({UUID})

    @property
    def new_row_ids(self) -> str:
        """A sentence for people: rows that are rewritten get new ids."""
        return "all rows get new row ids: a DuckLake numbers the rows of each new file"

    def fillable(self, schema: Schema) -> Schema:
        """The schema without UUIDs where this Spark cannot read them: no value goes where it is not found."""
        return without_types(schema, lambda t: t.name == "duckdb_uuid" and why_unreadable(t) is not None)

    def readable(self, schema: Schema) -> Schema:
        """Return the schema without the columns, and fields in them, of types that Spark cannot read."""
        return readable(schema)

    def delete(self, column: str, value: str) -> None:
        """Delete the rows whose ``column`` holds this text."""
        self.catalog.check_writable()
        namespace, table = (quoted(part) for part in split(self.name))
        statement = f"DELETE FROM lk.{namespace}.{table} WHERE {quoted(column)} = ?"
        # Files are as old as the last tick of the kernel's clock
        state, began = self.load(), time.time() - 1
        assert state.table is not None
        folder = local(state.table.folder)

        def written() -> list[Path]:
            """List the delete files that DuckDB has written."""
            files = () if folder is None else folder.rglob("*.parquet")
            return [file for file in files if file.stat().st_mtime >= began]

        self.catalog.by_duckdb(statement, [value], written)
