"""Flattens nested lists to leaves and rebuilds them at a column's dimension (section 5 of the rules).

A value's dimension is that of its deepest leaf. A value of a smaller dimension is wrapped whole, a shallower
element in its place; lists keep their positions, and a list in which no value fits is null as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import reduce
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from driftline.core.planning.plan import ColumnRoute, FieldRoute
from driftline.core.planning.shape import Base
from driftline.core.schema.types import UUID, WIDER, Primitive, Type
from driftline.core.settings.fields import FieldSettings
from driftline.core.values import has_value

# What a column takes, by the dimension of the value
Bases = Mapping["int | None", frozenset[Base]]
# Dimensions of values; None: that of objects without any value inside, which are as deep as a column has it.
Dims = AbstractSet["int | None"]
Numbers = Sequence[int] | NDArray[Any]  # which leaves


class Records(Protocol):
    """A number of records, ``count``; ``nulls`` flags the entries that are none."""

    @property
    def count(self) -> int:
        """The number of records."""
        ...

    @property
    def nulls(self) -> pa.Array | None:
        """Flags of the entries that are no records; None if all are."""
        ...

    def values(self, route: FieldRoute) -> Values | None:
        """Return the values of one field, one in each record; None if no record has the field."""


class Maps(NamedTuple):
    """Leaves that are maps: their ``offsets`` in ``keys`` and ``values``, and the numbers of the leaves."""

    offsets: pa.Array
    keys: pa.Array
    values: Values
    numbers: Numbers


class NumberText(NamedTuple):
    """The exact JSON text of value ``number``, or of its element at ``places``.

    Attributes:
        type: of a typed value.
    """

    number: int
    places: tuple[int, ...]
    text: str
    type: Type | None = None


class Values(Protocol):
    """The values of one field. A leaf is one scalar or record with its lists removed; leaves are numbered."""

    def primitives(self, target: Primitive, column_route: ColumnRoute) -> pa.Array:
        """Return each leaf as type ``target``; null if the column does not take it, or not exactly."""

    def whole(self, type_: Primitive) -> tuple[pa.Array, NDArray[np.bool_]]:
        """Return the values as VARIANT or JSON with their lists, null if not exact, and flags of the leaves
        held.
        """

    def records(self, column_route: ColumnRoute) -> tuple[Records, Numbers]:
        """Return the leaves that are records and that the column takes, and their numbers.

        Or return all leaves, with nulls for the others.
        """

    def maps(self, route: FieldRoute, key: Type, dims: Dims) -> Maps | None:
        """Return the leaves that are maps of these keys and dimensions; None if there can be none.

        Args:
            route: the route of their values.
        """

    def scattered(self, leaves: pa.Array, numbers: Numbers) -> pa.Array:
        """Put leaves of these numbers at their places among all; null for the others."""

    def placed(self, leaves: pa.Array, type_: pa.DataType) -> pa.Array:
        """Return the values with these leaves, in lists as deep as the column's type."""

    def missing(self) -> pa.Array:
        """Flag the values that are null or absent."""

    def places(self) -> Sequence[tuple[int, tuple[int, ...]]]:
        """Return, for each leaf, the index of the value around it, and its places in that value's lists."""

    def texts(self, stored: NDArray[np.bool_] | None, field_settings: FieldSettings) -> Iterable[NumberText]:
        """Return the texts of values and leaves that no column holds, without what the ``field_settings``
        excludes.

        A value, or a list inside it, of which nothing is stored comes whole, of others only the lost leaves.
        ``stored``: flags the leaves that some column holds; None: no column holds any.
        """

    def are_all_in(self, leaves: pa.Array) -> bool:
        """True if a column's leaves hold all values, as far as the number of nulls shows.

        They must hold no others.
        """

    def lost(self, stored: NDArray[np.bool_]) -> object | None:
        """Return a leaf of the field that no column holds, if there is one.

        Args:
            stored: flags the leaves that some column holds.
        """


def bases_of(column_route: ColumnRoute) -> Bases:
    """Return the types that a column takes, by the dimension of the value."""
    out: dict[int | None, frozenset[Base]] = {}
    for facet in column_route.takes:
        out[facet.dim] = out.get(facet.dim, frozenset()) | {facet.base}
    return out


def primitives_of(route: FieldRoute) -> frozenset[Primitive]:
    """Return the types of a field's columns inside their lists, except records and maps."""
    bases = (c.facet.base for c in route.columns)
    return frozenset(UUID if WIDER.get(b.name) == UUID else b for b in bases if isinstance(b, Primitive))


