"""DuckDB alone reads from the catalog what the table says with Spark, and neither Spark nor Java is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from driftline.formats.ducklake.lake import DuckLake
from driftline.formats.ducklake.statistics import OfflineDuckLakeTable
from driftline.formats.open import EmbeddedLake
from driftline.lake import Lake


def test_state_past_and_statistics(ducklake: Lake, table_name: str) -> None:
    table = ducklake.table(table_name)
    table.ingest([{"a": 1, "b": {"c": "x"}}, {"a": 2}])
    table.ingest([{"a": "x", "d": [1]}])
    ducklake.alter(f"alter table {table_name} rename b.c to e")
    assert isinstance(ducklake.format, DuckLake)
    found = OfflineDuckLakeTable.of(ducklake.format.catalog, table_name)
    assert found is not None
    state = table.state()
    assert found.load() == state
    assert found.versions() == table.format.versions()
    assert found.statistics(state.schema) == table.format.statistics(state.schema)
    assert found.beside(table_name) == found
    assert found.beside("t.nothing") is None
    assert OfflineDuckLakeTable.of(ducklake.format.catalog, "t.nothing") is None


def test_the_names_of_tables(ducklake: Lake, table_name: str, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("no record\n")
    ducklake.table(table_name).ingest([{"a": 1}])
    ducklake.table("s.failed").ingest(tmp_path / "bad.jsonl")
    assert isinstance(ducklake.format, DuckLake)
    catalog = ducklake.format.catalog
    names = EmbeddedLake(Path(catalog.target).parent, f"{catalog.kind}:{catalog.target}").names()
    assert names == ["s.failed__quarantine", table_name] == sorted(ducklake.format.tables())
    assert EmbeddedLake(Path(catalog.target, "nothing"), "duckdb").names() == []


def test_spark_is_not_loaded() -> None:
    code = "import driftline.formats.ducklake.statistics, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
