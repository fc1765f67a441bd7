"""Maps by themselves, whatever the data and its batches: nothing is lost, and the columns do not depend on the batching."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.test_convert_sound import plain
from driftline.convert import Converter
from driftline.core.columns.folding import resolution
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RECORD, Facet, MapOf
from driftline.core.schema.naming import MARK
from driftline.core.schema.text import parse_type
from driftline.core.schema.types import STRING, Field, Map, Schema, Struct, Type, peel
from driftline.core.settings.fields import field_settings
from driftline.core.settings.table import TableSettings
from driftline.core.values import parse
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import merge_observations
from driftline.observe.walk import FEWER_KEYS, MANY_KEYS
from driftline.readers.json.rows import JsonRows, LineTask, Run
from driftline.readers.task import AdmissionTerms
from driftline.verify.json_texts import parse as parse_apart
from driftline.verify.match import differences
from driftline.verify.matching_key import TableStruct
from driftline.verify.values import ValueSettings

AUTO = TableSettings(fields=field_settings(maps="auto"))
# Few keys, so that they meet: words, neutral ones, data that is sure, data, and the empty key.
KEYS = st.sampled_from(["a", "b", "default", "", "2024-01-01", "7", "8", "x/y"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.5, "x", "2024-01-01"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=6,
)
RECORDS = st.dictionaries(st.sampled_from(["m", "n"]), VALUES, min_size=1, max_size=2)


def taken(schema: Schema, records: Sequence[dict[str, Any]]) -> Schema:
    """A batch taken into a table of this schema: each record is held by its row. The schema then."""
    lines = [json.dumps(record).encode() for record in records]
    observer = JsonObserver(expect(schema, AUTO), AUTO)
    observer.feed(lines, "batch", 1)
    planned = plan(schema, observer.result().shape, AUTO)
    assert planned.conflicts == ()
    struct = planned.schema.struct
    if not struct.fields:  # such records wait in quarantine
        return schema
    rows = Converter(struct, planned.route, AUTO).of_json([parse(line) for line in lines])
    rows.validate(full=True)
    for row, line in zip(plain(rows, struct), lines, strict=True):
        found = differences(TableStruct.of(struct), row, parse_apart(line), ValueSettings())
        assert [d for d in found if not d.unproven] == [], planned.schema
    return planned.schema


def map_paths(struct: Struct, at: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The paths of a struct's maps, outside of other maps."""
    found: set[tuple[str, ...]] = set()
    for column in struct.fields:
        inner = peel(column.type)[1]
        if isinstance(inner, Map):
            found.add((*at, column.name))
        elif isinstance(inner, Struct):
            found |= map_paths(inner, (*at, column.name))
    return found


@pytest.mark.slow
@given(st.lists(st.lists(RECORDS, min_size=1, max_size=3), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_nothing_is_lost_and_a_map_stays_a_map(batches: list[list[dict[str, Any]]]) -> None:
    schema = Schema()
    for records in batches:
        before, schema = schema, taken(schema, records)
        assert map_paths(before.struct) <= map_paths(schema.struct)
        taken(schema, records)  # the same again brings nothing new, and is held as well


CONTENT = st.integers(0, 3) | st.fixed_dictionaries({"a": st.booleans()})
KEYS_OF_DATA = st.sampled_from(["2024-01-01", "2024-01-02", "x/y", "0b9e3a52-2d1c-4a5e-9a67-1f6f3c0d9d11"])


@pytest.mark.slow
@given(
    st.lists(
        st.fixed_dictionaries({"m": st.dictionaries(KEYS_OF_DATA, CONTENT, max_size=3)}),
        min_size=1,
        max_size=6,
    ),
    st.randoms(use_true_random=False),
)
@settings(max_examples=50, deadline=None)
def test_columns_are_the_same_in_any_batches(records: list[dict[str, Any]], random: Any) -> None:
    """Each key is surely data: the batches are one, one a record, or in another order. Scalars of one type: of several,
    a later one may fit a column that an earlier one made, in maps as elsewhere."""
    whole = taken(Schema(), records)
    single = Schema()
    for record in random.sample(records, len(records)):
        single = taken(single, [record])

    assert types_of(whole) == types_of(single)


def types_of(schema: Schema) -> list[str]:
    """The types of the columns; which of a field's columns has its own name depends on what came first, as ever."""
    return sorted(str(column.type) for column in schema.struct.fields)


DAYS = [f"2024-01-{day:02}" for day in range(1, 31)]
HALVES = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "y", 1, None]),
        "total": SCALARS,
        "default": st.integers(0, 3),
        **{day: st.integers(0, 3) | st.just("z") for day in DAYS[:3]},
        "2025-01-01": st.sampled_from([0.5, {"a": 1}, {"name": "x"}]),
    },
)


