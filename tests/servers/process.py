"""A server as a process of its own: started, waited for, stopped."""

from __future__ import annotations

import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SECONDS = 90  # to start, on a busy machine


class Server(ABC):
    """A server that starts on entering its `with`, and stops on leaving it."""

    @abstractmethod
    def start(self) -> None:
        """Returns when it answers."""

    @abstractmethod
    def stop(self) -> None:
        """A second call does nothing."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Process:
    """A running server, whose output goes to the file ``log``; ``more`` is for `subprocess.Popen`.

    Returns when the log says ``ready``. RuntimeError, with the end of the log, if it ends before, or does not say so
    in `SECONDS`.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        ready: str,
        env: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **more
            )
        try:
            self._wait(ready)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """Asks it to end, and makes it after 20 seconds. A second call does nothing."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        self._process.kill()
        self._process.wait()

    def _wait(self, ready: str) -> None:
        end = time.monotonic() + SECONDS
        while ready not in (text := self.log.read_text(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.log.stem} did not start:\n{text[-3000:]}")
            time.sleep(0.05)


class ServerProcess(Server):
    """A server in a process of its own, which `start` sets."""

    _process: Process | None = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
