"""CSV columns whose dates are written by a pattern that a person states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.leaf_readings import OVERFLOW
from driftline.convert.written_dates import dates_of
from driftline.core.planning.contract import Contract
from driftline.core.schema.date_pattern import DatePattern
from driftline.core.schema.types import STRING, Field, Struct
from driftline.readers.columnar.rows import ColumnReader, Rows

Patterns: TypeAlias = Mapping[str, DatePattern]  # by the column's name


def patterns_of(contract: Contract) -> Patterns:
    """The patterns of the fields of a record."""
    return {key: field.pattern for key, field in contract.fields.items() if field.pattern is not None}


def dated(reader: ColumnReader, patterns: Patterns) -> ColumnReader:
    """The reader, with the dates of its text columns that have a pattern."""
    names = {f.name for f in reader.struct.fields if f.type == STRING}
    of_reader = {name: pattern for name, pattern in patterns.items() if name in names}
    return DatedReader(reader, of_reader) if of_reader else reader


@dataclass(frozen=True)
class DatedReader:
    """Reads texts of a pattern as dates; each other text of such a column stays one, in a field beside."""

    texts: ColumnReader
    patterns: Patterns

    @property
    def label(self) -> str:
        """The name of the files in reports."""
        return self.texts.label

    @property
    def sizes(self) -> Sequence[int]:
        """The bytes of each part."""
        return self.texts.sizes

    @property
    def paths(self) -> Sequence[str]:
        """The file of each part."""
        return self.texts.paths

    @cached_property
    def struct(self) -> Struct:
        """The types of the columns: of one with a pattern its dates', and that of the texts that are none."""
        fields: list[Field] = []
        for f in self.texts.struct.fields:
            if (pattern := self.patterns.get(f.name)) is None:
                fields.append(f)
            else:
                fields += replace(f, type=pattern.type), Field(f.name, STRING, doc=OVERFLOW)
        return Struct(tuple(fields))

    def rows(self, part: int) -> Iterator[Rows]:
        """The rows of a part."""
        names = [f.name for f in self.struct.fields]
        for rows in self.texts.rows(part):
            arrays: list[pa.Array] = []
            for f, array in zip(self.texts.struct.fields, rows.batch.columns, strict=True):
                if (pattern := self.patterns.get(f.name)) is None:
                    arrays.append(array)
                else:
                    dates = dates_of(array, pattern)
                    arrays += dates, pc.if_else(dates.is_valid(), pa.scalar(None, pa.string()), array)
            yield replace(rows, batch=pa.RecordBatch.from_arrays(arrays, names))
