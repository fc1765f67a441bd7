"""The versions of a DuckLake table, out of the catalog, which keeps them as long as their snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from driftline.core.changelog import record
from driftline.core.changelog.entries import Snapshot, Version, Versions
from driftline.errors import no_table
from driftline.formats.ducklake.alteration import definition
from driftline.formats.ducklake.layout import layout
from driftline.formats.ducklake.snapshot import find, latest, state_of

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection
    from driftline.formats.ducklake.table import DuckLakeTable


def versions(table: DuckLakeTable) -> Versions:
    """The known past of a table. Raises UsageError if there is no table."""
    if not table.catalog.exists():
        raise no_table(table.name)
    return table.catalog.read(lambda connection: _versions(connection, table.name))


def _versions(connection: Connection, name: str) -> Versions:
    newest = latest(connection)
    table = find(connection, name, newest)
    if table is None:
        raise no_table(name)
    rows = connection.rows(
        "SELECT v.begin_snapshot, v.schema_version, epoch_ms(CAST(s.snapshot_time AS TIMESTAMPTZ)) "
        "FROM meta.ducklake_schema_versions v LEFT JOIN meta.ducklake_snapshot s ON s.snapshot_id = v.begin_snapshot "
        "WHERE v.table_id = ? ORDER BY v.begin_snapshot",
        [table.id],
    )
    dated = [(int(begin), int(version), int(at)) for begin, version, at in rows if at is not None]
    out: list[Version] = []
    for i, (begin, version, at) in enumerate(dated):
        state = state_of(connection, table, begin)
        definition_ = definition(state, layout(connection, table.id, begin, state.schema))
        before = dict(state_of(connection, table, begin - 1).properties) if begin else {}
        end = dated[i + 1][0] - 1 if i + 1 < len(dated) else newest
        properties = dict(state_of(connection, table, end).properties)
        definition_ = replace(definition_, schema=replace(state.schema, id=version), properties=properties)
        out.append(Version(at, definition_, begin, record.read(dict(state.properties), before)))
    schemas = {v.definition.schema.id: v.definition.schema for v in out}
    return Versions(tuple(out), schemas, len(dated) == len(rows))


def snapshots(table: DuckLakeTable, upto: int | None) -> Iterator[Snapshot]:
    """A snapshot and its known ancestors. ``schema``: the table's version then."""
    if upto is None:
        return
    state = table.load()
    assert state.table is not None
    id_ = state.table.id
    rows = table.catalog.read(
        lambda connection: connection.rows(
            "SELECT s.snapshot_id, (SELECT max(v.schema_version) FROM meta.ducklake_schema_versions v "
            "WHERE v.table_id = ? AND v.begin_snapshot <= s.snapshot_id) "
            "FROM meta.ducklake_snapshot s WHERE s.snapshot_id <= ? ORDER BY s.snapshot_id DESC",
            [id_, upto],
        )
    )
    for snapshot, version in rows:
        if version is not None:
            yield Snapshot(int(snapshot), int(version))
