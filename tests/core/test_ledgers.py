"""The ledgers of source files that tables have taken, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.formats.ducklake import snapshot as of_ducklake
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.iceberg import reader as of_iceberg


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_the_catalog_of_a_ducklake_remembers_the_last_files_of_each_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(of_ducklake, "REMEMBERED", 3)
    lake = CatalogDatabase.of(kind, tmp_path)
    lake.make()

    def taken(table: int, *files: int) -> set[int]:
        return lake.read(lambda connection: of_ducklake.ingested_files(connection, table, files))

    def remember(table: int, *files: int) -> None:
        lake.write(lambda connection: of_ducklake.remember(connection, table, 1, files), lambda _: False)

    assert taken(1, 5) == set(), "there is no ledger yet"
    remember(1)
    assert taken(1, 5) == set()
    remember(1, 5, -(2**63))
    remember(2, 7)
    assert taken(1, 5, -(2**63), 7) == {5, -(2**63)}
    remember(1, 8, 9)
    assert taken(1, 5, -(2**63), 8, 9) == {-(2**63), 8, 9}
    remember(1, *range(10, 20))
    assert taken(1, *range(20)) == {17, 18, 19}
    assert taken(2, 7) == {7}
    assert lake.by_duckdb("SELECT count(*) FROM ducklake_snapshots('lk')") == [(1,)]


def test_the_file_of_an_iceberg_table_has_the_last_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_iceberg, "REMEMBERED", 2)

    class Java:
        def operations(self) -> Java:
            return self

        def metadataFileLocation(self, name: str) -> str:  # noqa: N802  Java's
            return f"file:{tmp_path}/{name}"

    path = of_iceberg.write_ledger(Java(), {1: 10, -(2**63): 2**63 - 1, 3: 0})

    assert of_iceberg.read_ledger(path, lambda: None) == {-(2**63): 2**63 - 1, 3: 0}
    assert (tmp_path / path.rpartition("/")[2]).stat().st_size == 32
