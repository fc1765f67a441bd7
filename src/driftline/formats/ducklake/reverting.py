"""Reverts the last batch of a DuckLake table by a new snapshot.

The batch's rows end, and the rows that it removed return. The snapshots before stay as they are. A file
that returns is a copy: the catalog lets a file go with the snapshots of one row, whichever other row names
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from pyroaring import BitMap64

from driftline.core.history.entries import BATCH, COMPACTED, MOVED, undone_batch
from driftline.core.schema.text import quoted
from driftline.errors import DataError, no_table
from driftline.formats.base import LastBatch, UnknownError
from driftline.formats.ducklake.deletes import written_deletes
from driftline.formats.ducklake.files import DeleteFile, ReturningFile, Storage
from driftline.formats.ducklake.inlined import inlined_tables
from driftline.formats.ducklake.scan import inlined_deletes
from driftline.formats.ducklake.seen import forget_note, note_seen, snapshot_properties
from driftline.formats.ducklake.snapshot import (
    DELETES_OF,
    DELETES_SUFFIX,
    TableRow,
    find,
    forget,
    latest,
    state_of,
)
from driftline.keys.remembered import OF_BATCH
from driftline.write.positions import read_positions

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection
    from driftline.formats.ducklake.rows import LatestSnapshot

# The catalog's tables of what it knows of data files.
_OF_FILES = {"ducklake_file_column_stats", "ducklake_file_partition_value", "ducklake_file_variant_stats"}


def last_batch(connection: Connection, name: str) -> LastBatch | None:
    """Return the batch of the newest snapshot that changed a table's rows, and was not taken back.

    None if it only rewrote rows, if another writer changed them, or if the table was altered since.
    """
    table = find(connection, name, latest(connection))
    if table is None:
        raise no_table(name)
    newest = _newest(connection, table.id)
    if newest is None:
        return None
    batch, snapshot, moved = newest
    counts = connection.one(
        "SELECT (SELECT sum(record_count) FROM meta.ducklake_data_file WHERE table_id = $1 AND begin_snapshot = $2), "
        "(SELECT sum(delete_count) FROM meta.ducklake_delete_file WHERE table_id = $1 AND begin_snapshot = $2), "
        "(SELECT sum(delete_count) FROM meta.ducklake_delete_file WHERE table_id = $1 AND end_snapshot = $2), "
        "(SELECT sum(record_count) FROM meta.ducklake_data_file WHERE table_id = $1 AND end_snapshot = $2)",
        [table.id, snapshot],
    )
    added, deleted, before, gone = (int(count or 0) for count in counts or ())
    if gone and moved is None:
        return None
    ended = sum(
        connection.rows(f"SELECT count(*) FROM meta.{quoted(place)} WHERE end_snapshot = {snapshot}")[0][0]
        for place in inlined_tables(connection, table.id)
    )
    only_moved = moved or 0
    return LastBatch(batch, snapshot, added - only_moved, deleted - before + ended + gone - only_moved)


def _newest(connection: Connection, table: int) -> tuple[str, int, int | None] | None:
    """Return the batch that last changed the table's rows, its snapshot, and how many rows it only rewrote.

    None if it removed no file.
    """
    ours = re.compile(rf"(?:^|,)(\w+):{table}(?=,|$)")
    begun = {
        int(snapshot)
        for (snapshot,) in connection.rows(
            "SELECT begin_snapshot FROM meta.ducklake_schema_versions WHERE table_id = ?", [table]
        )
    }
    undone = set[str]()
    for snapshot, changes, extra in connection.rows(
        "SELECT snapshot_id, changes_made, commit_extra_info FROM meta.ducklake_snapshot_changes "
        f"WHERE changes_made LIKE '%:{table}%' ORDER BY snapshot_id DESC"
    ):
        kinds, message = set(ours.findall(str(changes))), snapshot_properties(extra, table)
        batch, moved = message.get(BATCH), message.get(MOVED)
        # A batch whose records are all late, or all wait, leaves its mark in a snapshot without rows. So do
        # settings that are no version of the table.
        if not kinds or (kinds == {"altered_table"} and (batch is not None or snapshot not in begun)):
            continue
        if COMPACTED in message:  # changes no row
            continue
        if gone := undone_batch(message):
            undone.add(gone)
            continue
        if batch in undone:
            undone.remove(batch)
            continue
        if batch is None:
            return None
        return str(batch), int(snapshot), None if moved is None else int(moved)
    return None


@dataclass(frozen=True, slots=True)
class Replaced:
    """The files that ended with a snapshot or a later one; all paths are whole.

    Attributes:
        data: the data files by path, each with its id and the deleted rows that the catalog kept.
        deletes: the delete files of which larger ones were made.
    """

    data: Mapping[str, tuple[int, Sequence[int]]] = field(default_factory=dict)
    deletes: Sequence[DeleteFile] = ()


def replaced(connection: Connection, name: str, table: TableRow, snapshot: int) -> Replaced:
    """Return the files that the table ``name`` had before a snapshot, and has lost since.

    Those of later batches, which were taken back, are among them: what came back is a copy, and newer.

    Raises DataError if the snapshot before it was expired, and files may be gone with it.
    """
    if not connection.rows("SELECT 1 FROM meta.ducklake_snapshot WHERE snapshot_id = ?", [snapshot - 1]):
        raise DataError(
            f"{name}: the snapshot before {snapshot} was expired, and the rows that the batch replaced with it",
            "ingest what the rows should be: later changes count",
        )
    deleted_rows = inlined_deletes(connection, table.id, snapshot - 1)
    data = connection.rows(
        "SELECT data_file_id, path, CAST(path_is_relative AS BOOLEAN) FROM meta.ducklake_data_file "
        "WHERE table_id = $1 AND begin_snapshot < $2 AND end_snapshot >= $2",
        [table.id, snapshot],
    )
    deletes = connection.rows(
        "SELECT d.path, CAST(d.path_is_relative AS BOOLEAN), f.path, CAST(f.path_is_relative AS BOOLEAN), "
        "d.delete_count, d.file_size_bytes, d.footer_size FROM meta.ducklake_delete_file d "
        "JOIN meta.ducklake_data_file f ON f.data_file_id = d.data_file_id AND f.table_id = d.table_id "
        "WHERE d.table_id = $1 AND d.begin_snapshot < $2 AND d.end_snapshot >= $2",
        [table.id, snapshot],
    )
    return Replaced(
        {
            f"{table.folder * relative}{path}": (int(id_), deleted_rows.get(int(id_), ()))
            for id_, path, relative in data
        },
        [
            DeleteFile(
                f"{table.folder * relative}{path}",
                f"{table.folder * file_relative}{file}",
                *map(int, (count, size, footer or 0)),
            )
            for path, relative, file, file_relative, count, size, footer in deletes
        ],
    )


@contextmanager
def copies(files: Replaced, folder: str) -> Iterator[tuple[list[DeleteFile], list[ReturningFile]]]:
    """Copies of the files in the table's ``folder``; deleted if what they are made for fails."""
    paths: list[str] = []
    try:
        yield _copied(files, folder, paths)
    except UnknownError:
        raise
    except BaseException:
        for path in paths:
            Storage.of(folder).remove(folder + path)
        raise


