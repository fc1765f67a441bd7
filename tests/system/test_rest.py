"""The command line on a REST catalog, which driftline.toml names."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from driftline.runtime.java import QUICK
from servers.rest import Rest


@pytest.fixture(scope="module")
def here(rest: Rest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here")
    (folder / "driftline.toml").write_text(f'[catalog]\ntype = "rest"\nuri = "{rest.uri}"\n')
    (folder / "in").mkdir()
    (folder / "in" / "1.jsonl").write_text('{"id": 1}\n{"id": 2, "at": "2026-03-02T04:05:06Z"}\n')
    (folder / "in" / "2.jsonl").write_text('{"id": "x"}\n{"id": [3]}\nbroken\n')
    return folder


def run(here: Path, *args: str) -> list[dict]:
    env = {**os.environ, "SPARK_SUBMIT_OPTS": QUICK}
    command = [sys.executable, "-m", "driftline", *args, "--json"]
    ran = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_a_capture_with_its_checkpoint_beside_it(here: Path) -> None:
    command = (
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
    )
    batches = run(here, *command)
    assert [(b["rows_written"], b["rows_quarantined"]) for b in batches] == [(2, 0), (2, 1)]
    assert run(here, *command) == []
    (verdict,) = run(here, "verify", "in", "--table", "shop.events")
    assert verdict["ok"]
    rows = run(here, "query", "select id, id_string, id_array_long from shop.events order by 1, 2")
    assert [list(row.values()) for row in rows] == [
        [None, None, [3]],
        [None, "x", None],
        [1, None, None],
        [2, None, None],
    ]


def test_doctor_asks_the_catalog(here: Path) -> None:
    (found,) = run(here, "doctor")
    assert {check["name"]: check["ok"] for check in found["checks"]}["catalog"]
