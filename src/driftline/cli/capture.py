"""`driftline capture`."""

from __future__ import annotations

import queue
import re
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftline.cli import interrupt
from driftline.cli.options import (
    Conflict,
    Decimal,
    Delimiter,
    Encoding,
    Excludes,
    FormatOption,
    FormatVersion,
    Hints,
    Into,
    Json,
    OnChange,
    PartitionBy,
    PolicyOption,
    Quote,
    Sets,
    SortBy,
    Strings,
    pairs,
    table_settings,
    writable,
)
from driftline.cli.scope import Scope
from driftline.errors import UsageError
from driftline.formats.retry import WAITING

if TYPE_CHECKING:
    from rich.text import Text

    from driftline.capture.query import Batch, CaptureQuery
    from driftline.config import Config
    from driftline.lake import Lake
    from driftline.report.metrics import Metrics


class ValueFormat(StrEnum):
    json = "json"
    avro = "avro"
    protobuf = "protobuf"
    json_schema = "json-schema"


_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_TICK = 0.1  # seconds
_PATIENCE = 10.0  # seconds between two lines of a log on a wait


def capture(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A folder, a glob, or kafka://HOST:PORT/TOPIC.", show_default=False
        ),
    ],
    into: Into,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="What the capture goes on as, at its next start.")
    ],
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Keep on, and look for more each 10s, 5m, ...", show_default=False),
    ] = None,
    policy: PolicyOption = None,
    on_conflict: Conflict = None,
    format: FormatOption = None,  # noqa: A002
    max_files: Annotated[int, typer.Option(min=1, help="At most so many files a batch.")] = 1000,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="What it remembers. [default: in the lake]", show_default=False),
    ] = None,
    hint: Hints = None,
    exclude: Excludes = None,
    kafka_set: Annotated[
        list[str] | None,
        typer.Option(
            "--kafka-set",
            metavar="KEY=VALUE",
            help="A setting of Kafka's client; ${NAME} is of the environment.",
            show_default=False,
        ),
    ] = None,
    value_format: Annotated[
        ValueFormat, typer.Option(help="How Kafka's values are written.")
    ] = ValueFormat.json,
    registry: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The schema registry of their schemas.", show_default=False),
    ] = None,
    from_: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="In a topic: earliest, latest, or a time.")
    ] = "earliest",
    partition_by: PartitionBy = None,
    sort_by: SortBy = None,
    format_version: FormatVersion = None,
    max_records: Annotated[
        int | None,
        typer.Option(min=1, help="At most so many of Kafka's records a batch.", show_default=False),
    ] = None,
    metadata: Annotated[
        bool, typer.Option("--metadata", help="Keep what Kafka has of each record, in _kafka.")
    ] = False,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on without records that Kafka has deleted.")
    ] = False,
    set_: Sets = None,
    delimiter: Delimiter = None,
    quote: Quote = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    strings: Strings = False,
    json: Json = False,
    on_change: OnChange = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Serve metrics for Prometheus at this port.", show_default=False),
    ] = None,
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write them after each batch, for a node exporter.", show_default=False
        ),
    ] = None,
) -> None:
    """Take what is new in a source into a table, each record once.

    Ends when it has caught up; with --every it keeps on until Ctrl-C.
    """
    from driftline.cli.terminal import Progress

    scope: Scope = context.obj
    pause = None if every is None else seconds(every)
    more = {
        "partition_by": partition_by, "sort_by": sort_by, "format_version": format_version,
        "delimiter": delimiter, "quote": quote, "encoding": encoding, "decimal": decimal,
    }  # fmt: skip
    settings = table_settings(scope, into, set_, policy, on_conflict, hint, exclude, more)
    clients = _clients(scope, kafka_set, registry)
    metrics = _metrics(into, name, metrics_port, metrics_file)
    with Progress() as progress:
        lake = scope.open(progress)
    shown = _Shown(lake, name, json=json, metrics=metrics)
    query = lake.table(into).capture(
        source,
        name=name,
        checkpoint=checkpoint,
        every=pause,
        format=format,
        strings=strings,
        max_files=max_files,
        kafka=clients.kafka,
        start=from_,
        value_format=str(value_format),
        registry=clients.registry,
        metadata=metadata,
        max_records=max_records,
        skip_lost=skip_lost,
        settings=settings,
        progress=shown.phase,
        on_batch=shown.batches.put,
        on_change=on_change,
    )
    with scope.interrupt.gently(query.stop):
        shown.until_it_ends(query)
    if scope.interrupt.stopping and pause is None:
        raise typer.Exit(interrupt.EXIT_CODE)


