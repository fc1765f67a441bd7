"""The pages of a lake, and what stands around a query when its statement is not checked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest

from core.test_ui_guard import Response
from driftline.lake import Lake
from driftline.ui.lake import ServedLake
from driftline.ui.pages import LakePages
from driftline.ui.writes import Writes
from lake.test_arrow_rows import without_spark

pytestmark = pytest.mark.embedded_only("it reads the lake of a folder, or a DuckLake")

# Runs statements as the query box does, but for the checks of what each is and reads, and in a process each, as for a
# person: the first one closes the door behind it.
UNCHECKED = """
import os
import sys
from pathlib import Path
from driftline.errors import DriftlineError
from driftline.formats.open import EmbeddedLake
from driftline.operations import duckdb_query
from driftline.ui import limited_query

folder, ducklake, *statements = sys.argv[1:]
limited_query._check = duckdb_query._must_read = lambda *_: None
for sql in statements:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, sql
        continue
    limited_query._write_nothing()
    try:
        print(limited_query._answered(EmbeddedLake(Path(folder), ducklake or None), sql, 10).rows)
    except DriftlineError as error:
        print(error.message.replace("\\n", " "))
    sys.stdout.flush()
    os._exit(0)
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
    table.view()
    assert table_name in served.names() and f"{table_name}_settled" not in served.names()
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
@pytest.mark.iceberg_only("a page spells names the same of each format")
def test_a_command_on_a_page_is_quoted_as_a_shell_reads_it(
    served: ServedLake, lake: Lake, table_name: str
) -> None:
    table = lake.table(f"{table_name} it")
    for total in (5, "n/a"):
        table.ingest([{"a $(b)": total}], again=True)
    pages, name = LakePages(served).application(), quote(table.name)
    for path, command in {
        f"/table?name={name}": f"driftline replan '{table.name}' --html FILE",
        f"/field?table={name}&path={quote('a $(b)')}": f"driftline resolve '{table.name}' 'a $(b)' --as TYPE",
        f"/statistics?name={name}": f"driftline view '{table.name}'",
    }.items():
        assert command in unescape(Response(pages, path, {"host": "x"}).text), path


@pytest.mark.nightly
def test_drift_over_time_and_reasons_by_batch_are_shown_where_records_and_values_wait(
    served: ServedLake, lake: Lake, table_name: str, tmp_path: Path
) -> None:
    for name, lines in {"1.jsonl": '{"id": 1}\n{no\n', "2.jsonl": '{"id": "x"}\n[2]\n{no\n'}.items():
        (tmp_path / name).write_text(lines)
        lake.table(table_name).ingest(tmp_path / name)
    lake.table(table_name).ingest([{"id": 3, "held": 1}], settings={"new_fields": "hold"})
    (tmp_path / "3.jsonl").write_text("no record\n")
    lake.table(f"{table_name}_waits").ingest(tmp_path / "3.jsonl")
    pages = LakePages(served).application()
    page = Response(pages, f"/table?name={table_name}", {"host": "x"}).text
    assert "Types of id by batch" in page
    shown = Response(pages, f"/statistics?name={table_name}", {"host": "x"}).text
    assert "Types of id by batch" in shown
    assert "Records in quarantine by batch" in shown and "<b>2</b> invalid JSON" in shown
    alone = Response(pages, f"/statistics?name={table_name}_waits", {"host": "x"}).text
    assert "<b>1</b>" in alone and ">no record</pre>" in alone


@pytest.fixture
def pressed(lake: Lake) -> Iterator[Callable[[str, str], str]]:
    """Plans a write of a table and presses its button; returns the pages before and after."""
    served = ServedLake(lake)
    with closing(served), closing(Writes(served, lambda _: {})) as writes:
        pages = LakePages(served, writes).application()

        def press(table: str, choices: str) -> str:
            place = Response(pages, f"/plan?table={table}&{choices}", {"host": "x"}).headers["location"]
            before = ended(place)
            for _ in range(2):  # the second press finds the outcome of the first
                assert Response(pages, place, {"host": "x"}, "POST").status == 303
            return unescape(before + ended(place))

        def ended(place: str) -> str:
            while "Look again" in (page := Response(pages, place, {"host": "x"}).text):
                pass  # the page has waited
            return page

        yield press


