"""Objects under random keys, next to the same objects under one fixed key: what a map costs.

    python bench/maps.py [--records 1000000] [--rounds 3]

Each round takes both into fresh tables, and then again into the tables that there are; the best of each is compared.
Memory is the most that Spark's Python processes hold together, for a tenth of the records and for all.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Self

from driftline import Lake

_FILES = 4
_EVERY = 0.1  # seconds between two looks at the memory
CASES = ("fixed", "random")


def write(folder: Path, case: str, records: int) -> Path:
    """Records of one object each, in several files."""
    folder.mkdir()
    rng = random.Random(7)
    for number in range(_FILES):
        with (folder / f"{number}.jsonl").open("w") as file:
            for n in range(number, records, _FILES):
                key = str(uuid.UUID(int=rng.getrandbits(128))) if case == "random" else "value"
                thing = {"name": f"name-{n % 9973}", "count": n, "price": n % 800 / 8, "paid": not n % 3}
                file.write(json.dumps({"number": n, "id": {key: thing}}) + "\n")
    return folder


class Memory:
    """The most bytes that the Python processes below this one hold together, while it is entered. Linux only."""

    def __enter__(self) -> Self:
        self.peak, self._over = 0, Event()
        self._watch = Thread(target=self._look)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._over.wait(_EVERY):
            self.peak = max(self.peak, sum(map(_resident, _workers())))


def _workers() -> list[Path]:
    """The processes of PySpark's daemons below this process."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents.setdefault(int((place / "stat").read_text().rpartition(")")[2].split()[1]), []).append(
                int(place.name)
            )
    below, found = [os.getpid()], []
    while below:
        children = parents.get(below.pop(), [])
        below += children
        found += [Path(f"/proc/{child}") for child in children]
    return [place for place in found if _is_daemon(place)]


def _is_daemon(place: Path) -> bool:
    with suppress(OSError):
        return (
            b"pyspark" in (place / "cmdline").read_bytes() and b"java" not in (place / "cmdline").read_bytes()
        )
    return False


def _resident(place: Path) -> int:
    with suppress(OSError, IndexError):
        return int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        lake = Lake.open(Path(tmp, "lake"))
        sizes = {"warm": 10_000, "tenth": args.records // 10, "all": args.records}
        folders = {(c, s): write(Path(tmp, f"{c}_{s}"), c, n) for c in CASES for s, n in sizes.items()}
        peaks: dict[tuple[str, str], int] = {}
        for case in CASES:
            for size in sizes:
                with Memory() as memory:
                    lake.table(f"bench.{case}_{size}").ingest(folders[case, size])
                peaks[case, size] = memory.peak
        timed(lake, folders, args.rounds)
        for case in CASES:
            tenth, whole = (peaks[case, size] / 2**20 for size in ("tenth", "all"))
            print(f"{case:8} memory {tenth:6.0f} MiB for a tenth, {whole:6.0f} MiB for all", flush=True)


def timed(lake: Lake, folders: dict[tuple[str, str], Path], rounds: int) -> None:
    """Prints the best of the rounds, of the first batch and of another into the same table."""
    best = dict.fromkeys([(case, batch) for case in CASES for batch in ("first", "next")], float("inf"))
    for number in range(rounds):
        for case in CASES:
            table = lake.table(f"bench.{case}_{number}")
            for batch in ("first", "next"):
                start = time.perf_counter()
                table.ingest(folders[case, "all"], again=True)
                best[case, batch] = min(best[case, batch], time.perf_counter() - start)
            assert len(table.history().entries) == 1, "more than one schema change"
    for batch in ("first", "next"):
        fixed, keyed = (best[case, batch] for case in CASES)
        print(
            f"{batch:8} fixed {fixed:6.2f} s   random {keyed:6.2f} s   ratio {keyed / fixed:.2f}", flush=True
        )


if __name__ == "__main__":
    main()
