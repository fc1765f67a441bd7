"""Fills the column `_source` with the batch that brought each row, its time, and where the record stood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from driftline.convert.types import arrow_field
from driftline.core.planning.metadata import own_column
from driftline.core.planning.source_column import SOURCE_KIND
from driftline.core.schema.types import Field, Struct
from driftline.readers.origins import ORIGIN


@dataclass(frozen=True, slots=True)
class OriginOfRows:
    """Fills the table's ``column``, if it has one, in rows of a batch; it is sent to tasks.

    ``names``: the fields that the setting asks for; others of the column are null. ``files``: other names for
    files, as a person used them.
    """

    column: Field | None
    names: Sequence[str]
    batch: str
    time: datetime
    files: Mapping[str, str]

    @classmethod
    def of(
        cls, struct: Struct, names: Sequence[str], batch: str, time: datetime, files: Mapping[str, str]
    ) -> OriginOfRows:
        """Make it for rows of ``struct``."""
        return cls(own_column(struct, SOURCE_KIND), names, batch, time, files)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the column filled, without the one that has their origins."""
        origins: pa.StructArray | None = None
        if ORIGIN in rows.schema.names:
            origins, rows = rows.column(ORIGIN), rows.drop_columns([ORIGIN])
        if self.column is None:
            return rows
        column = arrow_field(self.column)
        arrays = [self._values(f, origins, rows.num_rows) for f in column.type]
        filled = pa.StructArray.from_arrays(arrays, fields=list(column.type))
        return rows.set_column(rows.schema.get_field_index(self.column.name), column, filled)

    def _values(self, f: pa.Field, origins: pa.StructArray | None, count: int) -> pa.Array:
        constants = {"batch": self.batch, "time": self.time}
        if f.name not in self.names:
            return pa.nulls(count, f.type)
        if f.name in constants:
            return pa.repeat(pa.scalar(constants[f.name], f.type), count)
        if origins is None:
            return pa.nulls(count, f.type)
        values = origins.field(f.name)
        return (self._named(values) if f.name == "file" and self.files else values).cast(f.type)

    def _named(self, paths: pa.Array) -> pa.Array:
        """The files by the names that a person used."""
        coded = paths.dictionary_encode()
        names = [self.files.get(path, path) for path in coded.dictionary.to_pylist()]
        return pa.array(names, pa.string()).take(coded.indices)
