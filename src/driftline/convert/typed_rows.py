"""Rows of a table as typed records: the columns of a field, each value in one of them.

What `driftline.convert.records` reads one by one, this has as whole columns, for rows where the one column of
a value is plain to see. All other rows are in doubt, and read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.kernels import convert
from driftline.convert.records import RowRecords, is_declared
from driftline.core.columns.siblings import families
from driftline.core.planning.own_columns import rest_column
from driftline.core.schema.types import DOUBLE, LONG, STRING, Field, List, Primitive, Struct, Type, peel
from driftline.core.settings.fields import FieldSettings
from driftline.core.values import DATELIKE

Flags = NDArray[np.bool_]

_NUMBERS = (LONG, DOUBLE)
_PLAIN = frozenset({"boolean", "long", "double", "string", *(type_.name for type_ in DATELIKE)})


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Rows as columns by key, several of one key where its values have several types.

    Attributes:
        doubtful: the rows that say more, or less, than these columns do.
        hollow: the rows with a list, an object or an element without any value inside.
    """

    arrays: Sequence[pa.Array]
    struct: Struct
    doubtful: Flags
    hollow: Flags

    @classmethod
    def of(cls, records: RowRecords, rows: pa.RecordBatch, *, spelled: bool = False) -> TypedRows:
        """The rows that have the records.

        Args:
            records: the columns, and which of them are read.
            rows: the rows.
            spelled: dates and moments are texts, as in JSON.
        """
        typed, _ = _Typing(records, spelled).record(
            records.struct, rows.columns, rows.num_rows, records.field_settings
        )
        read = Struct(tuple(f for f in records.struct.fields if f.id not in records.left_out))
        if (rest_field := rest_column(read)) is not None:
            waits = rows.column([f.name for f in records.struct.fields].index(rest_field.name)).is_valid()
            np.logical_or(typed.doubtful, flags_of(waits), out=typed.doubtful)
        return typed

    @property
    def batch(self) -> pa.RecordBatch:
        """The columns."""
        return pa.RecordBatch.from_arrays([*self.arrays], [f.name for f in self.struct.fields])

    def having(self, rows: Flags) -> TypedRows:
        """Some of the rows."""
        arrays = [array.filter(pa.array(rows)) for array in self.arrays]
        return TypedRows(arrays, self.struct, self.doubtful[rows], self.hollow[rows])


class _TypedValues(NamedTuple):
    """The values of one column.

    Attributes:
        valued: those that have, at any depth, more than null, `[]` and `{}`.
    """

    type: Type
    array: pa.Array
    valued: Flags
    doubtful: Flags
    hollow: Flags


@dataclass(frozen=True, slots=True)
class _Typing:
    records: RowRecords
    spelled: bool

    def record(
        self, struct: Struct, columns: Sequence[pa.Array], count: int, field_settings: FieldSettings
    ) -> tuple[TypedRows, Flags]:
        """The columns of a struct by key, and which of the structs have a value."""
        places = {id(f): place for place, f in enumerate(struct.fields)}
        fields, arrays = [], []
        doubtful, hollow, valued = (np.zeros(count, np.bool_) for _ in range(3))
        for family in families([struct], self.records.mark):
            inside = field_settings.of(family.key)
            parts = [self.values(f.type, columns[places[id(f)]], inside) for f in self.records.order(family)]
            if any(is_declared(peel(part.type)[1]) for part in parts) and len(parts) > 1:
                # Whether a number or a text is one of a declared type depends on the value.
                doubtful |= reduce(np.logical_or, [flags_of(part.array.is_valid()) for part in parts])
            for part in _apart(parts, doubtful):
                fields.append(Field(family.key, part.type))
                arrays.append(part.array)
                doubtful |= part.doubtful
                hollow |= part.hollow
                valued |= part.valued
        return TypedRows(arrays, Struct(tuple(fields)), doubtful, hollow), valued

    def values(self, type_: Type, array: pa.Array, field_settings: FieldSettings) -> _TypedValues:
        """The values of one column."""
        valid, no_flags = flags_of(array.is_valid()), np.zeros(len(array), np.bool_)
        match type_:
            case Struct(fields) if fields:
                members, valued = self.record(type_, array.flatten(), len(array), field_settings)
                if members.arrays:
                    names = zip(members.struct.fields, members.arrays, strict=True)
                    fields_of_arrow = [pa.field(f.name, column.type) for f, column in names]
                    structs = pa.StructArray.from_arrays(
                        members.arrays, fields=fields_of_arrow, mask=array.is_null()
                    )
                    hollow = members.hollow | (valid & ~valued)
                    return _TypedValues(members.struct, structs, valued, members.doubtful, hollow)
            case List(element):
                elements = self.values(element, array.flatten(), field_settings.inside(1))
                owners = owners_in(array)
                offsets = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=len(array)))))
                lists = pa.ListArray.from_arrays(
                    pa.array(offsets.astype(np.int32)), elements.array, mask=array.is_null()
                )
                valued = owning(elements.valued, owners, len(array))
                doubtful = owning(elements.doubtful, owners, len(array))
                hollow = owning(elements.hollow | ~elements.valued, owners, len(array)) | (valid & ~valued)
                return _TypedValues(List(elements.type), lists, valued, doubtful, hollow)
            case Primitive():
                return self._scalars(type_, array, field_settings)
        return _TypedValues(type_, array, valid, valid, no_flags)

    def _scalars(self, type_: Primitive, array: pa.Array, field_settings: FieldSettings) -> _TypedValues:
        no_flags = np.zeros(len(array), np.bool_)
        if type_.name in ("float", "double"):  # of JSON's numbers; others are no values of a record
            array = pc.if_else(pc.is_finite(array), array, None)
        elif self.spelled and type_ in DATELIKE:
            array, type_ = convert(array, type_, STRING), STRING
        valid = flags_of(array.is_valid())
        stated = field_settings.hint is not None or field_settings.texts is not None
        plain = (type_.name in _PLAIN or is_declared(type_)) and not stated
        return _TypedValues(type_, array, valid, no_flags if plain else valid, no_flags)


