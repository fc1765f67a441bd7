"""The terminal's view of a capture while it runs."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from driftline.core.schema.text import counted
from driftline.formats.commit import WAITING

if TYPE_CHECKING:
    from rich.text import Text

    from driftline.capture.query import Batch, CaptureQuery
    from driftline.cli.terminal import Progress
    from driftline.lake import Lake
    from driftline.report.metrics import Health, Metrics

_TICK = 0.1  # seconds
_LOOK = 1.0  # seconds between two looks at how it is
_PATIENCE = 10.0  # seconds between two lines of a log on a wait


@dataclass
class Running:
    """The view of a capture of this ``name``, updated by each batch."""

    lake: Lake
    name: str
    json: bool
    more_hints: str | None = "--hints"
    metrics: Metrics | None = None
    health: Health | None = None
    batches: queue.Queue[Batch] = field(default_factory=queue.Queue)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    lag: int | None = None
    lost: int = 0
    hints: set[str] = field(default_factory=set)
    _phase: str = ""
    _wait: str = ""
    _due: float = 0.0  # when the wait is logged
    _next_look: float = 0.0

    def phase(self, text: str) -> None:
        """Show a phase of the stream. A series of waits counts from the first of them."""
        self._phase = text
        if text.startswith(WAITING):
            self._due = self._due if self._wait else time.monotonic() + _PATIENCE
            self._wait = text

    def until_it_ends(self, query: CaptureQuery) -> None:
        """Show each batch, and their sum at the end. Raises the error that ended the query."""
        from driftline.cli.terminal import show

        try:
            while batch := self._next(query):
                self._show(batch)
        finally:
            if self.counts[0] and not self.json:
                show(self._sum())
        query.awaitTermination()
        if not self.counts[0] and not self.json:
            show(self._sum())

    def _next(self, query: CaptureQuery) -> Batch | None:
        from driftline.cli.terminal import Progress

        with Progress(self.lake.spark) as progress:
            while True:
                ended = not query.isActive
                try:
                    batch = self.batches.get(timeout=_TICK)
                    return batch if batch.lag is not None else replace(batch, lag=query.lag(batch.epoch))
                except queue.Empty:
                    if ended:
                        return None
                if self._wait and time.monotonic() >= self._due:
                    self._due = time.monotonic() + _PATIENCE
                    progress.notice(f"{self.name}: {self._wait}")
                doing = self._wait or self._phase or "looking for more"
                progress.phase(f"{self.name}: {doing}")
                self._look(query, doing, progress)

    def _look(self, query: CaptureQuery, doing: str, progress: Progress) -> None:
        """Notes how the capture is, once a second. To wait for other writers is no progress."""
        if self.health is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK
        mark = (self.counts[0], "" if self._wait else self._phase, progress.tasks())
        self.health.seen(mark, doing, idle=not query.status["isTriggerActive"])

    def _show(self, batch: Batch) -> None:
        from driftline.cli.terminal import put, show
        from driftline.report import findings, text

        result = batch.result
        batch_counts = (1, result.rows_read, result.rows_quarantined, findings.schema_changes(result))
        self.counts = [a + b for a, b in zip(self.counts, batch_counts, strict=True)]
        self.lag = batch.lag
        self.lost += sum(interval.count for interval in batch.lost)
        self._phase = self._wait = ""
        if self.metrics is not None:
            self.metrics.count(result, batch.lag)
        if self.json:
            put(batch.to_dict())
        else:
            title = f"{self.name} {batch.epoch}"
            show(text.batch(result, title, hints_before=self.hints, more_hints=self.more_hints))
            show(text.lost(batch.lost))

    def _sum(self) -> Text:
        from rich.text import Text

        batches, records, quarantined, changes = self.counts
        counts = [
            counted(batches, "batch", "batches"),
            counted(records, "record"),
            f"{quarantined} in quarantine",
            counted(changes, "change"),
        ]
        if self.lost:
            counts.append(f"{counted(self.lost, 'offset')} lost")
        lag_text = "" if self.lag is None else f", {self.lag} still to come" if self.lag else ", nothing left"
        return Text.assemble((f"{self.name}  ", "bold"), f"{', '.join(counts)}{lag_text}")
