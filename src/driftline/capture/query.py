"""Ingests a stream into a table: each micro-batch is one batch, exactly once."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from driftline.capture.checkpoint import Checkpoint, broken
from driftline.capture.kafka import lag
from driftline.capture.kafka_client import LostOffsets
from driftline.capture.resuming import Resumption
from driftline.capture.status import StatusFile
from driftline.capture.targets import PUBLISHING, CaptureTarget
from driftline.core.history.batch_properties import BatchIsInError, Token
from driftline.errors import DataError, DriftlineError
from driftline.formats.commit import WAITING, Progress
from driftline.ingest.attempts import NO_AUDIT, Audit, Options
from driftline.ingest.batch import Listener
from driftline.ingest.result import Result
from driftline.runtime.failure import explained, java_process, text_of
from driftline.runtime.front import front
from driftline.sources.scan import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AN_HOUR = 3600.0  # seconds
_DAMAGED = "ChecksumException"  # of a file that Spark's checkpoint has


class StreamSource(Protocol):
    """An incoming stream: files, topics, or any streaming DataFrame."""

    @property
    def name(self) -> str:
        """The source, as messages name it."""
        ...

    def stream(self) -> DataFrame:
        """The DataFrame that Spark streams."""
        ...

    def batches(self, epoch: int) -> Iterable[int]:
        """The batches that a micro-batch of Spark's consists of, each once the one before it is in."""
        ...

    def source(self, frame: DataFrame, number: int) -> Source:
        """A batch as a source.

        Args:
            frame: the micro-batch.
        """
        ...

    def check(self, number: int) -> None:
        """Raise DataError if the batch is no longer what was read."""
        ...

    def close(self, number: int) -> int | None:
        """Finish a committed batch; returns the lag after it, None if unknown."""
        ...

    def lost(self, number: int) -> tuple[LostOffsets, ...]:
        """The offsets of the batch that the source no longer had."""
        ...

    def changed_files(self, number: int) -> Mapping[str, int]:
        """The number of files that had changed since they were taken, by their fate."""
        ...

    def notes(self, number: int) -> tuple[str, ...]:
        """Notes for a person on how the batch was found."""
        ...

    def release(self) -> None:
        """Release the resources of the batch, whether it was committed or failed."""
        ...

    def contents(self, number: int) -> dict[str, Any]:
        """Return the parts of a batch, by which the table distinguishes it from others; empty if unknown."""
        ...

    def fingerprints(self, number: int) -> tuple[int, ...]:
        """The files of a batch that the table is to remember."""
        ...

    def begin(self, resumption: Resumption) -> None:
        """Prepare the source before Spark's stream begins, and have it go on where the table is.

        Raises DataError if table and checkpoint differ, and nobody said how to go on.
        """
        ...

    def poll(self) -> None:
        """Look for new data, if Spark does not do so itself."""
        ...

    def left(self) -> DriftlineError | None:
        """Return the error for undelivered data after the stream ended on its own; None without any."""
        ...

    def left_out(self) -> tuple[str, ...]:
        """Notes on what the source has and the capture does not take."""
        ...

    def end(self) -> None:
        """Clean up after the stream has ended."""
        ...

    def explain(self, error: str) -> DriftlineError | None:
        """Translate an error of Spark's into one with advice; None for an unknown one."""
        ...


@dataclass(frozen=True, slots=True)
class CaptureRun:
    """A capture that runs, and its options. ``target`` opens its target in the stream's own session."""

    name: str
    target: Callable[[SparkSession], CaptureTarget]
    checkpoint: Checkpoint
    settings: Mapping[str, str]
    progress: Progress
    on_batch: Callable[[Any], None]  # takes a Batch, of a pattern a PatternBatch
    listener: Listener[Result]
    status: StatusFile
    audit: Audit = NO_AUDIT


