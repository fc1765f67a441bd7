"""`driftline relocate`."""

from __future__ import annotations

from typing import Annotated

import typer

from driftline.cli.options import Json
from driftline.core.schema.text import counted
from driftline.errors import UsageError


def relocate(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would be done; write nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    json: Json = False,
) -> None:
    """Make a moved lake whole at its new place, or a copy a lake of its own."""
    from driftline.cli.terminal import Progress, put, show

    if not (dry_run or yes):
        raise UsageError(
            "relocate writes the paths in the lake's metadata anew",
            hint="--dry-run tells what it would do, --yes does it",
        )
    with Progress() as progress:
        progress.phase("relocating")
        relocation = context.obj.relocate(dry_run=dry_run)
    if json:
        put(relocation.to_dict())
        return
    origin = "a copy of the lake at" if relocation.is_copy else "moved from"
    tables = counted(len(relocation.tables), "table")
    files = counted(relocation.files, "metadata file")
    effect = "is now whole here" if not relocation.is_copy else "is now a lake of its own"
    show(
        [
            f"{origin} {relocation.home}",
            *(f"  {name}" for name in relocation.tables),
            f"{tables}, {files} {'written' if relocation.is_done else 'to write'} anew: "
            + (effect if relocation.is_done else "dry run, nothing is written"),
        ]
    )
