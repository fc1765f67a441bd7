"""Deletes files of a DuckLake that no snapshot has, and ends older snapshots, with files that only they had.

DuckDB ends them, for all tables at once, and schedules their files for deletion: whatever dies after it, the
next run finds there what is left to delete.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING

from driftline.core.columns.statistics import iso
from driftline.core.history.retention import Expirable, RetentionLimit
from driftline.core.schema.text import quoted
from driftline.errors import NeedsSpark
from driftline.formats.ducklake.files import Storage, leaves, local
from driftline.formats.ducklake.inlined import inlined_rows, inlined_tables
from driftline.formats.ducklake.rows import ColumnBounds, both
from driftline.formats.ducklake.snapshot import DELETES_SUFFIX, LIVE, TableRow, find, latest, load
from driftline.formats.lakes import DroppedFolder, EndedSnapshots, Orphan
from driftline.formats.leftovers import bare, check_deleted, listed, listed_here, sync_deletions
from driftline.runtime.disk import Bounds, delete_by_hadoop, delete_file, delete_with_folders
from driftline.write import STAGED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.formats.ducklake.catalog import CatalogDatabase, Connection

_PLACES = ("ducklake_data_file", "ducklake_delete_file")
_SCHEDULED = "ducklake_files_scheduled_for_deletion"
# Files of rows, whole or in the making, and the checksums that Hadoop puts beside them.
_OURS = re.compile(rf"\.parquet(\.crc)?$|/_temporary/|{STAGED.pattern}")


@dataclass(frozen=True, slots=True)
class DuckLakeExpiry:
    """The end of the older snapshots of a lake, for one table."""

    spark: SparkSession
    catalog: CatalogDatabase
    name: str

    @property
    def of_lake(self) -> bool:
        """True: a snapshot is one of all tables."""
        return True

    def check(self) -> None:
        """Raise UsageError if the lake is a copy of another, or was moved."""
        self.catalog.check_writable()

    def check_unheld(self) -> None:
        """Do nothing: a DuckLake has no branches and no tags."""

    def expirable(self, limit: RetentionLimit | None = None) -> Expirable:
        """The snapshots that would end."""
        rows = self.catalog.read(
            lambda c: c.rows(
                "SELECT snapshot_id, epoch_ms(CAST(snapshot_time AS TIMESTAMPTZ)) FROM meta.ducklake_snapshot "
                "ORDER BY snapshot_id DESC"
            )
        )
        times = {int(id_): int(time) for id_, time in rows}
        gone = [
            id_
            for id_, time in list(times.items())[1 if limit is None else max(1, limit.last) :]
            if limit is None or time < limit.since
        ]
        remaining = [times[id_] for id_ in times.keys() - {*gone}]
        return Expirable(tuple(gone), len(remaining), min(remaining, default=None))

    def has_removed_rows(self) -> bool:
        """True if files of the table have deleted rows, or the catalog has some of its own."""
        return self.catalog.read(self._has_removed_rows)

    def _has_removed_rows(self, connection: Connection) -> bool:
        now, table = latest(connection), self._table(connection)
        inlined = f"ducklake_inlined_delete_{table.id}"
        if inlined in connection.tables() and connection.rows(f"SELECT 1 FROM meta.{inlined} LIMIT 1"):
            return True
        where = f"table_id = ? AND {LIVE} LIMIT 1"
        return bool(
            connection.rows(f"SELECT 1 FROM meta.ducklake_delete_file WHERE {where}", [table.id, now, now])
        )

    def remembers_deletes(self) -> bool:
        """True if there is a table of the deletes that this one remembers."""
        name = self.name + DELETES_SUFFIX
        return self.catalog.read(lambda c: find(c, name, latest(c))) is not None

    def run(self, limit: RetentionLimit | None = None) -> EndedSnapshots:
        """End the snapshots, and delete the files that wait for it: with a ``limit`` those of all tables,
        without one those of this table.
        """
        gone = self.expirable(limit).ids
        if gone:
            # Counted, as a time of the answer would need a library more to become Python's.
            ended = f"ducklake_expire_snapshots('lk', versions => [{', '.join(map(str, gone))}])"
            self.catalog.by_duckdb(f"SELECT count(*) FROM {ended}")
        waiting, folders = self.catalog.read(self._waiting if limit is None else _all_waiting)
        within = Bounds((self.catalog.data,))
        paths = [path for _, path in waiting]
        outside = tuple(path for path in paths if not within.hold(path))
        for path in paths:
            _delete(path, within)
        present = {bare(f.path) for folder in folders for f in listed(self.spark, folder, float("inf"))}
        staying = present & set(map(bare, paths))
        check_deleted(self.name, staying)
        if self.catalog.durable:
            sync_deletions(map(local, paths))
        ids = [id_ for id_, _ in waiting]
        self.catalog.write(lambda c: self._tidy(c, ids), lambda c: not _still(c, ids))
        return EndedSnapshots(len(gone), len(paths) - len(outside), outside)

    def unnamed(self) -> list[Orphan]:
        """The files in the table's folder that the catalog does not have."""
        folder = self.catalog.read(self._table).folder
        files = [f for f in listed(self.spark, folder, float("inf")) if not f.path.endswith(".crc")]
        registered_paths = {bare(path) for path in self.catalog.read(registered)}
        return [file for file in files if bare(file.path) not in registered_paths]

    def _table(self, connection: Connection) -> TableRow:
        table = find(connection, self.name, latest(connection))
        assert table is not None
        return table

    def _waiting(self, connection: Connection) -> tuple[list[tuple[int, str]], list[str]]:
        """The scheduled files in the folders of the table and of its remembered deletes, and the folders."""
        deletes = find(connection, self.name + DELETES_SUFFIX, latest(connection))
        folders = [table.folder for table in (self._table(connection), deletes) if table is not None]
        ours = Bounds(tuple(folders))
        return [(i, path) for i, path in _all_waiting(connection)[0] if ours.hold(path)], folders

    def _tidy(self, connection: Connection, deleted: Sequence[int]) -> None:
        """Take what tells of rows that are gone out of the catalog: there is one snapshot to keep it for."""
        if deleted:
            connection.execute(
                f"DELETE FROM meta.{_SCHEDULED} WHERE data_file_id IN ({', '.join(map(str, deleted))})"
            )
        table = self._table(connection)
        if connection.rows("SELECT 1 FROM meta.ducklake_snapshot LIMIT 1 OFFSET 1"):
            # Another writer has committed, to a snapshot that may see these rows
            return
        for inlined in inlined_tables(connection, table.id):
            connection.execute(f"DELETE FROM meta.{quoted(inlined)} WHERE end_snapshot IS NOT NULL")
        for statistics in ("ducklake_file_column_stats", "ducklake_file_partition_value"):
            connection.execute(
                f"DELETE FROM meta.{statistics} WHERE table_id = {table.id} AND data_file_id NOT IN "
                f"(SELECT data_file_id FROM meta.ducklake_data_file WHERE table_id = {table.id})"
            )
        _renew_bounds(connection, self.name, table)


