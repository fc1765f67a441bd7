"""Signals and logs of a command: an orderly end after Ctrl-C, and logs as JSON lines.

SIGINT, SIGTERM and SIGHUP cancel Spark's jobs, and the table stays as it was.

An exception in the middle of an answer from Java would leave the rest of that answer to the next call,
which is the one that cleans up. So while Java is busy, its jobs are cancelled instead. Once the commit has
begun, which is short, it is too late for that: the command finishes its report, and then ends. A second
signal ends the process at once, unless it comes with the first: a terminal and the program around may both
pass one on.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from math import inf
from time import monotonic, sleep
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.formats.commit import Progress

_LOG = logging.getLogger("driftline")
_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class _Lines(logging.Formatter):
    """A record as an object: time, level, logger and message, then its fields."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The line, without secrets of the settings."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _USUAL},
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps({key: self._shown(value) for key, value in fields.items()}, ensure_ascii=False)

    def _shown(self, value: Any) -> Any:
        return self._redact(value) if isinstance(value, str) else value


def log_as_json(redact: Callable[[str], str], *, debug: bool) -> None:
    """From now on, standard error has lines of JSON; of other libraries too, from warnings up."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines(redact))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    _LOG.setLevel(logging.DEBUG if debug else logging.INFO)


def logs_json() -> bool:
    """True if the log of this process is JSON."""
    return any(isinstance(handler.formatter, _Lines) for handler in logging.getLogger().handlers)


def log_phase(text: str) -> None:
    """Log the phase that begins."""
    _LOG.info(text, extra={"event": "phase"})


def log_failure(message: str, todo: str | None, error: Exception, code: int, *, trace: bool) -> None:
    """Log the error that ends the command, with advice (``todo``), exit code and, with ``trace``, its
    trace.
    """
    fields = {"event": "error", "error": type(error).__name__, "hint": todo, "exit_code": code}
    _LOG.error(message, extra=fields, exc_info=error if trace else None)


EXIT_CODE = 130
_HANG_UP = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none
_SIGNALS = {signal.SIGINT, signal.SIGTERM, _HANG_UP}
_TOGETHER = 0.5  # seconds within which signals are one
_COMMITTED = "committed"
_BEHIND = (_COMMITTED, "compacting")  # phases of a batch that is in
_COMMITS = ("quarantining", "committing", *_BEHIND)


class Interrupt:
    """The handler of the signals that end a command.

    ``asked``: one of them came; ``stopping``: it came while it means an end in order; ``cancels``: Spark's
    jobs are cancelled; ``code``: the exit code of the process then; ``outcome``: what is said of the
    table then; ``outcome_behind``: the same once a batch has committed.
    """

    def __init__(self) -> None:
        self.asked = False
        self.stopping = False
        self.cancels = False
        self.code = EXIT_CODE
        self.outcome = "stopped"
        self.outcome_behind = ""
        self.spark: SparkSession | None = None
        self._commits = False
        self._last = -inf  # when a signal came

    def listen(self) -> None:
        """Install the handler for the signals."""
        for number in _listened():
            signal.signal(number, self._pressed)

    def check(self) -> None:
        """Raise KeyboardInterrupt if the command is to end."""
        if self.asked:
            raise KeyboardInterrupt

    def watching(self, progress: Progress) -> Progress:
        """Wrap the progress of work that commits: after the commit an interrupt waits for the report."""

        def phase(text: str) -> None:
            if text not in _BEHIND:
                self.check()
            self._commits = text in _COMMITS
            # From here on the interrupt waits, and an error tells itself if that fails
            if self._commits:
                self.outcome = self.outcome_behind
            progress(text)

        return phase

    @contextmanager
    def gently(self, stop: Callable[[], None]) -> Iterator[None]:
        """Inside, the signals ask for an end in order, by ``stop``; a second one ends at once."""

        def pressed(_: int, __: FrameType | None) -> None:
            if self._comes_with_another():
                return
            if self.stopping:
                os._exit(EXIT_CODE)
            self.stopping = True
            threading.Thread(target=self._end, args=(stop,), daemon=True).start()

        before = {number: signal.signal(number, pressed) for number in _listened()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        if self._comes_with_another():
            return
        if self.asked:
            if sys.stderr.isatty():
                sys.stderr.write("\x1b[?25h")  # the cursor, which progress hides
            os._exit(self.code)
        self.asked, self.code = True, 128 + number
        if self._commits:
            return
        if not _waits_for_java(frame):
            raise KeyboardInterrupt
        # Iceberg's own classes are at it: they answer soon, and the command ends then
        if self.spark is None:
            return
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[2Kstopping; Ctrl-C once more ends at once\n")
        self.cancels = True
        threading.Thread(target=self._cancel, args=(self.spark,), daemon=True).start()

    def _comes_with_another(self) -> bool:
        """True for a signal right behind another one, which counts."""
        now = monotonic()
        if now - self._last < _TOGETHER:
            return True
        self._last = now
        return False

    def _quiet(self) -> None:
        """Keep Spark from logging what tasks and streams lose when they are cancelled."""
        if self.spark is not None and not os.environ.get("DRIFTLINE_DEBUG"):
            self.spark.sparkContext.setLogLevel("OFF")

    def _end(self, stop: Callable[[], None]) -> None:
        # What fails here, as Java has ended, is raised where the end of the work is waited for.
        with suppress(Exception):
            self._quiet()
            stop()

    def _cancel(self, spark: SparkSession) -> None:
        self._quiet()
        while True:  # the next job is not wanted either
            spark.sparkContext.cancelAllJobs()
            sleep(0.3)


def _listened() -> list[signal.Signals]:
    """The signals, without SIGHUP in a command that `nohup` runs."""
    return [n for n in _SIGNALS if n != _HANG_UP or signal.getsignal(n) != signal.SIG_IGN]


def _waits_for_java(frame: FrameType | None) -> bool:
    """True in a call to Java, and while threads make such calls."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(("py4j.", "driftline.runtime.threads")):
            return True
        frame = frame.f_back
    return False
