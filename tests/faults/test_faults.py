"""A sample of `make faults`: a disk that fills, an operation that fails, a process that dies; then another one goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults.control import Mode, compiler
from faults.harness import Bench, Processes
from servers.machine import lacking

pytestmark = pytest.mark.system

# Where of all operations of a run the fault strikes, from 0 to 1: it is at its commit towards the end.
SAMPLE = [
    ("iceberg", "ingest", Mode.FREEZE, 0.5),
    ("iceberg", "ingest", Mode.FULL, 0.3),
    ("iceberg", "ingest", Mode.FULL, 0.99),
    ("iceberg", "ingest a new table", Mode.FREEZE, 0.9),
    ("iceberg", "alter", Mode.FAIL, 0.6),
    ("iceberg", "undo", Mode.FREEZE, 0.9),
    ("iceberg", "clean", Mode.FAIL, 1),
    ("iceberg", "ingest by key", Mode.FREEZE, 0.6),
    ("iceberg", "ingest by key, format version 2", Mode.FULL, 0.8),
    ("iceberg", "capture by key", Mode.FREEZE, 0.6),
    ("sqlite", "ingest", Mode.FREEZE, 0.6),
    ("sqlite", "ingest", Mode.FREEZE, 0.97),
    ("sqlite", "ingest", Mode.FULL, 0.97),
    ("sqlite", "alter", Mode.FAIL, 0.6),
    ("sqlite", "ingest by key", Mode.FREEZE, 0.6),
    ("duckdb", "ingest", Mode.FREEZE, 0.97),
    ("duckdb", "alter", Mode.FREEZE, 0.5),
    ("duckdb", "capture by key", Mode.FULL, 0.04),
    ("iceberg", "ingest", Mode.KILL, 0.8),  # the last one: after it the next would start another process
]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    if compiler() is None:
        lacking("C compiler", "apt-get install gcc")
    with Processes(tmp_path_factory.mktemp("faults").resolve()) as running:
        yield running


@pytest.fixture(scope="module")
def benches(processes: Processes) -> dict[str, Bench]:
    return {name: Bench(processes, name) for name in {format_ for format_, *_ in SAMPLE}}


@pytest.mark.parametrize(("format_", "case", "mode", "share"), SAMPLE)
def test_nothing_is_lost_or_doubled(
    benches: dict[str, Bench], format_: str, case: str, mode: Mode, share: float
) -> None:
    bench = benches[format_]
    outcome = bench.strike(case, mode, max(1, int(share * bench.operations(case))))
    assert outcome.struck.number, f"it ended before it was struck: {outcome}"
    assert not outcome.wrong, str(outcome)