@pytest.mark.slow
@given(st.lists(st.lists(HALVES, min_size=1, max_size=3), min_size=1, max_size=3), st.booleans())
@settings(max_examples=50, deadline=None)
def test_words_and_data_together_lose_nothing(batches: list[list[dict[str, Any]]], later: bool) -> None:
    """Before or behind the batch that shows so many dates beside a name that they are a map."""
    many = [{"name": "x", **dict.fromkeys(DAYS[:15], 1)}, {"name": "y", **dict.fromkeys(DAYS[15:], 2)}]
    schema = Schema()
    for objects in (*batches, many) if later else (many, *batches):
        schema = taken(schema, [{"m": o} for o in objects])
        taken(schema, [{"m": o} for o in objects])
    if not later:
        assert any(isinstance(column.type, Map) for column in schema.struct.fields)
        (struct,) = (f.type for f in schema.struct.fields if isinstance(f.type, Struct))
        assert all(field.name[0] not in "0123456789" for field in struct.fields)


WHOLE = st.recursive(
    SCALARS,
    lambda inner: (
        st.dictionaries(st.sampled_from(["7", "8", "x/y", 'a"\\\n', ""]), inner, max_size=3)
        | st.fixed_dictionaries({}, optional={"a": inner, "b": inner})
        | st.lists(inner, max_size=2)
    ),
    max_leaves=5,
)


def test_an_empty_key_of_a_record_is_nothing_beside_a_map_inside_it() -> None:
    taken(Schema(), [{"m": {"7": None, "": False}}, {"m": {"7": {"7": None, "8": False}}}])


@given(
    st.lists(
        st.fixed_dictionaries({}, optional={"m": WHOLE, "n": WHOLE, "plain": SCALARS}), min_size=1, max_size=6
    )
)
@settings(max_examples=50, deadline=None)
def test_maps_come_as_whole_columns_like_one_by_one(records: list[dict[str, Any]]) -> None:
    """Into a table that has the columns, and into one that gets them."""
    lines = [json.dumps(record).encode() for record in records]
    schema = taken(Schema(), records)
    if not schema.struct.fields:
        return
    for before in (Schema(), schema):
        known = expect(before, AUTO)
        observer = JsonObserver(known, AUTO)
        observer.feed(lines, "batch", 1)
        seen = observer.result()
        planned = plan(before, seen.shape, AUTO)
        rows = JsonRows.of(planned, planned.schema.struct, AdmissionTerms(known, AUTO), seen)
        watching = rows.observer()
        watching.feed(lines, "batch", 1)
        looked = watching.feed(lines, "batch", 1 + len(lines))  # what is usual is known now
        by_line: dict[int, Any] = {}
        for batch, places in rows.of_lines(lines, looked, watching.fields):
            batch.validate(full=True)
            by_line |= zip(places, batch.to_pylist(), strict=True)
        alone = rows.converter.of_json([parse(line) for line in lines]).to_pylist()
        assert [repr(by_line[place]) for place in range(len(lines))] == list(map(repr, alone))


def test_usual_maps_are_not_looked_at_one_by_one() -> None:
    lines = [
        json.dumps(
            {"n": n, "o": [{"m": {f"{n}/x": {"a": n, "k": {"7": None, "8": [f"{n}"]}}}}, {"m": {}}]}
        ).encode()
        for n in range(3_000)
    ]
    observer = JsonObserver(expect(Schema(), AUTO), AUTO)
    observer.feed(lines, "batch", 1)
    schema = plan(Schema(), observer.result().shape, AUTO).schema
    known = expect(schema, AUTO)
    watching = JsonObserver(known, AUTO)
    watching.feed(lines, "batch", 1)
    planned = plan(schema, watching.result().shape, AUTO)
    rows = JsonRows.of(planned, schema.struct, AdmissionTerms(known, AUTO), watching.result())
    again = rows.observer()
    looked = again.feed(lines, "batch", 1)
    assert len(looked) < 100

    ((batch, places), *_) = rows.of_lines(lines, looked, again.fields)
    assert len(places) == len(lines)
    last = batch.to_pylist(maps_as_pydicts="strict")[-1]
    assert last == json.loads(lines[-1]) | {"o": [last["o"][0], {"m": {}}]}
    assert last["o"][0]["m"]["2999/x"]["k"] == {"7": None, "8": ["2999"]}


OF_ONE_KIND = st.sampled_from(
    [st.integers(0, 3), st.fixed_dictionaries({}, optional={"a": st.booleans(), "b": st.just("x")})]
)
NO_WORDS = st.sampled_from(["2024-01-01", "2024-01-02", "x/y", "7", "8", "default"])


