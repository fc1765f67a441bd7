"""Policies by path, hints, excludes, and the settings that say them; the `strict` policy."""

from __future__ import annotations

import pytest

from core.shapes import changes, conflicts, drift, same, show
from driftline.core.planning.policies import POLICIES
from driftline.core.schema.text import parse_type
from driftline.core.settings.declarations import SETTINGS
from driftline.core.settings.fields import PRESERVE, OfPaths, field_settings, parse_path
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.table import TableSettings
from driftline.errors import UsageError


def settings(**given: object) -> TableSettings:
    return from_properties(as_properties(given))


# What is set, the table, a batch, the table afterwards, what is refused.
CASES = [
    ("strict: a new column", {"policy": "strict"}, "a: long", "a: long, b: string", "a: long", {"b": "string"}),
    ("strict: what fits goes in", {"policy": "strict"}, "a: string, d: double", "a: long | boolean, d: long",
     "a: string, d: double", {}),
    ("strict: what does not", {"policy": "strict"}, "a: long", "a: long | string", "a: long", {"a": "string"}),
    ("strict: no width is gained", {"policy": "strict"}, "a: int", "a: long", "a: int", {"a": "long"}),
    ("strict: nested", {"policy": "strict"}, "a: {x: long}[1]", "a: {x: long, y: {z: long}}[1]",
     "a: {x: long}[1]", {"a.element.y": "record"}),
    ("strict: a required column stays so", {"policy": "strict"}, "a: long!required", "a: long | null",
     "a: long!required", {"a": "nothing"}),
    ("strict: what a hint declares is in the schema", {"policy": "strict", "hints": {"b": "long"}}, "a: long", "a: long, b: long",
     "a: long, b: long", {}),
    ("below a path, not itself", {"policies": {"p.*": "strict"}}, "p: {x: long}, q: long", "p: string, q: string",
     "p: {x: long}, q: long, p_string@p: string, q_string@q: string", {}),
    ("below a path", {"policies": {"p.*": "strict"}}, "p: {x: long}", "p: {x: string, y: long}, q: long",
     "p: {x: long}, q: long", {"p.x": "string", "p.y": "long"}),
    ("a path and what is below", {"policies": {"p": "strict"}}, "p: {x: long}", "p: string | {x: string}",
     "p: {x: long}", {"p": "string", "p.x": "string"}),
    ("the longest path counts", {"policy": "strict", "policies": {"p.free": "preserve"}}, "p: {x: long}",
     "p: {x: string, free: long}", "p: {x: long, free: long}", {"p.x": "string"}),
    ("a struct that is new is frozen as its first batch makes it", {"policies": {"p.*": "strict"}}, "q: long",
     "p: {x: long}", "q: long, p: {x: long}", {}),
    ("through lists, with the step or without", {"policies": {"p.x": "strict", "p.element.y": "strict"}}, "p: {x: long, y: long}[1]",
     "p: {x: string, y: string}[1]", "p: {x: long, y: long}[1]", {"p.element.x": "string", "p.element.y": "string"}),
    ("widen below preserve", {"policies": {"p": "widen"}}, "p: int, q: int", "p: string, q: string",
     "p: int, q: int, q_string@q: string", {"p": "string"}),
    ("a hint makes its column at once", {"hints": {"amount": "decimal(18,2)"}}, "", "a: long", "amount: decimal(18,2), a: long", {}),
    ("a hint precedes", {"hints": {"a": "decimal(18,2)"}}, "", "a: decimal(18,2) | string",
     "a: decimal(18,2), a_string@a: string", {}),
    ("a hint is never widened", {"hints": {"a": "int"}}, "", "a: int | long", "a: int, a_long@a: long", {}),
    ("one or many", {"hints": {"x": "list<record>"}}, "", "x: {a: long} | {b: long}[1]", "x: {a: long, b: long}[1]", {}),
    ("one or many, later", {"hints": {"x": "list<record>"}}, "x: {a: long}", "x: {b: long}",
     "x: {a: long, b: long}, x_array_record@x: {b: long}[1]", {}),
    ("a record is made when the data brings its fields", {"hints": {"x": "list<record>"}}, "", "a: long", "a: long", {}),
    ("keys that are data", {"hints": {"x": "map<string, long>"}}, "", "x: {k1: long, k2: long}", "x: map<string, long>", {}),
    ("keys that are data, of another type", {"hints": {"x": "map<string, long>"}}, "", "x: {k1: long, k2: string}",
     "x: map<string, long>, x_map_string@x: map<string, string>", {}),
    ("a struct is declared field by field", {"hints": {"s": "struct<a: decimal(9,2), b: list<long>>"}}, "", "s: {c: long}",
     "s: {a: decimal(9,2), b: long[1], c: long}", {}),
    ("a field of a record that is there", {"hints": {"s.a": "decimal(9,2)"}}, "s: {b: long}", "s: {b: long}",
     "s: {b: long, a: decimal(9,2)}", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "given", "before", "text", "after", "refused"), CASES, ids=[c[0] for c in CASES]
)
def test_contract(
    case: str, given: dict[str, object], before: str, text: str, after: str, refused: dict[str, str]
) -> None:
    planned = drift(text, before=before, settings=settings(**given))
    assert conflicts(planned) == refused
    assert show(planned.schema) == same(after)
    again = drift(text, before=show(planned.schema), settings=settings(**given))
    assert changes(again) == [], "the table takes what it took"
    assert conflicts(again) == refused


