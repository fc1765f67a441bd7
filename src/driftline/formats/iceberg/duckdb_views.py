"""Views in DuckDB over tables of the embedded lake, by DuckDB's Iceberg extension."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from driftline.core.schema.naming import caseless
from driftline.core.schema.types import Primitive, Struct, Type, children
from driftline.errors import DataError, UsageError
from driftline.formats.iceberg.offline import OfflineIcebergTable, table_names
from driftline.runtime.duckdb import alone, identifier, literal, parts_of

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

WITHOUT = "leave out --engine duckdb: Spark reads it"
# Types that DuckDB reads as Iceberg's spec says; of others it has no values, or they are untried.
_READ = frozenset(
    [
        *("boolean", "int", "long", "float", "double", "decimal", "date", "time", "string", "uuid"),
        *("timestamp", "timestamp_ntz", "binary", "fixed", "variant"),
    ]
)
# Files without field ids, whose columns are found by this property.
_BY_NAME = "schema.name-mapping.default"


@contextmanager
def queried(lake: Path, catalog: str, sql: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with a view of each of the lake's tables that the SQL names, ``namespace.table``.

    Raises DataError for a table that DuckDB does not read as Spark does, and DuckDB's error for bad SQL.
    """
    with alone("avro", "iceberg") as connection:
        # So a table has the name here that it has in Spark, with the catalog and without.
        connection.execute("ATTACH ':memory:' AS lake")
        connection.execute("USE lake")
        existing = set(table_names(lake, catalog) or ())
        # A table stands there once for each alias.
        named = {tuple(parts_of(written)) for written in connection.get_table_names(sql, qualified=True)}
        for parts in sorted({p[1:] if len(p) > 2 and p[0] == "lake" else p for p in named}):
            if (name := ".".join(parts)) in existing:
                _add(connection, parts, _scan(lake, catalog, name))
        yield connection


def _add(connection: duckdb.DuckDBPyConnection, parts: tuple[str, ...], scan: str) -> None:
    if len(parts) != 2:
        raise UsageError(f"{'.'.join(parts)}: DuckDB has no namespaces in namespaces", WITHOUT)
    namespace, table = map(identifier, parts)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS lake.{namespace}")
    connection.execute(f"CREATE VIEW lake.{namespace}.{table} AS FROM {scan}")


def _scan(lake: Path, catalog: str, name: str) -> str:
    """SQL of the table's rows. Raises DataError for what DuckDB would not read, or otherwise than Spark."""
    table = OfflineIcebergTable.of(lake, catalog, name)
    if table is None:
        raise DataError(f"{name} is a view of Spark's, or its files are not on this machine", WITHOUT)
    state = table.load()
    if reason := _refused(state.schema.struct, ""):
        raise DataError(f"{name}: {reason}, which DuckDB does not read as Spark does", WITHOUT)
    if _BY_NAME in state.properties:
        raise DataError(f"{name}: its files may have columns by name alone ({_BY_NAME})", WITHOUT)
    location = state.version.removeprefix("file:")
    if '"' in location:
        raise DataError(
            f"{name}: DuckDB does not read a table whose path has a quotation mark: {location}", WITHOUT
        )
    packed = ", metadata_compression_codec = 'gzip'" if ".gz." in location else ""
    return f"iceberg_scan({literal(location)}{packed})"


def _refused(type_: Type, where: str) -> str | None:
    """Return the column inside a type that DuckDB does not read; None if there is none."""
    if isinstance(type_, Primitive):
        return None if type_.name in _READ else f"{where} is a {type_}"
    if isinstance(type_, Struct):
        counts = Counter(caseless(f.name) for f in type_.fields)
        for f in type_.fields:
            if counts[caseless(f.name)] > 1:
                return f"{where}{'.' * bool(where)}{f.name} differs from another column only in case"
    reasons = (_refused(f.type, f"{where}.{f.name}" if where else f.name) for f in children(type_))
    return next(filter(None, reasons), None)
