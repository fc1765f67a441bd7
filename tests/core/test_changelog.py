"""The last changes of a table in one of its properties: bounded, and readable whatever is in it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.core.changes import AddColumn, Reason
from driftline.core.history import entries
from driftline.core.history.entries import Ids, Step
from driftline.core.schema.types import STRING, Field


def step(n: int) -> Step:
    return Step(Ids(n - 1, 0, 0) if n else None, Ids(n, 0, 0), n or None)


def noted(told: dict[str, str], n: int, before: dict[str, str]) -> dict[str, str]:
    return before | entries.with_change(told, step(n), before, before)


def test_changes_are_told_in_their_order() -> None:
    properties = noted(entries.of_batch("b1", [added("a")]), 0, {})
    properties = noted(entries.of_statements("ALTER …"), 1, properties)
    first, last = entries.last_changes(properties)
    assert (first.step, last.step) == (step(0), step(1))
    assert (first.record.by, first.record.batch, first.record.rules[0].path) == ("batch", "b1", "a")
    assert (last.record.by, last.record.text) == ("alter", "ALTER …")
    assert first.at <= last.at


def test_a_change_is_known_among_those_that_came_behind_it() -> None:
    same = entries.of_statements("ALTER …"), entries.of_statements("ALTER …")
    mine, other = (noted(told, 1, noted(entries.of_statements("x"), 0, {})) for told in same)
    assert entries.is_noted(noted(entries.of_statements("y" * 900), 2, mine), mine)
    assert not entries.is_noted(other, mine)
    assert not entries.is_noted({}, mine)
    assert not entries.is_noted(mine, {})


def test_what_changes_no_definition_is_not_among_them() -> None:
    told = entries.of_statements("SET TBLPROPERTIES …")
    assert entries.with_change(told, Step(Ids(1, 0, 0), Ids(1, 0, 0), 7), {}, {"x": "y"}) == {}
    assert entries.with_change({}, step(1), {}, {}) == {}


def test_a_key_that_is_set_is_among_them_though_it_changes_no_schema() -> None:
    told, same = entries.of_statements("SET TBLPROPERTIES …"), Step(Ids(1, 0, 0), Ids(1, 0, 0), 7)
    after = {"driftline.key": "id", "driftline.delete-when": "op = 'd'", "x": "y"}
    (change,) = entries.last_changes(entries.with_change(told, same, {"x": "z"}, after))
    assert (change.step, change.properties_before(after)) == (same, {"x": "y"})
    assert entries.with_change(told, same, after, {**after, "driftline.deletes": "hard"}) == {}


@pytest.mark.slow
@settings(deadline=None, max_examples=5)
@given(
    st.lists(st.lists(st.text(max_size=200), max_size=60) | st.text(max_size=2000), min_size=1, max_size=8)
)
def test_it_is_bounded(given: list[list[str] | str]) -> None:
    properties: dict[str, str] = {}
    for n in range(120):
        one = given[n % len(given)]
        told = (
            entries.of_statements(one) if isinstance(one, str) else entries.of_batch(f"b{n}", map(added, one))
        )
        made = entries.with_change(told, step(n), properties, properties)
        properties |= made
        assert len(properties.get(entries.LAST_CHANGES, "")) <= entries.LAST_CHANGES_LIMIT
        if made:
            newest = entries.last_changes(properties)[-1]
            assert newest.record == entries.read_record(told, {}), "the last change is told as it was"
    kept = entries.last_changes(properties)
    assert len(kept) <= entries.CHANGES
    assert [c.step.after.schema for c in kept] == sorted(c.step.after.schema for c in kept)


def test_older_changes_are_shortened() -> None:
    properties = noted(entries.of_batch("b", [added(f"column{i}") for i in range(100)]), 0, {})
    assert len(properties[entries.LAST_CHANGES]) > entries.SHORT
    properties = noted(entries.of_statements("x" * 900), 1, properties)
    properties = noted(entries.of_statements("y"), 2, properties)
    first, second, _ = entries.last_changes(properties)
    assert first.record.left_out + len(first.record.rules) == 100
    assert 0 < len(first.record.rules) < 100
    assert second.record.text.endswith("…")
    assert len(properties[entries.LAST_CHANGES]) < 2 * entries.SHORT + 200


def test_which_schema_files_were_written_with() -> None:
    steps = [(None, 0, 1), (0, 1, 4), (2, 3, 9), (3, 0, 9)]
    properties: dict[str, str] = {}
    for before, after, sequence in steps:
        one = Step(None if before is None else Ids(before, 0, 0), Ids(after, 0, 0), None, sequence)
        properties |= entries.with_change(entries.of_statements("x"), one, properties, properties)
    changes = entries.last_changes(properties)
    assert entries.written_with(changes, 0) == [(1, 0), (4, None), (9, 3), (9, 0)]
    assert entries.written_with(changes, 7)[-1] == (9, None)
    assert entries.written_with((), 7) == []


def test_properties_that_a_change_took_along() -> None:
    before = {"driftline.hints.a": "long", "write.distribution-mode": "hash", "owner": "me", "secret": "x"}
    after = {"driftline.hints.a": "string", "driftline.resolved.a": "string", "owner": "you"}
    made = entries.with_change(entries.of_resolve("a"), step(3), before, after)
    (change,) = entries.last_changes(made)
    assert change.properties_before(after) == {
        "driftline.hints.a": "long",
        "write.distribution-mode": "hash",
        "owner": "you",
    }
    assert "me" not in made[entries.LAST_CHANGES] and "secret" not in made[entries.LAST_CHANGES]


@pytest.mark.parametrize(
    "text", ["", "{", "7", "[7]", "[{}]", '[{"at": 1, "from": [1], "to": null}]', '{"at": 1}', "[[]]"]
)
def test_a_property_that_somebody_spoilt(text: str) -> None:
    spoilt = {entries.LAST_CHANGES: text}
    assert entries.last_changes(spoilt) == ()
    assert entries.author_of(spoilt, {}) is None
    (change,) = entries.last_changes(noted(entries.of_statements("x"), 4, spoilt))
    assert change.step == step(4)


def test_who_made_a_version() -> None:
    one = noted(entries.of_statements("x"), 1, {})
    two = noted(entries.of_statements("x"), 2, one)
    assert entries.author_of(two, one).by == "alter"  # type: ignore[union-attr]
    assert entries.author_of(one, one) is None, "somebody else's, who leaves the property as it is"
    assert entries.author_of(one | {entries.BATCH: "b2"}, one) == entries.ChangeRecord("batch", batch="b2")
    older = one | entries.of_undo("by an older release")
    assert entries.author_of(older, one).by == "undo"  # type: ignore[union-attr]
    assert json.loads(two[entries.LAST_CHANGES])[0]["from"] == [0, 0, 0]


def added(name: str) -> AddColumn:
    return AddColumn((), Field(name, STRING), Reason("sibling", "because", ("size",)))
