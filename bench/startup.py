"""Start-up, from the shell to the end of the process: commands next to what would be written instead of them.

    python bench/startup.py [--rounds 3] [--records 1000]

`ingest` of a small file next to a plain PySpark script with `spark.jars.packages` (Ivy's cache is warm), which reads the
same JSON and appends it to a new Iceberg table in the same kind of catalog. Commands that look at a table, or alter it,
next to pyiceberg's load_table. All in turns, so that none has the quieter machine; the median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from driftline.runtime.jars import PACKAGES, cache_folder, find_jars
from driftline.runtime.java import find_java, launcher_home
from driftline.runtime.session import prepare_environment

PYICEBERG = Path(__file__).parent / ".venv" / "bin" / "python"
PLAIN = """
import sys
from pyspark.sql import SparkSession
file, lake, packages = sys.argv[1:]
spark = (
    SparkSession.builder.config("spark.jars.packages", packages)
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "jdbc")
    .config("spark.sql.catalog.lake.uri", f"jdbc:sqlite:{lake}/catalog.db")
    .config("spark.sql.catalog.lake.warehouse", lake)
    .getOrCreate()
)
spark.sql("create namespace lake.a")
frame = spark.read.json(file)
frame.limit(0).writeTo("lake.a.b").using("iceberg").create()
frame.writeTo("lake.a.b").append()
"""
LOAD = """
import sys
from pyiceberg.catalog import load_catalog
catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{sys.argv[1]}/catalog.db", warehouse=sys.argv[1])
print(catalog.load_table("a.b").schema())
"""


def took(argv: list[str]) -> float:
    """Seconds of a process."""
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def write(file: Path, records: int) -> None:
    rng = random.Random(7)
    with file.open("w") as out:
        for i in range(records):
            who = {"id": i, "name": f"n{i}", "tags": ["a", "b"]}
            out.write(
                json.dumps({"id": i, "at": "2026-03-02T08:00:00Z", "who": who, "sum": rng.random()}) + "\n"
            )


def candidates(folder: Path, file: Path) -> dict[str, Callable[[int], list[str]]]:
    """By name: the command of a round."""
    product = [sys.executable, "-m", "driftline", "--lake"]
    table = [*product, str(folder / "table")]
    iceberg = ",".join(package for package in PACKAGES if "avro" not in package)

    def new(name: str, i: int) -> str:
        lake = folder / f"{name}-{i}"
        lake.mkdir()
        return str(lake)

    return {
        "plain PySpark": lambda i: [sys.executable, "-c", PLAIN, str(file), new("plain", i), iceberg],
        "ingest": lambda i: [*product, new("ours", i), "ingest", str(file), "--into", "a.b"],
        "pyiceberg load_table": lambda i: [str(PYICEBERG), "-c", LOAD, str(folder / "table")],
        "schema": lambda i: [*table, "schema", "a.b"],
        "history": lambda i: [*table, "history", "a.b"],
        "stats": lambda i: [*table, "stats", "a.b"],
        "tables": lambda i: [*table, "tables"],
        "query --engine duckdb": lambda i: [
            *table,
            "query",
            "select count(*) from a.b",
            "--engine",
            "duckdb",
        ],
        "alter": lambda i: [*table, "alter", f"alter table a.b alter column sum comment 'round {i}'"],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1000)
    args = parser.parse_args()
    prepare_environment()
    find_jars()
    subprocess.run(
        [sys.executable, "-m", "driftline.cli.class_data"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.environ["JAVA_HOME"] = str(launcher_home(find_java(), cache_folder()))
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write(folder / "small.jsonl", args.records)
        each = candidates(folder, folder / "small.jsonl")
        took([*each["schema"](0)[:-2], "ingest", str(folder / "small.jsonl"), "--into", "a.b"])
        for i in range(args.rounds + 1):
            for who, command in each.items():
                seconds = took(command(i))
                if i:  # the first round warms caches
                    times.setdefault(who, []).append(seconds)
    print(
        f"pyspark {version('pyspark')}, {', '.join(PACKAGES)}; {os.cpu_count()} cores, {args.rounds} rounds"
    )
    median = {who: statistics.median(found) for who, found in times.items()}
    peer = "plain PySpark"
    for who, seconds in median.items():
        peer = who if who in ("plain PySpark", "pyiceberg load_table") else peer
        print(f"{who:22} {seconds:6.2f} s   {seconds / median[peer]:5.2f} x {peer}")


if __name__ == "__main__":
    main()
