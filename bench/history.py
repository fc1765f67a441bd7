"""The cost of one more batch, and of reading commands, behind a long history: CPU, bytes, by batches before it.

    make bench-history                                              10^2 to 10^5 batches, some minutes for each line
    make bench-history ARGS="--lines iceberg --sizes 100 1000"      a try

Each figure is a mean: of 20 batches, of 3 other commands. Only the first batches of a table are real. Those behind them are commits without rows of their own: of links to a first file,
in Iceberg one each up to 300 and a hundred files each beyond, in a DuckLake by rows of its catalog. By key each of these files
has bounds of other keys. CPU is of all processes; bytes are those that processes read and write, of sockets, too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import psutil
from measure import cpu

from driftline import Lake
from driftline.formats.iceberg.commit import begin, commit, upkeep
from driftline.formats.iceberg.files import data_file
from driftline.lake import Table
from driftline.write.files import FileMetrics, WrittenFile

NAME, ROWS, BATCHES = "bench.events", 10, 20
ONE_BY_ONE, TOGETHER = 300, 100  # commits of one file, and files of a commit beyond
LINKS = 50_000  # to one file, of which file systems take no more than some
FAR = 10**9  # keys behind those of real batches
LINES = ("iceberg", "iceberg by key", "ducklake", "ducklake by key")
ME = psutil.Process()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", nargs="+", choices=LINES, default=LINES)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    args = parser.parse_args()
    print("| line | before | work | CPU, ms | read, kB | written, kB |\n|---|--:|---|--:|--:|--:|")
    for line in args.lines:
        for size in args.sizes:
            with tempfile.TemporaryDirectory(prefix="history-") as folder:
                _behind(line, size, Path(folder))


def _behind(line: str, size: int, folder: Path) -> None:
    """Measure one more batch, and what reads the table, behind so many."""
    keyed, in_ducklake = "by key" in line, line.startswith("ducklake")
    # A sync waits for other writers of the disk, and takes no CPU.
    lake = Lake.open(folder, ducklake="duckdb" if in_ducklake else None, durability="off")
    table = lake.table(NAME)
    for number in range(30):  # Java compiles what it runs
        table.ingest(_records(number), settings={"key": "id"} if keyed and not number else None)
    (_in_ducklake if in_ducklake else _in_iceberg)(table, folder, size, keyed)
    table.ingest(_records(30))
    work: dict[str, Callable[[int], object]] = {
        "a batch": lambda number: table.ingest(_records(31 + number)),
        "history": lambda _: table.history(),
        "schema": lambda _: table.schema(),
        "stats": lambda _: table.stats(),
    }
    if keyed:
        work["a batch of updates"] = lambda number: table.ingest(_records(number))
    for name, act in work.items():
        before, times = _used(), BATCHES if name.startswith("a batch") else 3
        for number in range(times):
            act(number)
        each = [(now - then) / times for then, now in zip(before, _used(), strict=True)]
        shown = " | ".join(f"{amount:,.0f}" for amount in (each[0] * 1e3, each[1] / 1e3, each[2] / 1e3))
        print(f"| {line} | {size:,} | {name} | {shown} |", flush=True)


def _records(number: int) -> list[dict[str, Any]]:
    return [{"id": number * ROWS + i, "name": f"x{i}", "more": {"price": i * 0.5}} for i in range(ROWS)]


def _used() -> tuple[float, int, int]:
    """CPU seconds of all processes, and the bytes that those which run have read and written."""
    counters = [process.io_counters() for process in (ME, *ME.children(recursive=True))]
    return cpu(ME), sum(c.read_chars for c in counters), sum(c.write_chars for c in counters)


def _links(first: Path, count: int) -> list[Path]:
    """So many further names of a file, of a copy where it has too many."""
    links, linked = [], first
    for number in range(count):
        link = first.with_name(f"{first.stem}-{number}{first.suffix}")
        if number % LINKS == LINKS - 1:
            linked = Path(shutil.copy(first, link))
        else:
            os.link(linked, link)
        links.append(link)
    return links


def _in_iceberg(table: Table, _: Path, size: int, keyed: bool) -> None:
    """Commits of files, with driftline's upkeep behind each."""
    handle: Any = table.format.handle
    java = handle.java()
    file = java.currentSnapshot().addedDataFiles(java.io()).iterator().next()
    links = _links(Path(urlsplit(str(file.location())).path), size)
    while links:
        count = TOGETHER if len(links) < size - ONE_BY_ONE else 1
        now, links = links[:count], links[count:]
        transaction = begin(handle, handle.java())
        append = transaction.newAppend()
        for place, link in enumerate(now, len(links)):
            append.appendFile(_data_file(handle.jvm, java, file, link, place if keyed else None))
        append.set("driftline.batch", uuid.uuid4().hex)
        append.commit()
        commit(handle, transaction, lambda _: False)
        upkeep(handle, handle.java().operations().current())


