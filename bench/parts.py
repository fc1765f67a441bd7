"""The time of a batch, step by step: each line does all of the line above, and one thing more.

    python bench/parts.py [--records 1000000] [--drift 0.01] [--rounds 3]

Seconds of a warm session on all cores, the best of the rounds; at the end the same for plain Spark.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from events import write
from ingest import plain_spark

from driftline import Lake
from driftline.core.planning.planner import plan
from driftline.core.schema.types import Schema
from driftline.core.settings.table import TableSettings
from driftline.readers.json.rows import SplitReader
from driftline.readers.json.splits import Split, blocks
from driftline.runtime.spark_conf import configured
from driftline.sources.json_files import JsonFiles
from driftline.tasks.run import RowMaker
from driftline.write import FilePlan, FileSettings, folder_of_batch, write_in_tasks
from driftline.write.files import InFolder


@dataclass(frozen=True, slots=True)
class OnDisk:
    """Files of no table, in a folder of this machine."""

    location: str

    def reached_with(self) -> None:
        return None


def lines(share: list[tuple[int, Split]]) -> int:
    return sum(len(found) for _, split in share for found in blocks(split, 2**27))


def decoded(reader: SplitReader, share: list[tuple[int, Split]]) -> int:
    return converted(replace(reader, shares=[share], make=None), 0)


def steps(lake: Lake, folder: Path, scratch: Path) -> dict[str, Callable[[], object]]:
    """The steps to time, by name, in order."""
    spark, context = lake.spark, lake.spark.sparkContext
    source = JsonFiles(spark=spark, files=sorted(map(str, folder.iterdir())))
    observed = source.open(Schema(), TableSettings()).guess(None)
    assert observed is not None, "there are too few records for one go"
    planned = plan(Schema(), observed.observation.shape)
    go = observed.tasks(planned, planned.schema.struct)
    modes = {f.id: "truncate(16)" for _, f in planned.schema.walk()}
    files = FilePlan(planned.schema, modes, FileSettings(), 2**30)

    def tasks(work: Callable[[Any], int], parts: list[Any]) -> int:
        return sum(context.parallelize(parts, len(parts)).map(work).collect())

    def written() -> object:
        with folder_of_batch(spark, OnDisk(str(scratch))) as staging:
            assert staging is not None
            place = InFolder(staging, lambda file: str(scratch / Path(file.path).name))
            return write_in_tasks(context, go, files, staging, place)

    shares = list(go.maker.shares)
    tables = iter(range(10**6))
    return {
        "cut into lines, in Python tasks": partial(tasks, lines, shares),
        "decode: every type of every path": partial(
            tasks, partial(decoded, replace(go.maker, shares=[])), shares
        ),
        "convert: rows of the table, in Arrow": partial(
            tasks, partial(converted, go.maker), list(range(len(shares)))
        ),
        "write Parquet files": written,
        "commit: all of it": lambda: lake.table(f"bench.ours_{next(tables)}").ingest(folder),
        "plain Spark: infer the schema": lambda: spark.read.json(str(folder)),
        "plain Spark: all of it": lambda: plain_spark(lake, folder, f"bench.plain_{next(tables)}"),
    }


def converted(maker: RowMaker[int], number: int) -> int:
    return sum(batch.num_rows for batch in maker.rows(number, lambda _: None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--drift", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp, "events")
        size = write(folder, args.records, args.drift)
        lake = Lake.open(Path(tmp, "lake"))
        with configured(lake.spark, JsonFiles(spark=lake.spark).conf):
            todo = steps(lake, folder, Path(tmp, "files"))
            best: dict[str, float] = {}
            for _ in range(args.rounds):
                for name, step in todo.items():
                    start = time.perf_counter()
                    step()
                    took = time.perf_counter() - start
                    best[name] = min(best.get(name, took), took)
    print(f"{args.records:,} records, {size / 1e6:.0f} MB, {args.drift:.0%} drifted")
    for name, seconds in best.items():
        print(f"{name:38} {seconds:7.2f} s")


if __name__ == "__main__":
    main()
