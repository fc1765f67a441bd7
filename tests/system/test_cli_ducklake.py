"""The commands on a DuckLake that driftline.toml names. One process runs them one after the other."""

from __future__ import annotations

import json

import pytest

from answering import Commands, Done
from json_output import faults

DAY_1 = """\
{"id": 1, "at": "2026-03-02T08:00:00Z", "note": "gift", "s": {"x": 1}}
{"id": 2, "at": "2026-03-02T09:00:00Z", "note": "none", "s": {"x": 2}}
"""
DAY_2 = """\
{"id": "E-3", "at": "2026-04-03T08:00:00Z", "s": {"x": 3}}
{"id": 4, "at
"""
T = "shop.orders"
DUCKDB = f'select id, channel, note, s.x from {T} order by "at"'


def alter(*changes: str) -> list[str]:
    return ["alter", "; ".join(f"ALTER TABLE {T} {change}" for change in changes)]


COMMANDS = {
    "no lake": ["schema", T],
    "doctor": ["doctor"],
    "ingest": ["ingest", "1.jsonl", "--into", T],
    "add": alter("ADD COLUMN channel string NOT NULL DEFAULT 'web' COMMENT 'where'"),
    "layout": alter("SET PARTITIONED BY (year(at), month(at))", "SET SORTED BY (id DESC)"),
    "capture": ["capture", "in", "--into", T, "--name", "c"],
    "capture again": ["capture", "in", "--into", T, "--name", "c"],
    "schema": ["schema", T],
    "files": ["schema", T, "--layout"],
    "files json": ["schema", T, "--layout", "--json"],
    "verify": ["verify", "1.jsonl", "in/2.jsonl", "--table", T],
    "quarantine": ["quarantine", T, "--json"],
    "stats": ["stats", T, "--json"],
    "stats text": ["stats", T],
    "stats exact": ["stats", T, "--exact", "--json"],
    "rename and drop": alter("RENAME s.x TO y", "DROP COLUMN note"),
    "undo": ["undo", T],
    "undo too much": ["undo", T, "--to", "1"],
    "history": ["history", T],
    "history json": ["history", T, "--json"],
    "diff": ["history", T, "--diff", "1", "2"],
    "query": ["query", f"select id, channel, note, s.x from {T} order by at", "--json"],
    "earlier": ["query", f"select * from {T} version as of 1", "--json"],
    "by duckdb": ["query", DUCKDB, "--engine", "duckdb", "--json"],
    "tables": ["tables", "--json"],
    "view": ["view", T],
    "clean": ["clean", "--older-than", "0", "--json"],
    "other table": ["stats", "shop.order"],
    "lossy": alter("ALTER s.x TYPE double"),
    "loss": ["verify", "other.jsonl", "--table", T],
    "resolve dry": ["resolve", T, "s.x", "--as", "string", "--dry-run"],
    "resolve": ["resolve", T, "s.x", "--as", "string"],
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, command_line: Commands) -> dict[str, Done]:
    here = tmp_path_factory.mktemp("here")
    (here / "driftline.toml").write_text('format = "ducklake"\n')
    (here / "1.jsonl").write_text(DAY_1)
    (here / "in").mkdir()
    (here / "in" / "2.jsonl").write_text(DAY_2)
    (here / "other.jsonl").write_text('{"id": 9}\n')
    return command_line.each(here, COMMANDS)


def test_no_command_fails_that_should_not(done: dict[str, Done]) -> None:
    codes = {name: ended.code for name, ended in done.items() if ended.code}
    assert codes == {"no lake": 2, "other table": 2, "undo too much": 1, "lossy": 1, "loss": 1}, done
    assert "DuckDB 1.5" in done["doctor"].out
    assert "there is no lake" in done["no lake"].err
    assert "there is no table shop.order in " in done["other table"].err
    assert "did you mean shop.orders?" in done["other table"].err


def test_new_row_ids_are_told_before_rows_are_written_anew(done: dict[str, Done]) -> None:
    told = "all rows get new row ids: a DuckLake numbers the rows of each new file\n"
    assert f"\n  {told}" in done["resolve dry"].out
    assert done["resolve"].err == told


def test_from_add_to_undo(done: dict[str, Done]) -> None:
    assert done["add"].out == f"{T}  schema 2\n  new channel string, web in old rows\n"
    assert "1 batch" in done["capture"].out
    assert "0 batches" in done["capture again"].out or "nothing" in done["capture again"].out
    assert "channel string #6  required  default web  where" in done["schema"].out
    assert "id_string string" in done["schema"].out and "← id" in done["schema"].out
    assert done["undo"].out.splitlines()[1:] == [
        '  taken back: "note dropped; s.x is now y" (alter)',
        "  s.y is now x",
        "  new note string",
        "      back: 2 values of note",
    ]
    assert "would hide values: 3 of channel" in done["undo too much"].err
    entries = [json.loads(line) for line in done["history json"].out.splitlines()]
    assert [e["by"] for e in entries] == ["batch", "alter", "alter", "batch", "alter", "undo"]
    assert "partitioned by year(at), month(at)" in done["history"].out
    assert done["diff"].out == f"{T}  schema 1 → schema 2\n  new channel string, web in old rows\n"


def test_json_is_as_its_schema_says(done: dict[str, Done]) -> None:
    assert list(faults(COMMANDS, done)) == []


def test_layout(done: dict[str, Done]) -> None:
    first, old, new = done["files"].out.splitlines()
    assert first == f"{T}  sorted by id desc"
    assert old.split()[:4] == ["not", "partitioned", "1", "file"]
    assert new.strip().startswith("year(at), month(at)") and new.endswith("new files")
    groups = json.loads(done["files json"].out)["partitions"]
    assert [(g["by"], g["files"], g["records"]) for g in groups] == [
        ([], 1, 2),
        (["year(at)", "month(at)"], 1, 1),
    ]


def test_nothing_is_missing(done: dict[str, Done]) -> None:
    assert "nothing is missing  4 records: 3 in shop.orders, 1 in its quarantine" in done["verify"].out
    assert len(json.loads(done["quarantine"].out)["groups"]) == 1
    rows = [json.loads(line) for line in done["query"].out.splitlines()]
    assert rows == [
        {"id": 1, "channel": "web", "note": "gift", "x": 1},
        {"id": 2, "channel": "web", "note": "none", "x": 2},
        {"id": None, "channel": "web", "note": None, "x": 3},
    ]
    assert done["by duckdb"].out == done["query"].out
    assert len(done["earlier"].out.splitlines()) == 2
    (listed,) = json.loads(done["tables"].out)
    assert (listed["table"], listed["records"], listed["quarantined"]) == (T, 3, 1)
    assert done["view"].out.startswith(f"{T}_settled  view of {T}, ")
    assert json.loads(done["clean"].out)["files"] == []


def test_statistics_of_the_catalog_are_those_of_a_scan(done: dict[str, Done]) -> None:
    told, counted = json.loads(done["stats"].out), json.loads(done["stats exact"].out)
    assert (told["records"], told["batches"], told["files"]) == (3, 2, 2)
    ours, exact = ({c["path"]: c for c in s["columns"]} for s in (told, counted))
    assert {path: c["values"] for path, c in ours.items()} == {path: c["values"] for path, c in exact.items()}
    for path in ("id", "at", "note", "s.x"):
        assert (ours[path]["min"], ours[path]["max"]) == (exact[path]["min"], exact[path]["max"])
    (drifted,) = told["drifted"]
    assert [(p["type"], p["records"]) for p in drifted["types"]] == [("long", 2), ("string", 1)]
    assert "from metadata" in done["stats text"].out
