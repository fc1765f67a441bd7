"""A table's columns from its own side: by the key that each holds, with the lists around its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from driftline.core.planning.own_columns import rest_column
from driftline.core.schema.naming import MARK, data_key
from driftline.core.schema.types import Map, Primitive, Struct, Type, peel
from driftline.verify.source_values import is_nothing

# By column id.
Defaults: TypeAlias = "Mapping[int, Iterable[Any]]"


@dataclass(slots=True)
class TableColumn:
    """A column, a list's elements or a map's values: ``dim`` lists around a primitive, a record or a map.

    ``defaults``: what a record without a value may have got, now or earlier."""

    name: str
    dim: int
    type: Primitive | None = None
    record: TableStruct | None = None
    value: TableColumn | None = None
    defaults: tuple[Any, ...] = ()

    def has_empty_key(self, v: Any) -> bool:
        """True if a value under the empty key stands in one of its maps, where it is a key like any other."""
        if isinstance(v, list):
            return any(self.has_empty_key(x) for x in v)
        if not isinstance(v, dict):
            return False
        if self.record is not None:
            return any(column.has_empty_key(v.get(key)) for key, column in self.record.columns.values())
        if self.value is None:
            return False
        return not is_nothing(v.get("")) or any(self.value.has_empty_key(x) for x in v.values())

    @property
    def variant(self) -> bool:
        """True if the column is a VARIANT."""
        return self.type is not None and self.type.name == "variant"

    @classmethod
    def of(cls, name: str, type_: Type, prefix: str = MARK, defaults: Defaults | None = None) -> TableColumn:
        """The column of this type. ``prefix``: of marks; ``defaults``: of nested fields, by id."""
        dim, base = peel(type_)
        match base:
            case Struct():
                return cls(name, dim, record=TableStruct.of(base, prefix, defaults))
            case Map():
                return cls(name, dim, value=cls.of(name, base.value, prefix, defaults))
            case Primitive():
                return cls(name, dim, type=base)
        raise AssertionError(base)


@dataclass(slots=True)
class TableStruct:
    """A struct's columns by name, each with the exact key that it holds: its mark's, else its name.

    ``lists``: the names of those that hold lists, by key. ``rest``: the
    name of the column for what has no other.
    """

    columns: dict[str, tuple[str, TableColumn]]
    lists: dict[str, list[str]] = field(default_factory=dict)
    rest: str | None = None

    @classmethod
    def of(cls, struct: Struct, prefix: str = MARK, defaults: Defaults | None = None) -> TableStruct:
        """The columns of a struct. ``prefix``: of marks; ``defaults``: of all fields, by id."""
        rest_field = rest_column(struct)
        out = cls({}, rest=rest_field.name if rest_field is not None else None)
        for f in struct.fields:
            if f.name == out.rest:
                continue
            key = data_key(f, prefix)
            column = TableColumn.of(f.name, f.type, prefix, defaults)
            column.defaults = tuple((defaults or {}).get(f.id, ()))
            out.columns[f.name] = (key, column)
            if column.dim:
                out.lists.setdefault(key, []).append(f.name)
        return out
