"""Metrics of batches for Prometheus and OpenTelemetry, and a capture's health over HTTP.

Counters begin with the process; those of a file go on from its contents.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from driftline import __version__
from driftline.errors import SetupError, UsageError
from driftline.ingest.result import Result
from driftline.report.findings import KINDS, findings

# The ports have no login, so by default they listen on this machine alone.
HERE = "127.0.0.1"
_PATIENCE = 10.0  # seconds for a request to arrive


def serve(handler: type[BaseHTTPRequestHandler], address: str, option: str) -> int:
    """Answer by the handler from now on; returns the port.

    The address is ``PORT``, on this machine alone, or ``HOST:PORT``; port 0 lets the system choose. Raises
    UsageError if ``option`` has no address, SetupError if it cannot be served.
    """
    host, port = parsed(address, option)

    # prometheus-client's own server has no time limit, so silent clients would hold its threads.
    class Patient(handler):  # type: ignore[misc, valid-type]
        timeout = _PATIENCE  # a client that sends nothing holds a thread no longer

    try:
        server = ThreadingHTTPServer((host, port), Patient)
    except OSError as error:
        raise SetupError(f"{option} {address}: {error.strerror}", "use another address") from error
    threading.Thread(target=server.serve_forever, name=option, daemon=True).start()
    return int(server.server_address[1])


def parsed(address: str, option: str) -> tuple[str, int]:
    """Host and port of an address.

    >>> parsed("8080", "--health-port"), parsed("0.0.0.0:8080", "--health-port")
    (('127.0.0.1', 8080), ('0.0.0.0', 8080))
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{option} {address}: not a port", "use 8080, or 0.0.0.0:8080 for all networks")
    return host or HERE, int(port)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. ``label`` distinguishes its ``values``, which may be known from batches alone.

    ``adds``: it only grows; otherwise it is set. ``unit``: in UCUM.
    """

    about: str
    unit: str
    label: str = ""
    values: tuple[str, ...] = ()
    adds: bool = True


# Outcomes of changes by key that write no row.
_WITHOUT_A_ROW = ("deleted", "superseded", "late", "ignored", "duplicate")

METRICS: Mapping[str, Metric] = {
    "batches": Metric("Batches that were committed.", "{batch}"),
    "records": Metric(
        "Records of the source, by what became of them.",
        "{record}",
        "outcome",
        ("written", "quarantined", *_WITHOUT_A_ROW),
    ),
    "changes": Metric(
        "Changes of the schema, and reasons for quarantine, by kind.", "{change}", "kind", KINDS
    ),
    "expectation_violations": Metric(
        "Records that did not meet an expectation, whatever became of them.", "{record}", "expectation"
    ),
    "read_bytes": Metric("Bytes of the files that were read, as they lie there.", "By"),
    "written_files": Metric("Data files that the table got.", "{file}"),
    "written_bytes": Metric("Bytes of those.", "By"),
    "changed_files": Metric(
        "Files of a capture that had changed since they were taken, by their fate.",
        "{file}",
        "fate",
        ("append", "again", "skip"),
    ),
    "seconds": Metric("Time that batches took, from the first look to the commit.", "s"),
    "commit_seconds": Metric("Time of that in commits, waits for other writers included.", "s"),
    "retries": Metric("Times that another writer was faster, and the batch tried again.", "{retry}"),
    "lag": Metric("Files or offsets that are still to come, as of the last batch.", "{item}", adds=False),
    "last_batch_timestamp_seconds": Metric("When the last batch was told of; 0: none yet.", "s", adds=False),
}


class MetricSample(NamedTuple):
    """An amount to add to a metric, or its new value. ``value``: of its label."""

    metric: str
    amount: float
    value: str = ""


def readings(result: Result) -> Iterator[MetricSample]:
    """The amounts a batch adds to the metrics."""
    yield MetricSample("batches", 1)
    yield MetricSample("records", result.rows_written, "written")
    yield MetricSample("records", result.rows_quarantined, "quarantined")
    for outcome in _WITHOUT_A_ROW:
        if count := result.outcomes.get(outcome):
            yield MetricSample("records", count, outcome)
    yield from (MetricSample("changes", 1, finding.kind) for finding in findings(result))
    for name, violated in result.expect.items():
        yield MetricSample("expectation_violations", violated.count, name)
    yield MetricSample("read_bytes", result.bytes_read)
    yield MetricSample("written_files", result.files_written)
    yield MetricSample("written_bytes", result.bytes_written)
    yield MetricSample("seconds", result.seconds)
    yield MetricSample("commit_seconds", result.commit_seconds)
    yield MetricSample("retries", result.retries)
    yield MetricSample("last_batch_timestamp_seconds", time.time())


def of_capture(lag: int | None, changed_files: Mapping[str, int]) -> Iterator[MetricSample]:
    """The amounts that a batch of a capture adds besides, and its lag, if known."""
    if lag is not None:
        yield MetricSample("lag", lag)
    for fate, count in changed_files.items():
        if count:
            yield MetricSample("changed_files", count, fate)


class Metrics:
    """The metrics of one table, or of those of a pattern, for Prometheus, at an address or in a file.

    ``capture``: the capture that fills the table, "" if none does. Raises SetupError without
    prometheus-client, or if the address is taken; UsageError for an invalid address, and for a file that has
    no metrics.
    """

    def __init__(
        self, table: str, capture: str = "", *, address: str | None = None, file: Path | None = None
    ) -> None:
        try:
            from prometheus_client import CollectorRegistry, MetricsHandler, disable_created_metrics
        except ImportError as error:
            raise SetupError("Metrics need prometheus-client.", "pip install 'driftline[metrics]'") from error
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a file's counters are older than this
        self.file = file
        self.registry = CollectorRegistry()
        self._own = {"table": table, "capture": capture}
        self._known = {name: self._new(name, metric) for name, metric in METRICS.items()}
        # A scheduled command is a new process each time: counters that restart would show no increase.
        if file is not None and file.is_file():
            self._go_on(file)
        if address is not None:
            serve(MetricsHandler.factory(self.registry), address, "--metrics-port")
        self._write()

    def count(
        self, result: Result, lag: int | None = None, changed_files: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """Add a batch; ``lag``: the files or offsets still to come after it, if known; ``changed_files``: of
        a capture, by their fate.
        """
        for reading in (*readings(result), *of_capture(lag, changed_files)):
            self._take(reading)
        self._write()

    def count_tables(
        self,
        results: Sequence[Result],
        lag: int | None = None,
        changed_files: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Add a batch of the tables of a pattern, each under its own name; the rest as `count`."""
        for result in results:
            for reading in readings(result):
                self._take(reading, result.table)
        for reading in of_capture(lag, changed_files):
            self._take(reading)
        self._write()

    def _new(self, name: str, metric: Metric) -> Any:
        from prometheus_client import Counter, Gauge

        kind = Counter if metric.adds else Gauge
        metric_family = kind(f"driftline_{name}", metric.about, self._labels(metric), registry=self.registry)
        for value in metric.values if metric.label else ("",):  # so that each is there from the start
            metric_family.labels(*self._own.values(), *([value] if value else []))
        return metric_family

    def _labels(self, metric: Metric) -> list[str]:
        return [*self._own, *([metric.label] if metric.label else [])]

    def _take(self, reading: MetricSample, table: str = "") -> None:
        own = self._own | ({"table": table} if table else {})
        labels = [*own.values(), *([reading.value] if reading.value else [])]
        _put(METRICS[reading.metric], self._known[reading.metric].labels(*labels), reading.amount)

    def _go_on(self, file: Path) -> None:
        """From what earlier processes have counted, of other tables too."""
        from prometheus_client.parser import text_string_to_metric_families

        try:
            families = list(text_string_to_metric_families(file.read_text("utf-8")))
            samples = [sample for family in families for sample in family.samples]
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{file}: not a file of metrics in Prometheus format", "pass another file with --metrics-file"
            ) from error
        by_sample = {f"driftline_{name}{'_total' if m.adds else ''}": name for name, m in METRICS.items()}
        for sample in samples:
            name = by_sample.get(sample.name)
            if name is not None and sample.labels.keys() == {*self._labels(METRICS[name])}:
                _put(METRICS[name], self._known[name].labels(**sample.labels), sample.value)

    def _write(self) -> None:
        """The file is replaced as a whole, as node exporters want it."""
        from prometheus_client import write_to_textfile

        if self.file is None:
            return
        try:
            write_to_textfile(str(self.file), self.registry)
        except OSError as error:
            raise UsageError(f"{self.file}: cannot be written: {error.strerror}") from error


