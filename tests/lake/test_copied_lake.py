"""Lakes that were copied or moved: no file of another lake is touched."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from driftline import DataError, Lake, UsageError
from driftline.formats.iceberg import catalog as catalog_module
from driftline.formats.iceberg import relocating
from driftline.formats.iceberg.catalog import Registration
from driftline.formats.iceberg.relocating import displaced_lake
from driftline.operations.doctor import checks
from driftline.runtime.disk import copy_file, replace_file
from lake.formats import by_pyiceberg

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
        assert f'Lake.open("{tmp_path}/copy").relocate() makes it a lake of its own' in str(refused.value)
    (check,) = (check for check in checks(tmp_path / "copy", ducklake=kind) if check.name == "lake")
    assert "is a copy of the lake at" in check.detail and "relocate" in check.fix
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
    assert f'Lake.open("{tmp_path}/moved").relocate()' in str(refused.value)
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

    lake.table("s.inside").ingest([{"id": 1}])
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    copy = opened(tmp_path / "copy", None)
    assert copy.relocate().tables == ("s.inside",)
    assert ids(copy) == [0, 1, 2, 3], "a table that lies outside stays where it is"


def test_a_folder_is_the_lake_that_it_has(kind: str | None, tmp_path: Path) -> None:
    ingest(opened(tmp_path / "lake", kind), tmp_path, 1)
    before = files(tmp_path / "lake")

    assert ids(Lake.open(tmp_path / "lake")) == [1]
    assert files(tmp_path / "lake") == before
    other = "duckdb" if kind != "duckdb" else "sqlite"
    with pytest.raises(UsageError, match="is a lake already, with its catalog in"):
        Lake.open(tmp_path / "lake", ducklake=other)


ORDERS = [
    {"id": 1, "day": "2026-01-01", "n": 1, "at": 1},
    {"id": 2, "day": "2026-01-01", "n": 2, "at": 1},
    {"id": 3, "day": "2026-01-02", "n": "x", "at": 1},
    {"id": 2, "day": "2026-01-01", "n": 5, "at": 2, "more": {"a": [1]}},
    {"id": 1, "op": "d", "at": 3},
]
VERSIONS = (2, 3)  # of Iceberg's format: files of positions, and deletion vectors


def fill(lake: Lake, folder: Path) -> None:
    """Make tables with all that has paths: rows by key, their deletes, partitions, changes, rejects, a ledger."""
    first, second, bad = folder / "first.jsonl", folder / "second.jsonl", folder / "bad.jsonl"
    first.write_text("".join(json.dumps(order) + "\n" for order in ORDERS[:3]))
    second.write_text("".join(json.dumps(order) + "\n" for order in ORDERS[3:]))
    bad.write_text('{"id": 9, "day": "2026-01-03", "at": 9}\n{"id": \n')
    for version in VERSIONS:
        name = f"s.v{version}"
        if has_key(lake, version):
            lake.table(name).ingest(first, key="id", order_by="at", delete_when="op = 'd'")
            layout = "add partition field day" if is_iceberg(lake) else "set partitioned by (day)"
            lake.alter(f"alter table {name} {layout}")
            lake.table(name).ingest(second)
        else:
            lake.sql("create namespace if not exists lake.s")
            lake.sql(
                f"create table lake.{name} (id bigint, day date) using iceberg partitioned by (day) tblproperties "
                "('format-version' = '2', 'write.delete.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read')"
            )
            lake.table(name).ingest(first)
            lake.table(name).ingest(second)
            lake.sql(f"delete from lake.{name} where id = 2 and at = 1")
        lake.table(name).ingest(bad)
        lake.alter(f"alter table {name} add column hand int")


def is_iceberg(lake: Lake) -> bool:
    return lake.embedded is not None and lake.embedded.ducklake is None


def has_key(lake: Lake, version: int) -> bool:
    """False for Iceberg's tables of version 2, which have no keys: their rows are deleted by Spark."""
    return version > 2 or not is_iceberg(lake)


def contents(lake: Lake, version: int) -> dict[str, object]:
    """All that a table says of itself, by every road."""
    table = lake.table(f"s.v{version}")
    rows = sorted(table.read().select("id", "n").collect(), key=str)
    alone = table.to_arrow(columns=["id", "n"]).to_pylist()
    return {
        "rows": rows,
        "without Spark": sorted(map(str, alone)),
        "schema": table.schema().to_dict(),
        "history": table.history().to_dict()["changes"],
        "quarantined": table.quarantine().waiting,
        "settings": {
            k: v for k, v in table.state().properties.items() if k.startswith("driftline.") and "/" not in v
        },
        "snapshots": [snapshot.id for snapshot in table.format.snapshots(table.state().snapshot)],
    }


