"""dlt, as its page on performance advises: pages of records, files enough for a normalize worker a core, Parquet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import dlt
import orjson

from . import Table

PAGE = 5_000  # records
FILE = 25_000  # records in a file of the extract stage: a task of a normalize worker
SETTINGS = {
    "EXTRACT__DATA_WRITER__FILE_MAX_ITEMS": str(FILE),
    "DATA_WRITER__BUFFER_MAX_ITEMS": str(PAGE),
    "NORMALIZE__WORKERS": str(os.cpu_count()),
    "LOAD__WORKERS": str(os.cpu_count()),
    "RUNTIME__DLTHUB_TELEMETRY": "false",
    "RUNTIME__LOG_LEVEL": "ERROR",
}


def records(files: list[Path]) -> Iterator[list[Any]]:
    """The records, in pages."""
    for file in files:
        with file.open("rb") as lines:
            while page := [orjson.loads(line) for line in islice(lines, PAGE)]:
                yield page


class _Dlt:
    def open(self, folder: Path) -> None:
        self.folder = folder
        os.environ.update(SETTINGS)

    def _run(self, files: list[Path], name: str, destination: Any, **options: Any) -> None:
        pipeline = dlt.pipeline(
            f"bench_{name}", pipelines_dir=f"{self.folder}/dlt", destination=destination, dataset_name="bench"
        )
        rows = dlt.resource(records(files), name=name, write_disposition="append", **options)
        pipeline.run(rows, loader_file_format="parquet").raise_on_failed_jobs()

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("dlt", "pyarrow", *self.by)}

    by: tuple[str, ...]


class ToDuckDB(_Dlt):
    by = ("duckdb",)

    def take(self, files: list[Path], name: str) -> Table:
        file = f"{self.folder}/{name}.duckdb"
        self._run(files, name, dlt.destinations.duckdb(file))
        return Table("duckdb", file, f"bench.{name}", "dlt")


class ToIceberg(_Dlt):
    by = ("pyiceberg",)

    def take(self, files: list[Path], name: str) -> Table:
        destination = dlt.destinations.filesystem(f"file://{self.folder}/lake")
        self._run(files, name, destination, table_format="iceberg")
        return Table("iceberg", f"{self.folder}/lake/bench/{name}", name, "dlt")


def by_field(folder: Path, field: str, files: list[Path]) -> None:
    """Take records into a table for each value of a field."""
    to = ToDuckDB()
    to.open(folder)
    file = f"{folder}/by_field.duckdb"
    to._run(files, "by_field", dlt.destinations.duckdb(file), table_name=lambda record: record[field])


if __name__ == "__main__":
    by_field(Path(sys.argv[1]), sys.argv[2], [Path(file) for file in sys.argv[3:]])
