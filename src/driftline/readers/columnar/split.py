"""Splits columns of text by what each text is: a field of the same name for each type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.declared import OVERFLOW
from driftline.convert.json_values import spelled
from driftline.core.schema.types import STRING, Field, Struct
from driftline.core.settings.fields import TextReading
from driftline.observe.expect import UNKNOWN
from driftline.readers.columnar.rows import ColumnReader, Rows
from driftline.readers.task import AdmissionTerms


def with_split_columns(reader: ColumnReader, columns: Mapping[str, SplitColumn]) -> ColumnReader:
    """Split some columns of a reader, if there are any to split."""
    return SplitTexts(reader, columns) if columns else reader


class SplitColumn(NamedTuple):
    """The ``fields`` of a text column, and ``read``, which converts the texts to their values.

    A value is null if its text belongs to another field.
    """

    fields: Sequence[Field]
    read: Callable[[pa.Array], Sequence[pa.Array]]


def split_struct(struct: Struct, columns: Mapping[str, SplitColumn]) -> Struct:
    """Return the struct with the fields of split columns."""
    fields: list[Field] = []
    for f in struct.fields:
        split = columns.get(f.name)
        fields += [f] if split is None else split.fields
    return Struct(tuple(fields))


def split_texts(rows: Rows, struct: Struct, columns: Mapping[str, SplitColumn]) -> Rows:
    """Split the texts of some columns of rows, which have the fields of ``struct``."""
    arrays: list[pa.Array] = []
    for f, array in zip(struct.fields, rows.batch.columns, strict=True):
        split = columns.get(f.name)
        arrays += [array] if split is None else split.read(array)
    names = [f.name for f in split_struct(struct, columns).fields]
    return replace(rows, batch=pa.RecordBatch.from_arrays(arrays, names))


def with_resolved_texts(reader: ColumnReader, terms: AdmissionTerms) -> ColumnReader:
    """Read the texts of fields that a person has folded into one type as what they spell."""
    return with_split_columns(reader, resolved_columns(reader.struct, terms))


def read_resolved(rows: Rows, struct: Struct, terms: AdmissionTerms) -> tuple[Rows, Struct]:
    """Read the texts of such fields in rows with the fields of ``struct``; returns the fields, too."""
    columns = resolved_columns(struct, terms)
    return (split_texts(rows, struct, columns), split_struct(struct, columns)) if columns else (rows, struct)


def resolved_columns(struct: Struct, terms: AdmissionTerms) -> Mapping[str, SplitColumn]:
    """Split the text columns of fields that a person has folded into one type, where texts spell its values.

    Where the table has a column of the field's texts, it keeps them all as they are written.
    """
    of_fields = terms.settings.fields.fields.items()
    readings = {name: of_field.texts for name, of_field in of_fields if of_field.texts is not None}
    if not readings:  # of each batch of nearly every table
        return {}
    names = Counter(f.name for f in struct.fields)
    columns = {}
    for f in struct.fields:
        reading = readings.get(f.name)
        if reading is None or reading.type == STRING or f.type != STRING or names[f.name] > 1:
            continue
        typed = replace(f, type=reading.type)
        keeps_all = STRING in terms.expected.fields.get(f.name, UNKNOWN).types
        # Of two fields that have a value, the first one counts in a column that takes both.
        fields = (f, typed) if keeps_all else (typed, Field(f.name, STRING, doc=OVERFLOW))
        columns[f.name] = SplitColumn(fields, partial(_by_reading, reading, terms.settings.dates, keeps_all))
    return columns


def _by_reading(reading: TextReading, dates: str, keeps_all: bool, texts: pa.Array) -> Sequence[pa.Array]:
    values = spelled(texts, reading, dates)
    if keeps_all:
        return texts, values
    return values, pc.if_else(values.is_valid(), pa.scalar(None, pa.string()), texts)


@dataclass(frozen=True)
class SplitTexts:
    """Reads the rows of another reader, with some ``columns`` split into fields of the same name."""

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
        """The types of the columns, and of the fields of split ones."""
        return split_struct(self.texts.struct, self.columns)

    def rows(self, part: int) -> Iterator[Rows]:
        """Yield the rows of a part."""
        for rows in self.texts.rows(part):
            yield split_texts(rows, self.texts.struct, self.columns)
