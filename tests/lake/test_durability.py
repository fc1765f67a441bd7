"""Files are on the disk before a commit names them, unless the lake says otherwise."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftline.config import DURABILITY
from driftline.errors import SetupError
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.lake import DuckLake
from driftline.formats.iceberg.relocating import record_home
from driftline.formats.open import EmbeddedLake
from driftline.lake import Lake
from driftline.runtime import disk
from driftline.runtime.session import embedded_catalog

DURABLE = f"spark.sql.catalog.lake.{DURABILITY}"


@pytest.fixture(params=["iceberg", "duckdb", "sqlite"])
def opened(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Callable[[bool], Lake]:
    """Opens a lake, durable or not."""

    def of(durable: bool) -> Lake:
        session = spark.newSession()
        if request.param == "iceberg":
            session.conf.set(DURABLE, "full" if durable else "off")
            return Lake.attach(session, "lake")
        catalog = CatalogDatabase.of(request.param, tmp_path / "lake", durable=durable)
        catalog.make()
        return Lake(session, "lake", DuckLake(session, catalog))

    return of


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """The files and folders that are synced."""
    paths: set[Path] = set()
    flush = disk.flush

    def noted(file: int) -> None:
        paths.add(Path(f"/proc/self/fd/{file}").readlink())
        flush(file)

    monkeypatch.setattr(disk, "flush", noted)
    return paths


def put(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.embedded_only("it looks at the files beside the SQLite catalog")
def test_all_files_of_a_batch_are_synced_with_their_folders(
    opened: Callable[[bool], Lake], table_name: str, tmp_path: Path, synced: set[Path]
) -> None:
    lake = opened(True)
    lake.table(table_name).ingest(
        put(tmp_path / "a.jsonl", '{"id": 1, "v": 1}\n{"id": 2, "v": "x"}\nbroken\n')
    )
    lake.table(table_name).resolve("v", "string")

    home = Path(str(lake.format.folder))
    files = {
        file for name in (table_name, f"{table_name}__quarantine")
        for file in (home / Path(*name.split("."))).rglob("*") if file.is_file()
    } | {file for file in (home / "data").rglob("*") if file.is_file()}  # fmt: skip
    assert files and files <= synced
    assert {folder for file in files for folder in file.parents if home in folder.parents} <= synced
    assert home in synced, "the folder of the catalog, out of which its journal goes"


@pytest.mark.embedded_only("it looks at the files beside the SQLite catalog")
def test_a_capture_syncs_what_spark_says_of_its_batches(
    opened: Callable[[bool], Lake], table_name: str, tmp_path: Path, synced: set[Path]
) -> None:
    put(tmp_path / "in" / "a.jsonl", '{"id": 1}\n')
    checkpoint = tmp_path / "checkpoint"

    opened(True).table(table_name).capture(
        tmp_path / "in", name="c", checkpoint=checkpoint
    ).awaitTermination()

    assert {checkpoint / "spark" / name for name in ("metadata", "offsets/0", "sources/0/0")} <= synced


def test_nothing_is_synced_in_a_lake_without_durability(
    opened: Callable[[bool], Lake], table_name: str, tmp_path: Path, synced: set[Path]
) -> None:
    put(tmp_path / "in" / "a.jsonl", '{"id": 1}\n')
    table = opened(False).table(table_name)

    table.ingest(put(tmp_path / "b.jsonl", '{"id": 1}\n'))
    table.capture(tmp_path / "in", name="c", checkpoint=tmp_path / "checkpoint").awaitTermination()

    assert not synced


def test_new_lake_without_a_table_has_nothing_to_recover(tmp_path: Path) -> None:
    record_home(tmp_path)

    EmbeddedLake(tmp_path, None, durable=True).recover()


@pytest.mark.embedded_only("a table goes back by its row in the SQLite catalog")
def test_table_whose_newest_metadata_file_is_cut_is_at_the_version_before_once_attached(
    iceberg: Lake, folder: Path, table_name: str, tmp_path: Path
) -> None:
    table = iceberg.table(table_name)
    for number in (1, 2):
        table.ingest(put(tmp_path / f"{number}.jsonl", f'{{"id": {number}}}\n'))
    with closing(sqlite3.connect(folder / "catalog.db")) as database:
        (newest,) = database.execute(
            "select metadata_location from iceberg_tables where table_name = ?",
            [table_name.partition(".")[2]],
        ).fetchone()
    put(Path(newest.removeprefix("file:")), "")

    # Iceberg would read the file again and again for a minute and a half, if it read it at all.
    attached = Lake.attach(iceberg.spark.newSession(), "lake")
    began = time.monotonic()
    assert [row.id for row in attached.sql(f"select id from lake.{table_name}").collect()] == [1]
    assert time.monotonic() - began < 60
    table.ingest(tmp_path / "2.jsonl")
    assert sorted(row.id for row in table.read().collect()) == [1, 2]


@pytest.mark.embedded_only("it breaks the SQLite catalog")
def test_lake_whose_catalog_is_no_database_says_so_in_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "catalog.db", "no database")
    session = spark.newSession()
    for key, value in embedded_catalog(tmp_path).items():
        session.conf.set(f"spark.sql.catalog.broken.{key}", value)

    with pytest.raises(
        SetupError, match=r"catalog\.db, the catalog of the lake, cannot be used: file is not"
    ):
        Lake.attach(session, "broken").tables()
