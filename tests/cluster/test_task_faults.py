"""Python workers and executors that are killed while they write: the rows are there once, and nothing else."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from driftline.convert import arrow_schema
from driftline.core.schema.types import Schema
from driftline.formats.iceberg.gateway import items
from driftline.formats.leftovers import bare
from driftline.keys.slices import Slices
from driftline.lake import Lake, Table
from driftline.write import PartTasks, Reported, SetAside, folder_of_batch
from lake.formats import written

# Executors have not the folder in which the tests' own modules lie.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class Killed:
    """Two tasks of three rows each. The second one's first attempt is killed after its last row, or its executor is."""

    schema: Schema
    marker: str
    whole_executor: bool

    def rows(self, task: int, _: SetAside) -> Generator[pa.RecordBatch, None, Reported[None]]:
        for i in range(3):
            row = {"a": 10 * task + i, "b": "x"}
            yield pa.RecordBatch.from_pylist([row], schema=arrow_schema(self.schema.struct))
        if task and not Path(self.marker).exists():
            Path(self.marker).touch()
            if self.whole_executor:
                daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
                os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return Reported(None)


# Each catalog, layout and death with each of the others once: a new executor takes twenty seconds.
@pytest.mark.parametrize(
    ("lake", "layout", "whole_executor"),
    [
        ("jdbc", "", True),
        ("jdbc", "partitioned by (b)", False),
        ("rest", "", False),
        ("rest", "partitioned by (b)", True),
    ],
    ids=["jdbc-plain-executor", "jdbc-partitioned-worker", "rest-plain-worker", "rest-partitioned-executor"],
    indirect=["lake"],
)
def test_rows_of_a_killed_attempt_are_there_once(
    lake: Lake, table_name: str, tmp_path: Path, layout: str, whole_executor: bool
) -> None:
    namespace = table_name.partition(".")[0]
    lake.sql(f"create namespace if not exists {lake.catalog}.{namespace}")
    lake.sql(f"create table {lake.catalog}.{table_name} (a bigint, b string) using iceberg {layout}")
    table = lake.table(table_name)
    transaction = table.format.transaction(table.format.load())
    marker = tmp_path / "killed"
    tasks = Killed(transaction.schema, str(marker), whole_executor)
    assert written(lake.spark, transaction, tasks) == 6
    assert marker.exists()
    transaction.commit()
    assert sorted(row.a for row in table.read().collect()) == [0, 1, 2, 10, 11, 12]
    rows = lake.sql(f"select file_path from {lake.catalog}.{table_name}.files").collect()
    assert files_of(table) == {bare(row[0]) for row in rows}


@pytest.mark.parametrize(
    ("lake", "whole_executor"),
    [("jdbc", False), ("rest", True)],
    ids=["worker", "executor"],
    indirect=["lake"],
)
def test_changes_of_a_killed_attempt_wait_once(
    lake: Lake, table_name: str, tmp_path: Path, whole_executor: bool
) -> None:
    """Rows of a table with a key stand in slices first, each in that of the attempt that ended."""
    lake.sql(f"create namespace if not exists {lake.catalog}.{table_name.partition('.')[0]}")
    lake.sql(f"create table {lake.catalog}.{table_name} (a bigint, b string) using iceberg")
    table = lake.table(table_name)
    transaction = table.format.transaction(table.format.load())
    marker = tmp_path / "killed"
    tasks = PartTasks(lake.spark, (1, 1), Killed(transaction.schema, str(marker), whole_executor))
    with folder_of_batch(lake.spark, transaction) as folder:
        slices = Slices.of(tasks, folder, table_name)
        assert marker.exists()
        assert slices.read(["a"])["a"].to_pylist() == [0, 1, 2, 10, 11, 12]
    transaction.abandon()
    assert not files_of(table)


def files_of(table: Table) -> set[str]:
    """All files where the table has its data."""
    java = table.format.handle.java()
    found = {bare(str(file.location())) for file in items(java.io().listPrefix(f"{java.location()}/data/"))}
    return {path for path in found if not path.endswith("/")}  # of S3's, some objects only mark a folder
