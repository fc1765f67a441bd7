"""Runs tasks that make a batch's rows, from numbered parts or from the rows of a DataFrame.

Each task does some work on its rows and returns the result; the rows themselves stay in the task.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from traceback import format_exc
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from driftline.convert.spark import as_spark, from_spark
from driftline.convert.types import DEEPEST
from driftline.core.schema.types import Struct
from driftline.core.support import deep_recursion, gc_paused
from driftline.errors import DriftlineError
from driftline.runtime.daemon import lighten_worker
from driftline.runtime.spark_conf import runs_here
from driftline.sql.quoting import name, spark_type
from driftline.tasks.batch_folder import BatchFolder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

RowsOf = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]


def mapped(source: DataFrame, rows: RowsOf, struct: Struct) -> DataFrame:
    """Map the batches of a frame, in tasks, to Arrow rows of ``struct``."""
    return source.mapInArrow(partial(_handed_over, rows, struct), columns_of(struct))


def converted(
    source: DataFrame, before: Struct, convert: Callable[[pa.RecordBatch], pa.RecordBatch], after: Struct
) -> DataFrame:
    """Convert the rows of a table from one struct to another.

    Columns of the frame after those of ``before`` stay as they are.
    """
    beside = source.schema.fields[len(before.fields) :]
    types = ", ".join([columns_of(after), *(f"{name(f.name)} {f.dataType.simpleString()}" for f in beside)])
    return numbered(source).mapInArrow(
        partial(_converted, before, convert, after, [f.name for f in beside]), types
    )


def _converted(
    before: Struct,
    convert: Callable[[pa.RecordBatch], pa.RecordBatch],
    after: Struct,
    beside: Sequence[str],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    own = len(before.fields)
    for batch in batches:
        rows = as_spark(convert(from_spark(batch.select(range(own)), before)), after)
        for name_, column in zip(beside, batch.columns[own:], strict=True):
            rows = rows.append_column(name_, column)
        yield rows


def numbered(frame: DataFrame) -> DataFrame:
    """Rename the frame's columns plainly: mapInArrow takes a dot in a name for a path."""
    return frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))


def columns_of(struct: Struct) -> str:
    """Return the columns in which Spark has the rows, as DDL."""
    return ", ".join(f"{name(f.name)} {spark_type(f.type)}" for f in struct.fields)