@given(st.data(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_resolve_makes_the_same_of_any_batches(data: Any, random: Any) -> None:
    """In one batch, in several, record by record, in two orders: the same maps once structs that turned out to be maps
    are folded into these."""
    values = data.draw(OF_ONE_KIND)
    objects = st.fixed_dictionaries({"m": st.dictionaries(NO_WORDS, values, max_size=3)})
    records = data.draw(st.lists(objects, min_size=1, max_size=6))
    shuffled = random.sample(records, len(records))
    ways = [
        [records],
        [records[:3], records[3:]],
        [[record] for record in records],
        [[record] for record in shuffled],
    ]
    tables = []
    for batches in ways:
        schema = Schema()
        for batch in batches:
            schema = taken(schema, batch) if batch else schema
        tables.append(schema)
    wholes = [resolved(schema) for schema in tables]
    assert wholes.count(wholes[0]) == len(wholes), [str(table.struct) for table in tables]


def resolved(schema: Schema) -> list[str]:
    """The types of the columns once the field ``m`` is one map, if it is any; records by the names of their fields."""
    types = [column.type for column in schema.struct.fields]
    value = next((type_.value for type_ in types if isinstance(type_, Map)), None)
    if value is not None and len(types) > 1:
        types = [
            resolution(
                schema, ("m",), Map(STRING, Struct() if isinstance(value, Struct) else value)
            ).merged.type
        ]
    return [str(in_order(type_)) for type_ in types]


def in_order(type_: Type) -> Type:
    match type_:
        case Map(key, value):
            return Map(key, in_order(value))
        case Struct(fields):
            named = sorted(
                (replace(f, type=in_order(f.type), id=0, doc=None) for f in fields), key=lambda f: f.name
            )
            return Struct(tuple(named))
        case _:
            return type_


@pytest.mark.parametrize("words", [{}, {"name": "x"}])
def test_parts_of_a_batch_with_few_keys_of_a_map_are_as_expected(words: dict[str, str]) -> None:
    """One part of the batch has forgotten its many keys, another has too few to tell that there is a map."""
    many = [json.dumps({"m": {**words, f"{n}/x": n}}).encode() for n in range(2_000)]
    few = [json.dumps({"m": {**words, f"{n}/y": n}}).encode() for n in range(9)]
    parts = []
    for name, lines in (("a", many), ("b", few)):
        observer = JsonObserver(expect(Schema(), AUTO), AUTO)
        observer.feed(lines, name, 1)
        parts.append(observer.result())
    seen = merge_observations(parts)
    planned = plan(Schema(), seen.shape, AUTO)
    terms = AdmissionTerms(expect(Schema(), AUTO), AUTO)
    rows = JsonRows.of(planned, planned.schema.struct, terms, seen)
    for lines in (many[:500], few):
        in_task = LineTask(rows.observer(), rows, terms)
        accepted, _ = in_task.observe([Run(lines, "a", 1, lambda place, why: pytest.fail(str(why)))])
        made = list(in_task.convert(accepted))
        assert sum(batch.num_rows for batch, _ in made) == len(lines)
        again = plan(Schema(), in_task.observed().shape, AUTO).schema.struct
        assert again == planned.schema.struct


def test_a_guess_asks_sooner_whether_keys_are_data() -> None:
    """Each key that is kept apart is a record that is walked: most of the time of many looks into large files."""
    lines = [json.dumps({"m": {f"{n}/x": n}}).encode() for n in range(60)]
    for many, base in ((MANY_KEYS, RECORD), (FEWER_KEYS, MapOf(STRING))):
        observer = JsonObserver(expect(Schema(), AUTO), AUTO, many=many)
        observer.feed(lines, "batch", 1)
        assert set(observer.result().shape.fields["m"].facets) == {Facet(0, base)}


def rows_beside(before: dict[str, str], records: Sequence[Any], **limits: int) -> list[dict[str, Any]]:
    """The rows of records in a table with such columns, which has room for few more; what waits, as ``_rest``."""
    limited = TableSettings(beyond="rest", fields=field_settings("preserve", maps="auto"), **limits)  # type: ignore[arg-type]
    columns = [
        Field(name, parse_type(type_), at, doc=f"{MARK}{name[0]}" if "_" in name else None)
        for at, (name, type_) in enumerate(before.items(), 1)
    ]
    schema = Schema(Struct(tuple(columns)))
    lines = [json.dumps(record).encode() for record in records]
    observer = JsonObserver(expect(schema, limited), limited)
    observer.feed(lines, "batch", 1)
    planned = plan(schema, observer.result().shape, limited)
    converter = Converter(planned.schema.struct, planned.route, limited)
    return converter.of_json([parse(line) for line in lines]).to_pylist(maps_as_pydicts="strict")


def test_lists_of_objects_wait_where_only_a_map_without_lists_has_room() -> None:
    """They have no column that they may be put in; they ended the batch."""
    records = [{"e": {"1000": 2}}, {"e": [{"p": None}, 5]}, {"e": [{"q": True}, {"p": 7}]}]
    rows = rows_beside({"s": "string", "e": "map<string, long>"}, records, max_columns=3)
    assert [row["e"] for row in rows] == [{"1000": 2}, None, None]
    assert [row["_rest"] for row in rows] == [None, {"e": '[{"p":null},5]'}, {"e": '[{"q":true},{"p":7}]'}]


def test_a_map_that_has_no_column_waits_though_a_struct_takes_objects() -> None:
    """The struct has none of its keys: it was taken for held, and was lost."""
    keys = ["101098", "101132", "101137", "101143", "101151"]
    records = [{"d": {keys[0]: "a"}}, {"d": dict.fromkeys(keys[1:4], "b")}, {"d": {keys[4]: "c"}}]
    rows = rows_beside({"d": "list<struct<r: timestamp_ntz>>"}, records, max_columns=1)
    assert [json.loads(row["_rest"]["d"]) for row in rows] == [record["d"] for record in records]


def test_only_a_map_that_takes_lists_holds_what_is_in_lists() -> None:
    """The map without lists has a column for the values, but no place for the list: they were lost."""
    record = {"c": [{"p": "x", "q": {"p": "y", "q": "1972-11-23"}}, {"q": [], "r": "z"}]}
    (row,) = rows_beside({"c": "map<string, struct<q: list<timestamp_ntz>>>"}, [record], max_fields=1)
    assert row == {
        "c": None,
        "c_array_map_string": [{"p": "x", "q": None}, {"q": None, "r": "z"}],
        "_rest": {"c[0].q": '{"p":"y","q":"1972-11-23"}'},
    }


def test_what_waits_below_a_struct_waits_by_the_map_beside_it() -> None:
    """A list of structs beside both has no room for the key: the batch ended."""
    before = {
        "c": "struct<r: string>",
        "c_array_record": "list<struct<q: timestamp_ntz>>",
        "c_map_timestamp_ntz": "map<string, timestamp_ntz>",
    }
    records = [{"c": {"q": "x", "r": "1972-10-21"}}, {"c": {"p": "1972-10-27T10:11:12.5Z"}}]
    rows = rows_beside(before, records, max_columns=3)
    assert [row["_rest"] for row in rows] == [{"c.q": '"x"'}, {"c.p": '"1972-10-27T10:11:12.5Z"'}]
    assert rows[0]["c"] == {"r": "1972-10-21"}


NUMBERS = st.dictionaries(
    st.sampled_from(["101098", "101132", "101137"]), st.none() | st.integers(0, 9), max_size=2
)
TEXTS = st.dictionaries(st.sampled_from(["101143", "101151"]), st.none() | st.sampled_from("xy"), max_size=2)
DEEP = NUMBERS | st.lists(TEXTS, max_size=2) | st.lists(st.lists(NUMBERS, max_size=2), max_size=2) | st.none()


@example([{"c": [{"101143": "x"}]}, {"c": [{"101143": None}]}, {"c": [{"101143": "y"}]}], 9)
@given(st.lists(st.fixed_dictionaries({"c": DEEP}), min_size=2, max_size=8), st.sampled_from([2, 3, 9]))
def test_maps_at_several_depths_are_converted_together_as_alone(records: list[Any], room: int) -> None:
    limited = TableSettings(beyond="rest", fields=field_settings("preserve", maps="auto"), max_columns=room)
    schema = Schema()
    for batch in ([OF_NUMBERS], [OF_TEXTS, *records]):
        lines = [json.dumps(record).encode() for record in batch]
        observer = JsonObserver(expect(schema, limited), limited)
        observer.feed(lines, "batch", 1)
        planned = plan(schema, observer.result().shape, limited)
        schema = planned.schema
    converter = Converter(schema.struct, planned.route, limited)
    parsed = [parse(line) for line in lines[1:]]
    assert converter.of_json(parsed).to_pylist() == [
        converter.of_json([one]).to_pylist()[0] for one in parsed
    ]


# With keys enough to tell that they are data.
OF_NUMBERS = {"c": {str(key): 1 for key in range(101000, 101009)}}
OF_TEXTS = {"c": [{str(key): "x" for key in range(102000, 102009)}]}
