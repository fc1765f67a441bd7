"""Required columns: which become optional, which stay because their default fills them, which refuse records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.shapes import batch, changes, conflicts, schema
from driftline.core.planning.planner import plan
from driftline.core.schema.types import Default, Schema, Struct
from driftline.core.settings.fields import field_settings
from driftline.core.settings.table import TableSettings

# A title, the table, its default for `a`, a batch, and what is asked of the table.
CASES = [
    ("no value, no default", "a: long!required", None, "a: long | null", ["relax a: long"]),
    ("no value, but a default", "a: long!required", 7, "a: long | null", []),
    ("a default that is nothing much", "a: long!required", 0, "a: long | null", []),
    ("nulls only", "a: long!required", 7, "a: null", []),
    ("no such key, no default", "a: long!required, b: long", None, "b: long", ["relax a: long"]),
    ("no such key, but a default", "a: long!required, b: long", 7, "b: long", []),
    ("a value of another type is a value", "a: long!required", 7, "a: long | {x: date}",
     ["add a_record.x: date", "add a_record: {x: date}", "relax a: long"]),
    ("an empty list is no null", "a: long!required", 7, "a: long | []", ["relax a: long"]),
    ("an empty object is no null", "a: long!required", 7, "a: long | {}", ["relax a: long"]),
]  # fmt: skip


@pytest.mark.parametrize(("title", "table", "default", "seen", "asked"), CASES, ids=[c[0] for c in CASES])
def test_required(title: str, table: str, default: Default, seen: str, asked: list[str]) -> None:
    planned = plan(with_default(schema(table), default), batch(seen))
    assert sorted(changes(planned)) == asked
    assert not planned.conflicts
    column = planned.schema.find(("a",))
    assert column is not None
    assert column.required == ("relax a: long" not in asked)


@pytest.mark.parametrize("policy", ["widen", "strict"])
def test_a_policy_that_refuses_what_has_no_value(policy: str) -> None:
    """A default is a value."""
    settings = TableSettings(fields=field_settings(policy))
    table = schema("a: long!required, b: long")
    refused = plan(table, batch("b: long"), settings)
    assert list(conflicts(refused)) == ["a"]
    filled = plan(with_default(table, 7), batch("b: long"), settings)
    assert not filled.conflicts
    assert not filled.changes


def test_inside_a_struct() -> None:
    """A struct that is there has its field's default; one that is not has nothing to require."""
    table = schema("s: {a: long!required, x: long}")
    (s,) = table.struct.fields
    assert isinstance(s.type, Struct)
    inner = with_default(Schema(s.type), 7).struct
    planned = plan(Schema(Struct((replace(s, type=inner),))), batch("s: {x: long}"))
    assert not planned.changes


def with_default(table: Schema, default: Default) -> Schema:
    first, *rest = table.struct.fields
    return replace(table, struct=Struct((replace(first, write_default=default), *rest)))