def _copied(files: Replaced, folder: str, paths: list[str]) -> tuple[list[DeleteFile], list[ReturningFile]]:
    """Copy the files; ``paths`` gets the paths of the copies."""
    deletes, data, storage = [], [], Storage.of(folder)
    of_file = {file.data_file: file for file in files.deletes}
    for path, (id_, positions) in files.data.items():
        inside = path.removeprefix(folder).rpartition("/")[0] if path.startswith(folder) else ""
        data.append(ReturningFile(id_, f"{inside}/{uuid4().hex}.parquet".lstrip("/")))
        paths.append(data[-1].path)
        # A copy, because the catalog drops a file with the last snapshot of any row that names it.
        storage.copy(path, folder + paths[-1])
        dead = BitMap64(positions)
        if (before := of_file.pop(path, None)) is not None:
            with storage.open(before.path) as stream:
                dead |= read_positions(stream)
        if dead:
            deletes.append(written_deletes(folder, folder + data[-1].path, dead))
            paths.append(deletes[-1].path)
    for file in of_file.values():
        deletes.append(replace(file, path=f"{uuid4().hex}-delete.parquet"))
        paths.append(deletes[-1].path)
        storage.copy(file.path, folder + paths[-1])
    return deletes, data


def take_back(
    connection: Connection,
    head: LatestSnapshot,
    table: TableRow,
    snapshot: int,
    returning: Sequence[ReturningFile],
) -> None:
    """End the rows and delete files since a snapshot, and restore those of before that ended since.

    Its source files count as not ingested.
    """
    for place in ("ducklake_data_file", "ducklake_delete_file"):
        connection.end(place, head.snapshot, f"table_id = {table.id} AND begin_snapshot >= {snapshot}")
    for id_, file in enumerate(returning, head.file_id):
        _return(connection, head, file, id_)
    head.file_id += len(returning)
    for place in map(quoted, inlined_tables(connection, table.id)):
        connection.end(place, head.snapshot, f"begin_snapshot >= {snapshot}")
        connection.execute(
            f"INSERT INTO meta.{place} SELECT * REPLACE ({head.snapshot} AS begin_snapshot, NULL AS end_snapshot) "
            f"FROM meta.{place} WHERE begin_snapshot < {snapshot} AND end_snapshot >= {snapshot}"
        )
    forget(connection, table.id, snapshot)
    forget_note(connection, table.id, snapshot)
    if returning:  # a copy is as new as this snapshot
        note_seen(connection, table.id, head.snapshot, [file.id for file in returning])
    head.changes_made.append(f"deleted_from_table:{table.id}")


