"""Which files there are now for a capture, in a folder of this machine or of a store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from glob import has_magic
from pathlib import Path
from typing import NamedTuple

from driftline.errors import DataError, SetupError
from driftline.files.endings import format_by_name, is_archive
from driftline.runtime.stores import is_stored
from driftline.sources.listing import behind, below, glob_base, listing, matching, may_hold, outside

_AWAY = "check the path; a capture that has begun continues with new files when its folder is back"


class ListedFile(NamedTuple):
    """A file as it was listed. ``modified``: nanoseconds since 1970; ``real``: its own path, if that is not
    ``path``, as a link leads to it.
    """

    path: str
    size: int
    modified: int
    real: str = ""

    @property
    def key(self) -> str:
        """The path that the file has by itself, whatever it is called by."""
        return self.real or self.path

    @property
    def version(self) -> tuple[int, int]:
        """The size and the time, of which one changes with the file."""
        return self.size, self.modified

    def fingerprint(self, capture: str) -> int:
        """A number of 64 bits by which a table remembers a version of a file that a capture has brought."""
        text = f"{capture}\0{self.key}\0{self.size}\0{self.modified}"
        digest = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)


def listed(source: str, fmt: str | None, lake: str | None = None) -> Iterator[ListedFile]:
    """The files of a folder or glob, outside the ``lake``. Raises SetupError if it is away.

    ``fmt`` None: of a folder, only files whose ending shows a format.
    """
    if is_stored(source):
        yield from _stored(source, fmt)
        return
    try:
        if Path(source).is_dir():
            yield from _below(str(Path(source).absolute()), fmt, lake)
            return
        paths = outside(matching(source), glob_base(source), lake)
    except OSError as error:
        raise SetupError(f"{error.filename or source}: cannot be read: {error.strerror}", _AWAY) from error
    if not paths:
        must_be_there(source)
    yield from (entry_of(str(path.absolute())) for path in paths)


def must_be_there(source: str) -> None:
    """Raise SetupError for a path on this machine at which there is nothing, unless it is a glob."""
    if not (has_magic(source) or Path(source).exists()):
        raise SetupError(f"{source}: no such folder", _AWAY)


def listed_behind(source: str, fmt: str | None, path: str) -> Iterator[ListedFile]:
    """The files of `listed` that sort behind a path, of a folder or glob in S3. Raises SetupError."""
    fits = may_be(source, fmt)
    for file in behind(source, path):
        if fits(file.path):
            yield ListedFile(str(file.path), file.size, file.modified)


def may_be(source: str, fmt: str | None) -> Callable[[str], bool]:
    """Return a test for paths in a store: true if `listed` could give the path, judged by its name alone."""
    holds, any_name = may_hold(source), bool(fmt) or has_magic(source)
    return lambda path: holds(path) and (any_name or path == source or _known(path))


def entry_of(path: str) -> ListedFile:
    """A file as it is now. Raises DataError if it is gone."""
    try:
        if not is_stored(path):
            stat, real = Path(path).stat(), os.path.realpath(path)
            return ListedFile(path, stat.st_size, stat.st_mtime_ns, "" if real == path else real)
        for file in listing(path).files:
            if file.path == path:
                return ListedFile(str(file.path), file.size, file.modified)
        raise FileNotFoundError(path)
    except FileNotFoundError as error:
        raise DataError(
            f"{path} was deleted before it was ingested",
            hint="put it back and restart the capture; to give it up, put an empty file in its place",
        ) from error


def _stored(source: str, fmt: str | None) -> Iterator[ListedFile]:
    files, is_folder = listing(source)
    for file in files:
        if fmt or not is_folder or _known(file.path):
            yield ListedFile(str(file.path), file.size, file.modified)


def _below(folder: str, fmt: str | None, lake: str | None) -> Iterator[ListedFile]:
    folders: dict[str, str] = {}  # to find each one's own path once
    for entry in below(folder, lake):
        if fmt or _known(entry.name):
            stat, parent = entry.stat(), entry.path.rpartition("/")[0]
            if parent not in folders:
                folders[parent] = os.path.realpath(parent)
            real = os.path.realpath(entry.path) if entry.is_symlink() else f"{folders[parent]}/{entry.name}"
            yield ListedFile(entry.path, stat.st_size, stat.st_mtime_ns, "" if real == entry.path else real)


def _known(name: str) -> bool:
    return is_archive(name) or format_by_name(name) is not None
