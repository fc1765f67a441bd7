"""Changes by key into a large table: driftline, Spark's MERGE, DuckDB's MERGE and pyiceberg's upsert, in one run.

    make bench-upsert                                                   a million rows, some minutes
    make bench-upsert ARGS="--rows 100000 --batches 1000 10000"         a try
    make bench-upsert ARGS="--batches --micro 100"                      micro-batches of 1,000 changes alone

Each contestant has a table of its own of the same rows, in as many files, and takes the same batches of JSON lines, one of
each size, of which most update a row and the others insert one. Iceberg tables are in format version 3, merge on read;
pyiceberg's in version 2, as it writes no other.
An append of the batch by driftline, into a table without a key, is what the ratios are to. Keys are sequential numbers,
or texts of random digits, of which no bounds of a file tell anything. In the end all tables must have the same rows.
Micro-batches are files of a capture where driftline takes them, with a cache of keys and without.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import duckdb
import psutil
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
from measure import cpu

from driftline import Lake
from driftline.runtime.duckdb import extension_path

FILES = 8  # of the table
UPDATES = 0.8  # of a batch
SMALL = 1_000  # changes of a micro-batch
SCHEMA = "id {key}, name string, city string, amount double, quantity bigint, seq bigint"
TABLE = "'write.merge.mode'='merge-on-read', 'write.parquet.compression-codec'='zstd'"
KEYED = {"key": "id", "order_by": "seq"}


@dataclass(frozen=True)
class Keys:
    """The keys of rows by their numbers. ``type``: Spark's."""

    name: str
    type: str
    of: Callable[[int], int | str]


KEYS = {
    "sequential": Keys("sequential", "bigint", lambda number: number),
    "uuid": Keys("uuid", "string", lambda number: str(UUID(int=random.Random(number).getrandbits(128)))),
}


def record(keys: Keys, number: int, seq: int) -> dict[str, object]:
    key = keys.of(number)
    return {
        "id": key, "name": f"user-{number % 9973}", "city": ("Berlin", "Paris", "Haifa")[number % 3],
        "amount": (number % 50_000) / 8, "quantity": number % 9, "seq": seq,
    }  # fmt: skip


class Side:
    """One contestant, and its table ``t`` of the rows of a file."""

    title = ""
    version = 3  # of the format

    def __init__(self, lake: Lake, folder: Path, keys: Keys, rows: Path) -> None:
        self.lake, self.keys, self.folder = lake, keys, folder
        self.name = f"bench.{type(self).__name__.lower()}_{keys.name}"
        self.load(rows)

    def load(self, rows: Path) -> None:
        raise NotImplementedError

    def take(self, batch: Path) -> None:
        raise NotImplementedError

    def stream(self, batches: list[Path], used: Callable[[], float]) -> list[float]:
        """Take the batches one by one; returns the CPU seconds of each."""
        marks = [used()]
        for batch in batches:
            self.take(batch)
            marks.append(used())
        return [after - before for before, after in pairwise(marks)]

    def sums(self) -> tuple[int, ...]:
        """The number of rows, and the sum of their orders."""
        row = self.lake.sql(f"select count(1), count(distinct id), sum(seq) from lake.{self.name}").head()
        assert row is not None
        return tuple(row)

    def create(self, rows: Path) -> None:
        self.lake.sql("create namespace if not exists lake.bench")
        columns = SCHEMA.format(key=self.keys.type)
        properties = f"'format-version'='{self.version}', {TABLE}"
        self.lake.sql(f"create table lake.{self.name} ({columns}) using iceberg tblproperties ({properties})")
        self.lake.spark.read.parquet(str(rows)).repartition(FILES).writeTo(f"lake.{self.name}").append()


class Append(Side):
    title = "driftline, append"

    def load(self, rows: Path) -> None:
        self.lake.table(self.name).ingest(rows, settings={"format_version": "3"})

    def take(self, batch: Path) -> None:
        self.lake.table(self.name).ingest(batch)

    def stream(self, batches: list[Path], used: Callable[[], float]) -> list[float]:
        """Capture the folder of the batches."""
        marks = []

        def progress(phase: str) -> None:
            if phase == "committed":
                marks.append(used())

        table = self.lake.table(self.name)
        table.capture(batches[0].parent, name="bench", max_files=1, progress=progress).awaitTermination()
        return [after - before for before, after in pairwise(marks)]


