"""The pages of `driftline ui` for a lake of many tables, and for a table of many columns.

    python bench/pages.py [--tables 5000] [--columns 5000] [--rounds 5]

The server is a process of its own. Of each page: its size, the time of the first request for it, and the median of
those behind it. The tables are one that drifted, under other names, with a copy of its metadata each: their
rows are the same ones, which no page of a lake reads.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import requests
from pyiceberg.catalog.sql import SqlCatalog

from driftline import Lake


def ingest(lake: Lake, folder: Path, columns: int) -> None:
    """Two batches of a narrow and of a wide table, a fifth of whose fields drift."""
    for batch in range(2):
        narrow, wide = folder / f"narrow-{batch}.jsonl", folder / f"wide-{batch}.jsonl"
        price = [12, "n/a"][batch]
        narrow.write_text("".join(json.dumps({"id": i, "price": price}) + "\n" for i in range(50)))
        record = {f"c{i:05}": f"t{i}" if batch and i % 5 == 0 else i for i in range(columns)}
        wide.write_text("".join(json.dumps({"id": i, **record}) + "\n" for i in range(10)))
        lake.table("bench.narrow").ingest(narrow)
        lake.table("bench.wide").ingest(wide)


def add_tables(folder: Path, number: int) -> None:
    """Register copies of the narrow table's metadata under other names."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder))
    location = Path(catalog.load_table("bench.narrow").metadata_location.removeprefix("file:"))
    for i in range(number):
        copied = location.with_name(f"{i:05}-{location.name}")
        shutil.copyfile(location, copied)
        catalog.register_table(f"bench.t{i:05}", str(copied))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL of a server over the lake."""
    serve = [sys.executable, "-m", "driftline", "--lake", str(folder), "ui", "--no-open", "--port", "0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


def measured(session: requests.Session, url: str, rounds: int) -> str:
    seconds: list[float] = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        page = session.get(url)
        seconds.append(time.perf_counter() - begin)
        page.raise_for_status()
    first, *others = seconds
    return f"{first:.2f} s, then {statistics.median(others):.2f} s; {len(page.content) / 1000:,.0f} kB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=5_000)
    parser.add_argument("--columns", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    pages = {
        "the lake": "/",
        "the lake, a search": "/?find=t00042",
        "captures": "/captures",
        "a table": "/table?name=bench.t00042",
        "a wide table": "/table?name=bench.wide",
        "a field of it": "/field?table=bench.wide&path=c00005",
        "its statistics": "/statistics?name=bench.wide",
        "its history": "/history?name=bench.wide",
    }
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp, "lake")
        with Lake.open(folder) as lake:
            ingest(lake, Path(tmp), args.columns)
        add_tables(folder, args.tables)
        with served(folder) as url, requests.Session() as session:
            session.get(url)  # the token becomes a cookie
            site = "{0.scheme}://{0.netloc}".format(urlsplit(url))
            for name, path in pages.items():
                print(f"{name:20} {measured(session, site + path, args.rounds)}", flush=True)


if __name__ == "__main__":
    main()