@pytest.mark.parametrize(
    ("kind", "copied"), [(None, True), (None, False), ("duckdb", True), ("sqlite", False)]
)
def test_a_relocated_lake_is_as_it_was_and_goes_on(
    spark: SparkSession, kind: str | None, copied: bool, tmp_path: Path
) -> None:
    """The path of the new place begins as that of the old one does."""
    old, new = tmp_path / "lake", tmp_path / "lake.new"
    lake = opened(old, kind)
    fill(lake, tmp_path)
    before = {version: contents(lake, version) for version in VERSIONS}
    if copied:
        shutil.copytree(old, new)
        originals = files(old)
    else:
        old.rename(new)
    planned = opened(new, kind).relocate(dry_run=True)
    relocated = opened(new, kind).relocate()

    assert replace(planned, is_done=True) == relocated
    assert (relocated.home, relocated.is_copy) == (str(old), copied)
    assert set(relocated.tables) >= {"s.v2", "s.v3", "s.v2__quarantine"}
    if copied:
        assert files(old) == originals
        assert contents(lake, 2) == before[2]
        shutil.rmtree(old)  # nothing of the new one is there
    here = opened(new, kind)
    assert {version: contents(here, version) for version in VERSIONS} == before
    for version in VERSIONS:
        table = here.table(f"s.v{version}")
        with pytest.raises(DataError, match="in the table already"):
            table.ingest(tmp_path / "second.jsonl")
        done = table.ingest([{"id": 1, "day": "2026-01-01", "n": 1, "at": 2}, {"id": 3, "n": 7, "at": 9}])
        if has_key(here, version):
            assert (done.to_dict()["late"], done.to_dict()["updated"]) == (1, 1)
        assert table.verify(tmp_path / "second.jsonl").missing == 0
    if kind is None:
        by_others = [
            sorted(by_pyiceberg(here.table(f"s.v{v}"), "id").column("id").to_pylist()) for v in VERSIONS
        ]
        assert by_others == [
            sorted(row.id for row in here.table(f"s.v{v}").read().collect()) for v in VERSIONS
        ]
    after = {version: contents(here, version) for version in VERSIONS}
    here.clean(0)
    assert {version: contents(here, version) for version in VERSIONS} == after
    with pytest.raises(UsageError, match="is no lake that was copied or moved"):
        here.relocate()
    text = b"".join(
        path.read_bytes() for path in new.rglob("*") if path.suffix in (".json", ".puffin", ".db")
    )
    assert f"{old}/".encode() not in text


class Killed(BaseException):
    """The end of a process."""


def test_a_relocation_that_dies_anywhere_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run dies one step later than the one before, in the midst of its files, its catalog, its deletions."""
    lake, copy = opened(tmp_path / "lake", None), tmp_path / "copy"
    for id_ in range(2):
        ingest(lake, tmp_path, id_)
    shutil.copytree(tmp_path / "lake", copy)
    before, originals, steps = files(copy), files(tmp_path / "lake"), Steps()
    for name in ("replace_file", "sync", "set_home", "delete_file"):
        monkeypatch.setattr(relocating, name, steps.counted(getattr(relocating, name)))
    while True:
        steps.left = steps.survived = steps.survived + 1
        try:
            opened(copy, None).relocate()
        except Killed:
            assert files(tmp_path / "lake") == originals
            whole = displaced_lake(copy) is None
            assert whole or before <= files(copy)
            if whole:  # what is left are files that nothing names
                break
        else:
            break
    assert steps.survived >= 8
    assert ids(opened(copy, None)) == [0, 1]
    ingest(opened(copy, None), tmp_path, 2)
    assert ids(opened(copy, None)) == [0, 1, 2]
    assert ids(lake) == [0, 1]


class Steps:
    """Steps of a process, which dies once it has made some."""

    def __init__(self) -> None:
        self.left = self.survived = 0

    def counted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step, behind which the process may die."""

        def made(*args: Any, **options: Any) -> Any:
            """Make the step, or die before it."""
            if self.left == 0:
                raise Killed
            self.left -= 1
            return step(*args, **options)

        return made


