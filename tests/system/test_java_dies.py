"""Java is killed in the midst of a command, as by a machine that is short of memory."""

import json
from pathlib import Path

import pytest

from .test_cli import Done, call


@pytest.fixture
def dies(tmp_path):
    def dies(phase: str, *commands: list[str]) -> list[Done]:
        """Runs the commands, the last of which has its Java killed in the phase; returns what came of those before it."""
        told = call(
            tmp_path,
            str(Path(__file__).with_name("java_dies.py")),
            phase,
            json.dumps(commands),
            DRIFTLINE_DRIVER_MEMORY="1g",
        )
        assert (told.code, told.err) == (0, "")
        *before, dead = (Done(*one) for one in json.loads(told.out))
        assert_told(dead)
        return before

    return dies


def assert_told(dead: Done) -> None:
    assert dead.code == 3
    sentence, hint = dead.err.splitlines()
    assert sentence == "error: Java, in which Spark runs, stopped unexpectedly"
    assert "DRIFTLINE_DRIVER_MEMORY" in hint


def test_a_java_that_dies_is_one_sentence_and_nothing_is_lost_or_doubled(dies, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"id": 1, "n": 1}\n{"id": 2, "n": "x"}\n{"id": 3}\n')
    capture = ["capture", "in", "--into", "s.t", "--name", "orders"]
    dies("writing", ["ingest", "in", "--into", "s.t"])
    dies("committing", capture)
    # What reads needs Spark as well.
    (captured,) = dies("looking", capture, ["resolve", "s.t", "n", "--as", "string"])
    assert captured.code == 0
    (stats,) = dies(
        "comparing source and table", ["stats", "s.t", "--json"], ["verify", "in", "--table", "s.t"]
    )
    assert json.loads(stats.out)["records"] == 3


@pytest.mark.nightly
def test_every_call_of_python_after_java_died_is_one_sentence_and_a_new_lake_works(tmp_path):
    run = call(
        tmp_path,
        str(Path(__file__).with_name("java_gone.py")),
        str(tmp_path),
        DRIFTLINE_DRIVER_MEMORY="1g",
    )
    assert run.code == 0, run.err
    told = json.loads(run.out)
    raised = {name: outcome for name, outcome in told["outcomes"].items() if outcome}
    assert {name: outcome for name, outcome in raised.items() if "DriftlineError" not in outcome} == {}
    ended = "Java, in which Spark runs, stopped unexpectedly"
    assert {name: outcome[-1] for name, outcome in raised.items() if outcome[-1] != ended} == {}
    assert {
        "Table.ingest",
        "Table.verify",
        "Table.resolve",
        "Lake.query",
        "CaptureQuery.awaitTermination",
    } <= {*raised}
    assert (told["closed"], told["rows"], told["old"][-1]) == ([], 4, ended)
    assert run.err == ""
