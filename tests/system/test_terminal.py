"""The output at a terminal of 80 characters: lines of whole words, what is cut, and how Ctrl-C ends."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from driftline.cli.rows import Pages

WIDTH = 80


def run(folder: Path, *args: str, stop_at: bytes | None = None) -> tuple[int, list[str]]:
    """Run driftline in a terminal; presses Ctrl-C once it prints ``stop_at``. The exit code, and the lines."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(folder)
        os.environ |= {"TERM": "xterm", "COLUMNS": str(WIDTH)}
        os.execv(sys.executable, [sys.executable, "-m", "driftline", *args])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    printed = b""
    while select.select([terminal], [], [], 120)[0]:
        try:
            printed += os.read(terminal, 2**16)
        except OSError:  # it has ended
            break
        if stop_at is not None and stop_at in printed:
            stop_at = None
            os.write(terminal, b"\x03")
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed.decode())
    return os.waitstatus_to_exitcode(status), [line for line in re.split(r"[\r\n]+", plain) if line.strip()]


def test_errors_break_between_words(tmp_path: Path) -> None:
    name = "a file of a rather long name that is in no folder of this machine whatever one looks for.jsonl"
    code, lines = run(tmp_path, "ingest", name, "--into", "shop.orders")

    assert code == 2 and len(lines) > 1
    assert max(map(len, lines)) <= WIDTH
    assert " ".join(line.strip() for line in lines) == f"error: {name}: no such file, folder or glob"


def test_lines_of_an_error_keep_their_own_indentation(tmp_path: Path) -> None:
    _, lines = run(tmp_path, "alter", "drop table a.b")

    assert lines[0] == "error: 'drop' is not ALTER TABLE"
    assert lines[1:3] == ["  drop table a.b", "  ^^^^"]


@pytest.mark.parametrize("command", ["ingest", "capture"])
def test_ctrl_c_ends_with_the_state_of_the_table(tmp_path: Path, command: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"id": 1}')
    named = ["--name", "c"] if command == "capture" else []
    code, lines = run(tmp_path, command, "in", "--into", "shop.orders", *named, stop_at=b"starting Spark")

    assert code == 130
    assert re.fullmatch(r"stopped.*: shop\.orders is as it was", lines[-1])


WITHIN_EXEC = """
import os, signal
from driftline import __main__, cli

def app(*args, **options):
    exec("os.kill(os.getpid(), signal.SIGINT)")  # as while a dataclass is made

cli.app = app
__main__.main()
"""


def test_ctrl_c_within_an_exec_ends_with_the_exit_code(tmp_path: Path) -> None:
    """`python -m` ends by the signal itself where it came within an `exec` of text, whatever code was asked for."""
    (tmp_path / "within_exec.py").write_text(WITHIN_EXEC)

    command = [sys.executable, "-m", "within_exec", "tables"]
    stopped = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (stopped.returncode, stopped.stderr) == (130, "stopped\n")


class Rows:
    """The result of a query."""

    columns: Sequence[str] = ["id", "text"]

    def json(self, names: Sequence[str], limit: int) -> Iterator[str]:
        yield f'{{"{names[0]}": 1, "{names[1]}": "{"word " * 30}"}}'


@pytest.mark.parametrize(("width", "cut"), [(80, True), (200, False)])
def test_a_query_says_where_it_cuts_values(width: int, cut: bool) -> None:
    console = Console(width=width, file=StringIO(), force_terminal=True, color_system=None)
    Pages(Rows(), 10).show(console)

    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("… is cut to the terminal's width; --json prints whole values" in shown) is cut
