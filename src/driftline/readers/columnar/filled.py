"""The columns, and the fields of structs, that have values among some rows of declared types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from driftline.core.schema.types import Struct, Type


class FilledColumn(NamedTuple):
    """The part of a column that has values.

    Attributes:
        fields: of a struct, by their places in it; none if all of it counts.
    """

    type: Type
    fields: FilledFields = ()


FilledFields: TypeAlias = "tuple[tuple[int, FilledColumn], ...]"


def filled_fields(struct: Struct, columns: Sequence[Sequence[pa.Array]]) -> FilledFields:
    """The fields of a struct that have a value in one of the chunks of columns."""
    of_fields = [
        (place, _filled(f.type, [chunk[place] for chunk in columns])) for place, f in enumerate(struct.fields)
    ]
    return tuple((place, column) for place, column in of_fields if column is not None)


def _filled(type_: Type, chunks: Sequence[pa.Array]) -> FilledColumn | None:
    valid = [chunk for chunk in chunks if chunk.null_count < len(chunk)]
    if not valid:
        return None
    if not isinstance(type_, Struct):
        return FilledColumn(type_)
    fields = filled_fields(type_, [chunk.flatten() for chunk in valid])
    return FilledColumn(with_fields(type_, fields), fields) if fields else FilledColumn(type_)


def whole_fields(struct: Struct) -> FilledFields:
    """All fields of a struct."""
    return tuple((place, FilledColumn(f.type)) for place, f in enumerate(struct.fields))


def merged(struct: Struct, first: FilledFields, second: FilledFields) -> FilledFields:
    """The fields that have values among the rows of the first or the second."""
    both = dict(second)
    for place, column in first:
        type_, beside = struct.fields[place].type, both.get(place)
        if beside is not None and column.fields and beside.fields:
            assert isinstance(type_, Struct)
            fields = merged(type_, column.fields, beside.fields)
            column = FilledColumn(with_fields(type_, fields), fields)
        # A struct without a value in any field says nothing of them.
        both[place] = column if beside is None or column.fields else beside
    return tuple(sorted(both.items()))


def with_fields(struct: Struct, fields: FilledFields) -> Struct:
    """The struct with these fields alone."""
    return Struct(tuple(replace(struct.fields[place], type=column.type) for place, column in fields))


def cut(array: pa.Array, column: FilledColumn) -> pa.Array:
    """A column without the parts that have no value."""
    if not column.fields:
        return array
    assert isinstance(column.type, Struct)
    arrays = [cut(array.field(place), of_field) for place, of_field in column.fields]
    fields = [pa.field(f.name, part.type) for f, part in zip(column.type.fields, arrays, strict=True)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)
