"""Finds the files of an embedded lake that no table has, from all metadata, and deletes them without Java."""

from __future__ import annotations

import time
from pathlib import Path

from driftline.errors import NeedsSpark
from driftline.formats.iceberg.files import data_folders, is_ours
from driftline.formats.iceberg.manifests import local_path, paths_of
from driftline.formats.iceberg.offline import OfflineIcebergTable, named_in, table_names
from driftline.formats.lakes import Orphan
from driftline.formats.leftovers import bare, listed_here
from driftline.runtime.disk import Bounds, delete_with_folders, on_disk, sync
from driftline.write import STAGED


def clean(lake: Path, catalog: str, older_than: float, *, dry_run: bool, durable: bool) -> list[Orphan]:
    """Delete the files that driftline's tasks wrote and no snapshot has, last changed more than
    ``older_than`` seconds ago, and the folders that they leave empty; returns them.

    ``durable`` False: nothing is synced. Raises NeedsSpark, with nothing deleted, where it takes Spark to
    know them; SetupError if a file cannot be deleted.
    """
    lake, before = lake.resolve(), time.time() - older_than
    within = Bounds((str(lake),))
    tables = _tables(lake, catalog)
    # A table that was never made would be there, too.
    found = [file for file in listed_here(lake, before) if STAGED.search(file.path)]
    for folder in {folder for table in tables.values() for folder in _folders(table)}:
        found += [file for file in listed_here(folder, before) if is_ours(file.path)]
    orphans = {bare(file.path): file for file in found if within.hold(file.path)}
    if not orphans:
        return []
    # Once more: what was committed meanwhile may name a listed file. A table that was dropped keeps its own.
    tables |= _tables(lake, catalog)
    for table in tables.values():
        for path in _named(table):
            orphans.pop(bare(path), None)
    if orphans and not dry_run:
        # Another process may have yet to do so: a power cut would bring back what names a file
        if durable:
            sync((local_path(table.location) for table in tables.values()), lake)
        for file in orphans.values():
            delete_with_folders(file.path, within)
    return [orphans[path] for path in sorted(orphans)]


def _tables(lake: Path, catalog: str) -> dict[str, OfflineIcebergTable]:
    """The tables of a lake by their metadata files. Raises NeedsSpark if one cannot be read."""
    names = table_names(lake, catalog, views=False)
    tables = [OfflineIcebergTable.of(lake, catalog, name) for name in names or ()]
    if names is None or None in tables:
        raise NeedsSpark("the catalog or a table of it cannot be read")
    # Not by their ids: a table that was registered twice has one.
    return {table.location: table for table in tables if table is not None}


def _folders(table: OfflineIcebergTable) -> list[Path]:
    """The possible folders of the table's data files, and that of its metadata.

    Raises NeedsSpark if one is not on this machine.
    """
    properties, location = table.metadata.get("properties", {}), str(table.metadata["location"])
    beside = properties.get("write.metadata.path", f"{location}/metadata").rstrip("/")
    folders = [on_disk(folder) for folder in (*data_folders(properties, location), beside)]
    if None in folders:
        raise NeedsSpark(f"files of {table.name} are not on this machine")
    return [folder for folder in folders if folder is not None]


def _named(table: OfflineIcebergTable) -> set[str]:
    """The paths of all files that a snapshot has, of any branch or tag, and of those that the metadata name.

    Raises NeedsSpark if a manifest cannot be read, or there are too many.
    """
    try:
        return {*paths_of(table.metadata), *named_in(table.metadata)}
    except Exception as error:  # whatever is wrong with a file, Spark reports it
        raise NeedsSpark(f"the manifests of {table.name} cannot be read") from error
