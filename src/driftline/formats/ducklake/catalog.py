"""The catalog database of a DuckLake: a DuckDB file, SQLite or PostgreSQL.

DuckDB reaches each of them through an extension.

A connection is held for the time of one load or one commit, never while Spark works: other processes get
their turn, and what finds the catalog locked tries again.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from driftline.errors import SetupError, UsageError
from driftline.formats.base import CommitConflict, UnknownError
from driftline.formats.ducklake.files import local
from driftline.formats.home import DisplacedLake, Home, displaced, is_same
from driftline.runtime.disk import sync
from driftline.runtime.duckdb import instance, literal, must_be_installed, reach
from driftline.runtime.failure import ASK_DOCTOR
from driftline.runtime.stores import is_stored

if TYPE_CHECKING:
    import duckdb

VERSION = "1.0"
_HOME, _ID = "driftline_home", "driftline_id"  # among the lake's settings
# DuckDB refuses a lake whose catalog has another path of its files.
_OWN_DATA = ", OVERRIDE_DATA_PATH false"
# Rows. DuckDB writes the last row group of a table anew for each row that is added: up to 122,880 by default.
_ROW_GROUP = 8192
_FEW = 100  # rows that DuckDB inserts faster as lists than as an Arrow table
PATIENCE = 60.0  # seconds that a locked catalog is tried again
# The same, where this process itself has it open: whoever has may be waiting for us
BESIDE = 5.0

_EXTENSIONS = {"duckdb": (), "sqlite": ("sqlite_scanner",), "postgres": ("postgres_scanner",)}
_TYPES = {"duckdb": "DUCKDB", "sqlite": "SQLITE", "postgres": "POSTGRES"}
# What a database says when someone else is at it.
_BUSY = re.compile(
    r"database is locked|[Cc]onflicting lock|[Cc]ould not set lock|deadlock detected|could not serialize|"
    r"[Cc]onflict on tuple|duplicate key|UNIQUE constraint failed|PRIMARY KEY or UNIQUE constraint|"
    r"write-write conflict|database schema has changed|database table is locked|cannot commit transaction",
)
_OPEN = re.compile(r'already attached by database "(?:__ducklake_metadata_)?([^"]*)"')
_NEWER = re.compile(r"database file with version number \d+, but we can only read versions between")
_PASSWORD = re.compile(r"(password\s*=\s*)('[^']*'|\S+)|(?<=://)[^/\s@]+(?=@)", re.IGNORECASE)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CatalogDatabase:
    """The location of a DuckLake's catalog.

    ``kind``: duckdb, sqlite or postgres; ``target``: a path or libpq's text. ``data``: the folder of the
    files, for a lake that does not exist yet. ``durable`` False: it is written without syncs.
    """

    kind: str
    target: str
    data: str
    durable: bool = field(default=True, repr=False)

    @classmethod
    def of(cls, text: str, lake: str | os.PathLike[str], *, durable: bool = True) -> CatalogDatabase:
        """Parse the setting ``catalog``: ``duckdb``, ``sqlite``, either with ``:PATH``, or ``postgres:…``.

        ``lake``: the folder of the lake, or the URI of one in a store; ``durable``: of the lake. Raises
        UsageError; SetupError if DuckDB is not installed.

        >>> CatalogDatabase.of("sqlite", Path("/lake"))
        CatalogDatabase(kind='sqlite', target='/lake/catalog.sqlite', data='/lake/data/')
        """
        must_be_installed()
        kind, _, target = text.partition(":")
        kind = {"postgresql": "postgres"}.get(kind, kind)
        if kind not in _TYPES:
            raise UsageError(
                f"catalog = {kind!r} is not a catalog of DuckLake",
                hint="duckdb, sqlite, either with :PATH, or postgres:dbname=… host=…",
            )
        stored = is_stored(str(lake))
        folder = str(lake).rstrip("/") if stored else str(Path(lake).resolve())
        if kind == "postgres":
            if text.startswith(("postgres://", "postgresql://")):
                target = text
            return cls(kind, target, f"{folder}/data/", durable)
        path = Path(target or f"catalog.{'ducklake' if kind == 'duckdb' else kind}").expanduser()
        if stored and not path.is_absolute():
            raise UsageError(
                f"{lake}: a catalog in a file cannot lie in a store",
                hint=f'catalog = "{kind}:/PATH" names one on this machine, "postgres:dbname=…" one on a server',
            )
        return cls(kind, str(path if stored else Path(folder, path)), f"{folder}/data/", durable)

    @property
    def shown(self) -> str:
        """The catalog for people, without a password."""
        return _PASSWORD.sub(r"\1***", f"{self.kind}:{self.target}")

    def exists(self) -> bool:
        """True if there is a database file, or the catalog is on a server, which is not asked."""
        return self.kind == "postgres" or Path(self.target).is_file()

    def engine(self) -> str:
        """DuckDB's version and extensions, for people. Raises SetupError if an extension is missing."""
        import duckdb

        names = ("ducklake", *_EXTENSIONS[self.kind])
        with instance(*names):
            return f"DuckDB {duckdb.__version__} with {', '.join(names)}"

    def make(self) -> None:
        """Create the catalog with DuckDB's own extension, if there is none."""
        if self.kind != "postgres":
            if self.exists():
                return
            _folder(Path(self.target).parent)
        if not is_stored(self.data):
            _folder(Path(self.data))
        self.by_duckdb("SELECT 1")
        if self.durable:  # with the folders above, which may be new
            here = [] if is_stored(self.data) else [Path(self.data)]
            sync([*here, *([] if self.kind == "postgres" else [Path(self.target)])])

    def by_duckdb(
        self, sql: str, parameters: Sequence[Any] = (), written: Callable[[], Iterable[Path]] = tuple
    ) -> list[tuple[Any, ...]]:
        """Run one statement in DuckDB itself, with the lake attached as ``lk``.

        ``written``: gives the files that it wrote.
        """

        def once() -> list[tuple[Any, ...]]:
            """Run the statement on a connection of its own."""
            with self._attached() as connection:
                # An explicit one: the files have to be on the disk before the rows that name them are.
                connection.execute("BEGIN")
                rows = connection.execute(sql, list(parameters)).fetchall()
                if self.durable:
                    sync(written(), Path(self.data))
                connection.execute("COMMIT")
                return rows

        rows = self._retried(once)
        self.sync()
        return rows

    def sync(self) -> None:
        """Sync the catalog's file, and its folder, out of which the journal goes. Raises SetupError."""
        if self.durable and self.kind != "postgres":
            target = Path(self.target)
            # DuckDB's log, where others have the catalog open
            files = (target, Path(f"{target}.wal"))
            sync([file for file in files if file.exists()], target.parent)

    @contextmanager
    def queried(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """DuckDB's own view of the lake, to be read with SQL: its tables are ``namespace.table``, too.

        Raises SetupError if the catalog does not open.
        """
        options = _OWN_DATA + ("" if self._has_journal() else ", READ_ONLY")
        if self.exists() and self.displaced() is not None:
            options = options.replace("false", "true")
        with ExitStack() as stack:
            connection = self._retried(lambda: stack.enter_context(self._attached("lake", options)))
            connection.execute("USE lake")
            try:
                yield connection
            finally:
                connection.execute("USE memory")

    @contextmanager
    def _attached(self, name: str = "lk", options: str = _OWN_DATA) -> Iterator[duckdb.DuckDBPyConnection]:
        prefix = "" if self.kind == "duckdb" else f"{self.kind}:"
        source = literal(f"ducklake:{prefix}{self.target}")
        with instance("ducklake", *_EXTENSIONS[self.kind]) as connection:
            reach(connection, self.data)
            # AUTOMATIC_MIGRATION stays off: a catalog of an older version is its owner's to change.
            connection.execute(f"ATTACH {source} AS {name} (DATA_PATH {literal(self.data)}{options})")
            try:
                yield connection
            finally:
                connection.execute(f"DETACH {name}")

    def read(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work`` in one read transaction. Raises SetupError if the catalog does not open."""

        def once() -> T:
            """Do the work on a connection of its own."""
            with self._open(writes=False) as connection:
                return work(connection)

        return self._retried(once)

    def tried(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work`` in one transaction that is not committed. Raises as `read`."""

        def once() -> T:
            """Do the work; closing the connection rolls it back."""
            with self._open(writes=True) as connection:
                return work(connection)

        return self._retried(once)

    def write(
        self,
        work: Callable[[Connection], T],
        landed: Callable[[Connection], bool],
        files: Iterable[str] = (),
        *,
        displaced: bool = False,
    ) -> T:
        """Do ``work`` in one transaction, and from the start again if someone else was faster.

        ``displaced``: also in a lake that was copied or moved, for work that makes it whole.

        The outcome of an error in COMMIT, or in closing the database after it, is unknown: then ``landed``
        looks for the transaction in the catalog. Raises UnknownError if that fails too. ``files``: those that
        it names from then on, which are synced before; a sync of the catalog follows.
        """
        import duckdb

        if self.durable:
            # Before the transaction, which holds the lock that others wait for.
            sync(filter(None, map(local, files)), Path(self.data))

        def once() -> T:
            """Do the work and commit it; an error of the commit counts only if the work did not land."""
            results: list[T] = []
            try:
                with self._open(writes=True, displaced=displaced) as connection:
                    results.append(work(connection))
                    connection.execute("COMMIT")
            except duckdb.Error as error:
                if not results:
                    raise
                # DuckDB can fail after its COMMIT, when it writes its log into the file on closing, so the
                # catalog is asked for the commit's id.
                self._check_landed(landed, error)
            return results[0]

        committed = self._retried(once)
        try:
            self.sync()
        except SetupError as error:
            raise UnknownError(f"the DuckLake catalog {self.shown}: {error.message}") from error
        return committed

    def _check_landed(self, landed: Callable[[Connection], bool], error: Exception) -> None:
        """Raise SetupError, or the conflict ``error``, if a transaction whose COMMIT failed is not there.

        Raises UnknownError if it may have it.
        """
        try:
            if self.read(landed):
                return
        except (SetupError, CommitConflict):
            raise UnknownError(f"the DuckLake catalog {self.shown}: {_told(error)}") from error
        # A lock that was not had committed nothing, so the work is done again from the start.
        if _BUSY.search(str(error)):
            raise error
        # A server may be at it still, after a connection is lost
        if self.kind == "postgres":
            raise UnknownError(f"the DuckLake catalog {self.shown}: {_told(error)}") from error
        raise SetupError(
            f"the DuckLake catalog {self.shown} did not commit: {_told(error)}",
            hint="nothing was changed; fix the cause and try again",
        ) from error

    @contextmanager
    def _open(self, *, writes: bool, displaced: bool = False) -> Iterator[Connection]:
        read_only = not writes and not self._has_journal()
        options = f"TYPE {_TYPES[self.kind]}" + (", READ_ONLY" if read_only else "")
        if self.kind == "duckdb" and not read_only:
            options += f", ROW_GROUP_SIZE {_ROW_GROUP}"
        with instance(*_EXTENSIONS[self.kind]) as duckdb:
            duckdb.execute(f"ATTACH {literal(self.target)} AS meta ({options})")
            try:
                duckdb.execute("BEGIN")
                connection = Connection(duckdb, self.kind)
                metadata = _metadata(connection)
                connection.displaced = self._displaced(metadata)
                # The files of a copied or moved lake, if they came with its catalog.
                came_along = connection.displaced is not None and Path(self.data).is_dir()
                connection.data_path = self.data if came_along else _data_path(metadata)
                if writes and not displaced:
                    self._record_home(connection, metadata)
                yield connection
            finally:
                with suppress(Exception):
                    duckdb.execute("ROLLBACK")
                duckdb.execute("DETACH meta")

    def check_writable(self) -> None:
        """Raise UsageError if the lake is a copy of another, or was moved."""
        if self.exists() and (elsewhere := self.displaced()) is not None:
            raise elsewhere.refusal()

    def displaced(self) -> DisplacedLake | None:
        """Return the lake, if it was made at another place; that of a server's catalog is not known."""
        return None if self.kind == "postgres" else self.read(lambda connection: connection.displaced)

    def _displaced(self, metadata: Mapping[str, str]) -> DisplacedLake | None:
        # A copy of the folder does not copy a server's catalog.
        if self.kind == "postgres":
            return None
        lake, catalog = self.data.rstrip("/").rpartition("/")[0], os.path.realpath(self.target)
        if _HOME in metadata:
            home = Home(metadata[_HOME], metadata[_ID])
            return displaced(lake, catalog, home, lambda path: home.id if Path(path).is_file() else None)
        data = Path(_data_path(metadata))
        if is_stored(str(metadata.get("data_path"))) or not data.is_absolute() or data == Path(self.data):
            return None
        # Made by a version that recorded no home, or by DuckDB, with files where a person wants them.
        original = str(data.with_name(Path(self.target).name))
        if Path(original).is_file():
            return None if is_same(catalog, original) else DisplacedLake(lake, str(data.parent), is_copy=True)
        if data.exists() or not Path(self.data).is_dir():
            return None
        return DisplacedLake(lake, str(data.parent), is_copy=False)

    def _record_home(self, connection: Connection, metadata: Mapping[str, str]) -> None:
        """Record this place as the lake's home, if none is. Raises UsageError for a lake made elsewhere."""
        connection.check_writable()
        if self.kind != "postgres" and _HOME not in metadata:
            connection.set_home(Home.new(os.path.realpath(self.target)))

    def _has_journal(self) -> bool:
        """True if SQLite's journal lies next to the file.

        If its writer died in a COMMIT, only a connection that may write can roll that back, and no other can
        read.
        """
        return self.kind == "sqlite" and Path(f"{self.target}-journal").exists()

    def _retried(self, once: Callable[[], T]) -> T:
        import duckdb

        begun, pause = time.monotonic(), 0.02
        while True:
            try:
                return once()
            except duckdb.Error as error:
                text, waited = _told(error), time.monotonic() - begun
                beside = _OPEN.search(str(error))
                if (beside and waited > BESIDE) or not (beside or _BUSY.search(str(error))):
                    raise self._refused(error, beside and beside[1]) from error
                if waited > PATIENCE:
                    raise CommitConflict(
                        f"the DuckLake catalog {self.shown} is still locked: {text}"
                    ) from error
                time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311  no secret hangs on it
                # Not for ever longer: the lock is free between two commits, for a moment only.
                pause = min(pause * 1.5, 1.0)

    def _refused(self, error: Exception, name: str | None) -> SetupError:
        """The reason the catalog cannot be opened. ``name``: that by which DuckDB has it in this process."""
        import duckdb

        if name is not None:
            return SetupError(
                f"DuckDB has the DuckLake catalog {self.shown} attached in this process, as {name}: "
                "only one of its connections may have the file",
                hint=f'DETACH {name} there, or keep the catalog where both can have it open: catalog = "sqlite"',
            )
        if _NEWER.search(str(error)):
            return SetupError(
                f"the DuckLake catalog {self.shown} was made by DuckDB 2 or later, and DuckDB {duckdb.__version__}, "
                "by which it is read here, does not open such files",
                hint="make it with DuckDB 1.5, or keep it in SQLite or PostgreSQL",
            )
        return SetupError(
            f"the DuckLake catalog {self.shown} does not respond: {_told(error)}",
            hint=ASK_DOCTOR,
        )


class Connection:
    """SQL on the catalog's tables, inside one transaction.

    Attributes:
        kind: of the database.
        data_path: the lake's folder of files, with a slash at its end.
        displaced: the lake, if it was made elsewhere.
    """

    def __init__(self, raw: duckdb.DuckDBPyConnection, kind: str) -> None:
        self._raw = raw
        self.kind = kind
        self.data_path = ""
        self.displaced: DisplacedLake | None = None

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement without a result."""
        self._raw.execute(sql, list(parameters))

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self._raw.execute(sql, list(parameters)).fetchall()

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query; None if there is none."""
        return self._raw.execute(sql, list(parameters)).fetchone()

    def arrow(self, sql: str) -> Any:
        """Return an Arrow table."""
        return self._raw.execute(sql).to_arrow_table()

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to one of the catalog's tables; columns that are not named stay null."""
        if not rows:
            return
        listed = ", ".join(rows[0])
        columns = [[row[name] for row in rows] for name in rows[0]]
        if len(rows) <= _FEW:
            unnested = ", ".join("unnest(?)" for _ in columns)
            self._raw.execute(f"INSERT INTO meta.{table} ({listed}) SELECT {unnested}", columns)
            return
        import pyarrow as pa

        # DuckDB finds the local variable by its name.
        batch = pa.table(dict(zip(rows[0], columns, strict=True)))  # noqa: F841
        self._raw.execute(f"INSERT INTO meta.{table} ({listed}) SELECT {listed} FROM batch")

    def end(self, table: str, snapshot: int, where: str, parameters: Sequence[Any] = ()) -> None:
        """End rows of one of the catalog's tables with a snapshot: those that have no end yet."""
        self.execute(
            f"UPDATE meta.{table} SET end_snapshot = {snapshot} WHERE end_snapshot IS NULL AND {where}",
            parameters,
        )

    def check_writable(self) -> None:
        """Raise UsageError if the lake is a copy of another, or was moved."""
        if self.displaced is not None:
            raise self.displaced.refusal()

    def home(self) -> Home | None:
        """Return the lake's home, as its catalog has it; None if none is recorded."""
        rows = self.rows("SELECT key, value FROM meta.ducklake_metadata WHERE key IN (?, ?)", [_HOME, _ID])
        settings = dict(rows)
        return Home(settings[_HOME], settings[_ID]) if settings else None

    def set_home(self, home: Home) -> None:
        """Make this the lake's home."""
        self.execute("DELETE FROM meta.ducklake_metadata WHERE key IN (?, ?)", [_HOME, _ID])
        self.insert("ducklake_metadata", [{"key": _HOME, "value": home.path}, {"key": _ID, "value": home.id}])

    def tables(self) -> set[str]:
        """Names of the catalog's tables."""
        return {
            name
            for (name,) in self.rows(
                "SELECT table_name FROM duckdb_tables() WHERE database_name = 'meta' AND NOT internal"
            )
        }


def _data_path(metadata: Mapping[str, str]) -> str:
    """Return the lake's folder of files, as its catalog has it."""
    path = str(metadata.get("data_path", ""))
    return path if path.endswith("/") else path + "/"


def _metadata(connection: Connection) -> dict[str, str]:
    """The settings of the lake. Raises NoLakeError, and SetupError for a lake that cannot be read here."""
    import duckdb

    try:
        metadata = dict(connection.rows("SELECT key, value FROM meta.ducklake_metadata WHERE scope IS NULL"))
    except duckdb.CatalogException as error:
        raise NoLakeError("the catalog database holds no DuckLake") from error
    version = metadata.get("version", "")
    if version != VERSION:
        newer = [int(n) for n in re.findall(r"\d+", version)] > [int(n) for n in VERSION.split(".")]
        raise SetupError(
            f"this DuckLake has version {version or 'unknown'}, not {VERSION}",
            hint="a newer driftline may know it"
            if newer
            else "attach it once with DuckDB 1.5 and AUTOMATIC_MIGRATION",
        )
    if metadata.get("encrypted") == "true":
        raise SetupError(
            "this DuckLake is encrypted: Spark cannot read its files", hint="use one that is not"
        )
    return metadata


def _told(error: Exception) -> str:
    return _PASSWORD.sub(r"\1***", str(error).split("\n", 1)[0])


class NoLakeError(SetupError):
    """A database without a DuckLake's tables."""


def _folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"cannot make the folder {path}: {error.strerror}", hint="pass another folder: --lake FOLDER"
        ) from error
