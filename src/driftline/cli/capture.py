"""`driftline capture` and `driftline seek`."""

from __future__ import annotations

import queue
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from driftline.cli.fan_out import must_fit, must_fit_tables, tables_of
from driftline.cli.grouped import tables
from driftline.cli.options import (
    AllHints,
    AllTables,
    AtMost,
    Audited,
    FailOn,
    FormatOption,
    IntoTables,
    Json,
    MaxTables,
    MetricsFile,
    OnChange,
    Strings,
    TableOptions,
    Verified,
    checked,
    confirm,
    metrics,
    more_hints,
    pairs,
    with_table_options,
)
from driftline.cli.process import EXIT_CODE
from driftline.cli.scope import Invocation
from driftline.config import from_environment
from driftline.core.schema.naming import is_pattern
from driftline.core.schema.text import counted, parse_span
from driftline.core.settings.surfaces import Words
from driftline.errors import UsageError
from driftline.formats.commit import WAITING

if TYPE_CHECKING:
    from rich.text import Text

    from driftline.capture.query import CaptureQuery
    from driftline.capture.seeking import Seek
    from driftline.capture.targets import AnyBatch
    from driftline.cli.terminal import Progress
    from driftline.config import Config
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
    words: Words
    all_tables: bool = False
    more_hints: str | None = "--hints"
    metrics: Metrics | None = None
    health: Health | None = None
    batches: queue.Queue[AnyBatch] = field(default_factory=queue.Queue)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    lag: int | None = None
    lost: int = 0
    checkpoint: str = ""
    left_out: tuple[str, ...] = ()
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

        self.checkpoint = query.checkpoint
        try:
            while batch := self._next(query):
                self._show(batch)
        finally:
            self.left_out = query.left_out
            if self.counts[0] and not self.json:
                show(self._sum())
        query.awaitTermination()
        if not self.counts[0] and not self.json:
            show(self._sum())

    def _next(self, query: CaptureQuery) -> AnyBatch | None:
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
        """Record the capture's health once a second; waiting for other writers is not progress."""
        if self.health is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK
        mark = (self.counts[0], "" if self._wait else self._phase, progress.tasks())
        self.health.seen(mark, doing, idle=not query.status["isTriggerActive"])

    def _show(self, batch: AnyBatch) -> None:
        from rich.text import Text

        from driftline.capture.targets import PatternBatch
        from driftline.cli.terminal import put, show
        from driftline.report import findings, text
        from driftline.report.fan_out import fan_out
        from driftline.report.lines import clean, from_folder

        result = batch.result
        changes = sum(map(findings.schema_changes, batch.results))
        batch_counts = (1, result.rows_read, result.rows_quarantined, changes)
        self.counts = [a + b for a, b in zip(self.counts, batch_counts, strict=True)]
        self.lag = batch.lag
        self.lost += sum(interval.count for interval in batch.lost)
        self._phase = self._wait = ""
        if self.metrics is not None:
            if isinstance(batch, PatternBatch):
                self.metrics.count_tables(batch.results, batch.lag, batch.changed_files)
            else:
                self.metrics.count(batch.result, batch.lag, batch.changed_files)
        if self.json:
            for printed in batch.to_dicts():
                put(printed)
        else:
            if self.counts[0] == 1:
                where = clean(from_folder(self.checkpoint, Path.cwd()))
                show(Text.assemble((f"{self.name}  ", "bold"), f"checkpoint {where}"))
            title = f"{self.name} {batch.epoch}"
            if isinstance(batch, PatternBatch):
                show(fan_out(batch.result, title, all_tables=self.all_tables, more="--all-tables"))
                show([f"  {clean(note)}" for note in batch.notes])
            else:
                show(
                    text.batch(
                        batch.result,
                        title,
                        hints_before=self.hints,
                        more_hints=self.more_hints,
                        words=self.words,
                    )
                )
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
        ends = "".join(f"; {note}" for note in self.left_out)
        return Text.assemble((f"{self.name}  ", "bold"), f"{', '.join(counts)}{lag_text}{ends}")


Stream = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A folder or a glob, here or in a bucket, or kafka://HOST:PORT/TOPIC.",
        show_default=False,
    ),
]
Name = Annotated[
    str, typer.Option(metavar="NAME", help="The name under which the capture remembers its progress.")
]
CheckpointFolder = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Where the capture keeps its progress. [default: in the lake]",
        show_default=False,
    ),
]
KafkaSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka-set",
        metavar="KEY=VALUE",
        help="A setting of the Kafka client; ${NAME} comes from the environment.",
        show_default=False,
    ),
]


