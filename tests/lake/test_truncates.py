"""A truncate of the source's table in tables of both formats: killed, taken back, checked against files."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest

from core.test_envelopes import Database
from core.test_truncates import truncating
from driftline.errors import DriftlineError
from driftline.keys.settle import KeyCounts
from driftline.lake import Lake, Table
from lake.test_capture_keys import check_any_order
from lake.test_keyed import put

SETTINGS = {"key": "id", "envelope": "debezium"}


@pytest.mark.nightly
def test_files_of_messages(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """Captured, killed at each step, in any order of files."""
    table, chance, source = lake.table(table_name), random.Random(11), tmp_path / "in"
    source.mkdir()
    database = Database(chance, "mysql")
    messages = [message for _ in range(60) for message in truncating(database)]
    messages += [{"op": "t", "source": database.source()}]
    database.rows.clear()
    messages += [message for _ in range(8) for message in database.step()]
    check_any_order(table, source, chance, messages, SETTINGS, database.rows)


def messages(*changes: Any) -> list[Any]:
    return [
        {"op": op, "after": None if id_ is None else {"id": id_}, "source": {"lsn": lsn}}
        for op, id_, lsn in changes
    ]


def ids(table: Table) -> list[int]:
    return sorted(row.id for row in table.read().select("id").collect())


def test_a_batch_of_a_truncate_alone(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    files = [tmp_path / f"{number}.jsonl" for number in range(3)]
    put(files[0], messages(*(("c", id_, id_) for id_ in range(1, 9))))
    put(files[1], messages(("t", None, 6)))
    put(files[2], messages(("u", 5, 5), ("c", 20, 20)))
    table.ingest(files[0], settings=SETTINGS)
    result = table.ingest(files[1])
    assert result.by_key is not None
    assert (result.rows_read, result.by_key.truncated, result.marks) == (0, 5, {"truncate": 1})
    assert "5 truncated" in str(result) and "1 truncate of the source's table: older rows go" in str(result)
    assert result.to_dict()["truncated"] == 5
    assert ids(table) == [6, 7, 8]
    # What the table does not know of is missing.
    assert table.verify(list(map(str, files[:2])), exactly=True).missing == 0
    late = table.ingest(files[2]).by_key
    assert late is not None and (late.late, late.inserted) == (1, 1)
    verdict = table.verify(list(map(str, files)), exactly=True)
    assert (verdict.missing, verdict.extra, verdict.found, verdict.deleted) == (0, 0, 4, 5)

    assert table.ingest(messages(("t", None, 30))).by_key.truncated == 4  # type: ignore[union-attr]
    assert ids(table) == []
    table.undo(yes=True)
    assert ids(table) == [6, 7, 8, 20]
    # The second truncate is gone with its batch, the first is not.
    counts = table.ingest(messages(("u", 8, 25), ("u", 5, 5))).by_key
    assert counts is not None and (counts.updated, counts.late) == (1, 1)


@pytest.mark.nightly
def test_positions_that_went_back(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """The source was restored: the report has the command that begins a new epoch."""
    table = lake.table(table_name)
    table.ingest(messages(("c", 1, 100), ("c", 2, 110)), settings=SETTINGS)
    assert table.ingest(messages(("u", 1, 101), ("u", 2, 20))).hints == ()
    again = messages(("u", 1, 30), ("d", 2, 40), ("c", 3, 50))
    again[1]["before"] = {"id": 2}
    result = table.ingest(again)
    assert result.by_key is not None and (result.by_key.late, result.by_key.inserted) == (2, 1)
    (hint,) = result.hints
    said, _, command = hint.partition("driftline alter ")
    assert said.startswith("2 of 3 changes are older than what the table has")
    lake.alter(shlex.split(command)[0])
    assert table.format.load().properties["driftline.epoch"] == "1"

    result = table.ingest(again)
    assert (result.hints, result.by_key) == ((), KeyCounts(updated=2, deleted=1))
    assert ids(table) == [1, 3]
    # What comes late of the epoch before stays late, a truncate of this one counts for all rows.
    assert table.ingest(messages(("c", 2, 35))).by_key == KeyCounts(late=1)
    assert table.ingest(messages(("t", None, 45), ("u", 1, 44))).by_key == KeyCounts(late=1, truncated=1)
    assert ids(table) == [3]
    with pytest.raises(DriftlineError, match="has epoch = 1, and an epoch that has begun does not end"):
        lake.alter(command.replace("= '1'", "= '0'").strip('"'))
    with pytest.raises(DriftlineError, match="has epoch = 1, and an epoch that has begun does not end"):
        table.ingest(again, settings={"epoch": "0"})


def test_the_check_sees_a_row_that_a_truncate_left(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, source = lake.table(table_name), tmp_path / "in.jsonl"
    put(source, messages(("c", 1, 1), ("t", None, 5), ("c", 2, 6)))
    table.ingest(source, settings=SETTINGS)
    assert ids(table) == [2]
    with source.open("a") as file:
        file.write(json.dumps({"op": "t", "source": {"lsn": 7}}))
    assert table.verify(source).missing == 1
