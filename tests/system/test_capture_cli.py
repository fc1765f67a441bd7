"""`driftline capture` as a process: it catches up, keeps on, stops in order, and goes on after what went wrong."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from answering import Done, commands
from json_output import faults

ENV = {key: value for key, value in os.environ.items() if not key.startswith("DRIFTLINE_LAKE")}


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("here")
    for name in ("in", "big"):
        (folder / name).mkdir()
    (folder / "in" / "1.jsonl").write_text('{"id": 1, "price": 19.9}\n{"id": 2, "price": 20}\n')
    (folder / "in" / "2.jsonl").write_text('{"id": 3, "price": "19,90 EUR"}\n{"id": 4, "pri\n')
    text = random.Random(1).randbytes(8_000_000).hex()
    (folder / "big" / "1.jsonl").write_text(
        "\n".join(json.dumps({"id": i, "t": text[i::7]}) for i in range(7))
    )
    return folder


CAPTURE = ["capture", "in", "--into", "shop.orders", "--name", "orders"]
SEEK = ["seek", "in", "--into", "shop.orders", "--name", "orders", "--to", "earliest"]
COMMANDS = {
    "full": ["capture", "big", "--into", "shop.big", "--name", "big"],
    "all": [*CAPTURE, "--max-files", "1", "--metrics-file", "orders.prom"],
    "nothing new": CAPTURE,
    "audit": [*CAPTURE[:3], "shop.audit", "--name", "audit", "--audit", "--fail-on", "new"],
    "json": ["capture", "in", "--into", "shop.json", "--name", "orders", "--json"],
    "tables": ["capture", "in", "--into", "kinds.{_file.stem}", "--name", "kinds"],
    "tables json": ["capture", "in", "--into", "json.{_file.stem}", "--name", "kinds", "--json"],
    "tables verify": ["capture", "in", "--into", "checked.{_file.stem}", "--name", "kinds", "--audit", "--verify"],
    "tables resumed": ["capture", "in", "--into", "kinds.{_file.stem}", "--name", "kinds", "--resume-from", "table"],
    "tables seek": ["seek", "in", "--into", "kinds.{_file.stem}", "--name", "kinds", "--to", "earliest", "--dry-run"],
    "other source": ["capture", "big", "--into", "shop.orders", "--name", "orders"],
    "no folder": ["capture", "away", "--into", "shop.orders", "--name", "away"],
    "no time": [*CAPTURE, "--every", "soon"],
    "no name": ["capture", "in", "--into", "shop.orders", "--name", "a/b"],
    "after full": ["capture", "big", "--into", "shop.big", "--name", "big"],
    "big": ["query", "select count(*) as n, count(distinct id) as ids from shop.big", "--json"],
    "batch": ["ingest", "in", "--into", "shop.batch", "--metrics-file", "orders.prom"],
    "in all": ["query", "select count(*) as n, count(distinct id) as ids from shop.orders", "--json"],
    "seek unasked": [*SEEK],
    "seek dry": [*SEEK, "--dry-run", "--json"],
    "seek": [*SEEK, "--yes"],
    "seek none": ["seek", "in", "--into", "shop.orders", "--name", "other", "--to", "latest", "--yes"],
    # The last two, because the process keeps its log so.
    "log": ["capture", "in", "--into", "shop.log", "--name", "orders", "--log-format", "json"],
    "log of an error": [*CAPTURE, "--name", "a/b", "--log-format=json"],
}  # fmt: skip


LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))"


@pytest.fixture(scope="module")
def done(here) -> dict[str, Done]:
    """The results of each of `COMMANDS`, the first of them on a disk that holds no file of more than two megabytes."""
    first, *_ = COMMANDS
    with commands(LIMIT) as process:
        ended = process.each(here, {first: COMMANDS[first]})
        python = psutil.Process(process.pid)
        for one in (python, *python.children(recursive=True)):  # Java, and its workers
            one.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
        return ended | process.each(here, {name: COMMANDS[name] for name in COMMANDS if name != first})


CODES = {
    "tables resumed": 2,
    "full": 1,
    "audit": 1,
    "other source": 2,
    "no folder": 3,
    "no time": 2,
    "no name": 2,
    "seek unasked": 2,
    "seek none": 1,
    "log of an error": 2,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_exit_codes_and_errors(done, name):
    assert done[name].code == CODES.get(name, 0), done[name]
    if not name.startswith("log"):
        assert done[name].err.startswith("error: ") == (name in CODES)
    assert "Traceback" not in done[name].err


def test_each_batch_is_reported_and_then_all(done):
    lines = done["all"].out.splitlines()
    assert lines[0] == "orders  checkpoint lake/_captures/shop.orders/orders"
    assert lines[1] == "shop.orders  orders 0  2 records read, 2 written"
    assert not any("checkpoint" in line for line in lines[1:])
    assert any(line.startswith("  price → price_string string") for line in lines)
    assert lines[-1] == "orders  2 batches, 4 records, 1 in quarantine, 3 changes, nothing left"
    assert done["nothing new"].out == "orders  0 batches, 0 records, 0 in quarantine, 0 changes\n"
    assert json.loads(done["in all"].out) == {"n": 3, "ids": 3}


def test_metrics_are_written_after_each_batch(here, done):
    assert done["all"].code == 0
    lines = (here / "orders.prom").read_text().splitlines()
    own = 'capture="orders",table="shop.orders"'
    assert f"driftline_batches_total{{{own}}} 2.0" in lines
    assert 'driftline_records_total{capture="orders",outcome="quarantined",table="shop.orders"} 1.0' in lines
    assert 'driftline_changes_total{capture="orders",kind="sibling",table="shop.orders"} 1.0' in lines
    assert f"driftline_lag{{{own}}} 0.0" in lines
    assert done["batch"].code == 0
    assert 'driftline_batches_total{capture="",table="shop.batch"} 1.0' in lines
    (files,) = (line for line in lines if line.startswith(f"driftline_written_files_total{{{own}}}"))
    assert float(files.split()[-1]) >= 2


def test_json_is_as_its_schema_says(done):
    assert list(faults(COMMANDS, done)) == []


def test_json_is_one_object_a_batch(done):
    (batch,) = map(json.loads, done["json"].out.splitlines())
    assert (batch["capture"], batch["epoch"], batch["lag"], batch["tombstones"]) == ("orders", 0, 0, 0)
    assert (batch["rows_read"], batch["rows_written"], batch["rows_quarantined"]) == (4, 3, 1)


def test_tables_of_a_pattern_are_reported_together(done):
    lines = done["tables"].out.splitlines()
    assert lines[0] == "kinds  checkpoint lake/_captures/kinds.%7B_file.stem%7D/kinds"
    assert lines[1] == "kinds.{_file.stem}  kinds 0  4 records read, 3 written, 1 in quarantine, 3 tables"
    assert lines[-1] == "kinds  1 batch, 4 records, 1 in quarantine, 4 changes, nothing left"
    *tables, sums = map(json.loads, done["tables json"].out.splitlines())
    assert [(table["table"], table["epoch"], table["lag"]) for table in tables] == [
        ("json.1", 0, 0), ("json.2", 0, 0), ("json._other", 0, 0),
    ]  # fmt: skip
    assert (sums["pattern"], sums["tables"], sums["rows_read"]) == ("json.{_file.stem}", 3, 4)
    assert "restore the checkpoint and all tables" in done["tables resumed"].err
    assert "in/2.jsonl" in done["tables seek"].out


def test_seek_wants_to_be_asked_and_names_what_is_taken_again(here, done):
    files = [f"{here.resolve()}/in/{number}.jsonl" for number in (1, 2)]
    assert "--dry-run shows what it would do" in done["seek unasked"].err
    assert json.loads(done["seek dry"].out) == {
        "table": "shop.orders", "capture": "orders", "to": "earliest", "done": False, "again": files, "passed": [],
    }  # fmt: skip
    assert done["seek"].out.splitlines() == [
        "ingested again, in addition to the rows that the table has:",
        *(f"  {file}" for file in files),
        "skipped:",
        "  nothing",
        "capture orders continues at earliest when it starts next",
    ]
    assert "has not begun" in done["seek none"].err


def test_the_log_is_one_object_a_line(done):
    lines = [json.loads(line) for line in done["log"].err.splitlines()]
    assert {line["event"] for line in lines} == {"phase", "batch"}
    (batch,) = (line for line in lines if line["event"] == "batch")
    assert (batch["capture"], batch["table"], batch["rows_written"]) == ("orders", "shop.log", 3)
    assert batch["changes"] == {"new": 2, "sibling": 1, "quarantine": 1}
    phases = [line["message"] for line in lines if line["event"] == "phase"]
    assert any(phase.startswith("orders: ") for phase in phases) and phases.count("starting Spark") == 1
    assert done["log"].out.splitlines()[1].startswith("shop.log  orders 0  4 records read")
    *_, error = map(json.loads, done["log of an error"].err.splitlines())
    assert (error["level"], error["error"], error["exit_code"]) == ("error", "UsageError", 2)


def test_a_full_disk_fails_the_batch_and_loses_nothing(done):
    assert done["full"].err.startswith("error: shop.big: ") and "free some disk space" in done["full"].err
    assert json.loads(done["big"].out) == {"n": 7, "ids": 7}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_to_all_processes_in_the_middle_of_a_batch_ends_the_capture_behind_it(here, how):
    source, table = here / f"live{how}", f"shop.live{how}"
    source.mkdir()
    (source / "1.json").write_text('{"id": 1}')
    running = subprocess.Popen(
        [sys.executable, "-m", "driftline", "capture", source.name, "--into", table, "--name", "live", "--every", "300ms"],
        cwd=here, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509  tests may run below nohup
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.readline().startswith("live  checkpoint ")
    assert "1 record read, 1 written" in running.stdout.readline()
    (source / "2.json").write_text("".join(f'{{"id": {i}}}\n' for i in range(50_000)))
    while len(list((here / "lake/shop" / f"live{how}").rglob("*.parquet"))) < 2:
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    os.killpg(running.pid, how)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (0, "")
    assert out.splitlines()[-1] == "live  2 batches, 50001 records, 0 in quarantine, 1 change, nothing left"
