"""Lakes that were copied or moved: no file of another lake is touched."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftline import Lake

KINDS = {"iceberg": None, "ducklake_duckdb": "duckdb", "ducklake_sqlite": "sqlite"}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, spark: SparkSession) -> str | None:
    """The catalog of a DuckLake; None for Iceberg. The process has its Spark by then."""
    return KINDS[request.param]


def opened(folder: Path, kind: str | None) -> Lake:
    return Lake.open(folder, ducklake=kind)


def ingest(lake: Lake, folder: Path, *ids: int) -> None:
    file = folder / f"{'-'.join(map(str, ids))}.jsonl"
    file.write_text("".join(json.dumps({"id": id_}) + "\n" for id_ in ids))
    lake.table("s.t").ingest(file)


def ids(lake: Lake) -> list[int]:
    return sorted(row.id for row in lake.table("s.t").read().collect())


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_clean_in_a_copy_deletes_nothing_of_the_original(kind: str | None, tmp_path: Path) -> None:
    lake = opened(tmp_path / "lake", kind)
    ingest(lake, tmp_path, 1)
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    ingest(lake, tmp_path, 2)
    before = files(tmp_path / "lake")
    for path in before:
        os.utime(path, (1, 1))
    assert opened(tmp_path / "copy", kind).clean(0) == []
    assert files(tmp_path / "lake") == before
    assert ids(lake) == [1, 2]


@pytest.mark.iceberg_only("a DuckLake's catalog is no files, and it remembers source files in its rows")
def test_files_of_a_table_outside_the_lake_stay_when_they_are_no_longer_needed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Iceberg itself deletes old metadata files with a commit, and a ledger replaces the one before."""
    lake, away = opened(tmp_path / "lake", None), tmp_path / "away" / "t"
    lake.sql("create namespace s")
    lake.sql(
        f"create table s.t (id bigint) using iceberg location '{away}' tblproperties "
        "('write.metadata.delete-after-commit.enabled'='true', 'write.metadata.previous-versions-max'='1')"
    )
    for id_ in range(4):
        ingest(lake, tmp_path, id_)
    names = [path.name for path in (away / "metadata").iterdir()]

    assert ids(lake) == [0, 1, 2, 3]
    assert len([name for name in names if name.endswith(".metadata.json")]) == 5
    assert len([name for name in names if name.startswith("_driftline-files-")]) == 4
