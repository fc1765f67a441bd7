"""Places in the data."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.core.schema.pickling import pickled_by_fields


@pickled_by_fields
@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The place where something first appeared: a file or topic, a line or offset, a position in the
    record.
    """

    source: str = ""
    line: int = 0
    position: int = 0

    def __str__(self) -> str:
        source = name_text(self.source)
        return f"{source}:{self.line}" if self.line else source


def name_text(name: str) -> str:
    """The text of a file's name, which is bytes to its file system: those that are not UTF-8 are escaped.

    >>> name_text("a\\udcff.json")
    'a\\\\xff.json'
    """
    return name if name.isascii() else name.encode(errors="surrogateescape").decode(errors="backslashreplace")
