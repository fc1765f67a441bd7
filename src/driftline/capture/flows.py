"""What can be captured: a folder of files, any streaming DataFrame."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from driftline.capture.checkpoint import Checkpoint
from driftline.capture.folder import FileLog
from driftline.capture.lost import LostOffsets
from driftline.core.values.counted import counted
from driftline.errors import DataError, DriftlineError
from driftline.source.opening import open_source, opened
from driftline.source.spool import leftovers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.source.base import Source

_LOG = logging.getLogger("driftline")
_A_DAY = 86_400.0  # seconds


@dataclass(slots=True)
class Files:
    """Files of a folder, or glob, each once. Each list of the log is a batch."""

    spark: SparkSession
    log: FileLog
    checkpoint: Checkpoint
    strings: bool = False
    _last: int = field(default=-1, init=False)  # list that was there when the stream began
    _held: ExitStack = field(default_factory=ExitStack, init=False)

    @property
    def name(self) -> str:
        return f"files of {self.log.finder.source}"

    def stream(self) -> DataFrame:
        self._last = self.log.next - 1
        return self.log.stream(self.spark)

    def batches(self, epoch: int) -> Iterator[int]:
        end = _lists_given(self.checkpoint, epoch)
        yield from self.log.waiting(end)
        self.log.finish(end)

    def source(self, frame: DataFrame, number: int) -> Source:
        files = self.log.read(number)
        shared = str(self.log.folder)  # it is mounted on each worker, as the files are
        source = opened(
            frame.sparkSession, files, format=self.log.format, strings=self.strings, shared=shared
        )
        return self._held.enter_context(source)

    def check(self, number: int) -> None:
        self.log.check(number)

    def close(self, number: int) -> tuple[int, int | None]:
        self.log.finish(number)
        return 0, self.log.lag()

    def lost(self, number: int) -> tuple[LostOffsets, ...]:
        return ()

    def notes(self, number: int) -> tuple[str, ...]:
        renamed = self.log.renamed(number)
        if not renamed:
            return ()
        (old, new), *others = renamed
        more = f", and so with {counted(len(others), 'other')}" if others else ""
        told = (
            f"{new} has the size and the time of {old}, which was taken before and is gone{more}: if it was renamed, "
            "its records are in the table twice"
        )
        return (told,)

    def release(self) -> None:
        self._held.close()

    def begin(self) -> None:
        pass

    def look(self) -> None:
        self.log.add()

    def left(self) -> DriftlineError | None:
        if not (count := self.log.lag(self._last)):
            return None
        return DataError(
            f"{self.name}: the stream ended, and {counted(count, 'file')} of its log did not come",
            hint="start the capture again: it goes on with them",
        )

    def explain(self, error: str) -> DriftlineError | None:
        return None

    def end(self) -> None:
        """The stream has ended: messages about what is in are let go of, as far as that works."""
        try:
            self.log.let_go()
        except DriftlineError as error:
            _LOG.warning("%s: %s", self.name, error)


def files(spark: SparkSession, log: FileLog, checkpoint: Checkpoint, *, strings: bool) -> Files:
    """The files of a log, which is in the ``checkpoint``. Raises SetupError."""
    epoch = checkpoint.last("commits")
    log.open(done=epoch)  # earlier versions took list n with micro-batch n, whatever else Spark gave
    leftovers(str(log.folder), _A_DAY, dry_run=False)
    log.merge(checkpoint.last("sources/0"))
    given = -1 if epoch < 0 else _lists_given(checkpoint, epoch)
    if log.lag(given):  # Spark is done with them, and gives them never again
        log.prompt()
    return Files(spark, log, checkpoint, strings)


def _lists_given(checkpoint: Checkpoint, epoch: int) -> int:
    """The last list that Spark has given with a micro-batch, and those before it."""
    return int(checkpoint.end_of(epoch)["logOffset"])


@dataclass(slots=True)
class Frames:
    """Any streaming DataFrame; ``json_column`` holds JSON text whose records are the rows."""

    frame: DataFrame
    json_column: str | None = None
    name: str = "a DataFrame"
    _batch: DataFrame | None = field(default=None, init=False)

    def stream(self) -> DataFrame:
        return self.frame

    def batches(self, epoch: int) -> Iterable[int]:
        return (epoch,)

    def source(self, frame: DataFrame, number: int) -> Source:
        # Observed and written: computed anew, it could be another one.
        self._batch = frame.persist()
        return open_source(frame.sparkSession, self._batch, json_column=self.json_column)

    def check(self, number: int) -> None:
        pass

    def close(self, number: int) -> tuple[int, int | None]:
        return 0, None

    def lost(self, number: int) -> tuple[LostOffsets, ...]:
        return ()

    def notes(self, number: int) -> tuple[str, ...]:
        return ()

    def release(self) -> None:
        if self._batch is not None:
            self._batch.unpersist()
            self._batch = None

    def begin(self) -> None:
        pass

    def look(self) -> None:
        pass

    def end(self) -> None:
        pass

    def left(self) -> DriftlineError | None:
        return None

    def explain(self, error: str) -> DriftlineError | None:
        return None
