"""Streams that can be captured: the files of a folder, and any streaming DataFrame."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from driftline.capture.checkpoint import Checkpoint
from driftline.capture.folder import FileLog
from driftline.capture.lost_offsets import LostOffsets
from driftline.core.values.counted import counted
from driftline.errors import DataError, DriftlineError
from driftline.sources.opening import of_frame, opened
from driftline.sources.spool import leftovers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.sources.base import Source

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
        """The folder or glob, as messages name it."""
        return f"files of {self.log.finder.source}"

    def stream(self) -> DataFrame:
        """Stream the log of lists, and note the last list that exists now."""
        self._last = self.log.next - 1
        return self.log.stream(self.spark)

    def batches(self, epoch: int) -> Iterator[int]:
        """Yield the lists of the micro-batch that are not in the table yet; then mark all of them as done."""
        end = _lists_given(self.checkpoint, epoch)
        yield from self.log.waiting(end)
        self.log.finish(end)

    def source(self, frame: DataFrame, number: int) -> Source:
        """Open the files of list ``number``; only the session of ``frame`` is used."""
        files = self.log.read(number)
        shared = str(self.log.folder)  # it is mounted on each worker, as the files are
        source = opened(
            frame.sparkSession, files, format=self.log.format, strings=self.strings, shared=shared
        )
        return self._held.enter_context(source)

    def check(self, number: int) -> None:
        """Raise DataError if a file of the list has changed since it was opened."""
        self.log.check(number)

    def close(self, number: int) -> int | None:
        """Mark the list as committed. The lag is in files."""
        self.log.finish(number)
        return self.log.lag()

    def lost(self, number: int) -> tuple[LostOffsets, ...]:
        """Nothing: a file that is gone is an error, and never skipped."""
        return ()

    def notes(self, number: int) -> tuple[str, ...]:
        """Warn of files that may be renamed copies of files taken before."""
        renamed = self.log.renamed(number)
        if not renamed:
            return ()
        (old, new), *others = renamed
        and_others = f", and so with {counted(len(others), 'other')}" if others else ""
        warning = (
            f"{new} has the size and the time of {old}, which was taken before and is gone{and_others}: if it was renamed, "
            "its records are in the table twice"
        )
        return (warning,)

    def release(self) -> None:
        """Close the source of the batch."""
        self._held.close()

    def begin(self) -> None:
        """Nothing to prepare: `files` has opened the log."""

    def look(self) -> None:
        """Add new files to the log."""
        self.log.add()

    def left(self) -> DriftlineError | None:
        """The error for listed files that the stream did not deliver; None if it delivered all."""
        if not (count := self.log.lag(self._last)):
            return None
        return DataError(
            f"{self.name}: the stream ended, and {counted(count, 'file')} of its log did not come",
            hint="restart the capture: it resumes with them",
        )

    def explain(self, error: str) -> DriftlineError | None:
        """None: no error of Spark's is specific to the log."""
        return None

    def end(self) -> None:
        """Delete messages about files that are in the table; a failure is only logged."""
        try:
            self.log.let_go()
        except DriftlineError as error:
            _LOG.warning("%s: %s", self.name, error)


def files(spark: SparkSession, log: FileLog, checkpoint: Checkpoint, *, strings: bool) -> Files:
    """The files of a log, which is in the ``checkpoint``. Raises SetupError."""
    epoch = checkpoint.last("commits")
    log.open(last_done=epoch)  # earlier versions took list n with micro-batch n, whatever else Spark gave
    leftovers(str(log.folder), _A_DAY, dry_run=False)
    log.merge(checkpoint.last("sources/0"))
    last_given = -1 if epoch < 0 else _lists_given(checkpoint, epoch)
    if log.lag(last_given):  # Spark is done with them, and gives them never again
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
        """The DataFrame itself."""
        return self.frame

    def batches(self, epoch: int) -> Iterable[int]:
        """The micro-batch as the only batch."""
        return (epoch,)

    def source(self, frame: DataFrame, number: int) -> Source:
        """Persist the micro-batch, which is read twice, and open it."""
        # Observed and written: computed anew, it could be another one.
        self._batch = frame.persist()
        return of_frame(self._batch, self.json_column)

    def check(self, number: int) -> None:
        """Nothing to check: the batch is persisted."""

    def close(self, number: int) -> None:
        """Nothing to finish; the lag is unknown."""

    def lost(self, number: int) -> tuple[LostOffsets, ...]:
        """Nothing: any loss is the source's to report."""
        return ()

    def notes(self, number: int) -> tuple[str, ...]:
        """No notes."""
        return ()

    def release(self) -> None:
        """Unpersist the micro-batch."""
        if self._batch is not None:
            self._batch.unpersist()
            self._batch = None

    def begin(self) -> None:
        """Nothing to prepare."""

    def look(self) -> None:
        """Nothing to look for: Spark polls the source."""

    def end(self) -> None:
        """Nothing to close."""

    def left(self) -> DriftlineError | None:
        """None: only the source knows what it has not delivered."""
        return None

    def explain(self, error: str) -> DriftlineError | None:
        """None: the source is unknown."""
        return None
