"""The completion of bash, by the script that `--show-completion` prints, and with the words as bash splits them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from answering import Commands

COMMANDS = [
    ["ingest", "1.jsonl", "--into", "shop.orders", "--set", "new_fields=hold"],
    ["ingest", "2.jsonl", "--into", "shop.orders"],
    ["tables"],
]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, command_line: Commands) -> Path:
    folder = tmp_path_factory.mktemp("here")
    (folder / "1.jsonl").write_text('{"id": 1, "total": 1, "who": {"name": "Ann"}}\n')
    (folder / "2.jsonl").write_text('{"id": 2, "who": {"age": 7}, "basket": [{"n": 1}]}\n')
    command = folder / "bin" / "driftline"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m driftline "$@"\n')
    command.chmod(0o755)

    for argv in COMMANDS:
        command_line.run(folder, *argv)
    # From a shell, as the option prints the script of the shell that runs it.
    run_by(folder, "driftline --show-completion > completion.bash; true")
    return folder


def run_by(folder: Path, script: str) -> str:
    """The output of a script in bash, which finds the command. Whatever is printed past it is an error."""
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    return done.stdout


def completed(folder: Path, line: str) -> list[str]:
    """The words that bash may put in place of the last one. It splits words at blanks and at each = as it does with the keyboard."""
    words = [word for part in line.split(" ") for word in (re.split("(=)", part) if "=" in part else [part])]
    words = [word for i, word in enumerate(words) if word or (i == len(words) - 1 and not line.endswith("="))]
    listed = " ".join(f"'{word}'" for word in words)
    script = f"""
        . ./completion.bash
        COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}
        _driftline_completion driftline
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return run_by(folder, script).split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("driftline sta", ["stats"]),
        ("driftline stats s", ["shop.orders"]),
        ("driftline stats shop.orders who", ["who", "who.name"]),
        ("driftline stats shop.orders id to", ["total"]),
        ("driftline resolve shop.orders to", ["total"]),
        ("driftline promote shop.orders ", ["basket", "who.age"]),
        ("driftline promote shop.orders basket w", ["who.age"]),
        ("driftline --lake=lake stats s", ["shop.orders"]),
        ("driftline stats --lake=lake shop.orders to", ["total"]),
        ("driftline stats --lake=elsewhere s", []),
        ("driftline ingest 1.jsonl --policy=st", ["strict"]),
        ("driftline ingest 1.jsonl --set poli", ["policy=preserve", "policy=widen", "policy=strict"]),
        ("driftline ingest 1.jsonl --set policy=", ["preserve", "widen", "strict"]),
        ("driftline ingest 1.jsonl --set policy=pr", ["preserve"]),
        ("driftline ingest 1.jsonl --into shop.orders --key id,to", ["id,total"]),
        ("driftline ingest 1.jsonl --into shop.orders --exclude who.", ["who.name"]),
        ("driftline ingest 1.jsonl --into shop.orders --hint total=do", ["double"]),
        ("driftline view shop.orders --as id=lo", ["long"]),
    ],
)  # fmt: skip
def test_bash_completes(here: Path, line: str, words: list[str]) -> None:
    assert completed(here, line) == words
