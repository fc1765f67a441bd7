"""Drifting JSON into tables: this product and what else a user may take, one after the other on one machine.

    make bench                              the whole of it, with this as its Python
    make bench ARGS="--quick"               a try, in some minutes
    make bench ARGS="--only spark --only driftline-iceberg --drift 0.01 --rounds 5"

Each contestant runs in a process of its own, in turn, round after round. A process takes the same files twice, into two
new tables: the first job and the start of the process are `whole`, the second is `warm`; then a batch that drifts more
into the table that is there. Memory is that of the process and all its children, looked at once a second. What
is lost, check.py counts, the same way for all. Writes bench.json, bench.md and bench.svg into --out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import check
import data
import report
from contestants import ENTRIES, Table
from measure import Run, run

HERE = Path(__file__).parent


def main() -> None:
    args = _arguments()
    names = args.only or list(ENTRIES)
    results = report.Results(report.machine())
    with tempfile.TemporaryDirectory(prefix="bench-") as tmp:
        for given, folder in _data(args, names, Path(tmp)):
            runs = _race(args, given, folder / "tables")
            results.add(next(iter(given.values())), _judged(given, runs))
            results.save(args.out)
            shutil.rmtree(folder)
    print(f"{args.out}/bench.json, bench.md, bench.svg")


def _data(
    args: argparse.Namespace, names: list[str], tmp: Path
) -> Iterator[tuple[dict[str, data.Data], Path]]:
    """For each kind of data: what each contestant is given, and the folder of all of it."""
    counts = {name: min(args.records, ENTRIES[name].records or args.records) for name in names}
    for i, drift in enumerate(args.drift):
        folder = tmp / f"events-{i}"
        made = {n: data.drifting(folder / str(n), n, drift) for n in sorted(set(counts.values()))}
        yield {name: made[n] for name, n in counts.items()}, folder
    if args.webhooks.is_file():
        folder = tmp / "webhooks"
        real = data.repeated(folder / "files", args.webhooks, args.webhooks_size)
        yield dict.fromkeys(names, real), folder
    else:
        print(f"No webhooks: there is no file {args.webhooks} (--webhooks FILE, or BENCH_WEBHOOKS).")


def _race(args: argparse.Namespace, given: dict[str, data.Data], tables: Path) -> dict[str, list[Run]]:
    """All rounds. The tables of the first are kept for the check."""
    runs: dict[str, list[Run]] = {name: [] for name in given}
    for i in range(args.rounds):
        turn = i % len(given)  # nobody always comes first
        for name in [*list(given)[turn:], *list(given)[:turn]]:
            if runs[name] and "warm" not in runs[name][0].seconds:
                continue  # it fails
            place = tables / f"{name}-{i}"
            place.mkdir(parents=True)
            os.sync()  # what was written before is no load of this one
            done = run(_command(args, name, place, given[name]), tables / f"{name}-{i}.log", args.timeout)
            runs[name].append(done)
            report.progress(name, i, done)
            if i:
                shutil.rmtree(place)
    return runs


def _judged(given: dict[str, data.Data], runs: dict[str, list[Run]]) -> list[report.Row]:
    """Add to each contestant's speed the losses of its tables of the first round."""
    sources: dict[int, check.Values] = {}
    rows = []
    for name, done in runs.items():
        one, tables = given[name], done[0].tables
        if one.records not in sources:
            sources[one.records] = check.in_source(one.files)
        source, lost, after = sources[one.records], None, None
        if "cold" in tables:
            lost = check.compare(source, Table(**tables["cold"]))
        if "next" in tables:
            both = check.added(source, check.in_source(one.next))
            after = check.compare(both, Table(**tables["next"]))
        rows.append(report.Row.of(name, ENTRIES[name].title, one, done, lost, after))
    return rows


def _command(args: argparse.Namespace, name: str, place: Path, given: data.Data) -> list[str]:
    pythons = {"product": args.product, "others": sys.executable, "duckdb": args.duckdb}
    python = pythons[ENTRIES[name].environment]
    following = ["--next", *map(str, given.next)] if given.next else []
    return [str(python), str(HERE / "worker.py"), name, str(place), *map(str, given.files), *following]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--drift", type=float, nargs="*", default=[0, 0.01, 0.1], help="shares of the records"
    )
    parser.add_argument("--only", action="append", choices=list(ENTRIES), help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="20,000 records, one round, 3 MB of webhooks")
    parser.add_argument(
        "--webhooks", type=Path, default=Path(os.environ.get("BENCH_WEBHOOKS", "webhooks.jsonl"))
    )
    parser.add_argument("--webhooks-size", type=int, default=100_000_000, help="bytes")
    parser.add_argument("--timeout", type=float, default=1200, help="seconds for one process")
    parser.add_argument(
        "--product", type=Path, default=HERE.parent / ".venv/bin/python", help="the Python that has it"
    )
    parser.add_argument(
        "--duckdb",
        type=Path,
        default=HERE / ".duckdb/bin/python",
        help="the Python that has the newest DuckDB",
    )
    parser.add_argument("--out", type=Path, default=HERE.parent / "build/bench")
    args = parser.parse_args()
    if args.quick:
        args.records, args.rounds, args.webhooks_size = min(args.records, 20_000), 1, 3_000_000
    return args


if __name__ == "__main__":
    main()
