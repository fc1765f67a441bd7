"""The origins of records, in a column beside their rows: the same places as rejects have in a quarantine.

From there they go into the column `_source`, with the batch that brought each row, and its time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.types import arrow_field, arrow_type
from driftline.core.planning.own_columns import PLACE, SOURCE_KIND, own_column
from driftline.core.schema.types import Field, Struct, name_text
from driftline.readers.rejects import Origin

ORIGIN = (
    "\0origin"  # the column that has it, until the rows have their `_source`; no table has one of this name
)
OF_PYTHON = "records"  # in reports, the place of records that Python holds: no file, so rows name none
_TYPES = {name: arrow_type(type_) for name, type_ in PLACE.items()}

Numbers: TypeAlias = (
    "int | Sequence[int | None] | NDArray[np.int64] | None"  # of the first of some records, or of each
)


class Origins(NamedTuple):
    """The origins of some records. ``shared``: what they have in common; ``numbers``: their lines, or, in a
    topic, their offsets; None if these are not known.
    """

    shared: Origin
    numbers: Numbers = None


def origin_array(parts: Sequence[tuple[int, Origins]]) -> pa.StructArray:
    """The origins of records in parts, each with the number of its records.

    >>> origin_array([(2, Origins(Origin("a.json"), 7))]).to_pylist()[1]["line"]
    8
    """
    counts = [count for count, _ in parts]
    shared = [origins.shared for _, origins in parts]
    part_of = pa.array(np.repeat(np.arange(len(parts)), counts))
    numbers = pa.concat_arrays([_numbers(count, origins.numbers) for count, origins in parts])
    topics = pa.array([origin.topic for origin in shared], _TYPES["topic"]).take(part_of)
    in_topic, none = topics.is_valid(), pa.scalar(None, pa.int64())
    columns: dict[str, Any] = {
        "file": pa.array([_file(origin) for origin in shared], _TYPES["file"]).take(part_of),
        "line": pc.if_else(in_topic, none, numbers),
        "topic": topics,
        "partition": pa.array([origin.partition for origin in shared], _TYPES["partition"]).take(part_of),
        "offset": pc.if_else(in_topic, numbers, none),
    }
    return pa.StructArray.from_arrays(
        [columns[name].cast(type_) for name, type_ in _TYPES.items()], list(_TYPES)
    )


def _file(origin: Origin) -> str | None:
    return None if origin.source is None else name_text(origin.source)


def _numbers(count: int, numbers: Numbers) -> pa.Array:
    if numbers is None:
        return pa.nulls(count, pa.int64())
    return pa.array(np.arange(numbers, numbers + count) if isinstance(numbers, int) else numbers, pa.int64())


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
        if origins is None or OF_PYTHON in self.files.values():
            return pa.nulls(count, f.type)
        values = origins.field(f.name)
        return (self._named(values) if f.name == "file" and self.files else values).cast(f.type)

    def _named(self, paths: pa.Array) -> pa.Array:
        """The files by the names that a person used."""
        coded = paths.dictionary_encode()
        names = [name_text(self.files.get(path, path)) for path in coded.dictionary.to_pylist()]
        return pa.array(names, pa.string()).take(coded.indices)
