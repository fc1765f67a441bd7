"""Random tables: after each step, each scalar of each record is in some column of its field, or in the rest, exactly
and where it stood, as a reader of its own finds it and as ``verify`` does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import randrange
from typing import Any

import pytest

from core.held_values import faults
from core.random_steps import Change, Json, Promote, Step, Typed, steps, with_empty_names
from core.table_in_memory import TableInMemory, plain_rows
from core.test_convert_sound import plain
from driftline.core.schema.text import parse_type
from driftline.core.schema.types import Field, Struct
from driftline.core.settings.fields import OfPaths, field_settings
from driftline.core.settings.table import TableSettings
from driftline.verify.match import differences
from driftline.verify.matching_key import TableStruct
from driftline.verify.values import ValueSettings

FUZZ = "DRIFTLINE_FUZZ" in os.environ
BLOCKS, SEEDS = 8, 1_000 if FUZZ else 25  # that pytest's processes share; of each


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(BLOCKS))
def test_nothing_is_lost_whatever_comes_and_is_promoted(block: int) -> None:
    first = randrange(10**9) if FUZZ else block * SEEDS
    for seed in range(first, first + SEEDS):
        check(steps(seed), f"seed {seed}")


@pytest.mark.parametrize("block", range(BLOCKS // 2))
def test_nothing_of_an_empty_key_is_lost_where_it_is_kept(block: int) -> None:
    first = randrange(10**9) if FUZZ else block * SEEDS
    for seed in range(first, first + SEEDS):
        check(with_empty_names(steps(seed)), f"seed {seed}")


def check(steps: Sequence[Step], name: str) -> None:
    """Takes the steps one after another; a failure tells the ``name`` and the step."""
    table = TableInMemory()
    for number, step in enumerate(steps):
        try:
            table.take(step)
        except Exception as error:
            raise AssertionError(f"{name}, step {number}: {step}") from error
        struct = table.schema.struct
        columns = TableStruct.of(struct)
        rows = [row for batch in table.rows for row in plain_rows(batch)]
        for_verify = [row for batch in table.rows for row in plain(batch, struct)]
        for source, row, row_for_verify in zip(table.sources, rows, for_verify, strict=True):
            assert faults(struct, row, source.record) == [], f"{name}, step {number}: {step}"
            how = ValueSettings(empty_names=table.settings.keep_empty_names)
            found = differences(columns, row_for_verify, source.for_verify, how)
            losses = [d for d in found if not (d.unproven or how.is_nothing(d.value))]
            # With halves of a value in two struct columns, about one sequence in 800, verify is strict.
            assert FUZZ or losses == [], f"{name}, step {number}"


def change(
    *, maps: str = "hint", new_fields: str = "add", hints: dict[str, str] | None = None, **limits: Any
) -> Change:
    paths = OfPaths(hints={(key,): parse_type(text) for key, text in (hints or {}).items()})
    table_contract = field_settings(maps=maps, new_fields=new_fields, paths=paths)
    return Change(TableSettings(beyond="rest", fields=table_contract, **limits))


def typed(types: dict[str, str], *records: Any) -> Typed:
    return Typed(Struct(tuple(Field(key, parse_type(text)) for key, text in types.items())), [*records])


ALL = Promote(None)
FOUND: dict[str, list[Step]] = {
    "a list of maps was lost beside a struct and a map without lists": [
        change(max_columns=1, maps="auto", hints={"b": "list<struct<p: long>>"}),
        typed({"b": "map<string, list<list<date>>>"}, {"b": {"101098": [[]]}}),
        Json([{"b": [{"x/y": {"q": 0}, "101098": {"101132": -1, "2024-01-02": 7, "x/y": 0}}]}]),
    ],
    "parts of a list of mixed depth went to other places": [
        change(max_columns=3),
        Json([{"a": {"r": [["x"]], "q": [True], "p": [[True], 7]}}]),
        ALL,
    ],
    "objects in a list of mixed depth lost a list around them": [
        change(max_fields=1),
        Json([{"b": [[{"q": "x", "p": "x"}], [[7]]]}]),
        ALL,
    ],
    "a list that waits lost the {} at its end": [
        change(max_columns=3),
        Json([{"c": [7]}, {"a": "x"}, {"a": [True, {}]}]),
        ALL,
    ],
    "a list in a list that waits lost the [] at its end": [
        change(max_columns=2),
        Json([{"b": 7}, {"c": [[7], [{"r": 7}, []]]}]),
        ALL,
    ],
    "a value waited as a whole and in parts": [
        change(max_fields=1),
        Json([{"b": [{"p": "x"}]}, {"b": {"101098": {"r": [7], "q": 7}}}]),
    ],
    "a typed value waited as a whole and in parts": [
        change(new_fields="hold"),
        Json([{"c": "x"}]),
        Json([{"a": [{"p": {"r": 7}}]}]),
        ALL,
        Json([{"a": {"r": "x"}}]),
        typed({"a": "struct<p: struct<q: struct<q: boolean, p: long>>>"}, {"a": {"p": {"q": {"p": 7}}}}),
    ],
    "keys were half in a struct and half in a map, for verify nowhere": [
        change(max_fields=1),
        typed({"a": "map<string, struct<p: double, r: struct<q: string>>>"}, {"a": {"x": {"p": 0.5, "r": {"q": "x"}}}}),
        ALL,
    ],
    "keys were half in one map and half in another, for verify nowhere": [
        change(max_fields=1),
        Json([{"c": {"x/y": [{"101098": "x", "2024-01-02": True}]}}]),
        change(maps="auto"),
        ALL,
    ],
    "a part of what waits as a whole was nowhere for verify": [
        change(maps="auto", max_columns=3, max_fields=2),
        Json([{"a": [{"2024-01-02": [7, "x"]}, {"p": 7}]}]),
        Json([{"a": {"2024-01-02": 7, "101132": [{"2024-01-02": 7}]}}]),
    ],
    "a typed part of a map's value came as a struct's, JSON's as a map's": [
        change(max_columns=3, max_fields=1),
        typed({"b": "map<string, struct<r: date, q: struct<q: boolean>>>"}, {"b": {"r": {"q": {"q": True}}}}),
        Json([{"b": {"r": True}}]),
        ALL,
    ],
    "a map, a struct and an object of JSON came at once": [
        change(max_columns=1),
        Json([{"c": 7}, {"a": {"2024-01-02": {"p": "x"}}}]),
        typed({"a": "map<string, map<string, long>>"}, {"a": {"x/y": {"p": 7}}}),
        typed({"a": "struct<q: double>"}, {"a": {"q": 0.5}}),
        ALL,
    ],
    "maps of maps had no room for a record beside lists of them": [
        change(max_columns=3, maps="auto", new_fields="hold", hints={"a": "map<string, long>"}),
        Json([{"a": {"p": [{"101098": 7}]}}]),
        Json([{"a": {"r": {"r": {"q": 7}}}}]),
    ],
    "a map's values had no room, and another map's had a column": [
        change(max_columns=2, maps="auto", hints={"a": "map<string, long>"}),
        Json([{"a": {"q": {"101098": {"p": "x"}, "101132": "x"}}}]),
    ],
    "an element that stayed in the rest came back as a list without the others": [
        change(maps="auto", keep_empty_names=True),
        Json([{"a": [{"": "true"}, 1.25, {"": 1}]}]),
        ALL,
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", FOUND.values(), ids=FOUND)
def test_what_was_found_stays_mended(steps: list[Step]) -> None:
    check(steps, "these steps")
