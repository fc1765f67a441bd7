"""Files that tasks leave behind: of attempts that were repeated, late or lost, nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import count
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from driftline.convert import arrow_schema
from driftline.core.schema.definition import Transform
from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.errors import SetupError
from driftline.runtime.disk import local
from driftline.tasks.run import number_and_attempt
from driftline.write import (
    BatchFolder,
    Distribution,
    FilePlan,
    FileSettings,
    InFolder,
    Key,
    PartTasks,
    Reported,
    SetAside,
    WrittenFile,
    folder_of_batch,
    write_in_tasks,
)

SCHEMA = Schema(Struct((Field("a", LONG, 1),)))


class Rows:
    """Three rows a task, and one that is none."""

    def rows(self, given: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, Reported[int]]:
        for i in range(3):
            yield pa.RecordBatch.from_pydict(
                {"a": pa.array([10 * given + i])}, schema=arrow_schema(SCHEMA.struct)
            )
        set_aside(pa.RecordBatch.from_pydict({"raw": [str(given)]}))
        return Reported(given)


def tasks_of(context: Any, count: int) -> PartTasks:
    """So many tasks, on a Spark whose tasks are those of ``context``."""
    spark: Any = SimpleNamespace(sparkContext=context)
    return PartTasks(spark, (1,) * count, Rows())


class Context:
    """Runs each task twice, as where the first attempt was lost after its work; keeps what the last one tells."""

    defaultParallelism = 2  # noqa: N815  pyspark's name
    master = "spark://many"

    def __init__(self) -> None:
        self.late: list[Callable[[], Any]] = []

    def parallelize(self, shares: Sequence[Any], _: int) -> Context:
        self.shares = list(shares)
        return self

    def map(self, work: Callable[[Any], Any]) -> Context:
        self.work = work
        return self

    def collect(self) -> list[Any]:
        work = self.work
        self.late += [lambda share=share: work(share) for share in self.shares]
        return [[work(share) for _ in range(2)][-1] for share in self.shares]


@pytest.fixture(autouse=True)
def attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt has a number of its own, as Spark gives them."""
    numbers = count()

    class Attempt:
        def partitionId(self) -> int:  # noqa: N802  pyspark's name
            return 0

        def taskAttemptId(self) -> int:  # noqa: N802  pyspark's name
            return next(numbers)

    monkeypatch.setattr(pyspark.TaskContext, "get", classmethod(lambda _: Attempt()))


DEALINGS = {
    "plain": Distribution(),
    "partitioned": Distribution((Key(("a",), LONG, Transform("truncate", 5)),)),
    "sorted": Distribution((), (Key(("a",), LONG, descending=True),)),
}


def place(folder: Path) -> Callable[[WrittenFile], str]:
    return lambda file: f"file:{folder}/{'-'.join(map(str, file.partition))}/{Path(file.path).name}"


def values(files: Sequence[WrittenFile]) -> list[int]:
    paths = [local(file.path) for file in files]
    return sorted(value for path in paths for value in pq.read_table(path)["a"].to_pylist())


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("dealing", DEALINGS)
def test_repeated_attempts_leave_no_row_twice(tmp_path: Path, dealing: str, tasks: int) -> None:
    context: Any = Context()
    plan = FilePlan(SCHEMA, {1: "full"}, FileSettings(), 2**30, DEALINGS[dealing])
    rows, spark = tasks_of(context, tasks), SimpleNamespace(sparkContext=context)
    with folder_of_batch(
        cast("Any", spark), cast("Any", SimpleNamespace(location=f"file:{tmp_path}", durable=False))
    ) as folder:
        assert folder is not None
        files = write_in_tasks(context, rows, plan, folder, InFolder(folder, place(tmp_path)))
        assert rows.results is not None
        aside = [result.aside for result in rows.results]
        texts = [pa.ipc.open_file(file.open()).read_all()["raw"].to_pylist() for file in aside if file]
    assert texts == [[str(task)] for task in range(tasks)]
    assert [result.observed for result in rows.results] == list(range(tasks))
    assert values(files) == [10 * task + i for task in range(tasks) for i in range(3)]
    there = {file for file in tmp_path.rglob("*") if file.is_file()}
    assert there == {local(file.path) for file in files}
    assert folder.disk is not None and not folder.disk.exists()
    for attempt in context.late:
        with pytest.raises((SetupError, OSError)):
            attempt()
    assert {file for file in tmp_path.rglob("*") if file.is_file()} == there


def test_what_cannot_be_placed_is_not_there(tmp_path: Path) -> None:
    context: Any = Context()
    plan = FilePlan(SCHEMA, {1: "full"}, FileSettings(), 2**30)
    (tmp_path / "a file").write_text("")
    folders = iter([tmp_path, tmp_path / "a file"])
    staging = tmp_path / "staging"
    staging.mkdir()
    with pytest.raises(OSError, match="a file"):
        write_in_tasks(
            context,
            tasks_of(context, 2),
            plan,
            BatchFolder(str(staging)),
            InFolder(BatchFolder(str(staging)), lambda file: str(next(folders) / Path(file.path).name)),
        )
    rmtree(staging)
    assert [file.name for file in tmp_path.iterdir()] == ["a file"]


def test_a_folder_that_a_task_does_not_see(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot see the folder"):
        number_and_attempt(BatchFolder(f"{tmp_path}/elsewhere"))
