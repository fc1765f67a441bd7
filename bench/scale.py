"""The cost of a lake on a cluster of two workers as rows, files, columns and commits grow: tasks, the driver's memory, metadata.

    make bench-scale                   up to 10^7 rows read, and a table of 10^8 rows; some minutes
    make bench-scale ARGS=--quick      a try

Rows are parsed up to 10^7. Beyond that files are committed, not made: the table of 10^8 rows has hard links to the files of
its first million, so that each of its rows can be read, and the commits of many files name files that are not there.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from events import event
from pyspark.sql import SparkSession

from driftline import Lake
from driftline.formats.iceberg.commit import begin, commit
from driftline.formats.iceberg.files import data_file
from driftline.lake import Table
from driftline.runtime.jars import find_jars
from driftline.write.files import FileMetrics, WrittenFile
from servers.cluster import Cluster, driver_settings

BATCH = 100_000  # rows that go into a table of each size
ROUNDS = 2
MB = 10**6


@dataclass(frozen=True, slots=True)
class Sizes:
    """``read``: rows and the files that they are in; ``commits``: files of one commit, and columns; ``first``: rows of
    the table that grows by links, to so many ``times`` these.
    """

    read: Sequence[tuple[int, int]]
    commits: Sequence[tuple[int, int]]
    first: int
    times: Sequence[int]


WHOLE = Sizes(
    read=[(10**5, 10), (10**6, 10), (10**7, 10), (10**6, 100), (10**6, 1_000)],
    commits=[(10, 25), (100, 25), (1_000, 25), (10_000, 25), (1_000, 250), (100, 2_500), (400, 2_500)],
    first=10**6,
    times=[1, 10, 100],
)
QUICK = Sizes(
    read=[(10**4, 10), (10**5, 10), (10**5, 100)],
    commits=[(10, 25), (100, 25), (100, 250)],
    first=10**5,
    times=[1, 10],
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", choices=("read", "commits", "table"), action="append")
    args = parser.parse_args()
    sizes = QUICK if args.quick else WHOLE
    # Links of files stay on one file system.
    with tempfile.TemporaryDirectory(prefix="scale-") as tmp, Cluster(Path(tmp, "cluster")) as cluster:
        bench = Bench(_session(cluster.url, Path(tmp, "lake")), Path(tmp))
        parts: dict[str, Callable[[], None]] = {
            "read": lambda: bench.read(sizes.read),
            "commits": lambda: bench.commits(sizes.commits),
            "table": lambda: bench.table(sizes.first, sizes.times),
        }
        try:
            bench.warm()
            for name in args.only or parts:
                parts[name]()
        finally:
            bench.spark.stop()


def _session(master: str, warehouse: Path) -> SparkSession:
    warehouse.mkdir()
    settings = {
        **driver_settings(find_jars()),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{warehouse}/catalog.db",
        "spark.sql.catalog.lake.warehouse": str(warehouse),
        "spark.sql.catalog.lake.cache-enabled": "false",
    }
    session = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class Bench:
    """The three parts, over one session: what it keeps of one size would be seen at the next."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.lake = spark, folder, Lake.attach(spark, catalog="lake")
        self._jvm: Any = spark._jvm

    def warm(self) -> None:
        """Run the first batches of a process, whose loading and compiling depends on no size."""
        for i in range(5):
            self.lake.table("scale.warm").ingest(self._linked(f"warm-{i}", 20_000, 4))

    def read(self, sizes: Sequence[tuple[int, int]]) -> None:
        """Batches of events, each into a new table."""
        _head("rows", "files", "MB", "s", "tasks", "results, kB", "data files", *MEMORY)
        for rows, files in sizes:
            table, paths = (
                self.lake.table(f"scale.r{rows}_{files}"),
                self._linked(f"r-{rows}-{files}", rows, files),
            )
            size = sum(path.stat().st_size for path in paths)
            tasks, results = self._tasks()
            _reset_peak()
            start = time.perf_counter()
            result = table.ingest(paths)
            seconds = time.perf_counter() - start
            assert result.rows_written == rows
            now, returned = self._tasks()
            more = now - tasks, (returned - results) / 1e3, len(list(_files(table)))
            _row(rows, files, size / MB, seconds, *more, *self._memory())

    def commits(self, sizes: Sequence[tuple[int, int]]) -> None:
        """Commits of files that are not there, whose metrics are those of so many columns of numbers."""
        _head("files", "columns", "s, files to Java", "s, commit", "manifest, B a file", "s, plan", *MEMORY)
        for files, columns in sizes:
            table = self.lake.table(f"scale.c{files}_{columns}")
            table.ingest([{f"c{i}": i for i in range(columns)}])
            java = table.format.handle.java()
            _reset_peak()
            start = time.perf_counter()
            made = [data_file(self._jvm, java.spec(), file) for file in _written(java, files, columns)]
            handed = time.perf_counter()
            self._append(table, made)
            committed = time.perf_counter()
            memory = self._memory()
            took = self._planned(table)
            size = sum(manifest.length() for manifest in _manifests(table)) / (files + 1)
            _row(files, columns, handed - start, committed - handed, size, took, *memory)

    def table(self, first: int, times: Sequence[int]) -> None:
        """A table that grows by links to its first files, and a batch that goes into it at each size."""
        _head("rows", "files", "manifests", "manifests, kB", "metadata, kB", "s, plan", "s, batch", *MEMORY)
        table = self.lake.table("scale.whole")
        table.ingest(self._linked("whole", first, 10))
        begun, total = list(_files(table)), self._codes(table)
        have = 1
        for many in times:
            while have < many:
                step = min(have, many - have, max(times) // 10)
                self._append(table, [self._link(table, f, have + i) for i in range(step) for f in begun])
                have += step
            assert self._codes(table) == total * have, "the rows of the links are not those of the files"
            _reset_peak()
            seconds = []
            for i in range(ROUNDS):
                start = time.perf_counter()
                batch = table.ingest(self._linked(f"batch-{many}-{i}", BATCH, 4))
                seconds.append(time.perf_counter() - start)
                assert batch.rows_written == BATCH
            memory = self._memory()
            manifests = _manifests(table)
            sizes = len(manifests), sum(m.length() for m in manifests) / 1e3, _metadata(table) / 1e3
            _row(first * have, len(list(_files(table))), *sizes, self._planned(table), min(seconds), *memory)
            self._undone(table, ROUNDS)

    def _linked(self, name: str, rows: int, files: int) -> list[Path]:
        """So many events in so many files, of which one is written, and the others are links to it."""
        folder, each = self.folder / "in" / name, rows // files
        folder.mkdir(parents=True)
        one, rng = folder / "00000.jsonl", random.Random(7)
        with one.open("w") as out:
            out.writelines(json.dumps(event(i, rng), separators=(",", ":")) + "\n" for i in range(each))
        for i in range(1, files):
            os.link(one, folder / f"{i:05}.jsonl")
        return sorted(folder.iterdir())

    def _link(self, table: Table, file: Any, number: int) -> Any:
        """The data file once more, as a link to it."""
        path = Path(urlsplit(str(file.location())).path)
        other = path.with_name(f"{number}-{path.name}")
        os.link(path, other)
        build = self._jvm.org.apache.iceberg.DataFiles.builder(table.format.handle.java().spec())
        return build.copy(file).withPath(str(other)).build()

    def _append(self, table: Table, files: Sequence[Any]) -> None:
        """One commit of data files, as that of a batch."""
        transaction = begin(table.format.handle, table.format.handle.java())
        append = transaction.newAppend()
        for file in files:
            append.appendFile(file)
        append.commit()
        commit(table.format.handle, transaction, lambda _: False)

    def _undone(self, table: Table, batches: int) -> None:
        """Take the batches away again, so that the next size is the links alone."""
        snapshot = table.format.handle.java().currentSnapshot()
        for _ in range(batches):
            snapshot = table.format.handle.java().snapshot(snapshot.parentId())
        self.lake.sql(f"call lake.system.rollback_to_snapshot('{table.name}', {snapshot.snapshotId()})")

    def _codes(self, table: Table) -> int:
        return int(self.lake.sql(f"select sum(code) from lake.{table.name}").collect()[0][0])

    def _planned(self, table: Table) -> float:
        """Seconds until the files of a whole scan are known, by Iceberg itself."""
        start = time.perf_counter()
        scan = table.format.handle.java().newScan().planFiles()
        self._jvm.org.apache.iceberg.relocated.com.google.common.collect.Iterables.size(scan)
        scan.close()
        return time.perf_counter() - start

    def _tasks(self) -> tuple[int, int]:
        """Tasks that have run, and the bytes that they returned."""
        gateway: Any = self.spark.sparkContext._gateway
        store = self.spark.sparkContext._jsc.sc().statusStore()
        executors = store.executorList(False)
        stages = store.stageList(
            None, False, False, gateway.new_array(self._jvm.double, 0), self._jvm.java.util.ArrayList()
        )
        tasks = sum(executors.apply(i).totalTasks() for i in range(executors.size()))
        return tasks, sum(stages.apply(i).resultSize() for i in range(stages.size()))

    def _memory(self) -> tuple[float, float, float]:
        """The driver's: Java's heap after a collection, Python now and at its most, in MB."""
        most = _status("VmHWM")
        gc.collect()
        runtime, used = self._jvm.java.lang.Runtime.getRuntime(), []
        for _ in range(3):
            self._jvm.java.lang.System.gc()
            used.append(runtime.totalMemory() - runtime.freeMemory())
        return min(used) / MB, _status("VmRSS") / MB, most / MB


MEMORY = ("Java heap, MB", "Python, MB", "Python at most, MB")


def _written(java: Any, files: int, columns: int) -> Iterator[WrittenFile]:
    """Files of 512 MB, of a million rows, with other metrics each: manifests are packed."""
    rng, ids, rows = random.Random(7), range(1, columns + 1), 10**6
    counts, nulls = dict.fromkeys(ids, rows), dict.fromkeys(ids, 0)
    for _ in range(files):
        sizes = {id_: rng.randrange(10**7, 2 * 10**7) for id_ in ids}
        low, high = ({id_: rng.randbytes(8) for id_ in ids} for _ in range(2))
        metrics = FileMetrics(sizes, counts, nulls, {}, low, high)
        yield WrittenFile(
            f"{java.location()}/data/{rng.randbytes(16).hex()}.parquet", 2**29, rows, (4,), metrics
        )


def _manifests(table: Table) -> list[Any]:
    java = table.format.handle.java()
    return list(java.currentSnapshot().allManifests(java.io()))


def _files(table: Table) -> Iterator[Any]:
    """The table's data files."""
    planned = table.format.handle.java().newScan().includeColumnStats().planFiles().iterator()
    while planned.hasNext():
        yield planned.next().file()


def _metadata(table: Table) -> int:
    """Bytes of the newest metadata."""
    location = str(table.format.handle.java().operations().current().metadataFileLocation())
    return Path(urlsplit(location).path).stat().st_size


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _status(name: str) -> int:
    """Bytes of this process's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _head(*names: str) -> None:
    print(f"\n| {' | '.join(names)} |\n|{'--:|' * len(names)}", flush=True)


def _row(*values: float) -> None:
    cells = (f"{v:,}" if isinstance(v, int) else f"{v:,.0f}" if v >= 100 else f"{v:.2f}" for v in values)
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
