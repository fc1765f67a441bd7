"""Who takes part in the bench: each takes JSON lines from files into a new table, in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its place, and the way to read it.

    ``reader``: iceberg (``location``: the table's folder), duckdb (a database file), ducklake (a catalog's file), parquet
    (a file).
    ``naming``: how its columns are called after the keys of the data.
    """

    reader: Literal["iceberg", "duckdb", "ducklake", "parquet"]
    location: str
    name: str
    naming: Literal["own", "driftline", "dlt"] = "own"


class Contestant(Protocol):
    """A way to take JSON lines into a table, in the best configuration that its makers advise."""

    def open(self, folder: Path) -> None:
        """Gets ready to make tables in the folder: sessions, catalogs."""

    def take(self, files: list[Path], name: str) -> Table:
        """Takes all records of the files into the table, made if it is not there; returns once they are committed."""

    def versions(self) -> dict[str, str]:
        """The contestants' libraries and their versions."""


Environment = Literal["product", "others", "duckdb"]  # the newest DuckDB stands alone


@dataclass(frozen=True, slots=True)
class Entry:
    """A contestant, before its libraries are imported. ``records``: how many of a million it is given."""

    title: str
    environment: Environment
    module: str
    make: str
    records: int | None = None

    def contestant(self) -> Contestant:
        """Imports it."""
        made: Contestant = getattr(import_module(f"contestants.{self.module}"), self.make)()
        return made


ENTRIES = {
    "driftline-iceberg": Entry("driftline, Iceberg", "product", "driftline", "OnIceberg"),
    "driftline-ducklake": Entry("driftline, DuckLake", "product", "driftline", "OnDuckLake"),
    "spark": Entry("plain Spark, Iceberg", "product", "spark", "PlainSpark"),
    "pyiceberg": Entry("pyarrow + pyiceberg", "others", "pyiceberg", "PyIceberg"),
    "duckdb-parquet": Entry("DuckDB 2.0, to Parquet", "duckdb", "duckdb", "ToParquet"),
    "duckdb": Entry("DuckDB read_json", "others", "duckdb", "DuckDB"),
    "duckdb-ducklake": Entry("DuckDB, DuckLake", "others", "duckdb", "DuckLake"),
    "dlt-iceberg": Entry("dlt, Iceberg", "others", "dlt", "ToIceberg", records=100_000),
    "dlt-duckdb": Entry("dlt, DuckDB", "others", "dlt", "ToDuckDB", records=100_000),
}
