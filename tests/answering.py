"""Processes that answer lines of JSON on their standard input, one after the other: driftline's commands in one of them, so
that Java starts once for all.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from typing import IO, Any, NamedTuple

from driftline import cli

COMMANDS = """
import contextlib, io, json, os, sys, traceback
from driftline.cli import main
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # whatever else is printed is no answer
names = {"__name__": "__main__"}
for line in sys.stdin:
    folder, what = json.loads(line)
    os.chdir(folder)
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            exec(what, names) if isinstance(what, str) else main(what)
        except SystemExit as end:
            code = end.code
        except Exception:
            traceback.print_exc()
            code = 1
    print(json.dumps([code, out.getvalue(), err.getvalue()]), file=answers, flush=True)
"""
TESTS = str(Path(__file__).parent)  # what a script finds this file by, as its PYTHONPATH
SECONDS = 600  # for an answer, and for the end of a process that was told of it


class Answering:
    """The process of a ``script``, as Python's arguments. The first question starts it, as does the first one after its death."""

    def __init__(self, script: Sequence[str | Path], env: Mapping[str, str] | None, errors: IO[str]) -> None:
        self._script, self._env, self._errors = script, env, errors
        self._process: subprocess.Popen[str] | None = None

    def ask(self, question: object) -> Any:
        """The answer. AssertionError, with what it printed, if it dies instead."""
        answer, code = self._asked(question)
        assert answer, f"ended with {code}: {self.printed()}"
        return json.loads(answer)

    def dies(self, question: object) -> int:
        """The exit code with which it ends at this question. AssertionError if it answers."""
        answer, code = self._asked(question)
        assert code is not None, answer
        return code

    @property
    def pid(self) -> int:
        """Its process id. AssertionError if it does not run."""
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        """Waits for its end, if it runs."""
        if self._process is not None:
            self._process.communicate(timeout=SECONDS)

    def printed(self) -> str:
        """The end of what has come on the process's standard error."""
        self._errors.seek(0)
        return self._errors.read()[-3000:]

    def _asked(self, question: object) -> tuple[str, int | None]:
        """The answer, or the exit code."""
        process = self._process = self._process or subprocess.Popen(
            [sys.executable, *self._script], env=self._env, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{json.dumps(question)}\n")
        process.stdin.flush()
        timer = Timer(SECONDS, process.kill)
        timer.start()
        answer = process.stdout.readline()
        timer.cancel()
        if answer:
            return answer, None
        self._process = None
        process.communicate(timeout=SECONDS)
        return "", process.returncode


class Done(NamedTuple):
    """The end of a command: exit code, output and errors."""

    code: int
    out: str
    err: str


def ended(argv: list[str]) -> Done:
    """The end of a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main(argv)
        except SystemExit as end:
            return Done(end.code, out.getvalue(), err.getvalue())
    raise AssertionError("a command ends by its exit code")


class Commands(Answering):
    """The process of driftline's commands, which it runs one after the other, and of Python. ``silent`` False: Java's log may be seen."""

    silent = True

    def run(self, folder: Path, *argv: str) -> Done:
        """A command in a folder. Whatever is printed past it, by Java or a task, is an error."""
        return self._done(folder, argv)

    def python(self, folder: Path, lines: str) -> Done:
        """Lines of Python in a folder, with the names of those before: 0, or 1 and the trace of what they raise."""
        return self._done(folder, lines)

    def _done(self, folder: Path, what: str | Sequence[str]) -> Done:
        done = Done(*self.ask([str(folder), what]))
        assert not self.silent or not self.printed(), self.printed()
        return done

    def each(self, folder: Path, commands: Mapping[str, Sequence[str]]) -> dict[str, Done]:
        """The ends of commands by their names."""
        return {name: self.run(folder, *argv) for name, argv in commands.items()}


@contextmanager
def answering(*script: str | Path, env: Mapping[str, str] | None = None) -> Iterator[Answering]:
    """Such a process, whose end is waited for."""
    with TemporaryFile("a+") as errors, closing(Answering(script, env, errors)) as process:
        yield process


@contextmanager
def commands(before: str = "", **more: str) -> Iterator[Commands]:
    """A process of driftline's commands, with ``more`` in its environment, which runs the Python of ``before`` first."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("DRIFTLINE_LAKE")}
    usual = {"DRIFTLINE_DRIVER_MEMORY": "1g"}
    with (
        TemporaryFile("a+") as errors,
        closing(Commands(["-c", before + COMMANDS], {**env, **usual, **more}, errors)) as process,
    ):
        yield process