def scattered(count: int, parts: Sequence[tuple[Numbers, pa.Array]], type_: pa.DataType) -> pa.Array:
    """Assemble ``count`` leaves from parts, each with the numbers of its leaves; null elsewhere."""
    if not any(len(leaves) for _, leaves in parts):
        return pa.nulls(count, type_)
    if len(parts) == 1 and len(parts[0][0]) == count:
        return parts[0][1]
    # One `take` over all parts puts leaves and nulls in place, whatever the type.
    index = np.full(count, -1, np.int64)
    start = 0
    for numbers, leaves in parts:
        index[np.asarray(numbers, np.int64)] = np.arange(start, start + len(leaves))
        start += len(leaves)
    joined = pa.concat_arrays([leaves for _, leaves in parts])
    return joined.take(pa.array(index, pa.int64(), mask=index < 0))


def overlaid(array: pa.Array, numbers: Numbers, values: pa.Array) -> pa.Array:
    """Replace the entries of these numbers by ``values``."""
    index = np.arange(len(array), dtype=np.int64)
    index[np.asarray(numbers, np.int64)] = np.arange(len(array), len(array) + len(values))
    return pa.concat_arrays([array, values]).take(pa.array(index))


def first_of(values: pa.Array, fallback: pa.Array) -> pa.Array:
    """Replace null values by those of the fallback."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    places = np.arange(len(values))
    return pa.concat_arrays([values, fallback]).take(pa.array(np.where(valid, places, places + len(values))))


def in_places(count: int, leaves: pa.Array, numbers: Numbers) -> pa.Array:
    """Put leaves at their places among all; records of a union come type by type, so not in order."""
    places = np.asarray(numbers, np.int64)
    if (np.diff(places) < 0).any():
        order = np.argsort(places)
        places, leaves = places[order], leaves.take(pa.array(order))
    return scattered(count, [(places, leaves)], leaves.type)


def dimension(type_: pa.DataType) -> int:
    """Return the number of lists around the type's leaves."""
    dim = 0
    while pa.types.is_list(type_):
        dim, type_ = dim + 1, type_.value_type
    return dim


def variants_of(values: Iterable[object]) -> pa.Array:
    """Encode each value as a VARIANT; null if it is None, or not exact as one."""
    # Only tables of Spark's have such columns, and nothing else of the conversion knows pyspark.
    from driftline.convert.variants import variants

    return variants(values)


# A value, with a leaf's number in place of each leaf
Tree: TypeAlias = "int | list[Any] | None"
_Depths: TypeAlias = "dict[int, int | None]"  # of lists, by their identity

# The elements that are no values by themselves
_NOT_PLAIN = frozenset((list, dict, type(None)))


@dataclass(slots=True)
class Shredded:
    """The values of one field, taken apart into numbered leaves: scalars or records without their lists.

    Attributes:
        dims: the dimension of each value; None if no leaf has a value.
        leaf_dims: the dimension of the value around each leaf.
        idle: the objects without a value at any depth.
        hollow: the idle objects that are ``{}``.
        flat: no value is a list, so each leaf is a value.
        depths: a cache, by the lists of the trees.
    """

    trees: list[Tree] = field(default_factory=list)
    dims: list[int | None] = field(default_factory=list)
    leaves: list[object] = field(default_factory=list)
    leaf_dims: list[int | None] = field(default_factory=list)
    hollow: set[int] = field(default_factory=set)
    idle: set[int] = field(default_factory=set)
    flat: bool = False
    depths: _Depths = field(default_factory=dict)
    idle_depths: _Depths = field(default_factory=dict)

    def add(self, value: object) -> None:
        """Append a value: its tree, its dimension, and its leaves, numbered after the existing ones."""
        first = len(self.leaves)
        # Most lists hold scalars alone, and take no walk.
        if type(value) is list and value and _NOT_PLAIN.isdisjoint(map(type, value)):
            self.leaves += value
            tree: Tree = [*range(first, len(self.leaves))]
            self.depths[id(tree)] = 1
        else:
            tree = self._tree(value)
        dim = self.dimension(tree)
        self.trees.append(tree)
        self.dims.append(dim)
        self.leaf_dims += [dim] * (len(self.leaves) - first)

    def _tree(self, value: object) -> Tree:
        if value is None:
            return None
        if type(value) is list:
            return [self._tree(item) for item in value]
        self.leaves.append(value)
        number = len(self.leaves) - 1
        if type(value) is dict and not has_value(value):
            self.idle.add(number)
            if not value:
                self.hollow.add(number)
        return number

    @property
    def owners(self) -> list[int]:
        """Return, for each leaf, the index of the value around it."""
        return [place for place, tree in enumerate(self.trees) for _ in _leaves_of(tree)]

    def dimension(self, tree: Tree) -> int | None:
        """Return the number of lists around the deepest leaf that has a value."""
        return _depth(tree, self.idle, self.depths)

    def idle_dimension(self, tree: Tree) -> int | None:
        """Return the number of lists around the deepest leaf other than ``{}``."""
        return _depth(tree, self.hollow, self.idle_depths)


