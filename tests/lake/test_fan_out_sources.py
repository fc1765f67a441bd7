"""The tables of a pattern from each kind of source: each is as if its records had come alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import DataError, UsageError
from driftline.lake import Lake, Table

ONE, TWO_BATCHES, TWO_FILES = [[range(1, 11)]], [[range(1, 5)], [range(5, 11)]], [[range(1, 5), range(5, 11)]]


@pytest.fixture
def space(lake: Lake, table_name: str) -> Iterator[str]:
    """A namespace of the test's own."""
    namespace = table_name.replace(".", "_")
    yield namespace
    for name in lake.format.tables():
        if name.startswith(f"{namespace}.") and not name.endswith("__quarantine"):
            lake.format.drop(name, purge=False, dry_run=False)


def content(table: Table) -> tuple[list[str], list[str], list[tuple[str, int, str]]]:
    """The columns of a table, its rows, and what waits in its quarantine."""
    found = [
        json.dumps(row.asDict(recursive=True), sort_keys=True, default=str) for row in table.read().collect()
    ]
    quarantine, waiting = f"{table.name}__quarantine", []
    if quarantine in table.lake.format.tables():
        rejects = table.lake.sql(
            f"SELECT source, line, reason FROM {table.lake.format.sql_name(quarantine)}"
        ).collect()
        waiting = [(Path(row.source).name, row.line, row.reason) for row in rejects]
    return str(table.schema()).split("\n")[1:], sorted(found), sorted(waiting)


def assert_as_alone(lake: Lake, space: str, names: list[str]) -> None:
    """Each table is that of the same name in whose place `_alone` stands for its folder."""
    for name in names:
        dealt = content(lake.table(f"{space}.{name}"))
        columns, rows, waiting = content(lake.table(f"{space}.{name}_alone"))
        assert dealt == (columns, [row.replace(f"/{name}_alone/", "/all/") for row in rows], waiting)


CSV = [
    "event;n;at;note;only",
    "push;1;2026-03-02;x;",
    'ping;007;later;"a; ""b""\nc";TRUE',
    "Push;2,5;;;",
    "push;3;4",
    ";4;;;",
    "ping;8;2026-03-02;y;false",
    "# no record",
    "push;1.000,5;2026-03-03;z;",
    'ping;9;;"never closed;',
    "7,0;1;;;",
]
OF_CSV = {"push": (1, 3, 8), "ping": (2, 6), "_other": (4, 5, 9), "7": (10,)}


@pytest.mark.parametrize(
    "batches",
    [ONE, pytest.param(TWO_BATCHES, marks=pytest.mark.nightly), TWO_FILES],
)
def test_types_of_csv_are_judged_table_by_table(
    lake: Lake, space: str, tmp_path: Path, batches: list[list[range]]
) -> None:
    settings: dict[str, Any] = {
        "delimiter": ";", "decimal": ",", "thousands": ".", "comment": "#", "metadata": "file,line",
    }  # fmt: skip
    tables = lake.fan_out(f"{space}.{{event}}")
    for number, batch in enumerate(batches):
        named = {f"{number}{part}.csv": lines for part, lines in enumerate(batch)}
        folders = {"all": tuple(range(1, 11)), **{f"{name}_alone": of for name, of in OF_CSV.items()}}
        for folder, chosen in folders.items():
            (tmp_path / folder).mkdir(exist_ok=True)
            for name, lines in named.items():
                blank = ["\n" * CSV[line].count("\n") for line in lines]
                text = [CSV[line] if line in chosen else "" for line in lines]
                text = [here or gone for here, gone in zip(text, blank, strict=True)]
                (tmp_path / folder / name).write_text("\n".join([CSV[0], *text]) + "\n")
            files = [tmp_path / folder / name for name in named]
            if folder == "all":
                tables.ingest(files, **settings)
            elif any(line in chosen for lines in batch for line in lines):
                lake.table(f"{space}.{folder}").ingest(files, **settings)
    assert_as_alone(lake, space, list(OF_CSV))
    verdict = tables.verify(
        [tmp_path / "all" / file.name for file in (tmp_path / "all").iterdir()], exactly=True
    )
    assert verdict.ok and (verdict.records, verdict.found, verdict.quarantined) == (9, 7, 2)


def test_files_of_csv_are_read_once_by_one_dialect(lake: Lake, space: str, tmp_path: Path) -> None:
    first = tmp_path / "day=3" / "a.csv"
    first.parent.mkdir()
    first.write_text("Kind,n\npush,1\n,NA\nping,x\n")
    folded = lake.fan_out(f"{space}_f.{{kind}}_{{day}}")
    result = folded.ingest(first, names="fold", nulls="NA", max_record_bytes=9)
    assert [of_table.table for of_table in result.results] == [
        f"{space}_f.{name}" for name in ("push_3", "_other", "ping_3")
    ]
    push = lake.table(f"{space}_f.push_3").read().collect()
    assert [row.asDict() for row in push] == [{"Kind": "push", "n": 1, "day": 3}]
    assert folded.verify(first, exactly=True).ok
    by_file = lake.fan_out(f"{space}.{{_file.stem}}")
    other = tmp_path / "b.csv"
    other.write_bytes(b"a,b\n1,2\n3,\xff\n")
    with pytest.raises(DataError, match=r"b\.csv:3: byte 0xff is not UTF-8"):
        by_file.ingest(other)
    by_file.ingest(other, encoding="latin1")
    rows = lake.table(f"{space}.b").read().orderBy("a").collect()
    assert [tuple(row) for row in rows] == [(1, 2, "2"), (3, None, "ÿ")]
    with pytest.raises(UsageError, match="b has encoding = iso8859-1, and the files are read once"):
        by_file.ingest(first.with_name("b.csv").write_text("a,b\n5,6\n") and first.with_name("b.csv"))
    for name in [name for name in lake.format.tables() if name.startswith(f"{space}_f.")]:
        if not name.endswith("__quarantine"):
            lake.format.drop(name, purge=False, dry_run=False)


def test_a_capture_deals_lines_that_are_added_to_files_of_csv(lake: Lake, space: str, tmp_path: Path) -> None:
    file, folder = tmp_path / "in" / "a.csv", tmp_path / "in"
    folder.mkdir()
    tables, numbers = lake.fan_out(f"{space}.{{event}}"), []
    for text in ("event,n\na,1\n", "b,2\na,x\n"):
        with file.open("a") as opened:
            opened.write(text)
        query = tables.capture(
            folder, name="c", checkpoint=tmp_path / "c", changed_files="append", metadata="line"
        )
        assert query.awaitTermination(120)
    for name in "ab":
        rows = lake.table(f"{space}.{name}").read().collect()
        numbers += [(name, row["_source"]["line"]) for row in rows]
    assert sorted(numbers) == [("a", 2), ("a", 4), ("b", 3)]
