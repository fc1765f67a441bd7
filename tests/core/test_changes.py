"""Changes applied to a schema: the schema after, and the ids that a table would give."""

from __future__ import annotations

import pytest

from core.shapes import same, schema, show
from driftline.core.changes import (
    AddColumn,
    Change,
    Reason,
    RelaxColumn,
    RenameColumn,
    SetDoc,
    WidenColumn,
    apply,
    diff,
    in_words,
    reportable,
    to_dict,
)
from driftline.core.schema.types import DATE, DOUBLE, LONG, STRING, Field, List, SourceLocation


def new(text: str) -> Field:
    """A column, whose ids are none of the table's."""
    (field,) = schema(text).struct.fields
    return field


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("a: long", [], "a: long"),
        ("", [AddColumn((), new("a: long"))], "a: long"),
        ("a: long", [AddColumn((), new("b: {x: date}[1]"))], "a: long, b: {x: date}[1]"),
        ("p: {x: long}, q: date", [AddColumn(("p",), new("y: date"))], "p: {x: long, y: date}, q: date"),
        (
            "p: {x: long}[2]",
            [AddColumn(("p", "element", "element"), new("y: date"))],
            "p: {x: long, y: date}[2]",
        ),
        (
            "m: map<string, {x: long}>",
            [AddColumn(("m", "value"), new("y: date"))],
            "m: map<string, {x: long, y: date}>",
        ),
        (
            "",
            [AddColumn((), new("p: {x: long}")), AddColumn(("p",), new("x: long"), within=True)],
            "p: {x: long}",
        ),
        (
            "",
            [AddColumn((), new("p: {x: long}")), AddColumn(("p",), new("y: date"))],
            "p: {x: long, y: date}",
        ),
        ("a: int!required", [WidenColumn(("a",), LONG)], "a: long!required"),
        ("a: {x: float}[1]", [WidenColumn(("a", "element", "x"), DOUBLE)], "a: {x: double}[1]"),
        ("a: int[2]!elements", [WidenColumn(("a", "element", "element"), LONG)], "a: long[2]!elements"),
        ("m: map<string, int>!values", [WidenColumn(("m", "value"), LONG)], "m: map<string, long>!values"),
        ("a: long!required", [RelaxColumn(("a",), LONG)], "a: long"),
        ("p: {x: long!required}!required", [RelaxColumn(("p", "x"), LONG)], "p: {x: long}!required"),
        ("a: long[1]!elements", [RelaxColumn(("a", "element"), LONG)], "a: long[1]"),
        ("m: map<string, date>!values", [RelaxColumn(("m", "value"), DATE)], "m: map<string, date>"),
    ],
)
def test_apply(before: str, changes: list[Change], after: str) -> None:
    applied = apply(schema(before), changes)
    assert show(applied) == same(after)
    known = {path: field.id for path, field in schema(before).walk()}
    found = {path: field.id for path, field in applied.walk()}
    assert {path: found[path] for path in known} == known
    assert sorted(found.values()) == list(range(1, len(found) + 1))


def test_new_ids_level_by_level() -> None:
    applied = apply(
        schema("a: long"), [AddColumn((), new("p: {x: long[1], m: map<string, {y: date}>, z: long}"))]
    )
    assert {".".join(path): field.id for path, field in applied.walk()} == {
        "a": 1,
        "p": 2,
        "p.x": 3,
        "p.m": 4,
        "p.z": 5,
        "p.x.element": 6,
        "p.m.key": 7,
        "p.m.value": 8,
        "p.m.value.y": 9,
    }


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (AddColumn(("nowhere",), new("x: long")), "nowhere"),
        (AddColumn(("a",), new("x: long")), "no struct to add x to, but long"),
        (WidenColumn(("p", "y"), LONG), "y"),
    ],
)
def test_a_path_that_is_not_there(change: Change, error: str) -> None:
    with pytest.raises((KeyError, TypeError), match=error):
        apply(schema("a: long, p: {x: int}"), [change])


def test_as_printed() -> None:
    reason = Reason(
        "sibling", "a string is no long", ("a", "element", "b"), "x", SourceLocation("part.json", 7)
    )
    change = AddColumn(("a", "element"), Field("b_string", List(STRING)), reason)
    assert to_dict(change) == {
        "action": "add",
        "path": "a.element.b_string",
        "field": "a.element.b",
        "type": "list<string>",
        "rule": "sibling",
        "why": "a string is no long",
        "sample": "x",
        "seen_in": "part.json:7",
    }
    assert to_dict(WidenColumn(("a",), LONG))["field"] == "a"
    assert [to_dict(c)["action"] for c in (WidenColumn(("a",), LONG), RelaxColumn(("a",), LONG))] == [
        "widen",
        "relax",
    ]


def test_what_a_rename_leaves_in_the_comment_is_not_told() -> None:
    before = schema("a: long, b: long, c: long")
    now = apply(before, [RenameColumn((x,), f"{x}2") for x in "abc"])
    now = apply(now, [SetDoc(("b2",), "in bytes"), SetDoc(("c2",), "upsolver_evolved_from:d\nof d")])
    assert [in_words(c) for c in reportable(diff(before, now))] == [
        'b comment "in bytes"',
        'c comment "of d"',
        "a is now a2",
        "b is now b2",
        "c is now c2",
    ]
    assert in_words(SetDoc(("a",), "upsolver_evolved_from:b")) == "a is filled from b"
    assert in_words(SetDoc(("a",), "upsolver_evolved_from:b\nx")) == 'a is filled from b, comment "x"'
    assert in_words(SetDoc(("a",), None)) == "a comment removed"
