"""Fixtures that all tests share, and markers by the tests' folders."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import driftline
from driftline.runtime.java import QUICK
from servers.catalogs import CATALOGS
from servers.fixtures import cluster, google, kafka, lakehouse, rest, s3  # noqa: F401

# The same examples each time, so that a change is judged by what it changes; `make fuzz` looks for others.
# Machines are of any speed, and busy: nothing fails by the clock.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", UNHURRIED, derandomize=True, max_examples=50)
settings.register_profile("fuzz", UNHURRIED)
settings.load_profile("fuzz" if "DRIFTLINE_FUZZ" in os.environ else "same")

# Each Java of a test, and of the commands that it runs: none lives long enough to repay the better compiler, or a
# collector with threads of its own. Hadoop runs chmod for each file that it makes, which VFORK does without a helper
# process between the two.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS", f"{QUICK} -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--in-bucket", action="store_true", help="DuckLakes of tests/lake have their files in S3"
    )
    parser.addoption(
        "--both-formats",
        action="store_true",
        help="tests/lake runs over DuckLake what is the same in each format",
    )
    parser.addoption(
        "--until",
        type=float,
        help="the time, in seconds since 1970, from which no nightly test begins any more: each is skipped, and named",
    )
    parser.addoption(
        "--in-catalog", choices=sorted(CATALOGS), help="Iceberg alone in tests/lake: attached to this catalog"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    until = item.config.getoption("--until")
    if until is not None and time.time() > until and item.get_closest_marker("nightly"):
        pytest.skip(f"no time was left for {item.nodeid}")


def pytest_report_header() -> str:
    """Say where driftline is imported from: the checkout, or a wheel."""
    return f"driftline: {Path(driftline.__file__).parent}"


MARKED = {"lake", "system"}


# Files of few and long tests, which begin first: of two processes, none waits for the other's last file.
LONG = ("test_capture_faults.py", "test_pattern_deaths.py", "test_docs.py", "test_real_data.py")


# Tests that need one of these start a server or a browser.
SERVES = {"bucket", "browser", "google", "kafka", "lakehouse", "mirror", "postgres", "rest", "s3"}
# Files whose tests kill processes, wait for them, or run at length.
KILLS_OR_WAITS = {
    "test_alter_commit.py",
    "test_alter_defaults.py",
    "test_alter_random.py",
    "test_alter_required.py",
    "test_archive.py",
    "test_arrow_rows.py",
    "test_bench.py",
    "test_bucket_away.py",
    "test_capture_cli.py",
    "test_capture_deaths.py",
    "test_capture_faults.py",
    "test_capture_keys.py",
    "test_capture_restored.py",
    "test_catalog_faults.py",
    "test_cli.py",
    "test_cli_alter.py",
    "test_cli_ducklake.py",
    "test_completion.py",
    "test_copied_lake.py",
    "test_deploy.py",
    "test_ducklake_bucket.py",
    "test_ducklake_faults.py",
    "test_faults.py",
    "test_first_start.py",
    "test_hive.py",
    "test_image.py",
    "test_java_dies.py",
    "test_maps.py",
    "test_outcome.py",
    "test_page.py",
    "test_retry.py",
    "test_settle.py",
    "test_site.py",
    "test_task_faults.py",
    "test_terminal.py",
    "test_wheel.py",
}


def draws_again(item: pytest.Item) -> bool:
    """True for a random walk that two others of its kind take from other seeds."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("seed", 0) > 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        serves = SERVES & set(getattr(item, "fixturenames", ()))
        if "core" not in item.path.parts and (serves or item.path.name in KILLS_OR_WAITS):
            item.add_marker("nightly")
        if draws_again(item):
            item.add_marker("nightly")
        for name in MARKED & set(item.path.parts):
            item.add_marker(name)
    items.sort(key=lambda item: (item.path.name not in LONG, "core" in item.path.parts))
