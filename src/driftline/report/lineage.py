"""OpenLineage events of each batch: START, then COMPLETE with the columns' lineage, FAIL or ABORT.

The client's own settings name the destination: `OPENLINEAGE_URL`, `OPENLINEAGE__TRANSPORT__…`, a file.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.core.changelog.token import BatchIsInError
from driftline.ingest.result import Result
from driftline.report.dataset_names import DatasetName
from driftline.report.outbox import Outbox

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

    from driftline.report.lineage_events import RunEvents

_LOG = logging.getLogger("driftline")
_FILE = "openlineage.yml"


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


@cache
def _outbox() -> Outbox:
    return Outbox("lineage")


@cache
def _client() -> OpenLineageClient:
    from openlineage.client import OpenLineageClient

    return OpenLineageClient()


class Lineage:
    """Sends events of each batch of ``table``; ``inputs``: those of its sources that have names."""

    def __init__(self, inputs: Sequence[DatasetName], capture: str | None = None) -> None:
        self._inputs, self._capture = inputs, capture
        self._run = self._table = ""
        self._events: RunEvents | None = None  # one thread makes all events

    def begins(self, table: str, batch: str) -> None:
        """Send START, with a new run id."""
        self._table, self._run = table, str(uuid.uuid4())
        self._send("START")

    def ended(self, result: Result) -> None:
        """Send COMPLETE."""
        self._send("COMPLETE", result=result)

    def failed(self, error: BaseException) -> None:
        """Send FAIL, or ABORT if the batch was interrupted or is in the table already."""
        kind = "ABORT" if isinstance(error, BatchIsInError | KeyboardInterrupt) else "FAIL"
        self._send(kind, error=type(error).__name__)

    def _send(self, kind: str, **details: Any) -> None:
        now = datetime.now(UTC).isoformat()
        run, table = self._run, self._table

        def send() -> None:
            """Make the event, and hand it to OpenLineage's client."""
            from driftline.report.lineage_events import BatchRun, RunEvents

            if self._events is None:
                self._events = RunEvents()
            batch = BatchRun(run, table, self._capture, self._inputs)
            _client().emit(self._events.event(kind, now, batch, **details))

        _outbox().put(send)
