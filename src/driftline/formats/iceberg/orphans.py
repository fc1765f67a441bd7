"""Files of batches that died before their commit, and old ledgers: no table of the catalog has them.

Those that Spark's own writer has left for a new table are for Iceberg's `remove_orphan_files`: nothing shows
which batch they belong to, and they may be another program's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.core.changelog.record import LEDGER
from driftline.formats.iceberg import store
from driftline.formats.iceberg.ledger import WRITTEN_LEDGER, place
from driftline.formats.iceberg.staging import WRITTEN_BY_SPARK, data_folders
from driftline.formats.lakes import Orphan
from driftline.formats.leftovers import bare, delete, listed
from driftline.runtime.stores import is_stored
from driftline.write import STAGED, WRITTEN

if TYPE_CHECKING:
    from driftline.formats.iceberg.catalog import IcebergCatalog


def clean(catalog: IcebergCatalog, older_than: float, *, dry_run: bool) -> list[Orphan]:
    """Delete the files that no snapshot has, last changed over ``older_than`` seconds ago; returns them."""
    spark, before = catalog.spark, time.time() - older_than
    tables = {name: table for name in catalog.tables() if (table := catalog.table(name).java()) is not None}
    owners: dict[str, list[str]] = {}
    for name, table in tables.items():
        for folder in _folders(table):
            owners.setdefault(folder, []).append(name)
    by_path: dict[str, Orphan] = {}
    stores: dict[str, Any] = {}  # the FileIO of what lies in one
    if catalog.folder is not None and not is_stored(catalog.folder):
        # A table that was never made would be there, too.
        by_path |= {bare(f.path): f for f in listed(spark, catalog.folder, before) if STAGED.search(f.path)}
    for folder, names in owners.items():
        table = tables[names[0]]
        remote = store.in_store(table, folder)
        files = store.listed(table, folder, before) if remote else listed(spark, folder, before)
        # Listed first: what is committed after that is younger than any file of the list.
        written = {bare(f.path): f for f in files if _is_ours(f.path, remote=remote)}
        _leave_out(catalog, {name: tables[name] for name in names}, written)
        by_path |= written
        stores |= dict.fromkeys(written, table.io()) if remote else {}
    # A table may lie in another's folder, or have had its files where others have theirs.
    _leave_out(catalog, tables, by_path)
    if not dry_run:
        delete(spark, [file for path, file in by_path.items() if path not in stores])
        for path, io in stores.items():
            if path in by_path:
                io.deleteFile(by_path[path].path)
    return [by_path[path] for path in sorted(by_path)]


def _is_ours(path: str, *, remote: bool) -> bool:
    patterns = (WRITTEN, WRITTEN_BY_SPARK, WRITTEN_LEDGER, *([STAGED] if remote else []))
    return any(pattern.search(path) for pattern in patterns)


def _folders(table: Any) -> Iterator[str]:
    """The possible folders of the table's data files, and that of its ledger."""
    yield from data_folders(table)
    yield place(table, "any").rpartition("/")[0]


def _leave_out(catalog: IcebergCatalog, tables: Mapping[str, Any], files: dict[str, Orphan]) -> None:
    """Take those out of the ``files``, by their bare paths, that one of the Java ``tables`` has in any
    snapshot; of a table that cannot be read, all in its folders.
    """
    for name, table in tables.items():
        files.pop(bare(str(table.properties().get(LEDGER) or "")), None)
        if not files:
            return
        try:
            for row in catalog.table(name).metadata_table("all_files").select("file_path").collect():
                files.pop(bare(row[0]), None)
        except (PySparkException, Py4JError):
            theirs = tuple(f"{bare(folder).rstrip('/')}/" for folder in _folders(table))
            for path in [path for path in files if path.startswith(theirs)]:
                del files[path]
