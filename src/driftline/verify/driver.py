"""The work of tasks in Spark's driver, on the few rows that Spark reads for it: jobs would take longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import format_exc
from typing import TYPE_CHECKING, Any, TypeVar

from driftline.core.support import gc_paused
from driftline.verify.local import LocalDataset, LocalRows, LocalTasks

if TYPE_CHECKING:
    from pyspark import RDD

    from driftline.verify.frames import SparkTasks

T = TypeVar("T")


class DriverDataset(LocalDataset[T]):
    """A dataset of the driver's, with errors as Spark raises those of its tasks."""

    def collect(self) -> list[T]:
        """Return all items. Raises PythonException for any error on the way to them."""
        with gc_paused(), _as_in_task():
            return super().collect()


class DriverTasks(LocalTasks):
    """The driver, with the rows of a table, and the pairs of its quarantine as `SparkTasks` has them."""

    dataset = DriverDataset

    def __init__(self, rows: LocalRows, waiting: list[tuple[bytes, bool]]) -> None:
        self._rows, self._waiting = rows, waiting

    @classmethod
    def beside(cls, spark: SparkTasks, rows: Any, quarantine: Any, unmet: str) -> DriverTasks | None:
        """Have Spark read a table and its quarantine; None if that takes tasks, as there are many rows."""
        frame = spark.frame(rows)
        fetched = spark.few(frame)
        if fetched is None:
            return None
        waiting: list[tuple[bytes, bool]] = []
        if quarantine is not None:
            pairs = spark.few(spark.raw(quarantine, unmet))
            if pairs is None:
                return None
            raws, flags = (column.to_pylist() for column in pairs.columns)
            waiting = [(raw or b"", flag) for raw, flag in zip(raws, flags, strict=True)]
        return cls(LocalRows(frame.columns, lambda: iter(fetched.to_batches()), DriverDataset), waiting)

    def rows(self, _: Any) -> LocalRows:
        """The rows of the table."""
        return self._rows

    def quarantined(self, _: Any, __: str) -> RDD[tuple[bytes, bool]]:
        """The pairs of its quarantine."""
        return self.parallelize(self._waiting)


@contextmanager
def _as_in_task() -> Iterator[None]:
    from pyspark.errors import PythonException

    try:
        yield
    except PythonException:  # of another dataset, from which this one is made
        raise
    except Exception as error:
        # `runtime/failure.py` finds the cause in the traceback's text, as in that from a worker.
        raise PythonException(format_exc()) from error
