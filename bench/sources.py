"""Data by its source: packed events in an S3 server's bucket, and frames that Python holds, next to plain Spark.

    PYTHONPATH=tests python bench/sources.py [--records 1000000] [--rounds 3] [--only gz zst pandas polars]

``gz``, ``zst``: events as JSON lines in eight files. driftline reads them from a bucket of an S3 server on this machine;
plain Spark, which needs Hadoop's S3 library for that, reads the same files from the disk, with a schema that it infers.
``pandas``, ``polars``: a frame of ten columns; Spark takes it by `createDataFrame`, with
Arrow. Both append to fresh tables, in turn; the best of each is compared.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import events
import pandas as pd
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame

from driftline import Lake
from driftline.runtime.stores import configure
from servers.s3 import S3

_CODECS = {"gz": "gzip", "zst": "zstd"}
_BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """The input of driftline, and the way in which plain Spark gets the same as a DataFrame."""

    data: Any
    frame: Callable[[], DataFrame]
    size: int  # bytes


def packed(folder: Path, s3: S3, lake: Lake, kind: str, records: int) -> Case:
    """Events, packed, in a bucket and on the disk."""
    plain, place = folder / "plain", folder / kind
    place.mkdir(parents=True)
    events.write(plain, records, 0)
    bucket = s3.bucket(f"{kind}-{records}")
    for file in sorted(plain.iterdir()):
        name = f"{file.name}.{kind}"
        with pa.OSFile(str(place / name), "wb") as raw, pa.CompressedOutputStream(raw, _CODECS[kind]) as out:
            out.write(file.read_bytes())
        file.unlink()
        s3.put(f"{bucket}/{name}", (place / name).read_bytes())
    size = sum(file.stat().st_size for file in place.iterdir())
    return Case(bucket, lambda: lake.spark.read.json(str(place)), size)


def columns(records: int) -> dict[str, list[object]]:
    """Ten columns: numbers, texts, instants, booleans, some of them empty."""
    rng = random.Random(7)
    return {
        "id": list(range(records)),
        "event": [rng.choice(("view", "click", "cart", "order")) for _ in range(records)],
        "at": [_BEGAN + timedelta(seconds=n) for n in range(records)],
        "user": [f"user-{n % 9973}" for n in range(records)],
        "session": [f"{rng.getrandbits(64):016x}" for _ in range(records)],
        "amount": [rng.randrange(50_000) / 8 for _ in range(records)],
        "quantity": [rng.randrange(1, 9) for _ in range(records)],
        "code": [rng.randrange(100, 999) for _ in range(records)],
        "ok": [n % 2 == 0 for n in range(records)],
        "referrer": [None if n % 3 else "https://example.org/landing" for n in range(records)],
    }


def pandas(lake: Lake, records: int) -> Case:
    frame = pd.DataFrame(columns(records))
    return Case(frame, lambda: lake.spark.createDataFrame(frame), int(frame.memory_usage(deep=True).sum()))


def polars(lake: Lake, records: int) -> Case:
    frame = pl.DataFrame(columns(records))
    return Case(frame, lambda: lake.spark.createDataFrame(frame.to_arrow()), int(frame.estimated_size()))


def by_spark(lake: Lake, case: Case, table: str) -> None:
    frame = case.frame()
    frame.limit(0).writeTo(f"lake.{table}").using("iceberg").create()
    frame.writeTo(f"lake.{table}").append()


def by_driftline(lake: Lake, case: Case, table: str) -> None:
    lake.table(table).ingest(case.data)


SIDES: dict[str, Callable[[Lake, Case, str], None]] = {"spark": by_spark, "driftline": by_driftline}


def seconds(run: Callable[[Lake, Case, str], None], lake: Lake, case: Case, table: str, rows: int) -> float:
    """The seconds that one side takes."""
    start = time.perf_counter()
    run(lake, case, table)
    took = time.perf_counter() - start
    row = lake.sql(f"select count(*) from lake.{table}").head()
    assert row is not None, table
    assert row[0] == rows, (table, row[0])
    lake.sql(f"drop table lake.{table} purge")
    return took


def compare(lake: Lake, kind: str, made: Callable[[int], Case], args: argparse.Namespace) -> None:
    best = dict.fromkeys(SIDES, float("inf"))
    warm, case = made(10_000), made(args.records)
    for number in range(args.rounds + 1):
        for side, run in SIDES.items():
            taken, rows = (case, args.records) if number else (warm, 10_000)
            took = seconds(run, lake, taken, f"bench.{kind}_{side}_{number}", rows)
            best[side] = min(best[side], took) if number else best[side]
    print(
        f"{kind:8} {case.size / 2**20:6.0f} MiB   spark {best['spark']:6.2f} s   "
        f"driftline {best['driftline']:6.2f} s   ratio {best['driftline'] / best['spark']:.2f}",
        flush=True,
    )


@contextmanager
def cases(lake: Lake, only: list[str]) -> Iterator[dict[str, Callable[[int], Case]]]:
    """The makers of each kind of source, by the number of records."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        known: dict[str, Callable[[int], Case]] = {
            "pandas": lambda records: pandas(lake, records),
            "polars": lambda records: polars(lake, records),
        }
        if set(only) & set(_CODECS):
            s3 = held.enter_context(S3(folder / "s3"))
            configure("s3", s3.options)
            for kind in _CODECS:
                known[kind] = lambda records, kind=kind: packed(
                    folder / kind / str(records), s3, lake, kind, records
                )
        yield {kind: known[kind] for kind in only}


def main() -> None:
    kinds = [*_CODECS, "pandas", "polars"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as tmp:
        lake = Lake.open(Path(tmp, "lake"), properties={"spark.sql.execution.arrow.pyspark.enabled": "true"})
        lake.sql("create namespace lake.bench")
        with cases(lake, args.only) as made:
            for kind, of_kind in made.items():
                compare(lake, kind, of_kind, args)


if __name__ == "__main__":
    main()
