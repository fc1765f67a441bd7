"""The costs of a DuckLake's catalog: many files registered in one snapshot, and batches on a table of many columns.

    python bench/ducklake.py [--files 1000] [--columns 3000]

The speed of ingestion, next to others, is a part of `make bench`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from functools import partial
from pathlib import Path

from driftline import Lake
from driftline.core.schema.types import LONG, Field, Schema, Struct
from driftline.formats.ducklake.catalog import CatalogDatabase
from driftline.formats.ducklake.commit import commit, landed
from driftline.formats.ducklake.files import ColumnStats, DataFile
from driftline.formats.ducklake.rows import CommitMessage, TableCommit


def registration(catalog: CatalogDatabase, count: int, columns: int = 25) -> float:
    """Seconds to register so many files in one snapshot."""
    schema = Schema(Struct(tuple(Field(f"c{i}", LONG, i + 1) for i in range(columns))))
    stats = {i + 1: ColumnStats(1000, 1000, 0, "1", "9") for i in range(columns)}
    intent = TableCommit(
        f"bench.registered_{count}", None, schema, f"{catalog.data}bench/registered_{count}/"
    )
    intent.files = [DataFile(f"batch/part-{i}.parquet", 1000, 10_000, 500, stats) for i in range(count)]
    start = time.perf_counter()
    message = CommitMessage("bench", "", {})
    catalog.write(lambda connection: commit(connection, [intent], message), partial(landed, message=message))
    return time.perf_counter() - start


def wide(lake: Lake, folder: Path, columns: int) -> dict[str, float]:
    """Seconds of a first batch of so many columns, of one that changes nothing, and of planning one more column."""
    table, out = lake.table("bench.wide"), {}
    record = {f"c{i}": i for i in range(columns)}
    for name, extra, dry_run in (
        ("the first batch", {}, False),
        ("the same again", {}, False),
        ("a plan of one column more", {"new": 1}, True),
    ):
        file = folder / "wide.jsonl"
        file.write_text(json.dumps({**record, **extra}))
        start = time.perf_counter()
        table.ingest(file, dry_run=dry_run)
        out[name] = time.perf_counter() - start
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=3000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        lake = Lake.open(Path(tmp, "lake"), ducklake="duckdb")
        warm = Path(tmp, "warm.jsonl")
        warm.write_text('{"a": 1}')
        lake.table("bench.warm").ingest(warm)
        taken = registration(lake.format.catalog, args.files)
        print(f"{args.files:,} files of 25 columns registered in one snapshot: {taken:.2f} s")
        for what, seconds in wide(lake, Path(tmp), args.columns).items():
            print(f"a record of {args.columns:,} columns, {what}: {seconds:.2f} s")


if __name__ == "__main__":
    main()