def _all_waiting(connection: Connection) -> tuple[list[tuple[int, str]], list[str]]:
    """The scheduled files of all tables, and the folder that they are in."""
    base = connection.data_path
    rows = connection.rows(
        f"SELECT data_file_id, path, CAST(path_is_relative AS BOOLEAN) FROM meta.{_SCHEDULED}"
    )
    return [(int(i), base + path if relative else path) for i, path, relative in rows], [base]


def _renew_bounds(connection: Connection, name: str, table: TableRow) -> None:
    """Compute the bounds of the table's columns from those of its files, as they never get narrower."""
    now = latest(connection)
    state = load(connection, name)
    types = dict(leaves(state.schema).values())
    measured = connection.rows(
        "SELECT column_id FROM meta.ducklake_table_column_stats WHERE table_id = ?", [table.id]
    )
    connection.execute(f"DELETE FROM meta.ducklake_table_column_stats WHERE table_id = {table.id}")
    # Of rows in the catalog itself there are no bounds; DuckDB believes nothing of a column without any.
    if inlined_rows(connection, table.id, now):
        return
    files = connection.one(
        f"SELECT count(*) FROM meta.ducklake_data_file WHERE table_id = ? AND {LIVE}", [table.id, now, now]
    )
    rows = connection.rows(
        "SELECT s.column_id, s.value_count, s.null_count, s.min_value, s.max_value "
        "FROM meta.ducklake_file_column_stats s JOIN meta.ducklake_data_file f USING (data_file_id) "
        "WHERE f.table_id = ? AND f.end_snapshot IS NULL ORDER BY s.column_id",
        [table.id],
    )
    counted = {int(column) for (column,) in measured} & types.keys()
    for column, group in groupby(rows, key=lambda row: int(row[0])):
        of_files = list(group)
        complete = files is not None and len(of_files) == int(files[0])
        if column not in counted or not complete:
            continue
        if any(nulls is None or (values and low is None) for _, values, nulls, low, _ in of_files):
            continue
        bounds = [ColumnBounds(int(nulls) > 0, low, high) for _, _, nulls, low, high in of_files]
        merged = reduce(lambda a, b: both(a, b, types[column]), bounds)
        connection.insert(
            "ducklake_table_column_stats",
            [
                {
                    "table_id": table.id,
                    "column_id": column,
                    "contains_null": merged.nulls,
                    "min_value": merged.low,
                    "max_value": merged.high,
                }
            ],
        )


