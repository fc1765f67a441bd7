"""Output to the terminal: reports on standard output, progress and errors on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from driftline.cli import log
from driftline.cli.pace import Pace, human

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import RenderableType

LOG_WIDTH = 120  # of lines that go to a file or a pipe
LARGE = 10**9  # bytes that take their time


def out(*, width: int | None = None) -> Console:
    """Standard output. Lines break at the terminal's width, or at ``width`` without a terminal."""
    console = Console(highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = width or LOG_WIDTH
    return console


def show(lines: Iterable[RenderableType] | RenderableType) -> None:
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
        if self._console.is_terminal and not log.is_json():
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
        if log.is_json() and text != self._text:
            log.phase(text)
        self._text = text

    def of(self, title: str) -> Callable[[str], None]:
        """A callback for the phases of the work named ``title``; large work is logged too."""
        if self._pace.size >= LARGE and not self._console.is_terminal:
            self.notice(f"{title}: reading {human(self._pace.size)}")
        return lambda phase: self.phase(f"{title}: {phase}")

    def notice(self, text: str) -> None:
        """Tells of what takes long, in a log too."""
        if log.is_json() or self._live:
            self.phase(text)
        else:
            self._console.print(text)

    def remark(self, text: str | None) -> None:
        """Print a remark before the work begins; in a terminal it stays."""
        if text is not None and log.is_json():
            log.phase(text)
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
        done, total = self.tasks()
        if total <= 1:
            return ""
        pace = self._pace.text(done, total) if self._pace.size else f"{done} of {total} tasks"
        return f"  {pace}"
