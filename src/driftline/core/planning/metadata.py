"""Columns that a source fills itself, beside the records' own: known by their doc, matched by no key. One is
`_source`, the origin of each row, as far as the setting `metadata` asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from driftline.core.changes import AddColumn, Reason, apply
from driftline.core.planning.routes import Plan
from driftline.core.schema.naming import METADATA, Names
from driftline.core.schema.types import INT, LONG, STRING, TIMESTAMP, Field, Struct

SOURCE_KIND = "source"
# Where a record stood, as a quarantine has it, except that it calls the file `source`.
PLACE = {"file": STRING, "line": LONG, "topic": STRING, "partition": INT, "offset": LONG}
_FIELDS = {name: Field(name, type_) for name, type_ in (PLACE | {"batch": STRING, "time": TIMESTAMP}).items()}


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


def parse_metadata(text: str) -> tuple[str, ...]:
    """The fields that the setting names.

    >>> parse_metadata("time, file")
    ('file', 'time')

    Raises ValueError.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in _FIELDS:
            raise ValueError(f"there is no metadata {name!r}: name some of {', '.join(_FIELDS)}")
    return tuple(name for name in _FIELDS if name in names)


def asks_for_place(names: Collection[str]) -> bool:
    """True if some of the fields say where a record stood."""
    return not PLACE.keys().isdisjoint(names)


def source_column(names: tuple[str, ...]) -> Field:
    """The column with these fields."""
    struct = Struct(tuple(_FIELDS[name] for name in names))
    return Field("_source", struct, doc=f"{METADATA}{SOURCE_KIND}\nwhere the row came from")
