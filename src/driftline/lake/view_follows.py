"""A table's view follows where the table changes its name or its columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driftline.errors import DriftlineError
from driftline.operations.alter import Altered, AlterRequest, alter
from driftline.operations.view import moved, remade

if TYPE_CHECKING:
    from driftline.formats.base import CatalogTable
    from driftline.formats.lakes import Catalog


def altered(
    lake: Catalog, catalog: str, table: CatalogTable, request: AlterRequest, *, upgrade: bool
) -> Altered:
    """Alter a table of the lake; its view follows if the table gets another name.

    ``catalog``: the name that statements may give the lake.
    """
    result = alter(table, request, catalog=catalog, upgrade=upgrade)
    if result.table == table.name:
        return result
    try:
        view = moved(lake, table, lake.table(result.table))
    except DriftlineError as error:
        return replace(result, notes=(*result.notes, f"its view is to be made again: {error.message}"))
    return replace(result, notes=(*result.notes, f"its view is {view.name} now")) if view else result


def view_note(lake: Catalog, table: CatalogTable) -> tuple[str, ...]:
    """Make the table's view follow it, if there is one; returns a note on that."""
    try:
        view = remade(lake, table)
    except DriftlineError as error:
        return (f"the view of {table.name} is to be made again: {error.message}",)
    return (f"view {view.name} was made again",) if view else ()
