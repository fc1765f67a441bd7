"""Snapshots that are taken again, in tables of both formats: killed, taken back, checked against files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from core.test_envelopes import Database
from core.test_snapshots import unwatched
from driftline.keys.settle import KeyCounts
from driftline.lake import Lake, Table
from lake.test_capture_keys import check_any_order
from lake.test_keyed import put

SETTINGS = {"key": "id", "envelope": "debezium", "on_snapshot": "reconcile"}


@pytest.mark.nightly
def test_files_of_messages(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """Captured, killed at each step, also in the middle of a snapshot; files come in any order."""
    table, chance, source = lake.table(table_name), random.Random(5), tmp_path / "in"
    source.mkdir()
    database, messages = Database(chance, "postgresql"), []
    for number in range(60):
        messages += unwatched(database) if number % 20 == 19 else database.step()
    check_any_order(table, source, chance, messages, SETTINGS, database.rows)


def read(id_: int, lsn: int, snapshot: Any) -> dict[str, Any]:
    return {"op": "r", "after": {"id": id_}, "source": {"lsn": lsn, "snapshot": snapshot}}


def ids(table: Table) -> list[int]:
    return sorted(row.id for row in table.read().select("id").collect())


@pytest.mark.nightly
def test_a_snapshot_in_two_batches(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    files = [tmp_path / f"{number}.jsonl" for number in range(5)]
    changes = [{"op": "c", "after": {"id": id_}, "source": {"lsn": id_}} for id_ in range(1, 7)]
    put(files[0], changes)
    put(files[1], [read(1, 20, "first"), read(2, 20, "true")])
    later = {"op": "c", "after": {"id": 9}, "source": {"lsn": 30}}
    put(files[2], [later, read(3, 20, "true"), read(4, 20, "last")])
    table.ingest(files[0], settings=SETTINGS)
    assert table.ingest(files[1]).by_key == KeyCounts(updated=2)
    assert ids(table) == [1, 2, 3, 4, 5, 6]
    result = table.ingest(files[2])
    assert result.by_key == KeyCounts(inserted=1, updated=2, truncated=2)
    assert result.marks == {"complete snapshot": 1}
    assert "1 complete snapshot: older rows, which are not in it, go" in str(result)
    assert ids(table) == [1, 2, 3, 4, 9]
    # A change of before it, of a row that is gone, stays away; a row that comes later does not.
    late = {"op": "u", "after": {"id": 5}, "source": {"lsn": 19}}
    put(files[3], [late, {"op": "c", "after": {"id": 6}, "source": {"lsn": 31}}])
    assert table.ingest(files[3]).by_key == KeyCounts(inserted=1, late=1)
    verdict = table.verify(list(map(str, files[:4])), exactly=True)
    assert (verdict.missing, verdict.extra, verdict.found) == (0, 0, 6)
    # Snapshots in increments, and where the table is told to merge, remove nothing.
    put(files[4], [read(1, 50, "incremental"), read(9, 50, "incremental")])
    assert table.ingest(files[4]).by_key == KeyCounts(updated=2)
    assert table.ingest([read(1, 60, "last")], settings={"on_snapshot": "merge"}).by_key == KeyCounts(
        updated=1
    )
    assert ids(table) == [1, 2, 3, 4, 6, 9]


def test_what_a_snapshot_removed_comes_back(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    changes = [{"op": "c", "after": {"id": id_}, "source": {"lsn": id_}} for id_ in range(1, 7)]
    table.ingest(changes, settings=SETTINGS)
    result = table.ingest([read(2, 20, "last")])
    assert (result.by_key, ids(table)) == (KeyCounts(updated=1, truncated=5), [2])
    table.undo(yes=True)
    assert ids(table) == [1, 2, 3, 4, 5, 6]
    # Nor is it remembered that there was a snapshot.
    assert table.ingest([{"op": "u", "after": {"id": 1}, "source": {"lsn": 19}}]).by_key == KeyCounts(
        updated=1
    )
    # A record of the snapshot that waits in quarantine is in it all the same, once it is replayed.
    wrong = [read(3, 40, "first") | {"op": "?"}, read(2, 40, "last")]
    result = table.ingest(wrong)
    assert (result.rows_quarantined, ids(table)) == (1, [2])
