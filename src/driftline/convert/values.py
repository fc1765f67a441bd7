"""The view of a batch that converting needs: records by field, a field's values as leaves in lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from driftline.core.planning.plan import ColumnRoute, FieldRoute
from driftline.core.planning.shape import Base
from driftline.core.schema.types import Primitive, Type
from driftline.core.settings.fields import Contract

Bases = Mapping["int | None", frozenset[Base]]  # what a column takes, by the dimension of the value
# Dimensions of values; None: that of objects without any value inside, which are as deep as a column has it.
Dims = AbstractSet["int | None"]
Numbers = Sequence[int] | NDArray[Any]  # which leaves


class Records(Protocol):
    """Some records. ``count``: their number; ``nulls``: flags those that are none, if any."""

    @property
    def count(self) -> int:
        """The number of records."""
        ...

    @property
    def nulls(self) -> pa.Array | None:
        """Flags of the entries that are no records; None if all are."""
        ...

    def values(self, route: FieldRoute) -> Values | None:
        """The values of one field, one in each record; None if no record has the field."""


class Maps(NamedTuple):
    """Leaves that are maps: their ``offsets`` in ``keys`` and ``values``, and the numbers of the leaves."""

    offsets: pa.Array
    keys: pa.Array
    values: Values
    numbers: Numbers


class NumberText(NamedTuple):
    """The exact JSON text of value ``number``, or of its element at ``places``.

    ``type``: of a typed value.
    """

    number: int
    places: tuple[int, ...]
    text: str
    type: Type | None = None


class Values(Protocol):
    """The values of one field. A leaf is one scalar or record with its lists removed; leaves are numbered."""

    def primitives(self, target: Primitive, column_route: ColumnRoute) -> pa.Array:
        """Each leaf in a column of type ``target``; null if the column does not take it, or not exactly."""

    def variants(self) -> tuple[pa.Array, NDArray[np.bool_]]:
        """The values as VARIANT, with their lists, null if one is not exact; and flags of the leaves held by
        that.
        """

    def records(self, column_route: ColumnRoute) -> tuple[Records, Numbers]:
        """The leaves that are records and that the column takes, and their numbers; or all leaves, with nulls
        for the others.
        """

    def maps(self, route: FieldRoute, key: Type, dims: Dims) -> Maps | None:
        """The leaves that are maps with keys of this type and values of these dimensions; None if there can
        be none.

        ``route``: that of their values.
        """

    def scattered(self, leaves: pa.Array, numbers: Numbers) -> pa.Array:
        """Leaves of these numbers at their places among all; null for the others."""

    def placed(self, leaves: pa.Array, type_: pa.DataType) -> pa.Array:
        """The values with these leaves, in lists as deep as the column's type."""

    def missing(self) -> pa.Array:
        """Flags the values that are null or absent."""

    def places(self) -> Sequence[tuple[int, tuple[int, ...]]]:
        """By leaf, the index of the value around it, and its places in that value's lists."""

    def texts(self, stored: NDArray[np.bool_] | None, contract: Contract) -> Iterable[NumberText]:
        """The texts of values and leaves that no column holds, without what the ``contract`` excludes.

        A value, or a list inside it, of which nothing is stored comes whole, of others only the lost leaves.
        ``stored``: flags the leaves that some column holds; None: no column holds any.
        """

    def are_all_in(self, leaves: pa.Array) -> bool:
        """True if a column's leaves hold all values, as far as the number of nulls shows.

        They must hold no others.
        """

    def lost(self, stored: NDArray[np.bool_]) -> object | None:
        """A leaf of the field that no column holds, if there is one.

        ``stored``: flags the leaves that some column holds.
        """


def bases_of(column_route: ColumnRoute) -> Bases:
    """The types a column takes, by the dimension of the value."""
    out: dict[int | None, frozenset[Base]] = {}
    for facet in column_route.takes:
        out[facet.dim] = out.get(facet.dim, frozenset()) | {facet.base}
    return out


def primitives_of(route: FieldRoute) -> frozenset[Primitive]:
    """The types of a field's columns inside their lists, except records and maps."""
    return frozenset(c.facet.base for c in route.columns if isinstance(c.facet.base, Primitive))


def scattered(count: int, parts: Sequence[tuple[Numbers, pa.Array]], type_: pa.DataType) -> pa.Array:
    """An array of ``count`` leaves from parts, each with the numbers of its leaves; null elsewhere."""
    if not parts:
        return pa.nulls(count, type_)
    if len(parts) == 1 and len(parts[0][0]) == count:
        return parts[0][1]
    index = np.full(count, -1, np.int64)
    start = 0
    for numbers, leaves in parts:
        index[np.asarray(numbers, np.int64)] = np.arange(start, start + len(leaves))
        start += len(leaves)
    joined = pa.concat_arrays([leaves for _, leaves in parts])
    return joined.take(pa.array(index, pa.int64(), mask=index < 0))


def overlaid(array: pa.Array, numbers: Numbers, values: pa.Array) -> pa.Array:
    """The array with ``values`` at the places of these numbers."""
    index = np.arange(len(array), dtype=np.int64)
    index[np.asarray(numbers, np.int64)] = np.arange(len(array), len(array) + len(values))
    return pa.concat_arrays([array, values]).take(pa.array(index))


def first_of(values: pa.Array, fallback: pa.Array) -> pa.Array:
    """The values, with those of the fallback for nulls."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    places = np.arange(len(values))
    return pa.concat_arrays([values, fallback]).take(pa.array(np.where(valid, places, places + len(values))))


def in_places(count: int, leaves: pa.Array, numbers: Numbers) -> pa.Array:
    """The leaves at their places among all; records of a union come type by type, so not in order."""
    places = np.asarray(numbers, np.int64)
    if (np.diff(places) < 0).any():
        order = np.argsort(places)
        places, leaves = places[order], leaves.take(pa.array(order))
    return scattered(count, [(places, leaves)], leaves.type)


def dimension(type_: pa.DataType) -> int:
    """The number of lists around the type's leaves."""
    dim = 0
    while pa.types.is_list(type_):
        dim, type_ = dim + 1, type_.value_type
    return dim


def variants_of(values: Iterable[object]) -> pa.Array:
    """Each value as a VARIANT; null if it is None, or not exact as one."""
    # Only tables of Spark's have such columns, and nothing else of the conversion knows pyspark.
    from driftline.convert.variants import variants

    return variants(values)
