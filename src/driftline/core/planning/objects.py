"""JSON objects as maps, as structs, or as both: what a field's columns and the objects' own keys say (section 9).

A struct whose keys turn out to be data is closed: its columns go on being filled, none is added to it at any depth, and a
map beside it takes all keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from driftline.core.planning.contract import Contract
from driftline.core.planning.maps import Entry, Verdict, as_map, entries_of, entries_of_struct, values_of
from driftline.core.planning.policies import preserve
from driftline.core.planning.routes import ColumnRoute, FieldRoute, RecordRoute, facet_of
from driftline.core.planning.shape import RECORD, Facet, FieldShape, MapOf, RecordShape, Seen
from driftline.core.schema.naming import is_metadata, marked_key
from driftline.core.schema.types import STRING, Field, Map, Primitive, Struct, Type, peel

MAP = MapOf(STRING)


@dataclass(frozen=True, slots=True)
class Objects:
    """A field's ``shape`` with its objects as what they are to be. ``verdict``: why they become a map, where the table has
    none for them yet; ``closed``: the field's structs get no more columns."""

    shape: FieldShape
    verdict: Verdict | None = None
    closed: bool = False


def objects_of(
    shape: FieldShape, types: Sequence[Type], contract: Contract, policy: str, mark: str
) -> Objects:
    """Decides for the objects of a field whose columns have these ``types``. ``mark``: the prefix of docs."""
    records = {f: s for f, s in shape.facets.items() if _is_object(f, s)}
    structs = [inner for type_ in types if isinstance(inner := peel(type_)[1], Struct)]
    has_map = any(facet_of(type_).base == MAP for type_ in types)
    folded = any(facet.base == MAP and not seen.typed for facet, seen in shape.facets.items())
    if has_map:
        verdict = None
    elif folded:
        verdict = Verdict("its many keys are data")
    else:
        verdict = _verdict(records.values(), structs, contract, policy, mark)
    if not records:
        return Objects(shape, verdict, closed=has_map and bool(structs))
    if not has_map and verdict is None:
        return Objects(shape)
    out = replace(shape, facets={f: s for f, s in shape.facets.items() if f not in records})
    unit = contract.epoch_unit or "ms"
    for facet, seen in records.items():
        assert seen.record is not None
        out.add(Facet(facet.dim, MAP), replace(seen, record=None, value=values_of(seen.record, seen.place)))
        if any(facet_of(type_).base == RECORD and facet_of(type_).dim >= facet.dim for type_ in types):
            known = _together(structs)
            out.add(facet, replace(seen, record=_within(seen.record, known, mark, unit)))
    return Objects(out, verdict, bool(structs))


def closed_route(route: RecordRoute) -> RecordRoute:
    """The route of a closed struct: what has no column there is in the map."""
    return RecordRoute(tuple(_closed_field(field) for field in route.fields))


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
    records: Iterable[Seen], structs: Sequence[Struct], contract: Contract, policy: str, mark: str
) -> Verdict | None:
    """Why the objects become a map, if they do by themselves."""
    decided = contract.maps != "auto" or contract.hint is not None or contract.declares_fields
    if decided or policy != "preserve":
        return None
    entries = entries_of(seen.record for seen in records if seen.record is not None)
    for struct in structs:
        columns = Struct(tuple(f for f in struct.fields if not is_metadata(f.doc)))
        known = entries_of_struct(columns, {f.name: _key(f, mark) for f in columns.fields})
        for key, entry in known.items():
            entries[key] = entries.get(key, Entry()) | entry
    return as_map(entries)


def _together(structs: Sequence[Struct]) -> Struct:
    return Struct(tuple(f for struct in structs for f in struct.fields))


def _within(record: RecordShape, struct: Struct, mark: str, unit: str) -> RecordShape:
    """What of a record the columns of a struct take as they are."""
    columns: dict[str, list[Field]] = {}
    for column in struct.fields:
        columns.setdefault(_key(column, mark), []).append(column)
    return RecordShape(
        {
            key: _fitting(shape, [c.type for c in columns[key]], mark, unit)
            for key, shape in record.fields.items()
            if key in columns
        }
    )


def _fitting(shape: FieldShape, types: Sequence[Type], mark: str, unit: str) -> FieldShape:
    """What of a field its columns take as they are."""
    facets = [facet_of(type_) for type_ in types]
    structs = [inner for type_ in types if isinstance(inner := peel(type_)[1], Struct)]
    maps = [inner for type_ in types if isinstance(inner := peel(type_)[1], Map)]
    out = replace(shape, facets={})
    for facet, seen in shape.facets.items():
        if isinstance(facet.base, Primitive):
            if any(preserve.accepts(column, facet, seen, unit) for column in facets):
                out.add(facet, seen)
        elif seen.record is None:
            continue
        elif structs and any(c.base == RECORD and c.dim >= facet.dim for c in facets):
            out.add(facet, replace(seen, record=_within(seen.record, _together(structs), mark, unit)))
        elif maps and any(c.base == MAP and c.dim >= facet.dim for c in facets):
            values = [map_.value for map_ in maps]
            fields = {key: _fitting(v, values, mark, unit) for key, v in seen.record.fields.items()}
            out.add(facet, replace(seen, record=RecordShape(fields)))
    return out


def _key(column: Field, mark: str) -> str:
    key = marked_key(column.doc, mark)
    return column.name if key is None else key
