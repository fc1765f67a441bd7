"""Java is killed in the midst of a command, as by a machine that is short of memory."""

import json
import signal
import stat
import time
import zipfile
from pathlib import Path

import pytest

from answering import TESTS

from .test_cli import DAY_1, Done, call


def test_a_java_that_dies_is_one_sentence_and_nothing_is_lost_or_doubled(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"id": 1, "n": 1}\n{"id": 2, "n": "x"}\n{"id": 3}\n')
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as archive:  # of plain files Java would not start
        archive.write(tmp_path / "in" / "a.jsonl", "a.jsonl")
    capture = ["capture", "in", "--into", "s.t", "--name", "orders"]
    commands: list[tuple[str | None, list[str]]] = [
        ("writing", ["ingest", "in", "--into", "s.t"]),
        ("committing", capture),
        (None, capture),
        # What reads needs Spark as well.
        ("looking", ["resolve", "s.t", "n", "--as", "string"]),
        (None, ["stats", "s.t", "--json"]),
        ("comparing source and table", ["verify", "in.zip", "--table", "s.t"]),
    ]
    dies = str(Path(__file__).with_name("java_dies.py"))
    told = call(tmp_path, dies, json.dumps(commands), PYTHONPATH=TESTS, DRIFTLINE_DRIVER_MEMORY="1g")
    assert (told.code, told.err) == (0, "")
    ended = [Done(*one) for one in json.loads(told.out)]
    for (phase, _), done in zip(commands, ended, strict=True):
        if phase is None:
            assert done.code == 0, done
        else:
            sentence, hint = done.err.splitlines()
            assert (done.code, sentence) == (3, "error: Java, in which Spark runs, stopped unexpectedly"), (
                phase
            )
            assert "DRIFTLINE_DRIVER_MEMORY" in hint
    assert json.loads(ended[4].out)["records"] == 3


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
    raised.pop("Lake.relocate")  # which needs no Java, and says that the lake has not moved
    raised.pop("PatternTables.stats")  # which needs none either, and says that there is no such table
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


KEEPS_ROWS = """
import os, signal, sys
from contextlib import suppress
from pyspark import StorageLevel
from driftline import Lake
from driftline.cli import main
from driftline.runtime.temporary import folder
if sys.argv[1] == "ends":
    with suppress(SystemExit):
        main(["ingest", "-", "--into", "s.piped", "--json"])
lake = Lake.open("lake")
lake.table("s.t").ingest([{"id": 1}])
lake.table("s.t").read().persist(StorageLevel.DISK_ONLY).count()
print(len(list(folder().rglob("rdd_*"))), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.nightly
def test_temporary_files_are_private_and_a_killed_start_s_go_with_the_next_which_reads_standard_input(
    tmp_path,
):
    place = tmp_path / "place"
    place.mkdir()
    settings = {"DRIFTLINE_DRIVER_MEMORY": "1g", "TMPDIR": str(place)}
    killed = call(tmp_path, "-c", KEEPS_ROWS, "killed", **settings)
    assert killed.code == -signal.SIGKILL
    assert int(killed.out) > 0  # blocks, which Java may have deleted in the meantime
    left = [path for path in place.iterdir() if not path.name.startswith("hsperfdata")]
    assert [path.name.split(".")[0] for path in left] == ["driftline-run"]
    assert stat.S_IMODE(left[0].stat().st_mode) == 0o700

    done = call(tmp_path, "-c", KEEPS_ROWS, "ends", given=DAY_1, **settings)

    assert (done.code, done.err) == (0, "")
    report, blocks = map(json.loads, done.out.splitlines())
    assert blocks > 0
    assert report["rows_written"] == 2
    assert {change["seen_in"] for change in report["changes"]} == {"-:1"}
    deadline = time.monotonic() + 60  # Java ends a moment after Python
    while (left := [*place.glob("driftline-*")]) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
