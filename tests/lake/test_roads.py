"""Files and columns of JSON make the same rows of the same lines, in one go or observed first, however these drift."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline.core.schema.types import Schema
from driftline.core.settings.table import TableSettings
from driftline.ingest.accept import accepted
from driftline.ingest.batch import RecentBatches
from driftline.readers.json import usual
from driftline.runtime.spark_conf import configured
from driftline.sources.json_files import JsonFiles
from driftline.sources.scan import Source
from driftline.sources.texts import json_column

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


@pytest.mark.parametrize("seed", range(2, 12))
def test_all_roads_make_the_same_rows(
    spark: SparkSession, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = drifting(seed)
    file = folder / "in.jsonl"
    file.write_text("\n".join(lines))
    texts = spark.createDataFrame([(line,) for line in lines], "text string").coalesce(1)
    monkeypatch.setattr(usual, "DEEPEST", 0)  # of no field is the type usual
    singly = rows(JsonFiles(spark=spark, files=[str(file)]))
    monkeypatch.undo()
    assert [row["n"] for row in singly] == list(range(len(lines)))
    for source in (JsonFiles(spark=spark, files=[str(file)]), json_column(texts, "text")):
        for one, other in zip(rows(source), singly, strict=True):
            assert one == other, lines[one["n"]]


def rows(source: Source) -> list[dict[str, Any]]:
    """The rows that the source becomes in a new table."""
    with configured(SparkSession.active(), source.conf):
        observed, planned = accepted(source.open(Schema(), TableSettings()), RecentBatches(), lambda _: None)
        made = observed.tasks(planned, planned.schema.struct).frame(planned.schema.struct)
        texts = made.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))").collect()
    return sorted((json.loads(row[0]) for row in texts), key=lambda row: row["n"])
