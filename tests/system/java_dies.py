"""driftline, whose Java is killed once the command comes to a phase: `java_dies.py PHASE ARGUMENT…`."""

import sys
from typing import Any

from pyspark import SparkContext

from driftline import cli
from driftline.cli.running import Running
from driftline.cli.terminal import Progress


def deadly(teller: Any, phase: str) -> None:
    tell = teller.phase

    def told(self: Any, now: str) -> None:
        if now.endswith(phase):
            SparkContext._gateway.proc.kill()
        tell(self, now)

    teller.phase = told


if __name__ == "__main__":
    for teller in (Progress, Running):
        deadly(teller, sys.argv[1])
    cli.main(sys.argv[2:])
