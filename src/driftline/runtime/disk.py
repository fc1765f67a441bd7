"""Files that a power cut cannot take: the one place that syncs.

What a process writes, renames or deletes is in memory first; the disk follows some thirty seconds later, in
any order. So whatever is acknowledged, and whatever a synced file names, has to be synced before: files, and
the folders that have their names.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from driftline.errors import SetupError

_AT_ONCE = 8  # syncs in parallel share one flush of the disk
_NOT_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)  # of file systems that sync no folder
# macOS: fsync alone leaves data in the disk's own cache.
_FULL: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def sync(paths: Iterable[Path], within: Path | None = None) -> None:
    """Sync files and folders, and the folders that name them. A file that Hadoop wrote takes along the
    checksum beside it, without which it could not be read.

    Args:
        paths: The files and folders, each once or more often.
        within: A folder that is known to be on the disk, and names of folders above it too; by default all
            are synced up to the mount point.

    Raises:
        SetupError: One cannot be synced.
    """
    wanted: dict[Path, None] = {}  # in the order given
    for path in map(Path.absolute, paths):
        checksum = path.with_name(f".{path.name}.crc")
        wanted |= dict.fromkeys([*([checksum] if checksum.exists() else ()), *_with_folders(path, within)])
    if wanted:
        with ThreadPoolExecutor(min(_AT_ONCE, len(wanted))) as pool:
            for task in [pool.submit(_sync, path) for path in wanted]:
                task.result()


def replace_file(path: Path, data: bytes, *, durable: bool = True, modified: int | None = None) -> None:
    """Write a file whole, in place of what is there: after a power cut there is the old one or the new one.

    The folder is created if it is not there. ``durable`` False: nothing is synced. ``modified``: the file's
    time of change, in seconds since 1970. Raises SetupError.
    """
    draft, folder = path.with_name(f"{path.name}.new"), path.parent
    known = folder if folder.is_dir() else None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            if modified is not None:
                os.utime(file.fileno(), (modified, modified))
            if durable:
                flush(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise SetupError(f"{path}: cannot be written: {error.strerror}") from error
    if durable:
        sync([folder], within=known)


def flush(file: int) -> None:
    """Sync an open file, by its descriptor."""
    if _FULL is not None:
        with suppress(OSError):  # network disks have no such call
            fcntl.fcntl(file, _FULL)
            return
    os.fsync(file)


def on_disk(location: str) -> Path | None:
    """The folder of a path or ``file:`` URI; None for the URI of a store."""
    return local(location) if location.startswith(("/", "file:")) else None


def local(path: str) -> Path:
    """The file of a path or ``file:`` URI."""
    return Path(path.removeprefix("file://").removeprefix("file:"))


def _with_folders(path: Path, within: Path | None) -> list[Path]:
    """A path, and the folders that name it."""
    folders = [path]
    while folders[-1] != within and not os.path.ismount(folders[-1]):
        folders.append(folders[-1].parent)
    return folders


def _sync(path: Path) -> None:
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            flush(file)
        finally:
            os.close(file)
    except OSError as error:
        if path.is_dir() and error.errno in (*_NOT_FOLDERS, errno.EACCES):
            return
        raise SetupError(f"{path}: cannot be synced to the disk: {error.strerror}") from error
