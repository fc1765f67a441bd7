"""`driftline contract`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftline.cli.grouped import CommandWithExamples
from driftline.cli.options import FormatOption, Json, Output, Strings, TableName
from driftline.cli.scope import Invocation, little
from driftline.operations.odcs import Promise, exported, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driftline.formats.base import State
    from driftline.operations.contract import ReadOptions
    from driftline.report.findings import ContractCheckJson, Finding

contract = typer.Typer(
    name="contract",
    help="Export a table as a data contract (ODCS), or check one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@contract.command(cls=CommandWithExamples)
def export(context: typer.Context, table: TableName) -> None:
    """Print a table as a contract, in YAML.

    Its schema and settings, by the Open Data Contract Standard.
    """
    state = _state(context.obj, table)
    typer.echo(exported(table, state.schema, state.properties), nl=False)


@contract.command(cls=CommandWithExamples)
def check(
    context: typer.Context,
    table: TableName,
    file: Annotated[Path, typer.Argument(metavar="CONTRACT", help="The YAML file.", show_default=False)],
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE", help="Data to check as well.", show_default=False),
    ] = None,
    format: FormatOption = None,  # noqa: A002
    strings: Strings = False,
    output: Annotated[
        Output, typer.Option(help="github: annotations of lines; junit: a test case for each kind of break.")
    ] = Output.text,
    json: Json = False,
) -> None:
    """Show where a table, or data, breaks a contract.

    Exit code 1 if anything does. The data is checked before it is ingested; the table need not exist.
    """
    from driftline.operations.contract import ReadOptions, breaks
    from driftline.report.findings import broken

    promise = read(file, table)
    deviations: list[Finding] = []
    if sources:
        state, deviations = _of_data(context.obj, table, promise, sources, ReadOptions(format, strings))
    else:
        state = _state(context.obj, table)
    if state.exists:
        deviations = [*broken(file, breaks(promise, state.schema, state.properties)), *deviations]
    _show(table, file, deviations, Output.json if json else output)
    if deviations:
        raise typer.Exit(1)


def _state(scope: Invocation, table: str) -> State:
    from driftline.cli.terminal import Progress

    offline = scope.offline(table)
    with Progress() as progress:
        return offline.load() if offline else scope.open(progress, table=table).table(table).state()


def _of_data(
    scope: Invocation, table: str, promise: Promise, sources: Sequence[str], reading: ReadOptions
) -> tuple[State, list[Finding]]:
    """The table, there or not, and what the data would do to one that keeps the contract."""
    from driftline.cli.terminal import Progress
    from driftline.operations.contract import planned
    from driftline.report.findings import findings
    from driftline.sources.files import expand

    kind, files = expand(sources, reading.format, scope.folder)
    with Progress() as progress:
        at_table = scope.open(progress, brief=little(kind, files)).table(table).format
        result = planned(promise, at_table, files, reading, progress.of("the data"))
        return at_table.load(), list(findings(result))


def _show(table: str, file: Path, deviations: Sequence[Finding], output: Output) -> None:
    from driftline.cli.terminal import put
    from driftline.operations.contract import BREAKS
    from driftline.report.findings import KINDS, github, junit

    kinds = tuple(dict.fromkeys((*BREAKS, *KINDS)))
    match output:
        case Output.json:
            checked: ContractCheckJson = {
                "table": table,
                "ok": not deviations,
                "breaks": [finding.to_dict() for finding in deviations],
            }
            put(checked)
        case Output.github:
            for line in github(deviations, kinds):
                typer.echo(line)
        case Output.junit:
            typer.echo(junit(f"contract {table}", deviations, kinds, kinds))
        case Output.text:
            typer.echo(
                f"{table} keeps {file}" if not deviations else f"{table} breaks {file}: {len(deviations)}"
            )
            for finding in deviations:
                typer.echo(f"  {finding}")