@pytest.mark.nightly
@pytest.mark.iceberg_only("a page calls what the tests of each format call")
def test_a_resolve_is_looked_at_then_done_once_and_undone(
    pressed: Callable[[str, str], str], lake: Lake, table_name: str
) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "total": 5}])
    table.ingest([{"id": 2, "total": "7"}, {"id": 3, "total": "n/a"}])
    resolved = pressed(table.name, "do=resolve&path=total&type=long")
    for said in (
        f"driftline resolve {table.name} total --as long",
        "total become one column of type long",
        "2 of 3 values convert\n",
        "1 value would not convert: n/a",
        "dry run: nothing is written",
        "2 of 3 values converted\n",
        "1 value kept in total_string: n/a",
    ):
        assert said in resolved, said
    assert sorted((row.id, row.total) for row in table.read().collect()) == [(1, 5), (2, 7), (3, None)]
    undone = pressed(table.name, "do=undo")
    assert f"driftline undo {table.name}" in undone and 'Takes back "' in undone and "(resolve)" in undone
    texts = {row.id: row.total_string for row in table.read().collect()}
    assert texts == {1: None, 2: "7", 3: "n/a"}, "the press that came twice took back no more"


@pytest.mark.iceberg_only("a page calls what the tests of each format call")
def test_an_undo_that_would_hide_values_is_refused_and_offered_all_the_same(
    pressed: Callable[[str, str], str], lake: Lake, table_name: str
) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1}])
    table.ingest([{"id": 2, "size": 3}])
    refused = pressed(table.name, "do=undo")
    assert "would hide values: 1 of size" in refused and "--yes" in refused and "&yes=1" in refused
    assert table.schema().schema.find(("size",)) is not None
    assert f"driftline undo {table.name} --yes" in pressed(table.name, "do=undo&yes=1")
    assert table.schema().schema.find(("size",)) is None


@pytest.mark.nightly
@pytest.mark.iceberg_only("a page calls what the tests of each format call")
def test_what_waits_is_replayed_or_discarded_and_what_is_held_promoted(
    pressed: Callable[[str, str], str], lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    for name, lines in {
        "1.jsonl": '{"id": 1}\n{no\n',
        "2.jsonl": '{"id": 2, "new": 4}\n{"id": "x"}\n',
    }.items():
        (tmp_path / name).write_text(lines)
        table.ingest(tmp_path / name)
    table.ingest([{"id": 3, "held": 1}], settings={"new_fields": "hold", "policy": "preserve"})
    promoted = pressed(table.name, "do=promote&path=held")
    assert f"driftline promote {table.name} held" in promoted
    assert "1 value would get columns" in promoted and "1 value got columns" in promoted
    assert "2.jsonl" in pressed(table.name, "do=discard&source=2.jsonl")
    replayed = pressed(table.name, "do=replay")
    assert f"driftline quarantine {table.name} --replay" in replayed
    assert "1 record in quarantine: each is ingested again" in replayed
    assert "stays in quarantine: it is not a valid record" in replayed and "--discard hides it" in replayed
    assert table.quarantine().waiting == 1
    assert "1 record discarded" in pressed(table.name, "do=discard")
    assert table.quarantine().waiting == 0


@pytest.mark.nightly
def test_a_query_reads_nothing_outside_the_lake_and_writes_nothing_even_unchecked(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    secret, out = tmp_path / "secret.csv", tmp_path / "out.csv"
    secret.write_text("a\nhidden\n")
    lake.table(table_name).ingest([{"id": 1}])
    embedded = without_spark(lake)
    inside = Path(embedded.folders()[0], "out.csv")
    expected = {
        f"SELECT id FROM {table_name}": "[['1']]",
        f"SELECT * FROM read_csv('{secret}')": CLOSED,
        f"SELECT * FROM glob('{tmp_path}/*')": CLOSED,
        f"COPY (SELECT 1) TO '{out}'": CLOSED,
        f"COPY (SELECT 1) TO '{inside}'": "File too large",
    }
    command = [sys.executable, "-c", UNCHECKED, str(embedded.folder), embedded.ducklake or "", *expected]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    for (sql, answer), line in zip(expected.items(), run.stdout.splitlines(), strict=True):
        assert answer in line, sql
    assert not out.exists()
    assert not inside.exists() or not inside.stat().st_size
    inside.unlink(missing_ok=True)
