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
    """The plan, with those of the columns made that the table has not, or fields of theirs. A name that is
    taken gets a number.

    A column's doc has its kind in the first line, and in the second what it holds.
    """
    for column in columns:
        for change in _missing(plan.schema.struct, column):
            plan = replace(plan, schema=apply(plan.schema, [change]), changes=(*plan.changes, change))
    return plan


def _missing(struct: Struct, column: Field) -> Iterable[AddColumn]:
    """What a table needs to have the column whole; an earlier version may have made it with fewer fields."""
    first, _, why = (column.doc or "").partition("\n")
    own = own_column(struct, first.removeprefix(METADATA))
    if own is None:
        name = Names.of(struct).take(column.name)
        yield AddColumn((), replace(column, name=name), Reason("metadata", why, (name,)))
    elif isinstance(own.type, Struct) and isinstance(column.type, Struct):
        has = {f.name for f in own.type.fields}
        for f in column.type.fields:
            if f.name not in has:
                yield AddColumn((own.name,), f, Reason("metadata", why, (own.name, f.name)))
