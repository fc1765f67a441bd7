"""The command line on a REST catalog, which driftline.toml names."""

import json
from pathlib import Path

import pytest

from answering import Commands
from servers.rest import Rest


@pytest.fixture(scope="module")
def here(rest: Rest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here")
    (folder / "driftline.toml").write_text(f'[catalog]\ntype = "rest"\nuri = "{rest.uri}"\n')
    (folder / "in").mkdir()
    (folder / "in" / "1.jsonl").write_text('{"id": 1}\n{"id": 2, "at": "2026-03-02T04:05:06Z"}\n')
    (folder / "in" / "2.jsonl").write_text('{"id": "x"}\n{"id": [3]}\nbroken\n')
    return folder


CAPTURE = [
    "capture",
    "in",
    "--into",
    "shop.events",
    "--name",
    "events",
    "--max-files",
    "1",
    "--checkpoint",
    "kept",
    "--json",
]
COMMANDS = {
    "capture": CAPTURE,
    "nothing new": CAPTURE,
    "verify": ["verify", "in", "--table", "shop.events", "--json"],
    "query": ["query", "select id, id_string, id_array_long from shop.events order by 1, 2", "--json"],
    "doctor": ["doctor", "--json"],
}  # fmt: skip


@pytest.fixture(scope="module")
def done(here: Path, command_line: Commands) -> dict[str, list[dict]]:
    """The output of each of `COMMANDS`."""
    each = command_line.each(here, COMMANDS)
    assert {(one.code, one.err) for one in each.values()} == {(0, "")}, each
    return {name: [json.loads(line) for line in one.out.splitlines()] for name, one in each.items()}


def test_a_capture_with_its_checkpoint_beside_it(here: Path, done: dict[str, list[dict]]) -> None:
    batches = done["capture"]
    assert [(b["rows_written"], b["rows_quarantined"]) for b in batches] == [(2, 0), (2, 1)]
    assert done["nothing new"] == []
    assert (here / "kept").is_dir()
    (verdict,) = done["verify"]
    assert verdict["ok"]
    assert [list(row.values()) for row in done["query"]] == [
        [None, None, [3]],
        [None, "x", None],
        [1, None, None],
        [2, None, None],
    ]


def test_doctor_asks_the_catalog(done: dict[str, list[dict]]) -> None:
    (found,) = done["doctor"]
    assert {check["name"]: check["ok"] for check in found["checks"]}["catalog"]