@front
class CaptureQuery(StreamingQuery):
    """A running capture: Spark's query, with driftline's errors, that stops between batches."""

    def __init__(
        self, query: StreamingQuery, runner: _Runner, flow: StreamSource, stack: ExitStack, pause: float
    ) -> None:
        super().__init__(query._jsq)
        self._runner, self._flow, self._java = runner, flow, java_process()
        self._keeper = threading.Thread(target=self._keep, args=(stack, pause), daemon=True)
        self._keeper.start()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802  Spark's name
        """Wait for the end; True if it came within ``timeout`` seconds. Raises the stream's error."""
        cause: StreamingQueryException | None = None
        try:
            if super().awaitTermination(timeout) is False:  # type: ignore[arg-type]
                return False
        except StreamingQueryException as error:
            cause = error
        self._keeper.join()
        if failure := self._failure(cause):
            raise failure
        return None if timeout is None else True

    def stop(self) -> None:
        """End the stream after the micro-batch that runs now."""
        self._runner.stopping = True
        # Held by the batch that runs, so the stream ends between two batches and never inside one.
        with self._runner.busy:
            super().stop()

    @property
    def checkpoint(self) -> str:
        """The folder in which the capture keeps its progress, or its URI."""
        return self._runner.capture.checkpoint.place

    @property
    def left_out(self) -> tuple[str, ...]:
        """Notes on what the source has and the capture does not take, such as changed files."""
        return self._flow.left_out()

    def lag(self, epoch: int) -> int | None:
        """The number of offsets still to come after a micro-batch; None if Spark does not report it.

        Spark's progress is waited for up to two seconds.
        """
        for _ in range(20):
            progress = self.lastProgress
            if progress is not None and progress["batchId"] >= epoch:
                return lag(_json_of(progress))
            time.sleep(0.1)
        return None

    def _failure(self, cause: StreamingQueryException | None) -> BaseException | None:
        ours = self._runner.error
        if ours is not None:
            return self._runner.left() if isinstance(ours, _Stopped) else ours
        if self._runner.stopping:
            return self._runner.left()
        if cause is None:
            return self._runner.left() or self._flow.left()
        if _DAMAGED in text_of(cause):
            return broken(self._runner.capture.checkpoint.spark)
        message, hint = explained(cause)
        return self._flow.explain(text_of(cause)) or DataError(f"the stream ended: {message}", hint)

    def _keep(self, stack: ExitStack, pause: float) -> None:
        """Hold the checkpoint, and look for new files, until the stream ends."""
        # What ends the stream, or Java, is raised where the end is waited for.
        with suppress(Py4JError, ConnectionError), stack:
            cause: StreamingQueryException | None = None
            try:
                while not super().awaitTermination(pause):  # type: ignore[arg-type]
                    self._look()
            except StreamingQueryException as error:
                cause = error
            self._note_lag()
            self._runner.capture.status.end(self._failure(cause))

    def _look(self) -> None:
        """Look for new files, and note how far behind the topics' end the stream is."""
        try:
            self._flow.poll()
        except DriftlineError as error:
            self._runner.error = self._runner.error or error
            self.stop()
        self._note_lag()

    def _note_lag(self) -> None:
        if self._runner.needs_lag and (progress := self.lastProgress) is not None:
            self._runner.capture.status.note_lag(lag(_json_of(progress)))


def _json_of(progress: Any) -> str:
    # Before Spark 4 it is a dictionary.
    return str(progress.json) if hasattr(progress, "json") else json.dumps(progress)


def _no_proxy(record: logging.LogRecord) -> bool:
    return "Python Proxy" not in record.getMessage()


class _Stopped(Exception):
    """The stream was asked to end."""


def start(
    capture: CaptureRun, flow: StreamSource, every: float | None, resumption: Resumption, stack: ExitStack
) -> CaptureQuery:
    """Start the stream.

    Args:
        every: seconds between micro-batches; None: the stream ends when it has caught up.
        stack: holds the checkpoint until the stream ends.
    """
    if not os.environ.get("DRIFTLINE_DEBUG"):
        # What a micro-batch raises is raised again where the stream is waited for.
        logging.getLogger("py4j.clientserver").addFilter(_no_proxy)
    flow.begin(resumption)
    flow.poll()
    runner = _Runner(capture, flow)
    trigger: dict[str, Any] = (
        {"availableNow": True} if every is None else {"processingTime": f"{round(every * 1000)} milliseconds"}
    )
    writer = flow.stream().writeStream.option("checkpointLocation", capture.checkpoint.spark)
    try:
        query = writer.trigger(**trigger).foreachBatch(runner).start()
    except (PySparkException, Py4JError) as error:
        raise runner.in_words(error) from error
    # Spark may call the runner before `start` returns, and a token needs the query's id: it waits.
    runner.stream = str(query.id)
    capture.status.begin()
    runner.started.set()
    return CaptureQuery(query, runner, flow, stack.pop_all(), _AN_HOUR if every is None else every / 2)


