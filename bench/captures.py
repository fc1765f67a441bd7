"""Captures in one process: two at once next to one alone, in turns, each with a folder and a table of its own.

    make bench-captures                       two captures of 20 micro-batches of 1,000 records
    make bench-captures ARGS="--captures 4"

Seconds are those until the last has ended, CPU is of all processes; both are told for a micro-batch.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from events import write
from measure import cpu

from driftline import Lake


def taken(lake: Lake, sources: Path, count: int, round_: int) -> tuple[float, float]:
    """Run so many captures of the sources at once; returns seconds and CPU, of all of them."""
    me = psutil.Process()
    used, begun = cpu(me), time.perf_counter()
    tables = [lake.table(f"bench.t{round_}_{count}_{number}") for number in range(count)]
    queries = [table.capture(sources, name="bench", max_files=1) for table in tables]
    for query in queries:
        query.awaitTermination()
    figures = time.perf_counter() - begun, cpu(me) - used
    counts = {table.read().count() for table in tables}
    assert len(counts) == 1, counts
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--captures", type=int, default=2, help="at once")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--records", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    sides: dict[int, list[tuple[float, float]]] = {1: [], args.captures: []}
    with tempfile.TemporaryDirectory(prefix="captures-") as tmp:
        sources = Path(tmp, "in")
        write(sources, args.batches * args.records, 0.01, files=args.batches)
        lake = Lake.open(Path(tmp, "lake"))
        for round_ in range(args.rounds + 1):  # the first warms up
            for count, figures in sides.items():
                figures.append(taken(lake, sources, count, round_))
    print(
        f"| {args.batches} micro-batches of {args.records:,} records each | s of one | CPU s of one |\n|---|--:|--:|"
    )
    for count, figures in sides.items():
        seconds, used = (statistics.median(some) for some in zip(*figures[1:], strict=True))
        micro_batches = count * args.batches
        print(f"| {count} at once | {seconds / micro_batches:.3f} | {used / micro_batches:.3f} |", flush=True)


if __name__ == "__main__":
    main()
