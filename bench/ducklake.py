"""Drifting JSON into a DuckLake: driftline, DuckDB's own read_json + INSERT, and dlt, side by side on one machine.

    python bench/ducklake.py [--records 1000000] [--drift 0.01] [--rounds 2] [--files 1000] [--columns 3000] [--dlt PYTHON]

Each into fresh tables; the best of each is compared. What each loses: driftline's loss is what `verify` finds; for the
others, the records whose drifted field (`quantity`, `code`) cannot be read back with its own type. dlt runs by the Python of an environment that has it
(`dlt[duckdb,ducklake]`), named with --dlt, and is left out without one. Then the registration of many files in one
snapshot, and a batch that is planned on a table of many columns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from events import write

from driftline import Lake
from driftline.core.types import LONG, Field, Schema, Struct
from driftline.formats.ducklake import Catalog
from driftline.formats.ducklake.commit import commit
from driftline.formats.ducklake.engine import instance
from driftline.formats.ducklake.files import ColumnStats, DataFile
from driftline.formats.ducklake.rows import Message, Wanted

DLT = """
import json, sys, time
from pathlib import Path
import dlt
folder, files = sys.argv[1], sorted(Path(sys.argv[2]).glob("*.jsonl"))
start = time.perf_counter()
def events():
    for file in files:
        with file.open() as lines:
            yield [json.loads(line) for line in lines]
pipeline = dlt.pipeline("bench", pipelines_dir=folder + "/dlt", destination=dlt.destinations.ducklake(credentials={
    "catalog": f"duckdb:///{folder}/dlt.ducklake", "storage": f"{folder}/dlt_data"}), dataset_name="bench")
pipeline.run(events(), table_name="events", loader_file_format="parquet")
taken = time.perf_counter() - start
with pipeline.sql_client() as client:
    rows = client.execute_sql("select count(*) from events")[0][0]
print(json.dumps({"seconds": taken, "rows": rows}))
"""


def by_driftline(lake: Lake, files: Path, table: str) -> dict[str, Any]:
    start = time.perf_counter()
    lake.table(table).ingest(files)
    return {"seconds": time.perf_counter() - start}


def by_duckdb(catalog: Catalog, files: Path, table: str) -> dict[str, Any]:
    """Its own reader, over a sample as large as it takes: a field that drifts becomes JSON or text."""
    start = time.perf_counter()
    with instance("ducklake") as connection:
        connection.execute(f"ATTACH 'ducklake:{catalog.target}' AS lk (DATA_PATH '{catalog.data}')")
        try:
            connection.execute(
                f"CREATE TABLE lk.{table} AS SELECT * FROM read_json('{files}/*.jsonl', sample_size = -1)"
            )
            taken = time.perf_counter() - start
            types = dict(
                connection.execute(
                    f"SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = 'lk' AND table_name = '{table}'"
                ).fetchall()
            )
            rows = connection.execute(f"SELECT count(*) FROM lk.{table}").fetchall()[0][0]
        finally:
            connection.execute("DETACH lk")
    untyped = {
        name: type_
        for name, type_ in types.items()
        if type_ in ("JSON", "VARCHAR") and name in ("quantity", "code")
    }
    return {"seconds": taken, "rows": rows, "lost types": untyped}


def by_dlt(python: str, folder: Path, files: Path) -> dict[str, Any]:
    folder.mkdir()
    done = subprocess.run(
        [python, "-c", DLT, str(folder), str(files)], capture_output=True, check=False, text=True
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1][:300]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def registration(catalog: Catalog, count: int, columns: int = 25) -> float:
    """Seconds to register so many files in one snapshot."""
    schema = Schema(Struct(tuple(Field(f"c{i}", LONG, i + 1) for i in range(columns))))
    stats = {i + 1: ColumnStats(1000, 1000, 0, "1", "9") for i in range(columns)}
    wanted = Wanted(f"bench.registered_{count}", None, schema, f"{catalog.data}bench/registered_{count}/")
    wanted.files = [DataFile(f"batch/part-{i}.parquet", 1000, 10_000, 500, stats) for i in range(count)]
    start = time.perf_counter()
    catalog.write(lambda connection: commit(connection, [wanted], Message("bench", "", "{}")))
    return time.perf_counter() - start


def wide(lake: Lake, folder: Path, columns: int) -> dict[str, float]:
    """Seconds of a first batch of so many columns, of one that changes nothing, and of planning one more column."""
    table, out = lake.table("bench.wide"), {}
    record = {f"c{i}": i for i in range(columns)}
    for name, extra, dry_run in (("made", {}, False), ("again", {}, False), ("planned", {"new": 1}, True)):
        file = folder / f"wide_{name}.jsonl"
        file.write_text(json.dumps({**record, **extra}))
        start = time.perf_counter()
        table.ingest(file, dry_run=dry_run)
        out[name] = time.perf_counter() - start
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--drift", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=3000)
    parser.add_argument("--dlt", metavar="PYTHON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        files, warm = Path(tmp, "events"), Path(tmp, "warm")
        write(files, args.records, args.drift)
        write(warm, 20_000, args.drift)
        lake = Lake.open(Path(tmp, "lake"), ducklake="duckdb")
        other = Catalog.of("duckdb", Path(tmp, "other"))
        other.make()
        by_driftline(lake, warm, "bench.warm")
        runs: dict[str, Callable[[int], dict[str, Any]]] = {
            "driftline": lambda i: by_driftline(lake, files, f"bench.events_{i}"),
            "DuckDB": lambda i: by_duckdb(other, files, f"events_{i}"),
        }
        if args.dlt:
            runs["dlt"] = lambda i: by_dlt(args.dlt, Path(tmp, f"dlt_{i}"), files)
        results: dict[str, list[dict[str, Any]]] = {name: [] for name in runs}
        for i in range(args.rounds):
            for name, run in runs.items():
                results[name].append(run(i))
        report(args, results)
        verdict = lake.table("bench.events_0").verify([str(f) for f in sorted(files.glob("*"))], "json")
        print(f"  driftline loses {verdict.missing} of {verdict.records:,} records (verify)")
        assert lake.ducklake is not None
        print(
            f"  {args.files:,} files of 25 columns registered in {registration(lake.ducklake, args.files):.2f} s"
        )
        seconds = {name: round(taken, 2) for name, taken in wide(lake, Path(tmp), args.columns).items()}
        print(f"  a record of {args.columns:,} columns: {seconds} s")


def report(args: argparse.Namespace, results: dict[str, list[dict[str, Any]]]) -> None:
    print(f"{args.records:,} records, {args.drift:.0%} drifted, {args.rounds} rounds")
    best = {
        name: min(taken)
        for name, runs in results.items()
        if (taken := [r["seconds"] for r in runs if "seconds" in r])
    }
    for name, runs in results.items():
        if name not in best:
            print(f"  {name:10} {runs[0].get('error')}")
            continue
        more = {k: v for k, v in runs[0].items() if k != "seconds"}
        ratio = best[name] / best["driftline"]
        print(
            f"  {name:10} {best[name]:7.2f} s  {args.records / best[name]:10,.0f} rows/s  {ratio:5.2f} of driftline's time  {more or ''}"
        )


if __name__ == "__main__":
    main()
