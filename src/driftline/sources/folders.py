"""Folders and globs of this machine: which files there are. A folder that cannot be listed is an error."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from driftline.errors import SetupError
from driftline.observe.endings import is_hidden_name
from driftline.sources.buckets import fits_step

_HINT = "grant access to it, or pass only the folders or a glob to read"
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def below(folder: str, enters: Callable[[str], bool] = lambda _: True) -> Iterator[os.DirEntry[str]]:
    """The files in a folder and in those sub-folders that it ``enters``, without those that a name hides.
    Raises SetupError for a folder that cannot be listed.
    """
    for entry in _entries(folder):
        if is_hidden_name(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            if enters(entry.path):
                yield from below(entry.path, enters)
        elif _is_file(entry):
            yield entry


def matching(source: str) -> Iterator[Path]:
    """The files that a glob names, each once, as Python's own finds them, but that one passes over folders
    that cannot be listed: this raises SetupError.
    """
    base = glob_base(source)
    yield from dict.fromkeys(_matching(base, Path(source).parts[len(base.parts) :]))


def _matching(path: Path, steps: Sequence[str]) -> Iterator[Path]:
    if not steps:
        if S_ISREG(mode(path)):
            yield path
        return
    first, *rest = steps
    if not glob.has_magic(first):
        yield from _matching(path / first, rest)
        return
    if first == "**":
        yield from _matching(path, rest)
    for entry in _entries(path) if S_ISDIR(mode(path)) else ():
        if first != "**" and fits_step(first, entry.name):
            yield from _matching(Path(entry.path), rest)
        elif first == "**" and not entry.name.startswith("."):
            yield from _matching(Path(entry.path), steps)


def mode(path: Path) -> int:
    """The mode of the file or folder at a path, through links; 0 if nothing is there. Raises SetupError."""
    try:
        return path.stat().st_mode
    except ValueError:  # a name that no file can have
        return 0
    except OSError as error:
        if error.errno in _NOWHERE:
            return 0
        raise SetupError(f"{path}: cannot be read: {error.strerror}", _HINT) from error


def outside(paths: Iterable[Path], base: Path, lake: str | Path | None) -> list[Path]:
    """The paths, all below ``base``, that are not in the lake's folder, where that is below ``base`` too."""
    if lake is None:
        return list(paths)
    folder, above = Path(lake).resolve(), base.resolve()
    if above == folder or not folder.is_relative_to(above):
        return list(paths)
    inner = folder.relative_to(above)
    return [path for path in paths if not path.relative_to(base).is_relative_to(inner)]


def glob_base(source: str) -> Path:
    """The folder in front of a glob's first wildcard.

    >>> str(glob_base("in/2026/*/a.json"))
    'in/2026'
    """
    return Path(*takewhile(lambda part: not glob.has_magic(part), Path(source).parts))


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError as error:
        raise SetupError(f"{folder}: cannot be listed: {error.strerror}", _HINT) from error


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno == errno.ELOOP:  # links that point at each other lead nowhere, as one to nothing does
            return False
        raise
