"""What can be captured: a folder of files, any streaming DataFrame."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.capture.folder import FileLog
from driftline.capture.lost import Lost
from driftline.errors import DriftlineError
from driftline.source.opening import open_source, opened
from driftline.source.spool import leftovers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.source.base import Source

_LOG = logging.getLogger("driftline")
_A_DAY = 86_400.0  # seconds


@dataclass(slots=True)
class Files:
    """Files of a folder, or glob, each once. ``done``: the last micro-batch that is in."""

    spark: SparkSession
    log: FileLog
    done: int
    strings: bool = False
    _held: ExitStack = field(default_factory=ExitStack, init=False)

    @property
    def name(self) -> str:
        return f"files of {self.log.finder.source}"

    def stream(self) -> DataFrame:
        return self.log.stream(self.spark)

    def source(self, frame: DataFrame, epoch: int) -> Source:
        files = self.log.read(epoch)
        shared = str(self.log.folder)  # it is mounted on each worker, as the files are
        source = opened(
            frame.sparkSession, files, format=self.log.format, strings=self.strings, shared=shared
        )
        return self._held.enter_context(source)

    def check(self, epoch: int) -> None:
        self.log.check(epoch)

    def close(self, epoch: int) -> tuple[int, int | None]:
        self.done = epoch
        return 0, self.log.lag(epoch)

    def lost(self, epoch: int) -> tuple[Lost, ...]:
        return ()

    def release(self) -> None:
        self._held.close()

    def look(self) -> None:
        self.log.add(self.done)

    def explain(self, error: str) -> DriftlineError | None:
        return None

    def end(self) -> None:
        """The stream has ended: messages about what is in are let go of, as far as that works."""
        try:
            self.log.let_go(self.done)
        except DriftlineError as error:
            _LOG.warning("%s: %s", self.name, error)


def files(spark: SparkSession, log: FileLog, checkpoint: Path, *, strings: bool) -> Files:
    """The files of a log. ``checkpoint``: a folder of this machine, which the log is in."""
    log.open()
    leftovers(str(log.folder), _A_DAY, dry_run=False)
    finished = [int(path.name) for path in (checkpoint / "spark" / "commits").glob("[0-9]*")]
    return Files(spark, log, max(finished, default=-1), strings)


@dataclass(slots=True)
class Frames:
    """Any streaming DataFrame; ``json_column`` holds JSON text whose records are the rows."""

    frame: DataFrame
    json_column: str | None = None
    name: str = "a DataFrame"
    _batch: DataFrame | None = field(default=None, init=False)

    def stream(self) -> DataFrame:
        return self.frame

    def source(self, frame: DataFrame, epoch: int) -> Source:
        # Observed and written: computed anew, it could be another one.
        self._batch = frame.persist()
        return open_source(frame.sparkSession, self._batch, json_column=self.json_column)

    def check(self, epoch: int) -> None:
        pass

    def close(self, epoch: int) -> tuple[int, int | None]:
        return 0, None

    def lost(self, epoch: int) -> tuple[Lost, ...]:
        return ()

    def release(self) -> None:
        if self._batch is not None:
            self._batch.unpersist()
            self._batch = None

    def look(self) -> None:
        pass

    def explain(self, error: str) -> DriftlineError | None:
        return None
