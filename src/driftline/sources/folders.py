"""Folders and globs of this machine: which files there are. A folder that cannot be listed is an error."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from driftline.errors import SetupError
from driftline.files.endings import is_hidden_name
from driftline.sources.buckets import fits_step

_HINT = "grant access to it, or pass only the folders or a glob to read"
_Identity = tuple[int, int]
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def below(folder: str, lake: str | Path | None = None) -> Iterator[os.DirEntry[str]]:
    """The files in a folder and its sub-folders, linked ones too, without those that a name hides.

    Each folder is listed once, whatever links lead to it, and by its own path if that is below ``folder``
    too: so a link to a folder above it leads to nothing new. The folder of the ``lake`` is passed over.
    Raises SetupError for a folder that cannot be listed.
    """
    entered = {_identity(folder)}
    if lake is not None and S_ISDIR(mode(Path(lake))):
        entered.add(_identity(lake))
    links: list[str] = []
    yield from _below(folder, entered, links)
    # Links come after the folders themselves, and in order of name, so that each listing takes the same path.
    while links:
        following: list[str] = []
        for link in sorted(links):
            if (identity := _identity(link)) not in entered:
                entered.add(identity)
                yield from _below(link, entered, following)
        links = following


def _below(folder: str, entered: set[_Identity], links: list[str]) -> Iterator[os.DirEntry[str]]:
    for entry in _entries(folder):
        if is_hidden_name(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            if (identity := _identity(entry.path)) not in entered:
                entered.add(identity)
                yield from _below(entry.path, entered, links)
        elif entry.is_symlink() and S_ISDIR(mode(Path(entry.path))):
            links.append(entry.path)
        elif _is_file(entry):
            yield entry


def _identity(folder: str | Path) -> _Identity:
    """The file system and number of a folder, which its names and links share."""
    try:
        stat = Path(folder).stat()
    except OSError as error:
        raise SetupError(f"{folder}: cannot be listed: {error.strerror}", _HINT) from error
    return stat.st_dev, stat.st_ino


def matching(source: str) -> Iterator[Path]:
    """The files that a glob names, each once, as Python's own finds them, but that one passes over folders
    that cannot be listed: this raises SetupError.
    """
    base = glob_base(source)
    yield from dict.fromkeys(_matching(base, Path(source).parts[len(base.parts) :]))


def _matching(path: Path, steps: Sequence[str], above: frozenset[_Identity] = frozenset()) -> Iterator[Path]:
    """Match the rest of a glob's steps.

    ``above``: the folders that `**` went through, so that links which lead back to one of them end there.
    """
    if not steps:
        if S_ISREG(mode(path)):
            yield path
        return
    first, *rest = steps
    if not glob.has_magic(first):
        yield from _matching(path / first, rest)
        return
    is_folder = S_ISDIR(mode(path))
    if first == "**":
        yield from _matching(path, rest)
        if is_folder:
            if (identity := _identity(path)) in above:
                return
            above |= {identity}
    for entry in _entries(path) if is_folder else ():
        if first != "**" and fits_step(first, entry.name):
            yield from _matching(Path(entry.path), rest)
        elif first == "**" and not entry.name.startswith("."):
            yield from _matching(Path(entry.path), steps, above)


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
