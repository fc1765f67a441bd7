"""Sessions of the docs: files and commands of a page, run in a folder of their own.

`python tests/system/docs_session.py PAGE` runs a page and writes what each command prints into it. The README's files are
those of the demo.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import driftline

_FENCE = re.compile(r'^```(json|toml|console)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
# What differs from run to run: moments, ids of batches, the size of a page that names files with their folders.
_VARYING = (
    (re.compile(r"\b20\d\d-\d\d-\d\d \d\d:\d\d(:\d\d)?"), "MOMENT"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "BATCH"),
    (re.compile(r"\b\d+ kB\b"), "SIZE"),
)


@dataclass(frozen=True)
class Step:
    """A command of a page, and what it is said to print."""

    command: str
    output: str


def demo_files(page: Path, folder: Path) -> None:
    """Puts the demo's files into the folder, for the README."""
    if page.name == "README.md":
        shutil.copytree(Path(driftline.__file__).parent / "demo" / "data", folder, dirs_exist_ok=True)


def steps(page: str, folder: Path) -> Iterator[Step]:
    """The commands of a page, in order; files that it shows are written to `folder` as they come."""
    for kind, title, body in _FENCE.findall(page):
        if title:
            (folder / title).write_text(body)
        elif kind == "console":
            for block in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = block.partition("\n")
                yield Step(command, output.strip("\n"))


def run(command: str, folder: Path) -> str:
    """What a command prints at 100 columns, without colours; behind `>` stands the file that it prints into."""
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    plain, _, file = command.partition(" > ")
    words = shlex.split(plain)
    done = subprocess.run(
        [Path(sys.executable).with_name(words[0]), *words[1:]],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip
    if file:
        (folder / file).write_text(done.stdout)
        return ""
    output = done.stdout.replace(f"{folder}/", "").strip("\n")
    return "\n".join(line.rstrip() for line in output.splitlines())


def comparable(output: str) -> str:
    """An output without what differs from run to run."""
    for pattern, name in _VARYING:
        output = pattern.sub(name, output)
    return output


def rewritten(page: str, folder: Path) -> str:
    """The page with what its commands print now."""
    outputs = iter([(step.command, run(step.command, folder)) for step in steps(page, folder)])

    def block(match: re.Match[str]) -> str:
        if match[1] != "console":
            return match[0]
        count = len(re.findall(r"^\$ ", match[3], re.MULTILINE))
        ran = [next(outputs) for _ in range(count)]
        return (
            "```console\n"
            + "\n\n".join(f"$ {command}\n{output}".rstrip() for command, output in ran)
            + "\n```"
        )

    return _FENCE.sub(block, page)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        with tempfile.TemporaryDirectory() as folder:
            demo_files(path, Path(folder))
            path.write_text(rewritten(path.read_text(), Path(folder)))
