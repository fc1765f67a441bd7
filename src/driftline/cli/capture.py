"""`driftline capture`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from driftline.cli import complete, interrupt
from driftline.cli.options import (
    AllHints,
    FormatOption,
    Into,
    Json,
    MetricsFile,
    OnChange,
    Strings,
    TableOptions,
    metrics,
    more_hints,
    named,
    pairs,
    with_table_options,
)
from driftline.cli.running import Running
from driftline.cli.scope import Invocation
from driftline.config import from_environment
from driftline.core.schema.text import parse_span
from driftline.errors import UsageError

if TYPE_CHECKING:
    from driftline.capture.seeking import Seek
    from driftline.config import Config
    from driftline.report.metrics import Health


class ValueFormat(StrEnum):
    json = "json"
    avro = "avro"
    protobuf = "protobuf"
    json_schema = "json-schema"


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


@with_table_options
def capture(
    context: typer.Context,
    source: Stream,
    into: Into,
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
    checkpoint: CheckpointFolder = None,
    kafka_set: KafkaSettings = None,
    value_format: Annotated[
        ValueFormat, typer.Option(help="The format of Kafka's values.")
    ] = ValueFormat.json,
    registry: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The URL of the schema registry.", show_default=False),
    ] = None,
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
    clients = _clients(scope, kafka_set, registry)
    counted = metrics(into, name, address=metrics_port, file=metrics_file)
    health = None if health_port is None else _served(health_port, pause)
    with Progress() as progress:
        lake = scope.open(progress, writes=True)
    shown = Running(
        lake, name, json=json, more_hints=more_hints(all_hints=hints), metrics=counted, health=health
    )
    query = lake.table(into).capture(
        source,
        name=name,
        checkpoint=checkpoint,
        every=pause,
        format=format,
        strings=strings,
        max_files=max_files,
        notify=notify,
        list_every=pause_of_lists,
        kafka=clients.kafka,
        start=from_,
        value_format=str(value_format),
        registry=clients.registry,
        kafka_metadata=kafka_metadata,
        max_records=max_records,
        skip_lost=skip_lost,
        resume_from=resume_from,
        settings=settings,
        progress=shown.phase,
        on_batch=shown.batches.put,
        on_change=on_change,
    )
    with scope.interrupt.gently(query.stop):
        shown.until_it_ends(query)
    if scope.interrupt.stopping and pause is None:
        raise typer.Exit(interrupt.EXIT_CODE)


def seek(
    context: typer.Context,
    source: Stream,
    into: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE.TABLE",
            callback=named,
            help="The capture's table.",
            autocompletion=complete.tables,
        ),
    ],
    *,
    name: Name,
    to: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="earliest takes everything again, latest only what comes from now on; or a time: of files "
            "that of their last change.",
            show_default=False,
        ),
    ],
    format: FormatOption = None,  # noqa: A002
    checkpoint: CheckpointFolder = None,
    kafka_set: KafkaSettings = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would be taken again or passed over; write nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    json: Json = False,
) -> None:
    """Have a capture go on at another position: its beginning, end, or a time."""
    from driftline.capture import check  # late: help and completion do without
    from driftline.cli.terminal import Progress, put, show

    scope: Invocation = context.obj
    if not (dry_run or yes):
        raise UsageError(
            "seek has a capture take records again, or pass over some",
            hint="--dry-run tells which, --yes does it",
        )
    check(source, name)
    clients = _clients(scope, kafka_set, None)
    with Progress() as progress:
        lake = scope.open(progress, must_exist=True, writes=True)
        sought = lake.table(into).seek(
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
    """The files or offsets that a capture takes again, and passes over, as text."""
    from driftline.report.lines import clean

    again, passed = (
        [f"  {clean(name)}" for name in names] or ["  nothing"] for names in (sought.again, sought.passed)
    )
    end = f"capture {sought.capture} goes on at {sought.to} with its next start"
    return [
        "taken again, once more than the table has it:",
        *again,
        "passed over:",
        *passed,
        end if sought.is_done else "dry run, nothing is written",
    ]


def _clients(scope: Invocation, flags: list[str] | None, registry: str | None) -> Config:
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