def test_a_copy_without_one_of_its_files_is_not_relocated(kind: str | None, tmp_path: Path) -> None:
    lake, copy = opened(tmp_path / "lake", kind), tmp_path / "copy"
    ingest(lake, tmp_path, 1)
    shutil.copytree(tmp_path / "lake", copy)
    (gone,) = (path for path in files(copy) if path.suffix == ".parquet")
    gone.unlink()
    for dry_run in (True, False):
        with pytest.raises(DataError, match=f"{gone} is missing, and a table of the lake names it"):
            opened(copy, kind).relocate(dry_run=dry_run)
    shutil.copy(tmp_path / "lake" / gone.relative_to(copy), gone)
    assert opened(copy, kind).relocate().is_done
    assert ids(opened(copy, kind)) == [1]


def test_a_lake_moved_into_its_old_folder_and_back_is_relocated(
    kind: str | None, earlier: bool, tmp_path: Path
) -> None:
    """Paths of the new place then begin with the old one, and the next way is the reverse."""
    lake, within = tmp_path / "lake", tmp_path / "lake" / "s"
    ingest(opened(lake, kind), tmp_path, 1)
    if earlier:
        forget_home(lake, kind)
    lake.rename(tmp_path / "away")
    lake.mkdir()
    (tmp_path / "away").rename(within)
    opened(within, kind).relocate()
    ingest(opened(within, kind), tmp_path, 2)
    assert ids(opened(within, kind)) == [1, 2]
    within.rename(tmp_path / "away")
    lake.rmdir()
    (tmp_path / "away").rename(lake)
    opened(lake, kind).relocate()
    assert ids(opened(lake, kind)) == [1, 2]
    assert opened(lake, kind).table("s.t").verify(tmp_path / "1.jsonl").ok


# -- one table, to another lake


def test_moved_lake_whose_newest_metadata_file_is_cut_is_relocated_at_the_version_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = opened(tmp_path / "lake", None)
    for number in (1, 2):
        ingest(lake, tmp_path, number)
    moved = (tmp_path / "lake").rename(tmp_path / "moved")
    newest = max(moved.rglob("*.metadata.json"), key=lambda path: path.name)
    newest.write_bytes(newest.read_bytes()[:99])

    opened(moved, None).relocate()

    assert ids(opened(moved, None)) == [1]
    ingest(opened(moved, None), tmp_path, 2)
    assert ids(opened(moved, None)) == [1, 2]


def refs(lake: Lake, name: str) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in lake.sql(f"select name, type, snapshot_id from lake.{name}.refs").collect()}


