"""`driftline tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypedDict

import typer

from driftline.cli.options import Json
from driftline.core.schema.naming import QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driftline.cli.scope import Invocation
    from driftline.stats import Stats


class TableSummaryJson(TypedDict):
    """A table of the lake; ``records`` null: it takes a scan to count them."""

    table: str
    records: int | None
    leaf_columns: int
    drifted_fields: int
    quarantined: int
    rest: int
    at: str | None


TablesJson: TypeAlias = list[TableSummaryJson]


def tables(context: typer.Context, json: Json = False) -> None:
    """List the lake's tables with their row counts."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report.stats_text import lake

    rows = _without_spark(context.obj)
    if rows is None:
        with Progress() as progress:
            opened = context.obj.open(progress, must_exist=True)
            progress.phase("looking at the tables")
            rows = opened.stats().tables
    if json:
        summaries: TablesJson = [_summary(row) for row in rows]
        put(summaries)
    elif not rows:
        typer.echo("no tables yet: driftline ingest FILES --into NAMESPACE.TABLE makes one")
    else:
        show(lake(rows))


def _without_spark(scope: Invocation) -> Sequence[Stats] | None:
    """The tables from their metadata files; None if it takes Spark to read one of them."""
    names = scope.tables()
    if names is None:
        return None
    summaries = [_in_short(scope, name) for name in sorted({name.removesuffix(QUARANTINE) for name in names})]
    readable = [summary for summary in summaries if summary is not None]
    return readable if len(readable) == len(summaries) else None


def _in_short(scope: Invocation, name: str) -> Stats | None:
    from driftline.stats.build import stats, waiting_alone

    if table := scope.offline(name):
        return stats(table, in_short=True)
    quarantine = scope.offline(name + QUARANTINE)
    return waiting_alone(name, quarantine) if quarantine else None


def _summary(stats: Stats) -> TableSummaryJson:
    return {
        "table": stats.table,
        "records": stats.records,
        "leaf_columns": stats.leaves,
        "drifted_fields": stats.drifted_fields,
        "quarantined": stats.quarantined,
        "rest": stats.waiting_values,
        "at": stats.to_dict()["at"],
    }