def _data_file(jvm: Any, java: Any, file: Any, link: Path, place: int | None) -> Any:
    """The data file by another name; by key at a ``place``, with keys of its own."""
    if place is None:
        return jvm.org.apache.iceberg.DataFiles.builder(java.spec()).copy(file).withPath(str(link)).build()
    ids, low = [int(f.fieldId()) for f in java.schema().columns()], FAR + place * ROWS
    bounds = {ids[0]: struct.pack("<q", low)}, {ids[0]: struct.pack("<q", low + ROWS - 1)}
    metrics = FileMetrics(
        dict.fromkeys(ids, 100), dict.fromkeys(ids, ROWS), dict.fromkeys(ids, 0), {}, *bounds
    )
    return data_file(jvm, java.spec(), WrittenFile(str(link), link.stat().st_size, ROWS, (4,), metrics))


def _in_ducklake(_: Table, folder: Path, size: int, keyed: bool) -> None:
    """Rows of the catalog, as those of the newest snapshot."""
    with duckdb.connect(str(folder / "catalog.ducklake")) as catalog:

        def row(sql: str) -> tuple[Any, ...]:
            """The first row of a query."""
            found = catalog.execute(sql).fetchone()
            assert found is not None
            return found

        head, free = row("SELECT snapshot_id, next_file_id FROM ducklake_snapshot ORDER BY 1 DESC LIMIT 1")
        columns = "data_file_id, path, table_id, row_id_start"
        file, path, table, first = row(
            f"SELECT {columns} FROM ducklake_data_file WHERE begin_snapshot = {head}"
        )
        key = f"({FAR} + i * {ROWS}%s)::VARCHAR"
        bounds = ["min_value", "max_value"]
        lows = [
            f"if(column_id = 1, {key % end}, {name})"
            for name, end in zip(bounds, ("", f" + {ROWS - 1}"), strict=True)
        ]
        for name, anew, where in [
            (
                "snapshot",
                {"snapshot_id": f"{head} + i", "next_file_id": f"{free} + i"},
                f"snapshot_id = {head}",
            ),
            ("snapshot_changes", {"snapshot_id": f"{head} + i"}, f"snapshot_id = {head}"),
            (
                "data_file",
                {
                    "data_file_id": f"{free} - 1 + i",
                    "begin_snapshot": f"{head} + i",
                    "path": "replace(path, '.parquet', '-' || (i - 1) || '.parquet')",
                    "row_id_start": f"{first} + {ROWS} * i",
                },
                f"data_file_id = {file}",
            ),
            (
                "file_column_stats",
                {"data_file_id": f"{free} - 1 + i"} | (dict(zip(bounds, lows, strict=True)) if keyed else {}),
                f"data_file_id = {file}",
            ),
            (
                "tag",
                {"begin_snapshot": f"{head} + i", "end_snapshot": f"if(i < {size}, {head} + i + 1, NULL)"},
                f"object_id = {table} AND begin_snapshot = {head}",
            ),
        ]:
            replaced = ", ".join(f"{sql} AS {column}" for column, sql in anew.items())
            catalog.execute(
                f"INSERT INTO ducklake_{name} SELECT * EXCLUDE (i) REPLACE ({replaced}) "
                f"FROM (SELECT * FROM ducklake_{name} WHERE {where}), range(1, {size} + 1) r(i) ORDER BY i"
            )
        catalog.execute(
            f"UPDATE ducklake_tag SET end_snapshot = {head} + 1 WHERE object_id = {table} AND begin_snapshot = {head}"
        )
        catalog.execute(
            f"UPDATE ducklake_table_stats SET record_count = record_count + {ROWS * size}, "
            f"next_row_id = next_row_id + {ROWS * size} WHERE table_id = {table}"
        )
    _links(next((folder / "data").rglob(path.rpartition("/")[2])), size)


if __name__ == "__main__":
    main()
