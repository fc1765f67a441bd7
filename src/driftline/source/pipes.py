"""Pipes as sources: what comes through one comes once, and to this process alone, yet a batch is read more often,
and by Java too. So it is written into a temporary file first."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from driftline.errors import DriftlineError, SetupError, UsageError

STDIN = "-"
_OF_THIS_PROCESS = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/(\d+)")
_CHUNK = 2**20  # bytes that are held at once
_GZIP = b"\x1f\x8b"  # no text begins so


def is_pipe(source: str) -> bool:
    """Whether the source can be read by this process alone, and once: standard input, a FIFO, a descriptor."""
    return source == STDIN or bool(_OF_THIS_PROCESS.fullmatch(source)) or Path(source).is_fifo()


@contextmanager
def spooled(files: Sequence[str]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The files, a temporary one in place of each pipe, and the pipes' names by those; at the end they are deleted.

    Errors that name a temporary file name its pipe. Raises UsageError for a pipe that cannot be read, SetupError
    where there is no room for what comes.
    """
    if not any(map(is_pipe, files)):
        yield list(files), {}
        return
    with tempfile.TemporaryDirectory(prefix="driftline-") as folder:
        names: dict[str, str] = {}
        out = []
        for i, file in enumerate(files):
            if is_pipe(file):
                kept = _copied(file, os.path.realpath(folder) + f"/{i}")
                names[kept] = file
            out.append(kept if is_pipe(file) else file)
        try:
            yield out, names
        except DriftlineError as error:
            _rename(error, names)
            raise


def _copied(pipe: str, path: str) -> str:
    """What comes through the pipe, as a file whose name begins so."""
    try:
        source = _opened(pipe)
    except OSError as error:
        raise UsageError(f"{pipe}: cannot be read: {error.strerror}") from error
    try:
        with source, open(path, "wb") as file:
            head = source.read(_CHUNK)
            file.write(head)
            shutil.copyfileobj(source, file, _CHUNK)
    except OSError as error:
        raise SetupError(
            f"{pipe}: cannot be copied to {path}: {error.strerror}",
            hint="what comes through a pipe needs room there; TMPDIR names another folder",
        ) from error
    if not (head.startswith(_GZIP) or pipe.lower().endswith((".gz", ".gzip"))):
        return path
    return str(Path(path).rename(f"{path}.gz"))


def _opened(pipe: str) -> Any:
    own = _OF_THIS_PROCESS.fullmatch(pipe)
    if pipe == STDIN or own:
        # Not by its name: a socket, and a file that is deleted already, have none that opens.
        return os.fdopen(os.dup(int(own[1] or 0) if own else 0), "rb")
    return open(pipe, "rb")


def _rename(error: DriftlineError, names: Mapping[str, str]) -> None:
    for path, pipe in names.items():
        error.message = error.message.replace(path, pipe)
        error.args = tuple(str(arg).replace(path, pipe) for arg in error.args)
