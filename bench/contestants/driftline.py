"""This product, by its Python interface, all settings as they come, but for tables of more fields than that."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from driftline import Lake

from . import Table

LIMITS = {"max_columns": "1000000", "max_fields": "1000000"}  # a column for each field, as the others have


class OnIceberg:
    def open(self, folder: Path) -> None:
        self.folder = folder
        self.lake = Lake.open(folder)

    def take(self, files: list[Path], name: str) -> Table:
        self.lake.table(f"bench.{name}").ingest(files, settings=LIMITS)
        return Table("iceberg", f"{self.folder}/bench/{name}", name, "driftline")

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("driftline", "pyspark", "msgspec")}


class OnDuckLake(OnIceberg):
    def open(self, folder: Path) -> None:
        self.folder = folder
        self.lake = Lake.open(folder, ducklake="duckdb")

    def take(self, files: list[Path], name: str) -> Table:
        self.lake.table(f"bench.{name}").ingest(files, settings=LIMITS)
        return Table("ducklake", f"{self.folder}/catalog.ducklake", f"bench.{name}", "driftline")

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "duckdb": version("duckdb")}
