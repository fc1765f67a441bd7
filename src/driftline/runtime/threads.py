"""Work on several things at once, in a few threads that share a Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from driftline.runtime.spark_conf import activate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


def at_once(spark: SparkSession, work: Callable[[T], R], items: Iterable[T], threads: int) -> list[R]:
    """Work on each of the items, and return the results in the order of the items.

    After an error nothing more begins, and what has begun comes to its end. The error raised is that of the
    earliest item: the one that would have come first without threads.

    Args:
        spark: the session, which is the active one of each thread.
        work: takes an item.
        items: in the order in which the work on them begins.
        threads: the most that are worked on at a time.
    """
    queue = _Queue(work, list(items))
    java: Any = spark.sparkContext._jsc.sc()
    properties = java.getLocalProperties().clone()

    def run() -> None:
        # Jobs keep what the caller has set, such as the group by which a stream cancels them. Each thread has
        # a copy, as Spark notes there which query runs.
        java.setLocalProperties(properties.clone())
        activate(spark)
        queue.run()

    with ThreadPoolExecutor(threads) as pool:
        begun = [pool.submit(run) for _ in queue.items[:threads]]
        try:
            wait(begun)
        except BaseException:  # an interrupt, which only the main thread gets
            queue.stopped = True
            raise
    for thread in begun:
        thread.result()
    return queue.ended()


@dataclass(slots=True)
class _Queue(Generic[T, R]):
    """Items that threads take one after the other, until one has failed."""

    work: Callable[[T], R]
    items: list[T]
    stopped: bool = False
    _begun: int = 0
    _results: dict[int, R] = field(default_factory=dict)
    _errors: dict[int, BaseException] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def run(self) -> None:
        """Work on items until there are no more."""
        while (number := self._next()) is not None:
            try:
                self._results[number] = self.work(self.items[number])
            except BaseException as error:
                self._errors[number] = error
                self.stopped = True

    def _next(self) -> int | None:
        with self._lock:
            if self.stopped or self._begun == len(self.items):
                return None
            self._begun += 1
            return self._begun - 1

    def ended(self) -> list[R]:
        """The results of all items; raises the error of the earliest one that failed."""
        if self._errors:
            raise self._errors[min(self._errors)]
        return [self._results[number] for number in range(len(self.items))]
