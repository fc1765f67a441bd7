"""Captures of very many micro-batches: what each takes, and what the table and the driver hold meanwhile."""

from __future__ import annotations

import gc
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from measure import cpu

from driftline import Lake

from . import data

RECORDS = 100  # of a micro-batch
ROWS = 100_000  # of a table before changes by key
NAME = "bench.events"
POLL = 0.2  # seconds
FIXED = """id bigint, event string, at timestamp, user struct<id bigint, name string, country string, vip boolean>,
session string, amount double, quantity bigint, code bigint,
device struct<os string, version string, screen struct<w bigint, h bigint>>, tags array<string>,
items array<struct<sku string, price double, n bigint>>, referrer string, ok boolean"""


def captured(folder: Path, line: str, marks: list[int]) -> Iterator[dict[str, Any]]:
    """Takes as many files as the last mark says, each a micro-batch of one capture. At each mark: the median and
    CPU seconds of the micro-batches since the mark before, the bytes of the newest metadata and how much it lists, and the driver's
    memory after a collection, in bytes. Of changes by key, at the end: what reading takes, next to a fresh table."""
    files, keyed = folder / "in", "by key" in line
    lake = Lake.open(folder / "lake", ducklake="duckdb" if line.endswith("DuckLake") else None)
    if keyed:
        first, _ = data.changes(folder, ROWS, marks[-1], RECORDS)
        lake.table(NAME).ingest(first, settings={"key": "id"})
    else:
        data.batches(files, marks[-1], RECORDS)
    query = _plain(lake, files, folder) if line.startswith("plain") else _ours(lake, files)
    took: dict[int, float] = {}
    since, todo, me = 0, list(marks), psutil.Process()
    before = cpu(me)
    while todo:
        ended = query.awaitTermination(POLL)
        last = query.lastProgress
        reached = marks[-1] if ended else 0 if last is None else last["batchId"]
        if ended or reached >= todo[0] or reached - max(took, default=0) > 50:
            done = [p for p in query.recentProgress if "addBatch" in p["durationMs"]]
            took |= {p["batchId"]: p["durationMs"]["triggerExecution"] / 1e3 for p in done}
        while todo and reached >= todo[0]:
            mark = todo.pop(0)
            used = cpu(me) - before
            seconds = [s for n, s in took.items() if since <= n < mark]
            found = {**_table(lake, folder, line), **_memory(lake)}
            if keyed and not todo:
                query.awaitTermination()
                found["reading"] = _reading(lake)
            costs = {"seconds": statistics.median(seconds), "cpu": used / (mark - since)}
            yield {"line": line, "size": mark, **costs, **found}
            since, before = mark, cpu(me)
        if ended and todo:
            raise RuntimeError(f"the stream ended before batch {todo[0]}")


def _ours(lake: Lake, files: Path) -> Any:
    return lake.table(NAME).capture(files, name="bench", max_files=1)


def _plain(lake: Lake, files: Path, folder: Path) -> Any:
    """A table with the columns of the events, which stay as they are; what drifts is null there."""
    lake.sql("create namespace lake.bench")
    lake.sql(f"create table lake.bench.events ({FIXED}) using iceberg tblproperties ('format-version'='2')")
    read = lake.spark.readStream.schema(FIXED).option("maxFilesPerTrigger", 1).json(str(files))
    out = read.writeStream.format("iceberg").option("checkpointLocation", f"{folder}/checkpoint")
    return out.trigger(availableNow=True).toTable("lake.bench.events")


def _table(lake: Lake, folder: Path, line: str) -> dict[str, int]:
    if line.endswith("DuckLake"):
        catalog = folder / "lake" / "catalog.ducklake"
        return {"metadata": catalog.stat().st_size}
    files = folder / "lake" / "bench" / "events" / "metadata"
    versions = list(files.glob("*.metadata.json"))
    newest = max(versions, key=lambda path: path.stat().st_mtime_ns)
    held = json.loads(newest.read_text())
    return {
        "metadata": newest.stat().st_size,
        "metadata files": len(versions),
        "schemas": len(held["schemas"]),
        "snapshots": len(held.get("snapshots", ())),
    }


def _reading(lake: Lake) -> float:
    """CPU seconds of reading the table, as multiples of those of a fresh one with the same rows."""
    lake.table("bench.fresh").ingest(lake.table(NAME).read())
    me = psutil.Process()
    took: dict[str, list[float]] = {NAME: [], "bench.fresh": []}
    for _ in range(5):
        for name, seconds in took.items():
            used = cpu(me)
            lake.table(name).read().write.format("noop").mode("overwrite").save()
            seconds.append(cpu(me) - used)
    return statistics.median(took[NAME]) / statistics.median(took["bench.fresh"])


def _memory(lake: Lake) -> dict[str, int]:
    gc.collect()
    jvm: Any = lake.spark._jvm
    runtime = jvm.java.lang.Runtime.getRuntime()
    used = []
    for _ in range(3):  # what a micro-batch that runs now holds comes and goes
        jvm.java.lang.System.gc()
        used.append(runtime.totalMemory() - runtime.freeMemory())
        time.sleep(0.05)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"java": min(used), "python": pages * os.sysconf("SC_PAGE_SIZE")}
