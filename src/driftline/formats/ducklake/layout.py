"""Partition and sort keys of DuckLake tables, and their definitions by snapshot.

DuckLake 1.0 has the transforms identity, year, month, day, hour and bucket; the parts of a
date are those of the calendar. A sort key is an expression of DuckDB's; Spark sorts by the
columns that come before the first other one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from driftline.core.changes.check import missing
from driftline.core.history.entries import Version, Versions, read_record
from driftline.core.schema.definition import (
    Definition,
    Laid,
    PartitionField,
    SortExpression,
    SortField,
    SortKey,
    Transform,
)
from driftline.core.schema.text import quoted
from driftline.core.schema.types import Field, Primitive, Schema, dotted
from driftline.errors import DataError, UsageError, no_table
from driftline.formats.ducklake.inlined import duckdb_type
from driftline.formats.ducklake.snapshot import LIVE, LakeState, find, latest, live, load_again, state_of
from driftline.formats.ducklake.types import ColumnRow
from driftline.runtime.duckdb import instance

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection

_SELECT = "SELECT "
# By DuckDB's name for it: what an expression may not have inside, for it is of more than one row, or of none.
_REFUSED = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function",
    "STAR": "a star",
    "LAMBDA": "a lambda",
    "PARAMETER": "a parameter",
}


def key_of(expression: str, descending: bool, nulls_first: bool, schema: Schema) -> SortKey:
    """Return a sort key of the catalog's, with columns by id.

    Parts of the expression that are no columns of the schema, or that DuckDB cannot read, stay as they are.
    """
    tree = _parsed(expression)
    selected = _selected(tree)
    parts = _parts(expression, tree, schema) if selected else (expression,)
    match selected, parts:
        case [{"class": "COLUMN_REF"}], (int(column),):
            return SortField(column, descending=descending, nulls_first=nulls_first)
    return SortExpression(parts, descending, nulls_first)


def expression_of(key: SortKey, schema: Schema, table: str) -> str:
    """Return a sort key as the catalog has it. Raises DataError where DuckLake does not sort by such."""
    parts = key.parts if isinstance(key, SortExpression) else key.columns
    return SortExpression(parts).text(lambda column: quoted(top_column(schema, column, table).name))


def parts_of(text: str, schema: Schema) -> tuple[str | int, ...]:
    """Return the parts of a sort expression that a person wrote. Raises UsageError for invalid text."""
    tree = _parsed(text)
    if tree["error"]:
        raise UsageError(f"DuckDB cannot read the expression {text}: {tree.get('error_message')}")
    selected = _selected(tree)
    if len(selected) != 1 or _around(tree) != _around(_parsed("1")) or selected[0]["alias"]:
        raise UsageError(f"{text} is not one expression")
    nodes = list(_nodes(selected))
    aggregates = _aggregates()
    for node in nodes:
        refused = _REFUSED.get(node.get("class", ""))
        if node.get("function_name") in aggregates:
            refused = refused or f"the aggregate function {node['function_name']}"
        if refused is not None:
            raise UsageError(f"{text} has {refused} in it, and a row is sorted by its own columns alone")
    names = [node["column_names"] for node in nodes if node.get("class") == "COLUMN_REF"]
    for path in names:
        if column_of(schema, path[0]) is None:
            raise missing(schema, tuple(path))
        if len(path) > 1:
            raise UsageError(
                f"DuckDB sorts by whole columns, and {dotted(tuple(path))} is not one",
                f"write struct_extract({path[0]}, '{path[-1]}')",
            )
    if not names:
        raise UsageError(f"{text} names no column")
    return _parts(text, tree, schema)


def check(key: SortExpression, schema: Schema, rows: Sequence[ColumnRow], table: str) -> None:
    """Check that DuckDB can compute the expression. ``rows``: the columns. Raises DataError."""
    import duckdb

    children_of: dict[int | None, list[ColumnRow]] = {}
    for row in rows:
        children_of.setdefault(row.parent, []).append(row)
    nulls = ", ".join(
        f"CAST(NULL AS {duckdb_type(row, children_of)}) AS {quoted(row.name)}" for row in children_of[None]
    )
    expression = expression_of(key, schema, table)
    try:
        with instance() as engine:  # only bound, not run
            engine.execute(f"DESCRIBE SELECT 1 FROM (SELECT {nulls}) WHERE ({expression}) IS NULL")
    except duckdb.Error as error:
        raise DataError(
            f"{table}: DuckDB cannot sort by {expression}: {str(error).partition(chr(10))[0]}"
        ) from error


def column_of(schema: Schema, name: str) -> Field | None:
    """Return the column that DuckDB takes the name for."""
    alike = [f for f in schema.struct.fields if f.name.lower() == name.lower()]
    return next((f for f in alike if f.name == name), alike[0] if alike else None)


def top_column(schema: Schema, column: int, table: str) -> Field:
    """The column of this id. Raises DataError for a nested one, which DuckLake cannot use for a layout."""
    for path, field in schema.walk():
        if field.id == column:
            if len(path) > 1:
                raise DataError(
                    f"{table}: DuckLake does not partition or sort by {'.'.join(path)}, which is nested"
                )
            return field
    raise DataError(
        f"{table} is partitioned or sorted by a column that is gone",
        f"ALTER TABLE {table} RESET PARTITIONED BY; ALTER TABLE {table} RESET SORTED BY",
    )


# DuckDB's own parser reads expressions, and they are kept with ids in place of names, so renames and `undo`
# work unchanged.
def _parsed(expression: str) -> Any:
    with instance() as duckdb:
        row = duckdb.execute("SELECT json_serialize_sql(?)", [_SELECT + expression]).fetchone()
    assert row is not None
    try:
        return json.loads(row[0])
    except RecursionError:
        return {"error": True, "error_message": "it is nested too deeply"}


def _parts(expression: str, tree: Any, schema: Schema) -> tuple[str | int, ...]:
    """Spell the expression as DuckDB does, with ids in place of the names of columns.

    The ids become names that nothing else in it can be.
    """
    mark = "$"
    while f'"{mark}' in expression:
        mark += "$"
    for node in _nodes(tree):
        if node.get("class") == "COLUMN_REF":
            *qualifiers, name = node["column_names"]
            column = column_of(schema, name)
            if column is not None:
                node["column_names"] = [*qualifiers, f"{mark}{column.id}{mark}"]
    with instance() as duckdb:
        row = duckdb.execute("SELECT json_deserialize_sql(CAST(? AS JSON))", [json.dumps(tree)]).fetchone()
    assert row is not None
    pieces = re.split(rf'"{re.escape(mark)}(\d+){re.escape(mark)}"', str(row[0]).removeprefix(_SELECT))
    return tuple(int(piece) if i % 2 else piece for i, piece in enumerate(pieces) if piece)


def _aggregates() -> set[str]:
    with instance() as duckdb:
        rows = duckdb.execute(
            "SELECT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
        ).fetchall()
    return {str(name) for (name,) in rows}


def _selected(tree: Any) -> list[Any]:
    """Return the expressions of the SELECT; none where DuckDB cannot read it."""
    statements = tree.get("statements") or [{}]
    selected: list[Any] = statements[0].get("node", {}).get("select_list", [])
    return selected


def _around(tree: Any) -> list[Any]:
    """Return all of the statements but the expressions themselves and places in the text."""
    nodes = [dict(statement["node"]) for statement in tree["statements"]]
    for node in nodes:
        node["select_list"] = []
        node["from_table"] = {**node.get("from_table", {}), "query_location": 0}
    return nodes


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of the tree, which may be changed in place."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending += node.values()
        elif isinstance(node, list):
            pending += node


TRANSFORMS = ("identity", "year", "month", "day", "hour", "bucket")
# What Iceberg's bucket function and DuckLake's give the same number for.
BUCKETED = ("int", "long", "string", "date", "timestamp")
_BUCKET = re.compile(r"bucket\((\d+)\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CatalogLayout:
    """A table's layout.

    Attributes:
        expressions: the sort keys as the catalog has them.
        partition_id: the catalog's; None if the table is not partitioned.
    """

    partition: tuple[PartitionField, ...] = ()
    sort: tuple[SortKey, ...] = ()
    partition_id: int | None = None
    expressions: tuple[str, ...] = ()

    def changed(self, after: Definition, table: str) -> CatalogLayout:
        """Return the layout of ``after``. Raises DataError for what DuckLake has not."""
        for f in after.partition:
            text_of(f.transform, top_column(after.schema, f.source, table), table)
        return CatalogLayout(
            after.partition,
            after.sort,
            self.partition_id,
            _expressions(after.sort, after.schema, table),
        )


def layout(connection: Connection, table: int, snapshot: int, schema: Schema) -> CatalogLayout:
    """Return the layout of the table's new files at a snapshot."""
    current = next(
        iter(specs_of(connection, table, schema, f"AND {live('i')}", [snapshot, snapshot]).items()), None
    )
    keys = tuple(
        key_of(str(expression), direction == "DESC", nulls == "NULLS_FIRST", schema)
        for expression, direction, nulls in connection.rows(
            "SELECT e.expression, e.sort_direction, e.null_order FROM meta.ducklake_sort_info i "
            "JOIN meta.ducklake_sort_expression e ON e.sort_id = i.sort_id AND e.table_id = i.table_id "
            f"WHERE i.table_id = ? AND {live('i')} ORDER BY e.sort_key_index",
            [table, snapshot, snapshot],
        )
    )
    spec, partition = current or (None, ())
    return CatalogLayout(partition, keys, spec, _expressions(keys, schema, str(table)))


