"""JSON objects as maps, structs or both, by a field's columns and the objects' own keys (section 9).

A struct whose keys turn out to be data is closed: its columns are still filled, none is added at any depth,
and a map beside it takes all keys. If many keys are data beside words of another kind, the words are a
struct, and the map beside it takes the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from driftline.core.planning.contract import Contract
from driftline.core.planning.maps import (
    MapVerdict,
    ObjectEntry,
    as_map,
    entries_of,
    entries_of_struct,
    is_word,
    kinds_in,
    other_words,
    values_of,
)
from driftline.core.planning.policies import preserve
from driftline.core.planning.policies.policy import Policy
from driftline.core.planning.routes import ColumnRoute, FieldRoute, RecordRoute, facet_of
from driftline.core.planning.shape import RECORD, Facet, FieldShape, MapOf, RecordShape, Seen
from driftline.core.schema.naming import by_key, data_key, is_metadata
from driftline.core.schema.types import STRING, VARIANT, Map, Primitive, Struct, Type, peel

MAP = MapOf(STRING)


class Closed(Enum):
    """The keys of a field's structs that get no more columns, because a map beside them has these keys."""

    none = "none"
    data = "all but words"
    all = "all"

    def holds(self, key: str) -> bool:
        """True if the map has this key."""
        return self is Closed.all or (self is Closed.data and not is_word(key))


@dataclass(frozen=True, slots=True)
class Objects:
    """A field's ``shape`` with its objects as maps or structs. ``verdict``: the reason for a new map;
    ``closed``: keys that get no more columns in the field's structs; ``apart``: the map has no words.
    """

    shape: FieldShape
    verdict: MapVerdict | None = None
    closed: Closed = Closed.none

    @property
    def apart(self) -> bool:
        return self.closed is Closed.data


def objects_of(
    shape: FieldShape, types: Sequence[Type], contract: Contract, policy: Policy, mark: str
) -> Objects:
    """Decide what the objects of a field with columns of these ``types`` are. ``mark``: the prefix
    of docs.
    """
    records = {f: s for f, s in shape.facets.items() if _is_object(f, s)}
    structs = _structs(types)
    # Typed values that waited beside objects are declared as maps, which a column of theirs
    # will be; a VARIANT column takes both as they are.
    typed_map = any(f.base == MAP and seen.typed for f, seen in shape.facets.items())
    declared = records and typed_map and VARIANT not in types
    has_map = declared or any(facet_of(type_).base == MAP for type_ in types)
    folded = [seen for facet, seen in shape.facets.items() if facet.base == MAP and not seen.typed]
    if has_map:
        verdict = None
    elif folded:
        verdict = _of_folded(folded, records.values())
    else:
        verdict = _verdict(records.values(), structs, contract, policy, mark)
    if not has_map and verdict is None:
        return Objects(shape)
    apart = words_apart(types, contract, mark) if verdict is None else verdict.apart
    closed = Closed.data if apart else Closed.all if structs else Closed.none
    return Objects(_dealt(shape, types, closed, mark, contract.epoch_unit or "ms"), verdict, closed)


def _dealt(shape: FieldShape, types: Sequence[Type], closed: Closed, mark: str, unit: str) -> FieldShape:
    """Divide each object among the map and the structs in the columns."""
    records = {f: s for f, s in shape.facets.items() if _is_object(f, s)}
    apart, structs = closed is Closed.data, _structs(types)
    out = replace(shape, facets={f: s for f, s in shape.facets.items() if f not in records})
    deepest = max((c.dim for type_ in types if (c := facet_of(type_)).base == RECORD), default=-1)
    for facet, seen in records.items():
        in_map, words = _split(seen, apart, closed)
        if in_map.fields or not apart:
            out.add(Facet(facet.dim, MAP), replace(seen, record=None, value=values_of(in_map, seen.place)))
        if apart or deepest >= facet.dim:
            record = _within(in_map, _together(structs), mark, unit)
            out.add(facet, replace(seen, record=RecordShape(record.fields | words)))
    return out


def _split(seen: Seen, apart: bool, closed: Closed) -> tuple[RecordShape, dict[str, FieldShape]]:
    """Split an object into the part in the map and its other fields."""
    assert seen.record is not None
    in_map = seen.record.having(lambda key: not apart or closed.holds(key))
    return in_map, {k: shape for k, shape in seen.record.fields.items() if k not in in_map.fields}


def folded(shape: RecordShape) -> RecordShape:
    """Fold each object of a shape into its map, apart from its words, where a part of the batch has dropped
    its keys.
    """
    return RecordShape({key: _folded(field) for key, field in shape.fields.items()})


def _folded(field: FieldShape) -> FieldShape:
    if all(seen.record is None and seen.value is None for seen in field.facets.values()):
        return field
    out = replace(field, facets={})
    for facet, seen in field.facets.items():
        record = None if seen.record is None else folded(seen.record)
        out.add(
            facet, replace(seen, record=record, value=None if seen.value is None else _folded(seen.value))
        )
    maps = {f: s for f, s in out.facets.items() if f.base == MAP and not s.typed}
    records = {f: s for f, s in out.facets.items() if maps and _is_object(f, s)}
    apart = _of_folded(maps.values(), records.values()).apart
    for facet, seen in records.items():
        assert seen.record is not None
        del out.facets[facet]
        in_map = seen.record.having(lambda key: not (apart and is_word(key)))
        if in_map.fields:
            out.add(Facet(facet.dim, MAP), replace(seen, record=None, value=values_of(in_map, seen.place)))
        if apart:
            out.add(facet, replace(seen, record=seen.record.having(is_word)))
    return out


