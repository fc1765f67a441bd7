"""Who changed a table: the property that tells, and the history that is read back from it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from core.shapes import schema
from driftline.core.changes import AddColumn, Reason, RelaxColumn
from driftline.core.history import entries as record
from driftline.core.history.entries import Version, entries
from driftline.core.schema.definition import Definition
from driftline.core.schema.types import LONG, STRING, Field, SourceLocation


def added(name: str, rule: str, *, within: bool = False) -> AddColumn:
    reason = Reason(rule, "because", ("s", "size"), "a sample", SourceLocation("file.json", 7))
    return AddColumn(("s",), Field(name, STRING), reason, within)


def test_a_batch_tells_its_rules() -> None:
    relaxed = RelaxColumn(("a",), LONG, Reason("relax", "why", ("a",)))
    kept = record.of_batch(
        "b1", [added("size_string", "sibling"), relaxed, added("x", "sibling", within=True)]
    )
    told = record.read_record(kept, {})
    assert told == record.ChangeRecord(
        "batch",
        batch="b1",
        rules=(record.Rule("s.size_string", "sibling", "s.size", "file.json:7"), record.Rule("a", "relax")),
    )
    assert "a sample" not in kept[record.CHANGE_RECORD], "samples are data"
    assert record.of_batch("b1", []) == {}


@given(st.lists(st.text(max_size=300), max_size=200), st.sampled_from(["sibling", "first-sight"]))
def test_it_is_bounded(names: list[str], rule: str) -> None:
    changes = [added(name, rule) for name in names] + [added("last", "common-denominator")]
    (text,) = record.of_batch("b1", changes).values()
    assert len(text) <= record.RECORD_LIMIT
    told = record.read_record({record.CHANGE_RECORD: text}, {})
    assert told is not None and len(told.rules) + told.left_out == len(changes)
    if rule == "first-sight":
        assert told.rules[0].rule == "common-denominator", "what is plain is left out first"


def test_statements_are_cut() -> None:
    (text,) = record.of_statements("x" * 100_000).values()
    assert len(text) < record.RECORD_LIMIT


def test_who_made_a_version() -> None:
    one, two = record.of_statements("ALTER …"), record.of_statements("ALTER …")
    assert one != two, "the same statement again is another change"
    assert record.read_record(two, one).by == "alter"  # type: ignore[union-attr]
    assert record.read_record(one, one) is None, "somebody else's, who leaves the property as it is"
    assert record.read_record({record.BATCH: "b2"}, {record.BATCH: "b1"}) == record.ChangeRecord(
        "batch", batch="b2"
    )
    assert record.read_record({record.BATCH: "b1"}, {record.BATCH: "b1"}) is None
    assert record.read_record({}, {record.BATCH: "b1"}) is None


def test_a_record_that_is_broken() -> None:
    for text in ("", "{", "[]", '"x"', '{"by": 1, "rules": 3}', json.dumps({"by": "x", "rules": [[1] * 9]})):
        assert record.read_record({record.CHANGE_RECORD: text}, {}) is None


def version(text: str, id_: int, at: int, told: record.ChangeRecord | None = None) -> Version:
    of = schema(text)
    return Version(at, Definition(type(of)(of.struct, id_)), record=told)


def test_entries() -> None:
    made, altered = record.ChangeRecord("batch", batch="b1"), record.ChangeRecord("alter", "ALTER …")
    versions = [
        version("a: long", 0, 1000, made),
        version("a: long, b: date", 1, 2000, altered),
        version("a: long, b: date, c: date", 2, 3000),
    ]
    found = entries(versions, {}, complete=True)
    assert [(e.by, e.makes_table, len(e.changes)) for e in found] == [
        ("batch", True, 1),
        ("alter", False, 1),
        ("outside", False, 1),
    ]
    assert found[1].to_dict()["changes"] == [{"action": "add", "path": "b", "type": "date"}]
    assert (found[2].to_dict()["schema_before"], found[2].to_dict()["schema"]) == (1, 2)


def test_what_was_cleaned_away_is_unknown() -> None:
    old, new = schema("a: long"), schema("a: long, b: date")
    known = {0: old, 1: type(new)(new.struct, 1)}
    found = entries(
        [version("a: long, b: date", 1, 2000), version("a: long", 0, 3000)], known, complete=False
    )
    assert [(e.by, e.at, e.after.definition.schema.id) for e in found] == [
        ("unknown", None, 0),
        ("unknown", None, 1),
        ("outside", 3000, 0),
    ]
