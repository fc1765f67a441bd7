"""A capture of drifting micro-batches that compacts behind itself, replanned while it runs, verified, and taken back.

    python bench/replanned.py [--batches 200] [--records 20]

Prints how many files the table had at most, and how long each step took. `replan --apply` runs in a process of its own
once half of the micro-batches are in. Exits with 1 if `verify` finds a difference.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from driftline import Batch, Lake

TABLE = "bench.drifting"


def drifting(random: Random, number: int) -> Any:
    """A number, a text, a fraction or an object."""
    kinds = [number, f"text {number}", number + 0.5, {"a": number}]
    return random.choices(kinds, [70, 15, 10, 5])[0]


def write(folder: Path, batches: int, records: int) -> None:
    """Write a file for each micro-batch; a new field comes every hundred files."""
    random = Random(1)
    folder.mkdir()
    for batch in range(batches):
        lines = []
        for number in range(records):
            record = {"id": batch * records + number, "price": drifting(random, number)}
            if batch % 7 == 0:
                record[f"late_{batch // 100}"] = drifting(random, batch)
            lines.append(json.dumps(record))
        (folder / f"{batch:06}.jsonl").write_text("\n".join(lines) + "\n")


def run(lake: Path, *arguments: str) -> tuple[float, int]:
    """Run a command on the lake; returns its seconds and its exit code."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "driftline", "--lake", str(lake), *arguments]
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    return time.perf_counter() - begin, code


def changes(lake: Path) -> int:
    """The number of changes in the table's history."""
    command = [sys.executable, "-m", "driftline", "--lake", str(lake), "history", TABLE, "--json"]
    return len(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--records", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        source, folder = Path(tmp, "in"), Path(tmp, "lake")
        write(source, args.batches, args.records)
        files: list[int] = []
        codes: list[int] = []

        def told(step: str, seconds: float, code: int = 0) -> None:
            codes.append(code)
            print(f"{step:28} {seconds:7.1f} s" + (f", exit code {code}" if code else ""), flush=True)

        with Lake.open(folder) as lake:
            table = lake.table(TABLE)

            def count(_: Batch) -> None:
                files.append(table.stats().to_dict()["files"] or 0)

            begin = time.perf_counter()
            query = table.capture(source, name="bench", max_files=1, on_batch=count)
            while len(files) < args.batches // 2 and not query.awaitTermination(0.5):
                pass
            told("replan beside the capture", *run(folder, "replan", TABLE, "--apply"))
            query.awaitTermination()
            told(f"capture of {len(files)} batches", time.perf_counter() - begin)
        print(f"{'files of the table':28} {max(files):7} at most, {files[-1]} in the end")
        verify = "verify", str(source), "--table", TABLE, "--exactly"
        told("verify", *run(folder, *verify))
        before = changes(folder)
        told("replan", *run(folder, "replan", TABLE, "--apply"))
        told("verify", *run(folder, *verify))
        # Fields that came behind the first one may have drifted since; `undo` takes back the last change.
        if changes(folder) > before:
            told("undo of the replan", *run(folder, "undo", TABLE))
            told("verify", *run(folder, *verify))
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
