"""`driftline ingest` and `driftline plan`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from driftline.cli.fan_out import fan_out, must_fit, must_fit_tables
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
    NoKeep,
    OnChange,
    Output,
    PerFile,
    Sources,
    Strings,
    TableOptions,
    Verified,
    metrics,
    more_hints,
    with_table_options,
)
from driftline.cli.scope import Invocation, little, title_of
from driftline.core.schema.naming import is_pattern
from driftline.core.settings.surfaces import Words
from driftline.errors import DataError
from driftline.files.endings import FileFormat

if TYPE_CHECKING:
    from driftline.ingest.result import Result
    from driftline.lake import Table
    from driftline.report.findings import Finding
    from driftline.report.metrics import Metrics


@with_table_options
def ingest(
    context: typer.Context,
    sources: Sources,
    into: IntoTables,
    *,
    batch_per_file: PerFile = False,
    format: FormatOption = None,  # noqa: A002
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan only; write nothing.")] = False,
    options: TableOptions,
    strings: Strings = False,
    again: Annotated[
        bool, typer.Option("--again", help="Ingest files again that the table already has.")
    ] = False,
    no_keep: NoKeep = False,
    audit: Audited = False,
    fail_on: FailOn = None,
    at_most: AtMost = None,
    verify: Verified = False,
    max_tables: MaxTables = None,
    all_tables: AllTables = False,
    hints: AllHints = False,
    json: Json = False,
    on_change: OnChange = None,
    metrics_file: MetricsFile = None,
) -> None:
    """Ingest files into a table as one batch, or into the tables of a pattern."""
    from driftline.ingest.result import AuditError

    if is_pattern(into):
        must_fit(into, {
            "--strings": strings, "--hints": hints,
        })  # fmt: skip
        fan_out(
            context.obj, sources, into, options, per_file=batch_per_file, format_=format, max_tables=max_tables, all_tables=all_tables,
            dry_run=dry_run, again=again, keep=not no_keep, output=Output.json if json else Output.text,
            on_change=on_change,
            counted=None if dry_run else metrics(into, file=metrics_file),
            audited={"audit": audit, "fail_on": fail_on or (), "at_most": at_most, "verify": verify},
        )  # fmt: skip
        return
    must_fit_tables(max_tables, all_tables=all_tables)
    settings = options.settings(context.obj, into)
    counted = None if dry_run else metrics(into, file=metrics_file)
    results = _results(
        context.obj, sources, into, format, settings,
        per_file=batch_per_file, strings=strings, dry_run=dry_run, again=again, keep=not no_keep, on_change=on_change,
        counted=counted, audit=audit, fail_on=fail_on or (), at_most=at_most, verify=verify,
    )  # fmt: skip
    try:
        _show(results, Output.json if json else Output.text, context.obj.words(into), hints=hints)
    except AuditError as failed:
        if json:
            from driftline.cli.terminal import put

            put(failed.result.to_dict())
        raise


@with_table_options
def plan(
    context: typer.Context,
    sources: Sources,
    into: IntoTables,
    *,
    batch_per_file: PerFile = False,
    format: FormatOption = None,  # noqa: A002
    options: TableOptions,
    strings: Strings = False,
    no_keep: NoKeep = False,
    fail_on: FailOn = None,
    # Not `--format`, which names the format of the sources, in `ingest` and `plan` alike.
    output: Annotated[
        Output, typer.Option(help="github: annotations of lines; junit: a test case for each kind of change.")
    ] = Output.text,
    max_tables: MaxTables = None,
    all_tables: AllTables = False,
    hints: AllHints = False,
    json: Json = False,
) -> None:
    """Show what ingest would change; write nothing.

    The same as ingest --dry-run; --fail-on and --output make it a check of a pull request.
    """
    from driftline.report.findings import findings, of_tables

    scope, output = context.obj, Output.json if json else output
    if is_pattern(into):
        must_fit(into, {"--strings": strings, "--hints": hints})
        planned = fan_out(
            scope, sources, into, options, per_file=batch_per_file, format_=format, max_tables=max_tables, all_tables=all_tables,
            dry_run=True, again=False, keep=not no_keep, output=output, fail_on=fail_on or (),
        )  # fmt: skip
        _refuse((finding for batch in planned for finding in of_tables(batch.results)), fail_on or ())
        return
    must_fit_tables(max_tables, all_tables=all_tables)
    settings = options.settings(scope, into)
    results = list(
        _results(
            scope, sources, into, format, settings,
            per_file=batch_per_file, strings=strings, dry_run=True, keep=not no_keep, on_change=None,
        )
    )  # fmt: skip
    _show(results, output, scope.words(into), fail_on or (), hints=hints)
    _refuse((finding for _, result in results for finding in findings(result)), fail_on or ())


def _refuse(planned: Iterable[Finding], fail_on: Collection[str]) -> None:
    """Raise DataError if a plan has findings of kinds that are not allowed."""
    refused = [finding for finding in planned if finding.kind in fail_on]
    if refused:
        kinds = Counter(finding.kind for finding in refused)
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        raise DataError(f"not allowed by --fail-on: {counts}", hint="\n  ".join(map(str, refused)))


def _results(
    scope: Invocation,
    sources: Sequence[str],
    into: str,
    format_: str | None,
    settings: Mapping[str, str],
    *,
    per_file: bool,
    strings: bool,
    dry_run: bool,
    keep: bool,
    on_change: str | None,
    again: bool = False,
    counted: Metrics | None = None,
    audit: bool = False,
    fail_on: Sequence[str] = (),
    at_most: int | None = None,
    verify: bool = False,
) -> Iterator[tuple[str, Result]]:
    """Ingest the sources batch by batch; yields the name and the result of each."""
    from driftline.cli.terminal import Progress
    from driftline.sources.files import expand, stamps

    scope.interrupt.outcome = f"stopped: {into} is as it was"
    scope.interrupt.outcome_behind = f"stopped: {into} has what was committed so far, and no more"
    kind, files = expand(sources, format_, scope.folder)
    batches = [[file] for file in sorted(files)] if per_file else [files]
    with Progress() as progress:
        lake = scope.open(progress, brief=little(kind, files), writes=not dry_run)
    if per_file and not (again or dry_run):
        _check_new(lake.table(into), files)
    for batch in batches:
        scope.interrupt.check()
        title = title_of(batch)
        with Progress(lake.spark, sum(stamp.size for stamp in stamps(batch).values())) as progress:
            result = lake.table(into).ingest(
                batch,
                format=cast("FileFormat", kind),
                strings=strings,
                settings=settings,
                dry_run=dry_run,
                again=again,
                keep=keep,
                audit=audit,
                fail_on=fail_on,
                at_most=at_most,
                verify=verify,
                on_change=on_change,
                progress=scope.interrupt.watching(progress.of(title)),
            )
        if counted is not None:
            counted.count(result)
        yield title, result


def _check_new(table: Table, files: Sequence[str]) -> None:
    """Names all files that the table has taken before the first is ingested. Raises DataError."""
    from driftline.ingest.batch import FileFingerprints
    from driftline.sources.files import stamps

    FileFingerprints.stamped(stamps(files)).check(table.format, table.format.load())


def _show(
    results: Iterator[tuple[str, Result]] | Sequence[tuple[str, Result]],
    output: Output,
    words: Words,
    fail_on: Collection[str] = (),
    *,
    hints: bool,
) -> None:
    from driftline.cli.terminal import put, show
    from driftline.report import findings, text

    hints_before: set[str] = set()
    for title, result in results:
        match output:
            case Output.json:
                put(result.to_dict())
            case Output.text:
                more = more_hints(all_hints=hints)
                lines = text.batch(result, title, hints_before=hints_before, more_hints=more, words=words)
                show(lines)
            case Output.github:
                for line in findings.github(list(findings.findings(result)), fail_on):
                    typer.echo(line)
            case Output.junit:
                typer.echo(findings.junit(f"plan {result.table}", list(findings.findings(result)), fail_on))
