"""Drops a table, with all that belongs to it in the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from driftline.core.schema.naming import VIEW_SUFFIX
from driftline.core.support import as_json
from driftline.operations.view import drop_view, has_view
from driftline.runtime.shown import Shown

if TYPE_CHECKING:
    from driftline.formats.base import CatalogTable
    from driftline.formats.lakes import Catalog


class DroppedJson(TypedDict):
    """A `Dropped`, in JSON."""

    tables: list[str]
    view: str | None
    captures: list[str]
    folders: list[str]
    files: int
    size: int
    purged: bool
    done: bool


@dataclass(frozen=True, slots=True, repr=False)
class Dropped(Shown):
    """The tables that left the catalog, or would.

    ``tables``: the table, and its quarantine; ``captures``: those with a checkpoint in the lake, which find
    no table at their next start; ``folders``: of the tables' files, with so many ``files`` and bytes;
    ``is_done`` False: it was a dry run.
    """

    tables: tuple[str, ...]
    view: str | None
    captures: tuple[str, ...]
    folders: tuple[str, ...]
    files: int
    size: int
    is_purged: bool
    is_done: bool

    def to_dict(self) -> DroppedJson:
        """The form that JSON output has."""
        return as_json(DroppedJson, self, purged=self.is_purged, done=self.is_done)


def drop(
    catalog: Catalog, table: CatalogTable, captures: Sequence[str], *, purge: bool, dry_run: bool
) -> Dropped:
    """Take a table, its quarantine and its view of the usual name out of the catalog.

    The view goes first: it would name a table that is not there. ``captures``: those that write to the table.
    ``purge``: delete the files, too. Raises UsageError as `Catalog.drop`.
    """
    view = table.name + VIEW_SUFFIX if has_view(catalog, table) else None

    def before() -> None:
        """Drop the view."""
        if view is not None:
            drop_view(catalog, table)

    dropped = catalog.drop(table.name, purge=purge, dry_run=dry_run, before=before)
    return Dropped(
        dropped.names,
        view,
        tuple(captures),
        dropped.folders,
        dropped.files,
        dropped.size,
        purge,
        is_done=not dry_run,
    )
