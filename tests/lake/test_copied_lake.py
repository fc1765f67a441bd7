"""Lakes that were copied or moved: no file of another lake is touched."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from driftline import Lake, UsageError

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


CATALOGS = {None: "catalog.db", "duckdb": "catalog.ducklake", "sqlite": "catalog.sqlite"}


def forget_home(folder: Path, kind: str | None, home: Path | None = None) -> None:
    """Have a lake be one of an earlier version, which recorded no home, or of another ``home``."""
    catalog = folder / CATALOGS[kind]
    if kind == "duckdb":
        with duckdb.connect(catalog) as database:
            database.execute("delete from ducklake_metadata where key in ('driftline_home', 'driftline_id')")
            if home is not None:
                database.execute(
                    "insert into ducklake_metadata (key, value) values ('driftline_home', ?)", [str(home)]
                )
                database.execute("insert into ducklake_metadata (key, value) values ('driftline_id', 'x')")
        return
    with closing(sqlite3.connect(catalog)) as database, database:
        if kind is None:
            database.execute("delete from driftline_lake")
            if home is not None:
                database.execute("insert into driftline_lake values (?, 'x')", [str(home)])
            return
        database.execute("delete from ducklake_metadata where key in ('driftline_home', 'driftline_id')")
        if home is not None:
            database.execute(
                "insert into ducklake_metadata (key, value) values ('driftline_home', ?)", [str(home)]
            )
            database.execute("insert into ducklake_metadata (key, value) values ('driftline_id', 'x')")


@pytest.fixture(params=[False, True], ids=["home", "no_home"])
def earlier(request: pytest.FixtureRequest) -> bool:
    """True: the lake was made by an earlier version, which recorded no home."""
    return bool(request.param)


def test_clean_in_a_copy_deletes_nothing_even_if_it_is_taken_for_its_own(
    kind: str | None, tmp_path: Path
) -> None:
    lake, copy = opened(tmp_path / "lake", kind), tmp_path / "copy"
    ingest(lake, tmp_path, 1)
    shutil.copytree(tmp_path / "lake", copy)
    forget_home(copy, kind, copy / CATALOGS[kind])
    ingest(lake, tmp_path, 2)
    before = files(tmp_path / "lake")
    for path in before:
        os.utime(path, (1, 1))
    assert opened(copy, kind).clean(0) == []
    assert files(tmp_path / "lake") == before
    assert ids(lake) == [1, 2]


def test_a_copy_is_read_and_refuses_what_writes(kind: str | None, earlier: bool, tmp_path: Path) -> None:
    lake = opened(tmp_path / "lake", kind)
    ingest(lake, tmp_path, 1)
    if earlier:
        forget_home(tmp_path / "lake", kind)
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    before, lines = files(tmp_path), list[str]()
    copy = Lake.open(tmp_path / "copy", ducklake=kind, notify=lines.append)
    table = copy.table("s.t")

    assert ids(copy) == [1]
    assert lines == [
        f"{tmp_path}/copy is a copy of the lake at {tmp_path}/lake, whose files its tables name: it can only be read"
    ]
    assert [made.name for made in copy.tables()] == ["s.t"]
    assert "id" in str(table.schema())
    for write in (
        lambda: table.ingest(tmp_path / "1.jsonl", again=True),
        lambda: copy.table("s.new").ingest(tmp_path / "1.jsonl"),
        lambda: table.capture(str(tmp_path / "1.jsonl"), name="c"),
        lambda: copy.alter("alter table s.t add column x int"),
        lambda: copy.alter("alter table s.t rename to s.u"),
        lambda: copy.clean(0),
        lambda: copy.clean(0, dry_run=True),
    ):
        with pytest.raises(UsageError, match="is a copy of the lake at") as refused:
            write()
        assert f"driftline --lake {tmp_path}/copy relocate makes it a lake of its own" in str(refused.value)
    if kind is None:
        with pytest.raises(UsageError, match="is a copy of the lake at"):
            copy.sql("delete from s.t where true")
    assert files(tmp_path) == before
    ingest(lake, tmp_path, 2)
    assert ids(lake) == [1, 2]


def test_a_moved_lake_says_so_and_a_moved_ducklake_is_read(
    kind: str | None, earlier: bool, tmp_path: Path
) -> None:
    ingest(opened(tmp_path / "lake", kind), tmp_path, 1)
    if earlier:
        forget_home(tmp_path / "lake", kind)
    (tmp_path / "lake").rename(tmp_path / "moved")
    moved = opened(tmp_path / "moved", kind)
    said = f"{tmp_path}/moved is a lake that was made at {tmp_path}/lake"

    with pytest.raises(UsageError, match=said) as refused:
        moved.table("s.t").ingest(tmp_path / "1.jsonl", again=True)
    assert f"driftline --lake {tmp_path}/moved relocate" in str(refused.value)
    if kind is None:
        with pytest.raises(UsageError, match=said):
            moved.table("s.t").read()
        return
    assert ids(moved) == [1]
    assert moved.table("s.t").to_arrow().to_pylist() == [{"id": 1}]


def test_a_lake_is_at_home_under_every_name_of_its_folder(kind: str | None, tmp_path: Path) -> None:
    """A lake made before homes were recorded gets one, where its tables lie below it."""
    ingest(opened(tmp_path / "lake", kind), tmp_path, 1)
    forget_home(tmp_path / "lake", kind)
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    lake = opened(tmp_path / "link", kind)
    ingest(lake, tmp_path, 2)
    (tmp_path / "lake").rename(tmp_path / "moved")
    with pytest.raises(UsageError, match="is a lake that was made at"):
        opened(tmp_path / "moved", kind).table("s.t").ingest(tmp_path / "1.jsonl", again=True)


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


def test_a_folder_is_the_lake_that_it_has(kind: str | None, tmp_path: Path) -> None:
    ingest(opened(tmp_path / "lake", kind), tmp_path, 1)
    before = files(tmp_path / "lake")

    assert ids(Lake.open(tmp_path / "lake")) == [1]
    assert files(tmp_path / "lake") == before
    other = "duckdb" if kind != "duckdb" else "sqlite"
    with pytest.raises(UsageError, match="is a lake already, with its catalog in"):
        Lake.open(tmp_path / "lake", ducklake=other)
