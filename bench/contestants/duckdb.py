"""DuckDB: `read_json` over all files, the types found in all records, into a table of its own, a DuckLake, or Parquet."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import duckdb

from . import Table

# All records are looked at, and rare fields get columns: by its defaults a field may hide in a map or a JSON text.
READ = (
    "SELECT * FROM read_json(?, format = 'newline_delimited', records = true, union_by_name = true, "
    "sample_size = -1, maximum_depth = -1, field_appearance_threshold = 0, map_inference_threshold = -1)"
)


class DuckDB:
    def __init__(self) -> None:
        self.made: set[str] = set()

    def open(self, folder: Path) -> None:
        self.file = folder / "bench.duckdb"
        self.connection = duckdb.connect(self.file)
        self.connection.execute("SET preserve_insertion_order = false")  # its guide's advice for speed

    def take(self, files: list[Path], name: str) -> Table:
        self._write(name, files)
        self.connection.execute("CHECKPOINT")
        return Table("duckdb", str(self.file), name)

    def _write(self, name: str, files: list[Path]) -> None:
        """A new table as the data are; into one that is there, by name, as it takes no columns by itself."""
        verb = f"INSERT INTO {name} BY NAME" if name in self.made else f"CREATE TABLE {name} AS"
        self.connection.execute(f"{verb} {READ}", [[str(file) for file in files]])
        self.made.add(name)

    def versions(self) -> dict[str, str]:
        return {"duckdb": version("duckdb")}


class DuckLake(DuckDB):
    def open(self, folder: Path) -> None:
        from tables import extension

        self.file = folder / "catalog.ducklake"
        self.connection = duckdb.connect()
        self.connection.execute("SET preserve_insertion_order = false")
        self.connection.execute(f"LOAD '{extension('ducklake')}'")
        self.connection.execute(f"ATTACH 'ducklake:{self.file}' AS lk (DATA_PATH '{folder}/data/')")

    def take(self, files: list[Path], name: str) -> Table:
        self._write(f"lk.{name}", files)
        return Table("ducklake", str(self.file), f"main.{name}")

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("duckdb", "duckdb-extension-ducklake")}


class ToParquet(DuckDB):
    """The files of a table and no more: no commit, no schema that others know. Into what is there it adds a file."""

    def open(self, folder: Path) -> None:
        self.folder = folder
        self.connection = duckdb.connect()
        self.connection.execute("SET preserve_insertion_order = false")

    def take(self, files: list[Path], name: str) -> Table:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        place = str(folder / f"{len(list(folder.iterdir()))}.parquet").replace("'", "''")
        paths = [str(file) for file in files]
        self.connection.execute(f"COPY ({READ}) TO '{place}' (FORMAT parquet, COMPRESSION zstd)", [paths])
        return Table("parquet", str(folder / "*.parquet"), name)
