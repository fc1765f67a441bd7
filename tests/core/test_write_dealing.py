"""Rows dealt out and sorted by way of files: each is there once, with its partition, in order, in tasks of even size."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from driftline.core.schema.definition import Transform
from driftline.core.schema.types import DOUBLE, LONG, STRING
from driftline.write import BatchFolder, Distribution, Key, distribution

DAYS = Key(("n",), LONG, Transform("truncate", 100))
NAMES = Key(("s",), STRING)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes for small data."""
    for name, size in {"_RUN": 2000, "_MARK": 100, "_PIECE": 1500, "_LEAST": 1000}.items():
        monkeypatch.setattr(distribution, name, size)


def rows_of(count: int) -> list[dict[str, Any]]:
    rng = random.Random(count)
    return [
        {
            "i": i,
            "n": rng.choice([None, rng.randrange(-300, 300)]),
            "s": rng.choice([None, "", "é", "z", "x" * rng.randrange(5)]),
            "f": rng.choice([None, math.nan, -0.0, 0.0, rng.uniform(-1, 1)]),
        }
        for i in range(count)
    ]


def dealt(
    folder: Path, by: Distribution, rows: list[dict[str, Any]], tasks: int = 3
) -> list[list[tuple[tuple[Any, ...], list[dict[str, Any]]]]]:
    """The rows of each task of the second round, by partition, of those that two tasks of the first had."""
    place = BatchFolder(str(folder))
    types = pa.schema([("i", pa.int64()), ("n", pa.int64()), ("s", pa.string()), ("f", pa.float64())])
    batches = [pa.RecordBatch.from_pylist(rows[i : i + 20], schema=types) for i in range(0, len(rows), 20)]
    slices = [one for half in (0, 1) for one in by.spill(batches[half::2], place, f"{half}.arrow")]
    return [
        [
            (part.partition, [row for batch in by.rows(part, place) for row in batch.to_pylist()])
            for part in share
        ]
        for share in by.parts(slices, tasks)
    ]


def numbers(shares: Iterable[Iterable[tuple[Any, list[dict[str, Any]]]]]) -> list[int]:
    return sorted(row["i"] for share in shares for _, rows in share for row in rows)


@pytest.mark.parametrize("sort", [(), (Key(("i",), LONG, descending=True),)], ids=["unsorted", "sorted"])
@pytest.mark.parametrize("count", [1, 19, 1000])
def test_rows_come_to_their_partitions(tmp_path: Path, count: int, sort: tuple[Key, ...]) -> None:
    shares = dealt(tmp_path, Distribution((DAYS, NAMES), sort), rows_of(count))
    assert numbers(shares) == list(range(count))
    for share in shares:
        for (n, s), rows in share:
            assert {None if row["n"] is None else row["n"] // 100 * 100 for row in rows} == {n}
            assert {row["s"] for row in rows} == {s}
            if sort:
                assert [row["i"] for row in rows] == sorted((row["i"] for row in rows), reverse=True)


def test_one_partition_is_work_for_all_tasks(tmp_path: Path) -> None:
    shares = dealt(tmp_path, Distribution((Key(("n",), LONG, Transform("void")),)), rows_of(1000))
    assert len(shares) == 3
    assert max(sum(len(rows) for _, rows in share) for share in shares) < 500


def test_few_rows_are_work_for_one_task(tmp_path: Path) -> None:
    assert len(dealt(tmp_path, Distribution((NAMES,)), rows_of(10))) == 1


def test_a_partition_is_in_one_part(tmp_path: Path) -> None:
    shares = dealt(tmp_path, Distribution((NAMES,)), rows_of(1000), 2)
    partitions = [partition for share in shares for partition, _ in share]
    assert len(shares) == 2
    assert len(partitions) == len(set(partitions)) == 8


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
@pytest.mark.parametrize(("column", "type_"), [("n", LONG), ("s", STRING), ("f", DOUBLE)])
def test_rows_are_sorted_over_all_tasks(
    tmp_path: Path, column: str, type_: Any, descending: bool, nulls_first: bool
) -> None:
    key = Key((column,), type_, descending=descending, nulls_first=nulls_first)
    shares = dealt(tmp_path, Distribution((), (key,)), rows_of(1000))
    assert numbers(shares) == list(range(1000))
    assert len(shares) == 3
    assert max(len(share[0][1]) for share in shares) < 500

    parts = [[row[column] for row in rows] for share in shares for _, rows in share]
    for values in parts:
        there = [value for value in values if value is not None]
        nulls = [None] * (len(values) - len(there))
        in_order = sorted(there, key=_order, reverse=descending)
        assert list(map(str, values)) == list(map(str, nulls + in_order if nulls_first else in_order + nulls))
    # No two tasks have rows between each other's.
    ends = sorted(
        ((_place(values[0], key), _place(values[-1], key)) for values in parts), key=lambda pair: pair[0]
    )
    assert all(first[1] <= second[0] for first, second in pairwise(ends))


def _order(value: Any) -> Any:
    """A value in its order: text by its bytes, the negative zero before the other, NaN last."""
    if isinstance(value, float):
        return (math.isnan(value), 0 if math.isnan(value) else value, math.copysign(1, value))
    return value


def _place(value: Any, key: Key) -> Any:
    return distribution._comparable(key, None if value is None else _order(value))
