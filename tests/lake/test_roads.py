"""Spark's own reader and the careful road make the same rows of the same lines, however these drift."""

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
from driftline.route import json_source
from driftline.route.source import tags_needed
from driftline.source import json as json_files
from driftline.source.json import JsonFiles

KEYS = "abcd"


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


@pytest.mark.parametrize("seed", range(6))
def test_both_roads_make_the_same_rows(
    spark: SparkSession, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_files, "_TWICE", 0)
    rng = random.Random(seed)
    usual = {**{key: value(rng) for key in KEYS}, KEYS[0]: 7}
    records = [usual, *(record(rng, usual) for _ in range(60))]
    lines = [json.dumps({"n": i, **r}) for i, r in enumerate(records)]
    file = folder / "in.jsonl"
    file.write_text("\n".join(lines))
    settings = Settings()
    rows = []
    for careful in (False, True):
        source = JsonFiles(spark, [str(file)], careful=careful)
        with configured(spark, source.conf):
            _, planned = accepted(source, Schema(), settings, lambda _: None)  # type: ignore[arg-type]
            frame = source.rows(planned, planned.schema.struct, settings)
            assert json_source(planned.route, None, usual=True) != json_source(planned.route, None)
            assert not tags_needed(planned.route)
            rows.append(
                sorted(
                    row[0]
                    for row in frame.selectExpr(
                        "to_json(struct(*), map('ignoreNullFields', 'false'))"
                    ).collect()
                )
            )
    assert rows[0] == rows[1]
    assert len(rows[0]) == len(lines)
