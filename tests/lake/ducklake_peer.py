"""DuckDB's own reader and writer of a DuckLake, which ours are compared with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
from pyspark.sql import DataFrame

from driftline.core.schema.text import quoted
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.table import DuckLakeTable
from driftline.runtime.duckdb import instance


@contextmanager
def peer(catalog: CatalogDatabase) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the lake attached as ``lk``."""
    scanners = {"duckdb": (), "sqlite": ("sqlite_scanner",), "postgres": ("postgres_scanner",)}[catalog.kind]
    prefix = "" if catalog.kind == "duckdb" else f"{catalog.kind}:"
    with instance("ducklake", *scanners) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"ATTACH 'ducklake:{prefix}{catalog.target}' AS lk (DATA_PATH '{catalog.data}')")
        try:
            yield connection
        finally:
            connection.execute("DETACH lk")


def run(catalog: CatalogDatabase, *statements: str) -> list[tuple[Any, ...]]:
    """Runs SQL by DuckDB, each statement in a transaction of its own; returns the last one's rows."""
    rows: list[tuple[Any, ...]] = []
    with peer(catalog) as connection:
        for statement in statements:
            answer = connection.execute(statement)
            # An instant would need a library more to become Python's.
            rows = [] if statement.startswith("CALL") else answer.fetchall()
    return rows


def rows_of(frame: DataFrame) -> list[str]:
    """The rows as text, in an order of their own."""
    positions = [f"c{i}" for i in range(len(frame.columns))]
    return sorted(
        row[0]
        for row in frame.toDF(*positions)
        .selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))")
        .collect()
    )


def rows_by_duckdb(table: DuckLakeTable, folder: Path, at: int | None = None, what: str = "*") -> list[str]:
    """The rows as DuckDB reads them, brought to Spark in a plain Parquet file."""
    file = folder / f"{uuid4().hex}.parquet"
    place = ".".join(["lk", *(quoted(part) for part in table.name.split("."))])
    when = "" if at is None else f" AT (VERSION => {at})"
    with peer(table.catalog) as connection:
        names = connection.execute(f"DESCRIBE SELECT {what} FROM {place}{when}").fetchall()
        selected = ", ".join(_plain(n, t) for n, t, *_ in names)
        connection.execute(f"COPY (SELECT {selected} FROM (SELECT {what} FROM {place}{when})) TO '{file}'")
    return rows_of(table.spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(str(file)))


def _plain(name: str, type_: str) -> str:
    column = quoted(name)
    return f"{column}::VARCHAR AS {column}" if type_ in ("UUID", "JSON") else column


def same(table: DuckLakeTable, folder: Path, at: int | None = None) -> list[dict[str, Any]]:
    """Asserts that Spark and DuckDB read the same rows; returns them."""
    ours, theirs = rows_of(table.read(at)), rows_by_duckdb(table, folder, at)
    assert ours == theirs, (set(ours) - set(theirs), set(theirs) - set(ours))
    return [json.loads(row) for row in ours]
