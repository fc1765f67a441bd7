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
from driftline.convert.leaves import flattened, relist
from driftline.convert.types import in_lists
from driftline.core.schema.types import STRING, Field, Struct, Type, peel, wrap
from driftline.core.settings.fields import FieldSettings, TextReading
from driftline.observe.expect import UNKNOWN, ExpectedField
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
    arrays = _split(rows.batch.columns, struct, columns)
    names = [f.name for f in split_struct(struct, columns).fields]
    return replace(rows, batch=pa.RecordBatch.from_arrays(arrays, names))


def _split(arrays: Sequence[pa.Array], struct: Struct, columns: Mapping[str, SplitColumn]) -> list[pa.Array]:
    out: list[pa.Array] = []
    for f, array in zip(struct.fields, arrays, strict=True):
        split = columns.get(f.name)
        out += [array] if split is None else split.read(array)
    return out


def with_resolved_texts(reader: ColumnReader, terms: AdmissionTerms) -> ColumnReader:
    """Read the texts of fields that a person has folded into one type as what they spell."""
    return with_split_columns(reader, resolved_columns(reader.struct, terms))


def read_resolved(rows: Rows, struct: Struct, terms: AdmissionTerms) -> tuple[Rows, Struct]:
    """Read the texts of such fields in rows with the fields of ``struct``; returns the fields, too."""
    columns = resolved_columns(struct, terms)
    return (split_texts(rows, struct, columns), split_struct(struct, columns)) if columns else (rows, struct)


def resolved_columns(struct: Struct, terms: AdmissionTerms) -> Mapping[str, SplitColumn]:
    """Split the texts of fields that a person has folded into one type, where they spell its values.

    Where the table has a column of the field's texts, it keeps them all as they are written.
    """
    return _resolved(struct, terms.settings.fields, terms.expected.fields, terms.settings.dates)


def _resolved(
    struct: Struct, settings: FieldSettings, expected: Mapping[str, ExpectedField], dates: str
) -> dict[str, SplitColumn]:
    """Split the text columns of one record, and the structs that have such texts, also in lists.

    Args:
        struct: the columns.
        settings: those of the record's fields.
        expected: the table's columns for them.
        dates: the setting.
    """
    columns: dict[str, SplitColumn] = {}
    if settings.empty:  # of each batch of nearly every table
        return columns
    names = Counter(f.name for f in struct.fields)
    for f in struct.fields:
        of_field, of_table = settings.fields.get(f.name), expected.get(f.name, UNKNOWN)
        if of_field is None or names[f.name] > 1:
            continue
        dim, leaf_type = peel(f.type)
        if isinstance(leaf_type, Struct):
            if inside := _resolved(leaf_type, of_field.inside(dim), of_table.fields, dates):
                split_type = wrap(split_struct(leaf_type, inside), dim)
                columns[f.name] = SplitColumn([replace(f, type=split_type)], partial(_inside, f.type, inside))
            continue
        reading = of_field.texts
        if reading is None or reading.type == STRING or f.type != STRING:
            continue
        typed, keeps_all = replace(f, type=reading.type), STRING in of_table.types
        # Of two fields that have a value, the first one counts in a column that takes both.
        fields = (f, typed) if keeps_all else (typed, Field(f.name, STRING, doc=OVERFLOW))
        columns[f.name] = SplitColumn(fields, partial(_by_reading, reading, dates, keeps_all))
    return columns


def _inside(type_: Type, columns: Mapping[str, SplitColumn], lists: pa.Array) -> Sequence[pa.Array]:
    """Split the texts in structs of this type, which may be in lists."""
    struct, records = peel(type_)[1], flattened(lists)
    assert isinstance(struct, Struct)
    arrays = _split([records.field(i) for i in range(len(struct.fields))], struct, columns)
    split = split_struct(struct, columns)
    fields = [pa.field(f.name, array.type) for f, array in zip(split.fields, arrays, strict=True)]
    mask = records.is_null() if records.null_count else None
    structs = pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)
    return [relist(lists, structs, in_lists(type_, structs.type))]


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
