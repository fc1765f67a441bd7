"""Metrics of a capture for Prometheus, at a port or in a file. Counters begin with the process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.errors import SetupError, UsageError
from driftline.report.findings import KINDS, findings

if TYPE_CHECKING:
    from driftline.capture.query import Batch


class Metrics:
    """Counts of one capture. Raises SetupError without prometheus-client, or where the port is taken."""

    def __init__(
        self, table: str, capture: str, *, port: int | None = None, file: Path | None = None
    ) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
        except ImportError as error:
            raise SetupError("Metrics need prometheus-client.", "pip install 'driftline[metrics]'") from error
        self.file = file
        self.registry = CollectorRegistry()
        own = {"table": table, "capture": capture}

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"driftline_{name}", about, [*own, *labels], registry=self.registry)

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"driftline_{name}", about, [*own], registry=self.registry).labels(**own)

        self.batches = counter("batches", "Micro-batches that were committed.").labels(**own)
        records = counter("records", "Records of the source, by what became of them.", "outcome")
        self.written = records.labels(**own, outcome="written")
        self.quarantined = records.labels(**own, outcome="quarantined")
        changes = counter("changes", "Changes of the schema, and reasons for quarantine, by kind.", "kind")
        self.changes = {kind: changes.labels(**own, kind=kind) for kind in KINDS}
        self.lag = gauge("lag", "Files or offsets that are still to come, as of the last batch.")
        self.last = gauge("last_batch_timestamp_seconds", "When the last batch was told of; 0: none yet.")
        if port is not None:
            try:
                start_http_server(port, registry=self.registry)
            except OSError as error:
                raise SetupError(
                    f"Metrics cannot be served at port {port}: {error.strerror}.",
                    "Name another with --metrics-port.",
                ) from error
        self._write()

    def count(self, batch: Batch) -> None:
        """Adds a micro-batch."""
        self.batches.inc()
        self.written.inc(batch.result.rows_written)
        self.quarantined.inc(batch.result.rows_quarantined)
        for finding in findings(batch.result):
            self.changes[finding.kind].inc()
        if batch.lag is not None:
            self.lag.set(batch.lag)
        self.last.set(time.time())
        self._write()

    def _write(self) -> None:
        """The file is replaced as a whole, as node exporters want it."""
        from prometheus_client import write_to_textfile

        if self.file is None:
            return
        try:
            write_to_textfile(str(self.file), self.registry)
        except OSError as error:
            raise UsageError(f"{self.file}: cannot be written: {error.strerror}") from error
