"""Ctrl-C and SIGTERM: Spark's jobs are cancelled, and the command ends in order, with the table as it was.

An exception in the middle of an answer from Java would leave the rest of that answer to the next call, which
is the one that cleans up. So while Java is busy, its jobs are cancelled instead. Once the commit has begun,
which is short, it is too late for that: the command finishes its report, and then ends. A second signal ends
the process at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from driftline.formats.retry import Progress

EXIT_CODE = 130
_COMMITTED = "committed"
_COMMITS = ("quarantining", "committing", _COMMITTED)


class Interrupt:
    """The handler of Ctrl-C and SIGTERM.

    ``asked``: one of them came; ``stopping``: it came while it means an end in order; ``cancels``: Spark's
    jobs are cancelled; ``code``: the exit code of the process then; ``outcome``: what is said of the
    table then; ``outcome_behind``: the same once a batch has committed.
    """

    def __init__(self) -> None:
        self.asked = False
        self.stopping = False
        self.cancels = False
        self.code = EXIT_CODE
        self.outcome = self.outcome_behind = ""
        self.spark: SparkSession | None = None
        self._commits = False

    def listen(self) -> None:
        """Install the handler for Ctrl-C and SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._pressed)

    def check(self) -> None:
        """Raise KeyboardInterrupt if the command is to end."""
        if self.asked:
            raise KeyboardInterrupt

    def watching(self, progress: Progress) -> Progress:
        """Wrap the progress of work that commits: after the commit an interrupt waits for the report."""

        def phase(text: str) -> None:
            if text != _COMMITTED:
                self.check()
            self._commits = text in _COMMITS
            if self._commits:  # from here on the interrupt waits, and an error tells itself if that fails
                self.outcome = self.outcome_behind
            progress(text)

        return phase

    @contextmanager
    def gently(self, stop: Callable[[], None]) -> Iterator[None]:
        """Inside, Ctrl-C and SIGTERM ask for an end in order, by ``stop``; a second one ends at once."""

        def pressed(_: int, __: FrameType | None) -> None:
            if self.stopping:
                os._exit(EXIT_CODE)
            self.stopping = True
            threading.Thread(target=stop, daemon=True).start()

        before = {number: signal.signal(number, pressed) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            if sys.stderr.isatty():
                sys.stderr.write("\x1b[?25h")  # the cursor, which progress hides
            os._exit(self.code)
        self.asked, self.code = True, 128 + number
        if self._commits:
            return
        if not _asks_java(frame):
            raise KeyboardInterrupt
        if self.spark is None:  # Iceberg's own classes are at it: they answer soon, and the command ends then
            return
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[2Kstopping; Ctrl-C once more ends at once\n")
        self.cancels = True
        threading.Thread(target=self._cancel, args=(self.spark,), daemon=True).start()

    def _cancel(self, spark: SparkSession) -> None:
        while True:  # the next job is not wanted either
            spark.sparkContext.cancelAllJobs()
            sleep(0.3)


def _asks_java(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("py4j."):
            return True
        frame = frame.f_back
    return False
