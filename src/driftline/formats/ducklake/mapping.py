"""Name mappings: how the columns of a file that is not DuckDB's find their ids.

Spark writes no field ids for the elements of lists and the keys and values of maps, and DuckDB's reader fails
without them. Files of a schema that has any are therefore registered with a mapping, as DuckLake has it for
files that came from elsewhere; files of a flat one need none.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from driftline.core.schema.types import List, Map, Schema, Type, children
from driftline.formats.ducklake.snapshot import MAPPING

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection

Row = tuple[int, str, int, int | None]  # own number, name in the file, field id, number of the parent


def mapping_of(
    connection: Connection, table: int, schema: Schema, snapshot: int, free: int
) -> tuple[int | None, int]:
    """The mapping of files that are written with this schema, created if needed.

    ``snapshot``: that of a new mapping; ``free``: the next free id of the catalog. Returns the mapping's id,
    None for a schema whose files need none, and the next free id after it.

    The table's tag has the ids of all its mappings, the newest first, and the fingerprint of that one: tags
    of before go with their snapshots, and files stay.
    """
    if not any(isinstance(f.type, List | Map) for _, f in schema.walk()):
        return None, free
    rows = _rows(schema)
    print_ = sha256(repr(rows).encode()).hexdigest()[:16]
    for (value,) in connection.rows(
        "SELECT value FROM meta.ducklake_tag WHERE object_id = ? AND key = ? AND end_snapshot IS NULL",
        [table, MAPPING],
    ):
        ids, fingerprint = _read(value)
        if fingerprint == print_:
            return ids[0], free
    ids = [free, *sorted(own_mappings(connection, table), reverse=True)]
    connection.end("ducklake_tag", snapshot, f"object_id = {table} AND key = '{MAPPING}'")
    value = f"{','.join(map(str, ids))}:{print_}"
    tag = {"object_id": table, "begin_snapshot": snapshot, "key": MAPPING, "value": value}
    connection.insert("ducklake_tag", [tag])
    _register(connection, table, free, rows)
    return free, free + 1


def _register(connection: Connection, table: int, id_: int, rows: Sequence[Row]) -> None:
    connection.insert(
        "ducklake_column_mapping", [{"mapping_id": id_, "table_id": table, "type": "map_by_name"}]
    )
    connection.insert(
        "ducklake_name_mapping",
        [
            {
                "mapping_id": id_,
                "column_id": number,
                "source_name": name,
                "target_field_id": field_id,
                "parent_column": parent,
                "is_partition": False,
            }
            for number, name, field_id, parent in rows
        ],
    )


def own_mappings(connection: Connection, table: int) -> set[int]:
    """The mappings of files that have field ids beside."""
    return {
        id_
        for (value,) in connection.rows(
            "SELECT value FROM meta.ducklake_tag WHERE object_id = ? AND key = ?", [table, MAPPING]
        )
        for id_ in _read(value)[0]
    }


def _read(value: object) -> tuple[list[int], str]:
    """The ids of mappings and the fingerprint of the newest, as a tag has them."""
    ids, _, fingerprint = str(value).partition(":")
    return [int(id_) for id_ in ids.split(",")], fingerprint


def _rows(schema: Schema) -> list[Row]:
    rows: list[Row] = []

    def add(type_: Type, parent: int | None) -> None:
        """Append the rows of the fields inside a type."""
        for child in children(type_):
            number = len(rows)
            # DuckDB names an element by the group around it.
            name = "list" if isinstance(type_, List) else child.name
            rows.append((number, name, child.id, parent))
            add(child.type, number)

    add(schema.struct, None)
    return rows
