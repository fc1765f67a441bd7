"""alter, history and undo on the command line, from ADD to undo. One process runs the commands one after the other."""

from __future__ import annotations

import json

import pytest

from answering import Commands, Done
from json_output import faults

RECORDS = """\
{"id": 1, "customer": {"name": "Ann"}, "note": "gift", "total": 9.5}
{"id": 2, "customer": {"name": "Bo"}, "note": "none", "total": 20}
"""
T = "shop.orders"
COMMANDS = {
    "no lake": ["alter", f"ALTER TABLE {T} DROP COLUMN note"],
    "ingest": ["ingest", "in.jsonl", "--into", T],
    "v2": ["alter", f"ALTER TABLE {T} ADD COLUMN channel string DEFAULT 'web'"],
    "add": ["alter", f"ALTER TABLE {T} ADD COLUMN channel string DEFAULT 'web'", "--upgrade"],
    "rename and drop": [
        "alter",
        f"ALTER TABLE {T} RENAME customer.name TO full_name; ALTER TABLE {T} DROP COLUMN note",
    ],
    "layout": ["alter", f"ALTER TABLE {T} ADD PARTITION FIELD bucket(4, id); ALTER TABLE {T} WRITE ORDERED BY id"],
    "ingest again": ["ingest", "in.jsonl", "--into", T, "--again"],
    "files": ["schema", T, "--layout"],
    "files json": ["schema", T, "--layout", "--json"],
    "schema": ["schema", T],
    "history": ["history", T],
    "history json": ["history", T, "--json"],
    "diff": ["history", T, "--diff", "0", "2"],
    "diff json": ["history", T, "--diff", "0", "2", "--json"],
    "no version": ["history", T, "--diff", "0", "9"],
    "undo": ["undo", T],
    "undo more": ["undo", T, "--to", "1"],
    "undo yes": ["undo", T, "--to", "1", "--yes"],
    "undo json": ["undo", T, "--yes", "--json"],
    "rows": ["query", f"select * from {T} order by id, channel", "--json"],
    "mistake": ["alter", f"ALTER TABLE {T} RENAME customer.nme TO x"],
    "alter json": ["alter", f"ALTER TABLE {T} ALTER total COMMENT 'in euros'", "--json"],
    "no sql": ["alter", "SELECT 1"],
    "no table": ["undo", "shop.nothing"],
}  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, command_line: Commands) -> dict[str, Done]:
    here = tmp_path_factory.mktemp("here")
    (here / "in.jsonl").write_text(RECORDS)
    return command_line.each(here, COMMANDS)


def test_from_add_to_undo(done: dict[str, Done]) -> None:
    assert done["add"] == Done(0, "shop.orders  schema 1\n  new channel string, web in old rows\n", "")
    assert done["rename and drop"].out == (
        "shop.orders  schema 2\n"
        "  customer.name is now full_name\n"
        "  note dropped\n"
        "      the next string of note makes note string, empty in the rows before\n"
        "      customer.full_name is still filled from name\n"
    )
    assert "partitioned by bucket(4, id) too\n  sorted by id\n" in done["layout"].out
    assert "new column: note string" in done["ingest again"].out
    assert done["undo"].code == 1
    assert "would hide values: 2 of note" in done["undo"].err
    assert "pass --yes" in done["undo"].err
    assert done["undo more"].code == 1
    assert done["undo yes"] == Done(
        0,
        "shop.orders  schema 1\n"
        "  taken back: all since schema 1\n"
        "  note dropped\n"
        "  customer.full_name is now name\n"
        "  new note string\n"
        "      back: 2 values of note\n"
        "      hidden: 2 values of note; undo brings them back\n",
        "",
    )


def test_layout(done: dict[str, Done]) -> None:
    first, old, new = done["files"].out.splitlines()
    assert first == "shop.orders  sorted by id"
    assert old.split()[:4] == ["not", "partitioned", "1", "file"]
    assert new.strip().startswith("bucket(4, id)") and new.endswith("new files")
    assert [g["records"] for g in json.loads(done["files json"].out)["partitions"]] == [2, 2]


def test_schema_shows_defaults(done: dict[str, Done]) -> None:
    assert "channel string #" in done["schema"].out
    assert "default web" in done["schema"].out
    assert "← name" in done["schema"].out


def test_history(done: dict[str, Done]) -> None:
    entries = [json.loads(line) for line in done["history json"].out.splitlines()]
    assert [e["by"] for e in entries] == ["batch", "alter", "alter", "alter", "batch"]
    lines = done["history"].out.splitlines()
    assert sum(line.startswith("schema ") for line in lines) == 5
    assert "  note dropped" in lines
    assert "  customer.name is now full_name" in lines
    assert not any("upsolver_evolved_from" in line for line in lines)
    assert "  note dropped" in done["diff"].out.splitlines()
    assert json.loads(done["diff json"].out)["changes"][0] == {"action": "drop", "path": "note"}
    assert done["no version"].code == 2


def test_errors(done: dict[str, Done]) -> None:
    assert done["no lake"].code == 2
    assert "there is no lake" in done["no lake"].err
    assert done["v2"].code == 1
    assert "a table of format v2 has no defaults, v3 has them" in done["v2"].err
    assert "--upgrade" in done["v2"].err
    assert done["mistake"] == Done(
        2,
        "",
        "error: there is no column customer.nme\n"
        "  ALTER TABLE shop.orders RENAME customer.nme TO x\n"
        f"  {' ' * 24}{'^' * 24}\n"
        "  did you mean customer.full_name?\n",
    )
    assert done["no sql"].code == 2
    assert "is not ALTER TABLE" in done["no sql"].err
    assert done["no table"].code == 2


def test_json_is_as_its_schema_says(done: dict[str, Done]) -> None:
    assert list(faults(COMMANDS, done)) == []


def test_json(done: dict[str, Done]) -> None:
    assert json.loads(done["alter json"].out)["changes"] == [
        {"action": "comment", "path": "total", "comment": "in euros"}
    ]
    told = json.loads(done["undo json"].out)
    assert told["hidden"] == {"note": 2}
    assert [json.loads(line)["channel"] for line in done["rows"].out.splitlines()] == ["web"] * 4
