"""Ctrl-C and SIGTERM: before the commit they end the command, from then on its report comes first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
import typer

from driftline import cli
from driftline.cli.process import Interrupt
from driftline.runtime import threads

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def interrupt() -> Interrupt:
    interrupt = Interrupt()
    interrupt.listen()
    return interrupt


@pytest.mark.parametrize("number", SIGNALS)
def test_before_the_commit(interrupt: Interrupt, number: signal.Signals) -> None:
    phase = interrupt.watching(lambda _: None)
    phase("writing")
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    assert interrupt.code == 128 + number


@pytest.mark.parametrize("then", ["waiting: others changed s.t once in 0 s", "observing"])
def test_in_the_commit(interrupt: Interrupt, then: str) -> None:
    phases: list[str] = []
    phase = interrupt.watching(phases.append)
    phase("committing")
    os.kill(os.getpid(), signal.SIGINT)
    phase("committed")
    phase("compacting")
    # Who waits for others, or comes to the next batch, need not go on.
    with pytest.raises(KeyboardInterrupt):
        phase(then)
    assert phases == ["committing", "committed", "compacting"]


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("module", ["py4j.x", threads.__name__])
def test_without_spark_java_s_answer_comes_first(
    interrupt: Interrupt, number: signal.Signals, module: str
) -> None:
    def call() -> str:
        os.kill(os.getpid(), number)
        return "committed"

    named = {**globals(), "__name__": module}
    asks_java = FunctionType(call.__code__, named, closure=call.__closure__)
    assert asks_java() == "committed"
    assert (interrupt.asked, interrupt.cancels, interrupt.code) == (True, False, 128 + number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_behind_its_commit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    def command(_: Any, obj: cli.Invocation, **options: Any) -> None:
        phase = obj.interrupt.watching(lambda _: None)
        phase("committing")
        os.kill(os.getpid(), number)
        phase("committed")
        print("s.t  1 record read, 1 written")

    monkeypatch.setattr(cli, "app", command)
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 128 + number
    assert capsys.readouterr().out == "s.t  1 record read, 1 written\n"


def test_a_command_that_typer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    command = typer.Typer()

    @command.command()
    def ends(context: typer.Context) -> None:
        context.obj.interrupt.watching(lambda _: None)("writing")
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(cli, "app", command)
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 128 + signal.SIGTERM


def test_what_goes_wrong_behind_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(_: Any, obj: cli.Invocation, **options: Any) -> None:
        obj.interrupt.watching(lambda _: None)("committing")
        os.kill(os.getpid(), signal.SIGINT)
        raise cli.DriftlineError("whether the commit took place is not known")

    monkeypatch.setattr(cli, "app", command)
    with pytest.raises(SystemExit):
        cli.main([])
    assert "not known" in capsys.readouterr().err


def test_signals_that_come_together_are_one(interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal and the program that started the command may both send one."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    stopped = threading.Event()
    with interrupt.gently(stopped.set):
        for number in SIGNALS:
            os.kill(os.getpid(), number)
        assert stopped.wait(5) and not ended
        interrupt._last -= 1
        os.kill(os.getpid(), signal.SIGINT)
        assert ended == [130]


def test_an_interrupt_together_with_another_one(
    interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    assert not ended
    interrupt._last -= 1
    with pytest.raises(KeyboardInterrupt):  # as it has not ended here
        os.kill(os.getpid(), signal.SIGINT)
    assert ended == [130]


def test_spark_does_not_log_what_it_loses_by_an_interrupt(interrupt: Interrupt) -> None:
    quiet = threading.Event()
    levels: list[str] = []

    class Context:
        def setLogLevel(self, level: str) -> None:  # noqa: N802  Spark's
            levels.append(level)

    interrupt.spark = SimpleNamespace(sparkContext=Context())
    with interrupt.gently(quiet.set):
        os.kill(os.getpid(), signal.SIGINT)
        assert quiet.wait(5)
    assert levels == ["OFF"]


def test_before_a_command_has_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*_: Any, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(cli, "app", command)
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert (ended.value.code, capsys.readouterr().err) == (130, "stopped\n")


LOADS = """
import signal, sys
from driftline import __main__

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "driftline.cli":
            signal.raise_signal(signal.SIGINT)

# A shell starts what runs in its background with a Ctrl-C that is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Slow())
__main__.main()
"""


def test_while_the_command_line_is_loading() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "stopped\n")
