"""Changes by hand, from the request to the commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from driftline.core.changelog import record
from driftline.core.changes import ColumnChange, Refused, TableChange, details, diff, evolved
from driftline.errors import UsageError
from driftline.formats.base import CatalogTable
from driftline.formats.retry import Retry
from driftline.operations.alter.notes import notes
from driftline.operations.alter.request import AlterRequest
from driftline.quarantine import table as quarantine
from driftline.runtime.shown import Shown
from driftline.settings import from_properties


@dataclass(frozen=True, slots=True, repr=False)
class Altered(Shown):
    """The outcome of an alteration.

    ``columns`` is its net effect. ``notes``: its meaning for later batches.
    """

    table: str
    changes: tuple[TableChange, ...]
    columns: tuple[ColumnChange, ...] = ()
    notes: tuple[str, ...] = ()
    schema: int | None = None
    format_version: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The form that `--json` prints."""
        return {
            "table": self.table,
            "changes": [details(change) for change in self.changes],
            "notes": list(self.notes),
            "schema": self.schema,
            "format_version": self.format_version,
        }


def local_name(name: str, catalog: str) -> str:
    """A table's name without that of its catalog, which may stand before it.

    >>> local_name("lake.shop.orders", "lake"), local_name("lake.orders", "lake")
    ('shop.orders', 'lake.orders')
    """
    return name.removeprefix(f"{catalog}.") if name.count(".") > 1 else name


def alter(table: CatalogTable, request: AlterRequest, *, catalog: str = "", upgrade: bool = False) -> Altered:
    """Makes the changes in one commit, or none of them. ``upgrade``: to format v3 too, which does not go
    back. ``catalog``: what may stand before a new name of the table.

    Raises UsageError, DataError; the table is then as it was.
    """
    if (name := request.new_name) is not None:
        return _renamed(table, request, name, catalog)
    return Retry(table.name).run(lambda: _alter(table, request, upgrade=upgrade))


def _alter(table: CatalogTable, request: AlterRequest, *, upgrade: bool) -> Altered:
    alteration = table.alteration()
    before = alteration.before
    settings = from_properties(before.properties)
    try:
        after, changes = evolved(
            before,
            request.changes,
            mark=settings.mark,
            upgrade=upgrade,
            nulls_of=alteration.nulls,
            parts_of=table.parts_of,
        )
    except Refused as refused:
        raise request.explained(refused) from None
    columns = diff(before.schema, after.schema)
    if after == before:
        return Altered(table.name, (), schema=before.schema.id, format_version=before.format_version)
    draft = alteration.change(after, record.of_statements(request.text))
    draft.commit()
    altered = draft.definition
    remarks = (*notes(before.schema, altered.schema, columns, settings), *draft.warnings)
    return Altered(table.name, changes, columns, remarks, altered.schema.id, altered.format_version)


def _renamed(table: CatalogTable, request: AlterRequest, name: str, catalog: str) -> Altered:
    """The table under another name, with its quarantine."""
    namespace = table.name.rpartition(".")[0]
    to = local_name(name, catalog) if "." in name else f"{namespace}.{name}"
    if to == table.name:
        raise UsageError(f"{to} is its name already")
    quarantined = quarantine.of(table)
    beside = quarantine.of(table.sibling(to))
    moved = quarantined.load().exists
    if moved:  # first: without the table's name, nobody would look for it there
        quarantined.rename(beside.name)
    try:
        table.rename(to)
    except BaseException:
        if moved:
            beside.rename(quarantined.name)
        raise
    return Altered(to, tuple(request.changes))
