"""Arrow records as the converter reads them: each array has one declared type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.declared import entries_of
from driftline.convert.json_values import TEXT, takes_number, texts_as
from driftline.convert.kernels import convert, converts, nulls_of
from driftline.convert.leaves import (
    Dims,
    Maps,
    Numbers,
    NumberText,
    Shredded,
    assemble,
    bases_of,
    dimension,
    first_of,
    flattened,
    in_places,
    joined,
    merged,
    numbered,
    place,
    primitives_of,
    relist,
    same_lists,
    scattered,
    variants_of,
    wrapped,
)
from driftline.convert.rest import element_at, json_text, json_values, lost_by_value, places_of, scalar_texts
from driftline.convert.types import arrow_type
from driftline.core.planning.plan import ColumnRoute, FieldRoute
from driftline.core.planning.shape import RECORD, Base, Facet, MapOf
from driftline.core.schema.types import (
    DOUBLE,
    JSON,
    LONG,
    STRING,
    VARIANT,
    Map,
    Primitive,
    Struct,
    Type,
    children,
    peel,
    wrap,
)
from driftline.core.settings.fields import FieldSettings
from driftline.core.values import declared_string_base, has_value

Columns = Sequence[tuple[Type, pa.Array]]  # the values of one field, by type


class MapEntries(NamedTuple):
    """The entries of leaves that are maps.

    Attributes:
        lengths: the number of entries of each map.
        keys: the keys of all entries.
        values: a column for each type of their values.
        numbers: the leaves that are the maps.
    """

    lengths: NDArray[Any]
    keys: pa.Array
    values: Columns
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, columns: Columns, first: int) -> MapEntries:
        """The entries of columns of the same maps, each with its own type of values."""
        maps = columns[0][1]
        lengths = maps.value_lengths().drop_null().to_numpy(zero_copy_only=False)
        values = [(type_, lists.flatten().field(1)) for type_, lists in columns]
        return cls(lengths, maps.flatten().field(0), values, np.flatnonzero(~nulls_of(maps)) + first)


def entries_in(leaves: Columns, key: Type, first: int) -> list[MapEntries]:
    """The entries of the leaves that are maps with keys of this type, those of the same maps together.

    Args:
        first: the number of the first leaf.
    """
    by_maps: list[list[tuple[Type, pa.Array]]] = []
    for type_, array in leaves:
        if isinstance(type_, Map) and type_.key == key:
            column = type_.value, entries_of(array)
            # A map with values of several types comes as one array for each type, all with the same keys.
            lengths = column[1].value_lengths()
            alike = next((group for group in by_maps if group[0][1].value_lengths().equals(lengths)), None)
            if alike is None:
                by_maps.append([column])
            else:
                alike.append(column)
    return [MapEntries.of(columns, first) for columns in by_maps]


def together(groups: Sequence[MapEntries]) -> Columns:
    """The values of all entries: a column for each type of each group."""
    types = [type_ for entries in groups for type_, _ in entries.values]
    columns = [(len(entries.keys), [array for _, array in entries.values]) for entries in groups]
    return list(zip(types, one_after_another(columns), strict=True))


def one_after_another(groups: Sequence[tuple[int, Sequence[pa.Array]]]) -> list[pa.Array]:
    """Concatenate groups of rows: their columns become columns of all rows, null in the other groups."""
    starts = list(accumulate((count for count, _ in groups), initial=0))
    total = starts[-1]
    return [
        _among(array, before, total)
        for before, (_, arrays) in zip(starts, groups, strict=False)
        for array in arrays
    ]


def _among(array: pa.Array, before: int, total: int) -> pa.Array:
    """Embed the array among ``total`` values, with this many nulls before it."""
    if len(array) == total:
        return array
    after = total - before - len(array)
    return pa.concat_arrays([pa.nulls(before, array.type), array, pa.nulls(after, array.type)])


_NUMBERS = (LONG, DOUBLE)
# Bytes of an array that gains nothing beside others: 100,000 below it are 1.6 GB
_LARGE = 16 * 1024


@dataclass(frozen=True)
class ArrowRecords:
    """The fields of some records as Arrow arrays.

    A key may have several arrays; each of its values is in one of them, and arrays with the same lists share
    these.

    Attributes:
        arrays: one for each field of ``struct``, in its order.
        struct: the types of the arrays, by key.
        json: numbers and strings are JSON's, which has one kind of each; else they have the declared types.
        nulls: flags those that are no records, and are null in each array.
    """

    arrays: Sequence[pa.Array]
    struct: Struct
    count: int
    json: bool
    dates: str
    nulls: pa.Array | None = None

    def values(self, route: FieldRoute) -> ArrowValues | MixedValues | None:
        """The values of the field in one part, or in several if its arrays have lists of different depths."""
        columns = self._by_key.get(route.key)
        return None if columns is None else _values(columns, route, self.json, self.dates)

    @cached_property
    def _by_key(self) -> dict[str, list[tuple[Type, pa.Array]]]:
        by_key: dict[str, list[tuple[Type, pa.Array]]] = {}
        for field, array in zip(self.struct.fields, self.arrays, strict=True):
            by_key.setdefault(field.name, []).append((field.type, array))
        return by_key

    def scalar(self, key: str) -> Primitive | None:
        """The type of a field's values, if all are scalars of one type."""
        columns = self._by_key.get(key, ())
        type_ = columns[0][0] if len(columns) == 1 else None
        return type_ if isinstance(type_, Primitive) else None

    def scalar_texts(self, types: Mapping[str, Primitive]) -> Mapping[str, list[str | None]]:
        """The JSON texts of scalar fields, by key: those of one type are converted together.

        Args:
            types: of the fields.
        """
        alike: dict[tuple[Primitive, pa.DataType, str], list[str]] = {}
        for key, type_ in types.items():
            array = self._by_key[key][0][1]
            # Arrow's texts of one array end at 2 GiB.
            alone = key if array.nbytes > _LARGE else ""
            alike.setdefault((type_, array.type, alone), []).append(key)
        out: dict[str, list[str | None]] = {}
        for (type_, _, _), keys in alike.items():
            texts = scalar_texts(pa.concat_arrays([self._by_key[key][0][1] for key in keys]), type_)
            starts = range(0, len(texts), self.count or 1)
            out |= {key: texts[at : at + self.count] for key, at in zip(keys, starts, strict=True)}
        return out

    def followed_by(self, groups_behind: Sequence[ArrowRecords]) -> ArrowRecords:
        """Append the records of each group; a key that occurs in several of their structs occurs again."""
        groups = (self, *groups_behind)
        arrays = one_after_another([(records.count, records.arrays) for records in groups])
        fields = tuple(field for records in groups for field in records.struct.fields)
        count = sum(records.count for records in groups)
        nulls = None
        if any(records.nulls is not None for records in groups):
            valid = [pa.array(np.zeros(records.count, np.bool_)) for records in groups]
            nulls = pa.concat_arrays([r.nulls or none for r, none in zip(groups, valid, strict=True)])
        return ArrowRecords(arrays, Struct(fields), count, self.json, self.dates, nulls)


