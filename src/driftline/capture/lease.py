"""A lease on a folder in a store: each claimant leaves a mark there and renews it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from pyarrow.fs import FileSelector

from driftline.errors import DataError, DriftlineError
from driftline.runtime.disk import NEW, Bounds, delete_file
from driftline.runtime.stores import explaining, filesystem, put

# A mark and then a look stand for a lock, because pyarrow has no conditional writes.
_RENEWED, _STALE = 10.0, 40.0  # seconds: a mark so old is of a process that died
_LOOK = 1.0  # seconds between two looks at others' marks


class Lease:
    """The folder ``uri``, for the capture ``name``.

    Of two that mark it, one sees the other at least, since it looks after it has marked. The mark of a
    process that died is waited for, unless it died on this machine. Ages are by the store's clock.
    """

    def __init__(self, uri: str, name: str) -> None:
        self._uri, self._name = uri, name
        self._system, path = filesystem(uri)
        self._folder = f"{path}/locks"
        self._own = f"{socket.gethostname()}.{processes()}.{os.getpid()}.{uuid4().hex[:8]}"
        self._ended = threading.Event()
        self._renewed = 0.0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against other processes. Raises DataError if one has it."""
        keeper = threading.Thread(target=self._renew, daemon=True)
        try:
            self._touch()
            # The mark is renewed while others are waited for, or they would take it for a dead one.
            keeper.start()
            self._await_others()
            yield
        finally:
            self._ended.set()
            if keeper.ident is not None:
                keeper.join()
            with suppress(OSError):
                delete_file(f"{self._uri}/locks/{self._own}", NEW)

    def check(self) -> None:
        """Raise DataError if the folder may be another process's by now."""
        # Ten seconds before others may take the mark for that of a dead process.
        if time.time() - self._renewed > _STALE - _RENEWED:
            raise DataError(
                f"capture {self._name}: {self._uri} could not be held",
                "restart the capture; nothing is lost",
            )

    def _await_others(self) -> None:
        first = self._renewals_of_others()
        while marks := self._renewals_of_others():
            for mark, renewed in marks.items():
                # A mark that is renewed belongs to a process that lives; any other is waited out.
                if renewed > first.get(mark, renewed):
                    raise DataError(
                        f"capture {self._name} is already running in another process: {mark}",
                        hint="wait for it to end, or stop it",
                    )
            time.sleep(_LOOK)

    def _renewals_of_others(self) -> dict[str, int]:
        """The marks of other processes that may live, with the times of renewal.

        Marks of dead ones are deleted.
        """
        with explaining(self._uri):
            infos = {info.base_name: info for info in self._system.get_file_info(FileSelector(self._folder))}
            # The store's clock, as our own mark was just written: clocks of machines differ.
            now = max(info.mtime_ns for info in infos.values())
            del infos[self._own]
            living = {}
            for mark, info in infos.items():
                if (now - info.mtime_ns) / 1e9 > _STALE or self._is_dead(mark):
                    delete_file(f"{self._uri}/locks/{mark}", Bounds((self._uri,)))
                else:
                    living[mark] = info.mtime_ns
        return living

    @staticmethod
    def _is_dead(mark: str) -> bool:
        _, numbered, pid, _ = mark.rsplit(".", 3)
        return numbered == processes() and not Path("/proc", pid).exists()

    def _touch(self) -> None:
        put(f"{self._uri}/locks/{self._own}", b"held")
        self._renewed = time.time()

    def _renew(self) -> None:
        while not self._ended.wait(_RENEWED):
            if time.time() - self._renewed > _STALE:  # this process slept: it may be another's
                return
            with suppress(DriftlineError):
                self._touch()


def processes() -> str:
    """An id of the process numbering of this machine or container, since its start.

    Without such an id, a random one, which only this process has.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return uuid4().hex
