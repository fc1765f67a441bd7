"""The home of an embedded Iceberg lake: a table of its own in the SQLite catalog."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from driftline.formats.home import DisplacedLake, Home, displaced, is_same
from driftline.formats.iceberg.manifests import local_path

CATALOG = "catalog.db"
_BUSY = 20.0  # seconds to wait for a process that writes
_TABLES = "select table_namespace, table_name, metadata_location from iceberg_tables"


@contextmanager
def catalog_of(lake: Path, *, new: bool = False) -> Iterator[sqlite3.Connection]:
    """The lake's catalog; a ``new`` one if there is none. Raises sqlite3.Error."""
    # Not read-only: the journal of a process that died is rolled back before anything is read.
    uri = f"file:{quote(str(lake / CATALOG))}?mode={'rwc' if new else 'rw'}"
    with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY, isolation_level=None)) as database:
        yield database


def displaced_lake(lake: Path) -> DisplacedLake | None:
    """The lake in a folder, if it was made at another place; None if it was made there, or is yet to be made.

    One made by a version that recorded no home is known by where its tables lie.
    """
    folder = lake.resolve()
    try:
        with catalog_of(lake) as database:
            home = recorded(database)
            elsewhere = _home_of_tables(database, folder) if home is None else None
    except sqlite3.Error:  # there is none, or it does not open: Iceberg tells why
        return None
    if home is not None:
        return displaced(str(folder), str(folder / CATALOG), home, _id_at)
    if elsewhere is None or is_same(str(folder / CATALOG), str(elsewhere / CATALOG)):
        return None
    return DisplacedLake(str(folder), str(elsewhere), (elsewhere / CATALOG).is_file())


def record_home(lake: Path) -> None:
    """Record this place as the lake's home, unless one is recorded, or its tables lie in another lake.

    A new lake's catalog begins with it, before a table can lie elsewhere.
    """
    if displaced_lake(lake) is not None:
        return
    # A lake may allow no more than to be read.
    with suppress(sqlite3.Error), catalog_of(lake, new=True) as database:
        if recorded(database) is None:
            database.execute("begin immediate")
            if recorded(database) is None:
                set_home(database, Home.new(str(lake.resolve() / CATALOG)))
            database.execute("commit")


def set_home(database: sqlite3.Connection, home: Home) -> None:
    """Make this the lake's home, in the transaction of a catalog."""
    database.execute("create table if not exists driftline_lake (path text not null, id text not null)")
    database.execute("delete from driftline_lake")
    database.execute("insert into driftline_lake values (?, ?)", (home.path, home.id))


def recorded(database: sqlite3.Connection) -> Home | None:
    """The lake's home, as its catalog has it; None if a version made it that recorded none."""
    try:
        row = database.execute("select path, id from driftline_lake").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return None
    return None if row is None else Home(*row)


def _id_at(path: str) -> str | None:
    try:
        with catalog_of(Path(path).parent) as database:
            home = recorded(database)
    except sqlite3.Error:
        return None
    return None if home is None else home.id


def _home_of_tables(database: sqlite3.Connection, lake: Path) -> Path | None:
    """The folder of another lake in which tables of this one lie; None if they lie in its folder, or where a
    person has put them.
    """
    count, outer = 0, []
    for namespace, name, metadata in database.execute(_TABLES).fetchall():
        with suppress(ValueError):  # in a store
            file, parts = local_path(metadata), (*namespace.split("."), name)
            folder = file.parents[1]
            if folder.is_relative_to(lake) and file.is_file():
                count += 1
            else:
                outer.append((folder, parts))
    for folder, parts in outer:
        if folder.parts[-len(parts) :] == parts:  # as this catalog itself places tables
            return folder.parents[len(parts) - 1]
        if (containing := next((up for up in folder.parents if (up / CATALOG).is_file()), None)) is not None:
            return containing
    if outer and not count:
        folder, parts = outer[0]
        return folder.parents[min(len(parts), len(folder.parts) - 1) - 1]
    return None
