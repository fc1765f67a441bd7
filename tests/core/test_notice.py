"""Notices: told to a command or to a URL; what goes wrong there is in the log, without secrets, and nowhere else."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from core.shapes import batch, schema
from driftline.core.planning.planner import plan
from driftline.ingest.fan_out import FanOutAuditError, FanOutError, FanOutResult
from driftline.ingest.result import Result, result
from driftline.observe.observation import Observation, Tally
from driftline.report.listeners import Notice, PatternNotices
from servers.http_server import serving


def of(table: str, *, data: str, quarantined: int = 0) -> Result:
    planned = plan(schema(table), batch(data))
    seen = Observation(batch(data), Tally(records=2))
    return replace(result("shop.orders", "b1", seen, planned, 2, quarantined), snapshot=7)


DRIFT = of("s: {size: long}", data="s: {size: long | string}")


def test_a_command_gets_json(tmp_path: Path) -> None:
    out = tmp_path / "it's here.json"
    assert Notice(f'cat > "{out}"').send(DRIFT, {"capture": "c", "epoch": 3})
    told = json.loads(out.read_text())
    assert (told["table"], told["batch"], told["capture"], told["epoch"]) == ("shop.orders", "b1", "c", 3)
    (change,) = told["changes"]
    assert (change["field"], change["path"], change["rule"]) == ("s.size", "s.size_string", "sibling")
    assert change["before"] == {"size": "long"}
    assert change["after"] == {"size": "long", "size_string": "string"}


def test_widening_in_lists_tells_before_and_after(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert Notice(f"cat > {out}").send(of("l: int[1]", data="l: long[1]"))
    (change,) = json.loads(out.read_text())["changes"]
    assert (change["path"], change["before"], change["after"]) == (
        "l.element", {"l": "list<int>"}, {"l": "list<long>"},
    )  # fmt: skip


def test_nothing_to_tell(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert Notice(f"cat > {out}").send(of("a: long", data="a: long"))
    assert not out.exists()
    assert Notice(f"cat > {out}").send(of("a: long", data="a: long", quarantined=1))
    assert json.loads(out.read_text())["rows_quarantined"] == 1


def test_tables_of_a_pattern_that_drift_are_told_one_by_one_until_one_cannot_be(tmp_path: Path) -> None:
    out = tmp_path / "out"
    steady = replace(of("a: long", data="a: long"), table="hooks.steady")
    results = (replace(DRIFT, table="hooks.a"), steady, replace(DRIFT, table="hooks.b"))
    batch = FanOutResult("hooks.{event}", results)
    PatternNotices(Notice(f"cat >> {out}; echo >> {out}"), "nightly").ended(batch)
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(one["table"], one["pattern"], one["capture"]) for one in told] == [
        ("hooks.a", "hooks.{event}", "nightly"), ("hooks.b", "hooks.{event}", "nightly"),
    ]  # fmt: skip
    PatternNotices(Notice(f"echo >> {out}; exit 4")).failed(FanOutError(batch))
    PatternNotices(Notice(f"echo >> {out}")).failed(FanOutAuditError(batch))
    assert len(out.read_text().splitlines()) == 3


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, self.headers.get("Authorization"), json.loads(body)))
        self.send_response(500 if "fail" in self.path else 302 if "moved" in self.path else 204)
        if "moved" in self.path:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.got.append(self.path)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[ThreadingHTTPServer]:
    with serving(Hook) as server:
        server.got, server.done = [], threading.Event()
        yield server
        server.done.set()


class Endless(Hook):
    """Says that it takes it, byte by byte."""

    def do_POST(self) -> None:
        with suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            while not self.server.done.wait(0.05):
                self.wfile.write(b"x")


def test_a_url_is_posted_to(hook: ThreadingHTTPServer) -> None:
    assert Notice(f"http://me:p%40ss@127.0.0.1:{hook.server_port}/a?b=c").send(DRIFT)
    ((path, authorization, told),) = hook.got
    assert (path, authorization) == ("/a?b=c", "Basic bWU6cEBzcw==")
    assert told["changes"][0]["path"] == "s.size_string"


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("http://me:secret@127.0.0.1:{port}/fail/secret?t=secret", "http://127.0.0.1:{port}: answered 500"),
        ("http://me:secret@127.0.0.1:{port}/moved/secret", "http://127.0.0.1:{port}: answered 302"),
        ("http://me:secret@127.0.0.1:1/secret", "http://127.0.0.1:1: Connection refused"),
        ("https://secret@[broken", "the URL: ValueError"),
        ("http://127.0.0.1:1/a secret", "http://127.0.0.1:1: InvalidURL"),
        ("no-such-command secret", "no-such-command: ended with 127"),
        ("/bin/cat - > /dev/null; echo secret >&2; exit 3", "cat: ended with 3"),
        ("TOKEN=secret false", "the command: ended with 1"),
        ("'se cret' a", "the command: ended with 127"),
        ("'secret", "the command: ended with 2"),
        ("$(echo secret)", "the command: ended with 127"),
    ],
)
def test_what_goes_wrong_is_logged_without_secrets(
    hook: ThreadingHTTPServer, caplog: pytest.LogCaptureFixture, to: str, said: str
) -> None:
    notice = Notice(to.format(port=hook.server_port))
    with caplog.at_level(logging.DEBUG, "driftline"):
        assert not notice.send(DRIFT)
    (line,) = caplog.messages
    assert line == f"on-change: {said.format(port=hook.server_port)}; the batch is in"
    assert "secret" not in repr(notice)
    assert "/elsewhere" not in hook.got


@pytest.mark.parametrize(
    "to", ["sleep 5", "sleep 5 | cat", "trap '' TERM; sleep 5", "http://127.0.0.1:{port}/slow"]
)
def test_what_hangs_ends_in_time(
    hook: ThreadingHTTPServer, caplog: pytest.LogCaptureFixture, to: str
) -> None:
    begun = time.monotonic()
    if to.startswith("http"):  # it takes the notice, and answers a byte now and then, for ever
        hook.RequestHandlerClass = Endless
    assert not Notice(to.format(port=hook.server_port), timeout=0.3).send(DRIFT)
    assert time.monotonic() - begun < 3
    assert "took longer than 0.3 s" in caplog.text


def test_what_a_command_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    begun = time.monotonic()
    assert Notice("sleep 3 &").send(DRIFT)
    assert time.monotonic() - begun < 2


@pytest.mark.slow
def test_a_command_that_does_not_read_is_told() -> None:
    assert Notice("true").send(of("", data=", ".join(f"long_name_{i}: long" for i in range(2000))))


def test_a_sample_that_is_no_text_is_told(tmp_path: Path) -> None:
    """JSON may have half of a surrogate pair; it goes on as it came, escaped."""
    sent = replace(DRIFT, table="\ud800")
    assert Notice(f"cat > {tmp_path / 'out'}").send(sent)
    assert json.loads((tmp_path / "out").read_text())["table"] == "\ud800"
