"""Sessions of the docs: the files, commands and Python of a page, run in a folder of their own, beside the demo's files.

`python tests/system/docs_session.py` runs each page, and writes what its commands print into it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from threading import Timer
from typing import Any, Self

import driftline
from driftline.runtime.jars import find_jars
from driftline.runtime.session import prepare_environment

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
# What differs from run to run: moments, ids of batches, the size of files.
_VARYING = (
    (re.compile(r"\b20\d\d-\d\d-\d\d \d\d:\d\d(:\d\d)?Z?"), "MOMENT"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "BATCH"),
    (re.compile(r" +\d[\d.]* k?B\b"), " SIZE"),
)
_SECONDS = 300  # for a command


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
    """A process that runs driftline's commands one after the other, without colours, so that Java starts once for
    all pages.
    """

    def __enter__(self) -> Self:
        environment = os.environ | {"NO_COLOR": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.stdin.close()

    def run(self, step: Step, folder: Path) -> str:
        """The output of a step; behind `>` stands the file that it prints into."""
        if step.output is None:
            return self._asked(folder, step.text)
        command, _, file = step.text.partition(" > ")
        program, *words = shlex.split(command)
        if program in ("cp", "mv"):
            subprocess.run([program, *words], cwd=folder, check=True)
            if program == "mv":  # a process that has a catalog open has it wherever it lies
                self.__exit__()
                self.__enter__()
            return ""
        assert program == "driftline", command
        printed = self._asked(folder, words)
        if file:
            (folder / file).write_text(printed)
            return ""
        lines = printed.replace(f"{folder}/", "").strip("\n").splitlines()
        return "\n".join(line.rstrip() for line in lines)

    def _asked(self, folder: Path, what: str | list[str]) -> str:
        """The output of the process for lines of Python, or for a command by its words."""
        timer = Timer(_SECONDS, self._process.kill)
        timer.start()
        self._process.stdin.write(json.dumps([str(folder), what]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        timer.cancel()
        assert answer, f"{what}: ended, or took {_SECONDS} s"
        printed: str = json.loads(answer)
        return printed


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


def serve() -> None:
    """Serve as the process of a shell: each line of standard input names a folder, and what to run in it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Java inherits it
    prepare_environment()
    find_jars()  # a first command would say that it downloads them
    names: dict[str, Any] = {}
    for line in sys.stdin:
        folder, what = json.loads(line)
        os.chdir(folder)
        printed = StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            if isinstance(what, str):
                names["lake"] = driftline.Lake.open("lake")
                names["spark"] = names["lake"].spark
                exec(what, names)
            else:
                _command(what)
        print(json.dumps(printed.getvalue()), file=answers, flush=True)


def _command(words: list[str]) -> None:
    from driftline.cli import main

    with suppress(SystemExit):  # a page shows what is printed
        main(words)


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
    with Shell() as shell:
        for name in names:
            path = ROOT / name
            with tempfile.TemporaryDirectory() as folder:
                demo_files(Path(folder))
                path.write_text(rewritten(path.read_text(), Path(folder), shell))


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        rewrite(tuple(sys.argv[1:]) or PAGES)
