"""Files that tasks write at once where a table has them, as in a bucket: which of them are there after what goes wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from driftline.convert import arrow_schema
from driftline.core.schema.definition import Transform
from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.errors import SetupError
from driftline.runtime import stores
from driftline.write import (
    WRITTEN,
    BatchFolder,
    Distribution,
    FilePlan,
    FileSettings,
    InStore,
    Key,
    Partition,
    PartTasks,
    Reported,
    SetAside,
    WrittenFile,
    write_in_tasks,
)
from driftline.write import tasks as tasks_module

SCHEMA = Schema(Struct((Field("a", LONG, 1),)))
DEALINGS = {
    "plain": Distribution(),
    "partitioned": Distribution((Key(("a",), LONG, Transform("truncate", 5)),)),
    "sorted": Distribution((), (Key(("a",), LONG, descending=True),)),
}


class Rows:
    """Three rows a task, each a batch of its own; ``fails``: after those, in this task."""

    def __init__(self, fails: int = -1) -> None:
        self.fails = fails

    def rows(self, given: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, Reported[None]]:
        for i in range(3):
            yield pa.RecordBatch.from_pydict({"a": [10 * given + i]}, schema=arrow_schema(SCHEMA.struct))
        if given == self.fails:
            raise ValueError("a broken record")
        return Reported(None)


class Context:
    """Runs each task twice, as where the first attempt was lost after its work."""

    defaultParallelism = 2  # noqa: N815  pyspark's name
    master = "spark://many"

    def parallelize(self, shares: Sequence[Any], _: int) -> Context:
        self.shares = list(shares)
        return self

    def map(self, work: Callable[[Any], Any]) -> Context:
        self.work = work
        return self

    def collect(self) -> list[Any]:
        return [[self.work(share) for _ in range(2)][-1] for share in self.shares]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bucket that is a folder; and each attempt has a number of its own."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()

    def filesystem(uri: str, options: Any) -> tuple[Any, str]:
        assert options == {"access_key": "k"}
        path = Path(uri.replace("s3://bucket", str(bucket)))
        path.parent.mkdir(parents=True, exist_ok=True)  # a store has no folders
        return fs.LocalFileSystem(), str(path)

    monkeypatch.setattr(stores, "filesystem", filesystem)
    attempts = itertools.count()
    monkeypatch.setattr(tasks_module, "number_and_attempt", lambda _: (0, next(attempts)))
    return bucket


def write(bucket: Path, dealing: str, rows: Rows, count: int = 2, target: int = 2**30) -> list[WrittenFile]:
    def prefix(batch: str, partition: Partition) -> str:
        return "/".join(["s3://bucket/t/data", *map(str, partition), batch])

    def sweep(prefix: str) -> None:
        for file in files(bucket):
            if f"s3://bucket/{file}".startswith(prefix):
                (bucket / file).unlink()

    context: Any = Context()
    spark: Any = SimpleNamespace(sparkContext=context)
    plan = FilePlan(SCHEMA, {1: "full"}, FileSettings(row_group=1), target, DEALINGS[dealing])
    place = InStore({"access_key": "k"}, prefix, sweep)
    scratch = bucket.parent / "scratch"
    scratch.mkdir()
    return write_in_tasks(
        context, PartTasks(spark, (1,) * count, rows), plan, BatchFolder(str(scratch)), place
    )


def files(bucket: Path) -> set[str]:
    return {str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file()}


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("dealing", DEALINGS)
def test_of_repeated_attempts_one_is_told_of(bucket: Path, dealing: str, count: int) -> None:
    written = write(bucket, dealing, Rows(), count)
    paths = [bucket / file.path.removeprefix("s3://bucket/") for file in written]
    values = sorted(value for path in paths for value in pq.read_table(path)["a"].to_pylist())
    assert values == [10 * task + i for task in range(count) for i in range(3)]
    assert [path.stat().st_size for path in paths] == [file.size for file in written]
    # What the lost attempts left is for `clean`, which knows it by its name.
    assert len(files(bucket)) == 2 * len(paths)
    assert all(WRITTEN.search(f"/{path}") for path in files(bucket))


@pytest.mark.parametrize("dealing", DEALINGS)
def test_after_an_error_nothing_is_there(bucket: Path, dealing: str) -> None:
    with pytest.raises(ValueError, match="a broken record"):
        write(bucket, dealing, Rows(fails=1), target=1)
    assert files(bucket) == set()


def test_an_attempt_that_fails_takes_its_whole_files_away(
    bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InStore, "clear", lambda _: None)
    with pytest.raises(ValueError, match="a broken record"):
        write(bucket, "plain", Rows(fails=0), target=1)
    assert files(bucket) == set()


def test_what_the_store_says_is_one_sentence(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Denying:
        def open_output_stream(self, path: str) -> None:
            raise OSError(f"When initiating upload of {path}: AWS Error ACCESS_DENIED during PutObject")

    monkeypatch.setattr(stores, "filesystem", lambda uri, _: (Denying(), uri))
    with pytest.raises(
        SetupError, match=r"^s3://bucket/t/data/[0-9a-f]{32}-\S+\.parquet: the store denies access"
    ):
        write(bucket, "plain", Rows())
