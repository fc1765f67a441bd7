"""An outbox: a thread sends its messages beside the work, and only the end of the process waits for it."""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time
from collections.abc import Callable

_LOG = logging.getLogger("driftline")
MOST = 1000  # that wait
PATIENCE = 5.0  # seconds at the process's end


class Outbox:
    """Sends messages in order.

    ``name``: its name in the log, which gets one line for a series of failures.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue(MOST)
        self._thread: threading.Thread | None = None
        self._works = True

    def put(self, send: Callable[[], None]) -> None:
        """Queue a message; it is dropped, with a warning, if `MOST` wait already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
            atexit.register(self.flush)
        try:
            self._waiting.put_nowait(send)
        except queue.Full:
            self._failed(f"{MOST} wait, and more are not kept")

    def flush(self, patience: float = PATIENCE) -> None:
        """Wait until all is sent, ``patience`` seconds at most."""
        end = time.monotonic() + patience
        while self._waiting.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.01)
        if self._waiting.unfinished_tasks:
            _LOG.warning("%s: %d could not be sent in time", self._name, self._waiting.unfinished_tasks)

    def _run(self) -> None:
        while True:
            send = self._waiting.get()
            try:
                send()
                self._works = True
            except Exception as error:  # what others say may have a secret in it
                self._failed(type(error).__name__)
            finally:
                self._waiting.task_done()

    def _failed(self, why: str) -> None:
        if self._works:
            _LOG.warning("%s: cannot be sent: %s; batches go on", self._name, why)
        self._works = False