@pytest.mark.iceberg_only("a DuckLake's tables have their history in one catalog")
def test_a_table_in_another_lake_is_as_it_was_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing of the new one is in the old place, whose own tables stay as they are."""
    lake, other = opened(tmp_path / "lake", None), opened(tmp_path / "other", None)
    fill(lake, tmp_path)
    assert other.tables() == []
    for version in VERSIONS:
        lake.sql(f"alter table lake.s.v{version} create tag first")
        lake.sql(f"alter table lake.s.v{version} create branch audit")
    before = {version: contents(lake, version) for version in VERSIONS}
    named = {version: refs(lake, f"s.v{version}") for version in VERSIONS}
    files_before = files(tmp_path / "lake")
    plans = {version: lake.relocate(f"s.v{version}", to=other, dry_run=True) for version in VERSIONS}
    assert {path.name for path in files(tmp_path / "other")} == {"catalog.db"}
    for version, planned in plans.items():
        done = lake.relocate(f"s.v{version}", to=other)
        assert replace(planned, is_done=True) == done
        assert done.tables == (f"s.v{version}", f"s.v{version}__quarantine")
        assert done.copied > 1 and done.bytes > 0
    assert {version: contents(lake, version) for version in VERSIONS} == before
    assert files(tmp_path / "lake") == files_before
    (tmp_path / "lake").rename(tmp_path / "away")

    assert {version: contents(other, version) for version in VERSIONS} == before
    assert {version: refs(other, f"s.v{version}") for version in VERSIONS} == named
    for version in VERSIONS:
        table = other.table(f"s.v{version}")
        with pytest.raises(DataError, match="in the table already"):
            table.ingest(tmp_path / "second.jsonl")
        done = table.ingest([{"id": 1, "day": "2026-01-01", "n": 1, "at": 2}, {"id": 3, "n": 7, "at": 9}])
        if has_key(other, version):
            assert (done.to_dict()["late"], done.to_dict()["updated"]) == (1, 1)
        assert table.verify(tmp_path / "second.jsonl").missing == 0
        by_others = sorted(by_pyiceberg(table, "id").column("id").to_pylist())
        assert by_others == sorted(row.id for row in table.read().collect())
    after = {version: contents(other, version) for version in VERSIONS}
    other.clean(0)
    assert {version: contents(other, version) for version in VERSIONS} == after
    text = b"".join(
        path.read_bytes()
        for path in (tmp_path / "other").rglob("*")
        if path.suffix in (".json", ".puffin", ".db")
    )
    assert f"{tmp_path}/lake/".encode() not in text


@pytest.mark.iceberg_only("a DuckLake's tables have their history in one catalog")
def test_a_table_that_dies_on_its_way_to_another_lake_is_copied_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run dies one step later, and what it has copied is not copied again."""
    lake, other, steps = opened(tmp_path / "lake", None), opened(tmp_path / "other", None), Steps()
    for id_ in range(2):
        ingest(lake, tmp_path, id_)
    (tmp_path / "bad.jsonl").write_text('{"id": 2}\n{"id"\n')
    lake.table("s.t").ingest(tmp_path / "bad.jsonl")
    copies: list[Path] = []
    monkeypatch.setattr(
        catalog_module,
        "copy_file",
        steps.counted(lambda *paths: copies.append(paths[1]) or copy_file(*paths)),
    )
    monkeypatch.setattr(catalog_module, "replace_file", steps.counted(replace_file))
    monkeypatch.setattr(Registration, "register", steps.counted(Registration.register))
    while True:
        steps.left = steps.survived = steps.survived + 1
        try:
            lake.relocate("s.t", to=other)
        except Killed:
            assert other.tables() == []
        else:
            break
    assert steps.survived >= 10
    assert len(copies) == len(set(copies))
    assert ids(other) == [0, 1, 2]
    assert other.table("s.t").quarantine().waiting == 1
    with pytest.raises(UsageError, match=f"there is a table s.t in {tmp_path}/other already"):
        lake.relocate("s.t", to=other)
    steps.left = 10**6
    other.alter("alter table s.t rename to s.u")
    other.table("s.u").ingest([{"id": 3}])
    with pytest.raises(
        DataError, match=f"s.t would lie in {tmp_path}/other/s/t, where .* is of another table"
    ):
        lake.relocate("s.t", to=other)


