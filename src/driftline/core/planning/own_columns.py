"""Columns that driftline fills itself, such as `_source` and the rest, and paths into the rest.

Their doc identifies them, and no key of a record matches them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from driftline.core.changes import AddColumn, Reason, apply
from driftline.core.planning.plan import Plan
from driftline.core.schema.naming import METADATA, Names
from driftline.core.schema.types import STRING, Field, Map, Path, Struct
from driftline.core.settings.table import _FIELDS, PLACE

SOURCE_KIND = "source"


def own_column(struct: Struct, kind: str) -> Field | None:
    """The table's column of this kind, whatever its name is now."""
    # By its doc: a person may have renamed the column, and a field of the data may bear its name.
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


def asks_for_place(names: Collection[str]) -> bool:
    """True if some of the fields give a record's place."""
    return not PLACE.keys().isdisjoint(names)


def source_column(names: tuple[str, ...]) -> Field:
    """The column with these fields."""
    struct = Struct(tuple(_FIELDS[name] for name in names))
    return Field("_source", struct, doc=f"{METADATA}{SOURCE_KIND}\nwhere the row came from")


_KIND = "rest"
REST = Field(
    "_rest",
    Map(STRING, STRING),
    doc=f"{METADATA}{_KIND}\nwhat has no column, as JSON text by path; promote makes columns of it",
)
_PLAIN = re.compile(r"[^.\[`\s]+")
_STEP = re.compile(r"\[(\d+)\]|\.?(?:`((?:[^`]|``)*)`|([^.\[`\s]+))")
# Behind a path: the key of its value's type. Blanks of keys are quoted
TYPE_KEY = " type"


def rest_column(struct: Struct) -> Field | None:
    """The table's column of the rest, whatever its name; None where there is none yet."""
    return own_column(struct, _KIND)


def step(parent: str, key: str) -> str:
    """The path of a key in the object at the path ``parent``.

    >>> step("payload", "h"), step("", "a.b"), step("items[3]", "`")
    ('payload.h', '`a.b`', 'items[3].````')
    """
    quoted = key if _PLAIN.fullmatch(key) else f"`{key.replace('`', '``')}`"
    return f"{parent}.{quoted}" if parent else quoted


def element(parent: str, places: Iterable[int]) -> str:
    """The path of an element of lists inside each other; ``places`` are counted from 0.

    >>> element("items", [3, 0])
    'items[3][0]'
    """
    return parent + "".join(f"[{place}]" for place in places)


def steps(text: str) -> tuple[str | int, ...]:
    """A path of the rest as keys and places in lists. Raises ValueError.

    >>> steps("items[3].`a.b`.y")
    ('items', 3, 'a.b', 'y')
    """
    out: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        # A point stands between keys, neither before the first nor before an index.
        if match is None or ((match[0].startswith(".") is not bool(out)) and match[1] is None):
            raise ValueError(f"{text!r} is not a path of the rest")
        place, quoted, plain = match.groups()
        out.append(
            int(place) if place is not None else plain if plain is not None else quoted.replace("``", "`")
        )
        position = match.end()
    return tuple(out)


def keys_of(path: Iterable[str | int]) -> Path:
    """A path without its steps into lists.

    >>> keys_of(("items", 3, "y")), keys_of(("items", "element", "y"))
    (('items', 'y'), ('items', 'y'))
    """
    return tuple(step for step in path if isinstance(step, str) and step != "element")


def field_of(text: str) -> Path:
    """The path of the field that contains a path of the rest; elements of lists are steps of that name.

    >>> field_of("items[3].y")
    ('items', 'element', 'y')
    """
    return tuple("element" if isinstance(step, int) else step for step in steps(text))


def spelled_field(path: Path) -> str:
    """A field's path as text, with elements of lists as steps of that name; `steps` reads it.

    >>> spelled_field(("items", "element", "a.b"))
    'items.element.`a.b`'
    """
    text = ""
    for key in path:
        text = step(text, key)
    return text


def type_key(path: str) -> str:
    """The key of the rest under which the type of a typed value stands."""
    return path + TYPE_KEY


def is_type_key(key: str) -> bool:
    """True if a key of the rest is that of a type, not of a value."""
    return key.endswith(TYPE_KEY)
