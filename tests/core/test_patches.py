"""Batches of patches, from their lines to a table of Parquet files, against a dictionary, without Spark."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from core.patches import PatchOracle, differences, patches
from core.test_upsert import FilesTable
from driftline.settings import as_properties, from_properties

PATCH = {"key": "id", "merge": "patch", "delete_when": "op = 'd'"}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "as they come"])
@pytest.mark.parametrize("beyond", ["10000", "6"], ids=["columns", "rest"])
def test_a_table_is_what_a_dictionary_says(tmp_path: Path, seed: int, ordered: bool, beyond: str) -> None:
    chance, table, oracle = random.Random(seed), FilesTable(tmp_path), PatchOracle(ordered=ordered)
    given = {
        **PATCH,
        "order_by": "seq" if ordered else "",
        "maps": "auto",
        "max_columns": beyond,
        "beyond": "rest",
    }
    settings = from_properties(as_properties(given))
    stream = patches(chance, 250)
    while stream:
        batch, stream = stream[: (size := chance.randrange(1, 40))], stream[size:]
        counts, malformed = table.ingest(batch, settings)
        assert (counts, malformed, counts.total) == (oracle.take(batch), 0, len(batch))
        rows = {row["id"]: row for row in table.rows()}
        assert len(rows) == len(table.rows())
        assert rows.keys() == oracle.rows.keys()
        assert {
            key: found for key, row in rows.items() if (found := differences(row, oracle.rows[key]))
        } == {}
