"""The CPU of a small ingest and of its check, in turns with the last release's; fails where it is 15 % more.

    python bench/guard.py [--against COMMIT] [--records 50000]

Before there is a release, with the last commit that is a day older. A shallow checkout has neither, and passes.
Each side is a process of its own, with the same libraries and the sources of its commit. CPU of the process and all
that it started counts, not the clock, and the median of the turns; where it is too much, twice as many turns decide.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from events import write
from measure import cpu

ROOT = Path(__file__).resolve().parent.parent
JOBS = ("ingest", "verify")
WARM, TURNS = 3, 7
LIMIT = 1.15


class OtherSideFailed(Exception):
    """The earlier commit ended with an error."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", help="a commit, or a tag")
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--side", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        serve(args.side)
        return
    against = args.against or earlier()
    if against is None:
        print("nothing to compare with: this checkout has no tag, and no commit that is a day older")
        return
    with tempfile.TemporaryDirectory(prefix="guard-") as name:
        folder = Path(name)
        write(folder / "events", args.records, 0.01)
        try:
            found = compared(folder, against)
        except OtherSideFailed:
            print(f"nothing to compare with: {against} does not run these jobs here")
            return
    print(f"CPU next to {against}: " + ", ".join(f"{job} {ratio:.2f} ×" for job, ratio in found.items()))
    if slower := [job for job, ratio in found.items() if ratio > LIMIT]:
        sys.exit(f"{' and '.join(slower)} took more than {LIMIT} times the CPU")


def earlier() -> str | None:
    """The last tag of the checkout; without one, its last commit that is a day older than the newest."""
    if tag := git("describe", "--tags", "--abbrev=0"):
        return tag
    newest = int(git("log", "-1", "--format=%ct") or 0)
    return git("rev-list", "-1", f"--before={newest - 24 * 3600}", "HEAD") or None


def git(*command: str) -> str:
    """Return the output of git; nothing where it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def compared(folder: Path, against: str) -> dict[str, float]:
    """The CPU next to a commit's, by job. Raises OtherSideFailed."""
    before = folder / "before"
    before.mkdir()
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", against, "src"], check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x", "-C", str(before)], check=True, input=archive.stdout)
    with side(folder, "now", ROOT / "src") as now, side(folder, "before", before / "src") as then:
        turns: list[tuple[list[float], list[float]]] = []
        while len(turns) < TURNS or (len(turns) < 2 * TURNS and max(ratios(turns).values()) > LIMIT):
            # Who begins takes turns, too; the first ones warm up Java.
            first, second = (now, then) if len(turns) % 2 else (then, now)
            for _ in range(1 if turns else WARM + 1):
                costs = {id(process): turn(process) for process in (first, second)}
            if not costs[id(then)]:
                raise OtherSideFailed
            if not costs[id(now)]:
                sys.exit("the jobs ended with an error")
            turns.append((costs[id(now)], costs[id(then)]))
    return ratios(turns)


def ratios(turns: list[tuple[list[float], list[float]]]) -> dict[str, float]:
    """The CPU next to the other side's, by job: of the median ratio and that of the least CPU the smaller.

    >>> ratios([([0.9, 2.0], [0.8, 2.0]), ([0.6, 2.2], [0.6, 2.0]), ([0.8, 2.4], [0.7, 2.0])])
    {'ingest': 1.0, 'verify': 1.0}
    """
    out = {}
    for number, job in enumerate(JOBS):
        pairs = [(now[number], then[number]) for now, then in turns]
        least = min(now for now, _ in pairs) / min(then for _, then in pairs)
        out[job] = min(statistics.median(now / then for now, then in pairs), least)
    return out


@contextmanager
def side(folder: Path, name: str, sources: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the jobs by these sources."""
    place = folder / f"side-{name}"
    place.mkdir()
    command = [sys.executable, __file__, "--side", str(place)]
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def turn(process: subprocess.Popen[str]) -> list[float]:
    """The CPU that each job takes in a process; nothing where it ended with an error."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write("\n")
        process.stdin.flush()
    line = process.stdout.readline()
    costs: list[float] = json.loads(line or "[]")
    return costs


def serve(place: Path) -> None:
    """Run the jobs on a new table for each line of the input."""
    from driftline import Lake

    lake, files, me = Lake.open(place / "lake"), place.parent / "events", psutil.Process()
    for number, _ in enumerate(sys.stdin):
        table, costs = lake.table(f"bench.turn_{number}"), []
        for job in (lambda: table.ingest(files), lambda: table.verify(files)):  # noqa: B023
            used = cpu(me)
            job()
            costs.append(cpu(me) - used)
        print(json.dumps(costs), flush=True)


if __name__ == "__main__":
    main()
