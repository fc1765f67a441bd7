"""Converts decoded schema nodes to table columns; a node of several types gets a column for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from driftline.convert.declared import VOID
from driftline.convert.types import arrow_type
from driftline.core.schema.types import STRING, Field, List, Map, Primitive, Struct

Values = Sequence[Any]


class Node(Protocol):
    """A place of the schema."""

    def fields(self, key: str) -> list[Field]:
        """The types of its values, as fields of this name."""
        ...

    def arrays(self, values: Values) -> list[pa.Array]:
        """The values in an array for each of the types."""
        ...

    def takes(self, value: Any) -> bool:
        """True if a union's value belongs to this branch."""
        ...


@dataclass(frozen=True, slots=True)
class LeafNode:
    """Plain values.

    Attributes:
        kinds: their Python types.
        turn: what Arrow takes of one.
        doc: a field's.
    """

    base: Primitive
    kinds: tuple[type, ...]
    turn: Callable[[Any], Any] | None = None
    doc: str | None = None

    def fields(self, key: str) -> list[Field]:
        """One field, with the documentation of the schema."""
        return [Field(key, self.base, doc=self.doc)]

    def arrays(self, values: Values) -> list[pa.Array]:
        """One array."""
        if self.base == VOID:
            return [pa.nulls(len(values))]
        if self.turn is not None:
            values = [None if value is None else self.turn(value) for value in values]
        return [text_array(values) if self.base == STRING else pa.array(values, arrow_type(self.base))]

    def takes(self, value: Any) -> bool:
        """True if the value has one of the Python types; a subclass does not count."""
        return type(value) in self.kinds


def text_array(texts: Values) -> pa.Array:
    """Texts, of which some may have bytes that are not UTF-8, as surrogates."""
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        # The bytes stay, in an array of texts that is invalid: `checked` finds their rows and rejects them.
        raw = [None if text is None else text.encode(errors="surrogateescape") for text in texts]
        return pa.array(raw, pa.binary()).view(pa.string())


TEXT = LeafNode(STRING, (str,))


@dataclass(frozen=True, slots=True)
class RecordNode:
    """Records of this ``name``, alone or in a union.

    Attributes:
        nodes: the node of each key.
        aliases: earlier names of fields, by key.
    """

    name: str
    nodes: tuple[tuple[str, Node], ...]
    aliases: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def struct(self) -> Struct:
        """The types of its fields, by key."""
        return Struct(tuple(field for key, node in self.nodes for field in node.fields(key)))

    def fields(self, key: str) -> list[Field]:
        """One field with a struct."""
        return [Field(key, self.struct)]

    def arrays(self, values: Values) -> list[pa.Array]:
        """One array of structs. The record of a union comes as a pair of its name and its fields."""
        records = [value[1] if type(value) is tuple else value for value in values]
        mask = np.array([record is None for record in records], np.bool_)
        arrays = self.columns([{} if record is None else record for record in records])
        named = [pa.field(f.name, a.type) for f, a in zip(self.struct.fields, arrays, strict=True)]
        # Without an array, `from_arrays` would not know how many structs there are.
        if not arrays:
            return [pa.array([None if record is None else {} for record in records], pa.struct([]))]
        return [pa.StructArray.from_arrays(arrays, fields=named, mask=pa.array(mask))]

    def columns(self, records: Sequence[Mapping[str, Any]]) -> list[pa.Array]:
        """The fields of records, in an array for each field of the struct."""
        return [
            array
            for key, node in self.nodes
            for array in node.arrays([record.get(key) for record in records])
        ]

    def takes(self, value: Any) -> bool:
        """True if the value is a pair with this record's name."""
        return type(value) is tuple and value[0] == self.name


@dataclass(frozen=True, slots=True)
class ListNode:
    """Lists of the ``items``."""

    items: Node

    def fields(self, key: str) -> list[Field]:
        """A list of each type of the items."""
        return [replace(field, type=List(field.type)) for field in self.items.fields(key)]

    def arrays(self, values: Values) -> list[pa.Array]:
        """An array of lists for each type of the items; an item is null in all but one."""
        offsets, mask = _offsets(values)
        items = self.items.arrays([item for value in values if value is not None for item in value])
        return [pa.ListArray.from_arrays(offsets, array, mask=mask) for array in items]

    def takes(self, value: Any) -> bool:
        """True if the value is a list."""
        return type(value) is list


@dataclass(frozen=True, slots=True)
class MapNode:
    """Maps of the ``keys``, text where nobody says otherwise, to the ``items``."""

    items: Node
    keys: LeafNode = TEXT

    def fields(self, key: str) -> list[Field]:
        """A map to each type of the items."""
        return [replace(field, type=Map(self.keys.base, field.type)) for field in self.items.fields(key)]

    def arrays(self, values: Values) -> list[pa.Array]:
        """An array of maps for each type of the items; all have the same keys."""
        offsets, mask = _offsets(values)
        (keys,) = self.keys.arrays([key for value in values if value is not None for key in value])
        items = self.items.arrays([v for value in values if value is not None for v in value.values()])
        return [pa.MapArray.from_arrays(offsets, keys, array, mask=mask) for array in items]

    def takes(self, value: Any) -> bool:
        """True if the value is a dict."""
        return type(value) is dict


@dataclass(frozen=True, slots=True)
class UnionNode:
    """Values of one of the ``branches``."""

    branches: tuple[Node, ...]

    def fields(self, key: str) -> list[Field]:
        """The types of all branches."""
        return [field for branch in self.branches for field in branch.fields(key)]

    def arrays(self, values: Values) -> list[pa.Array]:
        """The arrays of all branches; a value is null outside the first branch that takes it.

        >>> from driftline.core.schema.types import LONG, STRING
        >>> node = UnionNode((LeafNode(LONG, (int,)), LeafNode(STRING, (str,))))
        >>> [array.to_pylist() for array in node.arrays([1, "x", None])]
        [[1, None, None], [None, 'x', None]]
        """
        taken = [next((i for i, b in enumerate(self.branches) if b.takes(value)), None) for value in values]
        return [
            array
            for i, branch in enumerate(self.branches)
            for array in branch.arrays(
                [value if i == place else None for value, place in zip(values, taken, strict=True)]
            )
        ]

    def takes(self, value: Any) -> bool:
        """True if a branch takes the value, as in a union inside a union."""
        return any(branch.takes(value) for branch in self.branches)


def _offsets(values: Values) -> tuple[pa.Array, pa.Array]:
    """The offsets of lists or maps among all items, and flags of those that are null."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    return pa.array(offsets), pa.array([value is None for value in values], pa.bool_())
