"""A sample of `make faults`: a disk that fills, an operation that fails, a process that dies, power that is cut; then
another process goes on.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults.cases import FORMATS
from faults.control import Mode, compiler
from faults.harness import Bench, Processes
from servers.machine import lacking

pytestmark = pytest.mark.system

# Where of all operations of a run the fault strikes, from 0 to 1: it is at its commit towards the end.
SAMPLE = [
    ("iceberg", "ingest", Mode.FREEZE, 0.5),
    ("iceberg", "ingest", Mode.FULL, 0.3),
    ("iceberg", "ingest", Mode.FULL, 0.96),  # into the catalog: what follows, 3 of 100, takes no space
    ("iceberg", "ingest a new table", Mode.FREEZE, 0.9),
    ("iceberg", "alter", Mode.FAIL, 0.6),
    ("iceberg", "undo", Mode.FREEZE, 0.9),
    ("iceberg", "clean", Mode.FAIL, 1),
    ("iceberg", "compact", Mode.FREEZE, 0.9),
    ("iceberg", "compact", Mode.FULL, 0.2),
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
    ("duckdb", "compact", Mode.FREEZE, 0.9),
    ("duckdb", "capture by key", Mode.FULL, 0.04),
    # In its commit, and where it deletes what nothing names any more.
    pytest.param("iceberg", "relocate", Mode.FULL, 0.835, marks=pytest.mark.nightly),
    pytest.param("iceberg", "relocate", Mode.FAIL, 0.975, marks=pytest.mark.nightly),
    pytest.param("iceberg", "compact, unused columns", Mode.FREEZE, 0.9, marks=pytest.mark.nightly),
    pytest.param("duckdb", "compact, unused columns", Mode.FULL, 0.6, marks=pytest.mark.nightly),
    pytest.param("iceberg", "replan", Mode.FREEZE, 0.7, marks=pytest.mark.nightly),  # about its commit
    pytest.param("iceberg", "capture into tables", Mode.FREEZE, 0.45, marks=pytest.mark.nightly),
    pytest.param("duckdb", "capture into tables", Mode.FREEZE, 0.45, marks=pytest.mark.nightly),
    # About the check, which comes behind the writing.
    pytest.param("iceberg", "capture into tables, verified", Mode.FREEZE, 0.4, marks=pytest.mark.nightly),
    # Behind the writing of what is to wait, and before its commit.
    pytest.param("iceberg", "capture past a table in error", Mode.FREEZE, 0.46, marks=pytest.mark.nightly),
    ("iceberg", "ingest", Mode.KILL, 0.8),  # the last one: after it the next would start another process
]


NIGHTLY = pytest.mark.nightly
# Where the power is cut, of all operations; and behind the last one.
CUTS = [
    ("iceberg", "ingest", 0.93),
    ("duckdb", "ingest", 0.95),
    pytest.param("iceberg", "alter", 0.7, marks=NIGHTLY),
    pytest.param("iceberg", "undo", 0.7, marks=NIGHTLY),
    pytest.param("iceberg", "replay", 0.9, marks=NIGHTLY),
    pytest.param("iceberg", "compact", 0.9, marks=NIGHTLY),
    pytest.param("iceberg", "ingest audited", 0.93, marks=NIGHTLY),
    pytest.param("iceberg", "ingest abandoned", 0.7, marks=NIGHTLY),
    pytest.param("duckdb", "ingest audited", 0.95, marks=NIGHTLY),
    pytest.param("duckdb", "ingest abandoned", 0.7, marks=NIGHTLY),
    pytest.param("iceberg", "capture by key", 0.5, marks=NIGHTLY),
    pytest.param("iceberg", "capture into tables", 0.45, marks=NIGHTLY),
    pytest.param("sqlite", "ingest by key", 0.9, marks=NIGHTLY),
    pytest.param("sqlite", "resolve", 0.9, marks=NIGHTLY),
    pytest.param("duckdb", "capture", 0.5, marks=NIGHTLY),
    pytest.param("iceberg", "relocate", 0.8, marks=NIGHTLY),
    pytest.param("iceberg", "relocate a table", 0.95, marks=NIGHTLY),
    pytest.param("duckdb", "relocate", 0.5, marks=NIGHTLY),
    pytest.param("sqlite", "relocate", 0.5, marks=NIGHTLY),
]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    if compiler() is None:
        lacking("C compiler", "apt-get install gcc")
    with Processes(tmp_path_factory.mktemp("faults").resolve()) as running:
        yield running


@pytest.fixture(scope="module")
def benches(processes: Processes) -> dict[str, Bench]:
    return {name: Bench(processes, name) for name in FORMATS}


@pytest.mark.parametrize(("format_", "case", "share"), CUTS)
def test_a_power_cut_takes_nothing_that_was_acknowledged(
    benches: dict[str, Bench], format_: str, case: str, share: float
) -> None:
    outcomes = list(benches[format_].power_cuts(case, lambda count: [int(share * count)]))

    assert len(outcomes) > 1
    assert [str(outcome) for outcome in outcomes if outcome.wrong] == []


@pytest.mark.parametrize(("format_", "case", "mode", "share"), SAMPLE)
def test_nothing_is_lost_or_doubled(
    benches: dict[str, Bench], format_: str, case: str, mode: Mode, share: float
) -> None:
    bench = benches[format_]
    outcome = bench.strike(case, mode, max(1, int(share * bench.operations(case))))
    assert outcome.struck.number, f"it ended before it was struck: {outcome}"
    assert not outcome.wrong, str(outcome)
