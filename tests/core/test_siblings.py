"""A field's columns as one, and what folding makes of them. Schemas as text: see shapes.py."""

from __future__ import annotations

import re

import pytest

from core.shapes import schema, show
from driftline.core.changes import AddColumn, apply
from driftline.core.columns.folding import resolution
from driftline.core.columns.siblings import FieldMerger
from driftline.core.schema.text import parse_type
from driftline.core.schema.types import dotted
from driftline.core.settings.fields import parse_path, spelled_path
from driftline.errors import UsageError

AS_ONE = [
    ("a: long", "a: long", []),
    ("size: long, size_double@size: double", "size: double", ["size"]),
    ("a: boolean, a_date@a: date, a_string@a: string", "a: string", ["a"]),
    ("t: timestamp, t_long@t: long", "t: long", ["t"]),
    ("a: long, a_array_string@a: string[1]", "a: string[1]", ["a"]),
    ("s: {x: long, x_string@x: string}", "s: {x: string}", ["s.x"]),
    ("l: {x: long, x_double@x: double}[2]", "l: {x: double}[2]", ["l.x"]),
    ("m: map<string, long>, m_map_string@m: map<string, string>", "m: map<string, string>", ["m"]),
    ("m: map<string, {x: long, x_string@x: string}>", "m: map<string, {x: string}>", ["m.value.x"]),
    # What is nested in one of them and what is not: text.
    ("a: {x: long}, a_string@a: string", "a: string", ["a"]),
    # A struct whose keys are data, and the map beside it.
    ("a: {x: long}, a_map_double@a: map<string, double>", "a: map<string, double>", ["a"]),
    ("a: {x: long}[1], a_map_long@a: map<string, long>", "a: map<string, long>[1]", ["a"]),
    # One or many: the largest dimension, with the fields of all.
    ("a: {x: long}, a_array_record@a: {x: long, y: date}[1]", "a: {x: long, y: date}[1]", ["a"]),
    ("a: {x: long}, a_array_record@a: {x: string}[1]", "a: {x: string}[1]", ["a", "a.x"]),
    # Names: the field's own where it is free, of another letter case too.
    ("id: long, ID_string@ID: string, ID_double@ID: double", "id: long, ID_string: string", ["ID"]),
    ('o_d@"o.d": long, o_d_string@"o.d": string', "o_d: string", ["o.d"]),
    ("b: binary, b_string@b: string", "b: binary", ["b"]),
    ("b: fixed[4], b_long@b: long", "b: binary", ["b"]),
    ("v: long, v_variant@v: variant", "v: variant", ["v"]),
]


@pytest.mark.parametrize(("table", "one", "drifted"), AS_ONE)
def test_as_one(table: str, one: str, drifted: list[str]) -> None:
    settling = FieldMerger()
    made = settling.record([schema(table).struct])
    assert show(made.type) == f"{{{one}}}"
    assert [dotted(d.path) for d in settling.drifted] == drifted


@pytest.mark.parametrize("path", ["l.x", "l.element.x", "l.element.element.x"])
def test_a_wanted_type_is_found_with_and_without_steps_into_lists(path: str) -> None:
    settling = FieldMerger(requested_types={parse_path(path): parse_type("date")})
    made = settling.record([schema("l: {x: long, x_string@x: string}[2], y: long").struct])
    assert bool(settling.met) == (path != "l.element.x")
    assert show(made.type) == f"{{l: {{x: {'date' if settling.met else 'string'}}}[2], y: long}}"


RESOLVED = [
    # table, field, type, columns that keep a rest, what it is then
    ("a: long, b: date, a_string@a: string", "a", "string", [], "a: string, b: date"),
    ("a: long, b: date, a_string@a: string", "a", "long", ["a_string"], "a: long, b: date, a_string@a: string"),
    (
        "a: string, a_long@a: long", "a", "double", ["a", "a_long"],
        "a: double, a_string@a: string, a_long@a: long",
    ),
    ("s: {x: long, x_string@x: string}[1]", "s.x", "string", [], "s: {x: string}[1]"),
    (
        "s: {x: long, x_string@x: string}, s_array_record@s: {x: string, x_date@x: date}[1]", "s.x", "string", [],
        "s: {x: string}, s_array_record@s: {x: string}[1]",
    ),
    # A record has the name: it stays, and so does what is in it.
    ("a: {x: long}, a_long@a: long, a_string@a: string", "a", "string", [], "a: {x: long}, a_string@a: string"),
    ("id: long, ID_long@ID: long, ID_string@ID: string", "ID", "string", [], "id: long, ID_string@ID: string"),
    ("l: long[1], l_string@l: string", "l", "list<string>", [], "l: string[1]"),
    ("l: long[1], l_string@l: string", "l", "long", ["l_string"], "l: long[1], l_long@l: long, l_string@l: string"),
    ("m: map<string, {x: long, x_string@x: string}>", "m.value.x", "string", [], "m: map<string, {x: string}>"),
    ("a_x@a: long!required, a_string@a: string", "a", "string", [], "a: string"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "field", "type_", "rest", "after"), RESOLVED)
