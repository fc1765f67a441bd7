"""The status of a capture for those who look at its checkpoint: its lag, and the error that ended it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from driftline.config import redacted
from driftline.errors import DriftlineError, SetupError
from driftline.runtime.disk import replace_file
from driftline.runtime.stores import is_stored

_FILE = "status.json"


@dataclass(frozen=True, slots=True)
class CaptureStatus:
    """The status of a capture that runs, or of its last run.

    Attributes:
        lag: files or offsets still to come after the last micro-batch; None if unknown.
        has_ended: it came to its end, also to one by ``error``; a process that was killed has none.
        error: what ended it, and what to do; empty if nothing did.
    """

    lag: int | None = None
    has_ended: bool = False
    error: str = ""

    @classmethod
    def of(cls, checkpoint: Path) -> CaptureStatus | None:
        """The status in a folder; None if there is none that can be read, as of an earlier version."""
        try:
            return cls(**json.loads((checkpoint / _FILE).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None


class StatusFile:
    """The status of a capture that this process runs, in its checkpoint if that is on this machine.

    Args:
        checkpoint: its folder, or its URI, of which no status is kept.
        secrets: settings whose secrets an error may name.
    """

    def __init__(self, checkpoint: str, secrets: Sequence[Mapping[str, str]] = ()) -> None:
        self._path = None if is_stored(checkpoint) else Path(checkpoint, _FILE)
        self._secrets = secrets
        self._status: CaptureStatus | None = None

    def begin(self) -> None:
        """Note that the capture runs."""
        self._write(CaptureStatus())

    def note_lag(self, lag: int | None) -> None:
        """Note the lag after a micro-batch."""
        self._write(replace(self._status or CaptureStatus(), lag=lag))

    def end(self, failure: BaseException | None = None) -> None:
        """Note the end, and the failure that it came by."""
        # Many of Python's own have no text.
        error = "" if failure is None else redacted(str(failure), *self._secrets) or type(failure).__name__
        self._write(replace(self._status or CaptureStatus(), has_ended=True, error=error))

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Note what is raised inside, where the capture does not begin for it."""
        try:
            yield
        except DriftlineError as error:
            self.end(error)
            raise

    def _write(self, status: CaptureStatus) -> None:
        if self._path is None or status == self._status:
            return
        self._status = status
        with suppress(SetupError):  # a disk that is full ends the capture where its state is kept
            replace_file(self._path, json.dumps(asdict(status)).encode(), durable=False)