def _apart(parts: Sequence[_TypedValues], doubtful: Flags) -> Sequence[_TypedValues]:
    """The columns of one field, each value in the first that has it; what several have may be in doubt."""
    if len(parts) < 2:
        return parts
    valid = [flags_of(part.array.is_valid()) for part in parts]
    taken = valid[0].copy()
    out = [parts[0]]
    for place, part in enumerate(parts[1:], 1):
        again = taken & valid[place]
        if again.any():
            alike = np.zeros(len(again), np.bool_)
            for before, of_before in zip(parts[:place], valid, strict=False):
                alike |= of_before & _says_no_more(part, before)
            doubtful |= again & ~alike
            # Nested values in several columns are in doubt, so that they need not be told apart.
            if isinstance(part.type, Primitive):
                part = part._replace(array=pc.if_else(pa.array(again), None, part.array))
        taken |= valid[place]
        out.append(part)
    return out


def _says_no_more(part: _TypedValues, before: _TypedValues) -> Flags:
    """Flags the values that the column before has, too, and has as they were."""
    if part.type in _NUMBERS and before.type in _NUMBERS:
        return np.ones(len(part.array), np.bool_)
    if part.type == STRING and before.type == LONG:  # as a text it may have been 7.0
        return flags_of(pc.equal(convert(before.array, LONG, STRING), part.array))
    return np.zeros(len(part.array), np.bool_)


def flags_of(array: pa.Array) -> Flags:
    """Flags of an Arrow array; a null is none."""
    filled = array.fill_null(False) if array.null_count else array
    return filled.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def owners_in(lists: pa.Array) -> NDArray[np.int64]:
    """The number of the list around each element."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists)), lengths)


def owning(flags: Flags, owners: NDArray[Any], count: int) -> Flags:
    """Flags those of ``count`` lists that have a flagged element."""
    lists = np.zeros(count, np.bool_)
    lists[owners[flags]] = True
    return lists


def differing(before: TypedRows, after: TypedRows) -> Flags:
    """Flags the rows that do not say the same, or are not sure to."""
    alike = _alike_records(before.struct, before.arrays, after.struct, after.arrays, len(before.doubtful))
    return ~alike | before.doubtful | after.doubtful | before.hollow | after.hollow


def _alike_records(
    struct: Struct, arrays: Sequence[pa.Array], struct_after: Struct, after: Sequence[pa.Array], count: int
) -> Flags:
    """Flags the structs that have the same members, by key."""
    alike = np.ones(count, np.bool_)
    columns, columns_after = _by_key(struct, arrays), _by_key(struct_after, after)
    for key in columns | columns_after:
        before_and_after = columns.get(key, []), columns_after.get(key, [])
        valid = [flags_of(array.is_valid()) for of_key in before_and_after for _, array in of_key]
        same = ~reduce(np.logical_or, valid)
        for column, column_after in product(*before_and_after):
            same |= _alike(*column, *column_after)
        alike &= same
    return alike


def _by_key(struct: Struct, arrays: Sequence[pa.Array]) -> dict[str, list[tuple[Type, pa.Array]]]:
    columns: dict[str, list[tuple[Type, pa.Array]]] = {}
    for f, array in zip(struct.fields, arrays, strict=True):
        columns.setdefault(f.name, []).append((f.type, array))
    return columns


def _alike(type_: Type, array: pa.Array, type_after: Type, after: pa.Array) -> Flags:
    """Flags the values that two columns have, and that are the same."""
    both = flags_of(array.is_valid()) & flags_of(after.is_valid())
    match type_, type_after:
        case Struct(), Struct():
            members = array.flatten(), after.flatten()
            return both & _alike_records(type_, members[0], type_after, members[1], len(array))
        case List(), List() if array.value_lengths().equals(after.value_lengths()):
            flat, flat_after = array.flatten(), after.flatten()
            differ = ~_alike(type_.element, flat, type_after.element, flat_after)
            differ &= flags_of(flat.is_valid()) | flags_of(flat_after.is_valid())
            return both & ~owning(differ, owners_in(array), len(array))
        case Primitive(), Primitive() if type_ == type_after:
            return flags_of(pc.equal(array, after))
        case Primitive(), Primitive() if type_ in _NUMBERS and type_after in _NUMBERS:
            longs, doubles = (array, after) if type_ == LONG else (after, array)
            return flags_of(pc.equal(convert(longs, LONG, DOUBLE), doubles))
        case _:
            return np.zeros(len(array), np.bool_)
