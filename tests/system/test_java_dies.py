"""Java is killed in the midst of a command, as by a machine that is short of memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from driftline.runtime.java import QUICK


@pytest.fixture
def run(tmp_path):
    def run(phase: str, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, Path(__file__).with_name("java_dies.py"), phase, *arguments],
            cwd=tmp_path,
            env={**os.environ, "SPARK_SUBMIT_OPTS": QUICK, "DRIFTLINE_DRIVER_MEMORY": "1g"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def assert_told(dead: subprocess.CompletedProcess) -> None:
    assert dead.returncode == 3
    sentence, hint = dead.stderr.splitlines()
    assert sentence == "error: Java, in which Spark runs, has ended in the midst of its work"
    assert "DRIFTLINE_DRIVER_MEMORY" in hint


def test_a_java_that_dies_is_one_sentence_and_nothing_is_lost_or_doubled(run, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"id": 1, "n": 1}\n{"id": 2, "n": "x"}\n{"id": 3}\n')
    capture = ("capture", "in", "--into", "s.t", "--name", "orders")
    for phase, command in [("writing", ("ingest", "in", "--into", "s.t")), ("committing", capture)]:
        assert_told(run(phase, *command))
    assert run("-", *capture).returncode == 0
    # What reads needs Spark as well.
    assert_told(run("comparing source and table", "verify", "in", "--table", "s.t"))
    assert_told(run("looking", "resolve", "s.t", "n", "--as", "string"))
    assert json.loads(run("-", "stats", "s.t", "--json").stdout)["records"] == 3
