"""The pages of a lake, and what stands around a query when its statement is not checked."""

from __future__ import annotations

import json
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

# Runs statements as the query box does, but for the check of what they read.
UNCHECKED = """
import json, sys
from pathlib import Path
from driftline.errors import DriftlineError
from driftline.formats.open import EmbeddedLake
from driftline.ui import limited_query

folder, ducklake, *statements = sys.argv[1:]
limited_query._check = lambda *_: None
limited_query._write_nothing()
answers = []
for sql in statements:
    try:
        answer = limited_query._answered(EmbeddedLake(Path(folder), ducklake or None), sql, 10)
        answers.append(["rows", [list(row) for row in answer.rows]])
    except DriftlineError as error:
        answers.append(["error", error.message])
try:
    Path(folder, "written").write_text("x")
    answers.append(["written", ""])
except OSError:
    answers.append(["error", "no file is written"])
print(json.dumps(answers))
"""


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


def test_what_a_query_names_outside_the_lake_is_not_read_even_unchecked(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\nhidden\n")
    lake.table(table_name).ingest([{"id": 1}])
    embedded = without_spark(lake)
    statements = [
        f"SELECT id FROM {table_name}",
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM '{secret}'",
        f"SELECT * FROM read_text('{secret}')",
        f"SELECT * FROM glob('{tmp_path}/*')",
    ]
    arguments = [str(embedded.folder), embedded.ducklake or "", *statements]
    run = subprocess.run(
        [sys.executable, "-c", UNCHECKED, *arguments], capture_output=True, text=True, check=True
    )
    answers = json.loads(run.stdout.splitlines()[-1])
    assert answers[0] == ["rows", [["1"]]]
    assert [kind for kind, _ in answers[1:]] == ["error"] * len(statements)
