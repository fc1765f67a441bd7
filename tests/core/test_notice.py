"""Notices: told to a command or to a URL; what goes wrong there is in the log, without secrets, and nowhere else."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from core.shapes import batch, schema
from driftline.core.plan import plan
from driftline.notice import Notice
from driftline.observe.observation import Observation, Tally
from driftline.report.result import Result, result


def of(table: str, *, data: str, quarantined: int = 0) -> Result:
    planned = plan(schema(table), batch(data))
    seen = Observation(batch(data), Tally(records=2))
    return result("shop.orders", "b1", seen, planned, 2, quarantined, 7)


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


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, self.headers.get("Authorization"), json.loads(body)))
        self.send_response(500 if "fail" in self.path else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        server.got = []
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_url_is_posted_to(hook: HTTPServer) -> None:
    assert Notice(f"http://me:p%40ss@127.0.0.1:{hook.server_port}/a?b=c").send(DRIFT)
    ((path, authorization, told),) = hook.got
    assert (path, authorization) == ("/a?b=c", "Basic bWU6cEBzcw==")
    assert told["changes"][0]["path"] == "s.size_string"


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("http://me:secret@127.0.0.1:{port}/fail/secret?t=secret", "answered 500"),
        ("http://me:secret@127.0.0.1:1/secret", "refused"),
        ("https://secret@[broken", "a URL"),
        ("no-such-command secret", "ended with 127"),
        ("cat > /dev/null; echo it broke >&2; exit 3", "it broke"),
        ("sleep 5; echo secret", "took longer than 0.2 s"),
        (" ", "no command"),
    ],
)
def test_what_goes_wrong_is_logged(
    hook: HTTPServer, caplog: pytest.LogCaptureFixture, to: str, said: str
) -> None:
    notice = Notice(to.format(port=hook.server_port), timeout=0.2 if "sleep" in to else 5)
    with caplog.at_level(logging.WARNING, "driftline"):
        told = notice.send(DRIFT)
    if to == " ":  # the shell has nothing to do, and does it
        assert told
        return
    assert not told
    (line,) = caplog.messages
    assert said in line
    assert "secret" not in line.replace("no-such-command: not found", "")
    assert "secret" not in repr(notice)
