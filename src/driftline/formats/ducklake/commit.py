"""Commits a snapshot: the catalog rows of several transactions, in one database transaction.

The rows are those that DuckLake's specification asks for. `add_data_files`, DuckDB's own way to register
files, maps columns by name, has no tags for nested fields and no place for an ALTER that DuckDB's parser
refuses; a snapshot that is written here has the field ids, the docs, the quarantine and the token in one.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from driftline.core.schema.definition import forgets_deletes, known_by
from driftline.core.schema.text import quoted
from driftline.errors import DataError, no_table
from driftline.formats.base import CommitConflict
from driftline.formats.ducklake.deletes import add_deletes, drop_rewritten
from driftline.formats.ducklake.inlined import inlined_tables, renew_inlined_table
from driftline.formats.ducklake.layout import LayoutUpdate, layout, set_layout
from driftline.formats.ducklake.reverting import forget_deletes, take_back
from driftline.formats.ducklake.rows import (
    COMMIT_ID,
    CommitMessage,
    LatestSnapshot,
    TableCommit,
    add_files,
    set_columns,
    set_properties,
    set_version,
)
from driftline.formats.ducklake.seen import by_table, forget_note, note_seen, store_note
from driftline.formats.ducklake.snapshot import (
    DELETES_OF,
    DELETES_SUFFIX,
    LIVE,
    LakeState,
    TableRow,
    columns_of,
    find,
    forget_all,
    load_again,
    remember,
    split,
    state_of,
)

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


# Rows of the catalog are written directly: DuckDB's statements cannot combine nested docs, nested types,
# Spark's files and two tables in one snapshot.
def commit(connection: Connection, intents: Sequence[TableCommit], message: CommitMessage) -> int:
    """Write the snapshot; returns its id.

    Raises CommitConflict with the tables that are no longer as they were planned for.
    """
    head = _next(connection)
    # All tables are checked before anything is written for the first.
    states = _all_checked(connection, intents)
    changed = [
        w.base is None
        or w.schema.struct != w.base.schema.struct
        or (w.layout is not None and w.layout[0] != w.layout[1])
        # A change of the key alone is a schema version without other columns, so `history` and `undo` need no
        # second log.
        or known_by(w.base.properties) != known_by(w.properties_after)
        for w in intents
    ]
    head.schema_version += any(changed)
    summaries = {}
    for w, now, schema_changes in zip(intents, states, changed, strict=True):
        table = _table(connection, head, w, now, schema_changes=schema_changes)
        if w.summary:
            summaries[table] = w.summary
    _finish(connection, head, message, summaries)
    return head.snapshot


def landed(connection: Connection, message: CommitMessage) -> bool:
    """True if the catalog has the snapshot of a commit with this message."""
    snapshot = connection.one(
        # By an id of the commit's own: another writer may have taken the number of its snapshot.
        "SELECT 1 FROM meta.ducklake_snapshot_changes WHERE commit_extra_info LIKE ?",
        [f"%{message.id}%"],
    )
    return snapshot is not None


def rename(connection: Connection, name: str, to: str, message: CommitMessage) -> None:
    """Rename a table within its namespace; ``message``: of the snapshot. Raises UsageError, DataError."""
    head = _next(connection)
    table = find(connection, name, head.snapshot)
    if table is None:
        raise no_table(name)
    renamed = [(table, to)]
    deletes = find(connection, name + DELETES_SUFFIX, head.snapshot)
    if deletes is not None and state_of(connection, deletes, head.snapshot).properties.get(DELETES_OF):
        renamed.append((deletes, to + DELETES_SUFFIX))
    for _, new_name in renamed:
        if find(connection, new_name, head.snapshot) is not None:
            raise DataError(f"there is a table {new_name} already")
    head.schema_version += 1
    for row, new_name in renamed:
        _rename(connection, head, row, new_name)
    _finish(connection, head, message)


def drop(connection: Connection, names: Sequence[str], message: CommitMessage) -> None:
    """Drop those of the tables that are there, with the deletes that they remember, in one snapshot."""
    head = _next(connection)
    head.schema_version += 1
    for name in names:
        for each in (name, name + DELETES_SUFFIX):
            table = find(connection, each, head.snapshot)
            if table is None:
                continue
            if each == name or state_of(connection, table, head.snapshot).properties.get(DELETES_OF):
                _drop(connection, head, table)
    _finish(connection, head, message)


# Of each table that a DROP of DuckDB's ends, its rows of this table's.
_OF_TABLE = (
    "ducklake_table", "ducklake_column", "ducklake_column_tag", "ducklake_partition_info", "ducklake_sort_info",
    "ducklake_data_file", "ducklake_delete_file",
)  # fmt: skip


def _drop(connection: Connection, head: LatestSnapshot, table: TableRow) -> None:
    for place in _OF_TABLE:
        connection.end(place, head.snapshot, f"table_id = {table.id}")
    connection.end("ducklake_tag", head.snapshot, f"object_id = {table.id}")
    forget_all(connection, table.id)
    forget_note(connection, table.id)
    head.changes_made.append(f"dropped_table:{table.id}")


def _rename(connection: Connection, head: LatestSnapshot, table: TableRow, to: str) -> None:
    row = connection.one(
        "SELECT path, CAST(path_is_relative AS BOOLEAN) FROM meta.ducklake_table "
        "WHERE table_id = ? AND end_snapshot IS NULL",
        [table.id],
    )
    assert row is not None
    connection.end("ducklake_table", head.snapshot, f"table_id = {table.id}")
    namespace, short = split(to)
    connection.execute(
        "INSERT INTO meta.ducklake_table (table_id, table_uuid, begin_snapshot, schema_id, table_name, path, path_is_relative) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [table.id, table.uuid, head.snapshot, table.schema_id, short, *row],
    )
    set_version(connection, head, table.id)
    columns = columns_of(connection, table.id, head.snapshot)
    renew_inlined_table(connection, table.id, table.schema_id, head.schema_version, columns)
    head.changes_made.append(f"created_table:{quoted(namespace)}.{quoted(short)}")


def _next(connection: Connection) -> LatestSnapshot:
    newest = connection.one(
        "SELECT snapshot_id, schema_version, next_catalog_id, next_file_id FROM meta.ducklake_snapshot "
        "ORDER BY snapshot_id DESC LIMIT 1"
    )
    assert newest is not None
    snapshot, schema_version, catalog_id, file_id = map(int, newest)
    return LatestSnapshot(snapshot + 1, schema_version, catalog_id, file_id)


def _finish(
    connection: Connection,
    head: LatestSnapshot,
    message: CommitMessage,
    summaries: Mapping[int, Mapping[str, str]] | None = None,
) -> None:
    """Write the row of the snapshot, and its message. ``summaries``: its properties by table."""
    extra = {**by_table(summaries or {}), **message.extra, COMMIT_ID: message.id}
    # The primary key of this row is what two writers at once meet at.
    connection.execute(
        "INSERT INTO meta.ducklake_snapshot VALUES (?, now(), ?, ?, ?)",
        [head.snapshot, head.schema_version, head.catalog_id, head.file_id],
    )
    connection.insert(
        "ducklake_snapshot_changes",
        [
            {
                "snapshot_id": head.snapshot,
                "changes_made": ",".join(dict.fromkeys(head.changes_made)),
                "author": message.author,
                "commit_message": message.text,
                "commit_extra_info": json.dumps(extra, ensure_ascii=False),
            }
        ],
    )


def _all_checked(connection: Connection, intents: Sequence[TableCommit]) -> list[LakeState]:
    """The present states of the tables. Raises CommitConflict with all that have changed."""
    states: list[LakeState] = []
    conflicts: list[CommitConflict] = []
    for intent in intents:
        try:
            states.append(_checked(connection, intent))
        except CommitConflict as conflict:
            conflicts.append(conflict)
    if conflicts:
        raise CommitConflict(str(conflicts[0]), *(name for each in conflicts for name in each.tables))
    return states


def _checked(connection: Connection, intent: TableCommit) -> LakeState:
    base = intent.base
    now = load_again(connection, intent.name, base)
    if base is None:
        if now.exists:
            raise CommitConflict(f"table {intent.name} was created by another writer", intent.name)
    elif not base.fits(now):
        raise CommitConflict(f"table {intent.name} was changed by another writer", intent.name)
    elif intent.pinned and _touched(connection, now, base):
        raise CommitConflict(f"another writer changed {intent.name} during this batch", intent.name)
    return now


def _touched(connection: Connection, now: LakeState, base: LakeState) -> bool:
    """True if any snapshot since the base changed the table."""
    assert now.table is not None
    ours = re.compile(rf"(^|,)\w+:{now.table.id}(,|$)")
    changes = connection.rows(
        "SELECT changes_made FROM meta.ducklake_snapshot_changes WHERE snapshot_id > ?", [base.snapshot]
    )
    return any(ours.search(str(change)) for (change,) in changes)


def _table(
    connection: Connection, head: LatestSnapshot, intent: TableCommit, now: LakeState, *, schema_changes: bool
) -> int:
    """Write the rows of one table; returns its id."""
    table = now.table or _made(connection, head, intent)
    if schema_changes:
        set_columns(connection, head, intent, now, table)
    if intent.layout is not None:
        change = LayoutUpdate(table.id, head.snapshot, *intent.layout, intent.schema, intent.name)
        head.catalog_id = set_layout(connection, change, head.catalog_id)
    if intent.base is None:  # the partitioning has its id now
        intent.keys = layout(connection, table.id, head.snapshot, intent.schema)
    set_properties(connection, head.snapshot, table, now, intent)
    remember(connection, table.id, head.snapshot, intent.sources)
    if intent.dropped:
        listed = ", ".join("?" * len(intent.dropped))
        where = f"table_id = {table.id} AND path IN ({listed})"
        connection.end("ducklake_data_file", head.snapshot, where, intent.dropped)
        head.changes_made.append(f"deleted_from_table:{table.id}")
    if intent.replaces:
        _emptied(connection, head.snapshot, table.id)
        head.changes_made.append(f"deleted_from_table:{table.id}")
        if intent.note is not None:
            store_note(connection, table.id, head.snapshot, intent.note)
    if intent.reverts is not None:
        take_back(connection, head, table, intent.reverts, intent.returning)
        forget_deletes(connection, head, intent.name, intent.reverts)
    if intent.base is not None and forgets_deletes(intent.base.properties, intent.properties_after):
        forget_deletes(connection, head, intent.name, None)
    if intent.rewritten:
        ids = drop_rewritten(connection, head, table, intent.rewritten)
        note_seen(connection, table.id, head.snapshot, ids, (intent.batch, intent.own))
    if intent.removes and not intent.compacts:
        add_deletes(connection, head, table, intent.deletes, intent.ended)
    if intent.files:
        add_files(connection, head, intent, table)
    if intent.compacts:
        head.changes_made.append(f"rewrite_delete:{table.id}")
    # Deletes of DuckDB's that the catalog keeps look for rows that were added meanwhile, not for compactions:
    # one that began before would delete from a file that is gone, and its rows would be back.
    if intent.files or intent.compacts:
        head.changes_made.append(f"inserted_into_table:{table.id}")
    has_rows = intent.files or intent.dropped or intent.removes or intent.reverts is not None
    if now.exists and (schema_changes or not has_rows):
        head.changes_made.append(f"altered_table:{table.id}")
    return table.id


def _emptied(connection: Connection, snapshot: int, table: int) -> None:
    """Take all rows out of the table."""
    for place in ("ducklake_data_file", "ducklake_delete_file"):
        connection.end(place, snapshot, f"table_id = {table}")
    for place in inlined_tables(connection, table):
        connection.end(quoted(place), snapshot, "true")
    connection.execute(
        f"UPDATE meta.ducklake_table_stats SET record_count = 0, file_size_bytes = 0 WHERE table_id = {table}"
    )


def _made(connection: Connection, head: LatestSnapshot, intent: TableCommit) -> TableRow:
    namespace, name = split(intent.name)
    schema_id = _namespace(connection, head, namespace)
    table = TableRow(head.catalog_id, schema_id, intent.uuid, intent.folder)
    head.catalog_id += 1
    connection.execute(
        "INSERT INTO meta.ducklake_table (table_id, table_uuid, begin_snapshot, schema_id, table_name, path, path_is_relative) "
        "VALUES (?, ?, ?, ?, ?, ?, true)",
        [table.id, table.uuid, head.snapshot, schema_id, name, table_path(name)],
    )
    head.changes_made.append(f"created_table:{quoted(namespace)}.{quoted(name)}")
    return table


def _namespace(connection: Connection, head: LatestSnapshot, namespace: str) -> int:
    rows = connection.rows(
        f"SELECT schema_id, schema_name FROM meta.ducklake_schema WHERE lower(schema_name) = lower(?) AND {LIVE}",
        [namespace, head.snapshot, head.snapshot],
    )
    if rows:
        schema_id, name = rows[0]
        if name != namespace:
            raise DataError(f"there is a namespace {name}: DuckLake takes {namespace} for the same name")
        return int(schema_id)
    new_id = head.catalog_id
    head.catalog_id += 1
    connection.execute(
        "INSERT INTO meta.ducklake_schema (schema_id, schema_uuid, begin_snapshot, schema_name, path, path_is_relative) "
        "VALUES (?, ?, ?, ?, ?, true)",
        [new_id, str(uuid.uuid4()), head.snapshot, namespace, table_path(namespace)],
    )
    head.changes_made.append(f"created_schema:{quoted(namespace)}")
    return new_id


def folder_of(connection: Connection, name: str) -> str:
    """The folder for the files of a table that is not created yet. Raises UsageError as `check_writable`."""
    connection.check_writable()
    namespace, table = split(name)
    row = connection.one(
        "SELECT path, CAST(path_is_relative AS BOOLEAN) FROM meta.ducklake_schema "
        "WHERE schema_name = ? AND end_snapshot IS NULL",
        [namespace],
    )
    path, relative = row or (table_path(namespace), True)
    return f"{connection.data_path if relative else ''}{path}{table_path(table)}"


def table_path(name: str) -> str:
    """The folder of a table, or a namespace, in that of its parent.

    >>> table_path("orders"), table_path("a/b")
    ('orders/', '_612f62/')
    """
    return f"{name}/" if _PLAIN.fullmatch(name) else f"_{name.encode().hex()[:200]}/"