def _values(
    columns: Sequence[tuple[Type, pa.Array]], route: FieldRoute, json: bool, dates: str
) -> ArrowValues | MixedValues:
    alike: list[list[tuple[Type, pa.Array]]] = []
    for column in columns:
        # Arrays with the same lists share the places of their elements, so their leaves line up; others do
        # not.
        group = next((candidate for candidate in alike if same_lists(candidate[0][1], column[1])), None)
        if group is None:
            alike.append([column])
        else:
            group.append(column)
    values = [ArrowValues(group, route, json, dates) for group in alike]
    return values[0] if len(values) == 1 else MixedValues(values)


class ArrowValues:
    """The values of one field, in a column for each of their types.

    Attributes:
        dim: the dimension of all values.
        count: the number of their leaves.
    """

    def __init__(
        self, columns: Sequence[tuple[Type, pa.Array]], route: FieldRoute, json: bool, dates: str
    ) -> None:
        self._route, self._json, self._dates = route, json, dates
        self.dim = peel(columns[0][0])[0]
        self._leaves = [(peel(type_)[1], flattened(lists)) for type_, lists in columns]
        self._lists = columns[0][1]
        self._columns = [lists for _, lists in columns]
        self.count = len(self._leaves[0][1])

    @cached_property
    def _valid(self) -> NDArray[np.bool_]:
        """Flags the leaves that have a value."""
        return reduce(np.logical_or, [~nulls_of(leaves) for _, leaves in self._leaves])

    def primitives(self, target: Primitive, column_route: ColumnRoute) -> pa.Array:
        """Convert each column, and take a leaf from the one column that has it."""
        if target == VARIANT:
            return reduce(first_of, [_as_variants(*column) for column in self._leaves])
        taken = [self._primitives(*column, target, column_route) for column in self._leaves]
        return pc.coalesce(*taken) if len(taken) > 1 else taken[0]

    def _primitives(
        self, source: Type, leaves: pa.Array, target: Primitive, column_route: ColumnRoute
    ) -> pa.Array:
        bases = bases_of(column_route).get(self.dim, frozenset())
        if self._json and source == STRING:
            return self._of_texts(leaves, target, bases, column_route.unit)
        if isinstance(source, Primitive) and self._takes(bases, source, target):
            return convert(leaves, source, target, column_route.unit)
        return pa.nulls(len(leaves), arrow_type(target))

    def _takes(self, bases: frozenset[Base], source: Primitive, target: Primitive) -> bool:
        if not self._json:
            return source in bases
        taken = takes_number(bases, source) if source in _NUMBERS else source in bases
        # Whole numbers in a column that was parsed as doubles: observing has counted them as longs.
        return (taken or (source == DOUBLE and LONG in bases and target == DOUBLE)) and converts(
            source, target
        )

    def _of_texts(
        self, leaves: pa.Array, target: Primitive, bases: frozenset[object], unit: str | None
    ) -> pa.Array:
        texts = [b for b in bases if isinstance(b, Primitive) and b.name in TEXT]
        if target.name in ("string", "binary"):
            if texts:
                return texts_as(leaves, STRING, target, unit)
            return pa.nulls(len(leaves), arrow_type(target))
        date_types = [b for b in texts if b != STRING and converts(b, target)]
        bases_of_field = {f.base for f in self._route.shape.facets}
        texts_of_field = {b for b in bases_of_field if isinstance(b, Primitive) and b.name in TEXT}
        if len(date_types) == 1 and texts_of_field == set(date_types):
            # Observing has judged every string of the field
            return texts_as(leaves, date_types[0], target, unit)
        declared = primitives_of(self._route)
        # Dates among other strings are distinguished one by one: the whole column has no single type.
        by_base: dict[Primitive, list[int]] = {}
        for number, text in enumerate(leaves.to_pylist() if date_types else ()):
            if text is not None:
                base = declared_string_base(text, declared, self._dates)
                by_base.setdefault(base, []).append(number)
        parts = [
            (by_base[b], texts_as(leaves.take(pa.array(by_base[b])), b, target, unit))
            for b in date_types
            if b in by_base
        ]
        return scattered(len(leaves), parts, arrow_type(target))

    def whole(self, type_: Primitive) -> tuple[pa.Array, NDArray[np.bool_]]:
        """Return the values as VARIANT, and flags of the leaves held.

        A VARIANT column without lists stays unchanged. JSON holds none: the values have types, or are parsed.
        """
        if type_ == JSON:
            return pa.nulls(len(self._lists), arrow_type(JSON)), np.zeros(self.count, np.bool_)
        if not self.dim and self._leaves[0][0] == VARIANT:
            return self._leaves[0][1], self._valid
        columns = self.lists()
        values = (
            columns[0] if len(columns) == 1 else [reduce(merged, same) for same in zip(*columns, strict=True)]
        )
        array = variants_of(values)
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        # A VARIANT holds a value whole or not at all, so its leaves share one flag.
        owners = [n for n, value in enumerate(values) for _ in _leaves_in(value, self.dim)]
        return array, valid[np.asarray(owners, np.int64)]

    def records(self, column_route: ColumnRoute) -> tuple[ArrowRecords, Numbers]:
        """Return the fields of the structs, or empty records if the column does not take objects.

        A single struct of JSON keeps nulls for leaves that are no records; other structs leave them out.
        """
        takes = RECORD in bases_of(column_route).get(self.dim, frozenset())
        # A column has an object that it does not take as {}, but for what has to be found in the rest.
        waits = not takes and Facet(self.dim, RECORD) in self._route.to_rest
        structs = [
            (leaf_type, leaves)
            for leaf_type, leaves in self._leaves
            if isinstance(leaf_type, Struct) and not waits
        ]
        if len(structs) == 1 and self._json:
            # What is below a null is null in JSON, and costs less than to be left out and put back.
            ((leaf_type, leaves),) = structs
            nulls = leaves.is_null() if leaves.null_count else None
            return self._records(leaf_type if takes else Struct(), leaves, nulls), np.arange(len(leaves))
        parts, numbers = [], []
        for leaf_type, leaves in structs:
            valid = leaves.filter(leaves.is_valid()) if leaves.null_count else leaves
            parts.append(self._records(leaf_type if takes else Struct(), valid))
            numbers.append(np.flatnonzero(~nulls_of(leaves)))
        if not parts:
            return ArrowRecords((), Struct(), 0, self._json, self._dates), np.zeros(0, np.int64)
        if len(parts) == 1:
            return parts[0], numbers[0]
        return parts[0].followed_by(parts[1:]), np.concatenate(numbers)

    def _records(self, struct: Struct, leaves: pa.Array, nulls: pa.Array | None = None) -> ArrowRecords:
        arrays = [leaves.field(i) for i in range(len(struct.fields))]
        return ArrowRecords(arrays, struct, len(leaves), self._json, self._dates, nulls)

    def maps(self, route: FieldRoute, key: Type, dims: Dims) -> Maps | None:
        """The maps among all leaves; None if there are none."""
        return self.maps_of(self.entries(key, dims), route)

    def entries(self, key: Type, dims: Dims, first: int = 0) -> list[MapEntries]:
        """Return the entries of the leaves that are maps of this key and one of these dimensions.

        Args:
            key: the type of the keys.
            dims: the dimensions of the values around the maps.
            first: the number of the first leaf.
        """
        facets = (*self._route.shape.facets, *self._route.to_rest)
        has_values = any(facet.dim == self.dim and isinstance(facet.base, MapOf) for facet in facets)
        return entries_in(self._leaves, key, first) if (self.dim if has_values else None) in dims else []

    def maps_of(self, groups: Sequence[MapEntries], route: FieldRoute) -> Maps | None:
        """Maps of these entries; None if there are none."""
        if not groups:
            return None
        lengths = np.concatenate([entries.lengths for entries in groups])
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        keys = pa.concat_arrays([entries.keys for entries in groups])
        numbers = np.concatenate([entries.numbers for entries in groups])
        return Maps(offsets, keys, _values(together(groups), route, self._json, self._dates), numbers)

    def scattered(self, leaves: pa.Array, numbers: Numbers) -> pa.Array:
        """Put the leaves at their places among `count`, with null elsewhere."""
        return in_places(self.count, leaves, numbers)

    def placed(self, leaves: pa.Array, type_: pa.DataType) -> pa.Array:
        """Wrap the leaves in lists as deep as ``type_``; if the depth is the same, the lists are reused."""
        dim = dimension(type_)
        # Only if no leaf was lost: a list in which no value fits is null as a whole, and its lists are then
        # built.
        if dim == self.dim and (not dim or leaves.null_count == self.count - self._valid.sum()):
            return relist(self._lists, leaves, type_)
        if dim < self.dim and not (dim and self._has_empty_lists()):
            return pa.nulls(len(self._lists), type_)
        if not self.dim:
            return wrapped(leaves, type_)
        return assemble(place(self.shredded(), leaves.is_valid().to_pylist(), dim), leaves, type_)

    def _has_empty_lists(self) -> bool:
        """True if a value is a list without a value inside: a column of fewer lists takes it, too."""
        owners, lists = np.arange(len(self._lists)), self._lists
        for _ in range(self.dim):
            owners = owners[pc.list_parent_indices(lists).to_numpy()]
            lists = lists.flatten()
        valued = np.zeros(len(self._lists), np.bool_)
        valued[owners[self._valid]] = True
        return bool((~valued & ~nulls_of(self._lists)).any())

    def shredded(self, first: int = 0) -> Shredded:
        """The values taken apart.

        Args:
            first: the number of the first leaf.
        """
        return numbered(self._lists, self._valid, first)

    def missing(self) -> pa.Array:
        """Flag values that are null or absent: those whose outermost list, or leaf, is null."""
        return self._lists.is_null() if self.dim else pa.array(~self._valid)

    def places(self) -> Sequence[tuple[int, tuple[int, ...]]]:
        """The owner and list positions of each leaf; without lists, each leaf is a value of its own."""
        if not self.dim:
            return [(number, ()) for number in range(self.count)]
        return places_of(numbered(self._lists, np.ones(self.count, np.bool_)))

    def texts(self, stored: NDArray[np.bool_] | None, field_settings: FieldSettings) -> Iterator[NumberText]:
        """The texts of the leaves that are not ``stored``, or of all values if it is None."""
        if stored is not None:
            lost = np.flatnonzero(self._valid & ~stored).tolist()
            places = self.places() if lost else ()
            # Looked for only where something is lost: places are Python objects, one for each leaf.
            valid = np.flatnonzero(self._valid).tolist() if lost else ()
            for value, within in lost_by_value(lost, places, valid):
                yield from self._text_at(value, within, field_settings)
        elif len(self._columns) > 1 and (self.dim or any(isinstance(i, Map) for i, _ in self._leaves)):
            yield from _texts_of_several(self.json_values(), field_settings)
        else:
            for array, (leaf_type, _) in zip(self._columns, self._leaves, strict=True):
                type_ = wrap(leaf_type, self.dim)
                for number, value in enumerate(json_values(array, type_)):
                    if has_value(value):
                        yield NumberText(number, (), json_text(value, field_settings), _single(type_))

    def lists(self) -> list[list[Any]]:
        """The values of each column as Python objects."""
        return [column.to_pylist() for column in self._columns]

    def json_values(self) -> list[list[Any]]:
        """The values of each column in the form that JSON is written from."""
        columns = zip(self._columns, self._leaves, strict=True)
        return [json_values(array, wrap(leaf_type, self.dim)) for array, (leaf_type, _) in columns]

    def _text_at(
        self, value: int, within: tuple[int, ...], field_settings: FieldSettings
    ) -> Iterator[NumberText]:
        """The text at these places of a value's lists, with its type if it has one."""
        settings_inside = field_settings.inside(len(within))
        parts = []
        for column, (leaf_type, _) in zip(self._columns, self._leaves, strict=True):
            (json_value,) = json_values(column.slice(value, 1), wrap(leaf_type, self.dim))
            part = element_at(json_value, within)
            if has_value(part):
                parts.append((part, wrap(leaf_type, self.dim - len(within))))
        if len(parts) == 1:
            ((part, type_),) = parts
            yield NumberText(value, within, json_text(part, settings_inside), _single(type_))
        elif parts:
            yield NumberText(
                value, within, json_text(reduce(merged, (part for part, _ in parts)), settings_inside)
            )

    def are_all_in(self, leaves: pa.Array) -> bool:
        """True if the leaves have as many nulls as those of the only type; with several types, none."""
        nulls = self._leaves[0][1].null_count if len(self._leaves) == 1 else 0
        return bool(leaves.null_count == nulls)

    def lost(self, stored: NDArray[np.bool_]) -> object | None:
        """The first lost leaf of a primitive type; None if there is none."""
        if not (self._valid & ~stored).any():
            return None
        for leaf_type, leaves in self._leaves:
            if isinstance(leaf_type, Primitive):
                lost = np.flatnonzero(~nulls_of(leaves) & ~stored)
                if len(lost):
                    value: object = leaves[int(lost[0])].as_py()
                    return value
        return None