@pytest.mark.iceberg_only("a DuckLake's tables have their history in one catalog")
def test_a_table_that_others_write_to_is_not_registered(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other, copy = opened(tmp_path / "lake", None), opened(tmp_path / "other", None), Registration.copy
    ingest(lake, tmp_path, 1)

    def slowly(registration: Registration, copied: dict[str, Path]) -> None:
        copy(registration, copied)
        ingest(lake, tmp_path, 2)

    with monkeypatch.context() as patched:
        patched.setattr(Registration, "copy", slowly)
        with pytest.raises(DataError, match=r"s\.t has changed while it was copied"):
            lake.relocate("s.t", to=other)
    assert other.tables() == []
    assert lake.relocate("s.t", to=other).tables == ("s.t",)
    assert ids(other) == [1, 2]


@pytest.mark.iceberg_only("a DuckLake's tables have their history in one catalog")
def test_a_table_with_files_elsewhere_or_a_ducklake_is_not_copied_to_another_lake(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, other = opened(tmp_path / "lake", None), opened(tmp_path / "other", None)
    ingest(lake, tmp_path, 1)
    ducklake = opened(tmp_path / "ducklake", "sqlite")
    ingest(ducklake, tmp_path, 1)
    for a, b in ((ducklake, other), (lake, ducklake)):
        with pytest.raises(UsageError, match="so none is relocated alone"):
            a.relocate("s.t", to=b)
    with pytest.raises(UsageError, match=r"there is no table s\.x"):
        lake.relocate("s.x", to=other)
    with pytest.raises(UsageError, match="give both"):
        lake.relocate("s.t")
    (gone,) = (path for path in files(tmp_path / "lake") if path.suffix == ".parquet")
    gone.rename(tmp_path / "kept")
    with pytest.raises(DataError, match=f"{gone} is missing"):
        lake.relocate("s.t", to=other, dry_run=True)
    (tmp_path / "kept").rename(gone)
    lake.sql(f"alter table lake.s.t set tblproperties ('write.data.path' = '{tmp_path}/far')")
    with pytest.raises(
        DataError, match=rf"write\.data\.path = {tmp_path}/far lies outside {tmp_path}/lake/s/t"
    ):
        lake.relocate("s.t", to=other)
    ingest(lake, tmp_path, 2)
    lake.sql("alter table lake.s.t unset tblproperties ('write.data.path')")
    with pytest.raises(DataError, match=f"{tmp_path}/far/.* lies outside {tmp_path}/lake/s/t"):
        lake.relocate("s.t", to=other)
    assert other.tables() == []
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    with pytest.raises(UsageError, match="is a copy of the lake at"):
        opened(tmp_path / "copy", None).relocate("s.t", to=other)


@pytest.mark.iceberg_only("a DuckLake's tables have their history in one catalog")
def test_a_capture_goes_on_in_another_lake(spark: SparkSession, tmp_path: Path) -> None:
    """By its checkpoint, which is copied, or by what the table says that it has."""
    lake = opened(tmp_path / "lake", None)
    for way, options in (("checkpoint", {}), ("table", {"resume_from": "table"})):
        table, other, source = lake.table(f"s.{way}"), opened(tmp_path / f"by_{way}", None), tmp_path / way
        source.mkdir()
        for id_ in range(2):
            (source / f"{id_}.jsonl").write_text(f'{{"id": {id_}}}\n')
            table.capture(str(source), name="c").awaitTermination(120)
        lake.relocate(table.name, to=other)
        if way == "checkpoint":
            shutil.copytree(*(tmp_path / at / "_captures" / table.name for at in ("lake", "by_checkpoint")))
        (source / "2.jsonl").write_text('{"id": 2}\n')
        for more in (options, {}):
            other.table(table.name).capture(str(source), name="c", **more).awaitTermination(120)
            assert sorted(row.id for row in other.table(table.name).read().collect()) == [0, 1, 2]
        assert sorted(row.id for row in table.read().collect()) == [0, 1]


# -- catalogs on servers, which record no home


def of_a_server(folder: Path, database: str) -> Lake:
    """A lake in a catalog that no folder has, as one on a server: here a file that stands for its database."""
    properties = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{folder}/{database}.db",
        "jdbc.schema-version": "V1",
        "warehouse": f"{folder}/warehouse",
    }
    return Lake.open(folder / "unused", properties=properties)


@pytest.mark.iceberg_only("a DuckLake's catalog on a server is asked for its own files")
def test_files_outside_the_location_of_a_servers_table_stay(spark: SparkSession, tmp_path: Path) -> None:
    lake, away = of_a_server(tmp_path, "server"), tmp_path / "away"
    lake.sql("create namespace lake.s")
    lake.sql(f"create table lake.s.t (id bigint) using iceberg tblproperties ('write.data.path' = '{away}')")
    ingest(lake, tmp_path, 1)
    (data,) = away.rglob("*.parquet")
    inside, outside = (
        folder / f"{'f' * 32}-00000-0-00001.parquet" for folder in (tmp_path / "warehouse/s/t/data", away)
    )
    for path in (inside, outside):
        path.parent.mkdir(exist_ok=True)
        shutil.copy(data, path)
    assert [file.path for file in lake.clean(0)] == [f"file:{inside}"]
    assert outside.exists()
    assert ids(lake) == [1]


@pytest.mark.iceberg_only("a DuckLake's files have no metadata that is later than its catalog")
def test_clean_by_a_restored_catalog_of_a_server_leaves_the_newer_files_of_the_table(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A dump of the database is restored beside the original, which goes on."""
    lake = of_a_server(tmp_path, "server")
    ingest(lake, tmp_path, 1)
    shutil.copy(tmp_path / "server.db", tmp_path / "restored.db")
    ingest(lake, tmp_path, 2)
    before = files(tmp_path / "warehouse")
    assert of_a_server(tmp_path, "restored").clean(0) == []
    assert "is later than the catalog's metadata, so its files are left alone" in caplog.text
    assert files(tmp_path / "warehouse") == before
    assert ids(lake) == [1, 2]
    assert lake.clean(0) == []