WRONG = [
    ({"polcy": "widen"}, "there is no setting 'polcy'", "did you mean 'policy'?"),
    ({"policy": "widn"}, "policy = 'widn' is not possible", "did you mean 'widen'?"),
    ({"hint.amount": "long"}, "there is no setting 'hint.amount'", "did you mean 'hints.amount'?"),
    ({"hints": {"amount": "decimal(18;2)"}}, "hints.amount: 'decimal(18;2)' is not a type", None),
    ({"hints": {"amount": "decimal(40,2)"}}, "1 to 38 digits", None),
    ({"hints": {"a..b": "long"}}, "'a..b' is not a path", None),
    (
        {"policies": {"p.*": "frozen"}},
        "policies.p.* = 'frozen' is not possible",
        "one of preserve, widen, strict",
    ),
    ({"exclude.a": "maybe"}, "exclude.a = 'maybe' is not possible", "one of true, false"),
    ({"max_columns": "many"}, "max_columns = 'many' is not a whole number", None),
    ({"hints": "long"}, "there is no setting 'hints'", "write hints.PATH"),
]


@pytest.mark.parametrize(("given", "message", "hint"), WRONG)
def test_wrong_settings(given: dict[str, object], message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as raised:
        as_properties(given)
    assert message in raised.value.message
    assert hint is None or raised.value.hint == hint


def test_settings_survive_as_properties() -> None:
    given = {
        "policy": "widen",
        "policies": {"a.`b.c`": "strict"},
        "exclude": ["x.y"],
        "epoch_units": {"t": "s"},
    }
    kept = as_properties(given)
    tree = from_properties(kept).fields
    assert tree.of("a").of("b.c").policy == "strict"
    assert (tree.policy, tree.of("x").of("y").excluded, tree.of("t").epoch_unit) == ("widen", True, "s")
    taken_back = from_properties(
        {**kept, **as_properties({"policies": {"a.`b.c`": ""}, "exclude.x.y": "false"})}
    )
    assert taken_back.fields.of("a").of("b.c").policy == "widen"
    assert not taken_back.fields.of("x").of("y").excluded


TYPES = [
    ("LONG", "long"), ("bigint", "long"), ("decimal(18, 2)", "decimal(18, 2)"), ("numeric(5)", "decimal(5, 0)"),
    ("timestamptz", "timestamp"), ("varchar[]", "list<string>"), ("int[][]", "list<list<int>>"),
    ("struct<`a b`: long, c struct<d: date>>", "struct<a b: long, c: struct<d: date>>"),
    ("map(varchar, row(a bigint))", "map<string, struct<a: long>>"), ("fixed[16]", "fixed[16]"), ("record", "struct<>"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), TYPES)
def test_types(text: str, shown: str) -> None:
    assert str(parse_type(text)) == shown


@pytest.mark.parametrize(
    "text",
    ["", "long long", "list<", "list<long", "map<list<long>, long>", "struct<a: long, a: int>", "unknown"],
)
def test_no_types(text: str) -> None:
    with pytest.raises(ValueError, match="is not a type"):
        parse_type(text)


def test_a_type_that_was_meant_is_named() -> None:
    with pytest.raises(ValueError, match=r"^'dubble' is not a type; did you mean double\?$"):
        parse_type("dubble")
    with pytest.raises(ValueError, match=r"^'list<dubble>' is not a type: there is no type dubble; did you"):
        parse_type("list<dubble>")


def test_paths() -> None:
    assert parse_path("a.`b``c.d`.e") == ("a", "b`c.d", "e")
    tree = field_settings(paths=OfPaths(policies={("a",): "strict", ("a", "b"): "preserve"}))
    assert [tree.of("a").policy, tree.of("a").of("b").policy, tree.of("a").of("c").policy] == [
        "strict",
        "preserve",
        "strict",
    ]


def test_each_policy_of_the_setting_is_implemented() -> None:
    assert tuple(POLICIES) == SETTINGS["policy"].values
    assert [name for name, policy in POLICIES.items() if policy.keeps_all] == [PRESERVE]