def _handed_over(rows: RowsOf, struct: Struct, batches: Iterator[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    for batch in rows(batches):
        yield as_spark(batch, struct)


T = TypeVar("T")
S = TypeVar("S")
TaskInput_contra = TypeVar("TaskInput_contra", contravariant=True)
Batches: TypeAlias = "Iterator[pa.RecordBatch]"
BatchMap: TypeAlias = "Callable[[pa.RecordBatch], pa.RecordBatch]"
SetAside: TypeAlias = "Callable[[pa.RecordBatch], None]"

# The driver reads this many bytes in less time than Spark takes to start a Python worker.
_SMALL = 8 * 2**20  # bytes


@dataclass(frozen=True, slots=True)
class Reported(Generic[S]):
    """The report of a task at its end.

    Attributes:
        observed: the observation of its records.
        diverged: it met records that its plan does not cover, and made no rows after them.
    """

    observed: S
    diverged: bool = False


class RowMaker(Protocol[TaskInput_contra]):
    """A maker of the table's rows, sent to a task."""

    def rows(
        self, task_input: TaskInput_contra, set_aside: SetAside
    ) -> Generator[pa.RecordBatch, None, Reported[Any]]:
        """Yield the rows, and return the report. ``set_aside`` takes batches of rejected records."""
        ...


@dataclass(frozen=True, slots=True)
class _MappedRows(Generic[TaskInput_contra]):
    """The rows of another maker, with a function applied to each batch."""

    maker: RowMaker[TaskInput_contra]
    function: BatchMap

    def rows(
        self, task_input: TaskInput_contra, set_aside: SetAside
    ) -> Generator[pa.RecordBatch, None, Reported[Any]]:
        """Yield the rows, and return the report of their maker."""
        rows = TaskRows(self.maker.rows(task_input, set_aside))
        yield from map(self.function, rows)
        return rows.reported


@dataclass(frozen=True, slots=True)
class AsideFile:
    """An Arrow file of rejects, written by a task in the batch's folder.

    ``folder`` is added by the driver; ``size`` is bytes in memory.
    """

    name: str
    rows: int
    size: int
    folder: BatchFolder | None = None

    def open(self) -> pa.NativeFile:
        """Open the file for reading."""
        assert self.folder is not None
        return self.folder.open(self.name)


class TaskRows:
    """The rows that a task makes. ``reported``: the report of their maker, after the last row."""

    def __init__(self, rows: Generator[pa.RecordBatch, None, Reported[Any]]) -> None:
        self._rows = rows
        self.reported: Reported[Any] = Reported(None)

    def __iter__(self) -> Batches:
        # A generator's return value is lost to a plain loop over it; `yield from` keeps it.
        self.reported = yield from self._rows


Work: TypeAlias = Callable[[Iterable["pa.RecordBatch"]], T]  # what a task does with its rows


@dataclass(frozen=True, slots=True)
class TaskResult(Generic[T]):
    """The outcome of a task.

    Attributes:
        files: the files that its work wrote.
        observed: the observation of its records.
        diverged: as in `Reported`.
        aside: the file of its rejects.
    """

    files: T
    observed: Any
    diverged: bool
    aside: AsideFile | None

    def of(self, folder: BatchFolder | None) -> TaskResult[T]:
        """Add the folder that the task ran with."""
        return self if self.aside is None else replace(self, aside=replace(self.aside, folder=folder))


class RowTasks(Protocol):
    """Tasks that make a batch's rows.

    Attributes:
        results: the results of the tasks; None before they have run.
    """

    results: list[TaskResult[Any]] | None

    @property
    def alone(self) -> bool:
        """True if there is only one task."""
        ...

    def run(self, work: Work[T], folder: BatchFolder | None) -> list[T]:
        """Run ``work`` in each task on its rows.

        Args:
            work: takes the rows of a task.
            folder: for files of this batch alone, visible to all tasks; None to set no rejects aside.

        Returns:
            The results of the work.

        Raises:
            SetupError: a task does not see the folder.
        """
        ...

    def batches(self, read: Callable[[Any, Any], Batches], columns: str) -> DataFrame:
        """Read batches in each task, by a function of its maker and its input.

        Args:
            read: the function.
            columns: the columns of the batches, as DDL.
        """
        ...

    def mapped(self, function: BatchMap) -> RowTasks:
        """Return tasks that apply a function to each batch of rows."""
        ...

    def frame(self, struct: Struct) -> DataFrame:
        """Hand the rows, of ``struct``, over to Spark; rejects and observations are dropped."""
        ...


@dataclass(slots=True)
class PartTasks:
    """Tasks over numbered parts.

    Attributes:
        sizes: the approximate bytes that each reads.
    """

    spark: SparkSession
    sizes: Sequence[int]
    maker: RowMaker[int]
    results: list[TaskResult[Any]] | None = None

    @property
    def alone(self) -> bool:
        """True if there is only one task."""
        return len(self.sizes) == 1

    def run(self, work: Work[T], folder: BatchFolder | None) -> list[T]:
        """Run the tasks; a single small one runs in this process."""
        context, task = self.spark.sparkContext, partial(_task, self.maker, work, folder)
        # Several small tasks still go to Spark, which runs them at the same time.
        if self.alone and is_small(context, sum(self.sizes)):
            outcomes = [_in_this_process(task)]
        else:
            outcomes = each(context, partial(_in_worker, task), range(len(self.sizes)))
        self.results = [outcome.of(folder) for outcome in outcomes]
        return [outcome.files for outcome in outcomes]

    def batches(self, read: Callable[[Any, Any], Batches], columns: str) -> DataFrame:
        """Read batches, in a partition for each task."""
        return self._numbers.mapInArrow(partial(_batches_of_parts, partial(read, self.maker)), columns)

    def mapped(self, function: BatchMap) -> PartTasks:
        """Return tasks that apply a function to each batch of rows."""
        return replace(self, maker=_MappedRows(self.maker, function))

    def frame(self, struct: Struct) -> DataFrame:
        """Return a frame with a partition for each task."""
        rows = partial(_batches_of_parts, partial(_rows, self.maker))
        return mapped(self._numbers, rows, struct)

    @property
    def _numbers(self) -> DataFrame:
        count = len(self.sizes)
        return self.spark.range(0, count, 1, count)


@dataclass(slots=True)
class FrameTasks:
    """Tasks over the rows of DataFrames, each frame with its maker, which gets its batches."""

    frames: Sequence[tuple[DataFrame, RowMaker[Batches]]]
    results: list[TaskResult[Any]] | None = field(default=None)

    @property
    def alone(self) -> bool:
        """False: Spark decides on the number of tasks."""
        return False

    def run(self, work: Work[T], folder: BatchFolder | None) -> list[T]:
        """Run the tasks of all frames in one job."""
        # Spark pickles the maker when the map is declared, and a plan may nest deeper than Python's limit.
        with deep_recursion(DEEPEST):
            tasks = [
                frame.mapInArrow(partial(_frame_task, maker, work, folder), "outcome binary")
                for frame, maker in self.frames
            ]
        # A union runs the tasks of all frames in one job. Only outcomes are collected, a row for each task.
        collected = reduce(_union, tasks).collect()
        outcomes: list[TaskResult[T]] = [pickle.loads(row.outcome) for row in collected]  # noqa: S301  our own bytes
        self.results = [outcome.of(folder) for outcome in outcomes]
        return [outcome.files for outcome in outcomes]

    def batches(self, read: Callable[[Any, Any], Batches], columns: str) -> DataFrame:
        """Read the batches of all frames into one frame."""
        return reduce(
            _union, [frame.mapInArrow(partial(read, maker), columns) for frame, maker in self.frames]
        )

    def mapped(self, function: BatchMap) -> FrameTasks:
        """Return tasks that apply a function to each batch of rows."""
        return replace(self, frames=[(frame, _MappedRows(maker, function)) for frame, maker in self.frames])

    def frame(self, struct: Struct) -> DataFrame:
        """Return the rows of all frames in one frame."""
        frames = [mapped(frame, partial(_rows, maker), struct) for frame, maker in self.frames]
        return reduce(_union, frames)


def observed(tasks: RowTasks) -> list[TaskResult[Any]]:
    """Run tasks without a plan, which only observe."""
    tasks.run(_drain, None)
    assert tasks.results is not None
    return tasks.results


def _drain(rows: Iterable[pa.RecordBatch]) -> None:
    for _ in rows:
        raise AssertionError("a task without a plan makes no rows")


def is_small(context: SparkContext, size: int) -> bool:
    """True if this process reads so many bytes faster than a task would, and has the files on its machine."""
    return size <= _SMALL and runs_here(context)


def each(context: SparkContext, task: Callable[[Any], T], shares: Sequence[Any]) -> list[T]:
    """Return the result of the task for each share, in order."""
    # What describes the rows is sent with the task
    with deep_recursion(DEEPEST):
        return context.parallelize(shares, len(shares)).map(task).collect() if shares else []


def number_and_attempt(folder: BatchFolder) -> tuple[int, int]:
    """Return the numbers of this task and its attempt; no other attempt has the latter.

    Raises SetupError if the task does not see the ``folder`` of the batch.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    # Spark counts one core for a task; Arrow would start a thread for each core of the machine, in each task.
    if context is not None:
        pa.set_cpu_count(1)
    folder.check()
    return (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)


class _Aside:
    """The file for a task's rejects, created for the first of them."""

    def __init__(self, folder: BatchFolder) -> None:
        # A task that Spark repeats may still run elsewhere.
        number, attempt = number_and_attempt(folder)
        # The attempt in the name keeps apart a task and its speculative or repeated attempts.
        self._folder, self._name = folder, f"{number:05d}-{attempt}-0.arrow"
        self._file: Any = None
        self._writer: Any = None
        self._rows = self._size = 0

    def __call__(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._file = self._folder.create(self._name)
            self._writer = pa.ipc.new_file(self._file, batch.schema)
        self._writer.write_batch(batch)
        self._rows += batch.num_rows
        self._size += batch.nbytes

    def close(self) -> AsideFile | None:
        """Finish the file; None if nothing was set aside."""
        if self._writer is None:
            return None
        self._writer.close()
        self._file.close()
        return AsideFile(self._name, self._rows, self._size)


def _task(maker: RowMaker[Any], work: Work[T], folder: BatchFolder | None, task_input: Any) -> TaskResult[T]:
    """Run a whole task, inside Spark's task."""
    # Made before the first row, so a worker that cannot see the folder fails at once, rejects or not.
    aside, file = None if folder is None else _Aside(folder), None
    # The report comes behind the last row, so the work has to take them all, also after it has diverged.
    try:
        rows = TaskRows(maker.rows(task_input, aside or _pass_over))
        files = work(rows)
    finally:
        if aside is not None:
            file = aside.close()
    return TaskResult(files, rows.reported.observed, rows.reported.diverged, file)


def _in_worker(task: Callable[[Any], T], task_input: Any) -> T:
    """Run the task in a process of Spark's, which runs others after it."""
    try:
        return task(task_input)
    finally:
        lighten_worker()


def _frame_task(
    maker: RowMaker[Batches], work: Work[T], folder: BatchFolder | None, batches: Batches
) -> Batches:
    """Run the task on the rows of a frame."""
    # A map can return Arrow rows alone, so the outcome travels as the bytes of its only row.
    outcome = pickle.dumps(_in_worker(partial(_task, maker, work, folder), batches))
    yield pa.RecordBatch.from_arrays([pa.array([outcome], pa.binary())], ["outcome"])


@gc_paused()
def _in_this_process(task: Callable[[int], T]) -> T:
    """Run the only task in this process, and report errors like a Spark task."""
    from pyspark.errors import PythonException

    try:
        return task(0)
    except (DriftlineError, OSError):
        raise
    except Exception as error:
        # As from a worker: `runtime/failure.py` finds the cause in the traceback's text, wherever the task
        # ran.
        raise PythonException(format_exc()) from error


def _batches_of_parts(read: Callable[[int], Batches], numbers: Iterable[pa.RecordBatch]) -> Batches:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read(number)


def _rows(maker: RowMaker[Any], task_input: Any) -> Batches:
    yield from maker.rows(task_input, _pass_over)


def _pass_over(_: pa.RecordBatch) -> None:
    pass


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.union(other)