def _depth(tree: Tree, without: AbstractSet[int], cache: _Depths) -> int | None:
    """Return the depth of a tree.

    Args:
        cache: depths by list, which each list around a list needs again.
    """
    if type(tree) is not list:
        return None if tree is None or tree in without else 0
    # By identity: the trees live as long as the cache, and lists have no hash.
    if id(tree) not in cache:
        depths = [depth for item in tree if (depth := _depth(item, without, cache)) is not None]
        cache[id(tree)] = max(depths) + 1 if depths else None
    return cache[id(tree)]


def _leaves_of(tree: Tree) -> Iterator[int]:
    if isinstance(tree, list):
        for item in tree:
            yield from _leaves_of(item)
    elif tree is not None:
        yield tree


def shred(values: Sequence[object]) -> Shredded:
    """Take the values of a field apart.

    >>> shredded = shred([7, [1, [None, 2]], [[]]])
    >>> shredded.trees, shredded.dims
    ([0, [1, [None, 2]], [[]]], [0, 2, None])
    """
    out = Shredded()
    # Most fields have no list: then leaves are the values, and nothing is nested.
    if list not in set(map(type, values)):
        out.flat = True
        out.leaves = [value for value in values if value is not None]
        out.hollow = {n for n, leaf in enumerate(out.leaves) if type(leaf) is dict and not leaf}
        out.idle = out.hollow
        out.leaf_dims = [0] * len(out.leaves)
        numbers = count()
        out.trees = [None if value is None else next(numbers) for value in values]
        return out
    for value in values:
        out.add(value)
    return out


def place(shredded: Shredded, fits: Sequence[bool], dim: int) -> list[Tree]:
    """Place each value at a column's dimension ``dim``.

    Args:
        fits: true for leaves that the column holds.

    >>> shredded = shred([7, [1, [2]], ["c", [[]]], [["x"], ["y"]]])
    >>> place(shredded, [type(leaf) is int for leaf in shredded.leaves], 2)
    [[[0]], [[1], [2]], None, None]
    """
    if shredded.flat:
        trees: list[Any] = [
            tree
            if isinstance(tree, int) and fits[tree] and (not dim or tree not in shredded.hollow)
            else None
            for tree in shredded.trees
        ]
        return [None if tree is None else _wrapped(tree, dim) for tree in trees] if dim else trees
    placing = _Placing(shredded, fits)
    return [
        placing.value(tree, value_dim, dim)
        for tree, value_dim in zip(shredded.trees, shredded.dims, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Placing:
    shredded: Shredded
    fits: Sequence[bool]

    def value(self, tree: Tree, value_dim: int | None, dim: int) -> Tree:
        """Place a value of dimension ``value_dim`` at dimension ``dim``."""
        if value_dim is None:
            return self.without_values(tree, dim)
        if value_dim > dim:
            return None
        placed = self.placed(tree, value_dim)
        return None if placed is None else _wrapped(placed, dim - value_dim)

    def placed(self, tree: Tree, dim: int) -> Tree:
        """Place a value of dimension ``dim``."""
        if not isinstance(tree, list):
            return tree if tree is not None and self.fits[tree] else None
        items = [self.element(item, dim - 1) for item in tree]
        # A list of nulls would read as one that came so; another column has the value.
        return items if any(item is not None for item in items) else None

    def element(self, tree: Tree, dim: int) -> Tree:
        """Place an element of a list with values; an object without any is wrapped in its place."""
        if isinstance(tree, int):
            if tree in self.shredded.idle:
                return _wrapped(self.empty(tree, 0), dim)
            return _wrapped(tree, dim) if self.fits[tree] else None
        return self.value(tree, self.shredded.dimension(tree), dim)

    def without_values(self, tree: Tree, dim: int) -> Tree:
        """Place a value that holds none: objects with keys like others, if the column is deep enough."""
        value_dim = self.shredded.idle_dimension(tree)
        placed = None if value_dim is None or value_dim > dim else self.placed(tree, value_dim)
        return (
            self.empty(tree, dim)
            if value_dim is None or placed is None
            else _wrapped(placed, dim - value_dim)
        )

    def empty(self, tree: Tree, dim: int) -> Tree:
        """Place a value that holds none, unchanged if there are enough lists around it."""
        if isinstance(tree, list):
            return [self.empty(item, dim - 1) for item in tree] if dim else None
        return tree if tree is not None and not dim and self.fits[tree] else None


def _wrapped(tree: Tree, times: int) -> Tree:
    for _ in range(times):
        tree = [tree]
    return tree


def assemble(trees: Sequence[Tree], leaves: pa.Array, type_: pa.DataType) -> pa.Array:
    """Assemble placed values into an array of ``type_``, with the leaves of the trees' numbers."""
    # Arrow builds the lists of numbers from Python; the leaves, of any type, are then taken by number.
    numbered: pa.DataType = pa.int64()
    element_type = type_
    while pa.types.is_list(element_type):
        numbered, element_type = pa.list_(numbered), element_type.value_type
    return _with_leaves(pa.array(trees, numbered), leaves, type_)


def _with_leaves(numbers: pa.Array, leaves: pa.Array, type_: pa.DataType) -> pa.Array:
    if not pa.types.is_list(numbers.type):
        return leaves.take(numbers)
    elements = _with_leaves(numbers.values, leaves, type_.value_type)
    # The buffers of the numbers' lists serve again, so lists, nulls and offsets need no second pass.
    return pa.Array.from_buffers(
        type_, len(numbers), numbers.buffers()[:2], numbers.null_count, numbers.offset, [elements]
    )


def wrapped(leaves: pa.Array, type_: pa.DataType) -> pa.Array:
    """Wrap each leaf in lists as deep as ``type_``; null stays null.

    >>> wrapped(pa.array([7, None]), pa.list_(pa.list_(pa.int64()))).to_pylist()
    [[[7]], None]
    """
    if not pa.types.is_list(type_):
        return leaves
    nulls = leaves.is_null()
    offsets = np.zeros(len(leaves) + 1, np.int32)
    np.cumsum(~nulls.to_numpy(zero_copy_only=False), out=offsets[1:])
    elements = wrapped(leaves.drop_null(), type_.value_type)
    mask = nulls if leaves.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), elements, type=type_, mask=mask)


