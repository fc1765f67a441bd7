"""Structs whose keys are data: told by the look of their many keys, with the map that they could be."""

from __future__ import annotations

import pytest

from core.shapes import batch, drift
from driftline.core.data_keys import keys_are_data


def struct(keys: list[str], *types: str) -> str:
    return ", ".join(f'"{key}": {types[i % len(types)]}' for i, key in enumerate(keys))


DATES = [f"2024-01-{day:02}" for day in range(1, 26)]
IDS = [f"user-{n}" for n in range(100_000, 100_025)]
UUIDS = [f"{n:08x}-0000-4000-8000-000000000000" for n in range(25)]
WORDS = [f"{a}{b}" for a in "abcde" for b in "vwxyz"]


@pytest.mark.parametrize(
    ("keys", "types", "hint"),
    [
        (DATES, ["long"], "map<string, long>"),
        (IDS, ["long", "double"], "map<string, double>"),
        (UUIDS, ["string", "long[1]"], "map<string, list<string>>"),
        (DATES, ["{a: long}"], "map<string, record>"),
        (DATES, ["{a: long}", "long"], None),
        (WORDS, ["long"], None),
        (DATES[:5], ["long"], None),
    ],
)
def test_keys_are_data(keys: list[str], types: list[str], hint: str | None) -> None:
    assert keys_are_data(batch(struct(keys, *types))) == hint


def test_the_plan_points_at_them_while_they_grow() -> None:
    text = f"by_day: {{{struct(DATES, 'long')}}}"
    planned = drift(text)
    assert planned.hints == (
        'by_day has 25 keys that look like data: by_day = "map<string, long>" makes it a map',
    )
    assert drift(text, text).hints == ()
