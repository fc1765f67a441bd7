"""Inlined rows: DuckDB keeps them in the catalog, because they are too few for a file.

They are in a table of their own for each column layout that the DuckLake table has had. A database without
one of DuckDB's types holds it as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driftline.core.schema.text import quoted
from driftline.formats.ducklake.snapshot import columns_of
from driftline.formats.ducklake.types import ColumnRow, duckdb_name, handed_over_as, stored_name

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection

_RESERVED = (
    "row_id", "begin_snapshot", "end_snapshot", "_ducklake_internal_snapshot_id", "_ducklake_internal_row_id",
)  # fmt: skip
_WIDEST = {"duckdb": 100_000, "sqlite": 1900, "postgres": 1500}  # columns


@dataclass(frozen=True, slots=True)
class InlinedRows:
    """Rows as an Arrow table, with each column and field named ``__f`` and its id.

    Attributes:
        columns: those of the rows.
        table: the catalog's table of them, in which each has one of the ``ids``.
    """

    columns: tuple[ColumnRow, ...]
    rows: Any
    table: str
    ids: Any


@dataclass(frozen=True, slots=True)
class EndedRows:
    """Rows that the catalog keeps in one of its tables, and that end with a snapshot."""

    table: str
    rows: tuple[int, ...]


def inlined_tables(connection: Connection, table: int) -> dict[str, int]:
    """Return the catalog's tables of rows that it keeps of a table, by name, with their schema versions."""
    rows = connection.rows(
        "SELECT table_name, schema_version FROM meta.ducklake_inlined_data_tables WHERE table_id = ?", [table]
    )
    return {str(name): int(version) for name, version in rows}


def has_inlined_rows(connection: Connection, table: int, snapshot: int) -> bool:
    """True if the catalog itself keeps rows of a table, at a snapshot."""
    return any(_has_rows(connection, name, snapshot) for name in inlined_tables(connection, table))


def _has_rows(connection: Connection, name: str, snapshot: int) -> bool:
    return bool(connection.rows(f"SELECT 1 FROM meta.{quoted(name)} WHERE {_live(snapshot)} LIMIT 1"))


def _live(snapshot: int) -> str:
    return f"begin_snapshot <= {snapshot} AND (end_snapshot IS NULL OR end_snapshot > {snapshot})"


def inlined_rows(connection: Connection, table: int, snapshot: int) -> list[InlinedRows]:
    """Return the rows that the catalog itself keeps of a table, at a snapshot."""
    out = []
    for name, version in inlined_tables(connection, table).items():
        if not _has_rows(connection, name, snapshot):
            continue
        # There is a table for each version of the schema, with the columns as they were when it began.
        began = connection.one(
            "SELECT max(begin_snapshot) FROM meta.ducklake_schema_versions WHERE table_id = ? AND schema_version <= ?",
            [table, version],
        )
        columns = columns_of(connection, table, int(began[0]) if began and began[0] is not None else snapshot)
        children_of = _below(columns)
        types = dict(
            connection.rows(
                "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = 'meta' AND table_name = ?",
                [name],
            )
        )
        selected = ", ".join(
            f"{_read(row, children_of, connection.kind, types[row.name])} AS __f{row.id}"
            for row in children_of[None]
        )
        rows = connection.arrow(
            f"SELECT row_id, {selected} FROM meta.{quoted(name)} WHERE {_live(snapshot)} ORDER BY row_id"
        )
        out.append(InlinedRows(tuple(columns), rows.drop_columns(["row_id"]), name, rows.column("row_id")))
    return out


def _read(row: ColumnRow, children_of: dict[int | None, list[ColumnRow]], kind: str, stored: str) -> str:
    x = quoted(row.name)
    # A text may have a zero byte, which PostgreSQL takes in bytes alone.
    if stored == "BLOB" and row.type.lower() in ("varchar", "json"):
        x = f"decode({x})"
    if kind != "duckdb":
        x = f"CAST({x} AS {duckdb_type(row, children_of)})"
    return for_spark(x, row, children_of)


