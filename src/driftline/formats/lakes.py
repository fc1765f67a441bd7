"""The interface of a lake in any format: its location, its catalog, and tables read offline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

from driftline.core.schema.types import Schema
from driftline.formats.base import CatalogTable, State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.core.columns.statistics import TableStatistics
    from driftline.core.history.entries import Versions
    from driftline.core.history.retention import Expirable, RetentionLimit


class OfflineTable(Protocol):
    """A table read from its metadata without Spark, as it was at that time."""

    @property
    def name(self) -> str:
        """The table's name, ``namespace.table``."""
        ...

    def load(self) -> State:
        """The table's state."""
        ...

    def versions(self) -> Versions:
        """The known past of the table."""
        ...

    def statistics(self, schema: Schema, watched: frozenset[int] = frozenset()) -> TableStatistics | None:
        """The statistics of the columns of ``schema`` from metadata, those ``watched`` by period, too.

        None if it takes Spark to read them.
        """
        ...

    def defaults(self) -> Mapping[int, frozenset[Any]]:
        """The known defaults that columns have had, by column id."""
        ...

    def beside(self, name: str) -> OfflineTable | None:
        """Another table of this lake; None if it does not exist. Raises NeedsSpark if Spark is to read it."""
        ...


# What runs SQL that writes, for errors about such where it may only read.
BY_DUCKDB, BY_PYTHON = "DuckDB runs it", "`Lake.sql` in Python runs it"


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that no snapshot has. ``size`` in bytes."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class DroppedTables:
    """The tables that leave a catalog together.

    ``names``: a table, and its quarantine if there is one; ``folders``: of their files; ``files``, ``size``:
    of what is in these folders, and is deleted or left there.
    """

    names: tuple[str, ...]
    folders: tuple[str, ...]
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class DroppedFolder:
    """The folder of a table that was dropped, with files of it.

    Attributes:
        table: its name, ``namespace.table``.
        at: the time of the drop; "" if unknown.
        files: the number of its files, of ``size`` bytes.
        is_held: True if older snapshots of the lake have the files, which stay until these end.
    """

    table: str
    folder: str
    at: str
    files: int
    size: int
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class EndedSnapshots:
    """The snapshots of a table that ended, and the files that nothing names since, which were deleted.

    ``outside``: files that nothing names either, but that stay, as they lie where nothing may be deleted.
    """

    snapshots: int = 0
    files: int = 0
    outside: tuple[str, ...] = ()

    def __add__(self, other: EndedSnapshots) -> EndedSnapshots:
        """Both together."""
        return EndedSnapshots(
            self.snapshots + other.snapshots, self.files + other.files, self.outside + other.outside
        )


class Expiry(Protocol):
    """The end of older snapshots of a table, with the files that only they had.

    Without a ``limit`` all end but the present one.
    """

    @property
    def of_lake(self) -> bool:
        """True if the snapshots are those of all tables of the lake."""
        ...

    def check(self) -> None:
        """Raise UsageError if files of the table are not to be deleted."""
        ...

    def check_unheld(self) -> None:
        """Raise UsageError if something holds older snapshots that is not driftline's to end."""
        ...

    def expirable(self, limit: RetentionLimit | None = None) -> Expirable:
        """The snapshots that would end."""
        ...

    def has_removed_rows(self) -> bool:
        """True if files of the present snapshot still have rows that the table has not."""
        ...

    def remembers_deletes(self) -> bool:
        """True if the keys of rows that a batch deleted are kept, for later changes of these rows."""
        ...

    def run(self, limit: RetentionLimit | None = None) -> EndedSnapshots:
        """End the snapshots and delete the files; finish that of a run that was broken off.

        Raises CommitConflict if others were faster, SetupError if a file cannot be deleted.
        """
        ...

    def unnamed(self) -> list[Orphan]:
        """The files in the table's folder that it does not have: of batches under way, or of failed ones."""
        ...


