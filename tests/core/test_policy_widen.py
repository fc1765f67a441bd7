"""The `widen` policy against the seed: the matrix of "Widening Column Types" cell by cell, and its usage notes."""

from __future__ import annotations

import pytest

from core.shapes import batch, changes, conflicts, drift, same, show
from driftline.core.planning.planner import plan
from driftline.core.schema.types import Schema
from driftline.core.settings.fields import OfPaths, field_settings
from driftline.core.settings.table import TableSettings

WIDEN = TableSettings(fields=field_settings("widen"))
REWRITE = TableSettings(fields=field_settings("widen"), allow_rewrite=True)

# The seed's matrix as it is printed: incoming type, then the table's type afterwards for a table of each type.
# `*`: the format reaches that type only by writing the column anew, which `allow_rewrite` allows; X else.
TABLE_TYPES = ("int", "long", "float", "double", "string", "binary")
MATRIX = [
    ("int",    "int",     "long",    "float",   "double", "string", "X"),
    ("long",   "long",    "long",    "float",   "double", "string", "X"),
    ("float",  "float*",  "float*",  "float",   "double", "string", "X"),
    ("double", "double*", "double*", "double",  "double", "string", "X"),
    ("string", "string*", "string*", "string*", "string*", "string", "binary"),
    ("binary", "X",       "X",       "X",       "X",      "string", "binary"),
]  # fmt: skip
CELLS = [
    (incoming, table, cell) for incoming, *row in MATRIX for table, cell in zip(TABLE_TYPES, row, strict=True)
]
# Where a column of the matrix may stand: in a table, and in a batch.
PLACES = [
    ("top level", "a: {}", "a: {}!typed", "a"),
    ("nested", "s: {{a: {}}}", "s: {{a: {}!typed}}", "s.a"),
    ("deep", "s: {{t: {{a: {}}}[1]}}[2]", "s: {{t: {{a: {}!typed}}[1]}}[2]", "s.element.element.t.element.a"),
    ("list element", "a: {}[1]", "a: {}[1]!typed", "a"),
    ("map value", "a: map<string, {}>", "a: map<string, {}!typed>", "a.value"),
]


@pytest.mark.parametrize(("place", "table_text", "batch_text", "path"), PLACES, ids=[p[0] for p in PLACES])
@pytest.mark.parametrize(("incoming", "table", "cell"), CELLS, ids=[f"{i} into {t}" for i, t, _ in CELLS])
def test_matrix(
    incoming: str, table: str, cell: str, place: str, table_text: str, batch_text: str, path: str
) -> None:
    before, text = table_text.format(table), batch_text.format(incoming)
    for settings in (WIDEN, REWRITE):
        planned = drift(text, before=before, settings=settings)
        refused = cell == "X" or (cell.endswith("*") and settings is WIDEN)
        after = table if refused else cell.rstrip("*")
        assert show(planned.schema) == same(table_text.format(after))
        assert list(conflicts(planned)) == ([path] if refused else [])
        rewritten = [c for c in planned.changes if c.action == "rewrite"]
        assert bool(rewritten) == (cell.endswith("*") and not refused)
        for conflict in planned.conflicts:
            assert ("set allow_rewrite = true" in conflict.why) == cell.endswith("*")


INCOMPATIBLE = [
    ("a boolean never changes", "a: boolean", "a: long", "a"),
    ("nor does anything become one", "a: long", "a: boolean", "a"),
    ("a boolean is no text", "a: string", "a: boolean", "a"),
    ("a logical type never changes: decimal", "a: decimal(9,2)", "a: decimal(18,2)!typed", "a"),
    ("a logical type never changes: date", "a: date", "a: timestamp", "a"),
    ("a date is not text in a typed source", "a: string", "a: date!typed", "a"),
    ("a number is no date", "a: date", "a: long", "a"),
    ("a text is no timestamp", "a: timestamp", "a: string", "a"),
    ("a list is no value", "a: long", "a: long[1]", "a"),
    ("a value is no list", "a: long[1]", "a: long", "a"),
    ("a list is as deep as it is", "a: long[2]", "a: long[1]", "a"),
    ("a list of mixed depth", "a: long[2]", "a: long[2]!ragged", "a"),
    ("a record is no value", "a: long", "a: {x: long}", "a"),
    ("a record is no list of records", "a: {x: long}[1]", "a: {x: long}", "a"),
    ("a record is no map", "a: map<string, long>", "a: struct{x: long}", "a"),
    ("a map is no record", "a: {x: long}", "a: map<string, long>", "a"),
    ("a name that begins with _ comes only with the table", "b: long", "_a: long", "_a"),
    ("nested too", "s: {b: long}", "s: {b: long, _a: long}", "s._a"),
    ("a required column that the whole batch lacks", "a: long!required, b: long", "b: long", "a"),
    ("a long that is not exact in a float", "a: float", "a: long!lossy", "a"),
    ("a long that is not exact in a double", "a: double", "a: long!wide", "a"),
    ("bytes that are not text", "a: string", "a: binary!lossy", "a"),
]


