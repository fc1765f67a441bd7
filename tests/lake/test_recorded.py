"""Real messages of Debezium's engine, recorded by `databases/record.py`: the rows that the databases had."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from databases.drifting import SETTINGS, differences
from driftline.lake import Lake

RECORDED = Path(__file__).parents[1] / "recorded"
STEPS = ("1-snapshot", "2-log")
SENT = {
    "postgresql": "13 c, 3 d, 2 heartbeat, 1 log message, 1 m, 6 r, 1 t, 3 tombstone, 26 transaction mark, 1 truncate, 4 u",
    "mariadb": "9 c, 3 d, 2 heartbeat, 4 r, 8 schema change, 1 t, 3 tombstone, 23 transaction mark, 1 truncate, 3 u",
}


def values(file: Path) -> list[Any]:
    """The values of messages, without their schemas; None for a tombstone."""
    messages = map(json.loads, file.read_text().splitlines())
    return [message["value"] and message["value"]["payload"] for message in messages]


@pytest.mark.parametrize("database", SENT)
def test_the_rows_are_those_of_the_database(lake: Lake, table_name: str, database: str) -> None:
    table, marks, operations = lake.table(table_name), Counter[str](), Counter[str]()
    files = [RECORDED / database / f"{step}.jsonl" for step in STEPS]
    for file in files:
        result = table.ingest(file, settings=SETTINGS)
        assert result.rows_quarantined == 0, result
        marks.update(result.marks)
        operations.update(value["op"] for value in values(file) if value and "op" in value)
        lines = file.with_suffix(".rows").read_text().splitlines()
        rows = [json.loads(line, parse_float=Decimal) for line in lines]
        assert differences(table, rows, renamed={"mark": "grade"}) == {}
    counted = (f"{n} {name}" for name, n in sorted((operations | marks).items()))
    assert ", ".join(counted) == SENT[database]
    for file in reversed(files):  # sent once more, in the wrong order
        table.ingest(file, again=True)
    assert differences(table, rows, renamed={"mark": "grade"}) == {}
    verdict = table.verify([str(file) for file in files], exactly=True)
    assert (verdict.missing, verdict.extra, verdict.quarantined) == (0, 0, 0), verdict
