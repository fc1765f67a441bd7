"""Captures next to plain Structured Streaming: what a micro-batch costs, side by side, in one run on one machine.

    python bench/stream.py [--batches 100] [--records 10000] [--drift 0 0.01] [--wide 3000]

Each micro-batch is one file of JSON lines. Plain Spark reads them with a fixed schema and appends them to an Iceberg
table with the same columns; values that drift become null there. driftline captures the same files. Both run with the
same trigger and in turns, some files a turn, so that neither has the quieter machine. What is compared is the median
time of a micro-batch as Spark's own progress reports tell it (`triggerExecution`). A third table takes them with
`durability = "off"`: what the syncs cost, and how many there are (SQLite's own, three or four for each commit, are not counted).
CPU seconds are those of the process and Java, the start of each turn's query among them: on a shared machine they tell more than time.

The wide run has a table of so many columns, of which each record brings 40.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from events import drifted, event
from measure import cpu
from pyspark.sql.streaming import StreamingQuery

from driftline import Lake
from driftline.runtime import disk

TURN = 10  # micro-batches in a row
NAMESPACES = ("plain", "driftline", "unsynced")
COLUMNS = 13  # of an event
SPARSE = 27  # further columns of a record of the wide run
SCHEMA = """id bigint, event string, at timestamp, user struct<id bigint, name string, country string, vip boolean>,
session string, amount double, quantity bigint, code bigint,
device struct<os string, version string, screen struct<w bigint, h bigint>>, tags array<string>,
items array<struct<sku string, price double, n bigint>>, referrer string, ok boolean"""
NEW_TABLE = "'format-version'='2', 'write.parquet.compression-codec'='zstd'"


@dataclass
class Side:
    """One of the two: its folder of files, and what its micro-batches took, in milliseconds by phase."""

    name: str
    folder: Path
    start: Callable[[Side], StreamingQuery]
    took: list[dict[str, float]] = field(default_factory=list)
    syncs: int = 0
    cpu: float = 0  # seconds

    def take(self, files: list[Path]) -> None:
        for file in files:
            os.link(file, self.folder / file.name)
        before, used = len(SYNCS), cpu(PROCESS)
        query = self.start(self)
        query.awaitTermination()
        self.syncs, self.cpu = self.syncs + len(SYNCS) - before, self.cpu + cpu(PROCESS) - used
        done = [dict(p["durationMs"]) for p in query.recentProgress if "addBatch" in p["durationMs"]]
        assert len(done) == len(files), f"{self.name}: {len(files)} files, {len(done)} micro-batches"
        self.took += done

    def median(self, phase: str = "triggerExecution") -> float:
        return statistics.median(took.get(phase, 0) for took in self.took)


SYNCS: list[int] = []
PROCESS = psutil.Process()


def count_syncs() -> None:
    """Has each sync of driftline's be counted."""
    flush = disk.flush

    def counted(file: int) -> None:
        SYNCS.append(file)
        flush(file)

    disk.flush = counted  # type: ignore[assignment]


def write(folder: Path, args: argparse.Namespace, drift: float, wide: int) -> list[Path]:
    """The micro-batches: seeded, the same at each call."""
    folder.mkdir()
    rng = random.Random(7)
    files = []
    for batch in range(args.batches):
        files.append(folder / f"{batch:05}.jsonl")
        with files[-1].open("w") as out:
            for i in range(batch * args.records, (batch + 1) * args.records):
                record = event(i, rng)
                if rng.random() < drift:
                    record = drifted(record, rng)
                record |= {f"c{rng.randrange(wide - COLUMNS)}": i for _ in range(SPARSE if wide else 0)}
                out.write(json.dumps(record, separators=(",", ":")) + "\n")
    return files


def plain(lake: Lake, table: str, schema: str) -> Callable[[Side], StreamingQuery]:
    def start(side: Side) -> StreamingQuery:
        read = lake.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(side.folder))
        checkpoint = f"{side.folder}-checkpoint"
        out = read.writeStream.format("iceberg").outputMode("append").option("checkpointLocation", checkpoint)
        return out.trigger(availableNow=True).toTable(f"lake.{table}")

    return start


