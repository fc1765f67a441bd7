"""What a table is defined as: everything that `alter` changes and `undo` restores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driftline.core.layout import PartitionField, SortField
from driftline.core.types import Path, Schema

DISTRIBUTION = "write.distribution-mode"


@dataclass(frozen=True, slots=True)
class Definition:
    """A table without its rows. ``last_column`` is the highest id that any of its columns ever had.

    ``calendar``: year, month, day and hour are parts of a date, as in DuckLake, so that each parts further; else they
    count from 1970, as in Iceberg, and the finest says it all.
    """

    schema: Schema = field(default_factory=Schema)
    partition: tuple[PartitionField, ...] = ()
    sort: tuple[SortField, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    format_version: int = 2
    last_column: int = 0
    calendar: bool = False

    def path_of(self, column: int) -> Path | None:
        """Where the column of this id is."""
        return next((path for path, f in self.schema.walk() if f.id == column), None)
