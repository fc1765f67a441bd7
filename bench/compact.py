"""Small files: a capture that compacts behind its batches next to one that does not, and a compaction next to others'.

    make bench-compact                          1,000 micro-batches, a quarter of an hour
    make bench-compact ARGS="--batches 100"     a try
    make bench-compact ARGS="--ducklake"        in a DuckLake

Each micro-batch is a file of records; each tenth part of them brings a further column. Three tables get the same files in turns of
some: one with `compact = "auto"`, two without. In the end one of these is compacted by driftline, the other by Iceberg's
`rewrite_data_files`, in a DuckLake by DuckDB's `ducklake_merge_adjacent_files`. CPU is of all processes; reading is a sum over a column, the best of five.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from measure import cpu

from driftline import Lake
from driftline.formats.ducklake.lake import DuckLake
from driftline.lake import Table
from driftline.runtime.duckdb import instance

TURN = 25  # micro-batches
PARTS = 10
PROCESS = psutil.Process()


@dataclass
class Fed:
    """A table that captures its folder, and what that took, in seconds."""

    table: Table
    folder: Path
    compact: str
    seconds: float = 0
    cpu: float = 0
    most: int = 0  # files

    def take(self, files: list[Path]) -> None:
        """Capture further files, one in a micro-batch."""
        for file in files:
            os.link(file, self.folder / file.name)
        began, used = time.perf_counter(), cpu(PROCESS)
        query = self.table.capture(
            str(self.folder), name="bench", max_files=1, settings={"compact": self.compact}
        )
        query.awaitTermination()
        self.seconds, self.cpu = self.seconds + time.perf_counter() - began, self.cpu + cpu(PROCESS) - used
        self.most = max(self.most, self.files())

    def files(self) -> int:
        """The number of data files."""
        return sum(spec.files for spec in self.table.format.laid())

    def read(self) -> float:
        """The seconds that a sum over a column takes."""
        return min(_timed(lambda: self.table.read().selectExpr("sum(id)").collect()) for _ in range(5))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--records", type=int, default=50)
    parser.add_argument("--ducklake", action="store_true", help="in place of Iceberg")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compact-") as tmp:
        files = _files(Path(tmp), args.batches, args.records)
        lake = Lake.open(Path(tmp, "lake"), ducklake="duckdb" if args.ducklake else None)
        auto, off, other = (
            _fed(lake, Path(tmp), name, compact)
            for name, compact in (("auto", "auto"), ("off", "off"), ("other", "off"))
        )
        _fed(lake, Path(tmp), "warm", "auto").take(files[:TURN])
        fed = [auto, off, other]
        for begin in range(0, len(files), TURN):
            for each in fed:
                each.take(files[begin : begin + TURN])
            fed.append(fed.pop(0))  # none is always the first
        print("| | seconds | CPU | most files | files | reading, s |")
        print("|---|--:|--:|--:|--:|--:|")
        for each in (auto, off):
            figures = (
                f"{each.seconds:.1f} | {each.cpu:.1f} | {each.most} | {each.files()} | {each.read():.3f}"
            )
            print(f'| {args.batches:,} micro-batches, compact = "{each.compact}" | {figures} |', flush=True)
        print(
            f"\nauto to off: {auto.seconds / off.seconds:.2f} of the time, {auto.cpu / off.cpu:.2f} of the CPU"
        )
        ours = _timed(off.table.compact)
        name, theirs = _compacted_by_others(other.table)
        print(f"compact {ours:.2f} s, to {off.files()} files; {name} {theirs:.2f} s, to {other.files()}")
        print(f"compact to {name}: {ours / theirs:.2f} of the time")
        assert {each.table.read().count() for each in fed} == {args.batches * args.records}


def _compacted_by_others(table: Table) -> tuple[str, float]:
    """Compact a table by the engine of its format; returns the name of its procedure, and the seconds."""
    if not isinstance(table.lake.format, DuckLake):
        rewrite = f"CALL lake.system.rewrite_data_files(table => '{table.name}')"
        return "rewrite_data_files", _timed(lambda: table.lake.spark.sql(rewrite).collect())
    catalog, (namespace, name) = table.lake.format.catalog, table.name.split(".")
    with instance("ducklake") as duckdb:
        duckdb.execute(f"ATTACH 'ducklake:{catalog.target}' AS lk (DATA_PATH '{catalog.data}')")
        merge = f"CALL ducklake_merge_adjacent_files('lk', '{name}', schema => '{namespace}')"
        seconds = _timed(lambda: duckdb.execute(merge))
        duckdb.execute("DETACH lk")
    return "ducklake_merge_adjacent_files", seconds


def _fed(lake: Lake, folder: Path, name: str, compact: str) -> Fed:
    source = folder / name
    source.mkdir()
    return Fed(lake.table(f"bench.{name}"), source, compact)


def _files(folder: Path, batches: int, records: int) -> list[Path]:
    files = []
    for number in range(batches):
        part = number * PARTS // batches
        lines = (
            json.dumps(
                {"id": number * records + i, "text": f"t{i}" * 5, f"late_{part}": i if part % 3 else str(i)}
            )
            for i in range(records)
        )
        files.append(folder / f"{number:05}.jsonl")
        files[-1].write_text("\n".join(lines) + "\n")
    return files


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
