"""Drifting JSON into Iceberg: plain Spark and driftline side by side, in one run on one machine.

    python bench/ingest.py [--records 1000000] [--drift 0.01] [--malformed 0.01] [--rounds 3]
                           [--partition-by "day(at)"] [--sort-by at]

Plain Spark infers a schema from the files (`spark.read.json`) and appends with mergeSchema; fields that drift become
strings. driftline keeps every type. Of lines that are malformed plain Spark keeps the text in a column, driftline sets
them aside. Each round runs both, in turn, into fresh tables; the best of each is compared.
Where the tables are partitioned or sorted, plain Spark makes timestamps of `at` first, which driftline does by itself.
Memory: the driver's Java heap in use after a collection, and this Python process, at a tenth of the records and at all.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from events import write
from pyspark.sql import functions as F

from driftline import Lake


@dataclass(frozen=True, slots=True)
class Layout:
    """The partitioning and the sort order of the tables, in terms of both."""

    partition_by: str = ""
    sort_by: str = ""

    @property
    def settings(self) -> dict[str, str]:
        given = {"partition_by": self.partition_by, "sort_by": self.sort_by}
        return {key: value for key, value in given.items() if value}


_PLAIN = Layout()


def plain_spark(lake: Lake, files: Path, table: str, layout: Layout = _PLAIN) -> None:
    spark = lake.spark
    frame, columns = spark.read.json(str(files)), "1 as id"
    if layout.settings:
        frame, columns = frame.withColumn("at", F.to_timestamp("at")), "1 as id, current_timestamp() as at"
    spark.sql("create namespace if not exists lake.bench")
    partitioned = f"partitioned by ({layout.partition_by})" if layout.partition_by else ""
    spark.sql(
        f"create table lake.{table} using iceberg {partitioned} tblproperties "
        "('write.spark.accept-any-schema'='true', 'format-version'='2') as select * from "
        f"(select {columns}) where false"
    )
    if layout.sort_by:
        spark.sql(f"alter table lake.{table} write ordered by {layout.sort_by}")
    frame.writeTo(f"lake.{table}").option("mergeSchema", "true").option("check-ordering", "false").append()


def driftline(lake: Lake, files: Path, table: str, layout: Layout = _PLAIN) -> None:
    lake.table(table).ingest(files, settings=layout.settings)


def memory(lake: Lake) -> dict[str, float]:
    """MiB in use."""
    jvm = lake.spark._jvm
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    java = (runtime.totalMemory() - runtime.freeMemory()) / 2**20
    return {"java": round(java, 1), "python_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--drift", type=float, default=0.01)
    parser.add_argument("--malformed", type=float, default=0, help="share of the lines that are cut off")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partition-by", default="", metavar="TERMS")
    parser.add_argument("--sort-by", default="", metavar="TERMS")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    layout = Layout(args.partition_by, args.sort_by)
    with tempfile.TemporaryDirectory() as tmp:
        files, tenth, warm = Path(tmp, "events"), Path(tmp, "tenth"), Path(tmp, "warm")
        size = write(files, args.records, args.drift, malformed=args.malformed)
        write(tenth, args.records // 10, args.drift, malformed=args.malformed)
        write(warm, 20_000, args.drift, malformed=args.malformed)
        lake = Lake.open(Path(tmp, "lake"))
        times: dict[str, list[float]] = {"plain spark": [], "driftline": []}
        for name, run in (("plain", plain_spark), ("drift", driftline)):
            run(lake, warm, f"bench.warm_{name}", layout)
        driftline(lake, tenth, "bench.tenth", layout)
        small = memory(lake)
        for i in range(args.rounds):
            for name, run in (("plain spark", plain_spark), ("driftline", driftline)):
                start = time.perf_counter()
                run(lake, files, f"bench.{name.split()[0]}_{i}", layout)
                times[name].append(time.perf_counter() - start)
        large = memory(lake)
        counts = {
            name: lake.sql(f"select count(*) from lake.bench.{name.split()[0]}_0").head()[0] for name in times
        }
        if args.malformed:
            counts["driftline"] += lake.table("bench.driftline_0").quarantine().waiting
        assert set(counts.values()) == {args.records}, counts
        report(args, size, times, small, large)


def report(
    args: argparse.Namespace, size: int, times: dict[str, list[float]], small: dict, large: dict
) -> None:
    best = {name: min(taken) for name, taken in times.items()}
    pairs = [d / p for d, p in zip(times["driftline"], times["plain spark"], strict=True)]
    out = {
        "records": args.records,
        "bytes": size,
        "drift": args.drift,
        "malformed": args.malformed,
        "seconds": {name: [round(t, 2) for t in taken] for name, taken in times.items()},
        "rows_per_second": {name: round(args.records / t) for name, t in best.items()},
        "ratio_of_best": round(best["driftline"] / best["plain spark"], 3),
        "ratio_of_pairs_median": round(statistics.median(pairs), 3),
        "memory_mib": {"a tenth of the records": small, "all records": large},
    }
    if args.json:
        print(json.dumps(out))
        return
    shares = f"{args.drift:.0%} drifted, {args.malformed:.0%} malformed"
    print(f"{args.records:,} records, {size / 1e6:.0f} MB, {shares}, {args.rounds} rounds")
    if layout := Layout(args.partition_by, args.sort_by).settings:
        print("  " + ", ".join(f"{key} {terms}" for key, terms in layout.items()))
    for name, t in best.items():
        print(f"  {name:12} {t:6.2f} s best   {args.records / t:10,.0f} rows/s   all: {out['seconds'][name]}")
    print(
        f"  ratio driftline / plain Spark: {out['ratio_of_best']} (best), {out['ratio_of_pairs_median']} (median of pairs)"
    )
    print(f"  driver memory, MiB: {small} at a tenth of the records, {large} at all")


if __name__ == "__main__":
    main()
