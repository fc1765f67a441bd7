"""`driftline verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from driftline.cli import grouped
from driftline.cli.capture import KafkaSettings, RegistryUrl, ValueFormats, clients_of
from driftline.cli.options import FormatOption, Json, Sources, checked
from driftline.cli.scope import Invocation
from driftline.core.schema.naming import is_pattern
from driftline.errors import NeedsSpark

if TYPE_CHECKING:
    from driftline.verify import PatternVerdict, Verdict

# Bytes: a file without a record has fewer, as one with a header alone
_SMALL = 1 << 16


def verify(
    context: typer.Context,
    sources: Sources,
    table: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE.TABLE",
            callback=checked,
            help="The table to check. With braces, as in hooks.{event}: the tables of a pattern.",
            autocompletion=grouped.tables,
        ),
    ],
    format: FormatOption = None,  # noqa: A002
    exactly: Annotated[
        bool,
        typer.Option("--exactly", help="Check as well that the table holds no other rows."),
    ] = False,
    kafka_set: KafkaSettings = None,
    value_format: ValueFormats = "json",
    registry: RegistryUrl = None,
    json: Json = False,
) -> None:
    """Prove, value by value, that nothing was lost.

    Of topics, kafka://HOST:PORT/TOPIC, all is checked that captures have taken
    and that Kafka still has.
    """
    from driftline.cli.terminal import put, show
    from driftline.report import text
    from driftline.sources.files import expand, topics_in

    scope: Invocation = context.obj
    if topics_in(sources) is not None:
        clients = clients_of(scope, kafka_set, registry)
        topics = {"kafka": clients.kafka, "value_format": value_format, "registry": clients.registry}
        verdict = _by_spark(scope, table, sources, {**topics, "exactly": exactly}, must_exist=True)
    else:
        kind, files = expand(sources, format, scope.folder)
        verdict = _of_files(scope, table, files, kind, exactly=exactly)
    if json:
        for printed in verdict.to_dicts():
            put(printed)
    elif is_pattern(table):
        show(text.pattern_verdict(cast("PatternVerdict", verdict)))
    else:
        show(text.verdict(cast("Verdict", verdict), table))
    if not verdict.ok:
        raise typer.Exit(1)


def _of_files(
    scope: Invocation, table: str, files: Sequence[str], kind: str, *, exactly: bool
) -> Verdict | PatternVerdict:
    """The verdict on files, without Spark where they and the table are small."""
    from driftline.cli.terminal import Progress

    # A feed makes its table with its first record. Only files too small to tell are read before a missing
    # table is an error: else a typo would cost a start of Spark.
    sizes = (file.stat().st_size if file.is_file() else _SMALL for file in map(Path, files))
    must_exist = sum(sizes) >= _SMALL
    if not is_pattern(table):
        with Progress() as progress, suppress(NeedsSpark):
            progress.phase("reading source and table")
            return scope.verify(table, files, kind, exactly=exactly)
    return _by_spark(scope, table, files, {"format": kind, "exactly": exactly}, must_exist=must_exist)


def _by_spark(
    scope: Invocation, table: str, sources: Sequence[str], options: Mapping[str, Any], *, must_exist: bool
) -> Verdict | PatternVerdict:
    """The verdict on files or topics, by Spark.

    Args:
        options: of `Table.verify`, and of `PatternTables.verify`.
        must_exist: a table that is not there is an error at once.
    """
    from driftline.cli.terminal import Progress

    with Progress() as progress:
        known = table if must_exist and not is_pattern(table) else None
        lake = scope.open(progress, must_exist=True, table=known)
        progress.phase("comparing source and table")
        if is_pattern(table):
            return lake.fan_out(table).verify(list(sources), **options)
        with scope.naming_similar(table):
            return lake.table(table).verify(list(sources), **options)
