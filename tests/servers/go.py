"""Servers whose programs Go builds, once, into the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from driftline.runtime.jars import cache_folder
from servers.machine import lacking
from servers.process import ServerProcess, free_port


class GoServer(ServerProcess):
    """A server at a port of this machine, with its files in ``folder``; ``title`` is its name in a sentence."""

    title: ClassVar[str]
    module: ClassVar[str]
    version: ClassVar[str]

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.port = port or free_port()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @classmethod
    def program(cls) -> Path | None:
        """The program, built where it is not there yet; None where there is no Go."""
        return _built(cls.module, cls.version)

    @classmethod
    def needed(cls) -> None:
        """Skip the test where there is no Go; in CI it fails."""
        if cls.program() is None:
            lacking(f"Go, which builds {cls.title}", "apt-get install golang")

    def _required_program(self) -> str:
        program = self.program()
        if program is None:
            raise RuntimeError(f"there is no Go to build {self.title} with: apt-get install golang")
        return str(program)


def _built(module: str, version: str) -> Path | None:
    """The program of a module; built where the cache has not got it. None where there is no Go."""
    name = module.rpartition("/")[2]
    program = cache_folder() / "servers" / f"{name}-{version}"
    go = shutil.which("go")
    if program.exists() or go is None:
        return program if program.exists() else None
    program.parent.mkdir(exist_ok=True)
    # Another process may do the same at this moment: what stands under the name is whole.
    with TemporaryDirectory(dir=program.parent) as draft:
        done = subprocess.run(
            # Without optimizations a program is there in two thirds of the time.
            [go, "install", "-gcflags=all=-N -l", "-ldflags=-s -w", f"{module}@{version}"],
            env={**os.environ, "GOBIN": draft, "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{module}@{version} could not be built:\n{done.stderr[-3000:]}")
        Path(draft, name).replace(program)
    return program
