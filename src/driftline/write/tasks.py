"""Tasks that write data files: each writes its rows where the driver told it to, and returns what the commit needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from driftline.core.types import Schema
from driftline.write.parquet import FileSettings, WrittenFile, write_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext


class RowTasks(Protocol):
    """What makes a batch's rows, in tasks."""

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes that each task reads, about."""
        ...

    def rows(self, task: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task, with the table's columns."""
        ...


@dataclass(frozen=True, slots=True)
class FilePlan:
    """How tasks write. ``modes``: the metrics of each column by its id; ``target``: bytes after which a file ends."""

    schema: Schema
    modes: Mapping[int, str]
    settings: FileSettings
    target: int


ATTEMPTS = 8  # of one task, for which there are names


def write_in_tasks(
    context: SparkContext, tasks: RowTasks, plan: FilePlan, location: Callable[[str], str], batch: str
) -> list[WrittenFile]:
    """Runs the tasks; returns the files that they wrote.

    ``location``: the place of a file of this name. Whatever else was written, by attempts that failed, is deleted; after
    an error all of it.
    """
    names = [_names(location, batch, task, size // plan.target + 1) for task, size in enumerate(tasks.sizes)]
    written: list[WrittenFile] = []
    try:
        rdd = context.parallelize(list(enumerate(names)), len(names))
        for files in rdd.map(partial(_run, tasks, plan)).collect():
            written += files
    finally:
        committed = {file.path for file in written}
        for path in (path for task in names for attempt in task for path in attempt):
            if path not in committed:
                local(path).unlink(missing_ok=True)
    return written


def local(path: str) -> Path:
    """The file of a path or ``file:`` URI."""
    return Path(path.removeprefix("file://").removeprefix("file:"))


def _names(location: Callable[[str], str], batch: str, task: int, files: int) -> list[list[str]]:
    """The names of a task's files, by attempt."""
    return [
        [location(f"{task:05d}-{attempt}-{batch}-{number:05d}.parquet") for number in range(1, files + 1)]
        for attempt in range(ATTEMPTS)
    ]


def _run(tasks: RowTasks, plan: FilePlan, share: tuple[int, Sequence[Sequence[str]]]) -> list[WrittenFile]:
    """In a task: writes its rows."""
    import pyarrow as pa
    from pyspark import TaskContext

    pa.set_cpu_count(1)
    context = TaskContext.get()
    task, attempts = share
    names = attempts[context.attemptNumber() if context is not None else 0]
    return list(
        write_files(names, _create, tasks.rows(task), plan.schema, plan.modes, plan.settings, plan.target)
    )


def _create(path: str) -> pa.NativeFile:
    import pyarrow as pa

    file = local(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    return pa.OSFile(str(file), "wb")
