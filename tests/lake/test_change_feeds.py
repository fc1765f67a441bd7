"""Messages of other tools than Debezium in tables of both formats, replayed and checked against files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from core.test_change_feeds import Feed
from core.test_upsert import same_key
from driftline.core.planning.row_key import ENVELOPES
from driftline.lake import Lake
from lake.test_keyed import held, put


@pytest.mark.parametrize("envelope", ENVELOPES[1:])
def test_two_files_of_messages(lake: Lake, table_name: str, tmp_path: Path, envelope: str) -> None:
    """The later file is taken first, and both have a message that cannot be read."""
    table = lake.table(table_name)
    feed = Feed(random.Random(9), "maxwell" if envelope == "auto" else envelope)
    messages = [message for _ in range(40) for message in feed.step()]
    files = [str(tmp_path / "2.jsonl"), str(tmp_path / "1.jsonl")]
    for file, part in zip(files, (messages[20:], messages[:25]), strict=True):
        put(Path(file), [*part, {"none": "of them"}])
        result = table.ingest(file, settings={"key": "id", "envelope": envelope})
        assert (result.rows_quarantined, result.hints) == (1, ())
    assert held(table) == {same_key(id_): row["n"] for id_, row in feed.rows.items()}
    verdict = table.verify(files, exactly=True)
    assert (verdict.missing, verdict.extra, verdict.quarantined) == (0, 0, 2)
    assert verdict.found == len(feed.rows)
