"""One go, Spark's own reader and the careful road make the same rows of the same lines, however these drift."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline.accept import accepted
from driftline.core.routes import Settings
from driftline.core.types import Schema
from driftline.engine import configured
from driftline.source import json as json_files
from driftline.source.json import JsonFiles
from driftline.write.frame import frame

KEYS = "abcd"
USUAL = [
    7,
    "x",
    True,
    "2024-01-02",
    [1, 2],
    ["x", None],
    {"p": 1, "q": "x"},
    [{"p": "x"}, {}],
    {"p": {"r": [7]}},
]


def value(rng: random.Random, depth: int = 0) -> Any:
    # A fraction beside texts sends the batch down the careful road.
    kinds = [None, True, False, 0, 7, -3, 2**53 + 1, "", "x", "7", "true", "2024-01-02", "[1]", '{"p": 1}']
    if depth < 2 and rng.random() < 0.4:
        if rng.random() < 0.5:
            return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
        return {k: value(rng, depth + 1) for k in rng.sample("pqr", rng.randrange(3))}
    return rng.choice(kinds)


def record(rng: random.Random, usual: dict[str, Any]) -> dict[str, Any]:
    """A record with the usual value of most fields, and another one of some."""
    return {
        key: value(rng) if rng.random() < 0.15 else kept for key, kept in usual.items() if rng.random() < 0.9
    }


def drifting(seed: int) -> list[str]:
    """Lines of JSON; most have the usual values."""
    rng = random.Random(seed)
    usual = dict(zip(KEYS, rng.sample(USUAL, len(KEYS)), strict=True))
    records = [usual, *(record(rng, usual) for _ in range(60))]
    return [json.dumps({"n": i, **r}) for i, r in enumerate(records)]


ROADS = {"one go": (0, False), "plain": (2**60, False), "careful": (2**60, True)}


@pytest.mark.parametrize("seed", [2, 4, 7, 8, 9, 10, 13, 14, 15, 18])  # those that one go can read
def test_all_roads_make_the_same_rows(
    spark: SparkSession, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = drifting(seed)
    file = folder / "in.jsonl"
    file.write_text("\n".join(lines))
    settings = Settings()
    rows = {}
    for road, (much, careful) in ROADS.items():
        monkeypatch.setattr(json_files, "_MUCH", much)
        source = JsonFiles(spark, [str(file)], careful=careful)
        with configured(spark, source.conf):
            _, planned = accepted(source, Schema(), settings, lambda _: None)  # type: ignore[arg-type]
            struct = planned.schema.struct
            if road == "one go":
                table_rows = frame(spark, source.tasks(planned, struct, settings), struct)
                assert table_rows is not None
            else:
                table_rows = source.rows(planned, struct, settings)
            texts = table_rows.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))").collect()
            rows[road] = sorted((json.loads(row[0]) for row in texts), key=lambda row: row["n"])
    for one, other in zip(rows["one go"], rows["plain"], strict=True):
        assert one == other, lines[one["n"]]
    assert rows["one go"] == rows["plain"] == rows["careful"]
    assert len(rows["plain"]) == len(lines)