def relist(lists: pa.Array, leaves: pa.Array, type_: pa.DataType) -> pa.Array:
    """Replace the leaves of lists; ``leaves`` in the order of `flattened`."""
    if not pa.types.is_list(type_):
        return leaves
    elements = relist(lists.flatten(), leaves, type_.value_type)
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), out=offsets[1:])
    nulls = lists.is_null() if lists.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, type=type_, mask=nulls)


def flattened(lists: pa.Array) -> pa.Array:
    """Return the leaves of lists of uniform depth."""
    while pa.types.is_list(lists.type):
        lists = lists.flatten()
    return lists


def numbered(lists: pa.Array, valid: NDArray[np.bool_], first: int = 0) -> Shredded:
    """Take lists of uniform depth apart; a leaf counts only if it is ``valid``.

    Args:
        first: the number of the first leaf.
    """
    total = len(valid)
    numbers = pa.array(np.arange(first, first + total), pa.int64(), mask=~valid)
    type_: pa.DataType = pa.int64()
    depth, outer = 0, lists.type
    while pa.types.is_list(outer):
        type_, outer, depth = pa.list_(type_), outer.value_type, depth + 1
    out = Shredded(relist(lists, numbers, type_).to_pylist(), leaves=[None] * total)
    out.dims = [out.dimension(tree) for tree in out.trees]
    out.leaf_dims = [depth] * total
    return out


def joined(parts: Sequence[Shredded]) -> Shredded:
    """Join values from parts, each of which has some leaves in lists of the same positions.

    >>> long, text = Shredded([[0, None]]), Shredded([[None, [1]]])
    >>> shredded = joined([long, text])
    >>> shredded.trees, shredded.dims
    ([[0, [1]]], [2])
    """
    out = Shredded([reduce(merged, same) for same in zip(*(part.trees for part in parts), strict=True)])
    out.dims = [out.dimension(tree) for tree in out.trees]
    return out


def merged(value: Any, later: Any) -> Any:
    """Merge two parts of a value, each leaf of which is in one of them."""
    if value is None or later is None:
        return later if value is None else value
    if isinstance(value, list) and isinstance(later, list):
        return [merged(a, b) for a, b in zip(value, later, strict=True)]
    if isinstance(value, dict) and isinstance(later, dict):
        return {key: merged(item, later.get(key)) for key, item in value.items()}
    return value


def same_lists(left: pa.Array, right: pa.Array) -> bool:
    """True if two arrays have the same lists, whatever is in them."""
    while pa.types.is_list(left.type) and pa.types.is_list(right.type):
        if not left.value_lengths().equals(right.value_lengths()):
            return False
        left, right = left.flatten(), right.flatten()
    return not (pa.types.is_list(left.type) or pa.types.is_list(right.type))


def by_list(values: list[Any], lists: pa.Array) -> list[Any]:
    """Cut the values of all lists into those of each one; None for a null list."""
    out: list[Any] = []
    start = 0
    for length in lists.value_lengths().to_pylist():
        out.append(None if length is None else values[start : start + length])
        start += length or 0
    return out