class MixedValues:
    """The values of one field in ``parts`` with lists of their own; leaves are numbered throughout.

    Most values are in one part. A list of mixed depth is in several, each with the elements of its own depth.
    """

    def __init__(self, parts: Sequence[ArrowValues]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(part.count for part in parts)])
        valued = [~part.missing().to_numpy(zero_copy_only=False) for part in parts]
        self._shared: NDArray[np.bool_] = np.sum(valued, axis=0) > 1

    def primitives(self, target: Primitive, column_route: ColumnRoute) -> pa.Array:
        """The leaves of all parts in one column."""
        return pa.concat_arrays([part.primitives(target, column_route) for part in self._parts])

    def records(self, column_route: ColumnRoute) -> tuple[ArrowRecords, Numbers]:
        """The records of all parts, with the numbers of their leaves among all."""
        parts = [part.records(column_route) for part in self._parts]
        records = [part_records for part_records, _ in parts]
        numbers = [
            np.asarray(leaf_numbers, np.int64) + start
            for (_, leaf_numbers), start in zip(parts, self._starts, strict=False)
        ]
        return records[0].followed_by(records[1:]), np.concatenate(numbers)

    def whole(self, type_: Primitive) -> tuple[pa.Array, NDArray[np.bool_]]:
        """Merge the parts' values: each as a whole if any value is in several parts."""
        if self._shared.any() and type_ == VARIANT:
            columns = [column for part in self._parts for column in part.lists()]
            array = variants_of(reduce(merged, same) for same in zip(*columns, strict=True))
            owners = [value for value, _ in self.places()]
            return array, array.is_valid().to_numpy(zero_copy_only=False)[owners]
        parts = [part.whole(type_) for part in self._parts]
        return reduce(first_of, [array for array, _ in parts]), np.concatenate([valid for _, valid in parts])

    def maps(self, route: FieldRoute, key: Type, dims: Dims) -> Maps | None:
        """The maps of all parts; None if there are none."""
        parts = zip(self._parts, self._starts, strict=False)
        entries = [entries for part, start in parts for entries in part.entries(key, dims, start)]
        return self._parts[0].maps_of(entries, route)

    def scattered(self, leaves: pa.Array, numbers: Numbers) -> pa.Array:
        """Put the leaves at their places among those of all parts."""
        return in_places(int(self._starts[-1]), leaves, numbers)

    def placed(self, leaves: pa.Array, type_: pa.DataType) -> pa.Array:
        """Place the leaves part by part, and together if any value is in several parts."""
        if self._shared.any():
            return self._placed_together(leaves, type_, dimension(type_))
        placed = [
            part.placed(leaves.slice(start, part.count), type_)
            for part, start in zip(self._parts, self._starts, strict=False)
        ]
        return reduce(first_of, placed)

    def _placed_together(self, leaves: pa.Array, type_: pa.DataType, dim: int) -> pa.Array:
        """Place values joined from all parts that are not deeper than the column."""
        parts = [
            (part.dim, part.shredded(first)) for part, first in zip(self._parts, self._starts, strict=False)
        ]
        fitting = [shredded for part_dim, shredded in parts if part_dim <= dim]
        if not fitting:
            return pa.nulls(len(self._shared), type_)
        shredded, all_shredded = joined(fitting), joined([shredded for _, shredded in parts])
        # Beside deeper elements, which the column does not take, one is wrapped where it stands.
        shredded.dims = [
            dim if value_dim is not None and deepest is not None and deepest > dim else value_dim
            for value_dim, deepest in zip(shredded.dims, all_shredded.dims, strict=True)
        ]
        return assemble(place(shredded, leaves.is_valid().to_pylist(), dim), leaves, type_)

    def missing(self) -> pa.Array:
        """Flag the values that are missing in every part."""
        return reduce(pc.and_, (part.missing() for part in self._parts))

    def places(self) -> Sequence[tuple[int, tuple[int, ...]]]:
        """The owner and list positions of each leaf, part after part."""
        return [place for part in self._parts for place in part.places()]

    def texts(self, stored: NDArray[np.bool_] | None, field_settings: FieldSettings) -> Iterator[NumberText]:
        """The texts of each part; a value that is in several parts is written from all of them."""
        waiting = set()
        for part, start in zip(self._parts, self._starts, strict=False):
            for text in part.texts(
                None if stored is None else stored[start : start + part.count], field_settings
            ):
                # A part knows only its own elements of such a value, and the rest wants the value whole.
                if self._shared[text.number]:
                    waiting.add(text.number)
                else:
                    yield text
        if waiting:
            columns = [column for part in self._parts for column in part.json_values()]
            yield from (text for text in _texts_of_several(columns, field_settings) if text.number in waiting)

    def are_all_in(self, leaves: pa.Array) -> bool:
        """True if no leaf is null."""
        return not leaves.null_count

    def lost(self, stored: NDArray[np.bool_]) -> object | None:
        """The lost leaf of the first part that has one; None if no part has."""
        for part, start in zip(self._parts, self._starts, strict=False):
            if (lost := part.lost(stored[start : start + part.count])) is not None:
                return lost
        return None


def _texts_of_several(columns: Sequence[list[Any]], field_settings: FieldSettings) -> Iterator[NumberText]:
    """Texts of lists and maps whose values have several types, and so no single one."""
    for number, value in enumerate(reduce(merged, same) for same in zip(*columns, strict=True)):
        if has_value(value):
            yield NumberText(number, (), json_text(value, field_settings))


def _as_variants(source: Type, leaves: pa.Array) -> pa.Array:
    return leaves if source == VARIANT else variants_of(leaves.to_pylist())


def _single(type_: Type) -> Type | None:
    """The type; None if a key occurs several times in it, because no single type reads such a value."""
    return type_ if _is_single(type_) else None


def _is_single(type_: Type) -> bool:
    fields = children(type_)
    return len({f.name for f in fields}) == len(fields) and all(_is_single(f.type) for f in fields)


def _leaves_in(value: object, dim: int) -> Iterator[object]:
    """The leaves of a value inside ``dim`` lists, nulls included."""
    if not dim:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _leaves_in(item, dim - 1)