def with_layout(
    connection: Connection, name: str, known: LakeState | None = None
) -> tuple[LakeState, CatalogLayout]:
    """Load the present table, or take the ``known`` state if it is that, with the layout of its files."""
    state = load_again(connection, name, known)
    if state.table is None or state.snapshot is None:
        return state, CatalogLayout()
    return state, layout(connection, state.table.id, state.snapshot, state.schema)


def partition_id_of(connection: Connection, table: int, snapshot: int) -> int | None:
    """The catalog's id of the partition spec of the table's new files; None if it is not partitioned."""
    row = connection.one(
        f"SELECT partition_id FROM meta.ducklake_partition_info WHERE table_id = ? AND {LIVE}",
        [table, snapshot, snapshot],
    )
    return int(row[0]) if row else None


def laid(connection: Connection, table: int, snapshot: int, schema: Schema) -> list[Laid]:
    """Count the table's data files by partition spec; spec 0: not partitioned.

    Specs without files are left out, but for the current one. Rows that are in the catalog itself are in no
    file.
    """
    specs: dict[int, tuple[PartitionField, ...]] = {0: (), **specs_of(connection, table, schema)}
    current = partition_id_of(connection, table, snapshot) or 0
    counts = {
        int(spec): (int(files), int(records), int(size))
        for spec, files, records, size in connection.rows(
            "SELECT coalesce(partition_id, 0), count(*), sum(record_count), sum(file_size_bytes) "
            f"FROM meta.ducklake_data_file WHERE table_id = ? AND {LIVE} GROUP BY 1",
            [table, snapshot, snapshot],
        )
    }
    return [
        Laid(spec, fields, *counts.get(spec, (0, 0, 0)), spec == current)
        for spec, fields in sorted(specs.items())
        if spec in counts or spec == current
    ]


