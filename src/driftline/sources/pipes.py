"""Sources that tasks cannot read again and again: pipes, URLs and archives are copied to temporary files."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISFIFO
from typing import Any

from driftline.errors import DriftlineError, SetupError, UsageError
from driftline.files.endings import is_archive
from driftline.runtime.stores import buffered, is_stored
from driftline.sources.archives import unpack
from driftline.sources.folders import mode
from driftline.sources.spool import folder_in
from driftline.sources.web import fetch, is_url, shown

STDIN = "-"
_OF_THIS_PROCESS = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/(\d+)")
_CHUNK = 2**20  # bytes that are held at once


def is_pipe(source: str) -> bool:
    """True if only this process can read the source, and only once: standard input, a FIFO, a descriptor.

    Raises SetupError for a source without access.
    """
    return source == STDIN or bool(_OF_THIS_PROCESS.fullmatch(source)) or S_ISFIFO(mode(Path(source)))


@contextmanager
def spooled(
    files: Sequence[str], kind: str | None = None, room: Path | None = None
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The files, with temporary copies of pipes, URLs and archives, and the names of these by path.

    The copies are deleted at the end. ``kind``: the format to take from archives; ``room``: a folder for
    copies, as `place_of` returns it. Errors name the original in place of the copy. Raises UsageError for an
    unreadable pipe, DataError for a broken archive, SetupError if there is no room.
    """
    if not any(_is_spooled(file, kind) for file in files):
        yield list(files), {}
        return
    with folder_in(room) as folder:
        names: dict[str, str] = {}
        out = []
        for i, file in enumerate(files):
            place = folder / f"{i:08}"  # none begins as another one does
            copies = _spooled(file, kind, place)
            names.update(copies)
            out += list(copies) or [file]
        try:
            yield out, names
        except DriftlineError as error:
            _rename(error, names)
            raise


def _is_spooled(file: str, kind: str | None) -> bool:
    # Spark, which reads ORC, does not know the stores as we do.
    return is_pipe(file) or is_url(file) or is_archive(file) or (kind == "orc" and is_stored(file))


def _spooled(file: str, kind: str | None, place: Path) -> dict[str, str]:
    """Copy a file that cannot be read where it is to ``place``; returns each copy with its name.

    Nothing is returned for another file. Of an archive each file of the ``kind`` is a copy.
    """
    if not _is_spooled(file, kind):
        return {}
    name, source = file, file
    if is_url(file):
        name, source = shown(file), f"{place}.zip" if is_archive(shown(file)) else str(place)
        fetch(file, Path(source))
    elif not is_archive(file):
        _copy(file, place)
    if not is_archive(name):
        return {str(place): name}
    place.mkdir()
    return {str(path): f"{name}/{inner}" for path, inner in unpack(source, kind, place)}


def _copy(pipe: str, path: Path) -> None:
    """Write the contents of a pipe, or of a file in a store, to a file."""
    try:
        source = _opened(pipe)
    except OSError as error:
        raise UsageError(f"{pipe}: cannot be read: {error.strerror}") from error
    try:
        with source, path.open("wb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
    except OSError as error:
        raise SetupError(
            f"{pipe}: cannot be copied to {path}: {error.strerror}",
            hint="data from a pipe needs disk space there; set TMPDIR to use another folder",
        ) from error


def _opened(pipe: str) -> Any:
    own = _OF_THIS_PROCESS.fullmatch(pipe)
    if is_stored(pipe):
        return buffered(pipe)
    if pipe == STDIN or own:
        # Not by its name: a socket, and a file that is deleted already, have none that opens.
        return os.fdopen(os.dup(int(own[1] or 0) if own else 0), "rb")
    return open(pipe, "rb")


def _rename(error: DriftlineError, names: Mapping[str, str]) -> None:
    for path, pipe in names.items():
        error.message = error.message.replace(path, pipe)
        error.args = tuple(str(arg).replace(path, pipe) for arg in error.args)