@pytest.mark.parametrize("settings", [WIDEN, REWRITE], ids=["", "allow_rewrite"])
@pytest.mark.parametrize(("case", "before", "text", "path"), INCOMPATIBLE, ids=[c[0] for c in INCOMPATIBLE])
def test_incompatible(case: str, before: str, text: str, path: str, settings: TableSettings) -> None:
    planned = drift(text, before=before, settings=settings)
    assert list(conflicts(planned)) == [path]
    assert show(planned.schema) == same(before)


COMPATIBLE = [
    ("new columns come last, nested ones too",
     "b: long, s: {y: long}", ["s: {x: long}, a: string"], "b: long, s: {y: long, x: long}, a: string"),
    ("the table's first batch may bring names with _", "", ["_id: long, a: {_x: long}"], "_id: long, a: {_x: long}"),
    ("what is missing stays", "a: long, b: string", ["b: string"], "a: long, b: string"),
    ("what comes back fills the column that is there",
     "", ["a: long, b: long", "b: long", "a: long, b: long"], "a: long, b: long"),
    ("a null makes a required column optional", "a: long!required", ["a: long | null"], "a: long"),
    ("any type becomes optional", "a: boolean!required", ["a: boolean | null"], "a: boolean"),
    ("example 1: int, then long, then int", "a: int", ["a: long", "a: int"], "a: long"),
    ("text that looks like a date is text", "a: string", ["a: date"], "a: string"),
    ("a declared decimal takes what fits it", "a: decimal(18,2)", ["a: decimal(18,2)"], "a: decimal(18,2)"),
    ("null, [] and {} are no conflict", "a: long", ["a: [] | {}"], "a: long"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "before", "batches", "after"), COMPATIBLE, ids=[c[0] for c in COMPATIBLE])
def test_compatible(case: str, before: str, batches: list[str], after: str) -> None:
    planned = drift(*batches, before=before, settings=WIDEN)
    assert conflicts(planned) == {}
    assert show(planned.schema) == same(after)


FIRST_SIGHT = [
    ("long, then a fraction", ["a: long", "a: double"], "a: long", "double", "a: double"),
    ("a fraction, then a long", ["a: double", "a: long"], "a: double", None, "a: double"),
    ("long, then text", ["a: long", "a: string"], "a: long", "string", "a: string"),
    ("text, then a long", ["a: string", "a: long"], "a: string", None, "a: string"),
    ("boolean, then text", ["a: boolean", "a: string"], "a: boolean", "string", "a: boolean"),
    ("int, then long", ["a: int", "a: long"], "a: long", None, "a: long"),
]


@pytest.mark.parametrize(
    ("case", "parts", "after", "refused", "rewritten"), FIRST_SIGHT, ids=[c[0] for c in FIRST_SIGHT]
)
def test_first_sight_goes_by_the_record_that_comes_first(
    case: str, parts: list[str], after: str, refused: str | None, rewritten: str
) -> None:
    """One batch or two: what becomes of the second type does not hang on where batches are cut."""
    together = batch(" | ".join([parts[0], parts[1].removeprefix("a: ")]))
    for settings, expected in ((WIDEN, after), (REWRITE, rewritten)):
        one = plan(Schema(), together, settings)
        two = drift(*parts, settings=settings)
        assert show(one.schema) == show(two.schema) == same(expected)
        assert conflicts(one) == conflicts(two)
    assert conflicts(drift(*parts, settings=WIDEN)) == ({"a": refused} if refused else {})


def test_a_rewrite_inside_a_list_or_map_is_one_of_the_column() -> None:
    planned = drift(
        "a: {b: string[2], m: map<string, string>}",
        before="a: {b: long[2], m: map<string, long>}",
        settings=REWRITE,
    )
    assert changes(planned) == ["rewrite a.b: string[2]", "rewrite a.m: map<string, string>"]
    old, new = planned.before.find(("a", "b")), planned.schema.find(("a", "b"))
    assert old is not None and new is not None and old.id != new.id
    assert [f.name for f in planned.schema.struct.fields] == [f.name for f in planned.before.struct.fields]


def test_what_a_hint_names_is_never_widened() -> None:
    from driftline.core.schema.types import INT

    pinned = TableSettings(
        fields=field_settings("widen", paths=OfPaths(hints={("a",): INT})), allow_rewrite=True
    )
    planned = drift("a: long", before="a: int", settings=pinned)
    assert (show(planned.schema), conflicts(planned)) == (same("a: int"), {"a": "long"})
