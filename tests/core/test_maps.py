"""Objects that are maps, and those that are not: M1, M2 and M3 of section 9, and what the plan says of them."""

from __future__ import annotations

import json
import tomllib

import pytest

from core.shapes import batch, drift, schema
from driftline.convert import Converter
from driftline.core.planning.maps import as_map, entries_of
from driftline.core.planning.plan import lost_names
from driftline.core.planning.planner import plan
from driftline.core.schema.types import Schema
from driftline.core.settings.fields import field_settings, parse_path
from driftline.core.settings.properties import flattened
from driftline.core.settings.table import TableSettings
from driftline.core.values import parse
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import merge_observations

MAPS = {maps: TableSettings(fields=field_settings(maps=maps)) for maps in ("auto", "hint", "off")}
WORDS = [f"{a}{b}{c}" for a in "abcde" for b in "vwxyz" for c in "klmno"]
DATES = [f"2024-01-{day:02}" for day in range(1, 26)]


def struct(keys: list[str], *types: str) -> str:
    return ", ".join(f'"{key}": {types[i % len(types)]}' for i, key in enumerate(keys))


@pytest.mark.parametrize(
    ("keys", "types", "is_map"),
    [
        # M1: all look like data, and there are two, or one surely; of codes five
        (["2024-01-01"], ["long"], True),
        (["7"], ["long"], False),
        (["7", "8"], ["long"], True),
        (["7", "8"], ["long", "{a: long}"], True),
        (["7", "8", "default"], ["long"], True),
        (["7", "8", "name"], ["long"], False),
        (["default", "other"], ["long"], False),
        (["Q1", "Q2", "Q3", "Q4"], ["long"], False),
        (["Q1", "Q2", "Q3", "Q4", "Q5"], ["long"], True),
        # or five look like data, and all values are of one kind
        (["1", "2", "3", "4", "5", "name"], ["long"], True),
        (["1", "2", "3", "4", "5", "name"], ["long", "string"], False),
        (["1", "2", "3", "4", "name"], ["long"], False),
        # M2: 20 keys of records that are built alike
        (WORDS[:20], ["{a: long, b: long}"], True),
        (WORDS[:19], ["{a: long, b: long}"], False),
        (WORDS[:20], ["{a: long}[1]"], True),
        (WORDS[:20], ["{a: long}", "{a: long}[1]"], False),
        (WORDS[:20], [f"{{{c}: long, {c}{c}: long}}" for c in "abcdefghij"], False),
        # and of scalars, where five keys hold what names of fields do not
        (WORDS[:20], ["long"], False),
        (WORDS[:15] + [f"a.{w}" for w in WORDS[:5]], ["long"], True),
        (WORDS[:15] + [f"$a-{w}" for w in WORDS[:5]], ["long"], False),
        # M3: 100 keys of one kind
        (WORDS[:100], ["long", "double"], True),
        (WORDS[:100], ["string", "date"], True),
        (WORDS[:99], ["long"], False),
        (WORDS[:100], ["long", "string"], False),
        (WORDS[:100], ["long", "long[1]"], False),
    ],
)
def test_is_a_map(keys: list[str], types: list[str], is_map: bool) -> None:
    assert (as_map(entries_of([batch(struct(keys, *types))])) is not None) == is_map


def test_a_plan_tells_why_and_how_to_say_no() -> None:
    text = f"p: {{by_day: {{{struct(DATES, 'long')}}}}}"

    assert drift(text, settings=MAPS["auto"]).hints == (
        (
            'maps.p.by_day = "off"  # keeps a struct: it is a map, '
            "its keys look like data: 2024-01-01, 2024-01-02, 2024-01-03"
        ),
    )
    assert drift(text, text, settings=MAPS["auto"]).hints == ()


def test_a_map_that_waits_in_the_rest_is_not_told_yet() -> None:
    text = f"id: long, by_day: {{{struct(DATES, 'long')}}}"
    waits = TableSettings(fields=field_settings(maps="auto", new_fields="hold"))

    assert drift("id: long", text, settings=waits).hints == ()
    assert drift("id: long", text, settings=MAPS["auto"]).hints != ()


