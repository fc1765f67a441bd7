"""Text about a batch into many tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from driftline.core.schema.text import counted
from driftline.ingest.fan_out import FanOutResult
from driftline.ingest.result import Result
from driftline.operations.split import TableOfSplit, TableSplit
from driftline.report.findings import findings
from driftline.report.lines import LISTED, clean

if TYPE_CHECKING:
    from rich.console import RenderableType

_TABLES = 20  # that have a line


def fan_out(
    result: FanOutResult, title: str = "", *, all_tables: bool = False, more: str = "the result's `results`"
) -> Iterator[RenderableType]:
    """Sums, then a line a table: those with changes and rejects first.

    ``more``: where a reader finds the tables that are not listed.
    """
    counts = [counted(result.rows_read, "record read", "records read")]
    if any(of_table.dry_run for of_table in result.results):
        counts.append("dry run: nothing is written")
    else:
        counts.append(f"{result.rows_written} written")
    if result.rows_quarantined:
        counts.append(f"{result.rows_quarantined} in quarantine")
    counts.append(counted(len(result.results), "table"))
    name = f"  {clean(title)}" if title else ""
    yield Text.assemble((clean(result.pattern), "bold"), name, f"  {', '.join(counts)}")
    in_order = sorted(
        result.results, key=lambda of_table: not (of_table.changes or of_table.rows_quarantined)
    )
    shown = in_order if all_tables else in_order[:_TABLES]
    width = max((len(of_table.table) for of_table in shown), default=0)
    for of_table in shown:
        yield Text(f"  {clean(of_table.table):{width}}  {', '.join(_counts(of_table))}")
        if of_table.audit:
            yield from _first([f"audit  {clean(str(violation))}" for violation in of_table.audit])
        elif of_table.dry_run:
            yield from _first([str(finding) for finding in findings(of_table) if finding.kind != "new"])
    if len(in_order) > len(shown):
        yield Text(f"  and {counted(len(in_order) - len(shown), 'table')} more: see {more}", "dim")
    for table, spellings in result.by_case.items():
        yield Text(
            f"  {clean(table)} has the values {', '.join(map(clean, spellings))}, which differ in case alone"
        )
    yield from _passed_over(result.passed_over, "the files")
    for table, error in result.failed.items():
        yield Text(f"  {clean(table)}: {clean(error.message)}", "red")
    if result.waiting:
        yield Text(
            f"  waiting whole in quarantine: records of {', '.join(map(clean, result.waiting))}", "red"
        )
    if hints := {hint for of_table in result.results for hint in of_table.hints}:
        yield Text(f"  {counted(len(hints), 'hint')}: see --json", "cyan")


def split(
    result: TableSplit, *, all_tables: bool = False, more: str = "the result's `tables`"
) -> Iterator[RenderableType]:
    """The tables that a split made or would make, those with most rows first.

    ``more``: where a reader finds the tables that are not listed.
    """
    counts = [counted(result.rows, "row")]
    if result.dry_run:
        counts.append("dry run: nothing is written")
    counts.append(counted(len(result.tables), "table"))
    yield Text.assemble((clean(result.pattern), "bold"), f"  {clean(result.table)}  {', '.join(counts)}")
    shown = result.tables if all_tables else result.tables[:_TABLES]
    width = max((len(of_split.table) for of_split in shown), default=0)
    for of_split in shown:
        sizes = f"{counted(of_split.rows, 'row')}, {counted(of_split.columns, 'column')}"
        yield Text(f"  {clean(of_split.table):{width}}  {sizes}{_spellings(of_split)}")
    if len(result.tables) > len(shown):
        yield Text(f"  and {counted(len(result.tables) - len(shown), 'table')} more: see {more}", "dim")
    yield from _passed_over(result.passed_over, "their rows")
    if result.stay:
        stay = f"{counted(result.stay, 'row')} without a value {'stays' if result.stay == 1 else 'stay'}"
        yield Text(f"  {stay} in {clean(result.table)}")


def _spellings(of_split: TableOfSplit) -> str:
    """The values of a table that has several."""
    spelled = [", ".join(map(clean, values)) for values in of_split.values]
    return f", of {' and '.join(spelled)}" if len(spelled) > 1 else ""


def _passed_over(tables: Sequence[str], contents: str) -> Iterator[Text]:
    if tables:
        names, others = ", ".join(map(clean, tables[:LISTED])), len(tables) - LISTED
        unlisted = f", and {others} more" if others > 0 else ""
        yield Text(f"  passed over, as they have {contents}: {names}{unlisted}")


def _first(lines: Sequence[str]) -> Iterator[Text]:
    """The first lines about a batch."""
    yield from (Text(f"      {line}") for line in lines[:LISTED])
    if len(lines) > LISTED:
        yield Text(f"      and {len(lines) - LISTED} more", "dim")


def _counts(result: Result) -> Iterator[str]:
    yield f"{result.rows_read} read" if result.dry_run else f"{result.rows_written} written"
    if result.dry_run and not result.before.struct.fields:
        yield "new table"
    if result.rows_quarantined:
        yield f"{result.rows_quarantined} in quarantine"
    if result.changes:
        yield counted(len(result.changes), "column change")
    if result.conflicts:
        yield counted(len(result.conflicts), "conflict")
