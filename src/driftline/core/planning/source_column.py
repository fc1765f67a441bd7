"""The column `_source`: the origin of each row, as far as the table's setting `metadata` asks for it."""

from __future__ import annotations

from driftline.core.schema.naming import METADATA
from driftline.core.schema.types import STRING, TIMESTAMP, Field, Struct

SOURCE_KIND = "source"
_FIELDS = {"batch": Field("batch", STRING), "time": Field("time", TIMESTAMP)}


def parse_metadata(text: str) -> tuple[str, ...]:
    """The fields that the setting names.

    >>> parse_metadata("time, batch")
    ('batch', 'time')

    Raises ValueError.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in _FIELDS:
            raise ValueError(f"there is no metadata {name!r}: name some of {', '.join(_FIELDS)}")
    return tuple(name for name in _FIELDS if name in names)


def source_column(names: tuple[str, ...]) -> Field:
    """The column with these fields."""
    struct = Struct(tuple(_FIELDS[name] for name in names))
    return Field("_source", struct, doc=f"{METADATA}{SOURCE_KIND}\nwhere the row came from")
