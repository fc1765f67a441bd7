"""driftline's commands, one after the other, some of whose Javas are killed once they come to a phase: `java_dies.py JSON`, the
JSON a list of pairs: a phase or null, and a command. What they print is told as JSON on standard output: code, output and
errors of each.
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


def deadly(teller: Any, phases: list[str]) -> None:
    """Has Java die when the teller tells of one of the ``phases``, which is the last one then."""
    tell = teller.phase

    def told(self: Any, now: str) -> None:
        if phases and now.endswith(phases[0]):
            phases.clear()
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


def main(commands: list[tuple[str | None, list[str]]]) -> None:
    phases: list[str] = []
    for teller in (Progress, Running):
        deadly(teller, phases)
    done = []
    for phase, argv in commands:
        phases[:] = [] if phase is None else [phase]
        done.append(ran(argv))
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
