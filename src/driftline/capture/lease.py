"""A folder of a store held by one process: each that wants it leaves a mark there, and renews it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from driftline.errors import DataError, DriftlineError
from driftline.runtime.stores import explaining, filesystem

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
        self._host = socket.gethostname()
        self._own = f"{self._host}-{os.getpid()}-{uuid4().hex[:8]}"
        self._ended = threading.Event()
        self._renewed = 0.0

    @contextmanager
    def held(self) -> Iterator[None]:
        """The folder, held. Raises DataError where another process has it."""
        try:
            self._mark()
            self._await_others()
            keeper = threading.Thread(target=self._renew, daemon=True)
            keeper.start()
            yield
        finally:
            self._ended.set()
            with suppress(OSError):
                self._system.delete_file(f"{self._folder}/{self._own}")

    def check(self) -> None:
        """Raises DataError where the folder may be another's by now."""
        if time.time() - self._renewed > _STALE - _RENEWED:
            raise DataError(
                f"capture {self._name}: {self._uri} could not be held",
                "start the capture again: nothing is lost",
            )

    def _await_others(self) -> None:
        first = self._others()
        while others := self._others():
            for mark, renewed in others.items():
                if renewed > first.get(mark, renewed):
                    raise DataError(
                        f"capture {self._name} runs in another process already: {mark}",
                        hint="wait for it, or stop it first",
                    )
            time.sleep(_LOOK)
            self._mark()

    def _others(self) -> dict[str, int]:
        """The marks of others that may live, and when they were renewed; those of the dead are deleted."""
        from pyarrow.fs import FileSelector

        with explaining(self._uri):
            infos = {info.base_name: info for info in self._system.get_file_info(FileSelector(self._folder))}
            now = infos.pop(self._own).mtime_ns
            found = {}
            for mark, info in infos.items():
                if (now - info.mtime_ns) / 1e9 > _STALE or self._is_dead(mark):
                    self._system.delete_file(f"{self._folder}/{mark}")
                else:
                    found[mark] = info.mtime_ns
        return found

    def _is_dead(self, mark: str) -> bool:
        host, pid, _ = mark.rsplit("-", 2)
        if host != self._host:
            return False
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False

    def _mark(self) -> None:
        with explaining(self._uri):
            self._system.create_dir(self._folder)
            with self._system.open_output_stream(f"{self._folder}/{self._own}") as file:
                file.write(b"held")
        self._renewed = time.time()

    def _renew(self) -> None:
        while not self._ended.wait(_RENEWED):
            if time.time() - self._renewed > _STALE:  # this process slept: it may be another's
                return
            with suppress(DriftlineError):
                self._mark()
