"""Catalogs that are not to be had: each says why, and what to do."""

from __future__ import annotations

import resource
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from driftline.errors import SetupError
from driftline.formats.base import UnknownError
from driftline.formats.ducklake import catalog
from driftline.formats.ducklake.catalog import CatalogDatabase, Connection
from driftline.formats.ducklake.commit import _finish, _next, landed
from driftline.formats.ducklake.rows import CommitMessage
from driftline.formats.ducklake.snapshot import latest


@pytest.fixture
def lake(tmp_path: Path) -> CatalogDatabase:
    made = CatalogDatabase.of("duckdb", tmp_path)
    made.make()
    return made


def never(_: Connection) -> bool:
    return False


def test_duckdb_beside_us_is_waited_for(lake: CatalogDatabase) -> None:
    with duckdb.connect() as beside:
        beside.execute(f"ATTACH '{lake.target}' AS mine")
        released = threading.Timer(0.5, lambda: beside.execute("DETACH mine"))
        released.start()
        begun = time.monotonic()
        assert lake.read(latest) == 0
        assert time.monotonic() - begun > 0.4
        released.join()


def test_duckdb_beside_us_that_keeps_it(lake: CatalogDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "BESIDE", 0.2)
    with duckdb.connect() as beside:
        beside.execute(f"ATTACH '{lake.target}' AS __ducklake_metadata_mine")  # as DuckLake's own ATTACH does
        for work in (
            lambda: lake.read(latest),
            lambda: lake.write(latest, never),
            lambda: lake.by_duckdb("SELECT 1"),
        ):
            with pytest.raises(SetupError, match="attached in this process, as mine") as told:
                work()
            assert told.value.hint is not None
            assert told.value.hint.startswith("DETACH mine there")
        beside.execute("DETACH __ducklake_metadata_mine")
        assert lake.read(latest) == 0


def test_a_file_of_duckdb_2(lake: CatalogDatabase) -> None:
    def mixed(word: int) -> int:
        return (
            word * 0xBF58476D1CE4E5B9 % 2**64
        )  # the checksum in front of a block is these, put together by xor

    file = Path(lake.target)
    whole = file.read_bytes()
    checksum, word = (int.from_bytes(whole[at : at + 8], "little") for at in (0, 8))
    assert whole[8:12] == b"DUCK"
    later = word % 2**32 + (999 << 32)  # the version of the storage, as DuckDB 2.0.1.dev writes it
    head = checksum ^ mixed(word) ^ mixed(later), later
    file.write_bytes(b"".join(n.to_bytes(8, "little") for n in head) + whole[16:])
    with pytest.raises(SetupError, match=r"made by DuckDB 2 or later, and DuckDB 1\."):
        lake.read(latest)


def test_a_catalog_of_specification_1_1(lake: CatalogDatabase) -> None:
    lake.write(
        lambda c: c.execute("UPDATE meta.ducklake_metadata SET value = '1.1' WHERE key = 'version'"), never
    )
    with pytest.raises(SetupError, match=r"version 1\.1, not 1\.0") as told:
        lake.read(latest)
    assert told.value.hint == "a newer driftline may know it"


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Inside, no file of this process gets larger, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_disk_that_is_full_at_the_commit(tmp_path: Path, kind: str) -> None:
    """The writer hears what the catalog has: a checkpoint that fails behind the COMMIT is no failure
    of that."""
    lake = CatalogDatabase.of(kind, tmp_path)
    lake.make()
    told, size = [], Path(lake.target).stat().st_size
    for room in (1_000, size // 2, size, size + 100_000, 10**9):
        message = CommitMessage("me", "x" * 300_000, {})
        with no_file_beyond(room):
            try:
                lake.write(partial(snapshot, message=message), partial(landed, message=message))
                told.append(True)
            except SetupError:
                told.append(False)
        assert lake.read(partial(landed, message=message)) == told[-1]
    assert told[0] is False
    assert told[-1] is True


def snapshot(connection: Connection, message: CommitMessage) -> None:
    _finish(connection, _next(connection), message)


class Lost(Connection):
    """A connection that ends in the COMMIT, before or behind it."""

    behind = False

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        if sql != "COMMIT":
            return super().execute(sql, parameters)
        if self.behind:
            super().execute(sql)
        raise duckdb.IOException("TransactionContext Error: Failed to commit: server closed the connection")


@pytest.mark.parametrize("kind", ["duckdb", "postgres"])
@pytest.mark.parametrize("behind", [True, False])
def test_a_connection_that_is_lost_in_the_commit(
    lake: CatalogDatabase, monkeypatch: pytest.MonkeyPatch, kind: str, behind: bool
) -> None:
    monkeypatch.setattr(catalog, "Connection", type("Lost", (Lost,), {"behind": behind}))
    monkeypatch.setitem(catalog._TYPES, "postgres", "DUCKDB")
    monkeypatch.setitem(catalog._EXTENSIONS, "postgres", ())
    served, message = replace(lake, kind=kind), CommitMessage("me", "", {})
    begun: list[Connection] = []

    def work(connection: Connection) -> None:
        begun.append(connection)
        snapshot(connection, message)

    if behind:
        served.write(work, partial(landed, message=message))
    else:
        # A server may be at it still.
        with pytest.raises(SetupError, match="not known" if kind == "postgres" else "did not commit"):
            served.write(work, partial(landed, message=message))
    assert len(begun) == 1
    assert lake.read(partial(landed, message=message)) == behind


def test_a_catalog_that_is_away_after_the_commit(
    lake: CatalogDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "Connection", Lost)

    def away(_: Connection) -> bool:
        raise SetupError("the catalog is away")

    with pytest.raises(UnknownError, match="not known"):
        lake.write(latest, away)


@pytest.fixture
def half_committed(tmp_path: Path) -> CatalogDatabase:
    """A catalog in SQLite whose writer died in its COMMIT: the journal beside it has the pages as they were."""
    source, died = (
        CatalogDatabase.of("sqlite", tmp_path / "source"),
        CatalogDatabase.of("sqlite", tmp_path / "died"),
    )
    source.make()
    Path(died.target).parent.mkdir()
    with closing(sqlite3.connect(source.target)) as writer:
        writer.execute("PRAGMA cache_size = 1")  # so pages reach the file before the COMMIT
        writer.execute("DELETE FROM ducklake_metadata")
        writer.execute("CREATE TABLE more (a TEXT)")
        writer.executemany("INSERT INTO more VALUES (?)", [("x" * 1000,) for _ in range(100)])
        for ending in ("", "-journal"):
            shutil.copy(f"{source.target}{ending}", f"{died.target}{ending}")
    return died


def test_a_transaction_that_died_half_way_is_rolled_back(half_committed: CatalogDatabase) -> None:
    assert half_committed.read(latest) == 0
    assert not Path(f"{half_committed.target}-journal").exists()
    assert half_committed.read(lambda connection: "more" in connection.tables()) is False
