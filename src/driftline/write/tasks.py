"""Tasks that write data files: each writes its rows into a folder apart, out of which the driver takes whole files."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from shutil import move, rmtree
from traceback import format_exc
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from driftline.errors import DriftlineError, SetupError
from driftline.write.dealing import Dealing, Part, Slice
from driftline.write.parquet import FilePlan, WrittenFile, write_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext

T = TypeVar("T")

_SMALL = 8 * 2**20  # bytes, which take less time than to start a Python process

# What tasks write, by its path: as a file of a table, and in the folder of a batch.
WRITTEN = re.compile(r"/([01]+-)?\d{5}-\d+-[0-9a-f]{32}-\d{5}\.parquet$")
STAGED = re.compile(r"/[0-9a-f]{32}(\.gone)?/[\d-]+([0-9a-f]{32}-\d{5}\.parquet|\.arrow)$")


class RowTasks(Protocol):
    """What makes a batch's rows, in tasks."""

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes that each task reads, about."""
        ...

    def rows(self, task: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task, with the table's columns."""
        ...


def write_in_tasks(
    context: SparkContext, tasks: RowTasks, plan: FilePlan, staging: str, place: Callable[[WrittenFile], str]
) -> list[WrittenFile]:
    """Runs the tasks; returns the files that they wrote, each in its place in the table.

    ``staging``: a folder of this batch alone, on the table's file system; ``place``: where a file belongs.
    Attempts that failed, were repeated or are late leave nothing behind, and after an error there is no file at all.
    Raises SetupError where a task does not see the folder.
    """
    with _folder(local(staging)) as folder:
        numbers, dealing = range(len(tasks.sizes)), plan.dealing
        write = _write_alone if dealing.partition or dealing.sort else _write
        if len(numbers) == 1 and is_small(context, sum(tasks.sizes)):
            return _placed(_here(partial(write, tasks, plan, folder)), place)
        if len(numbers) == 1 or write is _write:
            return _placed(_run(context, partial(write, tasks, plan, folder), numbers), place)
        slices = _run(context, partial(_deal, tasks, dealing, folder), numbers)
        shares = enumerate(dealing.parts(slices, context.defaultParallelism))
        return _placed(_run(context, partial(_write_parts, plan, folder), list(shares)), place)


def is_small(context: SparkContext, size: int) -> bool:
    """Whether so many bytes are read sooner in this process than by a task, and the files are on this machine."""
    return size <= _SMALL and str(context.master).startswith("local")


def local(path: str) -> Path:
    """The file of a path or ``file:`` URI."""
    return Path(path.removeprefix("file://").removeprefix("file:"))


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """A folder for as long as the tasks run."""
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        # By another name no late attempt of a task finds it, and makes a file while it is emptied.
        rmtree(path.rename(path.with_suffix(".gone")), ignore_errors=True)


def _placed(files: Sequence[WrittenFile], place: Callable[[WrittenFile], str]) -> list[WrittenFile]:
    placed: list[WrittenFile] = []
    try:
        for file in files:
            placed.append(replace(file, path=place(file)))
            target = local(placed[-1].path)
            target.parent.mkdir(parents=True, exist_ok=True)
            move(file.path, target)
    except BaseException:
        for file in placed:
            local(file.path).unlink(missing_ok=True)
        raise
    return placed


def _run(context: SparkContext, work: Callable[[Any], list[T]], shares: Sequence[Any]) -> list[T]:
    """What the tasks return, one for each share."""
    found = context.parallelize(shares, len(shares)).map(work).collect() if shares else []
    return [one for part in found for one in part]


def _here(write: Callable[[int], list[WrittenFile]]) -> list[WrittenFile]:
    """The only task, in this process. What fails is told as it would be by a task."""
    from pyspark.errors import PythonException

    try:
        return write(0)
    except (DriftlineError, OSError):
        raise
    except Exception as error:
        raise PythonException(format_exc()) from error


def _write(tasks: RowTasks, plan: FilePlan, folder: Path, task: int) -> list[WrittenFile]:
    """In a task: writes its rows as data files."""
    return list(write_files(tasks.rows(task), plan, _path_of(folder, task)))


def _write_alone(tasks: RowTasks, plan: FilePlan, folder: Path, task: int) -> list[WrittenFile]:
    """In the only task: both rounds."""
    shares = plan.dealing.parts(_deal(tasks, plan.dealing, folder, task), 1)
    return _write_parts(plan, folder, (task, [part for share in shares for part in share]))


def _deal(tasks: RowTasks, dealing: Dealing, folder: Path, task: int) -> list[Slice]:
    """In a task of the first round: writes its rows in slices."""
    return dealing.deal(tasks.rows(task), folder / f"{task}-{_attempt(folder)}.arrow")


def _write_parts(plan: FilePlan, folder: Path, share: tuple[int, list[Part]]) -> list[WrittenFile]:
    """In a task of the second round: writes its parts as data files."""
    task, parts = share
    numbers, path_of = count(1), _path_of(folder, task)
    return [
        replace(file, partition=part.partition)
        for part in parts
        for file in write_files(plan.dealing.rows(part), plan, lambda _: path_of(next(numbers)))
    ]


def _path_of(folder: Path, task: int) -> Callable[[int], Path]:
    """The names of a task's files, by number: no other attempt has the same."""
    attempt = _attempt(folder)
    return lambda number: folder / f"{task:05d}-{attempt}-{folder.name}-{number:05d}.parquet"


def _attempt(folder: Path) -> int:
    """A number that no other attempt of any task has; begins it."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None:
        pa.set_cpu_count(1)
    if not folder.is_dir():
        raise SetupError(
            f"a task on {socket.gethostname()} does not see the folder {folder}",
            hint="the table's location must be one that all workers share",
        )
    return context.taskAttemptId() if context is not None else 0
