"""A table's view follows where the table changes its name or its columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driftline.errors import DriftlineError
from driftline.operations.alter import Altered, AlterRequest, alter
from driftline.operations.view import moved, remade

if TYPE_CHECKING:
    from driftline.lake.table import Table


def altered(table: Table, request: AlterRequest, *, upgrade: bool) -> Altered:
    """Alter the table; its view follows if the table gets another name."""
    result = alter(table.format, request, catalog=table.lake.catalog, upgrade=upgrade)
    if result.table == table.name:
        return result
    try:
        view = moved(table.lake.format, table.format, table.lake.format.table(result.table))
    except DriftlineError as error:
        return replace(result, notes=(*result.notes, f"its view is to be made again: {error.message}"))
    return replace(result, notes=(*result.notes, f"its view is {view.name} now")) if view else result


def view_note(table: Table) -> tuple[str, ...]:
    """Make the table's view follow it, if there is one; returns a note on that."""
    try:
        view = remade(table.lake.format, table.format)
    except DriftlineError as error:
        return (f"the view of {table.name} is to be made again: {error.message}",)
    return (f"view {view.name} was made again",) if view else ()
