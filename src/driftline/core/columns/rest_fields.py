"""The fields that contain paths of the rest: one for all elements of a list, one for all keys of a map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from driftline.core.columns.siblings import families
from driftline.core.schema.types import Map, Path, Struct, Type, peel


class Fields:
    """The fields of a table's record, or inside one of its fields, by their keys in the data.

    ``types``: of the columns; ``mark``: the prefix of docs of evolved ones.

    >>> from driftline.core.schema.naming import MARK
    >>> from driftline.core.schema.types import LONG, STRING, Field
    >>> by_day = Field("by_day", Map(STRING, Struct((Field("n", LONG),))))
    >>> Fields([Struct((by_day,))], MARK).path(("by_day", "2024-01-01", "tags", 3))
    ('by_day', 'value', 'tags', 'element')
    """

    def __init__(self, types: Sequence[Type], mark: str) -> None:
        self._types, self._mark = [peel(type_)[1] for type_ in types], mark

    def path(self, location: Sequence[str | int]) -> Path:
        """The path of a field: elements of lists as ``element``, keys of the table's maps as ``value``."""
        keys_of_maps = self.keys_of_maps(location)
        steps = zip(location, keys_of_maps, strict=True)
        return tuple("element" if isinstance(s, int) else "value" if is_key else s for s, is_key in steps)

    def keys_of_maps(self, location: Iterable[str | int]) -> list[bool]:
        """For each step of a path, true if it is a key of one of the table's maps."""
        fields, out = self, []
        for step in location:
            out.append(isinstance(step, str) and fields._value is not None and step not in fields._named)
            if isinstance(step, str):
                fields = fields._named.get(step) or fields._value or _NONE
        return out

    @cached_property
    def _named(self) -> dict[str, Fields]:
        structs = [type_ for type_ in self._types if isinstance(type_, Struct)]
        fields = families(structs, self._mark)
        return {group.key: Fields([column.type for column in group.columns], self._mark) for group in fields}

    @cached_property
    def _value(self) -> Fields | None:
        values = [type_.value for type_ in self._types if isinstance(type_, Map)]
        return Fields(values, self._mark) if values else None


_NONE = Fields((), "")
