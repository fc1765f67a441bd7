"""A DuckLake whose writer dies: the table as before or as after, and no litter that a command does not find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftline.formats.ducklake import Catalog
from driftline.lake import Lake
from lake.ducklake_peer import run, same

BATCH = """
import os, sys
from pathlib import Path
from driftline.formats.ducklake import DuckLakeTransaction, commit
from driftline.lake import Lake
lake = Lake.open(sys.argv[1], ducklake="sqlite", properties={"spark.master": "local[1]", "spark.driver.memory": "1g"})
DuckLakeTransaction.commit = lambda self: os._exit(9)
lake.table("s.t").ingest(sys.argv[2])
"""

COMMIT = """
import os, sys
from pathlib import Path
from driftline.core.types import LONG, Field, Schema, Struct
from driftline.formats.ducklake import Catalog, commit
catalog = Catalog.of(sys.argv[2], Path(sys.argv[1]))
catalog.make()
finish = commit._finish
def dies(connection, head, message):
    finish(connection, head, message)
    os._exit(9)
commit._finish = dies
schema = Schema(Struct((Field("a", LONG, 1),)))
wanted = commit.Wanted("s.t", None, schema, "/nowhere/")
catalog.write(lambda connection: commit.commit(connection, [wanted], commit.Message("me", "text", "{}")))
"""


def test_killed_between_writing_and_registering(spark: SparkSession, tmp_path: Path) -> None:
    folder, file = tmp_path / "lake", tmp_path / "in.jsonl"
    file.write_text('{"a": 1}\nbroken\n')
    died = subprocess.run(
        [sys.executable, "-c", BATCH, str(folder), str(file)], capture_output=True, check=False
    )
    assert died.returncode == 9, died.stderr.decode()[-3000:]
    lake = Lake(spark, "lake", Catalog.of("sqlite", folder))
    table = lake.table("s.t")
    assert not table.format.load().exists
    left = lake.clean(dry_run=True)
    assert left == []  # they may be a batch's that goes on
    left = lake.clean(0, dry_run=True)
    assert {p.path.rpartition(".")[2] for p in left} == {"parquet", "crc"}
    table.ingest(file)
    assert lake.clean(0) == left
    assert lake.clean(0) == []
    assert len(same(table.format, tmp_path)) == 1
    assert lake.sql("select * from s.t__quarantine").count() == 1
    assert lake.ducklake is not None
    run(lake.ducklake, "INSERT INTO lk.s.t SELECT * FROM range(50)", "DELETE FROM lk.s.t WHERE a = 3")
    assert lake.clean(0) == []
    assert len(same(table.format, tmp_path)) == 50


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_killed_while_it_registers(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    died = subprocess.run(
        [sys.executable, "-c", COMMIT, str(tmp_path), kind], capture_output=True, check=False
    )
    assert died.returncode == 9, died.stderr.decode()[-3000:]
    lake = Lake(spark, "lake", Catalog.of(kind, tmp_path))
    table = lake.table("s.t")
    assert not table.format.load().exists
    file = tmp_path / "in.jsonl"
    file.write_text('{"a": 1}')
    assert table.ingest(file).snapshot == 1
    assert len(same(table.format, tmp_path)) == 1


def test_a_catalog_that_another_process_holds(spark: SparkSession, tmp_path: Path) -> None:
    """A DuckDB file has one process at a time: the other waits for its turn."""
    lake = Lake(spark, "lake", Catalog.of("duckdb", tmp_path))
    file = tmp_path / "in.jsonl"
    file.write_text('{"a": 1}')
    lake.table("s.t").ingest(file)
    assert lake.ducklake is not None
    hold = (
        "import duckdb, sys, time; c = duckdb.connect(sys.argv[1]); print('held', flush=True); time.sleep(3)"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold, lake.ducklake.target], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert lake.table("s.t").ingest(file).rows_written == 1
    assert holder.wait() == 0
    holder.stdout.close()
    assert len(same(lake.table("s.t").format, tmp_path)) == 2
