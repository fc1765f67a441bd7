"""`driftline clean`."""

from __future__ import annotations

from typing import Annotated, TypedDict

import typer

from driftline.cli.options import Json
from driftline.core.schema.text import counted


class CleanedFileJson(TypedDict):
    """A file that belongs to no snapshot."""

    path: str
    size: int


class CleanedJson(TypedDict):
    """The files that were deleted, or would be."""

    deleted: bool
    files: list[CleanedFileJson]


def clean(
    context: typer.Context,
    older_than: Annotated[
        float, typer.Option(metavar="HOURS", min=0, help="Only files last modified at least this long ago.")
    ] = 24,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files; delete nothing.")] = False,
    json: Json = False,
) -> None:
    """Delete files that belong to no snapshot, left by failed batches."""
    from driftline.cli.terminal import Progress, put, show
    from driftline.report.lines import clean as printable

    with Progress() as progress:
        lake = context.obj.open(progress, must_exist=True, writes=True)
        progress.phase("looking for files that no snapshot has")
        orphans = lake.clean(older_than, dry_run=dry_run)
    if json:
        cleaned: CleanedJson = {
            "deleted": not dry_run,
            "files": [{"path": f.path, "size": f.size} for f in orphans],
        }
        put(cleaned)
        return
    action = "to delete" if dry_run else "deleted"
    show(
        [
            *(printable(f.path) for f in orphans),
            f"{counted(len(orphans), 'file')} {action}, {sum(f.size for f in orphans):,} bytes",
        ]
    )
