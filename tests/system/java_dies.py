"""driftline's commands, one after the other, some of whose Javas are killed once they come to a phase: `java_dies.py JSON`, the
JSON a list of pairs: a phase or null, and a command. What they print is told as JSON on standard output: code, output and
errors of each.
"""

import json
import sys
from typing import Any

from pyspark import SparkContext

from answering import ended
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


def main(commands: list[tuple[str | None, list[str]]]) -> None:
    phases: list[str] = []
    for teller in (Progress, Running):
        deadly(teller, phases)
    done = []
    for phase, argv in commands:
        phases[:] = [] if phase is None else [phase]
        done.append(ended(argv))
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
