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
        return f"{self.source}:{self.line}" if self.line else self.source
