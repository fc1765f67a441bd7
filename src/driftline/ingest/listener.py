"""Listeners to batches: logs, metrics, lineage. None of them can fail a batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from driftline.ingest.batch import BatchRequest
from driftline.ingest.result import Result

_LOG = logging.getLogger("driftline")


class Listener(Protocol):
    """Notified of each batch as it begins and as it ends; must return quickly."""

    def begins(self, table: str, batch: str) -> None:
        """A batch of the table, by its id, is about to be observed."""
        ...

    def ended(self, result: Result) -> None:
        """The batch was committed, or it was empty."""
        ...

    def failed(self, error: BaseException) -> None:
        """The batch failed. The error is raised next."""
        ...


class Listeners:
    """Several listeners as one. One that raises an error is logged, and not called again."""

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self._listeners = list(listeners)

    def begins(self, table: str, batch: str) -> None:
        """Notify each listener that a batch begins."""
        self._each(lambda listener: listener.begins(table, batch))

    def ended(self, result: Result) -> None:
        """Notify each listener that the batch ended."""
        self._each(lambda listener: listener.ended(result))

    def failed(self, error: BaseException) -> None:
        """Notify each listener that the batch failed."""
        self._each(lambda listener: listener.failed(error))

    def _each(self, tell: Callable[[Listener], None]) -> None:
        for listener in tuple(self._listeners):
            try:
                tell(listener)
            except Exception as error:
                self._listeners.remove(listener)
                # What others say may have a secret in it.
                name, cause = type(listener).__name__.lower(), type(error).__name__
                _LOG.warning("%s ends: %s; batches go on", name, cause)


def heard(batch: BatchRequest, listener: Listener, take: Callable[[BatchRequest], Result]) -> Result:
    """Take the batch, and notify the listener."""
    began = time.monotonic()
    listener.begins(batch.table.name, batch.id)
    try:
        ended = take(batch)
    except BaseException as error:
        listener.failed(error)
        raise
    size = sum(stamp.size for stamp in batch.files.values())
    ended = replace(
        ended,
        bytes_read=size,
        seconds=time.monotonic() - began,
        commit_seconds=batch.retry.committing,
        retries=batch.retry.conflicts,
    )
    listener.ended(ended)
    return ended