class Driftline(Append):
    title = "driftline, by key"
    settings: Mapping[str, str] = KEYED

    def load(self, rows: Path) -> None:
        self.lake.table(self.name).ingest(rows, settings=self.settings)


class Uncached(Driftline):
    title = "driftline, by key, no cache"
    settings: Mapping[str, str] = {**KEYED, "key_cache": "0"}


class Keep(Driftline):
    """The first record of each key stays, so records of keys that the table has are duplicates."""

    title = "driftline, keep"
    settings: Mapping[str, str] = {"key": "id", "merge": "keep"}


class DriftlineDuckLake(Driftline):
    title = "driftline, by key, DuckLake"

    def load(self, rows: Path) -> None:
        self.lake = Lake.open(self.folder / "driftline", ducklake="duckdb")
        super().load(rows)

    def sums(self) -> tuple[int, ...]:
        row = self.lake.sql(f"select count(1), count(distinct id), sum(seq) from {self.name}").head()
        assert row is not None
        return tuple(row)


class Merge(Side):
    title = "Spark, MERGE"
    load = Side.create

    def take(self, batch: Path) -> None:
        columns = SCHEMA.format(key=self.keys.type)
        self.lake.spark.read.schema(columns).json(str(batch)).createOrReplaceTempView("batch")
        self.lake.sql(
            f"merge into lake.{self.name} t using batch b on t.id = b.id "
            "when matched and b.seq >= t.seq then update set * when not matched then insert *"
        )


class DuckDB(Side):
    title = "DuckDB, MERGE into DuckLake"

    def load(self, rows: Path) -> None:
        place = self.folder / "duckdb"
        place.mkdir()
        self.connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
        self.connection.execute(f"LOAD '{extension_path('ducklake')}'")
        self.connection.execute(f"ATTACH 'ducklake:{place / 'catalog'}' AS lk (DATA_PATH '{place}/data/')")
        self.connection.execute("CREATE TABLE lk.t AS SELECT * FROM read_parquet(?) LIMIT 0", [f"{rows}/*"])
        for file in sorted(rows.iterdir()):
            self.connection.execute("INSERT INTO lk.t SELECT * FROM read_parquet(?)", [str(file)])

    def take(self, batch: Path) -> None:
        self.connection.execute(
            "MERGE INTO lk.t AS t USING (SELECT * FROM read_json(?)) AS b ON t.id = b.id "
            "WHEN MATCHED AND b.seq >= t.seq THEN UPDATE WHEN NOT MATCHED THEN INSERT",
            [str(batch)],
        )

    def sums(self) -> tuple[int, ...]:
        found = self.connection.execute("SELECT count(1), count(DISTINCT id), sum(seq) FROM lk.t").fetchone()
        assert found is not None
        return tuple(found)


class PyIceberg(Side):
    title, version = "pyiceberg, upsert", 2
    load = Side.create

    def take(self, batch: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        folder = self.folder.parent / "lake"
        catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder))
        table = catalog.load_table(self.name)
        table.upsert(pyarrow.json.read_json(batch).cast(table.schema().as_arrow()), join_cols=["id"])
        catalog.engine.dispose()


SIDES = {
    side.__name__.lower(): side
    for side in (Append, Driftline, Keep, Uncached, DriftlineDuckLake, Merge, DuckDB, PyIceberg)
}


