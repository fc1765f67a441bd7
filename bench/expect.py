"""The cost of expectations and of an audit: the same events with five expectations, with an audit that verifies them, and
with neither, in turns, next to the same expectations in Spark's SQL, and in Great Expectations on Spark.

    python bench/expect.py [--records 1000000] [--rounds 3] [--bad 0.01] [--with PYTHON]

One event in a hundred has a bad price, or another share of them. Spark reads the lines with a schema, which driftline finds, and writes the events
that are as expected into one Iceberg table and the others into another. Great Expectations, in the environment of PYTHON, only
counts, over the same schema.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from measure import cpu
from pyspark.sql import functions as F

from driftline import Lake

EXPECT = {
    "country": "customer.country is not null else quarantine",
    "note": "note like 'x%'",
    "price": "price >= 0 else quarantine",
    "quantity": "quantity between 0 and 10",
    "status": "status in ('paid', 'open')",
}
SCHEMA = (
    "id long, at string, price double, quantity long, customer struct<name: string, country: string>, "
    "status string, items array<string>, note string"
)
FILES = 8


def write(folder: Path, records: int, bad: float) -> list[Path]:
    """Write the events, in files."""
    chance = random.Random(7)
    paths = [folder / f"{number}.jsonl" for number in range(FILES)]
    for number, path in enumerate(paths):
        with path.open("w") as file:
            for id_ in range(number, records, FILES):
                price = round(chance.random() * 100, 2) * (-1 if chance.random() < bad else 1)
                event = {
                    "id": id_, "at": "2026-01-01T00:00:00Z", "price": price, "quantity": id_ % 7,
                    "customer": {"name": f"n{id_}", "country": "de"}, "status": "paid", "items": ["a", "b"], "note": "x" * 20,
                }  # fmt: skip
                file.write(json.dumps(event) + "\n")
    return paths


def in_spark(lake: Lake, folder: Path, table: str) -> None:
    """Read the events once into memory, as each table needs them, and write both."""
    events = lake.spark.read.schema(SCHEMA).json(str(folder))
    asked = (F.col("customer.country").isNotNull()) & F.coalesce(F.col("price") >= 0, F.lit(True))
    warned = [F.sum((~condition).cast("long")) for condition in (
        F.col("note").like("x%"), F.col("quantity").between(0, 10), F.col("status").isin("paid", "open"))]  # fmt: skip
    events.select(*warned).collect()
    events.where(asked).writeTo(f"{lake.catalog}.{table}").create()
    events.where(~asked).writeTo(f"{lake.catalog}.{table}_aside").create()


class GreatExpectations:
    """A process of another environment that validates the events each time it is asked."""

    def __init__(self, python: str, folder: Path, cores: int) -> None:
        command = [python, str(Path(__file__).with_name("expect_gx.py")), str(folder), SCHEMA, str(cores)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._answer()

    def validate(self) -> int:
        """Count the values that are not as expected."""
        assert self._process.stdin is not None
        print("validate", file=self._process.stdin, flush=True)
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"{self._process.args}: ended without an answer")
        return line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bad", type=float, default=0.01)
    parser.add_argument("--with", dest="python", help="that of an environment with Great Expectations")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "events").mkdir()
        paths = write(folder / "events", args.records, args.bad)
        lake = Lake.open(folder / "lake")
        ways: dict[str, Callable[[str], object]] = {
            "without": lambda table: lake.table(table).ingest(paths),
            "with five": lambda table: lake.table(table).ingest(paths, expect=EXPECT),
            "audited": lambda table: lake.table(table).ingest(paths, audit=True, verify=True),
            "Spark's SQL": lambda table: in_spark(lake, folder / "events", table),
        }
        if args.python:
            cores = lake.spark.sparkContext.defaultParallelism
            others = GreatExpectations(args.python, folder / "events", cores)
            ways["GX, counts"] = lambda _: others.validate()
        took: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        tree = psutil.Process()
        for turn in range(args.rounds + 1):  # the first one warms up
            for number, (way, run) in enumerate(ways.items() if turn % 2 else reversed(ways.items())):
                begun, used = time.perf_counter(), cpu(tree)
                run(f"bench.t{turn}_{number}")
                if turn:
                    took[way].append((time.perf_counter() - begun, cpu(tree) - used))
        plain = [statistics.median(part) for part in zip(*took["without"], strict=True)]
        for way, figures in took.items():
            wall, used = (statistics.median(part) for part in zip(*figures, strict=True))
            print(
                f"{way:12} {wall:6.2f} s ({wall / plain[0]:.2f} ×)  {used:6.2f} s of CPU ({used / plain[1]:.2f} ×)"
            )


if __name__ == "__main__":
    main()
