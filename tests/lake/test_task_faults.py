"""Tasks that fail, run twice, come late or die: no row twice, and no file that nobody finds."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from driftline import Lake, Table
from driftline.convert import arrow_schema
from driftline.core.schema.types import Schema
from driftline.errors import DataError, SetupError
from driftline.formats.iceberg.catalog import IcebergCatalog
from driftline.formats.iceberg.files import SparkWriter
from driftline.formats.iceberg.table import IcebergTable
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.tasks import batch_folder
from driftline.write import Reported, SetAside
from lake.formats import database, written

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Killer:
    """Kills the task that tells of it: its files are closed by then."""

    def __reduce__(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Faulty:
    """Two tasks of three rows each. ``fault``: what befalls the second after its first row, or once its file is whole."""

    schema: Schema
    fault: str

    def rows(self, task: int, _: SetAside) -> Generator[pa.RecordBatch, None, Reported[Killer | None]]:
        types = arrow_schema(self.schema.struct)
        for i in range(3):
            yield pa.RecordBatch.from_pylist([{"a": 10 * task + i, "b": "x"}], schema=types)
            if task and i == 1:
                self.befall()
        return Reported(Killer() if task and self.fault == "not told" else None)

    def befall(self) -> None:
        if self.fault == "disk":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)


LAYOUTS = {"plain": "", "partitioned": "partitioned by (b)"}


def files_in(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and "metadata" not in file.parts]


def table_of(lake: Lake, name: str, layout: str) -> tuple[Table, Path]:
    lake.sql("create namespace if not exists lake.t")
    lake.sql(f"create table lake.{name} (a bigint, b string) using iceberg {LAYOUTS[layout]}")
    table = lake.table(name)
    return table, Path(str(table.format.handle.java().location()).removeprefix("file:"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("disk", "No space left on device"),
        ("killed", "exited unexpectedly"),
        ("not told", "exited unexpectedly"),
    ],
)
@pytest.mark.iceberg_only("a DuckLake's are in test_ducklake_faults.py")
def test_a_task_that_dies_leaves_no_file(
    lake: Lake, table_name: str, layout: str, fault: str, says: str
) -> None:
    table, folder = table_of(lake, table_name, layout)
    transaction = table.format.transaction(table.format.load())
    with pytest.raises(Exception, match=says):
        written(lake.spark, transaction, Faulty(transaction.schema, fault))
    assert files_in(folder) == []
    transaction.abandon()
    assert table.read().count() == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.iceberg_only("a DuckLake's are in test_ducklake_faults.py")
def test_what_a_killed_driver_leaves_is_found(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    table, folder = table_of(lake, table_name, layout)
    for _ in range(2):
        transaction = table.format.transaction(table.format.load())
        written(lake.spark, transaction, Faulty(transaction.schema, "none"))
        transaction.commit()
    committed = files_in(folder)
    with monkeypatch.context() as patch:
        patch.setattr(batch_folder, "delete_folder", lambda *_, **__: None)
        transaction = table.format.transaction(table.format.load())
        written(lake.spark, transaction, Faulty(transaction.schema, "none"))
        staged = next(folder.rglob("*.gone"))
        (staged / f"00001-7-{staged.stem}-00001.parquet").write_bytes(b"half a file")
    left = sorted(str(file) for file in set(files_in(folder)) - set(committed))
    assert {Path(file).suffix for file in left} == {".parquet"} | (
        {".arrow"} if layout == "partitioned" else set()
    )

    # Not those of all tests before, which takes minutes.
    monkeypatch.setattr(IcebergCatalog, "tables", lambda _: [table_name])

    def found(hours: float, **options: Any) -> list[str]:
        paths = (file.path.removeprefix("file:") for file in lake.clean(hours, **options))
        return [path for path in paths if path.startswith(str(folder))]

    assert found(24) == []  # they may be a batch's that goes on
    assert found(0, dry_run=True) == left
    assert found(0) == left
    assert sorted(files_in(folder)) == sorted(committed)
    assert not staged.exists()
    assert table.read().count() == 12


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.iceberg_only("a DuckLake's are in test_ducklake_faults.py")
def test_nothing_stays_of_rows_that_spark_wrote_for_a_table_written_anew(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    table, file = lake.table(table_name), tmp_path / "in.jsonl"
    file.write_text('{"n": 1}\n{"n": "x"}')
    table.ingest(file, settings={"format_version": version})
    folder = Path(str(table.format.handle.java().location()).removeprefix("file:"))
    before, run = sorted(files_in(folder)), SparkWriter._run

    def written_in_vain(*args: Any) -> None:
        run(*args)
        raise DataError("power cut")

    monkeypatch.setattr(SparkWriter, "_run", written_in_vain)
    monkeypatch.setattr(IcebergCatalog, "tables", lambda _: [table_name])
    with pytest.raises(DataError, match="power cut"):
        table.resolve("n", "string")
    assert sorted(files_in(folder)) == before
    monkeypatch.setattr(IcebergTransaction, "abandon", lambda _: None)  # nothing cleans up after a kill
    with pytest.raises(DataError, match="power cut"):
        table.resolve("n", "string")
    assert len(files_in(folder)) > len(before)
    lake.clean(24)
    assert len(files_in(folder)) > len(before)
    lake.clean(0)
    assert sorted(files_in(folder)) == before
    monkeypatch.undo()
    assert table.resolve("n", "string").values == 2
    assert sorted(row.n for row in table.read().collect()) == ["1", "x"]


@pytest.mark.iceberg_only("Spark writes no file of a DuckLake in its place")
def test_an_error_of_sparks_writer_says_what_is_wrong(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, file = lake.table(table_name), tmp_path / "in.jsonl"
    file.write_text('{"n": 1}\n{"n": "x"}')
    table.ingest(file)
    file.write_text('{"waits": 1}')
    table.ingest(file, settings={"new_fields": "hold"})
    lake.sql(f"alter table lake.{table_name} set tblproperties ('write.data.path' = 'file:{file}/in')")
    for command in (lambda: table.resolve("n", "string"), lambda: table.promote(everything=True)):
        with pytest.raises(DataError, match=f"{table_name}: .*not a directory"):
            command()


def test_a_location_that_cannot_be_written(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, file = lake.table(table_name), tmp_path / "in.jsonl"
    file.write_text('{"a": 1}')
    table.ingest(file)
    transaction = table.format.transaction(table.format.load())
    location = Path(transaction.location.removeprefix("file:"))
    transaction.abandon()
    location.rename(location.with_name("away"))
    location.write_text("no folder")
    before = table.format.load()
    with pytest.raises(SetupError, match="no files of the table can be written there: Not a directory"):
        table.ingest(file, again=True)
    location.unlink()
    location.with_name("away").rename(location)
    assert table.format.load() == before
    assert table.ingest(file, again=True).rows_written == 1


@pytest.mark.hive_refuses("its namespaces have one part")
def test_clean_leaves_a_table_alone_that_lies_in_the_folder_of_another(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg puts nested.orders.data where nested.orders has its files; a DuckLake has no such names."""
    file, names = tmp_path / "in.jsonl", ["nested.orders", "nested.orders.data"]
    file.write_text('{"a": 1}')
    if database(lake) is not None:
        names = ["nested.orders", "nested.data"]
    else:
        monkeypatch.setattr(IcebergCatalog, "tables", lambda _: names)
    for name in names:
        # It may be there already, or others have made it.
        with monkeypatch.context() as patch:
            patch.setattr(IcebergTable, "_check_location", lambda *_: None)
            lake.table(name).ingest(file)
    assert not [orphan for orphan in lake.clean(0) if "/nested/" in orphan.path]
    assert [lake.table(name).read().count() for name in names] == [1, 1]


@pytest.mark.hive_refuses("its namespaces have one part")
@pytest.mark.iceberg_only("a DuckLake's tables have names of two parts, and a folder each")
@pytest.mark.parametrize("names", [("in_it.a", "in_it.a.b"), ("round_it.a.b", "round_it.a")])
def test_no_table_is_made_in_the_folder_of_another(
    lake: Lake, tmp_path: Path, names: tuple[str, str]
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"a": 1}')
    lake.table(names[0]).ingest(file)
    with pytest.raises(DataError, match=rf"{names[1]} cannot be created: its folder would be .* {names[0]},"):
        lake.table(names[1]).ingest(file)
    assert lake.table(names[0]).ingest(file, again=True).rows_written == 1
