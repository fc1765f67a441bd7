"""The last batch of a DuckLake table, taken back by a new snapshot: its rows end, those it removed return.

The snapshots before stay as they are. A delete file that returns is a copy: the catalog lets a file go with
the snapshots of one row, whichever other row names it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from driftline.core.changelog.record import BATCH
from driftline.core.schema.words import quoted
from driftline.errors import SetupError, no_table
from driftline.formats.base import LastBatch, UnknownError
from driftline.formats.ducklake.files import DeleteFile, local
from driftline.formats.ducklake.ledger import forget
from driftline.formats.ducklake.snapshot import DELETES_OF, DELETES_SUFFIX, TableRow, find, latest, state_of
from driftline.keys.memory import OF_BATCH

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection
    from driftline.formats.ducklake.rows import LatestSnapshot


def last_batch(connection: Connection, name: str) -> LastBatch | None:
    """The batch that made the newest snapshot of a table; None if it wrote rows anew, or another did."""
    table = find(connection, name, latest(connection))
    if table is None:
        raise no_table(name)
    newest = _newest(connection, table.id)
    if newest is None:
        return None
    batch, snapshot = newest
    counts = connection.one(
        "SELECT (SELECT sum(record_count) FROM meta.ducklake_data_file WHERE table_id = $1 AND begin_snapshot = $2), "
        "(SELECT sum(delete_count) FROM meta.ducklake_delete_file WHERE table_id = $1 AND begin_snapshot = $2), "
        "(SELECT sum(delete_count) FROM meta.ducklake_delete_file WHERE table_id = $1 AND end_snapshot = $2), "
        "(SELECT count(*) FROM meta.ducklake_data_file WHERE table_id = $1 AND end_snapshot = $2)",
        [table.id, snapshot],
    )
    added, deleted, before, rewritten = (int(count or 0) for count in counts or ())
    if rewritten:
        return None
    ended = sum(
        connection.rows(f"SELECT count(*) FROM meta.{quoted(place)} WHERE end_snapshot = {snapshot}")[0][0]
        for place in _inlined(connection, table.id)
    )
    return LastBatch(batch, snapshot, added, deleted - before + ended)


def _newest(connection: Connection, table: int) -> tuple[str, int] | None:
    """The batch of the newest snapshot that changed the table, and the snapshot."""
    ours = re.compile(rf"(^|,)\w+:{table}(,|$)")
    for snapshot, changes, extra in connection.rows(
        "SELECT snapshot_id, changes_made, commit_extra_info FROM meta.ducklake_snapshot_changes "
        f"WHERE changes_made LIKE '%:{table}%' ORDER BY snapshot_id DESC"
    ):
        if ours.search(str(changes)):
            told = None
            with suppress(ValueError):  # others may write anything there
                told = json.loads(extra or "{}")
            batch = told.get(BATCH) if isinstance(told, dict) else None
            return None if batch is None else (str(batch), int(snapshot))
    return None


def _inlined(connection: Connection, table: int) -> list[str]:
    """The catalog's tables of rows that it keeps itself."""
    rows = connection.rows(
        "SELECT table_name FROM meta.ducklake_inlined_data_tables WHERE table_id = ?", [table]
    )
    return [str(name) for (name,) in rows]


def replaced_deletes(connection: Connection, table: TableRow, snapshot: int) -> list[DeleteFile]:
    """The delete files of which the snapshot made larger ones; all paths in them are whole."""
    rows = connection.rows(
        "SELECT d.path, CAST(d.path_is_relative AS BOOLEAN), f.path, CAST(f.path_is_relative AS BOOLEAN), "
        "d.delete_count, d.file_size_bytes, d.footer_size FROM meta.ducklake_delete_file d "
        "JOIN meta.ducklake_data_file f ON f.data_file_id = d.data_file_id AND f.table_id = d.table_id "
        "WHERE d.table_id = ? AND d.end_snapshot = ?",
        [table.id, snapshot],
    )
    return [
        DeleteFile(
            f"{table.folder * relative}{path}",
            f"{table.folder * file_relative}{file}",
            *map(int, (count, size, footer or 0)),
        )
        for path, relative, file, file_relative, count, size, footer in rows
    ]


@contextmanager
def copies(files: Sequence[DeleteFile], folder: str) -> Iterator[list[DeleteFile]]:
    """Copies of delete files in the table's ``folder``; deleted if what they are made for fails."""
    place = local(folder)
    if place is None and files:
        raise SetupError(
            f"the files of the table are in {folder}: rows can only be restored in a folder of this machine"
        )
    copied = [replace(file, path=f"{uuid4().hex}-delete.parquet") for file in files]
    paths = [Path(str(place), file.path) for file in copied]
    try:
        for file, path in zip(files, paths, strict=True):
            shutil.copyfile(str(local(file.path)), path)
        yield copied
    except UnknownError:
        raise
    except BaseException:
        for path in paths:
            path.unlink(missing_ok=True)
        raise


def take_back(connection: Connection, head: LatestSnapshot, table: TableRow, snapshot: int) -> None:
    """End the rows of a snapshot, and its delete files; rows of the catalog that it ended begin anew. Its
    source files count as not taken.
    """
    for place in ("ducklake_data_file", "ducklake_delete_file"):
        connection.execute(
            f"UPDATE meta.{place} SET end_snapshot = {head.snapshot} "
            f"WHERE table_id = {table.id} AND begin_snapshot = {snapshot} AND end_snapshot IS NULL"
        )
    for place in map(quoted, _inlined(connection, table.id)):
        connection.execute(
            f"INSERT INTO meta.{place} SELECT * REPLACE ({head.snapshot} AS begin_snapshot, NULL AS end_snapshot) "
            f"FROM meta.{place} WHERE end_snapshot = {snapshot}"
        )
    forget(connection, table.id, snapshot)
    head.changes_made.append(f"deleted_from_table:{table.id}")


def forget_deletes(connection: Connection, head: LatestSnapshot, name: str, snapshot: int | None) -> None:
    """End what a snapshot of the table ``name`` remembered as deleted; None: all that is remembered."""
    memory = find(connection, name + DELETES_SUFFIX, head.snapshot)
    if memory is None or DELETES_OF not in state_of(connection, memory, head.snapshot).properties:
        return
    of_snapshot = "" if snapshot is None else f"AND begin_snapshot = {snapshot} AND path LIKE '{OF_BATCH}-%'"
    connection.execute(
        f"UPDATE meta.ducklake_data_file SET end_snapshot = {head.snapshot} WHERE table_id = {memory.id} "
        f"AND end_snapshot IS NULL {of_snapshot}"
    )
    head.changes_made.append(f"deleted_from_table:{memory.id}")
