"""Files in the lake's folder that no snapshot has: what a batch wrote that died before its commit."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from driftline.formats.ducklake.catalog import CatalogDatabase, Connection
from driftline.formats.ducklake.snapshot import data_path
from driftline.formats.lakes import Orphan
from driftline.formats.leftovers import bare, delete, listed
from driftline.write import STAGED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Files of rows, whole or in the making, and the checksums that Hadoop puts beside them.
_OURS = re.compile(rf"\.parquet(\.crc)?$|/_temporary/|{STAGED.pattern}")
_PLACES = ("ducklake_data_file", "ducklake_delete_file")


def orphans(spark: SparkSession, catalog: CatalogDatabase, older_than: float) -> list[Orphan]:
    """The unregistered files that last changed more than ``older_than`` seconds ago.

    A younger file may belong to a batch that has yet to commit.
    """
    if not catalog.exists():
        return []
    # Listed first: what is registered after that is younger than any file of the list.
    folder = catalog.read(data_path)
    ours = [f for f in listed(spark, folder, time.time() - older_than) if _OURS.search(f.path)]
    known = {bare(path) for path in catalog.read(_registered)}
    return [f for f in ours if _of(bare(f.path)) not in known]


def clean(spark: SparkSession, catalog: CatalogDatabase, older_than: float) -> list[Orphan]:
    """Deletes the orphans, and the folders that they leave empty; returns them."""
    gone = orphans(spark, catalog, older_than)
    delete(spark, gone)
    return gone


def _of(path: str) -> str:
    """The file that a checksum belongs to; the file itself."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else path


def _registered(connection: Connection) -> list[str]:
    """The paths of all files that the catalog knows, of all snapshots,
    and of those that wait for deletion.
    """
    base = data_path(connection)
    folders = {
        int(table): (path if not relative else (schema if not of_lake else base + schema) + path)
        for table, path, relative, schema, of_lake in connection.rows(
            "SELECT t.table_id, t.path, CAST(t.path_is_relative AS BOOLEAN), s.path, CAST(s.path_is_relative AS BOOLEAN) "
            "FROM meta.ducklake_table t JOIN meta.ducklake_schema s ON s.schema_id = t.schema_id"
        )
    }
    out = []
    for place in _PLACES:
        for table, path, relative in connection.rows(
            f"SELECT table_id, path, CAST(path_is_relative AS BOOLEAN) FROM meta.{place}"
        ):
            out.append(folders.get(int(table), base) + path if relative else path)
    for path, relative in connection.rows(
        "SELECT path, CAST(path_is_relative AS BOOLEAN) FROM meta.ducklake_files_scheduled_for_deletion"
    ):
        out.append(base + path if relative else path)
    return out