class Location(Protocol):
    """A lake as its settings name it, before Spark runs."""

    @property
    def shown(self) -> str:
        """Its catalog for people, without a password."""
        ...

    def engine(self) -> str:
        """The engine that reads and writes the catalog, for people.

        Raises SetupError if it is not installed.
        """
        ...

    def exists(self) -> bool:
        """True if there is a catalog; a server's is not asked."""
        ...

    def tables(self) -> list[str]:
        """The names of its tables. Raises SetupError where the catalog cannot be opened."""
        ...

    def settings(self) -> dict[str, str]:
        """Spark's settings by which it reaches the lake's files.

        Raises UsageError, SetupError for a place that it does not reach.
        """
        ...

    def open(self, spark: SparkSession) -> Catalog:
        """Its tables, on a Spark session."""
        ...


@dataclass(frozen=True, slots=True)
class OwnView:
    """A view in DuckDB's SQL.

    Attributes:
        of: the table of which driftline made it, or a pattern of tables; None if somebody else made it.
        types: the types of fields that were asked for, by path.
    """

    columns: tuple[str, ...]
    of: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)


class OwnViews(Protocol):
    """The views of a catalog whose SQL is DuckDB's."""

    def statement(self, name: str, view: OwnView, selects: Mapping[str, str]) -> str:
        """The statement that creates the view, to be run where DuckDB has attached the lake as `lake`.

        ``selects``: what it selects of each table, in Spark's SQL.
        """
        ...

    def get(self, name: str) -> OwnView | None:
        """A view by ``namespace.view``; None if there is none."""
        ...

    def create(self, name: str, view: OwnView, selects: Mapping[str, str]) -> None:
        """Create the view, or replace it. Raises DataError if DuckDB refuses."""
        ...

    def drop(self, name: str) -> None:
        """Drop the view."""
        ...


class Catalog(Protocol):
    """The tables of one lake, on one Spark session."""

    @property
    def folder(self) -> str | None:
        """The folder of the lake's files; None if the catalog names none."""
        ...

    @property
    def durable(self) -> bool:
        """False if files on a disk are written without syncs."""
        ...

    @property
    def ascii_names(self) -> bool:
        """True if names of tables have letters of ASCII alone."""
        ...

    @property
    def commits_together(self) -> bool:
        """True if a commit can be of several tables; then threads do not commit at once."""
        ...

    @property
    def commits_at_once(self) -> int:
        """The number of tables into which threads commit at a time, without meeting one another."""
        ...

    @property
    def writes(self) -> str:
        """The engine that runs statements that write, for errors about one in a statement that reads."""
        ...

    @property
    def has_views(self) -> bool:
        """True if the catalog can also keep Spark's views."""
        ...

    @property
    def own_views(self) -> OwnViews | None:
        """The views in DuckDB's SQL that the catalog keeps; None if it keeps none."""
        ...

    def sync_view(self, name: str) -> None:
        """Sync what the catalog keeps of a view on this machine's disk. Raises SetupError."""
        ...

    def sql_name(self, name: str) -> str:
        """A table or view by ``namespace.table``, quoted for `sql`."""
        ...

    def on(self, spark: SparkSession) -> Self:
        """Open the lake in another session of the running Spark."""
        ...

    def table(self, name: str) -> CatalogTable:
        """A table by ``namespace.table``, existing or not. Raises UsageError for an impossible name."""
        ...

    def tables(self) -> list[str]:
        """The names of all tables of the lake, ``namespace.table``."""
        ...

    def sql(self, query: str) -> DataFrame:
        """Run SQL. Raises UsageError where this format cannot run the statement, and Spark's own errors."""
        ...

    def check_writable(self) -> None:
        """Raise UsageError if the lake is a copy of another, or was moved."""
        ...

    def drop(
        self, name: str, *, purge: bool, dry_run: bool, before: Callable[[], None] = lambda: None
    ) -> DroppedTables:
        """Take a table and its quarantine out of the catalog.

        Args:
            name: ``namespace.table``.
            purge: Delete the files below the tables' own locations, too.
            dry_run: Change nothing.
            before: Called once nothing refuses any more, before anything changes.

        Raises:
            UsageError: There is no such table, another one lies in its folder, or the format cannot purge one
                table alone.
        """
        ...

    def expiry(self, name: str) -> Expiry:
        """The end of the older snapshots of a table, which exists."""
        ...

    def clean(self, older_than: float, *, dry_run: bool) -> list[Orphan]:
        """Delete files that no snapshot has, untouched for ``older_than`` seconds; returns them."""
        ...
