"""The pace of a read: bytes, their rate and the time left, by the tasks that are done."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

_UNITS = ("bytes", "kB", "MB", "GB", "TB")
SURE = 2.0  # seconds until a rate is worth telling


@dataclass
class Pace:
    """Of one reading after another of ``size`` bytes; each has tasks of even size."""

    size: int
    clock: Callable[[], float] = time.monotonic
    _total: int = field(default=0, init=False)
    _done: int = field(default=0, init=False)
    _began: float = field(default=0.0, init=False)

    def text(self, done: int, total: int) -> str:
        """The pace with this many tasks done. A read restarts if other tasks run, or fewer are done."""
        if total != self._total or done < self._done:
            self._total, self._began = total, self.clock()
        self._done = done
        if not total:
            return ""
        read, took = self.size * done / total, self.clock() - self._began
        text = f"{human(read)} of {human(self.size)}"
        if not done or took < SURE:
            return text
        left = took * (total - done) / done
        return f"{text}, {human(read / took)}/s, {_span(left)} left"


def human(count: float) -> str:
    """Bytes with three digits and their unit.

    >>> human(0), human(999), human(12_345), human(4_000_000_000)
    ('0 bytes', '999 bytes', '12.3 kB', '4.00 GB')
    """
    power = 0
    while count >= 999.5 and power < len(_UNITS) - 1:
        count, power = count / 1000, power + 1
    if not power:
        return f"{count:.0f} bytes"
    return f"{count:.{2 if count < 9.995 else 1 if count < 99.95 else 0}f} {_UNITS[power]}"


def _span(seconds: float) -> str:
    """A time as people read it.

    >>> _span(8.6), _span(75), _span(7300)
    ('9 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
