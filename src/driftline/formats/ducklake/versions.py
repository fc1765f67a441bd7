"""The known past of a DuckLake table, from the catalog's own log of its schemas."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driftline.core.history.entries import Version, Versions, read_record
from driftline.core.schema.definition import Definition
from driftline.errors import no_table
from driftline.formats.ducklake.catalog_layout import CatalogLayout, layout
from driftline.formats.ducklake.snapshot import LakeState, find, latest, state_of

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection


FORMAT = 3  # what Iceberg's third version has, DuckLake has: defaults among it


def definition(state: LakeState, layout_: CatalogLayout) -> Definition:
    """The definition of a table in this state."""
    return Definition(
        state.schema,
        layout_.partition,
        layout_.sort,
        dict(state.properties),
        FORMAT,
        state.last_id,
    )


def versions_of(connection: Connection, name: str) -> Versions:
    """The versions of a table's definition. Raises UsageError if there is no table."""
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
    dated = [(int(begin), int(version), int(time)) for begin, version, time in rows if time is not None]
    is_complete = len(dated) == len(rows)
    if not dated:  # of the present version, too, the snapshot that began it has expired
        ((time,),) = connection.rows(
            "SELECT epoch_ms(CAST(snapshot_time AS TIMESTAMPTZ)) FROM meta.ducklake_snapshot WHERE snapshot_id = ?",
            [newest],
        )
        dated = [(newest, int(rows[-1][1]), int(time))]
    out: list[Version] = []
    for i, (begin, version, time) in enumerate(dated):
        state = state_of(connection, table, begin)
        definition_ = definition(state, layout(connection, table.id, begin, state.schema))
        before = dict(state_of(connection, table, begin - 1).properties) if begin else {}
        end = dated[i + 1][0] - 1 if i + 1 < len(dated) else newest
        properties = dict(state_of(connection, table, end).properties)
        definition_ = replace(definition_, schema=replace(state.schema, id=version), properties=properties)
        out.append(Version(time, definition_, begin, read_record(dict(state.properties), before)))
    schemas = {v.definition.schema.id: v.definition.schema for v in out}
    return Versions(tuple(out), schemas, is_complete)
