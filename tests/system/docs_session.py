"""Sessions of the docs: the files, commands and Python of a page, run in a folder of their own, beside the demo's files.

`python tests/system/docs_session.py` runs each page, and writes what its commands print into it.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import driftline
from answering import Commands, commands

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/alter.md",
    "docs/backup.md",
    "docs/captures.md",
    "docs/changes.md",
    "docs/expectations.md",
    "docs/keys.md",
    "docs/many-tables.md",
    "docs/maps.md",
    "docs/pull-requests.md",
    "docs/audit.md",
    "docs/rest.md",
    "docs/settle.md",
    "docs/stats.md",
)
_FENCE = re.compile(
    r'^```(json|toml|console|python)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL
)
CLOSES_CATALOGS = """
from pyspark.sql import SparkSession
if session := SparkSession.getActiveSession():
    session._jsparkSession.sessionState().catalogManager().reset()
"""
# What differs from run to run: moments, ids of batches, the size of files.
_VARYING = (
    (re.compile(r"\b20\d\d-\d\d-\d\d \d\d:\d\d(:\d\d)?Z?"), "MOMENT"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "BATCH"),
    (re.compile(r" +\d[\d.]* k?B\b"), " SIZE"),
)
OPENED = "import driftline; lake = driftline.Lake.open('lake'); spark = lake.spark\n"


@dataclass(frozen=True)
class Step:
    """A command of a page, and what it is said to print; or lines of Python, of which nothing is said."""

    text: str
    output: str | None


def steps(page: str, folder: Path) -> Iterator[Step]:
    """The steps of a page, in order; files that it shows are written to `folder` as they come."""
    for kind, title, body in _FENCE.findall(page):
        if title:
            (folder / title).parent.mkdir(exist_ok=True)
            (folder / title).write_text(body)
        elif kind == "python":
            yield Step(body, None)
        elif kind == "console":
            for block in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = block.partition("\n")
                yield Step(command, output.strip("\n"))


class Shell:
    """Runs steps in a ``process`` of driftline's commands, one after the other, so that Java starts once for all pages."""

    def __init__(self, process: Commands) -> None:
        self.process = process

    def run(self, step: Step, folder: Path) -> str:
        """The output of a step; behind `>` stands the file that it prints into."""
        if step.output is None:
            done = self.process.python(folder, OPENED + step.text)
            assert done.code == 0, done.err
            return done.out + done.err
        command, _, file = step.text.partition(" > ")
        program, *words = shlex.split(command)
        if program in ("cp", "mv"):
            subprocess.run([program, *words], cwd=folder, check=True)
            if program == "mv":  # a process that has a catalog open has it wherever it lies
                done = self.process.python(folder, CLOSES_CATALOGS)
                assert done.code == 0, done.err
            return ""
        assert program == "driftline", command
        done = self.process.run(folder, *words)
        if file:
            (folder / file).write_text(done.out)
            return done.err
        lines = (done.out + done.err).replace(f"{folder}/", "").strip("\n").splitlines()
        return "\n".join(line.rstrip() for line in lines)


@contextmanager
def own_shell() -> Iterator[Shell]:
    """A shell with a process of its own, in the environment of now. Java's log may be seen."""
    with commands() as process:
        process.silent = False
        yield Shell(process)


def followed(
    page: str, folder: Path, shell: Shell, others: Mapping[str, Callable[..., object]]
) -> Iterator[tuple[Step, str]]:
    """The steps of a page that are driftline's, and what each prints now. ``others``: what is done where the page
    runs other programs, by their names.
    """
    for step in steps(page, folder):
        program, *words = shlex.split(step.text)
        if program in others:
            others[program](*words)
        else:
            yield step, shell.run(step, folder)


def comparable(output: str) -> str:
    """An output without what differs from run to run."""
    for pattern, name in _VARYING:
        output = pattern.sub(name, output)
    return output


def demo_files(folder: Path) -> None:
    """Puts the demo's files into the folder, which some pages go by."""
    shutil.copytree(Path(driftline.__file__).parent / "demo" / "data", folder, dirs_exist_ok=True)


def rewritten(page: str, folder: Path, shell: Shell) -> str:
    """The page with what its commands print now."""
    outputs = iter([(step, shell.run(step, folder)) for step in steps(page, folder)])

    def block(match: re.Match[str]) -> str:
        if match[1] == "python" and not match[2]:
            next(outputs)
        if match[1] != "console":
            return match[0]
        count = len(re.findall(r"^\$ ", match[3], re.MULTILINE))
        ran = [next(outputs) for _ in range(count)]
        return (
            "```console\n"
            + "\n\n".join(f"$ {step.text}\n{output}".rstrip() for step, output in ran)
            + "\n```"
        )

    return _FENCE.sub(block, page)


def rewrite(names: tuple[str, ...]) -> None:
    """Runs pages, and writes into each what it prints."""
    with own_shell() as shell:
        for name in names:
            path = ROOT / name
            with tempfile.TemporaryDirectory() as folder:
                demo_files(Path(folder))
                path.write_text(rewritten(path.read_text(), Path(folder), shell))


if __name__ == "__main__":
    rewrite(tuple(sys.argv[1:]) or PAGES)
