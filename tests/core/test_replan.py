"""The columns of all records at once: rows turned back into records, planned again, and what differs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random, randrange
from typing import Any

import pyarrow as pa
import pytest

from core.random_steps import Json, steps
from core.table_in_memory import TableInMemory, plain_rows, valued
from driftline.convert.records import RowRecords, is_declared
from driftline.convert.replanner import ColumnSwap, Replanner, _valued
from driftline.convert.witnesses import Witnesses, needed_rows
from driftline.core.changes import apply
from driftline.core.columns.replanning import (
    Replanned,
    ReplannedField,
    ReplanRequest,
    replanned,
    settings_of_rows,
)
from driftline.core.planning.plan import Conversion, Plan
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RecordShape, without_excluded
from driftline.core.schema.naming import MARK, data_key
from driftline.core.schema.schema_json import outline
from driftline.core.schema.types import LONG, Field, List, Map, Path, Schema, Struct, Type
from driftline.core.settings.table import TableSettings
from driftline.core.values import parse
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation

FUZZ = "DRIFTLINE_FUZZ" in os.environ
SEEDS = 3_000 if FUZZ else 150


@dataclass
class Drifting(TableInMemory):
    """A table that knows whether a value was converted."""

    converted: list[Conversion] = field(default_factory=list)

    def _planned(self, seen: Observation) -> Plan:
        planned = super()._planned(seen)
        self.converted += planned.converted
        return planned


def table_of(*batches: Sequence[Any], settings: TableSettings | None = None) -> Drifting:
    table = Drifting(settings or TableSettings())
    for records in batches:
        table.take(Json([*records]))
    return table


def lines_of(table: TableInMemory) -> list[bytes]:
    """The records of its rows."""
    records = RowRecords(table.schema.struct, MARK, table.settings.fields)
    return [line for reading in records.readings() for rows in table.rows for line in reading.lines(rows)]


def needed_lines_of(table: TableInMemory) -> list[bytes]:
    """The records of those of its rows that a plan has to know."""
    records, witnesses = RowRecords(table.schema.struct, MARK, table.settings.fields), Witnesses()
    needed = [needed_rows(records, rows, witnesses) for rows in table.rows]
    return [line for reading in records.readings() for rows in needed for line in reading.lines(rows)]


def replan_of(
    table: TableInMemory, *paths: Path, narrow: bool = False, fixed: Sequence[Path] = ()
) -> Replanned:
    def plan_of(before: Schema, excluded: frozenset[Path]) -> Plan:
        settings = settings_of_rows(table.settings, excluded)
        planned, by_needed = (
            plan(before, shape_of(lines, before, settings), settings)
            for lines in (lines_of(table), needed_lines_of(table))
        )
        assert columns(by_needed.schema.struct) == columns(planned.schema.struct)
        return by_needed

    def inexact(planned: Plan, fields: Sequence[ReplannedField]) -> set[Path]:
        swap = ColumnSwap.of(table.schema, planned, fields, MARK)
        between = apply(table.schema, swap.added)
        replanner = Replanner.of(swap, planned, between, settings_of_rows(table.settings))
        return {path for rows in table.rows for path in replanner.faults(rows)}

    why = dict.fromkeys(fixed, "a test")
    request = ReplanRequest(table.schema, MARK, why, is_declared, paths, narrow)
    return replanned(request, plan_of, inexact)


def shape_of(lines: Sequence[bytes], before: Schema, settings: TableSettings) -> RecordShape:
    observer = JsonObserver(expect(before, settings), settings)
    observer.feed(lines, "rows", 1)
    return without_excluded(observer.result().shape, settings.fields)


def columns(struct: Struct) -> set[tuple[Path, str, Path]]:
    """The columns: their paths, their types, and the keys that fill them."""
    found = set()
    for path, f in Schema(struct).walk():
        parent = Schema(struct).find(path[:-1])
        key = data_key(f, MARK) if parent is None or isinstance(parent.type, Struct) else path[-1]
        found.add((path, outline(f.type), (*path[:-1], key)))
    return found


def applied(table: TableInMemory, outcome: Replanned) -> tuple[Struct, list[Any]]:
    """The columns and the rows that the table has once the outcome is applied; no value is in doubt."""
    swap = ColumnSwap.of(table.schema, outcome.plan, outcome.fields, MARK)
    between = apply(table.schema, swap.added)
    replanner = Replanner.of(swap, outcome.plan, between, settings_of_rows(table.settings))
    rows = []
    for batch in table.rows:
        assert replanner.faults(batch) == set()
        made = replanner.rows(batch)
        made.validate(full=True)
        before = [named(row, between.struct, table.schema.struct) for row in plain_rows(made)]
        assert valued(before) == valued(plain_rows(batch)), "what was there stays beside it, for undo"
        after = swap.after(between).struct
        rows += [named(row, between.struct, after) for row in plain_rows(made)]
    return swap.after(between).struct, rows


def named(value: Any, between: Type, after: Type) -> Any:
    """A value of a struct, or around one, by the columns of another that has some of its ids."""
    match between, after:
        case _ if value is None:
            return None
        case Struct(), Struct():
            by_id = {f.id: f for f in between.fields}
            fields = {f.name: (by_id[f.id], f) for f in after.fields}
            return {name: named(value[old.name], old.type, new.type) for name, (old, new) in fields.items()}
        case List(), List():
            return [named(item, between.element, after.element) for item in value]
        case Map(), Map():
            return {key: named(item, between.value, after.value) for key, item in value.items()}
        case _:
            return value


def unspelled(value: Any) -> Any:
    """A value whose texts have one spelling of a number: that of a whole double is not known."""
    if isinstance(value, list):
        return [unspelled(item) for item in value]
    if isinstance(value, dict):
        return {key: unspelled(item) for key, item in value.items()}
    return value.removesuffix(".0") if isinstance(value, str) else value


SCALARS: tuple[Any, ...] = (
    True, 0, 7, -1, 2**53 + 1, 10**20, 0.5, 1.25, "x", "", "true", "7", "2024-01-02", "2024-01-02T03:04:05.678901Z",
    "2024-01-02T03:04:05", "12:30",
)  # fmt: skip


def value(random: Random, depth: int = 2) -> Any:
    kind = random.random()
    if kind < 0.1:
        return random.choice([None, [], {}])
    if kind < 0.7 or not depth:
        return random.choice(SCALARS)
    if kind < 0.85:  # of one depth: a list of lists beside values has them all wrapped, which nothing tells
        inner = [value(random, depth - 1) for _ in range(random.randint(1, 3))]
        lists = [item for item in inner if isinstance(item, list)]
        return lists or inner
    return {key: value(random, depth - 1) for key in random.sample("pqr", random.randint(1, 2))}


def batches(seed: int) -> list[list[Any]]:
    random = Random(seed)
    return [
        [{key: value(random) for key in random.sample("abc", 2)} for _ in range(random.randint(1, 3))]
        for _ in range(random.randint(1, 4))
    ]


@pytest.mark.parametrize("block", range(4))
def test_batches_that_drifted_get_the_columns_of_one_batch(block: int) -> None:
    first = randrange(10**9) if FUZZ else block * SEEDS
    checked = 0
    for seed in range(first, first + SEEDS):
        drifted = batches(seed)
        table = table_of(*drifted)
        if table.converted or not table.rows:  # what it was is no longer known
            continue
        whole = table_of([record for records in drifted for record in records])
        outcome, name = replan_of(table, narrow=True), f"seed {seed}: {json.dumps(drifted)}"
        if outcome.stay:  # a number may have been a moment
            assert has_moments(drifted), name
            continue
        checked += 1
        assert columns(outcome.plan.schema.struct) == columns(whole.schema.struct), name
        struct, rows = applied(table, outcome)
        assert columns(struct) >= columns(outcome.plan.schema.struct), name
        expected = [row for batch in whole.rows for row in plain_rows(batch)]
        if len(rows) < len(expected):  # records without a value made no table, and wait
            continue
        for column in (column for of_field in outcome.fields for column in of_field.then):
            if len(column.path) == 1:
                found, wanted = (
                    [unspelled(valued(row[column.path[0]])) for row in of_rows]
                    for of_rows in (rows, expected)
                )
                assert found == wanted, f"{column}: {name}"
    assert checked > SEEDS // 10


def has_moments(batches: list[list[Any]]) -> bool:
    return "2024-01-02T" in json.dumps(batches)


def test_a_number_that_may_have_been_a_moment_becomes_no_text_of_one() -> None:
    table = table_of([{"a": "2024-01-02T03:04:05"}, {"a": 0}], [{"a": "x"}])
    outcome = replan_of(table)
    assert not outcome.fields
    assert [(field.path, field.why) for field in outcome.stay] == [
        (("a",), "a value would not read back as it is")
    ]


@pytest.mark.parametrize(
    ("drifted", "rows"),
    [
        ([{"x": 1.5}, {"x": 3}, {"x": "a"}], [("1.5", 1.5), ("3", 3.0), ("a", None)]),
        ([{"x": [1.5]}, {"x": [3, "a"]}], [(["1.5"], [1.5]), (["3", "a"], [3.0, None])]),
        ([{"x": [1.5]}, {"x": [3]}, {"x": ["a"]}], [(["1.5"], [1.5]), (["3"], [3.0]), (["a"], None)]),
    ],
)
def test_a_whole_number_that_a_column_of_doubles_took_becomes_what_it_is_in_one_batch(
    drifted: list[Any], rows: list[Any]
) -> None:
    table, whole = table_of(*([record] for record in drifted)), table_of(drifted)
    outcome = replan_of(table)
    assert table.converted and columns(outcome.plan.schema.struct) == columns(whole.schema.struct)
    of_one_batch = [
        (row["x"], *(row[name] for name in row if name != "x")) for row in plain_rows(whole.rows[0])
    ]
    assert of_one_batch == rows
    assert [tuple(row.values()) for row in applied(table, outcome)[1]] == rows


@pytest.mark.parametrize(
    ("drifted", "column"),
    [
        ([[{"x": 1.5}, {"x": ["a"]}], [{"x": True}], [{"x": ["b"]}]], "x_boolean"),
        ([[{"x": 1.5}, {"x": "a"}], [{"x": True}], [{"x": ["b"]}]], "x_boolean"),
        ([[{"x": 7}, {"x": "a"}], [{"x": True}], [{"x": ["b"]}]], "x_boolean"),
        ([[{"x": [1.5]}, {"x": ["a"]}], [{"x": [True]}], [{"x": [["b"]]}]], "x_array_boolean"),
    ],
)
def test_a_boolean_that_columns_of_numbers_and_texts_took_becomes_a_boolean_again(
    drifted: list[Any], column: str
) -> None:
    table, whole = table_of(*drifted), table_of([record for records in drifted for record in records])
    outcome = replan_of(table)
    assert columns(outcome.plan.schema.struct) == columns(whole.schema.struct)
    booleans = [row[column] for row in applied(table, outcome)[1]]
    assert booleans == [None, None, drifted[1][0]["x"], None]


@pytest.mark.parametrize(
    ("drifted", "column", "taken"),
    [
        ([[{"x": 7}], [{"x": ["a"]}], [{"x": "2024-01-02"}]], "x", ["2024-01-02"]),
        ([[{"x": 7}, {"x": "a"}], [{"x": ["b"]}], [{"x": "2024-01-02"}]], "x_string", "2024-01-02"),
        ([[{"x": 1.5}], [{"x": ["a"]}], [{"x": 7}]], "x", ["7"]),
    ],
)
def test_a_value_that_columns_of_numbers_and_texts_took_keeps_its_text(
    drifted: list[Any], column: str, taken: Any
) -> None:
    table = table_of(*drifted)
    outcome = replan_of(table)
    assert outcome.fields and applied(table, outcome)[1][-1][column] == taken


def drifted_row(number: int) -> dict[str, Any]:
    late = number > 500
    return {
        "id": number,
        "price": number + 0.5 if late else number,
        "by": {"id": f"u{number}" if late else number, "tags": ["a", f"b{number}"]},
        "lines": [{"n": 1.5 if late else 2, "at": "2026-01-02T03:04:05Z"}],
    }


def test_of_rows_that_are_alike_a_few_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [drifted_row(number) for number in range(1_000)]
    table = table_of(records[:501], records[501:])
    assert len(needed_lines_of(table)) < 10
    outcome = replan_of(table)
    assert {field.path for field in outcome.fields} == {("price",), ("by", "id"), ("lines", "n")}
    swap = ColumnSwap.of(table.schema, outcome.plan, outcome.fields, MARK)
    replanner = Replanner.of(
        swap, outcome.plan, apply(table.schema, swap.added), settings_of_rows(table.settings)
    )
    monkeypatch.setattr(RowRecords, "lines", None)
    assert [replanner.faults(rows) for rows in table.rows] == [set(), set()]


def test_a_field_without_a_value_keeps_its_name_from_a_new_column() -> None:
    table = table_of([{"a": 1}], [{"a": "x"}])
    empty = Field("a_long", LONG, id=table.schema.highest_id() + 1)
    table.schema = replace(table.schema, struct=Struct((*table.schema.struct.fields, empty)))
    table.rows = [batch.append_column("a_long", pa.nulls(len(batch), pa.int64())) for batch in table.rows]
    struct, rows = applied(table, replan_of(table))
    assert {f.name for f in struct.fields} == {"a", "a_long", "a_long_2"}
    assert rows[0] == {"a_long": None, "a": "1", "a_long_2": 1}


@pytest.mark.parametrize("block", range(2))
def test_a_replan_of_any_table_keeps_its_records(block: int) -> None:
    """With limits, maps, hints, typed values and values that wait; what would change keeps its columns."""
    first = randrange(10**9) if FUZZ else block * 40
    replanned_fields = 0
    for seed in range(first, first + (SEEDS if FUZZ else 40)):
        table = TableInMemory()
        for step in steps(seed):
            table.take(step)
        outcome = replan_of(table)
        replanned_fields += len(outcome.fields)
        swap = ColumnSwap.of(table.schema, outcome.plan, outcome.fields, MARK)
        between = apply(table.schema, swap.added)
        settings = settings_of_rows(table.settings, outcome.excluded)
        replanner = Replanner.of(swap, outcome.plan, between, settings)
        before = RowRecords(table.schema.struct, MARK, table.settings.fields)
        after = RowRecords(between.struct, MARK, table.settings.fields, left_out=swap.gone)
        names = [path for path, _ in swap.after(between).walk()]
        assert len({(*path[:-1], path[-1].lower()) for path in names}) == len(names), f"seed {seed}"
        for rows in table.rows if outcome.fields else ():
            made = replanner.rows(rows)
            made.validate(full=True)
            held = zip(*(reading.lines(rows) for reading in before.readings()), strict=True)
            for old, new in zip(held, after.lines(made), strict=True):
                assert any(_valued(parse(line)) == _valued(parse(new)) for line in old), f"seed {seed}"
    assert replanned_fields > 10
