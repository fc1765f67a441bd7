"""driftline's commands, one after the other, until the last one's Java is killed once it comes to a phase: `java_dies.py PHASE
JSON`, the JSON a list of commands. What they print is told as JSON on standard output: code, output and errors of each.
"""

import contextlib
import io
import json
import sys
from typing import Any

from pyspark import SparkContext

from driftline import cli
from driftline.cli.capture import Running
from driftline.cli.terminal import Progress


def deadly(teller: Any, phase: str) -> None:
    tell = teller.phase

    def told(self: Any, now: str) -> None:
        if now.endswith(phase):
            SparkContext._gateway.proc.kill()
        tell(self, now)

    teller.phase = told


def ran(argv: list[str]) -> tuple[Any, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(argv)
        except SystemExit as end:
            return end.code, out.getvalue(), err.getvalue()
    raise AssertionError("a command ends by its exit code")


def main(phase: str, commands: list[list[str]]) -> None:
    *before, last = commands
    done = [ran(argv) for argv in before]
    for teller in (Progress, Running):
        deadly(teller, phase)
    json.dump([*done, ran(last)], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
