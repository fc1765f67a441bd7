"""One table of a DuckLake."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from driftline.core.schema.definition import Definition
from driftline.core.schema.types import UUID, Primitive, Schema
from driftline.core.schema.words import quoted
from driftline.errors import no_table
from driftline.formats.base import CommitConflict, State
from driftline.formats.ducklake.alteration import FORMAT, DuckLakeAlteration, new_layout, rename_table
from driftline.formats.ducklake.catalog import CatalogDatabase, Connection, NoLakeError
from driftline.formats.ducklake.columns import rows_of
from driftline.formats.ducklake.commit import folder_of
from driftline.formats.ducklake.defaults import defaults_ever
from driftline.formats.ducklake.layout import CatalogLayout, laid, layout
from driftline.formats.ducklake.ledger import taken
from driftline.formats.ducklake.read import read
from driftline.formats.ducklake.scan import Scan, scan
from driftline.formats.ducklake.snapshot import LakeState, load, split
from driftline.formats.ducklake.sorting import parts_of
from driftline.formats.ducklake.table_statistics import table_statistics
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.formats.ducklake.types import readable
from driftline.formats.ducklake.versions import snapshots, versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.core.changelog.entries import Snapshot, Versions
    from driftline.core.columns.statistics import TableStatistics
    from driftline.core.schema.partitioning import Laid


class DuckLakeTable:
    """One table of one DuckLake.

    ``name`` is ``namespace.table``; nothing is created before the first commit.
    """

    blank = Definition(format_version=FORMAT)
    parts_of = staticmethod(parts_of)

    def __init__(self, spark: SparkSession, catalog: CatalogDatabase, name: str) -> None:
        split(name)
        self.spark = spark
        self.catalog = catalog
        self.name = name

    def sibling(self, name: str) -> DuckLakeTable:
        """Another table of the same lake."""
        return DuckLakeTable(self.spark, self.catalog, name)

    def load(self, snapshot: int | None = None) -> LakeState:
        """Load the table as it is now, or was at a snapshot; its schema is empty if it does not exist."""
        nothing = LakeState(Schema(), {}, None, False)
        if not self.catalog.exists():
            return nothing
        try:
            return self.catalog.read(lambda connection: load(connection, self.name, snapshot))
        except NoLakeError:
            if self.catalog.kind != "postgres":
                raise
            return nothing  # a database that is yet to become a lake

    def taken(self, state: State, files: Collection[int]) -> set[int]:
        """The source files among these, by their fingerprints, that the table has taken."""
        assert isinstance(state, LakeState)
        if state.table is None or not files:
            return set()
        table = state.table.id
        return self.catalog.read(lambda connection: taken(connection, table, files))

    def transaction(
        self, state: State, made_as: Definition | None = None, *, pinned: bool = False
    ) -> DuckLakeTransaction:
        """A transaction on the table; one that does not exist is created by its definition."""
        assert isinstance(state, LakeState)
        if state.exists:
            now, keys = self.catalog.read(self._as_it_is)
            if now.table is None or not state.fits(now):
                raise CommitConflict(f"table {self.name} was changed meanwhile")
            return DuckLakeTransaction(self, now, now.schema, now.table.folder, keys, pinned=pinned)
        assert made_as is not None
        keys = new_layout(made_as, self.name)
        self.catalog.make()
        folder = self.catalog.read(lambda connection: folder_of(connection, self.name))
        return DuckLakeTransaction(self, None, made_as.schema, folder, keys)

    def _as_it_is(self, connection: Connection) -> tuple[LakeState, CatalogLayout]:
        state = load(connection, self.name)
        if state.table is None or state.snapshot is None:
            return state, CatalogLayout()
        return state, layout(connection, state.table.id, state.snapshot, state.schema)

    def alteration(self) -> DuckLakeAlteration:
        """A change of the table's definition, from what it is now."""
        state, keys = (
            self.catalog.read(self._as_it_is) if self.catalog.exists() else (self.load(), CatalogLayout())
        )
        if not state.exists:
            raise no_table(self.name)
        return DuckLakeAlteration(self, state, keys)

    def definition(self) -> Definition:
        """The table's present definition. Raises UsageError if there is no table."""
        return self.alteration().before

    def versions(self) -> Versions:
        """The versions of the table's definition. Raises UsageError if there is no table."""
        return versions(self)

    def snapshots(self, latest: int | None) -> Iterator[Snapshot]:
        """A snapshot and its known ancestors."""
        return snapshots(self, latest)

    def statistics(self, schema: Schema) -> TableStatistics:
        """The catalog's statistics for the columns of ``schema``. Raises UsageError if there is no table."""
        return table_statistics(self, schema)

    def read_appended(self, after: int, snapshot: int) -> DataFrame | None:
        """None: files of a DuckLake may be merged since."""
        return None

    def defaults(self) -> dict[int, frozenset[Any]]:
        """The known defaults that columns have had, by column id."""
        state = self.load()
        if state.table is None:
            return {}
        table = state.table.id
        return self.catalog.read(lambda connection: defaults_ever(connection, table))

    def branches(self) -> dict[str, set[int]]:
        """A DuckLake has none."""
        return {}

    def laid(self) -> list[Laid]:
        """The data files by partition spec."""

        def look(connection: Connection) -> list[Laid]:
            """Read the layout; empty for a table that does not exist."""
            state = load(connection, self.name)
            if state.table is None or state.snapshot is None:
                return []
            return laid(connection, state.table.id, state.snapshot, state.schema)

        return self.catalog.read(look)

    def rename(self, name: str) -> None:
        """Rename the table to ``namespace.table``. Raises UsageError, DataError."""
        rename_table(self, name)

    def read(self, snapshot: int | None = None) -> DataFrame:
        """The table's rows, as they are now or were at a snapshot."""

        def look(connection: Connection) -> Scan:
            """The scan of the table at the snapshot."""
            state = load(connection, self.name, snapshot)
            if not state.exists:
                raise no_table(self.name)
            return scan(connection, state)

        return read(self.spark, self.catalog.read(look), self.name)

    def read_files(self, paths: Sequence[str], snapshot: int) -> DataFrame:
        """The rows of some of the table's files, whose ``paths`` are below its folder."""

        def look(connection: Connection) -> Scan:
            """The scan of these files alone."""
            state = load(connection, self.name, snapshot)
            if state.table is None:
                raise no_table(self.name)
            return scan(connection, state).of({state.table.folder + path for path in paths})

        return read(self.spark, self.catalog.read(look), self.name)

    @property
    def as_text(self) -> frozenset[Primitive]:
        """UUIDs, which Spark does not read from DuckLake's files."""
        return frozenset({UUID})

    def row_ids(self, changed: str) -> list[str]:
        """None: DuckLake identifies rows by their files."""
        return []

    @property
    def new_row_ids(self) -> str:
        """A sentence for people: rows that are rewritten get new ids."""
        return "all rows get new row ids: a DuckLake numbers the rows of each new file"

    def fillable(self, schema: Schema) -> Schema:
        """The schema: Spark writes all of it."""
        return schema

    def readable(self, schema: Schema) -> Schema:
        """The schema without the columns, and fields in them, of types that Spark cannot read."""
        return readable(schema)

    def read_readable(self) -> DataFrame:
        """The table's rows as they are now, without what Spark cannot read."""
        return self.read_as(readable(self.load().schema))

    def read_as(self, schema: Schema) -> DataFrame:
        """The table's rows, as they would be with another schema."""

        def look(connection: Connection) -> Scan:
            """The scan of the table's files under the other schema."""
            state = load(connection, self.name)
            rows = rows_of(schema, state.schema, state.columns, self.name)
            return scan(connection, replace(state, schema=schema, columns=tuple(rows)))

        return read(self.spark, self.catalog.read(look), self.name)

    def appended(self, before: State, now: State) -> DataFrame | None:
        """The rows that others appended between two states of the table; None if they did more."""

        def look(connection: Connection) -> Scan | None:
            """The scan of the files added between the snapshots; None if there were other changes."""
            first, last = (scan(connection, load(connection, self.name, s.snapshot)) for s in (before, now))
            return last.beyond(first)

        found = self.catalog.read(look)
        return None if found is None else read(self.spark, found, self.name)

    def delete(self, column: str, value: str) -> None:
        """Delete the rows whose ``column`` holds this text."""
        namespace, table = (quoted(part) for part in split(self.name))
        self.catalog.by_duckdb(f"DELETE FROM lk.{namespace}.{table} WHERE {quoted(column)} = ?", [value])

    def holds(self, paths: Sequence[str]) -> bool:
        """True if the table has all of these files now."""
        state = self.load()
        if state.table is None:
            return not paths
        listed = ", ".join("?" * len(paths))
        table = state.table.id
        rows = self.catalog.read(
            lambda connection: connection.rows(
                f"SELECT path FROM meta.ducklake_data_file WHERE table_id = {table} AND end_snapshot IS NULL "
                f"AND path IN ({listed})",
                paths,
            )
        )
        return len(rows) == len(paths)