def write_rows(folder: Path, keys: Keys, count: int) -> Path:
    """The rows of the table, in Parquet."""
    folder.mkdir()
    share = -(-count // FILES)
    for file in range(FILES):
        numbers = range(file * share, min(count, (file + 1) * share))
        pq.write_table(
            pa.Table.from_pylist([record(keys, n, 0) for n in numbers]), folder / f"{file}.parquet"
        )
    return folder


def write_batches(folder: Path, keys: Keys, rows: int, sizes: list[int]) -> Iterator[tuple[int, Path]]:
    """A file of JSON lines for each size."""
    folder.mkdir()
    chance = random.Random(7)
    for seq, size in enumerate(sizes, 1):
        updates = chance.sample(range(rows), min(rows, int(size * UPDATES)))
        numbers = [*updates, *range(rows, rows + size - len(updates))]
        rows += size - len(updates)
        chance.shuffle(numbers)
        file = folder / f"{seq:05}-{size}.jsonl"
        file.write_text("".join(f"{json.dumps(record(keys, n, seq))}\n" for n in numbers))
        yield size, file


def check(sides: list[Side]) -> None:
    """Assert that all tables with a key have the same keys, and the latest row of each, or its first."""
    sums = {side.title: side.sums() for side in sides if type(side) is not Append}
    first = sums.pop(Keep.title, None)
    assert len(set(sums.values())) <= 1, sums
    assert first is None or {counts[:2] for counts in sums.values()} <= {first[:2]}, (first, sums)


def run(lake: Lake, folder: Path, keys: Keys, args: argparse.Namespace) -> None:
    folder.mkdir()
    rows = write_rows(folder / "rows", keys, args.rows)
    sides = [SIDES[name](lake, folder, keys, rows) for name in args.sides]
    me = psutil.Process()
    print(f"\n| {args.rows:,} rows, {keys.name} keys | " + " | ".join(s.title for s in sides) + " |")
    print("|---|" + "--:|" * len(sides))
    for size, file in write_batches(folder / "batches", keys, args.rows, args.batches):
        cells, base = [], None
        for side in sides:
            used, start = cpu(me), time.perf_counter()
            side.take(file)
            took, used = time.perf_counter() - start, cpu(me) - used
            base = base or used
            cells.append(f"{took:.2f} s, {used:.2f} CPU, {used / base:.1f}")
        print(f"| {size:,} changes | " + " | ".join(cells) + " |", flush=True)
    check(sides)


def micro(lake: Lake, folder: Path, keys: Keys, args: argparse.Namespace) -> None:
    """The first, the middle and the last ten of many small batches."""
    folder.mkdir()
    rows, me = write_rows(folder / "rows", keys, args.rows), psutil.Process()
    files = [file for _, file in write_batches(folder / "in", keys, args.rows, [SMALL] * args.micro)]
    tens = {"3rd to 12th": slice(2, 12), "in the middle": slice(len(files) // 2 - 5, len(files) // 2 + 5)}
    tens["the last ten"] = slice(-10, None)
    table, base, sides = {}, [], []
    for name in args.micro_sides:
        sides.append(side := SIDES[name](lake, folder, keys, rows))
        used = side.stream(files, lambda: cpu(me))
        costs = [statistics.mean(used[some]) for some in tens.values()]
        base = base or costs
        table[side.title] = [f"{cost:.2f} CPU, {cost / of:.1f}" for cost, of in zip(costs, base, strict=True)]
        print(f"    {side.title}: {', '.join(table[side.title])}", flush=True)
    print(
        f"\n| {args.rows:,} rows, {keys.name} keys, {args.micro} × {SMALL:,} changes | {' | '.join(table)} |"
    )
    print("|---|" + "--:|" * len(table))
    for number, which in enumerate(tens):
        print(f"| {which} | " + " | ".join(cells[number] for cells in table.values()) + " |", flush=True)
    check(sides)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument(
        "--batches", type=int, nargs="*", default=[1_000, 1_000, 10_000, 100_000], metavar="CHANGES"
    )
    parser.add_argument("--keys", nargs="+", choices=KEYS, default=list(KEYS))
    parser.add_argument(
        "--sides", nargs="+", choices=SIDES, default=[name for name in SIDES if name != "uncached"]
    )
    parser.add_argument("--micro", type=int, default=0, metavar="COUNT", help="micro-batches too")
    parser.add_argument(
        "--micro-sides",
        nargs="+",
        choices=SIDES,
        default=["append", "driftline", "uncached", "driftlineducklake", "duckdb"],
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="upsert-") as tmp:
        lake = Lake.open(Path(tmp, "lake"))
        lake.spark.conf.set("spark.sql.shuffle.partitions", "4")  # Spark's 200 would be all that is measured
        for name in args.keys if args.batches else ():
            run(lake, Path(tmp, name), KEYS[name], args)
        for name in args.keys if args.micro else ():
            micro(lake, Path(tmp, f"micro-{name}"), KEYS[name], args)


if __name__ == "__main__":
    main()
