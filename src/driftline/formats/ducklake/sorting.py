"""A table's sort keys: expressions of DuckDB's, kept by the ids of the
columns that they name, and so through renames.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from driftline.core.changes.check import missing
from driftline.core.schema.definition import SortExpression, SortField, SortKey
from driftline.core.schema.text import quoted
from driftline.core.schema.types import Field, Schema, dotted
from driftline.errors import DataError, UsageError
from driftline.formats.ducklake.columns import ColumnRow
from driftline.formats.ducklake.inlined import duckdb_type
from driftline.runtime.duckdb import instance

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
    """A sort key of the catalog's, with columns by id.

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
    """A sort key as the catalog has it. Raises DataError where DuckLake does not sort by such."""
    parts = key.parts if isinstance(key, SortExpression) else key.columns
    return SortExpression(parts).text(lambda column: quoted(top_column(schema, column, table).name))


def parts_of(text: str, schema: Schema) -> tuple[str | int, ...]:
    """The parts of a sort expression that a person wrote. Raises UsageError for invalid text."""
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
    """The column that DuckDB takes the name for."""
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


def _parsed(expression: str) -> Any:
    with instance() as duckdb:
        row = duckdb.execute("SELECT json_serialize_sql(?)", [_SELECT + expression]).fetchone()
    assert row is not None
    try:
        return json.loads(row[0])
    except RecursionError:
        return {"error": True, "error_message": "it is nested too deeply"}


def _parts(expression: str, tree: Any, schema: Schema) -> tuple[str | int, ...]:
    """The expression in DuckDB's spelling, with ids in place of the names of columns: these
    become names that nothing else in it can be.
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
    """The expressions of the SELECT; none where DuckDB cannot read it."""
    statements = tree.get("statements") or [{}]
    selected: list[Any] = statements[0].get("node", {}).get("select_list", [])
    return selected


def _around(tree: Any) -> list[Any]:
    """All of the statements but the expressions themselves and places in the text."""
    nodes = [dict(statement["node"]) for statement in tree["statements"]]
    for node in nodes:
        node["select_list"] = []
        node["from_table"] = {**node.get("from_table", {}), "query_location": 0}
    return nodes


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects of the tree, which may be changed in place."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending += node.values()
        elif isinstance(node, list):
            pending += node
