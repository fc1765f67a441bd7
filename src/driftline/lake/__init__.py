"""The Python interface: a lake, and its tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from subprocess import Popen
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from weakref import WeakSet

import driftline.report.shown  # noqa: F401  how results print
from driftline.config import catalog_in, is_catalog, is_durable, is_found_in, redacted
from driftline.core.schema.naming import QUARANTINE
from driftline.errors import NeedsSpark, UsageError
from driftline.formats.home import Relocation
from driftline.formats.lakes import Catalog, DroppedFolder, Orphan
from driftline.formats.open import CATALOG, EmbeddedLake, dropped, iceberg, located, relocate, relocate_table
from driftline.ingest.assignment import MAX_TABLES
from driftline.ingest.batch import RecentBatches
from driftline.keys.stored import KeyCache
from driftline.lake.fan_out import PatternTables
from driftline.lake.table import Table, TableSchema
from driftline.operations.alter import Altered, AlterRequest, alter, local_name
from driftline.operations.view import View, altered, view_of_tables
from driftline.runtime.failure import java_process, query_errors
from driftline.runtime.front import front
from driftline.runtime.read_only import must_read
from driftline.runtime.session import (
    check_workers,
    in_store,
    is_embedded,
    make_lake,
    must_be_classic,
    open_session,
    session_beside,
    stop_session,
    with_durability,
)
from driftline.runtime.shown import Shown, shows
from driftline.runtime.spark_version import release_of
from driftline.runtime.stores import is_stored
from driftline.sources.spooled import leftovers
from driftline.stats import Stats, stats
from driftline.stats.build import stats as offline_stats
from driftline.stats.lake import LakeStats
from driftline.stats.split import rows_by_duckdb, rows_by_spark, split_of
from driftline.ui.notebook import NotebookPage, NotebookServers

__all__ = ["DEFAULT", "Lake", "PatternTables", "Table", "TableSchema"]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.formats.base import AlterableTable

DEFAULT = "lake"
# By which Spark reads conditions, and DuckDB does not
TIME_ZONE = "spark.sql.session.timeZone"


@front
class Lake(Shown):
    """A catalog of tables, and the Spark session that reads and writes them.

    A lake from `open` is closed by ``with``, or by `close`.
    """

    # Those that use the Spark that driftline started
    _opened: ClassVar[WeakSet[Lake]] = WeakSet()
    _starting: ClassVar[RLock] = RLock()

    def __init__(self, spark: SparkSession, catalog: str, tables: Catalog | None = None) -> None:
        self._set(catalog, lambda: (spark, iceberg(spark, catalog) if tables is None else tables))

    def _set(
        self,
        catalog: str,
        start: Callable[[], tuple[SparkSession, Catalog]],
        embedded: EmbeddedLake | None = None,
        *,
        plain: bool = False,
    ) -> None:
        """Set up the lake. ``start``: gives the session, and the tables on it; ``embedded``: the lake as it
        is read without Spark, if it can be; ``plain``: its catalog has no settings but its own.
        """
        self.catalog = catalog
        self.embedded = embedded
        self._java: Popen[Any] | None = None
        self._configured: tuple[Mapping[str, str], ...] = ()
        self.recent = RecentBatches(KeyCache(idle=1))  # most processes ingest once
        self.recent_of: dict[str, RecentBatches] = {}  # of the tables of patterns
        self._start = start
        self._plain = plain
        self._servers = NotebookServers()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] = DEFAULT,
        *,
        properties: Mapping[str, str] | None = None,
        ducklake: str | None = None,
        durability: Literal["full", "off"] = "full",
        notify: Callable[[str], None] | None = None,
    ) -> Lake:
        """Open the embedded lake in a folder, creating it if needed: Iceberg, with its catalog in a SQLite
        file.

        Spark starts when something needs it, the first `Table.ingest` for example.

        Args:
            path: The folder, or a URI such as ``s3://bucket/lake``, which needs the catalog of
                ``properties`` or ``ducklake``; a DuckLake lies in no store but S3 and Google's.
            properties: Those of an existing Iceberg catalog, to use instead of the folder's.
            ducklake: Makes the lake a DuckLake with this catalog: ``duckdb``, ``sqlite``, either with
                ``:PATH``, or ``postgres:`` followed by what libpq takes. A folder that has the catalog of a
                DuckLake is one without it.
            durability: ``full``: what is acknowledged outlives a power cut; ``off``: nothing is synced.
            notify: Called with a line about each download.

        Raises:
            SetupError: The folder is not available. Without Java or the jars, what needs Spark raises it.
            UsageError: The path is empty, or the folder has another catalog than the named one, or two.
        """
        path = _expanded(path)
        stored = is_stored(path)
        if stored and ducklake is None:
            path, properties, stored = DEFAULT, in_store(path, properties or {}), False
        given = dict(properties or {})
        within = is_embedded(given)
        if within and not stored:
            make_lake(Path(path))
        place: str | Path = path if stored else Path(path).resolve()
        folder = place if isinstance(place, Path) else None
        if folder is not None and within:
            ducklake = catalog_in(folder, ducklake)
        durable = is_durable(durability)
        location = None if ducklake is None else located("ducklake", ducklake, place, durable=durable)
        embedded = EmbeddedLake(place, ducklake, durable=durable) if within or location is not None else None
        name, settings = (CATALOG, {}) if location is None else (None, location.settings())
        given = with_durability({**settings, **given}, durable=durable)

        def start() -> tuple[SparkSession, Catalog]:
            """Open the session; the lake is then one of those that keep Spark running."""
            if embedded is not None:
                embedded.settle(notify)
            spark = open_session(folder, catalog=name, properties=given, notify=notify)
            cls._opened.add(lake)
            return spark, iceberg(spark, CATALOG) if location is None else location.open(spark)

        lake = cls.__new__(cls)
        plain = location is not None or not properties
        lake._set(CATALOG, start, None if TIME_ZONE in given else embedded, plain=plain)
        lake._configured = (given, {"": ducklake or ""})
        return lake

    @classmethod
    def attach(cls, spark: SparkSession, catalog: str = "spark_catalog") -> Lake:
        """Use a Spark session of your own, with an Iceberg catalog of this name.

        Raises UsageError for Spark Connect, SetupError for a version of Spark that driftline does not know,
        and for tasks on this machine whose Python has no driftline.
        """
        must_be_classic(spark)
        release_of(spark.version)
        check_workers(spark)
        return cls(spark, catalog)

    @cached_property
    def _engine(self) -> tuple[SparkSession, Catalog]:
        # Two threads that ask for it at once get the same.
        with self._starting:
            engine = self._start()
            self._java = java_process()
            return engine

    @property
    def spark(self) -> SparkSession:
        """The Spark session, which starts now if it has not yet.

        Raises SetupError: Java or the jars are not available.
        """
        return self._engine[0]

    @property
    def format(self) -> Catalog:
        """The catalog of the tables, on the Spark session."""
        return self._engine[1]

    def close(self) -> None:
        """End the pages of `ui`, and stop Spark, once no other lake that `open` gave uses it. A session of
        your own goes on.
        """
        self._servers.close()
        if self in self._opened:
            self._opened.discard(self)
            # A Java that died, and was followed by another, has nothing to stop.
            if self._java is java_process() and all(lake._java is not self._java for lake in self._opened):
                stop_session(self.spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on(self, spark: SparkSession) -> Lake:
        """Open the lake in another session of the running Spark."""
        return Lake(spark, self.catalog, self.format.on(spark))

    @property
    def warehouse(self) -> str | None:
        """The folder of the lake's files; None if the catalog names none."""
        return self.format.folder if self.embedded is None else str(self.embedded.folder)

    @property
    def _without_spark(self) -> EmbeddedLake | None:
        """The lake as it is read without Spark; None if it cannot be, or Spark has started anyway."""
        return None if "_engine" in vars(self) or self._opened else self.embedded

    def tables(self) -> list[Table]:
        """The lake's tables by name, without their quarantines."""
        return [self.table(name) for name in sorted(self._names()) if not name.endswith(QUARANTINE)]

    def _names(self) -> list[str]:
        """The names of all tables, without Spark if that is possible."""
        names = self.embedded.names() if self.embedded else None
        return self.format.tables() if names is None else names

    def stats(
        self, *, exact: bool = False, over_time: bool = True, progress: Callable[[str], None] = lambda _: None
    ) -> LakeStats:
        """The statistics of all tables: their contents, their recent drift, their waiting records.

        From metadata, or ``exact`` by scans. A table all of whose records wait does not exist yet, but its
        numbers are among them. ``over_time``: with what the pages show by batch and date. ``progress`` is
        called with the name of each step.
        """
        return self._stats(self._with_records(), exact=exact, over_time=over_time, progress=progress)

    def _with_records(self) -> list[str]:
        """The names of all tables, also of those all of whose records wait."""
        return sorted({name.removesuffix(QUARANTINE) for name in self._names()})

    def _stats(
        self, names: Iterable[str], *, exact: bool, over_time: bool, progress: Callable[[str], None]
    ) -> LakeStats:
        """The statistics of some tables."""
        tables = (
            self._stats_of(self.table(name), exact, over_time, _about(name, progress)) for name in names
        )
        return LakeStats(self.warehouse or self.catalog, tuple(tables))

    def _stats_of(
        self,
        table: Table,
        exact: bool,
        over_time: bool,
        progress: Callable[[str], None],
        *,
        names_split: bool = False,
    ) -> Stats:
        """The statistics of a table, without Spark if that is possible.

        ``names_split``: with the field that would split it best.
        """
        offline = self.embedded.table(table.name) if self.embedded is not None and not exact else None
        measured = offline_stats(offline, over_time=over_time) if offline else None
        if self.embedded is not None and offline is not None and measured is not None:
            rows, load = rows_by_duckdb(self.embedded, table.name), offline.load
        else:
            measured = stats(table.format, exact=exact, over_time=over_time, progress=progress)
            rows, load = rows_by_spark(table.format), table.format.load
        return replace(measured, split=split_of(measured, load, rows)) if names_split else measured

    def table(self, name: str) -> Table:
        """A table by ``namespace.table``; its first ingest creates it."""
        return Table(self, name)

    def fan_out(self, pattern: str, *, max_tables: int = MAX_TABLES) -> PatternTables:
        """The tables that the values of records name, by a pattern such as ``hooks.{event}``.

        Braces hold a path of the records, ``_file.stem`` or ``_file.folder``. Records without such a value go
        to the table `_other` of the namespace, as do those of values beyond ``max_tables`` tables. Raises
        UsageError for what is no pattern.
        """
        return PatternTables(self, pattern, max_tables)

    def view(
        self, name: str, tables: str, *, types: Mapping[str, str] | None = None, make: bool = True
    ) -> View:
        """Create a view of the rows of several tables, with each field as one column, by name.

        Its first column, ``_table``, has the name of the row's table. Created again, it also shows newer
        tables and columns.

        Args:
            name: The view's name.
            tables: A pattern: ``hooks.*``, where ``*`` stands for any text, or ``hooks.{event}``, which
                made them.
            types: Types of single fields, by path; by default the widest of their columns.
            make: False: only return the statement.

        Raises:
            UsageError, DataError: The view cannot be created.
        """
        return view_of_tables(self.format, name, tables, types=types, make=make)

    def ui(self, *, allow_writes: bool = False) -> NotebookPage:
        """Serve the lake to a browser of this machine, as `driftline ui` does; a notebook shows the link.

        A thread of this process answers on 127.0.0.1, on a free port, to who has the token of the address,
        until the page or the lake is closed. Called again, it gives the same address.

        Args:
            allow_writes: Whoever has the address may resolve, promote, replan, replay, discard and undo.

        Raises:
            SetupError: `driftline[ui]` is not installed.
            UsageError: The lake was moved.
        """
        return self._page(None, allow_writes=allow_writes)

    def _page(self, table: str | None, *, allow_writes: bool) -> NotebookPage:
        """Serve the page of a table, or of all of them."""
        if self.embedded is not None:
            self.embedded.check_open(writes=False)
        return self._servers.page(self._beside, self._options, table, allow_writes=allow_writes)

    @property
    def _options(self) -> tuple[str, str]:
        """The option by which a command finds the lake; FILE is for a person to replace."""
        lake = self.embedded
        if lake is not None and isinstance(lake.folder, Path) and is_found_in(lake.folder, lake.ducklake):
            return "--lake", str(lake.folder)
        return "--config", "FILE"

    def _beside(self) -> Lake:
        """Return this lake on a session of its own, which begins when something needs Spark.

        Threads that share a session would read by each other's settings.
        """

        def start() -> tuple[SparkSession, Catalog]:
            """Open the session."""
            spark = session_beside(self.spark)
            return spark, self.format.on(spark)

        lake = Lake.__new__(Lake)
        lake._set(self.catalog, start, self.embedded, plain=self._plain)
        lake._configured = self._configured
        return lake

    def alter(self, sql: str, *, upgrade: bool = False, siblings: bool = False) -> Altered:
        """Run ALTER TABLE statements about one table in one commit, or none of them.

        Does not start Spark for a lake in a folder, unless a column's rows or a view are to be looked at.

        ``upgrade``: also to format v3, if that is needed. ``siblings``: the other columns of a field follow a
        renamed one. Raises UsageError, DataError.
        """
        request = replace(AlterRequest.of_sql(sql), siblings=siblings)
        return self.altered(local_name(request.table, self.catalog), request, upgrade=upgrade)

    def altered(self, name: str, request: AlterRequest, *, upgrade: bool) -> Altered:
        """Alter a table, without Spark where that is possible and Spark has not started."""
        with suppress(NeedsSpark), self._alterable(name, renames=request.new_name is not None) as alone:
            return alter(alone, request, catalog=self.catalog, upgrade=upgrade)
        return altered(self.format, self.catalog, self.table(name).format, request, upgrade=upgrade)

    def _alterable(self, name: str, *, renames: bool) -> AbstractContextManager[AlterableTable]:
        """The table, to be altered without Spark. Raises NeedsSpark, also where Spark has started."""
        embedded = self._without_spark
        if embedded is None or not self._plain:
            raise NeedsSpark("it has started, or only Spark knows the catalog")
        return embedded.alterable(name, renames=renames)

    def query(self, sql: str) -> DataFrame:
        """Run SQL that only reads, by the plan that Spark parses it into. Raises UsageError for any other."""
        must_read(self.spark, sql, self.format.writes)
        return self.sql(sql)

    def sql(self, query: str) -> DataFrame:
        """Run any SQL statement of Spark's; on a DuckLake, which Spark's SQL cannot write, one that reads.

        Raises UsageError for what Spark does not parse, and for another statement on a DuckLake; DataError
        for a table or column that is not there, among others; SetupError if the catalog does not respond.
        Spark reads the rows of the DataFrame later, and raises its own errors then.
        """
        with query_errors():
            return self.format.sql(query)

    def relocate(
        self, table: str | None = None, *, to: Lake | None = None, dry_run: bool = False
    ) -> Relocation:
        """Make a moved lake whole at its new place, or a copy a lake of its own; or copy a table to another
        lake.

        The paths in metadata are written anew; data files stay as they are. A run that was broken off is
        repeated. A table is copied with its quarantine, snapshots, settings, history and tokens, and stays
        in this lake, too.

        Args:
            table: The table, ``namespace.table``; without it, the whole lake at its place, without Spark.
            to: The Iceberg lake that gets the table, in its folder or in another catalog.
            dry_run: Tell what would be done; write nothing.

        Raises:
            UsageError: The lake is where it was made, or its catalog is not in its folder; there is no such
                table, or there is one in the other lake.
            DataError: The lake lacks a file that its tables name, or others write to the table meanwhile.
            SetupError: The catalog, or the other lake, cannot be written to.
        """
        if table is not None and to is not None:
            return relocate_table(self.embedded, table, to.format, dry_run=dry_run)
        if table is not None or to is not None:
            raise UsageError("a table is relocated to another lake", "give both: the table, and to")
        return relocate(self.embedded, dry_run=dry_run)

    def clean(self, older_than: float = 24, *, dry_run: bool = False) -> list[Orphan]:
        """Delete files that no snapshot has, left by batches that died; returns them.

        ``older_than``: hours since they were last touched; a younger file may belong to a batch that has yet
        to commit. In an Iceberg lake only files that driftline's own tasks wrote are deleted. Does not start
        Spark for a lake in a folder, unless a table has much metadata, or files elsewhere.
        """
        seconds = older_than * 3600
        try:
            if self.embedded is None or not self._plain:
                raise NeedsSpark("only Spark knows the catalog")
            orphans = self.embedded.clean(seconds, dry_run=dry_run)
        except NeedsSpark:
            orphans = self.format.clean(seconds, dry_run=dry_run)
        return [*orphans, *leftovers(self.warehouse, seconds, dry_run=dry_run)]

    def dropped(self, *, delete: bool = False) -> list[DroppedFolder]:
        """The tables that were dropped from a lake in a folder, or a DuckLake, and whose files are still
        there. Does not start Spark.

        ``delete``: delete the files; those of a DuckLake, which older snapshots have, stay until
        `Table.expire` ends these. A folder that a table uses again is left alone. Any other catalog keeps no
        list: the answer is empty, and ``delete`` raises UsageError.
        """
        return dropped(self.embedded, delete=delete)


def _expanded(path: str | os.PathLike[str]) -> str:
    """A lake's path with ``~`` as the home folder. Raises UsageError if it can be no lake's."""
    # Path("") is the working directory, which a variable that is not set would make a lake.
    if not os.fspath(path):
        raise UsageError("an empty path names no lake", 'pass its folder; "." is the current one')
    text = os.fspath(path)
    if is_catalog(text) or ("://" in text and not is_stored(text)):
        raise UsageError(
            f"{redacted(text, {'': text})} is no folder, and no URI of a store",
            "pass the lake's folder or its URI, and the catalog of a DuckLake as ducklake",
        )
    return os.path.expanduser(text)  # noqa: PTH111  of URIs, Path would drop a slash


def _about(name: str, progress: Callable[[str], None]) -> Callable[[str], None]:
    return lambda phase: progress(f"{name}: {phase}")


shows(Lake, lambda lake: [f"lake {lake.warehouse or lake.catalog}"])