def for_spark(x: str, row: ColumnRow, children_of: dict[int | None, list[ColumnRow]], depth: int = 0) -> str:
    """SQL of DuckDB for the value ``x`` of a column, with fields named by id; text where Spark reads text.

    ``children_of``: the rows of columns by their parent; ``depth``: of lambdas around ``x``.
    """
    nested = children_of.get(row.id, [])
    e = f"e{depth}"
    match row.type.lower():
        case "struct":
            fields = ", ".join(
                f"'__f{f.id}': {for_spark(f'{x}.{quoted(f.name)}', f, children_of, depth + 1)}"
                for f in nested
            )
            return f"CASE WHEN {x} IS NULL THEN NULL ELSE {{{fields}}} END"
        case "list":
            return f"list_transform({x}, lambda {e}: {for_spark(e, nested[0], children_of, depth + 1)})"
        case "map":
            key, value = sorted(nested, key=lambda f: f.name != "key")
            entry = f"{{'key': {for_spark(f'{e}.key', key, children_of, depth + 1)}, 'value': {for_spark(f'{e}.value', value, children_of, depth + 1)}}}"
            return f"map_from_entries(list_transform(map_entries({x}), lambda {e}: {entry}))"
        case name:
            taken_as = handed_over_as(name)
            return x if taken_as is None else f"CAST({x} AS {taken_as})"


def duckdb_type(row: ColumnRow, children_of: dict[int | None, list[ColumnRow]]) -> str:
    """Return the column's type in DuckDB's SQL."""
    nested = children_of.get(row.id, [])
    match row.type.lower():
        case "struct":
            return f"STRUCT({', '.join(f'{quoted(f.name)} {duckdb_type(f, children_of)}' for f in nested)})"
        case "list":
            return f"{duckdb_type(nested[0], children_of)}[]"
        case "map":
            key, value = sorted(nested, key=lambda f: f.name != "key")
            return f"MAP({duckdb_type(key, children_of)}, {duckdb_type(value, children_of)})"
        case name:
            return duckdb_name(name)


def renew_inlined_table(
    connection: Connection, table: int, schema: int, version: int, columns: Sequence[ColumnRow]
) -> None:
    """Create the inlined table for the new columns, and drop those without rows, as DuckDB does."""
    for name, old in inlined_tables(connection, table).items():
        if not connection.rows(f"SELECT 1 FROM meta.{quoted(name)} LIMIT 1"):
            connection.execute(
                "DELETE FROM meta.ducklake_inlined_data_tables WHERE table_id = ? AND schema_version = ?",
                [table, old],
            )
            connection.execute(f"DROP TABLE IF EXISTS meta.{quoted(name)}")
    children_of = _below(columns)
    if not _wanted(connection, table, schema) or not _possible(
        connection.kind, columns, len(children_of[None])
    ):
        return
    name = f"ducklake_inlined_data_{table}_{version}"
    listed = ", ".join(
        f"{quoted(row.name)} {_stored(row, children_of, connection.kind)}" for row in children_of[None]
    )
    connection.execute(
        f"CREATE TABLE meta.{quoted(name)}(row_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, {listed})"
    )
    connection.insert(
        "ducklake_inlined_data_tables",
        [{"table_id": table, "table_name": name, "schema_version": version}],
    )


def _wanted(connection: Connection, table: int, schema: int) -> bool:
    """True if rows may be kept in the catalog, by the setting of the table, its namespace or the lake."""
    limits = {
        scope: int(value)
        for scope, value in connection.rows(
            "SELECT scope, value FROM meta.ducklake_metadata WHERE key = 'data_inlining_row_limit' AND "
            f"(scope IS NULL OR (scope = 'schema' AND scope_id = {schema}) OR (scope = 'table' AND scope_id = {table}))"
        )
    }
    # Without a limit DuckLake keeps few rows in the catalog; 0 keeps none.
    return next((limits[scope] for scope in ("table", "schema", None) if scope in limits), 1) > 0


def _possible(kind: str, columns: Sequence[ColumnRow], width: int) -> bool:
    """True if a catalog of this kind can hold the table."""
    if width > _WIDEST[kind] or any(row.type.lower() in ("variant", "geometry") for row in columns):
        return False
    names = [row.name for row in columns if row.parent is None]
    # PostgreSQL cuts longer names.
    return all(
        name.lower() not in _RESERVED and (kind != "postgres" or len(name.encode()) < 64) for name in names
    )


def _stored(row: ColumnRow, children_of: dict[int | None, list[ColumnRow]], kind: str) -> str:
    """Return the type in which a catalog of this kind keeps the column."""
    if kind == "duckdb":
        return duckdb_type(row, children_of)
    if row.id in children_of:
        return "VARCHAR"
    return stored_name(row.type.lower(), kind)


def _below(columns: Sequence[ColumnRow]) -> dict[int | None, list[ColumnRow]]:
    out: dict[int | None, list[ColumnRow]] = {None: []}
    for row in sorted(columns, key=lambda r: (r.order, r.id)):
        out.setdefault(row.parent, []).append(row)
    return out
