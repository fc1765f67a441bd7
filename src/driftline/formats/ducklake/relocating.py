"""Relocates a DuckLake whose catalog names files at another place, on this machine or in a store.

One transaction changes its settings. Most file paths are relative to a folder that one setting names; few
are absolute.
"""

from __future__ import annotations

import os

from driftline.errors import DataError
from driftline.formats.ducklake.catalog import CatalogDatabase, Connection
from driftline.formats.ducklake.expiry import registered
from driftline.formats.ducklake.files import local
from driftline.formats.ducklake.statistics import tables
from driftline.formats.home import DisplacedLake, Home, Relocation
from driftline.runtime.stores import explaining, filesystem, is_stored

_WITH_PATHS = (
    "ducklake_schema",
    "ducklake_table",
    "ducklake_data_file",
    "ducklake_delete_file",
    "ducklake_files_scheduled_for_deletion",
)
_DATA_PATH = "FROM meta.ducklake_metadata WHERE key = 'data_path' AND scope IS NULL"


def relocate(catalog: CatalogDatabase, elsewhere: DisplacedLake, *, dry_run: bool) -> Relocation:
    """Make the lake whole, or a copy one of its own. ``dry_run``: write nothing.

    Raises DataError if it lacks its files, or one of them.
    """
    catalog.read(lambda connection: _check(connection, catalog, elsewhere))
    names = tuple(sorted(".".join(name) for name in tables(catalog)))
    if not dry_run:
        catalog.write(
            lambda connection: _move(connection, catalog, elsewhere),
            lambda connection: connection.displaced is None,
            displaced=True,
        )
    return Relocation(elsewhere.lake, elsewhere.home, elsewhere.is_copy, names, 0, is_done=not dry_run)


def _check(connection: Connection, catalog: CatalogDatabase, elsewhere: DisplacedLake) -> None:
    (recorded,) = connection.one(f"SELECT value {_DATA_PATH}") or ("",)
    connection.data_path = _new_folder(connection, catalog)
    if elsewhere.is_copy and connection.data_path.rstrip("/") == str(recorded).rstrip("/"):
        raise DataError(
            f"the files of {elsewhere.lake} lie in {recorded}, and both lakes would have them",
            f"copy that folder to {catalog.data}, beside the catalog, and relocate again",
        )
    ours = [path for path in registered(connection) if path.startswith(catalog.data)]
    present = _present(catalog.data) if is_stored(catalog.data) else None
    for path in ours:
        place = local(path)
        if (path not in present) if present is not None else (place is not None and not place.is_file()):
            raise DataError(
                f"{path} is missing, and a table of the lake names it; nothing was changed",
                "copy the file from the lake that this is a copy of, or from a backup, and relocate again",
            )


def _new_folder(connection: Connection, catalog: CatalogDatabase) -> str:
    """The lake's folder of files, with a slash at its end: that of a store, if the settings name one."""
    return catalog.data if is_stored(catalog.data) else connection.data_path


def _present(folder: str) -> set[str]:
    """The URIs of all files in a folder of a store. Raises SetupError."""
    from pyarrow.fs import FileSelector

    system, place = filesystem(folder)
    with explaining(folder):
        files = system.get_file_info(FileSelector(place, recursive=True, allow_not_found=True))
    return {f"{folder}{file.path[len(place) :].lstrip('/')}" for file in files if file.is_file}


def _move(connection: Connection, catalog: CatalogDatabase, elsewhere: DisplacedLake) -> None:
    (recorded,) = connection.one(f"SELECT value {_DATA_PATH}") or ("",)
    old, new = f"{str(recorded).rstrip('/')}/", _new_folder(connection, catalog)
    if new != old:
        connection.execute(
            "UPDATE meta.ducklake_metadata SET value = ? WHERE key = 'data_path' AND scope IS NULL", [new]
        )
        for table in _WITH_PATHS:
            connection.execute(
                f"UPDATE meta.{table} SET path = ? || substr(path, ?) "
                "WHERE NOT CAST(path_is_relative AS BOOLEAN) AND starts_with(path, ?)",
                [new, len(old) + 1, old],
            )
    home, new_home = connection.home(), Home.new(os.path.realpath(catalog.target))
    connection.set_home(new_home if home is None or elsewhere.is_copy else Home(new_home.path, home.id))
