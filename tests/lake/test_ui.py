"""The pages of a lake, and what stands around a query when its statement is not checked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from core.test_ui_guard import Response
from driftline.lake import Lake
from driftline.ui.lake import ServedLake
from driftline.ui.pages import LakePages
from lake.test_arrow_rows import without_spark

pytestmark = pytest.mark.embedded_only("it reads the lake of a folder, or a DuckLake")

# Runs a statement as the query box does, but for the checks of what it is and reads.
UNCHECKED = """
import sys
from pathlib import Path
from driftline.errors import DriftlineError
from driftline.formats.open import EmbeddedLake
from driftline.operations import duckdb_query
from driftline.ui import limited_query

folder, ducklake, sql = sys.argv[1:]
limited_query._check = duckdb_query._must_read = lambda *_: None
limited_query._write_nothing()
try:
    print(limited_query._answered(EmbeddedLake(Path(folder), ducklake or None), sql, 10).rows)
except DriftlineError as error:
    print(error.message)
"""
CLOSED = "file system operations are disabled"


@pytest.fixture
def served(lake: Lake) -> Iterator[ServedLake]:
    """The lake as the command opens it, without Spark until something needs it."""
    embedded = without_spark(lake)
    opened = Lake.open(embedded.folder, ducklake=embedded.ducklake)
    with closing(ServedLake(opened)) as pages:
        yield pages
    assert "_engine" not in vars(opened), "Spark was started"


@pytest.mark.nightly
def test_every_page_of_a_table_that_drifted_answers(served: ServedLake, lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "total": 5}])
    table.ingest([{"id": "<b>x</b>", "total": "n/a"}], again=True)
    pages = LakePages(served).application()
    sql = f"SELECT total_string FROM {table_name} WHERE total_string IS NOT NULL"
    for path, shown in {
        "/": table_name,
        f"/table?name={table_name}": "total_string",
        f"/field?table={table_name}&path=total_string": "n/a",
        f"/field?table={table_name}&path=id_string": "&lt;b&gt;x&lt;/b&gt;",
        f"/history?name={table_name}": "total_string",
        f"/quarantine?name={table_name}": table_name,
        "/captures": "",
        f"/statistics?name={table_name}": "total",
        f"/query?sql={quote(sql)}": "n/a",
    }.items():
        page = Response(pages, path, {"host": "x"})
        assert (page.status, shown in page.text) == (200, True), path
        assert "<b>x" not in page.text


@pytest.mark.nightly
def test_a_query_reads_nothing_outside_the_lake_and_writes_nothing_even_unchecked(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    secret, out = tmp_path / "secret.csv", tmp_path / "out.csv"
    secret.write_text("a\nhidden\n")
    lake.table(table_name).ingest([{"id": 1}])
    embedded = without_spark(lake)
    inside = Path(embedded.folders()[0], "out.csv")
    # In a process each, as for a person: the first one closes the door behind it.
    for sql, expected in {
        f"SELECT id FROM {table_name}": "[['1']]",
        f"SELECT * FROM read_csv('{secret}')": CLOSED,
        f"SELECT * FROM glob('{tmp_path}/*')": CLOSED,
        f"COPY (SELECT 1) TO '{out}'": CLOSED,
        f"COPY (SELECT 1) TO '{inside}'": "File too large",
    }.items():
        command = [sys.executable, "-c", UNCHECKED, str(embedded.folder), embedded.ducklake or "", sql]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert expected in run.stdout, sql
    assert not out.exists()
    assert not inside.exists() or not inside.stat().st_size
    inside.unlink(missing_ok=True)
