"""The contents of a lake, by readers that are not driftline: pyiceberg, and DuckDB with its own extensions.

They open a copy of the catalog, as opening one may put right what a fault has left there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
from pyiceberg.catalog.sql import SqlCatalog

QUARANTINE = "__quarantine"
ROWS = (".parquet", ".puffin", ".arrow")  # of files of rows, of deleted ones, and of those of a batch


@dataclass
class Seen:
    """Tables by name: columns, and rows as JSON in an order of their own. ``missing``: files that some snapshot has and
    the disk has not; ``unknown``: files of rows, or of deleted ones, that no snapshot has.
    """

    tables: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def ids(self, table: str) -> list[int]:
        return sorted(json.loads(row)["id"] for row in self.tables.get(table, ([], []))[1])

    def prices(self, table: str) -> list[tuple[int, Any]]:
        """The price of each row by its id; where it is of another type, from the column beside it."""
        rows = map(json.loads, self.tables.get(table, ([], []))[1])
        return sorted(
            (r["id"], r["price"] if r["price"] is not None else r.get("price_string")) for r in rows
        )

    def raws(self, table: str) -> list[str]:
        return sorted(json.loads(row)["raw"] for row in self.tables.get(table + QUARANTINE, ([], []))[1])

    def put(self, name: str, columns: list[str], rows: list[dict[str, Any]]) -> None:
        self.tables[name] = columns, sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)

    def files(self, lake: Path, known: set[str]) -> None:
        """Compares the files of rows that snapshots have with those that are there."""
        files = (path for path in lake.rglob("[!.]*") if path.suffix in ROWS)
        there = set(map(str, files))
        self.missing, self.unknown = sorted(known - there), sorted(there - known)


def seen(lake: Path, format_: str) -> Seen:
    return by_pyiceberg(lake) if format_ == "iceberg" else by_duckdb(lake, format_)


@contextmanager
def copied(catalog: Path) -> Iterator[Path]:
    """A copy of a database, with its journal or log."""
    with TemporaryDirectory() as folder:
        for file in catalog.parent.glob(f"{catalog.name}*"):
            shutil.copy(file, folder)
        yield Path(folder, catalog.name)


def by_pyiceberg(lake: Path) -> Seen:
    with copied(lake / "catalog.db") as file:
        return by_catalog(lake, SqlCatalog("lake", uri=f"sqlite:///{file}", warehouse=str(lake)))


def by_catalog(lake: Path, catalog: SqlCatalog) -> Seen:
    found, known = Seen(), set()
    try:
        for name in catalog.list_tables("s"):
            table = catalog.load_table(name)
            rows = table.scan().to_arrow()
            found.put(".".join(name), rows.column_names, rows.to_pylist())
            for snapshot in table.snapshots():
                tasks = table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
                for task in tasks:
                    paths = (file.file_path for file in (task.file, *task.delete_files))
                    known |= {path.removeprefix("file:") for path in paths}
    finally:
        catalog.engine.dispose()
    found.files(lake, known)
    return found


@contextmanager
def attached(lake: Path, kind: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the DuckLake as ``lk``."""
    prefix = "" if kind == "duckdb" else f"{kind}:"
    target = lake / f"catalog.{'ducklake' if kind == 'duckdb' else kind}"
    with (
        copied(target) as file,
        duckdb.connect(config={"autoinstall_known_extensions": "false", "threads": 1}) as connection,
    ):
        for name in ("ducklake", *(("sqlite_scanner",) if kind == "sqlite" else ())):
            spec = find_spec(f"duckdb_extension_{name}")
            assert spec is not None and spec.submodule_search_locations
            folder = Path(spec.submodule_search_locations[0], "extensions", f"v{duckdb.__version__}")
            connection.execute(f"LOAD '{folder / f'{name}.duckdb_extension'}'")
        connection.execute(f"ATTACH 'ducklake:{prefix}{file}' AS lk")
        yield connection


def by_duckdb(lake: Path, kind: str) -> Seen:
    found = Seen()
    with attached(lake, kind) as connection:
        listed = connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'lk' AND schema_name = 's'"
        ).fetchall()
        for schema, table in listed:
            rows = connection.execute(f'SELECT to_json(t) FROM lk."{schema}"."{table}" t').fetchall()
            columns = connection.execute(f'DESCRIBE lk."{schema}"."{table}"').fetchall()
            found.put(f"{schema}.{table}", [c[0] for c in columns], [json.loads(row[0]) for row in rows])
        known = connection.execute(
            "SELECT f.path, t.path, s.path FROM (SELECT path, table_id FROM __ducklake_metadata_lk.ducklake_data_file "
            "UNION ALL SELECT path, table_id FROM __ducklake_metadata_lk.ducklake_delete_file) f "
            "JOIN __ducklake_metadata_lk.ducklake_table t USING (table_id) "
            "JOIN __ducklake_metadata_lk.ducklake_schema s USING (schema_id)"
        ).fetchall()
    data = lake / "data"
    found.files(lake, {str(data / schema / table / path) for path, table, schema in known})
    return found