def test_a_map_beside_a_column_has_a_name_of_its_own() -> None:
    """The key's own name stays free if the column does not have it."""
    text = f"by_day: {{{struct(DATES, 'long')}}}"
    for column in ("by_day: string", "by_day_string@by_day: string"):
        planned = plan(schema(column), batch(text), MAPS["auto"])
        assert planned.schema.struct.fields[1].name == "by_day_map_long"


def test_of_very_many_keys_a_shape_keeps_none() -> None:
    lines = [b'{"id": {"%032x": {"n": %d, "s": "x"}}}' % (n, n) for n in range(5_000)]
    settings = MAPS["auto"]
    observer = JsonObserver(expect(Schema(), settings), settings)
    observer.feed(lines[:4_000], "f", 1)
    observer.feed(lines[4_000:], "f", 4_001)
    shape = observer.result().shape
    (facet,) = shape.fields["id"].facets.values()
    assert facet.record is None
    planned = plan(Schema(), shape, settings)
    assert [str(f.type) for f in planned.schema.struct.fields] == ["map<string, struct<n: long, s: string>>"]
    assert planned.hints == ('maps.id = "off"  # keeps a struct: it is a map, its many keys are data',)

    # Another task has met a few, as they are.
    few = JsonObserver(expect(Schema(), settings), settings)
    few.feed([b'{"id": {"x": {"n": 1.5}}}'], "e", 1)
    both = plan(Schema(), merge_observations([few.result(), observer.result()]).shape, settings)
    assert [f.name for f in both.schema.struct.fields] == ["id"]


def test_a_table_made_before_is_told_the_hint() -> None:
    text = f"by_day: {{{struct(DATES, 'long')}}}"

    assert drift(text, settings=MAPS["hint"]).hints == (
        (
            'hints.by_day = "map<string, long>"  # makes by_day a map, '
            "its keys look like data: 2024-01-01, 2024-01-02, 2024-01-03"
        ),
    )
    assert drift(text, text, settings=MAPS["hint"]).hints == ()
    assert drift(text, settings=MAPS["off"]).hints == ()


def test_the_empty_key_is_lost_in_structs_only() -> None:
    lines = [
        b'{"": 1, "packages": {"": {"name": "root", "": 0}, "node_modules/a": {"": 2}}}',
        b'{"who": {"": 3, "name": "x"}, "in": [{"m": {"7": {"": 1}, "8": {}, "": 2}}]}',
    ]
    settings = MAPS["auto"]
    before = Schema()
    for _ in range(2):  # when the table is made, and when it has the maps
        observer = JsonObserver(expect(before, settings), settings)
        observer.feed(lines, "f", 1)
        seen = observer.result()
        planned = plan(before, seen.shape, settings)
        assert dict(lost_names(planned.route, seen.tally.dropped_names)) == {
            (): 1,
            ("packages", "value"): 2,
            ("who",): 1,
            ("in", "m", "value"): 1,
        }
        before = planned.schema


def test_hints_are_lines_of_toml() -> None:
    odd = ["a.b", 'say "x"', "line\nfeed", "tick`", "", "\x7f", "plain"]
    lines = [json.dumps({name: {f"2024-01-01 {name}/": {"7": 1, "8": 2}} for name in odd}).encode()]
    observer = JsonObserver(expect(Schema(), MAPS["auto"]), MAPS["auto"])
    observer.feed(lines, "f", 1)
    hints = plan(Schema(), observer.result().shape, MAPS["auto"]).hints
    assert len(hints) == 2 * (len(odd) - 1)
    for hint in hints:
        flat = dict(flattened(tomllib.loads(hint)))
        ((key, value),) = flat.items()
        path = parse_path(key.removeprefix("maps."))
        assert (path[0] in odd, path[1:] in ((), ("value",)), value) == (True, True, "off")


@pytest.mark.slow
def test_an_object_of_very_many_keys_comes_in() -> None:
    text = b'{"m": {%s}, "n": 1}' % b", ".join(b'"key %d": {"a": %d}' % (n, n) for n in range(20_000))
    observer = JsonObserver(expect(Schema(), MAPS["auto"]), MAPS["auto"])
    observer.feed([text], "f", 1)
    planned = plan(Schema(), observer.result().shape, MAPS["auto"])
    assert str(planned.schema.struct) == "struct<m: map<string, struct<a: long>>, n: long>"
    row = Converter(planned.schema.struct, planned.route, MAPS["auto"]).of_json([parse(text)])
    assert len(row.column(0)[0]) == 20_000
