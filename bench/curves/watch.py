"""A worker under watch: what it tells, with the memory that each of its jobs took."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Self

import psutil

EVERY = 0.2  # seconds between two looks at the memory
TAIL = 3  # lines of the log that an error shows


def watched(
    command: list[str], log: Path, environment: dict[str, str], *, memory: bool = False
) -> Iterator[dict[str, Any]]:
    """The jobs of a worker as they end, and what it found. ``memory``: of a job also the highest PSS of Java and of the
    Python workers, in bytes; looking costs some time itself. Raises RuntimeError where the worker fails."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**env, **environment}
        ) as child,
    ):
        assert child.stdout is not None
        watch, job = _Memory(psutil.Process(child.pid)), {}
        with watch if memory else nullcontext():
            for line in child.stdout:
                told = json.loads(line)
                if told["event"] == "begin":
                    job = told
                    watch.peaks()
                elif told["event"] == "end":
                    yield {**job, **told, **watch.peaks()}
                else:
                    yield told
    if child.returncode:
        raise RuntimeError(" ".join(log.read_text().splitlines()[-TAIL:]) or f"code {child.returncode}")


class _Memory:
    """Looks at the memory of a process's children until it is left."""

    def __init__(self, root: psutil.Process) -> None:
        self._root, self._highest = root, {"java": 0, "workers": 0}
        self._over, self._lock = Event(), Lock()
        self._thread = Thread(target=self._look)

    def peaks(self) -> dict[str, int]:
        """The highest since it was asked last."""
        with self._lock:
            told, self._highest = self._highest, dict.fromkeys(self._highest, 0)
        return told

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            now = {"java": 0, "workers": 0}
            try:
                children = self._root.children(recursive=True)
            except psutil.Error:
                return
            for process in children:
                try:
                    kind = "java" if process.name() == "java" else "workers"
                    now[kind] += process.memory_full_info().pss
                except (psutil.Error, FileNotFoundError):
                    continue
            with self._lock:
                self._highest = {kind: max(now[kind], self._highest[kind]) for kind in now}
