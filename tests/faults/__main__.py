"""`python -m faults`: strikes each command at each file operation, and prints how many tries held; exit code 1 where one did not."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from faults.cases import CASES, FORMATS
from faults.control import Mode, compiler
from faults.harness import Bench, Outcome, Processes

MODES = {"freeze": Mode.FREEZE, "full": Mode.FULL, "fail": Mode.FAIL, "kill": Mode.KILL, "cut": Mode.RECORD}
KILLS = 25  # a kill takes a start of Spark: of so many operations, one


def tries(bench: Bench, case: str, mode: Mode, every: int) -> Iterator[Outcome]:
    """Strikes a command at one operation of ``every`` so many, until it ends before it is struck; one that is to die again
    and again, in one try.
    """
    if CASES[case].kills:
        if mode == Mode.KILL:
            yield bench.kill_again_and_again(case)
        return
    if mode == Mode.RECORD:
        yield from bench.power_cuts(case, lambda count: range(0, count, every))
        return
    at = 1
    while (outcome := bench.strike(case, mode, at)).struck.number:
        yield outcome
        at += every


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--formats", nargs="+", default=FORMATS, choices=FORMATS)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--every", type=int, default=1, help="one operation of so many")
    return parser.parse_args()


def run(home: Path, options: argparse.Namespace) -> list[Outcome]:
    """All tries; prints a line for each command, and one for each try that did not hold."""
    wrong: list[Outcome] = []
    print("| format | command | operations |", " | ".join(options.modes), "|")
    print("|---|---|--:|", "--:|" * len(options.modes), sep="")
    with Processes(home) as processes:
        for format_ in options.formats:
            bench = Bench(processes, format_)
            for case in filter(lambda case: format_ in CASES[case].formats, options.cases):
                cells = [format_, case, str(bench.operations(case))]
                for mode in options.modes:
                    every = options.every * (KILLS if mode == "kill" else 1)
                    outcomes = []
                    for outcome in tries(bench, case, MODES[mode], every):
                        outcomes.append(outcome)
                        if outcome.wrong:
                            print(f"{format_}: {outcome}", file=sys.stderr, flush=True)
                    failed = [outcome for outcome in outcomes if outcome.wrong]
                    cells.append(f"{len(outcomes) - len(failed)} of {len(outcomes)}")
                    wrong += failed
                print("|", " | ".join(cells), "|", flush=True)
    return wrong


def main() -> int:
    if compiler() is None:
        print("there is no C compiler here: apt-get install gcc", file=sys.stderr)
        return 3
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        return bool(run(Path(folder).resolve(), options))


if __name__ == "__main__":
    sys.exit(main())
