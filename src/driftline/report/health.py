"""The health of a capture, served over HTTP at /healthz."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from driftline.report.http import serve

INTERVALS = 3  # of the capture's own time between micro-batches
LEAST = 300.0  # seconds: one task may take as long


class Health:
    """A capture's health. ``every``: seconds between the capture's micro-batches, if there is such a time."""

    def __init__(self, every: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.patience = max(LEAST, INTERVALS * (every or 0))
        self._clock = clock
        self._since = clock()
        self._mark: object = None
        self._doing = "starting"

    def seen(self, mark: object, doing: str, *, idle: bool = False) -> None:
        """Record the present state.

        ``mark``: differs if there was progress; ``idle``: there is nothing to do.
        """
        if idle or mark != self._mark:
            self._since = self._clock()
        self._mark, self._doing = mark, doing

    @property
    def fault(self) -> str | None:
        """The reason the capture is unhealthy; None if it is healthy."""
        still = self._clock() - self._since
        return None if still < self.patience else f"no progress for {still:.0f} s: {self._doing}"

    def serve(self, address: str) -> int:
        """Answer probes from now on: 200, or 503 with the fault; returns the port. Raises as `http.serve`."""
        health = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Answer a probe: 200, 503 with the fault, or 404 for another path."""
                is_known = self.path.partition("?")[0] in ("/healthz", "/")
                fault = health.fault if is_known else "ask for /healthz"
                body = json.dumps({"ok": fault is None} | ({"fault": fault} if fault else {})).encode()
                self.send_response(404 if not is_known else 200 if fault is None else 503)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing: probes are no news."""

        return serve(Answer, address, "--health-port")
