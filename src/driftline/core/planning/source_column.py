"""The column `_source`: the origin of each row, as far as the table's setting `metadata` asks for it."""

from __future__ import annotations

from collections.abc import Collection

from driftline.core.schema.naming import METADATA
from driftline.core.schema.types import INT, LONG, STRING, TIMESTAMP, Field, Struct

SOURCE_KIND = "source"
# Where a record stood, as a quarantine has it, except that it calls the file `source`.
PLACE = {"file": STRING, "line": LONG, "topic": STRING, "partition": INT, "offset": LONG}
_FIELDS = {name: Field(name, type_) for name, type_ in (PLACE | {"batch": STRING, "time": TIMESTAMP}).items()}


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
