"""Builds Java's class archives in a process of its own, by running commands in a temporary lake."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark import SparkContext

from driftline.errors import NeedsSpark
from driftline.formats.open import rehearsed
from driftline.lake import Lake
from driftline.operations.alter import AlterRequest, alter
from driftline.runtime import bare_java
from driftline.runtime.class_data import Archive
from driftline.runtime.jars import cache_folder, cached_jars
from driftline.runtime.java import find_java

_BATCHES = (
    '{"id": 1, "at": "2026-01-02T03:04:05Z", "who": {"name": "x", "tags": ["a"]}, "sum": 1.5}\n',
    '{"id": "2", "at": "later", "who": {"name": 7}, "more": [{"a": true}]}\n[]\n',
)
_ALTERED = (
    "alter table a.b add column who.age int; alter table a.b alter id comment 'x'",
    "alter table a.b rename who.name to full_name; alter table a.b set tblproperties ('a' = 'b')",
    "alter table a.b add partition field bucket(4, id); alter table a.b write ordered by id",
    "alter table a.b drop column who.age",
)


def main() -> None:
    """Make the archives of this process's Java, pyspark and jars."""
    os.nice(19)
    with suppress(NeedsSpark):
        _make(bare_java.archive(), _alter)
    _make(Archive.of(cache_folder(), find_java(), cached_jars(), Path(pyspark.__file__).parent), _run)


def _make(archive: Archive | None, run: Callable[[Path, Path], bool]) -> None:
    if archive is not None and archive.wanted():
        archive.make(run)


def _alter(draft: Path, folder: Path) -> bool:
    """Does what `alter` does, in a Java without Spark that writes its classes to ``draft`` when it ends;
    returns whether it did.
    """
    with rehearsed(folder, [f"-XX:ArchiveClassesAtExit={draft}"]) as table:
        for sql in _ALTERED:
            alter(table, AlterRequest.of_sql(sql))
    return draft.is_file()


def _run(draft: Path, folder: Path) -> bool:
    """Does what commands do, in a Java that writes its classes to ``draft`` when it ends; returns whether it
    did.
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
