"""CSV columns of texts that are several fields, one for each type: dates by a pattern beside other texts,
and the cells of keys.

A column has one type, by all its texts. If a key's had, too, whether a cell `7` is the number of the table's
row or another key would depend on the other cells of its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.declared import OVERFLOW
from driftline.convert.kernels import dates_of
from driftline.core.schema.date_pattern import DatePattern
from driftline.core.schema.types import STRING, Field, Primitive, Struct
from driftline.core.settings.csv import Signs
from driftline.observe.csv_types import values_of
from driftline.readers.columnar.rows import ColumnReader, Rows
from driftline.readers.csv.dated import Patterns


def dated(reader: ColumnReader, patterns: Patterns) -> ColumnReader:
    """The reader, with the dates of its text columns that have a pattern; other texts are a field beside."""
    return _split(
        reader,
        {
            f.name: SplitColumn(
                (replace(f, type=patterns[f.name].type), Field(f.name, STRING, doc=OVERFLOW)),
                partial(_by_pattern, patterns[f.name]),
            )
            for f in reader.struct.fields
            if f.type == STRING and f.name in patterns
        },
    )


def by_kinds(reader: ColumnReader, types: Mapping[str, Sequence[Primitive]], signs: Signs) -> ColumnReader:
    """The reader, with the cells of some text columns by their own types.

    ``types``: those of each column, by its name; ``signs``: those in numbers.
    """
    return _split(
        reader,
        {
            f.name: SplitColumn(
                tuple(replace(f, type=type_) for type_ in types[f.name]),
                partial(_by_type, types[f.name], signs),
            )
            for f in reader.struct.fields
            if f.name in types
        },
    )


def _by_pattern(pattern: DatePattern, texts: pa.Array) -> Sequence[pa.Array]:
    dates = dates_of(texts, pattern)
    return dates, pc.if_else(dates.is_valid(), pa.scalar(None, pa.string()), texts)


def _by_type(types: Sequence[Primitive], signs: Signs, texts: pa.Array) -> Sequence[pa.Array]:
    values = values_of(texts, signs)
    return [values[type_] for type_ in types]


def _split(reader: ColumnReader, columns: Mapping[str, SplitColumn]) -> ColumnReader:
    return SplitTexts(reader, columns) if columns else reader


class SplitColumn(NamedTuple):
    """The ``fields`` that a column of texts is, and ``read``, which makes their values of the texts: null
    where a text is another field's.
    """

    fields: Sequence[Field]
    read: Callable[[pa.Array], Sequence[pa.Array]]


@dataclass(frozen=True)
class SplitTexts:
    """Reads the rows of another reader, with some ``columns``, by name, split into fields of their name."""

    texts: ColumnReader
    columns: Mapping[str, SplitColumn]

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
        """The types of the columns, and of the fields of those that are split."""
        fields: list[Field] = []
        for f in self.texts.struct.fields:
            split = self.columns.get(f.name)
            fields += [f] if split is None else split.fields
        return Struct(tuple(fields))

    def rows(self, part: int) -> Iterator[Rows]:
        """The rows of a part."""
        names = [f.name for f in self.struct.fields]
        for rows in self.texts.rows(part):
            arrays: list[pa.Array] = []
            for f, array in zip(self.texts.struct.fields, rows.batch.columns, strict=True):
                split = self.columns.get(f.name)
                arrays += [array] if split is None else split.read(array)
            yield replace(rows, batch=pa.RecordBatch.from_arrays(arrays, names))
