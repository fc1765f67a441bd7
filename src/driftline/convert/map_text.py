"""JSON records with maps, brought to Arrow: its parser has no maps, so that
they are written anew as lists of entries.

A map's values stay text until the parser reads them: none becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from msgspec import UNSET, Raw, defstruct, json

from driftline.convert.types import arrow_field, arrow_type
from driftline.convert.usual import has_map
from driftline.core.schema.types import STRING, Field, List, Map, Struct, Type, wrap

_Entry = defstruct("_Entry", [("key", str), ("value", Any)], gc=False)
_Change = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class MapText:
    """Fields of records that hold maps. ``lists``: their types with
    lists of entries where these have maps.
    """

    struct: Struct
    lists: Struct
    decode: Callable[[bytes], Any]
    change: _Change

    def rewritten(self, lines: Sequence[bytes]) -> bytes:
        """The lines with these fields only, each map as a list of entries. Raises msgspec's errors."""
        return _encode([self.change(record) for record in map(self.decode, lines)])

    def arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The fields with their maps, from a batch of `lists`."""
        return [_with_maps(array, f.type) for array, f in zip(batch.columns, self.struct.fields, strict=True)]


@lru_cache(64)
def map_text(struct: Struct) -> MapText:
    """How records with the fields of ``struct``, which all hold maps, are written anew."""
    lists = _with_lists(struct)
    assert isinstance(lists, Struct)
    return MapText(struct, lists, json.Decoder(_decoded(struct)).decode, _changed(struct) or _same)


_encode = json.Encoder().encode_lines


def _same(value: Any) -> Any:
    return value


def _decoded(type_: Type) -> Any:
    """What msgspec decodes a value as. Raw may be null, and must stand in no union."""
    return _object(type_) | None if has_map(type_) else Raw


def _object(type_: Type) -> Any:
    match type_:
        case Struct(fields):
            names = {f"f{i}": f.name for i, f in enumerate(fields)}
            typed = [(f"f{i}", _decoded(f.type), UNSET) for i, f in enumerate(fields)]
            return defstruct("_Record", typed, rename=names, kw_only=True, gc=False)
        case List(element):
            return list[_decoded(element)]  # type: ignore[misc]
        case Map(value=value):
            return dict[str, _decoded(value)]  # type: ignore[misc]
    raise AssertionError(type_)


def _changed(type_: Type) -> _Change | None:
    """What makes lists of entries of the maps in a value; None where there is none."""
    if not has_map(type_):
        return None
    match type_:
        case Struct(fields):
            inner = [(f"f{i}", change) for i, f in enumerate(fields) if (change := _changed(f.type))]
            return lambda record: _in_record(record, inner)
        case List(element):
            of_element = _changed(element) or _same
            return lambda items: [None if item is None else of_element(item) for item in items]
        case Map(value=value):
            of_value = _changed(value)
            if of_value is None:
                return lambda found: list(map(_Entry, found, found.values()))
            return lambda found: [_Entry(k, None if v is None else of_value(v)) for k, v in found.items()]
    raise AssertionError(type_)


def _in_record(record: Any, inner: Sequence[tuple[str, _Change]]) -> Any:
    for name, change in inner:
        value = getattr(record, name)
        if value is not None and value is not UNSET:
            setattr(record, name, change(value))
    return record


def _with_lists(type_: Type) -> Type:
    match type_:
        case Struct(fields):
            return Struct(tuple(Field(f.name, _with_lists(f.type)) for f in fields))
        case List(element):
            return List(_with_lists(element))
        case Map(value=value):
            return wrap(Struct((Field("key", STRING), Field("value", _with_lists(value)))), 1)
        case _:
            return type_


def _with_maps(array: pa.Array, type_: Type) -> pa.Array:
    """An array of `_with_lists` of the type, as the type; nothing is copied."""
    if not has_map(type_):
        return array
    if isinstance(type_, Struct):
        arrays = [_with_maps(array.field(i), f.type) for i, f in enumerate(type_.fields)]
        fields = [arrow_field(f) for f in type_.fields]
        return pa.StructArray.from_arrays(
            arrays, fields=fields, mask=array.is_null() if array.null_count else None
        )
    target = arrow_type(type_)
    if isinstance(type_, List):
        below = _with_maps(array.values, type_.element)
    else:
        assert isinstance(type_, Map)
        entries = [array.values.field(0), _with_maps(array.values.field(1), type_.value)]
        below = pa.StructArray.from_arrays(entries, fields=[target.key_field, target.item_field])
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), buffers, array.null_count, array.offset, [below])
