"""Fills the column `_source` with the batch that brought each row, and its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from driftline.convert.types import arrow_field
from driftline.core.planning.metadata import own_column
from driftline.core.planning.source_column import SOURCE_KIND
from driftline.core.schema.types import Field, Struct


@dataclass(frozen=True, slots=True)
class OriginOfRows:
    """Fills the table's ``column`` in rows of a batch; it is sent to tasks.

    ``names``: the fields that the setting asks for; others of the column are null.
    """

    column: Field
    names: Sequence[str]
    batch: str
    time: datetime

    @classmethod
    def of(cls, struct: Struct, names: Sequence[str], batch: str, time: datetime) -> OriginOfRows | None:
        """Make it for rows of ``struct``; None if nothing is asked for, or there is no column."""
        column = own_column(struct, SOURCE_KIND) if names else None
        return None if column is None else cls(column, names, batch, time)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the column filled."""
        values, column = {"batch": self.batch, "time": self.time}, arrow_field(self.column)
        arrays = [
            pa.repeat(pa.scalar(values[f.name] if f.name in self.names else None, f.type), rows.num_rows)
            for f in column.type
        ]
        filled = pa.StructArray.from_arrays(arrays, fields=list(column.type))
        return rows.set_column(rows.schema.get_field_index(self.column.name), column, filled)