def _delete(path: str, within: Bounds) -> None:
    """Delete a file of the disk or of a store, if it is there."""
    place = local(path)
    if place is not None:
        delete_file(place, within)
        return
    try:
        delete_file(path, within, Storage.of(path).options)
    except FileNotFoundError:  # a run that was broken off has deleted it
        return


def _still(connection: Connection, ids: Sequence[int]) -> bool:
    """True if one of the files still waits for its deletion."""
    listed_ids = ", ".join(map(str, ids)) or "NULL"
    return bool(connection.rows(f"SELECT 1 FROM meta.{_SCHEDULED} WHERE data_file_id IN ({listed_ids})"))


def dropped(connection: Connection) -> list[DroppedFolder]:
    """The dropped tables that older snapshots still have, with their files."""
    files = " UNION ALL ".join(
        f"SELECT table_id, file_size_bytes AS size FROM meta.{place}" for place in _PLACES
    )
    rows = connection.rows(
        "SELECT s.schema_name || '.' || t.table_name, s.path || t.path, epoch_ms(CAST(n.snapshot_time AS TIMESTAMPTZ)), "
        "count(*), sum(f.size) FROM meta.ducklake_table t "
        "JOIN meta.ducklake_schema s ON s.schema_id = t.schema_id "
        f"JOIN ({files}) f ON f.table_id = t.table_id "
        "LEFT JOIN meta.ducklake_snapshot n ON n.snapshot_id = t.end_snapshot "
        # A table that was renamed has a row of each name.
        "WHERE t.end_snapshot = (SELECT max(coalesce(o.end_snapshot, 9223372036854775807)) "
        "FROM meta.ducklake_table o WHERE o.table_id = t.table_id) "
        "AND (s.end_snapshot IS NULL OR s.end_snapshot >= t.end_snapshot) GROUP BY ALL ORDER BY 1"
    )
    return [
        DroppedFolder(
            name,
            connection.data_path + path,
            "" if time is None else iso(int(time)),
            int(count),
            int(size),
            is_held=True,
        )
        for name, path, time, count, size in rows
    ]


def registered(connection: Connection) -> list[str]:
    """The paths of all files that the catalog knows, of all snapshots,
    and of those that wait for deletion.
    """
    base = connection.data_path
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
        f"SELECT path, CAST(path_is_relative AS BOOLEAN) FROM meta.{_SCHEDULED}"
    ):
        out.append(base + path if relative else path)
    return out


def clean(
    catalog: CatalogDatabase, older_than: float, *, dry_run: bool, spark: SparkSession | None = None
) -> list[Orphan]:
    """Delete the unregistered files that last changed more than ``older_than`` seconds ago, and the folders
    that they leave empty; returns them.

    A younger file may belong to a batch that has yet to commit. ``spark``: reaches the files of a store.
    Raises NeedsSpark if it is not there to do so, SetupError if a file cannot be deleted.
    """
    if not catalog.exists():
        return []
    folder = catalog.read(lambda connection: connection.data_path)
    # Within the lake's own folder of files, as its settings name it: the catalog may name another lake's.
    within, before, place = Bounds((catalog.data,)), time.time() - older_than, local(folder)
    # Listed first: what is registered after that is younger than any file of the list.
    if place is not None:
        files = listed_here(place, before)
    elif spark is not None:
        files = listed(spark, folder, before)
    else:
        raise NeedsSpark(f"{folder} is in a store")
    ours = [file for file in files if _OURS.search(file.path) and within.hold(file.path)]
    known = {bare(path) for path in catalog.read(registered)}
    orphans = [file for file in ours if _with_rows(bare(file.path)) not in known]
    if orphans and not dry_run:
        catalog.sync()  # which may be another process's, that has yet to do so
        for orphan in orphans:
            if spark is None or place is not None:
                delete_with_folders(orphan.path, within)
            else:
                delete_by_hadoop(spark, orphan.path, within, empty_folders=True)
    return orphans


def _with_rows(path: str) -> str:
    """The file that a checksum belongs to; the file itself."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else path
