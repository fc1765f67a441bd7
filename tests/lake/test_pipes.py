"""Data from a pipe are taken as from a file, and reported by the name that a person gave."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.errors import UsageError
from driftline.lake import Lake
from driftline.quarantine import table as quarantine

Fifo = Callable[[bytes], str]


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Fifo]:
    """A FIFO that another thread fills."""
    writers: list[threading.Thread] = []

    def made(data: bytes) -> str:
        path = tmp_path / f"pipe{len(writers)}"
        os.mkfifo(path)
        writers.append(threading.Thread(target=path.write_bytes, args=[data]))
        writers[-1].start()
        return str(path)

    yield made
    for writer in writers:
        writer.join()


def test_what_a_pipe_alone_tells_is_told_of_it(lake: Lake, table_name: str, fifo: Fifo) -> None:
    result = lake.table(table_name).ingest(pipe := fifo(b"a;b\n1;2\n"), format="csv")
    assert result.hints == (f"detected --delimiter ';' in {pipe}",)


@pytest.mark.nightly
def test_json_through_a_pipe(lake: Lake, table_name: str, fifo: Fifo) -> None:
    table, lines = lake.table(table_name), b'{"a": 1}\nbad\n{"a": "x"}\n'
    planned = table.ingest(fifo(lines), format="json", dry_run=True)
    result = table.ingest(pipe := fifo(lines), format="json")
    assert (planned.rows_read, result.rows_written, result.rows_quarantined) == (3, 2, 1)
    assert [str(change.reason.location) for change in result.changes] == [f"{pipe}:1", f"{pipe}:3"]
    assert result.rejected[0].startswith(f"{pipe}:2: ")
    (kept,) = quarantine.of(table.format).read().collect()
    assert (kept.source, kept.line, kept.raw) == (pipe, 2, "bad")
    assert table.verify([fifo(lines)], "json").ok
    verdict = table.verify([pipe := fifo(lines + b'{"a": 3}\n')], "json")
    assert [m.place for m in verdict.mismatches] == [f"{pipe}:4"]


@pytest.mark.iceberg_only("of the source alone")
def test_much_json_through_a_pipe(lake: Lake, table_name: str, fifo: Fifo) -> None:
    """Read in one go, by what its first lines are."""
    pipe = fifo(b"".join(b'{"a": %d, "b": "%s"}\n' % (i, b"x" * 100) for i in range(40_000)))
    result = lake.table(table_name).ingest(pipe, format="json")
    assert result.rows_written == 40_000
    assert {change.reason.location.source for change in result.changes if change.reason.location} == {pipe}


@pytest.mark.iceberg_only("of the source alone")
def test_csv_through_a_descriptor(lake: Lake, table_name: str) -> None:
    """As a shell gives `<(...)`: Java has such a descriptor too, and it is another one."""
    end, start = os.pipe()
    os.write(start, b"a,b\n1,x\n2\n")
    os.close(start)
    table = lake.table(table_name)
    result = table.ingest(f"/dev/fd/{end}", format="csv")
    os.close(end)
    assert (result.rows_written, result.rows_quarantined) == (1, 1)
    assert [tuple(row) for row in table.read().collect()] == [(1, "x")]
    (kept,) = quarantine.of(table.format).read().collect()
    assert kept.source == f"/dev/fd/{end}"


@pytest.mark.iceberg_only("of the source alone")
def test_parquet_through_a_pipe(lake: Lake, table_name: str, fifo: Fifo, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "in.parquet")
    data = (tmp_path / "in.parquet").read_bytes()
    table = lake.table(table_name)
    result = table.ingest(pipe := fifo(data), format="parquet")
    assert result.rows_written == 3
    assert {str(change.reason.location) for change in result.changes} == {pipe}
    assert table.verify([fifo(data)], "parquet").ok
    half = fifo(data[:-10])
    with pytest.raises(UsageError, match=f"^{half}: "):
        table.ingest(half, format="parquet")


@pytest.mark.iceberg_only("of the source alone")
def test_a_pipe_is_not_captured(lake: Lake, table_name: str, fifo: Fifo, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "in.json")
    for source in (pipe, "/dev/stdin", "-"):
        with pytest.raises(UsageError, match="a pipe or standard input cannot be captured"):
            lake.table(table_name).capture(source, name="c")
