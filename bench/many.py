"""One stream into many tables: webhooks by their event next to one table, and small batches next to bare commits.

    make bench-many                                   65 MB of webhooks, 5,000 records over 60 tables
    make bench-many ARGS="--size 1e9 --rounds 1"      a larger one
    make bench-many ARGS="--wide"                     1,000 tables, 200 in a batch: the memory of all processes

The best of the rounds, in turns, in a warm session. Each round has tables of its own; `again` is a further batch for them.
CPU is of all processes. A bare commit loads a table, appends a file that is there, sets a property, and no more.
By dlt: `table_name=lambda record: record["event"]`, into DuckDB, in a process of its own, where bench/.venv has it.
By filters: Spark reads the records once, keeps them, and appends those of each kind with all columns, one table after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import data
import psutil
from measure import MEMORY, cpu, memory

from driftline import Lake
from driftline.runtime.threads import at_once

WEBHOOKS = Path(os.environ.get("BENCH_WEBHOOKS", "webhooks.jsonl"))
RECORDS, TABLES, COMMITS = 5_000, 60, 4
DLT = Path(__file__).with_name(".venv") / "bin" / "python"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--webhooks", type=Path, default=WEBHOOKS)
    parser.add_argument("--size", type=float, default=65e6, help="bytes of webhooks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wide", action="store_true", help="only the memory of many tables")
    args = parser.parse_args()
    if args.wide:
        _wide()
        return
    if not args.webhooks.is_file():
        parser.error(f"no webhooks: there is no file {args.webhooks} (--webhooks FILE, or BENCH_WEBHOOKS)")
    best: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="many-") as tmp:
        webhooks = data.repeated(Path(tmp, "webhooks"), args.webhooks, int(args.size))
        small = [_records(Path(tmp, f"{number}.jsonl"), number) for number in range(2)]
        lake = Lake.open(Path(tmp, "lake"))
        lake.fan_out("warm.{event}").ingest(args.webhooks)
        for number in range(args.rounds):
            jobs = _jobs(lake, f"r{number}", webhooks.files, small)
            if DLT.exists():
                jobs["many tables by dlt"] = partial(_by_dlt, Path(tmp, f"dlt{number}"), webhooks.files)
            for name, work in jobs.items():
                took = _timed(work)
                best[name] = min(best.get(name, took), took)
    print(f"{webhooks.title}: {webhooks.records:,} records, {webhooks.size / 1e6:,.0f} MB")
    for name, (seconds, used) in best.items():
        print(f"{name:36} {seconds:7.2f} s {used:7.2f} s of CPU")
    for many, other in (
        ("many tables", "one table"),
        *((("many tables", "many tables by dlt"),) if DLT.exists() else ()),
        ("60 tables, again", "60 bare commits"),
        ("60 tables, again", "60 tables by filters, again"),
    ):
        ratios = [f"{ours / theirs:.2f}" for ours, theirs in zip(best[many], best[other], strict=True)]
        print(f"{many} to {other}: {' of the time, '.join(ratios)} of the CPU")


def _jobs(
    lake: Lake, namespace: str, webhooks: list[Path], small: list[Path]
) -> dict[str, Callable[[], object]]:
    tables, one = lake.fan_out(f"{namespace}.{{event}}"), lake.table(f"{namespace}_one.hooks")
    kinds = lake.fan_out(f"{namespace}_small.{{kind}}")
    names = [f"{namespace}_small.k{number}" for number in range(TABLES)]
    return {
        "one table": lambda: one.ingest(webhooks),
        "many tables": lambda: tables.ingest(webhooks),
        "one table, again": lambda: one.ingest(webhooks, again=True),
        "many tables, again": lambda: tables.ingest(webhooks, again=True),
        "60 tables": lambda: kinds.ingest(small[0]),
        "60 tables, again": lambda: kinds.ingest(small[1]),
        "60 tables by filters": lambda: _filtered(lake, f"{namespace}_filtered", small[0]),
        "60 tables by filters, again": lambda: _filtered(lake, f"{namespace}_filtered", small[1]),
        "60 bare commits": lambda: at_once(lake.spark, lambda name: _append(lake, name), names, COMMITS),
    }


def _wide() -> None:
    """Fill 1,000 tables, 200 in a batch, and print the most memory that all processes had."""
    peak, over = [0], Event()

    def watch() -> None:
        while not over.wait(1):
            peak[0] = max(peak[0], memory(psutil.Process()))

    with tempfile.TemporaryDirectory(prefix="many-") as tmp:
        lake, watcher = Lake.open(Path(tmp, "lake")), Thread(target=watch)
        watcher.start()
        try:
            for begin in (*range(0, 1000, 200), 0):
                file = _records(Path(tmp, f"{begin}.jsonl"), begin, range(begin, begin + 200))
                tables = lake.fan_out("wide.{kind}", max_tables=1000)
                seconds, used = _timed(lambda: tables.ingest(file, again=True))  # noqa: B023
                java = lake.spark._jvm.java.lang.Runtime.getRuntime()
                heap = (java.totalMemory() - java.freeMemory()) / 1e6
                print(
                    f"tables {begin} to {begin + 199}: {seconds:.0f} s, {used:.0f} s of CPU; so far at most "
                    f"{peak[0] / 1e6:,.0f} MB ({MEMORY}) of all processes; Java's heap now {heap:,.0f} MB",
                    flush=True,
                )
        finally:
            over.set()
            watcher.join()


def _records(file: Path, batch: int, of_kinds: range = range(TABLES)) -> Path:
    """5,000 records of some kinds, of which each has fields of its own."""
    kinds = (of_kinds[number % len(of_kinds)] for number in range(RECORDS))
    records = ({"kind": f"k{kind}", "batch": batch, f"of_{kind}": kind, "text": "x" * kind} for kind in kinds)
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return file


def _filtered(lake: Lake, namespace: str, file: Path) -> None:
    records = lake.spark.read.json(str(file)).persist()
    lake.spark.sql(
        f"CREATE NAMESPACE IF NOT EXISTS {lake.format.sql_name(namespace + '.t').rpartition('.')[0]}"
    )
    for number in range(TABLES):
        table = lake.format.sql_name(f"{namespace}.k{number}")
        writer = records.where(f"kind = 'k{number}'").writeTo(table)
        writer.append() if lake.spark.catalog.tableExists(table) else writer.using("iceberg").create()
    records.unpersist()


def _by_dlt(folder: Path, files: list[Path]) -> None:
    """Take webhooks into tables by their event."""
    command = [DLT, "-m", "contestants.dlt", folder, "event", *files]
    subprocess.run(command, cwd=DLT.parents[2], check=True, capture_output=True)


def _append(lake: Lake, name: str) -> None:
    java: Any = lake.table(name).format.handle.java()
    transaction = java.newTransaction()
    file = java.currentSnapshot().addedDataFiles(java.io()).iterator().next()
    transaction.newAppend().appendFile(file).commit()
    transaction.updateProperties().set("bench", "1").commit()
    transaction.commitTransaction()


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """The seconds, and the CPU seconds of all processes, that some work takes."""
    tree, over = psutil.Process(), Event()

    def watch() -> None:
        while not over.wait(1):
            cpu(tree)  # a process that ends meanwhile is seen at least once

    start, used = time.perf_counter(), cpu(tree)
    watcher = Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        over.set()
        watcher.join()
    return time.perf_counter() - start, cpu(tree) - used


if __name__ == "__main__":
    main()