def _expressions(keys: Sequence[SortKey], schema: Schema, table: str) -> tuple[str, ...]:
    return tuple(expression_of(key, schema, table) for key in keys)


def specs_of(
    connection: Connection, table: int, schema: Schema, where: str = "", parameters: Sequence[int] = ()
) -> dict[int, tuple[PartitionField, ...]]:
    """Partition specs by the catalog's id."""
    names = {f.id: f.name for f in schema.struct.fields}
    out: dict[int, tuple[PartitionField, ...]] = {}
    for spec, column, transform in connection.rows(
        "SELECT i.partition_id, c.column_id, c.transform FROM meta.ducklake_partition_info i "
        "JOIN meta.ducklake_partition_column c ON c.partition_id = i.partition_id AND c.table_id = i.table_id "
        f"WHERE i.table_id = ? {where} ORDER BY i.partition_id, c.partition_key_index",
        [table, *parameters],
    ):
        parsed = _read(str(transform))
        field = PartitionField(parsed.field_name(names.get(int(column), "")), int(column), parsed)
        out[int(spec)] = (*out.get(int(spec), ()), field)
    return out


def _read(text: str) -> Transform:
    match = _BUCKET.fullmatch(text)
    return Transform("bucket", int(match[1])) if match else Transform.read(text.lower())


