"""Metrics of a capture, as Prometheus reads them."""

import socket
import subprocess
import sys
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from driftline.capture.query import Batch
from driftline.core.changes import AddColumn, Reason
from driftline.core.schema.types import STRING, Field
from driftline.errors import SetupError
from driftline.ingest.result import Result
from driftline.report import metrics
from driftline.report.metrics import Metrics


def batch(epoch, written, quarantined, changes=(), lag=None):
    result = Result("shop.orders", "b", written + quarantined, written, quarantined, changes=changes)
    return Batch("orders", epoch, result, lag=lag)


def samples(text):
    """Sample by name and by its label that is not the capture's own."""
    own = {"table", "capture"}
    return {
        (sample.name, *(v for k, v in sample.labels.items() if k not in own)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_a_file_has_what_came_in_so_far(tmp_path):
    file = tmp_path / "orders.prom"
    counted = Metrics("shop.orders", "orders", file=file)
    assert samples(file.read_text())["driftline_batches_total",] == 0
    sibling = AddColumn((), Field("a_string", STRING, doc="upsolver_evolved_from:a"), Reason("sibling"))
    counted.count(batch(0, 5, 1, (sibling,), lag=3))
    counted.count(batch(1, 2, 0))
    found = samples(file.read_text())
    assert found["driftline_batches_total",] == 2
    assert found["driftline_records_total", "written"] == 7
    assert found["driftline_records_total", "quarantined"] == 1
    assert found["driftline_changes_total", "sibling"] == 1
    assert found["driftline_changes_total", "new"] == 0
    assert found["driftline_lag",] == 3
    assert found["driftline_last_batch_timestamp_seconds",] > 0
    assert 'capture="orders",table="shop.orders"' in file.read_text()


def test_a_port_serves_the_same_and_one_that_is_taken_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    counted = Metrics("shop.orders", "orders", port=port)
    counted.count(batch(0, 5, 0))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert samples(answer.read().decode())["driftline_records_total", "written"] == 5
    with socket.create_server(("0.0.0.0", 0)) as taken, pytest.raises(SetupError, match="cannot be served"):
        Metrics("shop.orders", "orders", port=taken.getsockname()[1])


@pytest.fixture
def reader(monkeypatch):
    """What OpenTelemetry has counted, where a program has set it up."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr("opentelemetry.metrics.get_meter", provider.get_meter)
    metrics._instruments.cache_clear()
    yield reader
    metrics._instruments.cache_clear()
    provider.shutdown()


def test_opentelemetry_counts_the_same(reader):
    telemetry = metrics.Telemetry("orders")
    sibling = AddColumn((), Field("a_string", STRING, doc="upsolver_evolved_from:a"), Reason("sibling"))
    telemetry.ended(replace(batch(0, 5, 1, (sibling,)).result, bytes_read=70, seconds=1.5))
    telemetry.ended(replace(batch(1, 2, 0).result, bytes_read=30, seconds=0.5))
    telemetry.lag("shop.orders", 3)
    (resource,) = reader.get_metrics_data().resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "driftline"
    found = {
        (metric.name, *(v for k, v in point.attributes.items() if k not in ("table", "capture"))): point.value
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    assert found.pop(("driftline.last_batch_timestamp_seconds",)) > 0
    assert found == {
        ("driftline.batches",): 2,
        ("driftline.records", "written"): 7,
        ("driftline.records", "quarantined"): 1,
        ("driftline.changes", "sibling"): 1,
        ("driftline.bytes",): 100,
        ("driftline.seconds",): 2.0,
        ("driftline.retries",): 0,
        ("driftline.lag",): 3,
    }


def test_opentelemetry_is_left_alone_where_nobody_uses_it():
    code = "import sys, driftline.lake; from driftline.report.metrics import Telemetry; print(Telemetry.wanted())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
