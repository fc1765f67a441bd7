"""Files of batches that died before their commit, and old ledgers: no table of the catalog has them.

Files left by Spark's own writer are for Iceberg's `remove_orphan_files`: nothing shows which batch they
belong to, and they may be another program's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.core.changelog.record import LEDGER
from driftline.formats.iceberg import store
from driftline.formats.iceberg.ledger import WRITTEN_LEDGER, place
from driftline.formats.lakes import Orphan
from driftline.formats.leftovers import bare, delete, listed
from driftline.runtime.stores import is_stored
from driftline.write import STAGED, WRITTEN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.formats.iceberg.reader import IcebergReader

_PATHS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")


def clean(
    spark: SparkSession,
    warehouse: str | None,
    readers: Iterable[IcebergReader],
    older_than: float,
    *,
    dry_run: bool,
) -> list[Orphan]:
    """Delete the files that no snapshot has, last changed over ``older_than`` seconds ago; returns them.

    ``warehouse``: the catalog's folder, if it names one; ``readers``: of all tables of the catalog.
    """
    before = time.time() - older_than
    loaded = ((reader, reader.java()) for reader in readers)
    tables = {reader: table for reader, table in loaded if table is not None}
    owners: dict[str, list[IcebergReader]] = {}
    for reader, table in tables.items():
        for folder in _folders(table):
            owners.setdefault(folder, []).append(reader)
    by_path: dict[str, Orphan] = {}
    stores: dict[str, Any] = {}  # the FileIO of what lies in one
    if warehouse is not None and not is_stored(warehouse):
        # A table that was never made would be there, too.
        by_path |= {bare(f.path): f for f in listed(spark, warehouse, before) if STAGED.search(f.path)}
    for folder, sharing in owners.items():
        table = tables[sharing[0]]
        remote = store.in_store(table, folder)
        files = store.listed(table, folder, before) if remote else listed(spark, folder, before)
        # Listed first: what is committed after that is younger than any file of the list.
        written = {bare(f.path): f for f in files if _is_ours(f.path, remote=remote)}
        _leave_out({reader: tables[reader] for reader in sharing}, written)
        by_path |= written
        stores |= dict.fromkeys(written, table.io()) if remote else {}
    # A table may lie in another's folder, or have had its files where others have theirs.
    _leave_out(tables, by_path)
    if not dry_run:
        delete(spark, [file for path, file in by_path.items() if path not in stores])
        for path, io in stores.items():
            if path in by_path:
                io.deleteFile(by_path[path].path)
    return [by_path[path] for path in sorted(by_path)]


def _is_ours(path: str, *, remote: bool) -> bool:
    return any(pattern.search(path) for pattern in (WRITTEN, WRITTEN_LEDGER, *([STAGED] if remote else [])))


def _folders(table: Any) -> Iterator[str]:
    """The possible folders of the table's data files, and that of its ledger."""
    properties: Mapping[str, str] = table.properties()
    yield f"{table.location()}/data"
    yield place(table, "any").rpartition("/")[0]
    for name in _PATHS:
        if (path := properties.get(name)) is not None:
            yield str(path)


def _leave_out(tables: Mapping[IcebergReader, Any], files: dict[str, Orphan]) -> None:
    """Take those out of the ``files``, by their bare paths, that one of the Java ``tables`` has in any
    snapshot; of a table that cannot be read, all in its folders.
    """
    for reader, table in tables.items():
        files.pop(bare(str(table.properties().get(LEDGER) or "")), None)
        if not files:
            return
        try:
            for row in reader.metadata_table("all_files").select("file_path").collect():
                files.pop(bare(row[0]), None)
        except (PySparkException, Py4JError):
            theirs = tuple(f"{bare(folder).rstrip('/')}/" for folder in _folders(table))
            for path in [path for path in files if path.startswith(theirs)]:
                del files[path]
