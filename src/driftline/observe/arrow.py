"""Observes Arrow columns: facets from the declared types (rules 2.3), marks from every value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.declared import OVERFLOW, VOID, entries_of
from driftline.convert.kernels import convert, converts
from driftline.convert.leaves import flattened
from driftline.core.planning.conversions import narrows, outside
from driftline.core.planning.plan import facet_of
from driftline.core.planning.shape import RECORD, Facet, FieldShape, MapOf, Profile, RecordShape
from driftline.core.schema.types import (
    STRING,
    VARIANT,
    Map,
    Path,
    Primitive,
    SourceLocation,
    Struct,
    Type,
    peel,
)
from driftline.core.values import EXACT
from driftline.observe.expect import UNKNOWN, ExpectedField
from driftline.observe.observation import Observation, Tally, sample

Place: TypeAlias = Callable[[int], SourceLocation]

# Values that Python looks at sooner than Arrow, whose every call takes as long as a few of them
_FEW = 32
_DAY = 86_400_000_000  # microseconds
_NEAR = (0, 7_258_118_400_000_000 - 1)  # microseconds of the years 1970 to 2199


class ArrowObserver:
    """Observes batches of columns against the table's columns (``expected``).

    A declared column counts even if it holds only nulls, except one marked
    `driftline.convert.declared.OVERFLOW`. ``struct``: the declared types, by key; ``source``: the name of the
    file or DataFrame; ``empty_names``: a column without a name is like others, and not dropped.
    """

    def __init__(
        self, struct: Struct, expected: ExpectedField, source: str, *, empty_names: bool = False
    ) -> None:
        self._struct, self._expected, self._empty_names = struct, expected, empty_names
        self._shape = shape_of(struct, SourceLocation(source), empty_names=empty_names)
        self._dropped: Counter[Path] = Counter()
        self._records = 0

    def feed(self, batch: pa.RecordBatch, place: Place | None = None) -> None:
        """Observe rows with the columns of the struct; ``place``: of a row, by its number in the batch."""
        self._records += batch.num_rows
        columns = batch.columns
        # The first values of most columns are in one row
        place = None if place is None else cache(place)
        for f, column in zip(self._struct.fields, columns, strict=True):
            if not (f.name or self._empty_names):
                self._dropped[()] += len(column) - column.null_count
        _mark_record(columns, self._struct, self._shape, self._expected, place)

    def result(self) -> Observation:
        """Return the observation so far."""
        return Observation(self._shape, Tally(self._records, dropped_names=self._dropped))


def shape_of(struct: Struct, location: SourceLocation, *, empty_names: bool = False) -> RecordShape:
    """Return the facets that a schema declares.

    Args:
        empty_names: include fields without a name.

    >>> from driftline.core.schema.types import LONG, Field, List
    >>> shape = shape_of(Struct((Field("a", List(LONG)),)), SourceLocation("f"))
    >>> [str(facet) for facet in shape.fields["a"].facets]
    ['long[1]']
    """
    out = RecordShape()
    for position, f in enumerate(struct.fields):
        # The column of what a declared type cannot hold counts by its values alone: most batches have none.
        if not (f.name or empty_names):
            continue
        place = SourceLocation(location.source, location.line, position)
        if f.doc == OVERFLOW:
            out.fields.setdefault(f.name, FieldShape(place))
        else:
            shape = _field_shape(f.type, place, empty_names)
            shape.comment = f.doc or ""
            # Arrow allows two columns of one name: they are one field with several types.
            out.fields[f.name] = out.fields[f.name].merge(shape) if f.name in out.fields else shape
    return out


def _field_shape(type_: Type, location: SourceLocation, empty_names: bool) -> FieldShape:
    dim, leaf_type = peel(type_)
    shape = FieldShape(location)
    profile = Profile(location, typed=True)
    match leaf_type:
        case Struct():
            if leaf_type.fields:
                profile.record = shape_of(leaf_type, location, empty_names=empty_names)
                shape.add(Facet(dim, RECORD), profile)
            else:
                shape.empty_record = True
        case Map(key=Primitive() as key):
            profile.value = _field_shape(leaf_type.value, location, empty_names)
            shape.add(Facet(dim, MapOf(key)), profile)
        case Primitive() if leaf_type != VOID:
            shape.add(Facet(dim, leaf_type), profile)
        case _:
            shape.empty_lists = dim
    return shape


def _mark_record(
    arrays: Sequence[pa.Array],
    struct: Struct,
    shape: RecordShape,
    expected: ExpectedField,
    place: Place | None,
) -> None:
    by_key: dict[str, list[tuple[Type, pa.Array]]] = {}
    for f, array in zip(struct.fields, arrays, strict=True):
        by_key.setdefault(f.name, []).append((f.type, array))
    for key, columns in by_key.items():
        if key or key in shape.fields:
            expected_field, field_shape = expected.fields.get(key, UNKNOWN), shape.fields[key]
            if expected_field.required and _some_missing(
                [array for _, array in columns], nan=expected_field.needed
            ):
                field_shape.missing = True
            for type_, array in columns:
                _mark_field(array, type_, field_shape, expected_field, place)
    for key in expected.required_keys:
        if key not in shape.fields:
            shape.fields[key] = FieldShape(SourceLocation(), absent=True, missing=True)


def _some_missing(arrays: Sequence[pa.Array], *, nan: bool) -> bool:
    """True if some record has a value in none of the columns.

    Args:
        nan: NaN is no value.
    """
    return bool(np.logical_and.reduce([array.is_null(nan_is_null=nan) for array in arrays]).any())


def _mark_field(
    values: pa.Array, type_: Type, shape: FieldShape, expected: ExpectedField, place: Place | None
) -> None:
    leaf_type = peel(type_)[1]
    # Marks are about values: the lists around them are in the facet already.
    leaves = flattened(values)
    leaves = leaves.drop_null() if leaves.null_count else leaves
    if not len(leaves):
        return
    facet = facet_of(type_)
    # Columns marked as overflow are declared without a facet; their first value makes one.
    if facet not in shape.facets and leaf_type != VOID:
        shape.facets[facet] = Profile(shape.location, typed=True, digits=leaf_type == STRING)
    match leaf_type:
        case Struct(fields) if fields:
            record = shape.facets[facet].record
            assert record is not None
            inside = None if place is None else partial(_place_of_leaf, values, place)
            _mark_record([leaves.field(i) for i in range(len(fields))], leaf_type, record, expected, inside)
        case Map():
            value = shape.facets[facet].value
            assert value is not None
            items = entries_of(leaves).flatten().field(1)
            # Which entry of a map it is, is not worth another way back to its row.
            _mark_field(items, leaf_type.value, value, expected.value or UNKNOWN, None)
        case Primitive() if leaf_type != VOID:
            profile = shape.facets[facet]
            # Once for a facet: only its first value is looked for in the rows.
            if place is not None and not profile.sample and leaf_type != VARIANT:
                location = _place_of_leaf(values, place, 0)
                profile.sampled = location if location.line else None
            _annotate(leaves, leaf_type, profile)
            if expected.bounded and narrows(leaf_type, Primitive(min(expected.bounded))):
                low, high = (bound.as_py() for bound in pc.min_max(leaves).values())
                profile.outside |= outside(int(low), int(high), expected.bounded)


def _place_of_leaf(values: pa.Array, place: Place, number: int) -> SourceLocation:
    """Return the place of the row with a leaf, by its number among those that are not null."""
    owners = []
    while pa.types.is_list(values.type):
        lengths = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        owners.append(np.repeat(np.arange(len(values)), lengths))
        values = values.flatten()
    row = number
    # Asked first, as a wide file has few rows and a column for each call
    if values.null_count:
        row = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))[number]
    for owner in reversed(owners):
        row = owner[row]
    return place(int(row))


def _annotate(leaves: pa.Array, type_: Primitive, profile: Profile) -> None:
    """Mark values of a type that other columns may not hold exactly."""
    if not profile.sample and type_ != VARIANT:
        profile.sample = sample(_text(leaves.slice(0, 1), type_))
    match type_.name:
        case "int" | "long":
            low, high = _bounds(leaves)
            profile.wide = profile.wide or low < -EXACT or high > EXACT
            # Up to 2**24 a float holds every integer, so most columns are not looked at value by value.
            profile.lossy = profile.lossy or (max(-low, high) > 2**24 and not _all_single(leaves))
        case "binary":
            profile.lossy = profile.lossy or not _all_text(leaves)
        case "date" | "timestamp" | "timestamp_ntz":
            micros = _micros(leaves, type_)
            profile.far = profile.far or bool((micros < _NEAR[0]).any() or (micros > _NEAR[1]).any())
            # Microseconds first: a value with these digits needs six, whatever the others need.
            for digits, finer in ((6, 1_000), (3, 1_000_000)) if type_.name != "date" else ():
                if profile.fraction < digits and bool((micros % finer != 0).any()):
                    profile.fraction = digits


def _bounds(numbers: pa.Array) -> tuple[int, int]:
    if len(numbers) <= _FEW:
        values = numbers.to_pylist()
        return min(values), max(values)
    low, high = (bound.as_py() for bound in pc.min_max(numbers).values())
    return low, high


def _text(leaf: pa.Array, type_: Primitive) -> str:
    """Return an array's only value, as a text column would hold it."""
    # A kernel makes up to a dozen calls, which is most of the time where there are many columns.
    if type_.name in ("int", "long"):
        return str(leaf[0].as_py())
    text = convert(leaf, type_, STRING) if converts(type_, STRING) else leaf
    try:
        # Bytes that are no text convert to null.
        return str(text[0].as_py()) if text[0].is_valid else repr(leaf[0].as_py())
    except UnicodeDecodeError:
        # Java and C write texts that are not UTF-8; a sample for the report may not fail the batch.
        return repr(text.cast(pa.binary())[0].as_py())


def _micros(leaves: pa.Array, type_: Primitive) -> NDArray[np.int64]:
    if type_.name == "date":
        days: NDArray[np.int32] = leaves.cast(pa.int32()).to_numpy(zero_copy_only=False)
        return days.astype(np.int64) * _DAY
    micros: NDArray[np.int64] = leaves.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return micros


def _all_single(leaves: pa.Array) -> bool:
    """True if a float column holds each integer exactly: without factors of two they have 24 bits."""
    numbers = leaves.cast(pa.int64()).to_numpy(zero_copy_only=False)
    numbers = numbers[numbers != 0]
    return bool((np.abs(numbers // (numbers & -numbers)) < 2**24).all())


def _all_text(leaves: pa.Array) -> bool:
    try:
        leaves.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
