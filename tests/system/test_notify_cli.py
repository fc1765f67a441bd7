"""`driftline capture --notify`, as a process: a tenth of the messages is lost, a tenth comes twice, and each record is
there once. A queue is asked by a capture that keeps running, a file of messages is read by three that end.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from urllib.parse import quote_plus

import pyarrow.parquet as pq
import pytest

from answering import Commands, Done
from servers.queue import Queue
from servers.s3 import S3

TOML = """
[store.s3]
endpoint = "{s3.endpoint}"
region = "us-east-1"
access_key = "{s3.access_key}"
secret_key = "{s3.secret_key}"
"""
FIRST, ALL = 10, 30  # objects: those that are there before the capture, and in the end
LOST = range(FIRST, ALL, 10)
DOUBLED = range(FIRST + 5, ALL, 10)


def put(s3: S3, bucket: str, number: int) -> str:
    """An object with a record of its own; the message about it."""
    key, line = f"in/{number % 3}/day {number}.json", b'{"id": %d}\n' % number
    s3.put(f"{bucket}/{key}", line)
    about = {
        "bucket": {"name": bucket.partition("://")[2]},
        "object": {"key": quote_plus(key), "size": len(line)},
    }
    return json.dumps({"Records": [{"eventName": "ObjectCreated:Put", "s3": about}]})


def arriving(s3: S3, bucket: str) -> list[str]:
    """Puts what is new, and gives the messages that arrive, in any order."""
    messages = {number: put(s3, bucket, number) for number in range(FIRST, ALL)}
    some = [messages[number] for number in (*messages, *DOUBLED) if number not in LOST]
    random.Random(1).shuffle(some)
    return some


def taken_meanwhile(command: list[str], folder: Path, begin: Callable[[], object]) -> list[int]:
    """The number of records in each batch of a running capture, until all that messages name is in.
    ``begin``: what happens after its first batch.
    """
    running = subprocess.Popen(
        [sys.executable, "-m", "driftline", *command, "--every", "200ms", "--list-every", "1h"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    timer = Timer(120, running.kill)
    timer.start()
    counts: list[int] = []
    assert running.stdout is not None
    while sum(counts) < ALL - len(LOST):
        line = running.stdout.readline()
        assert line, running.communicate()
        counts.append(json.loads(line)["rows_written"])
        if len(counts) == 1:
            begin()
    running.send_signal(signal.SIGTERM)
    assert running.communicate()[1] == "" and running.returncode == 0
    timer.cancel()
    return counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, s3: S3) -> Path:
    folder = tmp_path_factory.mktemp("notify")
    (folder / "driftline.toml").write_text(TOML.format(s3=s3))
    return folder


@pytest.fixture(scope="module")
def queue() -> Iterator[Queue]:
    with Queue() as running:
        yield running


def command(name: str, bucket: str, notify: str) -> list[str]:
    return ["capture", f"{bucket}/in", "--into", f"shop.{name}", "--name", name, "--notify", notify, "--json"]


@pytest.fixture(scope="module")
def ran(s3: S3, folder: Path, queue: Queue, command_line: Commands) -> dict[str, Done]:
    """The results of commands that go on where a capture by a queue, and one by a file of messages, stopped."""
    buckets = {name: s3.bucket(f"notify-{name}") for name in ("queue", "file")}
    file = folder / "messages.jsonl"
    file.write_text("")
    captures = {
        "queue": command("queue", buckets["queue"], queue.url),
        "file": command("file", buckets["file"], file.name),
    }
    for bucket in buckets.values():
        for number in range(FIRST):
            put(s3, bucket, number)

    def send() -> None:
        queue.failures = [503]
        queue.send(*arriving(s3, buckets["queue"]))

    assert taken_meanwhile(captures["queue"], folder, send)[0] == FIRST
    hourly = [*captures["file"], "--list-every", "1h"]
    assert written(command_line.run(folder, *hourly)) == FIRST
    file.write_text("".join(f"{message}\n" for message in arriving(s3, buckets["file"])))
    assert written(command_line.run(folder, *hourly)) == ALL - FIRST - len(LOST)
    with Queue() as closed:
        closed.failures = [403] * 100
        given = {
            "refused": command("queue", buckets["queue"], closed.url),
            **{name: [*words, "--list-every", "1ms"] for name, words in captures.items()},
        }
        return command_line.each(folder, given)


def written(done: Done) -> int:
    """The number of records that a capture has written in all its batches."""
    assert done.code == 0, done
    return sum(json.loads(line)["rows_written"] for line in done.out.splitlines())


@pytest.mark.parametrize("name", ["queue", "file"])
def test_a_listing_finds_what_messages_did_not_tell_of(name: str, ran: dict[str, Done], folder: Path) -> None:
    assert written(ran[name]) == len(LOST)
    ids = pq.read_table(folder / "lake" / "shop" / name / "data")["id"].to_pylist()
    assert sorted(ids) == [*range(ALL)]


def test_a_queue_that_refuses_is_one_sentence_and_loses_nothing(ran: dict[str, Done], s3: S3) -> None:
    code, out, err = ran["refused"]
    assert (code, out) == (3, "")
    assert err.startswith("error: http://127.0.0.1:") and "it may not be received from this queue\n" in err
    assert s3.secret_key not in err
