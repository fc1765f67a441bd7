"""The folder of a process's temporary files, private to its user and deleted with the process.

Temporary files hold rows: Spark's blocks, spooled pipes, files about to be uploaded.
"""

from __future__ import annotations

import atexit
import os
import re
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from driftline.errors import SetupError
from driftline.runtime.disk import NEW, Bounds, delete_folder


def folder() -> Path:
    """This process's folder among the machine's temporary files, which is made at the first call.

    The folders of processes that were killed are removed then. Raises SetupError if none can be made.
    """
    try:
        return _present()
    except OSError as error:
        raise SetupError(
            f"temporary files cannot be created: {error}",
            "set TMPDIR to a folder with room that you may write to",
        ) from error


def _present() -> Path:
    path = _folder(os.getpid(), gettempdir())
    if not path.is_dir():  # something cleans up there
        _folder.cache_clear()
        path = _folder(os.getpid(), gettempdir())
    return path


@cache
def _folder(process: int, place: str) -> Path:
    """Make a folder with a lock on it, which the system takes back when the process ends, however it ends.

    Process ids come again, and those of a container mean nothing outside; a lock says who is alive.
    """
    _remove_leftovers(place)
    while True:
        path = Path(mkdtemp(prefix=_prefix(), dir=place))
        # Another process cleans up, and has it for a leftover
        with suppress(OSError):
            lock = _locked(path)
            if path.is_dir():
                atexit.register(_remove, path, process, lock)
                return path


def _prefix() -> str:
    """The beginning of the names, with the host: locks of others that share the place may not be seen."""
    return f"driftline-run.{re.sub(r'[^A-Za-z0-9-]', '_', socket.gethostname())}."


def _locked(path: Path) -> int | None:
    """Lock a folder; returns its descriptor, None where the file system knows no locks.

    Raises BlockingIOError if a process has it, other OSErrors if it is no folder, or not readable.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        import fcntl  # late: Windows has none

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except (ImportError, OSError):
        os.close(descriptor)
        return None
    return descriptor


def _remove_leftovers(place: str) -> None:
    """Remove the folders of this user's processes that have ended."""
    with os.scandir(place) as entries:
        leftovers = [entry for entry in entries if entry.name.startswith(_prefix())]
    for entry in leftovers:
        with suppress(OSError):
            if entry.stat(follow_symlinks=False).st_uid != os.getuid():
                continue
            if (lock := _locked(Path(entry.path))) is not None:
                delete_folder(entry.path, Bounds((place,)))
                os.close(lock)


def _remove(path: Path, process: int, lock: int | None) -> None:
    """Remove the folder at the process's end; a fork of it has the same handler, and leaves it."""
    if os.getpid() == process:
        delete_folder(path, NEW)
        if lock is not None:
            os.close(lock)
