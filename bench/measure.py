"""The resources that a process and its descendants use: seconds, CPU, memory."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event, Lock, Thread

import psutil

EVERY = 1.0  # seconds between two looks at the memory: each takes some 40 ms of a core
MEMORY = "PSS" if hasattr(psutil.Process, "memory_maps") and psutil.LINUX else "RSS"


@dataclass(slots=True)
class Run:
    """The figures of one process. ``seconds`` and ``cpu`` of a job by its name, ``whole``: from the process's start to the
    end of its first job; ``peak``: bytes, of all its processes together, at most at one time."""

    whole: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    peak: int = 0
    error: str | None = None


def run(command: list[str], log: Path, timeout: float) -> Run:
    """Runs a worker to its end; its standard error goes to the log. One that takes longer is ended."""
    out = Run()
    started = time.perf_counter()
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as child,
    ):
        tree, over = psutil.Process(child.pid), Event()
        watch = Thread(target=_watch, args=(tree, out, over, timeout))
        watch.start()
        begun = (0.0, 0.0)
        assert child.stdout is not None
        for line in child.stdout:
            event, now, used = json.loads(line), time.perf_counter(), cpu(tree)
            match event["event"]:
                case "ready":
                    out.versions = event["versions"]
                case "begin":
                    begun = now, used
                case "end":
                    job = event["job"]
                    out.whole = out.whole or now - started
                    out.seconds[job], out.cpu[job] = now - begun[0], used - begun[1]
                    out.tables[job] = event["table"]
                case "failed":
                    out.error = event["error"]
        child.wait()
        over.set()
        watch.join()
    if child.returncode and out.error is None:
        out.error = f"ended with code {child.returncode}"
    return out


def cpu(tree: psutil.Process) -> float:
    """CPU seconds of all processes of the tree, of those that ended as well; it never falls."""
    return _meter(tree).seconds()


class CpuMeter:
    """Counts the CPU of a tree's processes.

    What an ended process took is in its parent's count of those it has waited for. Spark's daemon waits for none of
    its workers, so theirs is what was seen last.
    """

    def __init__(self, tree: psutil.Process) -> None:
        self._tree, self._lock = tree, Lock()
        self._seen: dict[psutil.Process, tuple[float, float]] = {}  # its own, and of those it has waited for
        self._ended = 0.0

    def seconds(self) -> float:
        """All CPU seconds so far."""
        with self._lock:
            return self._ended_by(_times(self._tree))

    def _ended_by(self, times: dict[psutil.Process, tuple[float, float]]) -> float:
        before, self._seen = self._seen, times
        gone = [before[process] for process in before.keys() - times.keys()]
        waited = sum(of_others - before.get(process, (0, 0))[1] for process, (_, of_others) in times.items())
        # What a process that is gone had waited for was counted when it ended.
        waited -= sum(of_others for _, of_others in gone)
        self._ended += max(waited, sum(own for own, _ in gone))
        return self._ended + sum(own for own, _ in times.values())


@cache
def _meter(tree: psutil.Process) -> CpuMeter:
    return CpuMeter(tree)


def _times(tree: psutil.Process) -> dict[psutil.Process, tuple[float, float]]:
    times = {}
    for process in _processes(tree):
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue
        times[process] = used.user + used.system, used.children_user + used.children_system
    return times


def memory(tree: psutil.Process) -> int:
    """Bytes of the tree. PSS counts pages that several processes share once; elsewhere than on Linux, RSS counts them
    in each."""
    total = 0
    for process in _processes(tree):
        try:
            total += process.memory_full_info().pss if MEMORY == "PSS" else process.memory_info().rss
        except (psutil.Error, FileNotFoundError):
            continue
    return total


def _processes(tree: psutil.Process) -> list[psutil.Process]:
    try:
        return [tree, *tree.children(recursive=True)]
    except psutil.Error:
        return []


def _watch(tree: psutil.Process, out: Run, over: Event, timeout: float) -> None:
    end = time.monotonic() + timeout
    while not over.wait(EVERY):
        out.peak = max(out.peak, memory(tree))
        cpu(tree)  # a process that ends before the next event is seen at least once
        if time.monotonic() > end:
            out.error = f"not done after {timeout:.0f} s"
            for process in reversed(_processes(tree)):
                process.kill()
            return