def test_resolved(before: str, field: str, type_: str, rest: list[str], after: str) -> None:
    table = schema(before)
    plan = resolution(table, parse_path(field), parse_type(type_))
    kept = {site.parent: rest for site in plan.sites}
    between = apply(table, [AddColumn(parent, f) for parent, f in plan.before(table, kept)])
    made = plan.after(between, kept)
    assert show(made) == after
    old = {f.id for _, f in table.walk()}
    folded = {c.id for site in plan.sites for c in site.folded}
    assert not folded & {f.id for _, f in made.walk()}, "what was folded keeps its id, for an undo"
    assert {f.id for _, f in made.walk() if f.id in old} == old - {
        f.id for _, f in table.walk() if f.id in folded or _inside(table, f.id, folded)
    }


def _inside(table, id_: int, folded: set[int]) -> bool:
    path = next(p for p, f in table.walk() if f.id == id_)
    return any(table.find(path[:i]).id in folded for i in range(1, len(path)) if table.find(path[:i]))


def test_comments_stay() -> None:
    from dataclasses import replace

    table = schema("a: long, a_string@a: string")
    told = [replace(table.struct.fields[0], doc="in bytes"), table.struct.fields[1]]
    table = replace(table, struct=replace(table.struct, fields=tuple(told)))
    plan = resolution(table, ("a",), parse_type("string"))
    between = apply(table, [AddColumn(parent, f) for parent, f in plan.before(table, {(): []})])
    assert [f.doc for f in plan.after(between, {(): []}).struct.fields] == ["in bytes"]


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("a_b", "`a.b`"),
        ("a.b", "`a.b`"),
        ("a_b_string", "`a.b`"),
        ("r.c_d", "r.`c.d`"),
        ("r.c.d", "r.`c.d`"),
        ("l.x_string", "l.x"),
        ("l.element.x_string", "l.x"),
    ],
)
def test_a_column_s_name_in_place_of_its_field_s_path_is_answered_with_the_path(
    named: str, meant: str
) -> None:
    table = schema(
        'a_b@"a.b": long, a_b_string@"a.b": string, r: {c_d@"c.d": long}, l: {x: long, x_string@x: string}[1]'
    )
    with pytest.raises(UsageError, match=f"did you mean {re.escape(meant)}\\?"):
        resolution(table, parse_path(named), parse_type("string"))


@pytest.mark.parametrize(
    ("field", "type_", "message"),
    [
        ("b", "long", "there is no field b\nsee driftline schema"),
        ("a.x", "long", "there is no field a.x"),
        ("r.xx", "long", "there is no field r.xx\ndid you mean r.x?"),
        ("a", "long", "nothing to fold"),
        ("r", "long", "nothing to fold"),
        ("r", "record", "resolve cannot fold into record"),
        ("r", "list<record>", "resolve cannot fold into list<record>"),
        ("a", "map<string, list<long>>", "nothing to fold"),
        ("a", "map<string, record>", "no such records"),
        ("a", "map<string, struct<x: int>>", "resolve cannot fold into a map of"),
        ("a", "list<map<string, long>>", "resolve cannot fold into"),
    ],
)
def test_nothing_to_resolve(field: str, type_: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolution(schema("a: long, r: {x: long}"), parse_path(field), parse_type(type_))


def test_paths_are_spelled_as_they_are_read() -> None:
    for path in (("a",), ("a", "b.c"), ("`", "x`y"), ("a b", "ü", "'\"")):
        assert parse_path(spelled_path(path)) == path
