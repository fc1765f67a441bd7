"""Programs of servers that Go builds, once, into the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from driftline.runtime.jars import cache_folder


def built_by_go(module: str, version: str) -> Path | None:
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
            [go, "install", f"{module}@{version}"],
            env={**os.environ, "GOBIN": draft, "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{module}@{version} could not be built:\n{done.stderr[-3000:]}")
        Path(draft, name).replace(program)
    return program
