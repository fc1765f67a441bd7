"""A DuckLake whose writer dies: the table as before or as after, and no litter that a command does not find."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftline.errors import SetupError
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.lake import Lake, Table
from lake.ducklake_peer import run, same
from lake.formats import database, ducklake_at
from servers.postgres import Postgres

BATCH = """
import os, sys
from pathlib import Path
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.formats.ducklake import commit
from driftline.lake import Lake
lake = Lake.open(sys.argv[1], ducklake="sqlite", properties={"spark.master": "local[1]", "spark.driver.memory": "1g"})
DuckLakeTransaction.commit_with = lambda self, others: os._exit(9)
lake.table("s.t").ingest(sys.argv[2])
"""

COMMIT = """
import os, sys
from pathlib import Path
from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake import commit
catalog = CatalogDatabase.of(sys.argv[2], Path(sys.argv[1]))
catalog.make()
finish = commit._finish
def dies(*of_snapshot):
    finish(*of_snapshot)
    os._exit(9)
commit._finish = dies
schema = Schema(Struct((Field("a", LONG, 1),)))
intent = commit.TableCommit("s.t", None, schema, "/nowhere/")
message = commit.CommitMessage("me", "text", {})
catalog.write(lambda connection: commit.commit(connection, [intent], message), lambda _: False)
"""


def test_killed_between_writing_and_registering(spark: SparkSession, tmp_path: Path) -> None:
    folder, file = tmp_path / "lake", tmp_path / "in.jsonl"
    file.write_text('{"a": 1}\nbroken\n')
    died = subprocess.run(
        [sys.executable, "-c", BATCH, str(folder), str(file)], capture_output=True, check=False
    )
    assert died.returncode == 9, died.stderr.decode()[-3000:]
    lake = ducklake_at(spark, CatalogDatabase.of("sqlite", folder))
    table = lake.table("s.t")
    assert not table.format.load().exists
    left = lake.clean(dry_run=True)
    assert left == []  # they may be a batch's that goes on
    left = lake.clean(0, dry_run=True)
    assert {p.path.rpartition(".")[2] for p in left} == {"parquet"}
    table.ingest(file)
    assert lake.clean(0) == left
    assert lake.clean(0) == []
    assert len(same(table.format, tmp_path)) == 1
    assert lake.sql("select * from s.t__quarantine").count() == 1
    run(database(lake), "INSERT INTO lk.s.t SELECT * FROM range(50)", "DELETE FROM lk.s.t WHERE a = 3")
    assert lake.clean(0) == []
    assert len(same(table.format, tmp_path)) == 50


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_killed_while_it_registers(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    died = subprocess.run(
        [sys.executable, "-c", COMMIT, str(tmp_path), kind], capture_output=True, check=False
    )
    assert died.returncode == 9, died.stderr.decode()[-3000:]
    lake = ducklake_at(spark, CatalogDatabase.of(kind, tmp_path))
    table = lake.table("s.t")
    assert not table.format.load().exists
    file = tmp_path / "in.jsonl"
    file.write_text('{"a": 1}')
    assert table.ingest(file).snapshot == 1
    assert len(same(table.format, tmp_path)) == 1


CAPTURE = """
import os, signal, sys
from pathlib import Path
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.formats.ducklake import catalog
from driftline.formats.ducklake import commit
from driftline.lake import Lake
folder, files, named, phase = sys.argv[1:]
lake = Lake.open(folder, ducklake=named, properties={"spark.master": "local[1]", "spark.driver.memory": "1g"})
def dies(*_):
    os.killpg(0, signal.SIGKILL)
def dies_after(work):
    return lambda *given: (work(*given), dies())
if phase == "files are written":
    DuckLakeTransaction.commit_with = dies
elif phase == "rows are in the transaction":
    commit._finish = dies_after(commit._finish)
else:
    execute = catalog.Connection.execute
    catalog.Connection.execute = lambda self, sql, *given: (
        execute(self, sql, *given),
        sql == "COMMIT" and dies(),
    )
lake.table("s.t").capture(files, name="c").awaitTermination()
"""


@pytest.mark.parametrize(
    "phase", ["files are written", "rows are in the transaction", "the server has committed"]
)
def test_a_capture_killed_around_a_servers_transaction(
    spark: SparkSession, postgres: Postgres, tmp_path: Path, phase: str
) -> None:
    """Python and Java go by SIGKILL; the next run of the capture brings what is not in, and nothing twice."""
    folder, files, named = tmp_path / "lake", tmp_path / "in", postgres.database()
    files.mkdir()
    lake = ducklake_at(spark, CatalogDatabase.of(named, folder))
    table = lake.table("s.t")

    def records(number: int) -> None:
        (files / f"{number}.jsonl").write_text(f'{{"id": {number}, "c{number}": 1}}\nbroken {number}\n')

    records(0)
    table.capture(str(files), name="c").awaitTermination()
    records(1)
    died = subprocess.run(
        [sys.executable, "-c", CAPTURE, str(folder), str(files), named, phase],
        capture_output=True, check=False, start_new_session=True,
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-3000:]
    there = [0, 1] if phase == "the server has committed" else [0]
    assert ids(table) == there
    assert waiting(lake) == [f"broken {i}" for i in there]
    records(2)
    table.capture(str(files), name="c").awaitTermination()
    assert ids(table) == [0, 1, 2]
    assert waiting(lake) == ["broken 0", "broken 1", "broken 2"]
    left = lake.clean(0)
    assert bool(left) == (phase != "the server has committed")
    assert len(same(table.format, tmp_path)) == 3


def ids(table: Table) -> list[int]:
    return sorted(row.id for row in table.read().select("id").collect())


def waiting(lake: Lake) -> list[str]:
    return sorted(row.raw for row in lake.sql("select raw from s.t__quarantine").collect())


def test_a_catalog_that_another_process_holds(spark: SparkSession, tmp_path: Path) -> None:
    """A DuckDB file has one process at a time: the other waits for its turn."""
    lake = ducklake_at(spark, CatalogDatabase.of("duckdb", tmp_path))
    file = tmp_path / "in.jsonl"
    file.write_text('{"a": 1}')
    lake.table("s.t").ingest(file)
    hold = (
        "import duckdb, sys, time; c = duckdb.connect(sys.argv[1]); print('held', flush=True); time.sleep(3)"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold, database(lake).target], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert lake.table("s.t").ingest(file, again=True).rows_written == 1
    assert holder.wait() == 0
    holder.stdout.close()
    assert len(same(lake.table("s.t").format, tmp_path)) == 2


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
def test_a_disk_that_is_full_at_the_commit(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that the catalog has can be read, and the rest leaves no file behind."""
    lake = ducklake_at(spark, CatalogDatabase.of(kind, tmp_path))
    table, file = lake.table("s.t"), tmp_path / "in.jsonl"
    commit, there = DuckLakeTransaction.commit, [-1]
    file.write_text('{"id": -1}')
    table.ingest(file)

    for room in (1_000, Path(database(lake).target).stat().st_size):

        def full(self: DuckLakeTransaction, room: int = room) -> None:
            with no_file_beyond(room):
                commit(self)

        # So many long names that the catalog's file has to grow.
        file.write_text(json.dumps({"id": room} | {f"{i}_{'long' * 50}_{room}": i for i in range(300)}))
        with monkeypatch.context() as patch, suppress(SetupError):
            patch.setattr(DuckLakeTransaction, "commit", full)
            table.ingest(file)
            there.append(room)
        assert ids(table) == there
        assert lake.clean(0) == []
    assert len(there) == (2 if kind == "duckdb" else 1)
