"""A contract is exported of a table, kept by it, and broken by drift: of the table, and of data to come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from driftline.lake import Lake
from driftline.operations.contract import ReadOptions, breaks, planned
from driftline.operations.odcs import exported, read
from driftline.report.findings import findings


def lines(file: Path, *records: dict[str, Any]) -> str:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(file)


def test_what_keeps_a_contract_and_what_breaks_it(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    record = {
        "id": 1, "price": 1.5, "at": "2026-03-02T08:00:00Z", "who": {"name": "a"}, "tags": [{"k": "x"}],
    }  # fmt: skip
    table.ingest([record], settings={"hints": {"qty": "long", "labels": "map<string, long>"}})
    table.ingest([record], settings={"policy": "strict"})
    state = table.state()
    file = tmp_path / "orders.yaml"
    file.write_text(exported(table_name, state.schema, state.properties))
    promise = read(file, table_name)
    assert list(breaks(promise, state.schema, state.properties)) == []

    def broken(*records: dict[str, Any]) -> list[tuple[str, str]]:
        data = [lines(tmp_path / "new.jsonl", *records)]
        result = planned(promise, lake.table("not.there").format, data, ReadOptions(), lambda _: None)
        return [(one.kind, one.path) for one in findings(result)]

    assert broken(record, {"id": 2, "price": 3, "labels": {"a": 1}, "qty": 4}) == []
    assert broken(record, {"id": "x-2"}, {"id": 3, "more": 1}) == [
        ("quarantine", "id"),
        ("quarantine", "more"),
    ]
    assert not lake.table("not.there").format.load().exists

    table.ingest([{"id": "x-2", "who": {"vip": True}}], settings={"policy": "preserve"})
    state = table.state()
    assert [(one.kind, ".".join(one.path)) for one in breaks(promise, state.schema, state.properties)] == [
        ("new", "who.vip"), ("sibling", "id_string"), ("setting", "policy"),
    ]  # fmt: skip
