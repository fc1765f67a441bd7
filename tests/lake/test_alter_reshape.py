"""Statements that come to several changes: told one by one, in one commit, and taken back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftline.core.changes import in_words
from driftline.lake import Lake, Table

RECORD = {"id": 1, "s": {"a": 1, "b": "x"}, "gone": "g", "l": [{"p": 1, "q": 2}]}
STATEMENTS = {
    "ALTER S SET DATA TYPE STRUCT(A BIGINT, c INTEGER)": ["new s.c int", "s.b dropped"],
    "ALTER l SET DATA TYPE STRUCT(q BIGINT)[]": ["l.element.p dropped"],
    "REPLACE COLUMNS (l array<struct<p: bigint, q: bigint>>, n int, ID bigint)": [
        "l stands first",
        "new n int",
        "s dropped",
        "gone dropped",
    ],
    "CHANGE Id number bigint COMMENT 'of it' AFTER s": [
        'id comment "of it"',
        "id stands after s",
        "id is now number",
    ],
}


def shape(table: Table) -> list[tuple[str, int, str | None]]:
    return [(".".join(path), f.id, f.doc) for path, f in table.schema().schema.walk()]


@pytest.mark.nightly
def test_each_is_told_and_taken_back(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps(RECORD))
    table.ingest(file)
    before = shape(table)
    for action, told in STATEMENTS.items():
        statement = f"ALTER TABLE {table_name} {action}"
        done = lake.alter(statement)
        assert [in_words(change) for change in done.changes] == told
        dropped = [word.split()[0] for word in told if word.endswith("dropped")]
        assert len([note for note in done.notes if note.startswith("the next ")]) == len(dropped)
        (*_, last) = table.history().entries
        assert (last.by, last.record.text) == ("alter", statement)
        undone = table.undo(yes=True)
        assert [values.path for values in undone.back] == dropped
        assert all(values.count == 1 for values in undone.back)
        assert shape(table) == before
    (row,) = table.read().toJSON().collect()
    assert json.loads(row) == RECORD


@pytest.mark.nightly
def test_day_beside_hour_and_back(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps({"at": "2026-01-02T03:04:05Z"}))
    table.ingest(file)
    lake.alter(f"ALTER TABLE {table_name} SET PARTITIONED BY (day(at), hours(at))")
    table.ingest(file, again=True)
    for by in ((), ("day(at)", "hour(at)"), ()):
        table.undo()
        assert [group.by for group in table.layout().groups if group.current] == [by]
    assert table.read().count() == 2
