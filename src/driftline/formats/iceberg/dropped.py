"""The tables that were dropped from a lake in a folder without their files, as its catalog lists them.

Only what is listed is ever deleted: a folder without a table may be another catalog's, or not a table's at
all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftline.formats.iceberg.offline import OfflineIcebergTable, located, table_names
from driftline.formats.iceberg.relocating import catalog_errors, catalog_of
from driftline.formats.lakes import DroppedFolder
from driftline.formats.leftovers import sync_deletions
from driftline.runtime.disk import Bounds, delete_file, on_disk

# A folder by its path within the lake's, so that the list is right in a lake that was moved or copied.
_MADE = "create table if not exists driftline_dropped (name text, folder text primary key, at real not null)"
_HAS_LIST = "select 1 from sqlite_master where name = 'driftline_dropped'"
_LISTED = "insert or replace into driftline_dropped values (?, ?, ?)"
_ALL = "select name, folder, at from driftline_dropped order by name, folder"
_FORGOTTEN = "delete from driftline_dropped where folder = ?"


def record(lake: Path, name: str, location: str) -> None:
    """List a table that is about to leave the catalog, if its folder lies in the lake's.

    Raises SetupError.
    """
    folder, home = on_disk(location), lake.resolve()
    if folder is None or not folder.resolve().is_relative_to(home):
        return
    within = str(folder.resolve().relative_to(home))
    _write(lake, _LISTED, (name, within, datetime.now(UTC).timestamp()))


def dropped(lake: Path, catalog: str, *, delete: bool, durable: bool) -> list[DroppedFolder]:
    """The listed tables whose files are still there, and whose folders no table uses.

    Args:
        lake: the folder of the lake.
        catalog: the name of its catalog.
        delete: delete the files, and take the tables off the list.
        durable: sync what is deleted.
    """
    home, folders = lake.resolve(), list[DroppedFolder]()
    for name, within, moment in _listed(lake):
        # Listed before the tables are asked: files of a table that is being made are younger than the drop.
        files = dict(_files(home / within, moment))
        if not files or _is_used(lake, catalog, home / within):
            continue
        time = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        folders.append(DroppedFolder(name, str(home / within), time, len(files), sum(files.values())))
        if delete:
            for path in files:
                delete_file(path, Bounds((str(home),)))
            if durable:
                sync_deletions(files)
            _write(lake, _FORGOTTEN, (within,))
    return folders


def _listed(lake: Path) -> list[tuple[str, str, float]]:
    with catalog_errors(lake), catalog_of(lake) as database:
        has_list = database.execute(_HAS_LIST).fetchall()
        return database.execute(_ALL).fetchall() if has_list else []


def _files(folder: Path, before: float) -> Iterator[tuple[Path, int]]:
    """Yield the files in a folder that were last changed ``before`` then, with their sizes."""
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            status = path.lstat()
            if status.st_mtime <= before:
                yield path, status.st_size


def _is_used(lake: Path, catalog: str, folder: Path) -> bool:
    """True if a table of the catalog may have files in the folder, or around it."""
    for name in table_names(lake, catalog) or ():
        table = OfflineIcebergTable.of(lake, catalog, name)
        # Of one that is unreadable, the place of its metadata tells.
        metadata: Any = {} if table is None else table.metadata
        places = [located(lake, catalog, name, views=True), metadata.get("location")]
        for place in (*places, *metadata.get("properties", {}).values()):
            path = on_disk(place or "")
            if path is not None and (path.is_relative_to(folder) or folder.is_relative_to(path)):
                return True
    return False


def _write(lake: Path, statement: str, values: tuple[object, ...]) -> None:
    with catalog_errors(lake), catalog_of(lake) as database:
        database.execute(_MADE)
        database.execute(statement, values)