def _put(metric: Metric, child: Any, amount: float) -> None:
    child.inc(amount) if metric.adds else child.set(amount)


class Telemetry:
    """Metrics through OpenTelemetry's API, of a call or a ``capture``."""

    def __init__(self, capture: str | None = None) -> None:
        self._own = {} if capture is None else {"capture": capture}

    def begins(self, table: str, batch: str) -> None:
        """Nothing is counted yet."""

    def ended(self, result: Result) -> None:
        """Add the amounts of the batch to the metrics."""
        for reading in readings(result):
            self._take(result.table, reading)

    def failed(self, error: BaseException) -> None:
        """Nothing is counted."""

    def captured(self, table: str, lag: int | None, changed_files: Mapping[str, int]) -> None:
        """Add what only a batch of a capture has."""
        for reading in of_capture(lag, changed_files):
            self._take(table, reading)

    def _take(self, table: str, reading: MetricSample) -> None:
        metric = METRICS[reading.metric]
        label = {metric.label: reading.value} if metric.label else {}
        instrument = _instruments()[reading.metric]
        take = instrument.add if metric.adds else instrument.set
        take(reading.amount, {"table": table, **self._own, **label})


@cache
def _instruments() -> dict[str, Any]:
    from opentelemetry.metrics import get_meter

    meter = get_meter("driftline", __version__)
    makers = {True: meter.create_counter, False: meter.create_gauge}
    return {
        name: makers[metric.adds](f"driftline.{name}", metric.unit, metric.about)
        for name, metric in METRICS.items()
    }


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

        # A server of its own: prometheus-client answers every path with metrics, so a probe would always
        # succeed.
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
