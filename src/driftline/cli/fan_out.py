"""`driftline ingest` and `driftline plan` with a pattern of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import typer

from driftline.cli.options import Output, TableOptions
from driftline.cli.scope import Invocation, little, title_of
from driftline.errors import UsageError
from driftline.files.endings import FileFormat

if TYPE_CHECKING:
    from driftline.ingest.fan_out import FanOutResult
    from driftline.lake import Lake, PatternTables


def fan_out(
    scope: Invocation,
    sources: Sequence[str],
    pattern: str,
    options: TableOptions,
    *,
    format_: str | None,
    max_tables: int | None,
    all_tables: bool,
    dry_run: bool,
    again: bool,
    keep: bool,
    output: Output,
    fail_on: Sequence[str] = (),
) -> FanOutResult:
    """Ingest files into the tables of a pattern, or plan it, and print the result."""
    from driftline.cli.terminal import Progress
    from driftline.ingest.fan_out import FanOutError
    from driftline.sources.files import expand, stamps

    options.settings(scope, pattern)  # report what is wrong with them before Spark starts
    scope.interrupt.outcome = f"stopped: the tables of {pattern} are as they were"
    scope.interrupt.outcome_behind = (
        f"stopped: some tables of {pattern} have the batch; the same command again brings what is missing"
    )
    kind, files = expand(sources, format_, scope.folder)
    title = title_of(files)
    with Progress() as progress:
        lake = scope.open(progress, brief=little(kind, files), writes=not dry_run)
    with Progress(lake.spark, sum(stamp.size for stamp in stamps(files).values())) as progress:
        tables = tables_of(lake, pattern, max_tables)
        try:
            result = tables.ingest(
                files,
                format=cast("FileFormat", kind),
                settings=lambda table: options.settings(scope, table),
                dry_run=dry_run,
                again=again,
                keep=keep,
                progress=scope.interrupt.watching(progress.of(title)),
            )
        except FanOutError as failed:
            _show(failed.result, title, output, fail_on, all_tables=all_tables)
            raise
    _show(result, title, output, fail_on, all_tables=all_tables)
    return result


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
