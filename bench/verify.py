"""The check next to the ingest that it proves, in one session, in turns.

    python bench/verify.py [--records 1000000] [--drift 0.01] [--rounds 3] [--wide 2000]

Each round takes the events of `events` into a fresh table, and has `verify` compare files and table; then the same with
three records, and with documents of thousands of fields that drift. What counts is the ratio of the two in a round: machines are noisy.
CPU: of these processes, as a ratio of the two, too.
Memory: that of this process, its Python workers and Java together (PSS), at most, while it verifies.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any, Self

import psutil
from events import write
from measure import EVERY, cpu, memory

from driftline import Lake

FEW = 3  # records, of which a round takes less than a second
WARM = 5  # rounds


Cost = tuple[float, float]  # seconds, and seconds of CPU


def timed(job: Callable[[], Any]) -> Cost:
    tree = psutil.Process()
    start, used = time.perf_counter(), cpu(tree)
    job()
    return time.perf_counter() - start, cpu(tree) - used


def one_round(lake: Lake, files: Path, records: int, table: str) -> tuple[Cost, Cost]:
    """The cost of an ingest, and of the check of it."""

    def verify() -> None:
        verdict = lake.table(table).verify(files)
        assert verdict.ok, verdict.to_dict()
        assert verdict.records == records, verdict.to_dict()

    return timed(lambda: lake.table(table).ingest(files)), timed(verify)


def write_wide(folder: Path, documents: int, seed: int = 0) -> int:
    """Documents of some sections out of 300, each of 30 fields, of which a part changes its type; returns the bytes."""
    random = Random(seed)
    folder.mkdir()
    kinds = [[random.choice(KINDS) for _ in range(30)] for _ in range(300)]
    with (folder / "documents.jsonl").open("w") as lines:
        for number in range(documents):
            document: dict[str, Any] = {"id": number}
            for section in random.sample(range(300), 4):
                fields = random.sample(range(30), 20)
                document[f"section_{section}"] = {
                    f"field_{field}": value_of(
                        kinds[section][field] if random.random() > DRIFT else random.choice(KINDS), random
                    )
                    for field in fields
                }
            lines.write(json.dumps(document) + "\n")
    return (folder / "documents.jsonl").stat().st_size


KINDS, DRIFT = ("number", "fraction", "text", "flag", "texts", "object"), 0.03


def value_of(kind: str, random: Random) -> Any:
    match kind:
        case "number":
            return random.randrange(10**6)
        case "fraction":
            return random.random()
        case "text":
            return f"value {random.randrange(10**6)}"
        case "flag":
            return random.random() < 0.5
        case "texts":
            return [f"value {random.randrange(100)}" for _ in range(3)]
    return {"name": f"name {random.randrange(100)}", "size": random.randrange(100)}


class Peak:
    """The most memory that this process and its children have had, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = Event()
        self._watch = Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            self.bytes = max(self.bytes, memory(psutil.Process()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--drift", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wide", type=int, default=2_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        lake = Lake.open(Path(tmp, "lake"))
        out = []
        sizes = {
            records: Path(tmp, str(records)) for records in (FEW, args.records // 10, args.records) if records
        }
        warm, wide = Path(tmp, "warm"), Path(tmp, "wide")
        write(warm, 20_000, args.drift)
        one_round(lake, warm, 20_000, "bench.warm")
        for records, files in sizes.items():
            size = write(files, records, args.drift if records > FEW else 0, files=min(records, 8))
            out.append(measured(lake, files, records, size, args.rounds))
        out.append(measured(lake, wide, args.wide, write_wide(wide, args.wide), args.rounds))
    print(json.dumps(out) if args.json else "\n".join(map(text, out)))


def measured(lake: Lake, files: Path, records: int, size: int, rounds: int) -> dict[str, Any]:
    if records == FEW:
        for number in range(WARM):  # Java compiles what runs often, and a round is short
            one_round(lake, files, records, f"bench.warm_few_{number}")
    with Peak() as peak:
        times = [one_round(lake, files, records, f"bench.{files.name}_{i}") for i in range(rounds)]
    return figures(records, size, times, peak.bytes)


def figures(records: int, size: int, rounds: list[tuple[Cost, Cost]], peak: int) -> dict[str, Any]:
    return {
        "records": records,
        "bytes": size,
        "ingest": [round(ingest, 2) for (ingest, _), _ in rounds],
        "verify": [round(verify, 2) for _, (verify, _) in rounds],
        "ratio_of_pairs_median": round(
            statistics.median(verify / ingest for (ingest, _), (verify, _) in rounds), 2
        ),
        "cpu": [
            round(statistics.median(cpus), 2)
            for cpus in zip(*((i, v) for (_, i), (_, v) in rounds), strict=True)
        ],
        "ratio_of_cpu_median": round(
            statistics.median(verify / ingest for (_, ingest), (_, verify) in rounds), 2
        ),
        "peak_mb": round(peak / 1e6),
    }


def text(line: dict[str, Any]) -> str:
    return (
        f"{line['records']:>10,} records, {line['bytes'] / 1e6:6.1f} MB: ingest {min(line['ingest']):6.2f} s, verify "
        f"{min(line['verify']):6.2f} s (best); verify / ingest {line['ratio_of_pairs_median']} (median of pairs); CPU {line['cpu'][0]} and {line['cpu'][1]} s, "
        f"{line['ratio_of_cpu_median']}; "
        f"memory {line['peak_mb']:,} MB; all: {line['ingest']}, {line['verify']}"
    )


if __name__ == "__main__":
    main()