def _return(connection: Connection, head: LatestSnapshot, file: ReturningFile, id_: int) -> None:
    """Register the copy of a data file under its own id, with all that the catalog says of the file."""
    path = file.path.replace("'", "''")
    begun = f"{id_} AS data_file_id, {head.snapshot} AS begin_snapshot, NULL AS end_snapshot"
    connection.execute(
        f"INSERT INTO meta.ducklake_data_file SELECT * REPLACE ({begun}, '{path}' AS path, "
        f"true AS path_is_relative) FROM meta.ducklake_data_file WHERE data_file_id = {file.id}"
    )
    sizes = connection.rows(
        f"SELECT file_size_bytes, table_id FROM meta.ducklake_data_file WHERE data_file_id = {id_}"
    )
    for size, table in sizes:
        connection.execute(
            f"UPDATE meta.ducklake_table_stats SET file_size_bytes = file_size_bytes + {size} "
            f"WHERE table_id = {table}"
        )
    for place in connection.tables() & _OF_FILES:
        connection.execute(
            f"INSERT INTO meta.{place} SELECT * REPLACE ({id_} AS data_file_id) FROM meta.{place} "
            f"WHERE data_file_id = {file.id}"
        )


def forget_deletes(connection: Connection, head: LatestSnapshot, name: str, snapshot: int | None) -> None:
    """End what a snapshot of the table ``name`` remembered as deleted; None: all that is remembered."""
    memory = find(connection, name + DELETES_SUFFIX, head.snapshot)
    if memory is None or DELETES_OF not in state_of(connection, memory, head.snapshot).properties:
        return
    of_snapshot = "" if snapshot is None else f"AND begin_snapshot = {snapshot} AND path LIKE '{OF_BATCH}-%'"
    connection.end("ducklake_data_file", head.snapshot, f"table_id = {memory.id} {of_snapshot}")
    head.changes_made.append(f"deleted_from_table:{memory.id}")
