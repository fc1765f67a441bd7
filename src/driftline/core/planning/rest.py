"""The rest: a column of exact JSON text for values beyond the table's limits, and fields that wait (section
10).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from driftline.core.planning.metadata import own_column
from driftline.core.schema.naming import METADATA
from driftline.core.schema.types import STRING, Field, Map, Path, Struct

_KIND = "rest"
REST = Field(
    "_rest",
    Map(STRING, STRING),
    doc=f"{METADATA}{_KIND}\nwhat has no column, as JSON text by path; promote makes columns of it",
)
_PLAIN = re.compile(r"[^.\[`\s]+")
_STEP = re.compile(r"\[(\d+)\]|\.?(?:`((?:[^`]|``)*)`|([^.\[`\s]+))")
TYPE_KEY = " type"  # behind a path: the key of its value's type. Blanks of keys are quoted


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