ValueFormats = Annotated[
    Literal["json", "avro", "protobuf", "json-schema"], typer.Option(help="The format of Kafka's values.")
]
RegistryUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="The URL of the schema registry.", show_default=False)
]


@with_table_options
def capture(
    context: typer.Context,
    source: Stream,
    into: IntoTables,
    *,
    name: Name,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Keep running; look for new data every 10s, 5m, ...", show_default=False
        ),
    ] = None,
    format: FormatOption = None,  # noqa: A002
    max_files: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum number of files per batch.")
    ] = 1000,
    notify: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="Where S3 announces new objects: an SQS queue's URL, or a file.",
            show_default=False,
        ),
    ] = None,
    list_every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How often to list the bucket: see --notify. [default with it: 15m]",
            show_default=False,
        ),
    ] = None,
    changed_files: Annotated[
        Literal["fail", "skip", "append", "again"],
        typer.Option(
            help="What becomes of a file that changed after it was ingested: an error, nothing, only the lines "
            "behind those ingested, or all of it again."
        ),
    ] = "fail",
    checkpoint: CheckpointFolder = None,
    kafka_set: KafkaSettings = None,
    value_format: ValueFormats = "json",
    registry: RegistryUrl = None,
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="WHERE", help="Where to start in a topic: earliest, latest, or a time."
        ),
    ] = "earliest",
    max_records: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Maximum number of Kafka records per batch.", show_default=False
        ),
    ] = None,
    kafka_metadata: Annotated[
        bool,
        typer.Option(
            "--kafka-metadata",
            help="Add the key, partition, offset, timestamp and headers of each Kafka record as column _kafka.",
        ),
    ] = False,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Continue without records that Kafka has deleted.")
    ] = False,
    resume_from: Annotated[
        Literal["table", "checkpoint"] | None,
        typer.Option(
            metavar="WHICH",
            help="Which counts where table and checkpoint differ, as one was restored: table, or checkpoint.",
            show_default=False,
        ),
    ] = None,
    options: TableOptions,
    strings: Strings = False,
    audit: Audited = False,
    fail_on: FailOn = None,
    at_most: AtMost = None,
    verify: Verified = False,
    on_audit: Annotated[
        Literal["stop", "quarantine"],
        typer.Option(
            help="What follows if a batch fails: the capture stops before it, or its records wait in quarantine."
        ),
    ] = "stop",
    max_tables: MaxTables = None,
    all_tables: AllTables = False,
    hints: AllHints = False,
    json: Json = False,
    on_change: OnChange = None,
    metrics_port: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve metrics for Prometheus; without HOST to this machine only.",
            show_default=False,
        ),
    ] = None,
    metrics_file: MetricsFile = None,
    health_port: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve /healthz, which tells whether the capture makes progress; without HOST to this machine only.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Ingest what is new in a source, each record exactly once.

    Ends once it has caught up; with --every it runs until Ctrl-C.
    """
    from driftline.capture import check  # late: help and completion do without
    from driftline.cli.terminal import Progress

    scope: Invocation = context.obj
    scope.interrupt.outcome = f"stopped before the capture began: {into} is as it was"
    pause = None if every is None else seconds("--every", every)
    pause_of_lists = None if list_every is None else seconds("--list-every", list_every)
    settings = options.settings(scope, into)
    check(source, name)
    if is_pattern(into):
        must_fit(into, {"--strings": strings, "--hints": hints})
        _must_go_on(into, resume_from)
    else:
        must_fit_tables(max_tables, all_tables=all_tables)
    clients = clients_of(scope, kafka_set, registry)
    counted = metrics(into, name, address=metrics_port, file=metrics_file)
    health = None if health_port is None else _served(health_port, pause)
    with Progress() as progress:
        lake = scope.open(progress, writes=True)
    more = more_hints(all_hints=hints)
    shown = Running(lake, name, json, scope.words(into), all_tables, more, counted, health)
    if is_pattern(into):
        query = tables_of(lake, into, max_tables).capture(
            source, name=name, checkpoint=checkpoint, every=pause, format=format, max_files=max_files, notify=notify,
            list_every=pause_of_lists, changed_files=changed_files, kafka=clients.kafka, start=from_,
            value_format=value_format, registry=clients.registry, kafka_metadata=kafka_metadata,
            max_records=max_records, skip_lost=skip_lost,
            settings=lambda table: options.settings(scope, table),
            audit=audit, fail_on=fail_on or (), at_most=at_most, verify=verify, on_audit=on_audit,
            progress=shown.phase, on_batch=shown.batches.put, on_change=on_change,
        )  # fmt: skip
    else:
        query = lake.table(into).capture(
            source, name=name, checkpoint=checkpoint, every=pause, format=format, strings=strings,
            max_files=max_files, notify=notify, list_every=pause_of_lists, changed_files=changed_files,
            kafka=clients.kafka, start=from_, value_format=value_format, registry=clients.registry,
            kafka_metadata=kafka_metadata, max_records=max_records, skip_lost=skip_lost,
            resume_from=resume_from, settings=settings, audit=audit, fail_on=fail_on or (), at_most=at_most, verify=verify, on_audit=on_audit,
            progress=shown.phase, on_batch=shown.batches.put, on_change=on_change,
        )  # fmt: skip
    with scope.interrupt.gently(query.stop):
        shown.until_it_ends(query)
    if scope.interrupt.stopping and pause is None:
        raise typer.Exit(EXIT_CODE)


def _must_go_on(pattern: str, resume_from: str | None) -> None:
    """Raise UsageError for a choice that tables of several times do not have."""
    if resume_from is not None:
        raise UsageError(
            f"{pattern}: --resume-from chooses between a checkpoint and one table, and tables may be of several times",
            "restore the checkpoint and all tables of the pattern to one time; or pass another --name, and new tables",
        )


def seek(
    context: typer.Context,
    source: Stream,
    into: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE.TABLE",
            callback=checked,
            help="The capture's table, or its pattern of tables.",
            autocompletion=tables,
        ),
    ],
    *,
    name: Name,
    to: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="earliest: everything again; latest: only what arrives from now on; or a time, which for "
            "files is that of their last change.",
            show_default=False,
        ),
    ],
    format: FormatOption = None,  # noqa: A002
    checkpoint: CheckpointFolder = None,
    kafka_set: KafkaSettings = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be ingested again or skipped; write nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    json: Json = False,
) -> None:
    """Move a capture to another position: the beginning, the end, or a time."""
    from driftline.capture import check  # late: help and completion do without
    from driftline.cli.terminal import Progress, put, show

    scope: Invocation = context.obj
    confirm("seek makes a capture ingest records again, or skip some", dry_run=dry_run, yes=yes)
    check(source, name)
    clients = clients_of(scope, kafka_set, None)
    with Progress() as progress:
        lake = scope.open(progress, must_exist=True, writes=True)
        tables_or_table = lake.fan_out(into) if is_pattern(into) else lake.table(into)
        sought = tables_or_table.seek(
            source,
            name=name,
            to=to,
            checkpoint=checkpoint,
            format=format,
            kafka=clients.kafka,
            dry_run=dry_run,
        )
    put(sought.to_dict()) if json else show(_lines(sought))


def _lines(sought: Seek) -> list[str]:
    """The files or offsets that a capture ingests again, and skips, as text."""
    from driftline.report.lines import clean

    again, passed = (
        [f"  {clean(name)}" for name in names] or ["  nothing"] for names in (sought.again, sought.passed)
    )
    end = f"capture {sought.capture} continues at {sought.to} when it starts next"
    return [
        "ingested again, in addition to the rows that the table has:",
        *again,
        "skipped:",
        *passed,
        end if sought.is_done else "dry run, nothing is written",
    ]


def clients_of(scope: Invocation, flags: list[str] | None, registry: str | None) -> Config:
    """Merge the settings of Kafka's client and of a registry: flags take precedence over the file. Errors
    hide the secrets among them.
    """
    client = pairs(flags, "--kafka-set", "key=value")
    client = {key: from_environment(text, f"--kafka-set {key}") for key, text in client.items()}
    url = {} if registry is None else {"url": from_environment(registry, "--registry")}
    config = scope.config
    scope.config = replace(config, kafka={**config.kafka, **client}, registry={**config.registry, **url})
    return scope.config


def _served(address: str, every: float | None) -> Health:
    """Serve the capture's health at the address from its start."""
    from driftline.report.metrics import Health

    health = Health(every)
    health.serve(address)
    return health


def seconds(flag: str, text: str) -> float:
    """A time, as a flag gives it, as a number of seconds."""
    with suppress(ValueError):
        if span := parse_span(text):
            return span
    raise UsageError(f"{flag}: {text!r} is not a time", hint="write a number with a unit: 500ms, 10s, 5m, 1h")