def driftline(lake: Lake, table: str) -> Callable[[Side], StreamingQuery]:
    def start(side: Side) -> StreamingQuery:
        return lake.table(table).capture(side.folder, name="bench", max_files=1)

    return start


def run(
    lake: Lake, unsynced: Lake, folder: Path, args: argparse.Namespace, drift: float, wide: int
) -> dict[str, object]:
    folder.mkdir()
    name = folder.name
    schema = ", ".join([SCHEMA, *(f"c{i} bigint" for i in range(wide - COLUMNS))])
    for side in NAMESPACES:
        # All tables are there before: of a schema that is fixed, and those that begin so.
        lake.sql(f"create table lake.{side}.{name} ({schema}) using iceberg tblproperties ({NEW_TABLE})")
        (folder / side).mkdir()
    sides = [
        Side("plain spark", folder / "plain", plain(lake, f"plain.{name}", schema)),
        Side("driftline", folder / "driftline", driftline(lake, f"driftline.{name}")),
        Side("no syncs", folder / "unsynced", driftline(unsynced, f"unsynced.{name}")),
    ]
    files = write(folder / "files", args, drift, wide)
    for turn in range(0, len(files), TURN):
        for side in sides if turn % (2 * TURN) else reversed(sides):
            side.take(files[turn : turn + TURN])
    counts = {side: lake.sql(f"select count(*) from lake.{side}.{name}").head()[0] for side in NAMESPACES}
    assert set(counts.values()) == {args.batches * args.records}, counts
    return report(args, drift, wide, *sides)


def report(
    args: argparse.Namespace, drift: float, wide: int, base: Side, ours: Side, unsynced: Side
) -> dict[str, object]:
    phases = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
    out = {
        "batches": args.batches,
        "records": args.records,
        "drift": drift,
        "columns": wide or COLUMNS,
        "median_ms": {side.name: side.median() for side in (base, ours, unsynced)},
        "overhead": round(ours.median() / base.median() - 1, 3),
        "durability": round(ours.median() / unsynced.median(), 3),
        "cpu_s_a_batch": {side.name: round(side.cpu / len(side.took), 3) for side in (base, ours, unsynced)},
        "syncs_a_batch": round(ours.syncs / len(ours.took), 1),
        "phases_ms": {
            side.name: {phase: side.median(phase) for phase in phases} for side in (base, ours, unsynced)
        },
    }
    if args.json:
        print(json.dumps(out), flush=True)
        return out
    print(
        f"{args.batches} micro-batches of {args.records:,} records, {drift:.0%} drifted, {wide or COLUMNS:,} columns"
    )
    for side in (base, ours, unsynced):
        taken = sorted(took["triggerExecution"] for took in side.took)
        quarter = len(taken) // 4
        print(
            f"  {side.name:12} {side.median():6.0f} ms median   {taken[quarter]:.0f} to {taken[-quarter - 1]:.0f} for the "
            f"middle half   {out['phases_ms'][side.name]}"
        )
    print(f"  overhead of driftline: {out['overhead']:.0%}")
    print(f"  {out['syncs_a_batch']} syncs a micro-batch: {out['durability']} × without")
    print(f"  CPU seconds a micro-batch: {out['cpu_s_a_batch']}", flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--drift", type=float, nargs="*", default=[0, 0.01])
    parser.add_argument("--wide", type=int, default=3_000, help="columns of the wide table; 0 leaves it out")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        count_syncs()
        lake = Lake.open(Path(tmp, "lake"))
        unsynced = Lake.open(Path(tmp, "lake"), durability="off")
        for namespace in NAMESPACES:
            lake.sql(f"create namespace lake.{namespace}")
        runs = [(f"drift_{round(1000 * drift)}", drift, 0) for drift in args.drift]
        if args.wide:
            runs.append(("wide", 0, args.wide))
        warm = argparse.Namespace(**{**vars(args), "batches": 2 * TURN, "json": False})
        print("Warming up:", flush=True)
        run(lake, unsynced, Path(tmp, "warm"), warm, 0.01, 0)
        for name, drift, wide in runs:
            run(lake, unsynced, Path(tmp, name), args, drift, wide)


if __name__ == "__main__":
    main()
