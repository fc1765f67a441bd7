"""Properties of every plan, whatever the data: promises 1, 2 and 4 of the rules, over shapes made at random."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.shapes import changes, show
from driftline.core.changes import AddColumn, RelaxColumn, WidenColumn
from driftline.core.planning import field as field_planning
from driftline.core.planning import planner
from driftline.core.planning.conversions import widens_in_place
from driftline.core.planning.plan import FieldRoute, Plan, RecordRoute
from driftline.core.planning.planner import plan
from driftline.core.planning.policies import preserve
from driftline.core.planning.shape import (
    NUMBER_TEXT,
    RECORD,
    Base,
    Facet,
    FieldShape,
    MapOf,
    Profile,
    RecordShape,
    merge_all,
)
from driftline.core.schema.naming import MAX_NAME_BYTES, METADATA_NAMES, caseless, marked_key
from driftline.core.schema.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UUID,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    SourceLocation,
    Struct,
    Type,
    decimal,
    fixed,
    peel,
)
from driftline.core.settings.fields import field_settings
from driftline.core.settings.table import TableSettings

JSON = [BOOLEAN, LONG, decimal(38, 0), DOUBLE, decimal(38, 18), DATE, TIMESTAMP, TIMESTAMP_NTZ, STRING, NUMBER_TEXT]  # fmt: skip
TYPED = [
    *JSON[:-1],
    INT,
    FLOAT,
    decimal(5, 2),
    decimal(9, 2),
    decimal(9, 4),
    TIME,
    UUID,
    BINARY,
    fixed(4),
    fixed(8),
]
# Keys that get into each other's way: twins, suffixes, odd and long ones.
KEYS = ["a", "A", "b", "a_long", "a_string", "a_long_2", "A_Record", "a.b", "a_b", "_file", "ß", "ss", "ſs", " ", "a\n", '"', "é" * 127]  # fmt: skip
KEY = st.sampled_from(KEYS) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
PLACES = st.builds(SourceLocation, st.just("f"), st.integers(1, 9), st.integers(0, 9))


@st.composite
def fields(draw: st.DrawFn, typed: bool, depth: int = 2) -> FieldShape:
    """A field of JSON, or of files with types."""
    empty = not typed and draw(st.integers(0, 5)) == 0
    out = FieldShape(
        draw(PLACES),
        empty_lists=draw(st.integers(0, 2)) if empty else 0,
        empty_record=empty and draw(st.booleans()),
        missing=draw(st.booleans()),
    )
    for _ in range(draw(st.integers(0, 3))):
        kinds = ["primitive", "primitive", "record", *(["map"] if typed else [])][: None if depth else 2]
        dim = draw(st.sampled_from([0, 0, 0, 1, 1, 2, 3]))
        seen = Profile(
            draw(PLACES),
            draw(st.sampled_from(["x", "y"])),
            wide=draw(st.booleans()),
            fraction=draw(st.sampled_from([0, 3, 6])),
            far=draw(st.booleans()),
        )
        base: Base
        match draw(st.sampled_from(kinds)):
            case "record":
                base = RECORD
                seen.record = draw(records(typed, depth - 1))
                seen.typed = typed
            case "map":
                base = MapOf(draw(st.sampled_from([STRING, INT])))
                seen.value = draw(fields(typed, depth - 1))
            case _:
                base = draw(st.sampled_from(TYPED if typed else JSON))
        out.add(Facet(dim, base), seen)
    return out


def records(typed: bool, depth: int = 2) -> st.SearchStrategy[RecordShape]:
    return st.dictionaries(KEY, fields(typed, depth), max_size=3).map(RecordShape)


BATCH = st.booleans().flatmap(records)


@st.composite
def tables(draw: st.DrawFn) -> Schema:
    """A table made by others: of any types, with required columns or without."""
    made = plan(Schema(), draw(records(typed=True))).schema
    struct = _required(made.struct) if draw(st.booleans()) else made.struct
    assert isinstance(struct, Struct)
    return replace(made, struct=struct)


def _required(type_: Type) -> Type:
    match type_:
        case Struct(columns):
            return Struct(tuple(replace(f, required=True, type=_required(f.type)) for f in columns))
        case List(element):
            return replace(type_, element=_required(element), element_required=True)
        case Map(value=value):
            return replace(type_, value=_required(value), value_required=True)
        case _:
            return type_


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(tables(), st.lists(BATCH, min_size=1, max_size=3))
def test_one_batch_after_the_other(table: Schema, batches: list[RecordShape]) -> None:
    for shape in batches:
        planned = plan(table, shape)
        every_value_has_a_column(planned.route, planned.schema.struct)
        every_key_is_found_again(shape, planned)
        nothing_else_is_touched(planned)
        names_are_sound(planned.schema)
        changes_lead_to_the_schema(planned)
        required_columns_get_values(planned)
        again = plan(planned.schema, shape)
        assert changes(again) == []
        assert again.schema == planned.schema
        table = planned.schema


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(tables(), st.lists(BATCH, min_size=2, max_size=4), st.data())
def test_merging_in_any_order(table: Schema, parts: list[RecordShape], data: st.DataObject) -> None:
    whole = merge_all(parts)
    shuffled = list(data.draw(st.permutations(parts)))
    cut = data.draw(st.integers(0, len(parts)))
    regrouped = merge_all(shuffled[cut:]).merge(merge_all(shuffled[:cut]))
    assert regrouped == whole == whole.merge(whole) == whole.merge(parts[0])
    assert repr(plan(table, regrouped).changes) == repr(plan(table, whole).changes)
    assert plan(table, regrouped) == plan(table, whole)


@st.composite
def scalars(draw: st.DrawFn) -> RecordShape:
    """A record of fields of one scalar type each, or of two."""
    typed = draw(st.booleans())
    out = RecordShape()
    for key in draw(st.lists(KEY, min_size=1, max_size=4, unique=True)):
        out.fields[key] = FieldShape(draw(PLACES), missing=draw(st.booleans()))
        for base in draw(st.lists(st.sampled_from(TYPED if typed else JSON), min_size=1, max_size=2)):
            marks = [draw(st.booleans()) for _ in range(4)]
            profile = Profile(draw(PLACES), "x", *marks[:1], 0, *marks[1:], typed=typed)
            out.fields[key].add(Facet(0, base), profile)
    return out


SETTINGS = [
    TableSettings(),
    TableSettings(fields=field_settings("widen"), allow_rewrite=True),
    TableSettings(fields=field_settings("strict")),
    TableSettings(fields=field_settings(new_fields="hold")),
    TableSettings(max_columns=2, beyond="rest"),
    TableSettings(as_text=frozenset({TIME, UUID})),
]


@settings(max_examples=50, deadline=None)
@given(scalars(), scalars(), st.sampled_from(SETTINGS))
def test_field_of_one_scalar_is_planned_as_every_other(
    first: RecordShape, second: RecordShape, of_table: TableSettings
) -> None:
    for table in Schema(), plan(Schema(), first).schema:
        short = plan(table, second, of_table)
        with (
            patch.object(field_planning, "_of_one_scalar", lambda *_: None),
            patch.object(planner, "_of_one_column", lambda *_: None),
        ):
            assert plan(table, second, of_table) == short


def every_value_has_a_column(route: RecordRoute, struct: Struct) -> None:
    """Promises 1 and 2: each facet has a column that takes it whole and exactly, and so at each level below."""
    for field in route.fields:
        for way in field.columns:
            column = struct.get(way.name)
            assert column is not None
            assert show(column.type) == show(way.type)
        field_is_held(field)


def field_is_held(field: FieldRoute) -> None:
    maps: dict[Base, int] = {}
    for facet, seen in field.shape.facets.items():
        ways = [w for w in field.columns if facet in w.takes and preserve.accepts(w.facet, facet, seen, "ms")]
        if isinstance(facet.base, MapOf):
            maps[facet.base] = max(facet.dim, maps.get(facet.base, 0))
            continue
        assert ways, facet
        if seen.record is not None:
            for way in ways:
                assert way.record is not None
                assert {f.key for f in way.record.fields} >= set(seen.record.fields)
    for base, dim in maps.items():
        values = [w.value for w in field.columns if w.facet.base == base and w.facet.dim >= dim and w.value]
        for shape in [v.shape for v in values[:1]]:
            field_is_held(FieldRoute("value", shape, tuple(w for v in values for w in v.columns)))
        seen_values = [s.value for f, s in field.shape.facets.items() if f.base == base and s.value]
        assert values or not any(has_type(v) for v in seen_values)
    for way in field.columns:
        inner = peel(way.type)[1]
        if way.record is not None:
            assert isinstance(inner, Struct)
            every_value_has_a_column(way.record, inner)


def has_type(field: FieldShape) -> bool:
    """True if the field has anything, at any depth, that is not empty."""
    for facet, seen in field.facets.items():
        below = [*(seen.record.fields.values() if seen.record else ()), *([seen.value] if seen.value else ())]
        if isinstance(facet.base, Primitive) or any(map(has_type, below)):
            return True
    return False


def every_key_is_found_again(shape: RecordShape, planned: Plan) -> None:
    found = {f.name if (key := marked_key(f.doc)) is None else key for f in planned.schema.struct.fields}
    assert found >= {key for key, field in shape.fields.items() if has_type(field)}
    assert {f.key for f in planned.route.fields} == set(shape.fields)
    before = {f.name if (key := marked_key(f.doc)) is None else key for f in planned.before.struct.fields}
    assert found <= before | {key for key, field in shape.fields.items() if has_type(field)}


def nothing_else_is_touched(planned: Plan) -> None:
    """Promise 4: a column that was there is widened in its family or made optional, and no more."""
    after = dict(planned.schema.walk())
    widened = {c.path for c in planned.changes if isinstance(c, WidenColumn)}
    relaxed = {c.path for c in planned.changes if isinstance(c, RelaxColumn)}
    for path, column in planned.before.walk():
        now = after[path]
        assert (now.name, now.id, now.doc) == (column.name, column.id, column.doc)
        assert now.required == (column.required and path not in relaxed)
        if isinstance(column.type, Primitive):
            assert isinstance(now.type, Primitive)
            assert widens_in_place(column.type, now.type) if path in widened else now.type == column.type
        if isinstance(column.type, Struct):
            assert isinstance(now.type, Struct)
            comes_first(column.type, now.type)
    comes_first(planned.before.struct, planned.schema.struct)


def comes_first(before: Struct, after: Struct) -> None:
    names = [f.name for f in before.fields]
    assert [f.name for f in after.fields][: len(names)] == names


def structs(type_: Type) -> Iterator[Struct]:
    match type_:
        case Struct(columns):
            yield type_
            for column in columns:
                yield from structs(column.type)
        case List(inner) | Map(value=inner):
            yield from structs(inner)


def names_are_sound(schema: Schema) -> None:
    for struct in structs(schema.struct):
        names = [f.name for f in struct.fields]
        for fold in (str.lower, caseless):
            assert len({fold(n) for n in names}) == len(names), names
        for name in names:
            assert 0 < len(name.encode()) <= MAX_NAME_BYTES
            assert name.isprintable()
            assert name.lower() not in METADATA_NAMES
            assert not set(name) & set(".`")
        assert struct.fields or struct is schema.struct


def changes_lead_to_the_schema(planned: Plan) -> None:
    """Every change is visible in the schema after; a parent is listed before what is inside it."""
    listed: set[Path] = set()
    places: dict[Path, list[SourceLocation]] = {}
    for change in planned.changes:
        now = planned.schema.find(change.path)
        assert now is not None
        if isinstance(change, AddColumn):
            assert show(now.type) == show(change.column.type)
            assert change.within == any(p == change.path[: len(p)] for p in listed)
            places.setdefault(change.parent, []).append(change.reason.location or SourceLocation())
            listed.add(change.path)
            assert planned.before.find(change.path) is None
    new = set(dict(planned.schema.walk())) - set(dict(planned.before.walk()))
    assert {p for p in new if p[-1] not in ("element", "key", "value")} <= listed
    assert all(found == sorted(found) for found in places.values())


def required_columns_get_values(planned: Plan) -> None:
    ways = {way.name: (field.shape, way) for field in planned.route.fields for way in field.columns}
    for column in planned.schema.struct.fields if planned.route.fields else ():  # else there was no record
        if column.required:
            shape, way = ways[column.name]
            assert not shape.missing
            assert set(way.takes) >= set(shape.facets)
