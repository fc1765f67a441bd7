"""`driftline tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from driftline.cli.options import Json

if TYPE_CHECKING:
    from driftline.stats import Stats


def tables(context: typer.Context, json: Json = False) -> None:
    """List the lake's tables with their row counts."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report.stats_text import lake

    with Progress() as progress:
        opened = context.obj.open(progress, must_exist=True)
        progress.phase("looking at the tables")
        rows = opened.stats().tables
    if json:
        put([_summary(row) for row in rows])
    elif not rows:
        typer.echo("no tables yet: driftline ingest FILES --into NAMESPACE.TABLE makes one")
    else:
        show(lake(rows))


def _summary(stats: Stats) -> dict[str, object]:
    return {
        "table": stats.table,
        "records": stats.records,
        "leaf_columns": stats.leaves,
        "drifted_fields": len(stats.drifted),
        "quarantined": stats.quarantined,
        "rest": stats.waiting_values,
        "at": stats.to_dict()["at"],
    }
