"""A replan next to reading the rows: a flat table and a nested one, of which some fields drifted halfway.

    python bench/replan.py [--rows 1000000]

CPU is of all processes, the median of three runs; reading hands all columns to Python's tasks, as a replan does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from measure import cpu

from driftline import Lake
from driftline.lake import Table
from driftline.tasks.run import numbered

PROCESS = psutil.Process()


def flat(number: int, late: bool) -> dict[str, Any]:
    """A record of ten fields, one of which drifts."""
    return {
        "id": number, "name": f"name {number}", "price": number + 0.5 if late else number, "ok": number % 2 == 0,
        "at": f"2026-01-{number % 28 + 1:02}T00:00:{number % 60:02}Z", "quantity": number % 100,
        "ratio": number / 7, "note": "x" * 20, "count": number, "kind": f"v{number % 10}",
    }  # fmt: skip


def nested(number: int, late: bool) -> dict[str, Any]:
    """A record with an object and lists, in each of which a field drifts."""
    place = {"lat": number / 3, "lon": number / 5}
    return {
        "id": number,
        "user": {"id": f"u{number}" if late else number, "name": f"n{number}", "place": place},
        "tags": ["a", f"b{number % 5}"],
        "items": [{"sku": f"s{number % 100}", "n": 1.5 if late else 1, "p": number / 10}] * 2,
        "day": "2026-01-02",
    }


def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count rows in a task."""
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_arrays([pa.array([rows])], ["rows"])


def read(table: Table) -> None:
    """Read all rows into Python's tasks."""
    numbered(table.read()).mapInArrow(counted, "rows bigint").collect()


def spent(work: Callable[[], object]) -> float:
    """The median of the CPU seconds of three runs."""
    seconds = []
    for _ in range(3):
        used = cpu(PROCESS)
        work()
        seconds.append(cpu(PROCESS) - used)
    return sorted(seconds)[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    print("| | reading, CPU s | replan | replan --apply |\n|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as tmp, Lake.open(Path(tmp, "lake")) as lake:
        # What Java compiles at first is no part of the figures.
        for make, count in (flat, 1_000), (flat, rows), (nested, rows):
            table = lake.table(f"bench.{make.__name__}_{count}")
            for late in (False, True):
                file = Path(tmp, f"{make.__name__}-{late}.jsonl")
                numbers = range(count // 2, count) if late else range(count // 2)
                file.write_text("".join(json.dumps(make(number, late)) + "\n" for number in numbers))
                table.ingest(file, again=True)
            reading, replanning = spent(partial(read, table)), spent(table.replan)
            used = cpu(PROCESS)
            table.replan(apply=True)
            applying = cpu(PROCESS) - used
            shares = f"{replanning:.1f} ({replanning / reading:.1f} ×) | {applying:.1f} ({applying / reading:.1f} ×)"
            if count == rows:
                print(f"| {rows:,} rows, {make.__name__} | {reading:.1f} | {shares} |", flush=True)
            assert table.replan().fields == ()


if __name__ == "__main__":
    main()
