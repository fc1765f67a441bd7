"""The note of a DuckLake table: which batches first and last brought each column, of rows written anew.

It is a row beside the catalog's own, one for each of the last snapshots that wrote rows anew: undoing such a
batch brings back the note before, with the batches of the files that return.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from driftline.core.columns.statistics import SeenIn, SeenNote
from driftline.core.history.entries import BATCH, SEEN

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection

_NAME = "driftline_seen"
_TABLES = "driftline.tables"  # in the message of a snapshot: the properties that not all of its tables have
_KEPT = 10  # notes of a table


def snapshot_properties(extra: str | None, table: int | None = None) -> Mapping[str, Any]:
    """Return the properties that the message of a snapshot has for all its tables, and for one of them.

    Others may write anything there.
    """
    with suppress(ValueError, AttributeError, TypeError):
        message = json.loads(extra or "{}")
        return {**message, **message.get(_TABLES, {}).get(str(table), {})}
    return {}


def by_table(summaries: Mapping[int, Mapping[str, str]]) -> dict[str, Any]:
    """Return the properties of a snapshot, from those of each of its tables by id, for its message.

    >>> by_table({1: {"driftline.batch": "b"}, 2: {"driftline.batch": "b", "driftline.moved-rows": "3"}})
    {'driftline.batch': 'b', 'driftline.tables': {'2': {'driftline.moved-rows': '3'}}}
    """
    first, *others = summaries.values() or [{}]
    common = {key: text for key, text in first.items() if all(summary.get(key) == text for summary in others)}
    differing = {
        str(table): {key: text for key, text in summary.items() if key not in common}
        for table, summary in summaries.items()
    }
    differing = {table: summary for table, summary in differing.items() if summary}
    return {**common, **({_TABLES: differing} if differing else {})}


def note_of(connection: Connection, table: int) -> SeenNote | None:
    """Return the last note of the table with this id; None if there is none."""
    if _NAME not in connection.tables():
        return None
    row = connection.one(
        f"SELECT note FROM meta.{_NAME} WHERE table_id = ? ORDER BY snapshot_id DESC LIMIT 1", [table]
    )
    return None if row is None else SeenNote.of(str(row[0]))


def note_seen(
    connection: Connection,
    table: int,
    snapshot: int,
    files: Sequence[int],
    batch: tuple[str | None, Collection[int]] = (None, ()),
) -> None:
    """Note the batches whose values some data files have, as a snapshot ends the files.

    Args:
        connection: the catalog.
        table: the id of the table.
        snapshot: its new one.
        files: the ids of the data files.
        batch: the one that makes the snapshot, and its columns with values.
    """
    note = note_of(connection, table) or SeenNote()
    for brought_by, columns in _columns(connection, table, files).items():
        note = note.having(brought_by, columns)
    now = connection.one("SELECT epoch_ms(now())")
    assert now is not None
    note = note.having(SeenIn(int(now[0]), batch[0]), batch[1])
    store_note(connection, table, snapshot, note)


def store_note(connection: Connection, table: int, snapshot: int, note: SeenNote) -> None:
    """Store the note of a snapshot; the oldest ones go."""
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS meta.{_NAME} (table_id BIGINT, snapshot_id BIGINT, note VARCHAR)"
    )
    stored = SeenNote(note.columns, snapshot).to_json().decode()
    connection.execute(f"INSERT INTO meta.{_NAME} VALUES (?, ?, ?)", [table, snapshot, stored])
    rows = connection.rows(
        f"SELECT snapshot_id FROM meta.{_NAME} WHERE table_id = ? ORDER BY 1 DESC", [table]
    )
    if len(rows) > _KEPT:
        oldest = int(rows[_KEPT - 1][0])
        connection.execute(f"DELETE FROM meta.{_NAME} WHERE table_id = {table} AND snapshot_id < {oldest}")


def _columns(connection: Connection, table: int, files: Sequence[int]) -> Mapping[SeenIn | None, set[int]]:
    """Return the columns with values of data files, by the batches that brought them; None: unknown ones."""
    columns: dict[SeenIn | None, set[int]] = defaultdict(set)
    listed = ", ".join(map(str, files))
    for column, merged, begun, time, changes_made, extra, ended in connection.rows(
        "SELECT s.column_id, f.partial_max IS NOT NULL, n.snapshot_id, epoch_ms(CAST(n.snapshot_time AS TIMESTAMPTZ)), "
        "c.changes_made, c.commit_extra_info, EXISTS (SELECT 1 FROM meta.ducklake_data_file o "
        "WHERE o.table_id = f.table_id AND o.end_snapshot = f.begin_snapshot) "
        "FROM meta.ducklake_data_file f JOIN meta.ducklake_file_column_stats s ON s.data_file_id = f.data_file_id "
        "LEFT JOIN meta.ducklake_snapshot n ON n.snapshot_id = f.begin_snapshot "
        "LEFT JOIN meta.ducklake_snapshot_changes c ON c.snapshot_id = f.begin_snapshot "
        f"WHERE f.data_file_id IN ({listed}) AND (s.value_count IS NULL OR s.value_count > 0)",
    ):
        properties = snapshot_properties(extra, table)
        if SEEN in properties:  # these are noted
            continue
        batch = properties.get(BATCH)
        is_known = (
            not merged and begun is not None and brought(table, str(changes_made), batch, rewritten=ended)
        )
        columns[SeenIn(int(time), None if batch is None else str(batch)) if is_known else None].add(
            int(column)
        )
    return columns


def brought(table: int, changes_made: str, batch: object, *, rewritten: bool) -> bool:
    """True if all rows in the files of a snapshot came with it.

    Args:
        table: the id of the table.
        changes_made: by the snapshot, as the catalog has them.
        batch: the id of its batch, if it is one's.
        rewritten: files of the table ended with it.
    """
    changes = changes_made.split(",")
    # A batch of changes by key deletes rows of older files, and has none of them in its own.
    by_key = batch is not None and not rewritten
    moves = f"rewrite_delete:{table}" in changes or (not by_key and f"deleted_from_table:{table}" in changes)
    return f"inserted_into_table:{table}" in changes and not moves


def forget_note(connection: Connection, table: int, snapshot: int | None = None) -> None:
    """Drop the notes of a table since a snapshot; without one, all of them."""
    if _NAME in connection.tables():
        since = "" if snapshot is None else f" AND snapshot_id >= {snapshot}"
        connection.execute(f"DELETE FROM meta.{_NAME} WHERE table_id = {table}{since}")
