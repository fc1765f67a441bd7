"""Typed files into Iceberg: plain Spark and driftline side by side, in one run on one machine.

    python bench/typed.py [--records 1000000] [--rounds 3] [--only parquet csv wide]

Plain Spark reads the files, CSV with `inferSchema`, and appends to a table of their schema. ``parquet``: events of 25
leaves; ``csv``: as many rows of 9 columns; ``wide``: 1,000 rows of 2,000 columns of CSV. Each round runs both, in turn,
into fresh tables; the best of each is compared.
"""

from __future__ import annotations

import argparse
import csv
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from events import event

from driftline import Lake

_FILES, _GROUP = 4, 50_000  # files of a batch, rows of a row group
_CITIES = ("Berlin", "Paris", "Haifa", "Boston", "Kyoto")


def parquet(folder: Path, records: int) -> None:
    """The events of `events`, their times as timestamps."""
    rng = random.Random(7)
    for number in range(_FILES):
        numbers = range(number, records, _FILES)
        writer = None
        for start in range(0, len(numbers), _GROUP):
            rows = pa.Table.from_pylist([event(i, rng) for i in numbers[start : start + _GROUP]])
            at = rows.schema.get_field_index("at")
            rows = rows.set_column(at, "at", rows.column(at).cast(pa.timestamp("us", "UTC")))
            writer = writer or pq.ParquetWriter(folder / f"{number}.parquet", rows.schema)
            writer.write_table(rows)
        if writer is not None:
            writer.close()


def plain_csv(folder: Path, records: int) -> None:
    """Nine columns: numbers, text, dates, instants, booleans, some of them empty."""
    rng = random.Random(7)
    for number in range(_FILES):
        with (folder / f"{number}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["id", "name", "city", "amount", "quantity", "day", "at", "vip", "note"])
            for i in range(number, records, _FILES):
                rows.writerow(
                    [
                        i,
                        f"user-{i % 9973}",
                        rng.choice(_CITIES),
                        rng.randrange(1, 50_000) / 8,
                        rng.randrange(1, 9),
                        f"2026-03-{1 + i % 28:02d}",
                        f"2026-03-{1 + i % 28:02d}T{i % 24:02d}:{i % 60:02d}:{i % 59:02d}Z",
                        str(i % 17 == 0).lower(),
                        "" if i % 3 else "first, and last",
                    ]
                )


def wide_csv(folder: Path, _: int) -> None:
    """2,000 columns of whole numbers and of text."""
    with (folder / "wide.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([f"c{n}" for n in range(2_000)])
        rows.writerows([i * n if n % 2 else f"t{i * n % 97}" for n in range(2_000)] for i in range(1_000))


CASES: dict[str, Callable[[Path, int], None]] = {"parquet": parquet, "csv": plain_csv, "wide": wide_csv}


def plain_spark(lake: Lake, folder: Path, table: str) -> None:
    """Spark's own read and append."""
    spark = lake.spark
    is_csv = any(folder.glob("*.csv"))
    reader = spark.read.option("header", True).option("inferSchema", True)
    frame = reader.csv(str(folder)) if is_csv else spark.read.parquet(str(folder))
    spark.sql("create namespace if not exists lake.bench")
    frame.limit(0).writeTo(f"lake.{table}").using("iceberg").create()
    frame.writeTo(f"lake.{table}").append()


def driftline(lake: Lake, folder: Path, table: str) -> None:
    """The same by driftline."""
    lake.table(table).ingest(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        lake = Lake.open(Path(tmp, "lake"))
        for case in args.only:
            folder, warm = Path(tmp, case), Path(tmp, f"warm_{case}")
            for place, records in ((folder, args.records), (warm, 10_000)):
                place.mkdir()
                CASES[case](place, records)
            compared(lake, case, folder, warm, args.rounds)


def compared(lake: Lake, case: str, folder: Path, warm: Path, rounds: int) -> None:
    """Runs both, and prints the best of each."""
    runs = {"spark": plain_spark, "driftline": driftline}
    best = dict.fromkeys(runs, float("inf"))
    for name, run in runs.items():
        run(lake, warm, f"bench.warm_{case}_{name}")
    for number in range(rounds):
        counts = set()
        for name, run in runs.items():
            start = time.perf_counter()
            run(lake, folder, f"bench.{case}_{name}_{number}")
            best[name] = min(best[name], time.perf_counter() - start)
            row = lake.sql(f"select count(*) from lake.bench.{case}_{name}_{number}").head()
            counts.add(row and row[0])
        assert len(counts) == 1, counts
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(
        f"{case:8} {size / 2**20:6.0f} MiB   spark {best['spark']:6.2f} s   driftline {best['driftline']:6.2f} s   "
        f"ratio {best['driftline'] / best['spark']:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