def text_of(transform: Transform, field: Field, table: str) -> str:
    """Return the transform as the catalog has it. Raises DataError for one that DuckLake has not."""
    if transform.name not in TRANSFORMS:
        raise DataError(
            f"{table}: DuckLake has no partition transform {transform.name}",
            hint=f"it has {', '.join(TRANSFORMS)}",
        )
    if not isinstance(field.type, Primitive):
        raise DataError(f"{table}: DuckLake does not partition by {field.name}, which is nested")
    if transform.name == "bucket":
        if field.type.name not in BUCKETED:
            raise DataError(
                f"{table}: a bucket of {field.type} is not the same number in Spark and in DuckDB"
            )
        return f"bucket({transform.n})"
    return transform.name


@dataclass(frozen=True, slots=True)
class LayoutUpdate:
    """The layout of a table ``before`` and ``after`` a snapshot.

    ``schema``: its columns; ``table``, ``snapshot``: the ids for its rows in the catalog; ``name``: the
    table's.
    """

    table: int
    snapshot: int
    before: CatalogLayout
    after: CatalogLayout
    schema: Schema
    name: str


def set_layout(connection: Connection, change: LayoutUpdate, catalog_id: int) -> int:
    """Write what changed; returns the next free catalog id."""
    before, after = change.before, change.after
    if [(f.source, f.transform) for f in before.partition] != [
        (f.source, f.transform) for f in after.partition
    ]:
        catalog_id = _set_partition(connection, change, catalog_id)
    if (before.sort, before.expressions) != (after.sort, after.expressions):
        catalog_id = _set_sort(connection, change, catalog_id)
    return catalog_id


def _set_partition(connection: Connection, change: LayoutUpdate, catalog_id: int) -> int:
    connection.end("ducklake_partition_info", change.snapshot, f"table_id = {change.table}")
    if not change.after.partition:
        return catalog_id
    row = {"partition_id": catalog_id, "table_id": change.table, "begin_snapshot": change.snapshot}
    connection.insert("ducklake_partition_info", [row])
    columns = [
        {
            "partition_id": catalog_id,
            "table_id": change.table,
            "partition_key_index": i,
            "column_id": f.source,
            "transform": text_of(f.transform, top_column(change.schema, f.source, change.name), change.name),
        }
        for i, f in enumerate(change.after.partition)
    ]
    connection.insert("ducklake_partition_column", columns)
    return catalog_id + 1


def _set_sort(connection: Connection, change: LayoutUpdate, catalog_id: int) -> int:
    connection.end("ducklake_sort_info", change.snapshot, f"table_id = {change.table}")
    if not change.after.sort:
        return catalog_id
    row = {"sort_id": catalog_id, "table_id": change.table, "begin_snapshot": change.snapshot}
    connection.insert("ducklake_sort_info", [row])
    keys = [
        {
            "sort_id": catalog_id,
            "table_id": change.table,
            "sort_key_index": i,
            "expression": expression,
            "dialect": "duckdb",
            "sort_direction": "DESC" if key.descending else "ASC",
            "null_order": "NULLS_FIRST" if key.nulls_first else "NULLS_LAST",
        }
        for i, (key, expression) in enumerate(zip(change.after.sort, change.after.expressions, strict=True))
    ]
    connection.insert("ducklake_sort_expression", keys)
    return catalog_id + 1


FORMAT = 3  # what Iceberg's third version has, DuckLake has: defaults among it


def definition(state: LakeState, layout_: CatalogLayout) -> Definition:
    """Return the definition of a table in this state."""
    return Definition(
        state.schema,
        layout_.partition,
        layout_.sort,
        dict(state.properties),
        FORMAT,
        state.last_id,
    )


def versions_of(connection: Connection, name: str) -> Versions:
    """Return the versions of a table's definition. Raises UsageError if there is no table."""
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
    # The snapshot that began the present version has expired, too.
    if not dated:
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
