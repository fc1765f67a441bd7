"""The columns of all records at once: rows turned back into records, planned again, and what differs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random, randrange
from typing import Any

import pytest

from core.random_steps import Json
from core.table_in_memory import TableInMemory
from driftline.convert.records import RowRecords, is_declared
from driftline.core.columns.replanning import Replanned, replanned, settings_of_rows
from driftline.core.planning.plan import Conversion, Plan
from driftline.core.planning.planner import plan
from driftline.core.schema.naming import MARK, data_key
from driftline.core.schema.schema_json import outline
from driftline.core.schema.types import Path, Schema, Struct
from driftline.core.settings.table import TableSettings
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
    records = RowRecords(table.schema.struct, MARK)
    return [line for reading in records.readings() for rows in table.rows for line in reading.lines(rows)]


def replan_of(
    table: TableInMemory, kept: dict[Path, str] | None = None, *, narrow: bool = False
) -> Replanned:
    settings = settings_of_rows(table.settings)

    def plan_of(before: Schema) -> Plan:
        observer = JsonObserver(expect(before, settings), settings)
        observer.feed(lines_of(table), "rows", 1)
        return plan(before, observer.result().shape, settings)

    return replanned(table.schema, MARK, kept or {}, is_declared, plan_of, narrow=narrow)


def columns(struct: Struct) -> set[tuple[Path, str, Path]]:
    """The columns: their paths, their types, and the keys that fill them."""
    found = set()
    for path, f in Schema(struct).walk():
        parent = Schema(struct).find(path[:-1])
        key = data_key(f, MARK) if parent is None or isinstance(parent.type, Struct) else path[-1]
        found.add((path, outline(f.type), (*path[:-1], key)))
    return found


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
        checked += 1
        whole = table_of([record for records in drifted for record in records])
        found = columns(replan_of(table, narrow=True).plan.schema.struct)
        assert found == columns(whole.schema.struct), f"seed {seed}: {json.dumps(drifted)}"
    assert checked > SEEDS // 10