class _Runner:
    """The function that Spark calls with each micro-batch."""

    def __init__(self, capture: CaptureRun, flow: StreamSource) -> None:
        self.capture, self.flow = capture, flow
        self.stream = ""
        self.started = threading.Event()
        self.busy = threading.Lock()
        self.stopping = False
        self.error: BaseException | None = None
        self.needs_lag = False  # as the source does not know it, but Spark may
        self._target: CaptureTarget | None = None
        self._tried = True  # a batch may be in already, or half, until one was brought from here

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        self.started.wait()
        try:
            if not self.busy.acquire(blocking=False):  # `CaptureQuery.stop` has it, and waits for this to end
                raise _Stopped
            try:
                if self.stopping:
                    raise _Stopped
                for number in self.flow.batches(epoch):
                    self._bring(frame, number)
            finally:
                self.busy.release()
        except BaseException as error:  # Spark would make text of it
            self.error = self.error or self.in_words(error)
            raise

    def _bring(self, frame: DataFrame, number: int) -> None:
        capture, flow = self.capture, self.flow
        self._target = target = self._target or capture.target(frame.sparkSession)
        token = self._token(number)
        try:
            if self._tried:  # it may be in already, and its files have changed since
                target.must_lack(token)
            source = flow.source(frame, number)
            files = flow.fingerprints(number)
            token = replace(token, contents=flow.contents(number), files=files)
            capture.checkpoint.keep()  # before the target has the batch
            options = Options(
                capture.settings,
                endless=True,
                progress=self._progress,
                listener=capture.listener,
                audit=capture.audit,
            )
            ended = target.ingest(source, token, options, lambda: flow.check(number))
        # The table has it from an attempt that died before Spark noted so: it is closed, not brought again.
        except BatchIsInError:
            flow.close(number)
            return
        finally:
            flow.release()
        # From here on this process knows what it has brought, and the table is not asked before each batch.
        self._tried = False
        target.note(ended, token, number)
        lag, lost = flow.close(number), flow.lost(number)
        self.needs_lag = lag is None
        if lag is not None:
            capture.status.note_lag(lag)
        ended = replace(ended, lag=lag, lost=lost, changed_files=flow.changed_files(number))
        capture.on_batch(ended.with_notes(flow.notes(number)))

    def left(self) -> DriftlineError | None:
        """The error for records that did not get into their table; None without any."""
        return None if self._target is None else self._target.left()

    def _token(self, number: int) -> Token:
        checkpoint = self.capture.checkpoint
        epoch, uuid = checkpoint.epoch_of(number), checkpoint.uuid
        return Token(
            self.capture.name, self.stream, epoch, uuid, tried=self._tried, follows=checkpoint.follows
        )

    def in_words(self, error: BaseException) -> BaseException:
        """The error, or the one that the flow explains it with."""
        cause = error.__cause__ if isinstance(error, DriftlineError) else error
        if not isinstance(cause, PySparkException | Py4JError):
            return error
        if _DAMAGED in str(cause):
            return broken(self.capture.checkpoint.spark)
        better = self.flow.explain(str(cause))
        return better or (error if isinstance(error, DriftlineError) else DataError(*explained(error)))

    def _progress(self, phase: str) -> None:
        self.capture.progress(phase)
        # A capture waits for other writers without limit, so this is where a stop has to be noticed.
        if phase.startswith(WAITING) and self.stopping:
            raise _Stopped
        if phase in PUBLISHING:  # a lost lease ends the batch here
            self.capture.checkpoint.hold()