def _clients(scope: Scope, flags: list[str] | None, registry: str | None) -> Config:
    """Settings of Kafka's client, and of a registry's: those of the file, and of flags before those. What is
    secret among them is hidden in errors.
    """
    from driftline.config import from_environment

    given = pairs(flags, "--kafka-set", "key=value")
    given = {key: from_environment(text, f"--kafka-set {key}") for key, text in given.items()}
    url = {} if registry is None else {"url": from_environment(registry, "--registry")}
    config = scope.config
    scope.config = replace(config, kafka={**config.kafka, **given}, registry={**config.registry, **url})
    return scope.config


def _metrics(table: str, name: str, port: int | None, file: Path | None) -> Metrics | None:
    """Metrics of the capture, from its start, so that one that waits is seen too; None: for nobody."""
    if port is None and file is None:
        return None
    from driftline.report.metrics import Metrics

    if file is not None:
        writable(file)
    return Metrics(table, name, port=port, file=file)


def seconds(text: str) -> float:
    """A time as a number of seconds.

    >>> seconds("500ms"), seconds("10s"), seconds("5m"), seconds("2")
    (0.5, 10.0, 300.0, 2.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *(ms|s|m|h|)", text.strip())
    if match is None or not float(match[1]):
        raise UsageError(f"--every: {text!r} is not a time", hint="write 10s, 500ms, 5m")
    return float(match[1]) * _UNITS[match[2]]


@dataclass
class _Shown:
    """What the terminal tells of a capture while it runs."""

    lake: Lake
    name: str
    json: bool
    metrics: Metrics | None = None
    batches: queue.Queue[Batch] = field(default_factory=queue.Queue)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    lag: int | None = None
    lost: int = 0
    hints: set[str] = field(default_factory=set)
    _phase: str = ""
    _wait: str = ""
    _due: float = 0.0  # when a log is told of the wait

    def phase(self, text: str) -> None:
        self._phase = text
        if text.startswith(WAITING):
            self._due = self._due if self._wait else time.monotonic() + _PATIENCE
            self._wait = text

    def until_it_ends(self, query: CaptureQuery) -> None:
        """Shows each batch, then what came together. Raises what ended the query."""
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
                progress.phase(f"{self.name}: {self._wait or self._phase or 'looking for more'}")

    def _show(self, batch: Batch) -> None:
        from driftline.cli.terminal import put, show
        from driftline.report import text

        result = batch.result
        more = (1, result.rows_read, result.rows_quarantined, len(result.changes))
        self.counts = [a + b for a, b in zip(self.counts, more, strict=True)]
        self.lag = batch.lag
        self.lost += sum(one.count for one in batch.lost)
        self._phase = self._wait = ""
        if self.metrics is not None:
            self.metrics.count(batch)
        if self.json:
            put(batch.to_dict())
        else:
            show(text.batch(result, f"{self.name} {batch.epoch}", near=Path.cwd(), hints_before=self.hints))
            show(text.lost(batch.lost))

    def _sum(self) -> Text:
        from rich.text import Text

        what = ("batch", "record", "in quarantine", "change")
        said = [
            f"{n} {w}" if w.startswith("in ") or n == 1 else f"{n} {w}{'es' if w.endswith('ch') else 's'}"
            for n, w in zip(self.counts, what, strict=True)
        ]
        if self.lost:
            said.append(f"{self.lost} offsets lost")
        left = "" if self.lag is None else f", {self.lag} still to come" if self.lag else ", nothing left"
        return Text.assemble((f"{self.name}  ", "bold"), f"{', '.join(said)}{left}")
