"""Output to the terminal: reports on standard output, progress and errors on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from driftline.cli.process import log_phase, logs_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNITS = ("bytes", "kB", "MB", "GB", "TB")
SURE = 2.0  # seconds until a rate is worth telling


@dataclass
class Pace:
    """The pace of successive reads of ``size`` bytes, each in tasks of even size."""

    size: int
    clock: Callable[[], float] = time.monotonic
    _total: int = field(default=0, init=False)
    _done: int = field(default=0, init=False)
    _began: float = field(default=0.0, init=False)

    def text(self, finished: int, total: int) -> str:
        """The pace with this many tasks done. A read restarts if other tasks run, or fewer are done."""
        if total != self._total or finished < self._done:
            self._total, self._began = total, self.clock()
        self._done = finished
        if not total:
            return ""
        read, took = self.size * finished / total, self.clock() - self._began
        text = f"{human(read)} of {human(self.size)}"
        if not finished or took < SURE:
            return text
        remaining = took * (total - finished) / finished
        return f"{text}, {human(read / took)}/s, {_span(remaining)} left"


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
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"


LOG_WIDTH = 120  # of lines that go to a file or a pipe
LARGE = 10**9  # bytes that take their time


def out(*, width: int | None = None) -> Console:
    """Standard output. Lines break at the terminal's width, or at ``width`` without a terminal."""
    console = Console(highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = width or LOG_WIDTH
    return console


def show(lines: Iterable[RenderableType] | RenderableType) -> None:
    """Print lines, or a single one, to standard output."""
    console = out()
    for line in [lines] if isinstance(lines, str) or not isinstance(lines, Iterable) else lines:
        console.print(line)


def put(value: Any) -> None:
    """A value as one line of JSON."""
    sys.stdout.write(f"{json.dumps(value, ensure_ascii=False)}\n")
    sys.stdout.flush()


class Progress:
    """One line at the foot of a terminal: the present step, and Spark's progress with it.

    Without a terminal only long steps are logged. ``size``: bytes read meanwhile; 0: unknown.
    """

    def __init__(self, spark: SparkSession | None = None, size: int = 0) -> None:
        self.spark = spark
        self._pace = Pace(size)
        self._console = Console(stderr=True, highlight=False, emoji=False, markup=False)
        self._spinner = Spinner("dots")
        self._text = ""
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not logs_json():
            self._live = Live(
                console=self._console, get_renderable=self._render, transient=True, refresh_per_second=6,
                redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def phase(self, text: str) -> None:
        """Show ``text`` as the present step; with JSON logs, log it too."""
        if logs_json() and text != self._text:
            log_phase(text)
        self._text = text

    def of(self, title: str) -> Callable[[str], None]:
        """A callback for the phases of the work named ``title``; large work is logged too."""
        if self._pace.size >= LARGE and not self._console.is_terminal:
            self.notice(f"{title}: reading {human(self._pace.size)}")
        return lambda phase: self.phase(f"{title}: {phase}")

    def notice(self, text: str) -> None:
        """Print a line about work that takes long; in logs too."""
        if logs_json() or self._live:
            self.phase(text)
        else:
            self._console.print(text)

    def remark(self, text: str | None) -> None:
        """Print a remark before the work begins; in a terminal it stays."""
        if text is not None and logs_json():
            log_phase(text)
        elif text is not None:
            self._console.print(text)

    def _render(self) -> Spinner:
        self._spinner.update(text=Text.assemble(self._text, (self._far(), "dim")))
        return self._spinner

    def tasks(self) -> tuple[int, int]:
        """The numbers of finished and of all tasks in the Spark jobs that run now."""
        if self.spark is None:
            return 0, 0
        try:
            tracker = self.spark.sparkContext.statusTracker()
            stages = [s for i in tracker.getActiveStageIds() if (s := tracker.getStageInfo(i))]
        except Exception:  # progress must not end the work; Spark may be on its way out
            return 0, 0
        return sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages)

    def _far(self) -> str:
        finished, total = self.tasks()
        if total <= 1:
            return ""
        pace = self._pace.text(finished, total) if self._pace.size else f"{finished} of {total} tasks"
        return f"  {pace}"
