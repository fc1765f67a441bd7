"""OpenLineage events of each batch: START, then COMPLETE with the columns' lineage, FAIL or ABORT.

The client's own settings name the destination: `OPENLINEAGE_URL`, `OPENLINEAGE__TRANSPORT__…`, a file.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.core.history.batch_properties import BatchIsInError
from driftline.ingest.fan_out import FanOutError, FanOutResult
from driftline.ingest.result import Result
from driftline.report.dataset_names import DatasetName

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

    from driftline.report.lineage_events import RunEvents

_LOG = logging.getLogger("driftline")
_FILE = "openlineage.yml"
MOST = 1000  # events that wait
_PATIENCE = 5.0  # seconds at the process's end


def wanted(env: Mapping[str, str] = os.environ) -> bool:
    """True if events have a destination, and can be made."""
    if env.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    is_configured = any(name.startswith("OPENLINEAGE_") for name in env)
    if not is_configured and not any(
        (folder / _FILE).is_file() for folder in (Path(), Path.home() / ".openlineage")
    ):
        return False
    return _installed()


@cache
def _installed() -> bool:
    is_installed = find_spec("openlineage") is not None
    if not is_installed:
        _LOG.warning(
            "lineage: OpenLineage is configured, and not installed: pip install 'driftline[lineage]'"
        )
    return is_installed


class Outbox:
    """Sends messages in order from a thread of its own; only the end of the process waits for it.

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

    def flush(self, patience: float = _PATIENCE) -> None:
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


@cache
def _outbox() -> Outbox:
    return Outbox("lineage")


@cache
def _client() -> OpenLineageClient:
    from openlineage.client import OpenLineageClient

    return OpenLineageClient()


class Lineage:
    """Sends events of each batch into a table, or the tables of a pattern.

    ``inputs``: those of its sources that have names.
    """

    def __init__(self, inputs: Sequence[DatasetName], capture: str | None = None) -> None:
        self._inputs, self._capture = inputs, capture
        self._batch = threading.local()  # several tables' batches may begin before the first one ends
        self._events: RunEvents | None = None  # one thread makes all events

    def begins(self, into: str, batch: str) -> None:
        """Send START, with a new run id."""
        self._batch.into, self._batch.run = into, str(uuid.uuid4())
        self._send("START")

    def ended(self, result: Result | FanOutResult) -> None:
        """Send COMPLETE."""
        self._send("COMPLETE", results=result.results if isinstance(result, FanOutResult) else (result,))

    def failed(self, error: BaseException) -> None:
        """Send FAIL, with the tables that have their records; or ABORT if the batch was interrupted, or is in
        the table already.
        """
        # The message of an error may hold secrets or values, so events name its type alone.
        kind = "ABORT" if isinstance(error, BatchIsInError | KeyboardInterrupt) else "FAIL"
        committed = error.result.committed if isinstance(error, FanOutError) else ()
        self._send(kind, results=committed, error=type(error).__name__)

    def _send(self, kind: str, **details: Any) -> None:
        now = datetime.now(UTC).isoformat()
        run, into = self._batch.run, self._batch.into

        def send() -> None:
            """Make the event, and hand it to OpenLineage's client."""
            from driftline.report.lineage_events import LineageRun, RunEvents

            if self._events is None:
                self._events = RunEvents()
            batch = LineageRun(run, into, self._capture, self._inputs)
            _client().emit(self._events.event(kind, now, batch, **details))

        _outbox().put(send)
