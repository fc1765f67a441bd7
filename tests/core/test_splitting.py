"""The field that would split a table best."""

from __future__ import annotations

from typing import Any

import pytest

from driftline.core.values import Number
from driftline.ingest.splitting import SplitByField, best_split


def record(number: int, kind: Any) -> dict[str, Any]:
    """A record with twelve fields that other kinds do not have."""
    return {"id": number, "kind": kind, **{f"{kind}_{n}": number for n in range(12)}}


def test_the_field_with_the_fewest_cells_is_named_and_of_equal_ones_that_with_the_fewest_tables() -> None:
    records = [record(number, "abc"[number % 3]) for number in range(30)]
    assert best_split(records) == SplitByField(("kind",), 3, 14, 14 / 38)


def test_a_field_inside_an_object_counts_and_one_that_is_deeper_does_not() -> None:
    nested = [{"at": {"x": record(number, "abc"[number % 3])}} for number in range(30)]
    assert best_split(nested) is None
    split = best_split([each["at"] for each in nested])
    assert split is not None and split.field == ("x", "kind")


def test_a_number_and_the_text_that_spells_it_are_one_value() -> None:
    values = [
        ("1", "one"),
        (Number("1"), "one"),
        (Number("1.0"), "one"),
        ("2", "two"),
        (Number("3"), "three"),
    ]
    records = [{"kind": value, **{f"{name}_{n}": 1 for n in range(20)}} for value, name in values * 8]
    split = best_split(records)
    assert split is not None and (split.field, split.tables) == (("kind",), 3)


@pytest.mark.parametrize(
    "records",
    [
        [],
        [{"kind": "ab"[number % 2], f"c{number % 2}": 1} for number in range(10)],
        [record(number, "abc"[number % 3]) if number % 15 else {"id": number} for number in range(30)],
        [{**record(number, "a"), f"own_{number}": 1} for number in range(30)],
        [
            {**record(number, "a"), "kind": "ab"[number % 2], **{f"d{n}": 1 for n in range(30)}}
            for number in range(30)
        ],
    ],
    ids=[
        "no record",
        "few columns",
        "a field that some lack",
        "a field of one record each",
        "a split that saves little",
    ],
)
def test_nothing_is_advised_of(records: list[dict[str, Any]]) -> None:
    assert best_split([each for each in records if each]) is None


def test_a_field_of_more_values_than_tables_is_passed_over() -> None:
    records = [record(number, f"k{number % 5}") for number in range(50)]
    assert best_split(records, most=4) is None