def words_apart(types: Sequence[Type], contract: Contract, mark: str) -> bool:
    """True if the field has its words in a struct and its other keys in a map beside it.

    The words' values then differ in kind from those that made the map. Otherwise the struct is one that
    turned out to be a map, and the map has all keys.
    """
    structs = _structs(types)
    maps = [inner for type_ in types if isinstance(inner := peel(type_)[1], Map)]
    if not structs or not maps or contract.hint is not None:
        return False
    return other_words(_entries_of_columns(structs, mark), kinds_in(maps[0].value))


def closed_contract(contract: Contract, closed: Closed, keys: Iterable[str]) -> Contract:
    """Keep objects structs below the ``keys`` that get no more columns."""
    below = {key: contract.of(key).without_maps() for key in keys if closed.holds(key)}
    return replace(contract, fields={**contract.fields, **below})


def closed_route(route: RecordRoute, closed: Closed = Closed.all) -> RecordRoute:
    """The route of a struct that is closed for some keys: what has no column there is in the map."""
    return RecordRoute(tuple(_closed_field(f) if closed.holds(f.key) else f for f in route.fields))


def _closed_field(field: FieldRoute) -> FieldRoute:
    columns = tuple(_closed_column(column) for column in field.columns)
    return replace(field, columns=columns, elsewhere=True)


def _closed_column(column: ColumnRoute) -> ColumnRoute:
    return replace(
        column,
        record=None if column.record is None else closed_route(column.record),
        value=None if column.value is None else _closed_field(column.value),
    )


def _is_object(facet: Facet, seen: Seen) -> bool:
    return facet.base == RECORD and not seen.typed and seen.record is not None


def _verdict(
    records: Iterable[Seen], structs: Sequence[Struct], contract: Contract, policy: Policy, mark: str
) -> MapVerdict | None:
    """The reason the objects become a map by themselves, if they do."""
    decided = contract.maps != "auto" or contract.hint is not None or contract.declares_fields
    if decided or not policy.keeps_all:
        return None
    entries = entries_of(seen.record for seen in records if seen.record is not None)
    for key, entry in _entries_of_columns(structs, mark).items():
        entries[key] = entries.get(key, ObjectEntry()) | entry
    return as_map(entries)


def _of_folded(maps: Iterable[Seen], records: Iterable[Seen]) -> MapVerdict:
    """The reason objects are a map whose many keys were not kept. ``records``: the objects that were."""
    entries = entries_of(seen.record for seen in records if seen.record is not None)
    folded = entries_of(RecordShape({"": seen.value}) for seen in maps if seen.value is not None)
    kinds = folded.get("", ObjectEntry()).kinds
    return MapVerdict("its many keys are data", apart=len(kinds) == 1 and other_words(entries, kinds))


def _entries_of_columns(structs: Iterable[Struct], mark: str) -> dict[str, ObjectEntry]:
    entries: dict[str, ObjectEntry] = {}
    for struct in structs:
        columns = Struct(tuple(f for f in struct.fields if not is_metadata(f.doc)))
        for key, entry in entries_of_struct(
            columns, {f.name: data_key(f, mark) for f in columns.fields}
        ).items():
            entries[key] = entries.get(key, ObjectEntry()) | entry
    return entries


def _structs(types: Iterable[Type]) -> list[Struct]:
    """The structs among the types, lists removed."""
    return [inner for type_ in types if isinstance(inner := peel(type_)[1], Struct)]


def _together(structs: Sequence[Struct]) -> Struct:
    return Struct(tuple(f for struct in structs for f in struct.fields))


def _within(record: RecordShape, struct: Struct, mark: str, unit: str) -> RecordShape:
    """The part of a record that the columns of a struct take unchanged."""
    columns = by_key(struct.fields, mark)
    return RecordShape(
        {
            key: _fitting(shape, [c.type for c in columns[key]], mark, unit)
            for key, shape in record.fields.items()
            if key in columns
        }
    )


def _fitting(shape: FieldShape, types: Sequence[Type], mark: str, unit: str) -> FieldShape:
    """The part of a field that its columns take unchanged."""
    facets = [facet_of(type_) for type_ in types]
    out = replace(shape, facets={})
    for facet, seen in shape.facets.items():
        if isinstance(facet.base, Primitive):
            if any(preserve.accepts(column, facet, seen, unit) for column in facets):
                out.add(facet, seen)
        elif seen.record is not None:
            record = _fitting_record(facet.dim, seen.record, types, mark, unit)
            if record is not None:
                out.add(facet, replace(seen, record=record))
    return out


def _fitting_record(
    dim: int, record: RecordShape, types: Sequence[Type], mark: str, unit: str
) -> RecordShape | None:
    """The part of the records inside ``dim`` lists that the structs among the types, or else the
    maps, take.
    """
    facets = [facet_of(type_) for type_ in types]
    if any(c.base == RECORD and c.dim >= dim for c in facets):
        return _within(record, _together(_structs(types)), mark, unit)
    if any(c.base == MAP and c.dim >= dim for c in facets):
        values = [inner.value for type_ in types if isinstance(inner := peel(type_)[1], Map)]
        return RecordShape({key: _fitting(v, values, mark, unit) for key, v in record.fields.items()})
    return None
