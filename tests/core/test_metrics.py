"""Metrics of batches, as Prometheus and OpenTelemetry read them."""

import re
import socket
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from driftline.core.changes import AddColumn, Reason
from driftline.core.schema.types import STRING, Field, SourceLocation
from driftline.errors import SetupError, UsageError
from driftline.ingest.result import ExpectationOutcome, Result
from driftline.keys.settle import KeyCounts
from driftline.observe.observation import Violations
from driftline.report import metrics
from driftline.report.metrics import Metrics

SIBLING = AddColumn((), Field("a_string", STRING, doc="upsolver_evolved_from:a"), Reason("sibling"))


def batch(written, quarantined, changes=(), **figures):
    return Result("shop.orders", "b", written + quarantined, written, quarantined, changes=changes, **figures)


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
    counted.count(batch(5, 1, (SIBLING,), files_written=2, bytes_written=80, commit_seconds=0.5), lag=3)
    more = batch(2, 0, files_written=1, bytes_written=20, commit_seconds=0.25)
    counted.count(more, changed_files={"append": 2, "again": 0})
    found = samples(file.read_text())
    assert found["driftline_batches_total",] == 2
    assert found["driftline_records_total", "written"] == 7
    assert found["driftline_records_total", "quarantined"] == 1
    assert found["driftline_changes_total", "sibling"] == 1
    assert found["driftline_changes_total", "new"] == 0
    assert found["driftline_written_files_total",] == 3
    assert found["driftline_written_bytes_total",] == 100
    assert found["driftline_commit_seconds_total",] == 0.75
    assert found["driftline_changed_files_total", "append"] == 2
    assert found["driftline_changed_files_total", "again"] == 0
    assert found["driftline_lag",] == 3
    assert found["driftline_last_batch_timestamp_seconds",] > 0
    assert 'capture="orders",table="shop.orders"' in file.read_text()


def test_tables_of_a_pattern_are_counted_by_name_and_the_lag_by_the_pattern(tmp_path):
    file = tmp_path / "hooks.prom"
    for _ in range(2):
        tables = [replace(batch(5, 1), table="h.a"), replace(batch(2, 0), table="h.b")]
        Metrics("h.{event}", "hooks", file=file).count_tables(tables, lag=3)
    text = file.read_text()
    for line in (
        'driftline_records_total{capture="hooks",outcome="written",table="h.a"} 10.0',
        'driftline_records_total{capture="hooks",outcome="written",table="h.b"} 4.0',
        'driftline_records_total{capture="hooks",outcome="written",table="h.{event}"} 0.0',
        'driftline_lag{capture="hooks",table="h.{event}"} 3.0',
    ):
        assert f"\n{line}\n" in text


def test_changes_by_key_are_counted_by_their_outcome(tmp_path):
    file = tmp_path / "people.prom"
    Metrics("shop.people", file=file).count(batch(3, 1, by_key=KeyCounts(2, 1, 1, 4, 5, 6)))
    records = {
        outcome: count
        for (name, outcome, *_), count in ((k, v) for k, v in samples(file.read_text()).items() if len(k) > 1)
        if name == "driftline_records_total"
    }

    assert records == {
        "written": 3, "quarantined": 1, "deleted": 1, "superseded": 4, "late": 5, "ignored": 6, "duplicate": 0,
    }  # fmt: skip


def test_records_that_do_not_meet_expectations_are_counted_by_name(tmp_path):
    file = tmp_path / "orders.prom"
    unmet = Violations(SourceLocation("a.jsonl", 3), "-1", 2)
    outcomes = {"price": ExpectationOutcome("quarantine", unmet), "at": ExpectationOutcome("warn")}
    Metrics("shop.orders", file=file).count(batch(5, 2, expect=outcomes))
    Metrics("shop.orders", file=file).count(batch(5, 2, expect=outcomes))
    found = samples(file.read_text())

    assert found["driftline_expectation_violations_total", "price"] == 4
    assert found["driftline_expectation_violations_total", "at"] == 0


def test_the_next_process_goes_on_from_the_file_and_keeps_other_tables(tmp_path):
    file = tmp_path / "shop.prom"
    Metrics("shop.orders", "orders", file=file).count(batch(5, 1, (SIBLING,)), lag=3)
    first = samples(file.read_text())
    Metrics("shop.events", file=file).count(batch(4, 0))
    Metrics("shop.orders", "orders", file=file).count(batch(2, 0))
    text = file.read_text()
    assert 'driftline_batches_total{capture="",table="shop.events"} 1.0' in text
    orders = samples("\n".join(line for line in text.splitlines() if "shop.events" not in line) + "\n")
    assert orders["driftline_batches_total",] == 2
    assert orders["driftline_records_total", "written"] == 7
    assert orders["driftline_changes_total", "sibling"] == 1
    assert orders["driftline_lag",] == 3
    last = ("driftline_last_batch_timestamp_seconds",)
    assert orders[last] >= first[last] > 0


@pytest.mark.parametrize("content", [b"a {", b"\xff", b'driftline_batches_total{table="x"} many'])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path, content):
    file = tmp_path / "notes"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="notes: not a file of metrics"):
        Metrics("shop.orders", file=file)
    assert file.read_bytes() == content


def test_the_docs_name_each_metric_once():
    docs = Path(__file__).parents[2] / "docs/operate.md"
    named = re.findall(r"^\| `driftline_(\w+?)(?:_total)?(?:\{\w+\})?` \|", docs.read_text(), re.MULTILINE)
    assert named == list(metrics.METRICS)


def test_a_port_serves_the_same_and_one_that_is_taken_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    counted = Metrics("shop.orders", "orders", address=str(port))
    counted.count(batch(5, 0))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert samples(answer.read().decode())["driftline_records_total", "written"] == 5
    with (
        socket.create_server(("0.0.0.0", 0)) as taken,
        pytest.raises(SetupError, match=r"--metrics-port [0-9]+: Address already in use"),
    ):
        Metrics("shop.orders", "orders", address=str(taken.getsockname()[1]))


@pytest.fixture
def reader(monkeypatch):
    """The counts of OpenTelemetry, as a program has set it up."""
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
    telemetry.ended(batch(5, 1, (SIBLING,), bytes_read=70, seconds=1.5, files_written=2, bytes_written=80))
    telemetry.ended(batch(2, 0, bytes_read=30, seconds=0.5, commit_seconds=0.25))
    telemetry.captured("shop.orders", 3, {"append": 2, "again": 0})
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
        ("driftline.read_bytes",): 100,
        ("driftline.written_files",): 2,
        ("driftline.written_bytes",): 80,
        ("driftline.changed_files", "append"): 2,
        ("driftline.seconds",): 2.0,
        ("driftline.commit_seconds",): 0.25,
        ("driftline.retries",): 0,
        ("driftline.lag",): 3,
    }


def test_opentelemetry_is_left_alone_where_nobody_uses_it():
    code = "import driftline.lake; from driftline.report.listeners import is_measured; print(is_measured())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
