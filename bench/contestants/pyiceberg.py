"""pyarrow reads the files on all cores, pyiceberg's `union_by_name` makes the schema fit, one commit."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
from pyarrow import json
from pyiceberg.catalog.sql import SqlCatalog

from . import Table


class PyIceberg:
    def open(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        self.catalog.create_namespace("bench")

    def take(self, files: list[Path], name: str) -> Table:
        parts = [json.read_json(file) for file in files]
        rows = pa.concat_tables(parts, promote_options="permissive")
        table = self.catalog.create_table_if_not_exists(f"bench.{name}", pa.schema([]))
        with table.transaction() as transaction:
            with transaction.update_schema() as schema:
                schema.union_by_name(rows.schema)
            transaction.append(rows)
        return Table("iceberg", table.location().removeprefix("file://"), name)

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("pyarrow", "pyiceberg")}
