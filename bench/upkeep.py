"""The metadata that upkeep leaves of a table fed by captures for ten days, and the time that it takes; next to Iceberg's own expiry.

    make bench-upkeep                             1,000 commits, some minutes
    make bench-upkeep ARGS="--commits 400"        a try

A quarter of the commits is six to ten days old, the others came one a minute up to now. Three tables of the same commits:
one for upkeep, one for `expire_snapshots` as it is called without arguments, one where that is to leave the last 100.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from driftline import Lake
from driftline.formats.iceberg.commit import upkeep
from driftline.lake import Table

MINUTE, DAY = 60_000, 86_400_000  # milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commits", type=int, default=1000)
    commits = parser.parse_args().commits
    with tempfile.TemporaryDirectory(prefix="upkeep-") as tmp:
        lake = Lake.open(Path(tmp, "lake"))
        lake.spark.conf.set("spark.sql.shuffle.partitions", "4")  # Spark's 200 would be all that is measured
        lake.table("bench.warm").ingest(lake.sql("select 1L as id"))
        print(f"| {commits:,} commits | seconds | snapshots | of the last day | metadata, kB |")
        print("|---|--:|--:|--:|--:|")
        for number, (title, work) in enumerate(CONTESTANTS.items()):
            table = made(lake, f"t{number}", commits)
            start = time.perf_counter()
            work(lake, table)
            cells = [f"{time.perf_counter() - start:.2f}", *left(table)]
            print(f"| {title} | {' | '.join(cells)} |", flush=True)


def _upkeep(_: Lake, table: Table) -> None:
    upkeep(table.format.handle, table.format.handle.java().operations().current())


def _expiry(more: str = "") -> Callable[[Lake, Table], None]:
    return lambda lake, table: lake.sql(
        f"call lake.system.expire_snapshots(table => '{table.name}'{more})"
    ).collect()


CONTESTANTS: dict[str, Callable[[Lake, Table], Any]] = {
    "nothing": lambda *_: None,
    "upkeep": _upkeep,
    "`expire_snapshots`": _expiry(),
    "`expire_snapshots`, to the last 100": _expiry(
        ", older_than => timestamp'2100-01-01', retain_last => 100"
    ),
}


def made(lake: Lake, name: str, commits: int) -> Table:
    """A table of so many appends of a file each, as a capture makes them. The files themselves are not there."""
    draft = lake.table(f"bench.draft_{name}")
    draft.ingest(lake.sql("select 1L as id"))
    java, iceberg = draft.format.handle.java(), lake.spark._jvm.org.apache.iceberg
    transaction = java.newTransaction()
    for i in range(commits - 1):
        file = iceberg.DataFiles.builder(java.spec()).withPath(f"{java.location()}/data/{i}.parquet")
        file = file.withFileSizeInBytes(10_000).withRecordCount(100).build()
        transaction.newAppend().appendFile(file).set("driftline.batch", f"b{i}").commit()
    transaction.commitTransaction()
    current = draft.format.handle.java().operations().current()
    aged = json.loads(iceberg.TableMetadataParser.toJson(current))
    _age(aged, commits)
    file = Path(str(current.metadataFileLocation()).removeprefix("file:")).with_name(
        "99999-aged.metadata.json"
    )
    file.write_text(json.dumps(aged))
    lake.sql(f"call lake.system.register_table('bench.{name}', '{file}')")
    return lake.table(f"bench.{name}")


def _age(metadata: dict[str, Any], commits: int) -> None:
    """Gives the snapshots the times of ten days."""
    now, old = time.time_ns() // 1_000_000, commits // 4
    for i, snapshot in enumerate(sorted(metadata["snapshots"], key=lambda s: s["sequence-number"])):
        late = now - (commits - i) * MINUTE
        snapshot["timestamp-ms"] = now - 10 * DAY + i * 4 * DAY // old if i < old else late
    last = metadata["snapshots"][-1]
    metadata["snapshot-log"] = [{"snapshot-id": last["snapshot-id"], "timestamp-ms": last["timestamp-ms"]}]
    metadata["last-updated-ms"], metadata["metadata-log"] = now, []


def left(table: Table) -> list[str]:
    """Its snapshots, those of the last day, and the kB of its metadata."""
    current = table.format.handle.java().operations().current()
    parser = table.lake.spark._jvm.org.apache.iceberg.TableMetadataParser
    text = parser.toJson(current)
    times = [snapshot["timestamp-ms"] for snapshot in json.loads(text)["snapshots"]]
    since = time.time_ns() // 1_000_000 - DAY
    return [f"{len(times):,}", f"{sum(at >= since for at in times):,}", f"{len(text) / 1000:,.0f}"]


if __name__ == "__main__":
    main()
