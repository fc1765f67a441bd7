"""`driftline ingest` and `driftline plan` with a pattern of tables, and `driftline split`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypedDict, cast

import typer

from driftline.cli.options import AllTables, Json, MaxTables, Output, TableName, TableOptions
from driftline.cli.scope import Invocation, little, title_of
from driftline.errors import UsageError
from driftline.files.endings import FileFormat
from driftline.ingest.pattern import Pattern

if TYPE_CHECKING:
    from driftline.ingest.fan_out import FanOutResult
    from driftline.lake import Lake, PatternTables
    from driftline.report.metrics import Metrics


class AuditArguments(TypedDict):
    """The audit that flags ask for, as `PatternTables.ingest` takes it."""

    audit: bool
    fail_on: Sequence[str]
    at_most: int | None
    verify: bool


NO_AUDIT: AuditArguments = {"audit": False, "fail_on": (), "at_most": None, "verify": False}


def fan_out(
    scope: Invocation,
    sources: Sequence[str],
    pattern: str,
    options: TableOptions,
    *,
    per_file: bool,
    format_: str | None,
    max_tables: int | None,
    all_tables: bool,
    dry_run: bool,
    again: bool,
    keep: bool,
    output: Output,
    fail_on: Sequence[str] = (),
    audited: AuditArguments = NO_AUDIT,
    counted: Metrics | None = None,
    on_change: str | None = None,
) -> list[FanOutResult]:
    """Ingest files into the tables of a pattern, or plan it, and print the result of each batch."""
    from driftline.cli.terminal import Progress
    from driftline.ingest.fan_out import FanOutAuditError, FanOutError, TablesHaveFiles
    from driftline.sources.files import expand, stamps

    # Report what is wrong with them before Spark starts
    options.settings(scope, pattern)
    scope.interrupt.outcome = f"stopped: the tables of {pattern} are as they were"
    scope.interrupt.outcome_behind = (
        f"stopped: some tables of {pattern} have the batch; the same command again brings what is missing"
    )
    kind, files = expand(sources, format_, scope.folder)
    batches = [[file] for file in sorted(files)] if per_file else [files]
    with Progress() as progress:
        lake = scope.open(progress, brief=little(kind, files), writes=not dry_run)
    results: list[FanOutResult] = []
    for batch in batches:
        scope.interrupt.check()
        title = title_of(batch)
        with Progress(lake.spark, sum(stamp.size for stamp in stamps(batch).values())) as progress:
            try:
                result = tables_of(lake, pattern, max_tables).ingest(
                    batch,
                    format=cast("FileFormat", kind),
                    settings=lambda table: options.settings(scope, table),
                    dry_run=dry_run,
                    again=again,
                    keep=keep,
                    on_change=on_change,
                    progress=scope.interrupt.watching(progress.of(title)),
                    **audited,
                )
            except (FanOutError, FanOutAuditError) as failed:
                if counted is not None and isinstance(failed, FanOutError):
                    counted.count_tables(failed.result.results)
                _show(failed.result, title, output, fail_on, all_tables=all_tables)
                raise
            except TablesHaveFiles as all_have:
                # Behind one that was broken off, others are missing still.
                if not results and batch is batches[-1]:
                    raise
                result = all_have.result
        if counted is not None:
            counted.count_tables(result.results)
        _show(result, title, output, fail_on, all_tables=all_tables)
        results += [result] if result.results else []
    return results


def split(
    context: typer.Context,
    table: TableName,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The field whose values name the tables, as in event; beside the table.",
            show_default=False,
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN", help="The tables' names instead, as in 'kinds.{event}'.", show_default=False
        ),
    ] = None,
    max_tables: MaxTables = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the tables that would be made; write nothing.")
    ] = False,
    all_tables: AllTables = False,
    json: Json = False,
) -> None:
    """Make a table for each value of a field, of the rows that a table has.

    Each gets the columns that have a value among its rows. The table stays
    as it is. If this is broken off, the same command brings what is missing.
    """
    from driftline.cli.terminal import Progress, put, show
    from driftline.report.fan_out import split as lines

    pattern = _pattern_of(table, by, into)
    context.obj.interrupt.outcome = f"stopped: the tables of {pattern} are as they were"
    context.obj.interrupt.outcome_behind = (
        f"stopped: some tables of {pattern} have their rows; the same command again brings what is missing"
    )
    with Progress() as progress:
        lake = context.obj.open(progress, table=table, writes=not dry_run)
        tables = tables_of(lake, pattern, max_tables)
        watching = context.obj.interrupt.watching(progress.of(table))
        result = tables.split(table, dry_run=dry_run, progress=watching)
    put(result.to_dict()) if json else show(lines(result, all_tables=all_tables, more="--all-tables"))


def _pattern_of(table: str, by: str | None, into: str | None) -> str:
    """The pattern of a split. Raises UsageError without a field, or for one that is not in the pattern."""
    if by is None and into is None:
        raise UsageError("no field given", "pass --by PATH, as in --by event")
    pattern = into or f"{table.rpartition('.')[0]}.{{{by}}}"
    if by is not None and f"{{{by}}}" not in pattern:
        raise UsageError(f"{pattern!r} has no {{{by}}}", "--into needs no --by: its braces hold the field")
    Pattern.of(pattern)  # what is wrong with it is said before Spark starts
    return pattern


def tables_of(lake: Lake, pattern: str, max_tables: int | None) -> PatternTables:
    """Open the tables of a pattern. ``max_tables``: as a flag gives it, None without the flag."""
    return lake.fan_out(pattern) if max_tables is None else lake.fan_out(pattern, max_tables=max_tables)


def must_fit_tables(max_tables: int | None, *, all_tables: bool) -> None:
    """Raise UsageError for flags that count for a pattern alone."""
    if max_tables is not None or all_tables:
        raise UsageError(
            "--max-tables and --all-tables are for a pattern of tables", "--into 'hooks.{event}' is one"
        )


def must_fit(pattern: str, flags: Mapping[str, bool]) -> None:
    """Raise UsageError for flags that count for one table alone."""
    if unfit := [flag for flag, value in flags.items() if value]:
        raise UsageError(
            f"{pattern}: {', '.join(unfit)} counts for one table, and not yet for those of a pattern",
            "leave it out, or name one table",
        )


def _show(
    result: FanOutResult, title: str, output: Output, fail_on: Sequence[str], *, all_tables: bool
) -> None:
    from driftline.cli.terminal import put, show
    from driftline.report import findings
    from driftline.report.fan_out import fan_out as lines

    match output:
        case Output.json:
            for printed in result.to_dicts():
                put(printed)
        case Output.text:
            show(lines(result, title, all_tables=all_tables, more="--all-tables"))
        case Output.github:
            for line in findings.github(list(findings.of_tables(result.results)), fail_on):
                typer.echo(line)
        case Output.junit:
            of_tables = list(findings.of_tables(result.results))
            typer.echo(findings.junit(f"plan {result.pattern}", of_tables, fail_on))
