"""Columns that a source fills itself, beside the records' own: known by their doc, matched by no key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from driftline.core.changes import AddColumn, Reason, apply
from driftline.core.planning.routes import Plan
from driftline.core.schema.naming import METADATA, Names
from driftline.core.schema.types import Field, Struct


def own_column(struct: Struct, kind: str) -> Field | None:
    """The table's column of this kind, whatever its name is now."""
    doc = METADATA + kind
    return next((f for f in struct.fields if (f.doc or "").partition("\n")[0] == doc), None)


def with_own(plan: Plan, columns: Iterable[Field]) -> Plan:
    """Add the columns, or fields of theirs, that the table lacks to a plan. A taken name gets a number.

    The first line of such a column's doc is its kind, the second describes it.
    """
    for column in columns:
        for change in _missing(plan.schema.struct, column):
            plan = replace(plan, schema=apply(plan.schema, [change]), changes=(*plan.changes, change))
    return plan


def _missing(struct: Struct, column: Field) -> Iterable[AddColumn]:
    """The changes that complete the column; an earlier version may have made it with fewer fields."""
    first, _, why = (column.doc or "").partition("\n")
    existing = own_column(struct, first.removeprefix(METADATA))
    if existing is None:
        name = Names.of(struct).take(column.name)
        yield AddColumn((), replace(column, name=name), Reason("metadata", why, (name,)))
    elif isinstance(existing.type, Struct) and isinstance(column.type, Struct):
        has = {f.name for f in existing.type.fields}
        for f in column.type.fields:
            if f.name not in has:
                yield AddColumn((existing.name,), f, Reason("metadata", why, (existing.name, f.name)))
