"""Columns that a source fills by itself, beside those of the records: known
by their doc, met by no key of the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from driftline.core.changes import AddColumn, Reason, apply
from driftline.core.planning.routes import Plan
from driftline.core.schema.naming import METADATA, Names
from driftline.core.schema.types import Field, Struct


def own_column(struct: Struct, kind: str) -> Field | None:
    """The column of this kind that a table has, whatever it is called now."""
    doc = METADATA + kind
    return next((f for f in struct.fields if (f.doc or "").partition("\n")[0] == doc), None)


def with_own(plan: Plan, columns: Iterable[Field]) -> Plan:
    """The plan, with those of the columns made that the table has not. A name that is taken gets a number.

    A column's doc has its kind in the first line, and in the second what it holds.
    """
    for column in columns:
        first, _, why = (column.doc or "").partition("\n")
        kind = first.removeprefix(METADATA)
        if own_column(plan.schema.struct, kind) is None:
            name = Names.of(plan.schema.struct).take(column.name)
            change = AddColumn((), replace(column, name=name), Reason("metadata", why, (name,)))
            plan = replace(plan, schema=apply(plan.schema, [change]), changes=(*plan.changes, change))
    return plan
