"""Real drifting data, where a person names it: in one batch and in several, nothing is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from drifting_data import REAL, needs_real_data
from driftline.lake import Lake
from lake.formats import by_pyiceberg

from .proof import proven

pytestmark = needs_real_data

REACTIONS = pytest.mark.hive_refuses("a struct inside another has a field +1")


@pytest.mark.parametrize(
    ("name", "batches"),
    [
        ("movies", 1),
        ("movies", 10),
        pytest.param("github-webhooks", 1, marks=REACTIONS),
        pytest.param("github-webhooks", 4, marks=REACTIONS),
    ],
)
@pytest.mark.iceberg_only("the test of rules runs over both, and these are large")
def test_nothing_is_missing(lake: Lake, table_name: str, tmp_path: Path, name: str, batches: int) -> None:
    table = lake.table(table_name)
    source = REAL / f"{name}.jsonl"
    records = source.read_text().splitlines(keepends=True)
    size = -(-len(records) // batches)
    written = 0
    for i in range(batches):
        part = tmp_path / f"{i}.jsonl"
        part.write_text("".join(records[i * size : (i + 1) * size]))
        written += table.ingest(part).rows_written
    assert written == len(records)
    proven(table, source)
    assert by_pyiceberg(table).num_rows == len(records) == table.read().count()
