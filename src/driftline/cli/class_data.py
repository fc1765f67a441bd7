"""Makes Java's class archive in a process of its own: runs what commands do, in a temporary lake."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
from pyspark import SparkContext

from driftline.lake import Lake
from driftline.runtime.class_data import Archive
from driftline.runtime.jars import cache_folder, cached_jars
from driftline.runtime.java import find_java

_BATCHES = (
    '{"id": 1, "at": "2026-01-02T03:04:05Z", "who": {"name": "x", "tags": ["a"]}, "sum": 1.5}\n',
    '{"id": "2", "at": "later", "who": {"name": 7}, "more": [{"a": true}]}\n[]\n',
)


def main() -> None:
    """Make the archive of this process's Java, pyspark and jars."""
    os.nice(19)
    archive = Archive.of(cache_folder(), find_java(), cached_jars(), Path(pyspark.__file__).parent)
    if archive is not None and archive.wanted():
        archive.make(_run)


def _run(draft: Path, folder: Path) -> bool:
    """Does what commands do, in a Java that writes its classes to
    ``draft`` when it ends; returns whether it did.
    """
    os.environ["SPARK_SUBMIT_OPTS"] = f'"-XX:ArchiveClassesAtExit={draft}" -XX:TieredStopAtLevel=1'
    os.environ["DRIFTLINE_DRIVER_MEMORY"] = "1g"
    lake = Lake.open(folder)
    table = lake.table("a.b")
    for number, batch in enumerate(_BATCHES):
        file = folder / f"{number}.jsonl"
        file.write_text(batch)
        table.ingest(file)
    lake.alter("alter table a.b add column extra int")
    table.stats()
    lake.sql("select id, count(*) from lake.a.b group by id order by id limit 1").collect()
    lake.spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    return gateway.proc.wait() == 0 and draft.is_file()


if __name__ == "__main__":
    main()
