"""Growth of time and memory with rows, columns, depth, drifted fields, files, batches, tables; next to plain Spark.

    make bench-growth                              the default, about a quarter of an hour
    make bench-growth ARGS=--quick                 a try
    make bench-growth ARGS=--whole                 up to 10,000,000 rows as well
    make bench-growth ARGS="--only columns --rounds 5"
    make bench-growth ARGS="--only columns --sizes 100000 --sides driftline"

Each curve has a process of its own, in which this product and plain Spark (a schema inferred, an append with
mergeSchema) take the same files into new tables, in turn; only this product deals a batch over tables. CPU is of all
processes, and says more than time on a machine with other work. A slope is that of the last points on log-log scale: 1 is
linear. What is steeper than 1.1, noise allowed for, bends. Writes growth.json, growth.md and growth.svg into --out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curves.points import FLAT, Panel
from curves.report import save, text
from curves.watch import watched
from report import machine

HERE = Path(__file__).parent
SIZES = {
    "rows": [10_000, 100_000, 1_000_000],
    "columns": [10, 100, 1_000, 10_000],
    "widening": [100, 1_000, 8_000],
    "depth": [1, 4, 16, 32, 64],
    "drifted": [0, 5, 50, 500],
    "files": [1, 10, 100, 1_000, 5_000],
    "batches": [10, 100, 500, 1_000],
    "tables": [1, 10, 100],
    "memory": [100_000, 1_000_000],
}
QUICK = {
    "rows": [1_000, 10_000, 100_000],
    "columns": [10, 100, 1_000],
    "widening": [100, 1_000],
    "depth": [1, 8, 32],
    "drifted": [0, 5, 50],
    "files": [1, 10, 100],
    "batches": [10, 20, 40],
    "tables": [1, 10],
    "memory": [10_000, 50_000],
}
MOST = 10_000_000  # rows, of --whole
OVER = {
    "columns": "columns",
    "widening": "columns, a quarter of them new in each batch",
    "depth": "levels",
    "drifted": "drifted fields of 600",
    "batches": "micro-batches",
    "memory": "rows",
}
SIDES = ["driftline", "plain Spark"]
CAPTURES = {
    "driftline": 1,
    "plain Spark": 5,
    "driftline on DuckLake": 10,
    "driftline by key": 5,
    "driftline by key on DuckLake": 10,
}  # so many times fewer micro-batches
HEAP = "1g"  # of both where memory is compared: Java takes what it may have
MB = 1e-6


def main() -> None:
    args = _arguments()
    about, panels = machine(), []
    with tempfile.TemporaryDirectory(prefix="growth-") as tmp:
        for curve in args.only or SIZES:
            folder = Path(tmp, curve)
            folder.mkdir()
            found = _batches(args, folder) if curve == "batches" else _grown(args, curve, folder)
            for panel in found:
                print(f"\n{text(panel)}\n", flush=True)
            panels += found
            save(panels, about, args.out)
            shutil.rmtree(folder)
    print(f"{args.out}/growth.json, growth.md, growth.svg")


def _grown(args: argparse.Namespace, curve: str, folder: Path) -> list[Panel]:
    """Time by size; of what is compared in memory, that."""
    over = OVER.get(curve, curve)
    time = Panel(f"Time by {over}", over, "s")
    used = Panel(f"CPU by {over}", over, "s")
    java = Panel("Java, at most", over, "MB", factor=MB)
    workers = Panel("Python workers, at most", over, "MB", factor=MB)
    apart = curve == "memory"
    for sides in [[side] for side in args.sides] if apart else [args.sides]:
        asked = {
            "curve": curve,
            "sizes": args.sizes[curve],
            "sides": sides,
            "rounds": 1 if apart else args.rounds,
        }
        for job in _run(args, folder / sides[0].split()[0], asked, memory=apart):
            time.add(job["line"], job["size"], job["seconds"])
            used.add(job["line"], job["size"], job["cpu"])
            java.add(job["line"], job["size"], job["java"])
            workers.add(job["line"], job["size"], job["workers"] or None)
    return [java, workers] if apart else [time, used]


def _batches(args: argparse.Namespace, folder: Path) -> list[Panel]:
    """Captures: each in a process of its own, because it is its memory that is looked at."""
    over, panels = OVER["batches"], {}
    panels["seconds"] = Panel("A micro-batch, median since the last", over, "ms", FLAT, factor=1e3)
    panels["cpu"] = Panel("CPU of a micro-batch, mean since the last", over, "ms", FLAT, factor=1e3)
    panels["metadata"] = Panel("Metadata, or catalog", over, "kB", FLAT, factor=1e-3)
    for listed in ("snapshots", "schemas", "metadata files"):
        panels[listed] = Panel(f"Kept {listed}", over, "count", FLAT)
    panels["java"] = Panel("Driver: Java heap after a collection", over, "MB", FLAT, factor=MB)
    panels["python"] = Panel("Driver: Python, RSS", over, "MB", FLAT, factor=MB)
    panels["reading"] = Panel("Reading, by what a fresh table takes", over, "×")
    for line, fewer in (
        CAPTURES.items() if args.captures is None else ((c, CAPTURES[c]) for c in args.captures)
    ):
        most = args.sizes["batches"][-1] // fewer
        sizes = {size for size in args.sizes["batches"] if size <= most} | {most}
        asked = {"curve": "batches", "line": line, "sizes": sorted(sizes)}
        for found in _run(args, folder / line.replace(" ", "-"), asked):
            for kind, panel in panels.items():
                panel.add(line, found["size"], found.get(kind))
    return [panel for panel in panels.values() if panel.curves]


def _run(
    args: argparse.Namespace, folder: Path, asked: dict[str, Any], *, memory: bool = False
) -> Iterator[dict[str, Any]]:
    """Run a worker and yield its points; a failure ends its curve."""
    folder.mkdir()
    command = [str(args.product), str(HERE / "curves/worker.py"), str(folder), json.dumps(asked)]
    heap = {"DRIFTLINE_DRIVER_MEMORY": HEAP} if memory else {}
    try:
        for told in watched(command, folder / "log", heap, memory=memory):
            print(
                f"  {asked['curve']:8} {told['line']:28} {told['size']:>10,}  {told['seconds']:8.2f} s"
                f"  {told['cpu']:8.2f} CPU",
                flush=True,
            )
            yield told
    except RuntimeError as error:
        print(f"  {asked['curve']}: fails: {error}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", action="append", choices=list(SIZES), help="may be repeated")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--captures", nargs="*", choices=list(CAPTURES), help="of the curve of micro-batches")
    parser.add_argument("--sizes", type=int, nargs="*", help="of the one curve that --only names")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument(
        "--whole", action="store_true", help=f"{MOST:,} rows too: 4 GB of JSON are read, 10 minutes more"
    )
    parser.add_argument(
        "--product", type=Path, default=HERE.parent / ".venv/bin/python", help="the Python that has it"
    )
    parser.add_argument("--out", type=Path, default=HERE.parent / "build/bench")
    args = parser.parse_args()
    chosen = dict(QUICK if args.quick else SIZES)
    if args.whole:
        chosen["rows"] = [*chosen["rows"], MOST]
    if args.sizes:
        chosen |= dict.fromkeys(args.only or (), args.sizes)
    args.sizes, args.rounds = chosen, 1 if args.quick else args.rounds
    return args


if __name__ == "__main__":
    main()
