"""The health of a capture, as a probe asks for it."""

from __future__ import annotations

import json
import socket
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from driftline.errors import SetupError, UsageError
from driftline.report import metrics
from driftline.report.metrics import LEAST, Health


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_is_well_while_something_gets_on_or_there_is_nothing_to_do() -> None:
    clock = Clock()
    health = Health(10, clock)
    clock.now = LEAST - 1
    assert health.fault is None
    health.seen("first", "writing")
    clock.now += LEAST - 1
    health.seen("second", "writing")
    for _ in range(5):
        clock.now += LEAST - 1
        health.seen("second", "looking for more", idle=True)
        assert health.fault is None
    clock.now += LEAST
    health.seen("second", "committing")
    assert health.fault == "no progress for 300 s: committing"
    health.seen("third", "writing")
    assert health.fault is None


def test_long_times_between_micro_batches_make_it_patient() -> None:
    clock = Clock()
    health = Health(3600, clock)
    clock.now = 3 * 3600 - 1
    assert health.fault is None
    clock.now += 1
    assert health.fault == "no progress for 10800 s: starting"


def test_a_probe_is_answered() -> None:
    clock = Clock()
    health = Health(clock=clock)
    address = f"http://127.0.0.1:{health.serve('0')}"
    with urlopen(f"{address}/healthz") as answer:
        assert json.load(answer) == {"ok": True}
    with pytest.raises(HTTPError, match="404") as away:
        urlopen(f"{address}/metrics")
    away.value.close()
    clock.now = LEAST
    with pytest.raises(HTTPError, match="503") as ill:
        urlopen(f"{address}/healthz")
    with ill.value as answer:
        assert json.load(answer) == {"ok": False, "fault": "no progress for 300 s: starting"}


def test_a_port_that_is_taken_is_named() -> None:
    with (
        socket.create_server(("0.0.0.0", 0)) as taken,
        pytest.raises(SetupError, match=r"--health-port [0-9]+: Address already in use"),
    ):
        Health().serve(str(taken.getsockname()[1]))


def test_a_port_is_open_to_this_machine_alone_unless_a_host_is_named() -> None:
    port = Health().serve("0")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)
    port = Health().serve("0.0.0.0:0")
    socket.create_connection(("127.0.0.2", port), timeout=5).close()
    with pytest.raises(UsageError, match="--health-port here: not a port"):
        Health().serve("here")


def test_who_sends_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_PATIENCE", 0.1)
    with socket.create_connection(("127.0.0.1", Health().serve("0")), timeout=5) as idle:
        assert idle.recv(1) == b""
