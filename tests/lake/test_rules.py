"""Every case of tests/rules, over every table format. The fixtures say what; this file only compares."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from driftline.core.schema.naming import is_metadata
from driftline.lake import Lake
from lake.formats import declare
from rule_cases import Case, cases, columns, text

ISO = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX"


@pytest.mark.parametrize("case", cases())
def test_rule(case: Case, lake: Lake, table_name: str, tmp_path: Path) -> None:
    check(case, lake, table_name, tmp_path)


def check(case: Case, lake: Lake, table_name: str, tmp_path: Path) -> None:
    """Check that a table of the lake becomes what the case says."""
    table = lake.table(table_name)
    if case.declared:
        declare(table, case.declared)
    for i, batch in enumerate(case.batches):
        file = tmp_path / f"batch{i}.jsonl"
        file.write_bytes(("\n".join(batch) + "\n").encode("utf-8", "surrogateescape"))
        result = table.ingest(file, settings=case.settings if i == 0 else None)
        assert sum(result.outcomes.values()) + result.rows_quarantined == result.rows_read
        again = table.ingest(file, dry_run=True)
        assert not again.changes, "the same batch again must bring nothing new"
    said = result.to_dict()
    struct = table.schema().schema.struct
    assert columns(struct, own=not case.keyed) == case.sections["schema"]
    if "rows" in case.sections:
        own = [f.name for f in struct.fields if case.keyed and is_metadata(f.doc)]
        shown = table.read().drop(*own)
        rows = shown.selectExpr(f'to_json(struct(*), map("timestampFormat", "{ISO}")) as row').collect()
        stored = [json.loads(row.row, parse_float=Decimal) for row in rows]
        expected = [json.loads(line, parse_float=Decimal) for line in case.sections["rows"]]
        assert sorted(map(text, stored)) == sorted(map(text, expected))
    if "untyped" in case.sections:
        assert said["untyped"] == case.sections["untyped"]
    if "converted" in case.sections:
        got = [f"{c['path']}: {c['from']} -> {c['to']}" for c in said["converted"]]
        assert sorted(got) == sorted(case.sections["converted"])
    if "expect" in case.sections:
        assert [f"{name}: {e['violations']}" for name, e in said["expect"].items()] == case.sections["expect"]
    if "counts" in case.sections:
        assert result.outcomes_in_words == (case.sections["counts"] or ["nothing written"])
    if "quarantine" in case.sections:
        reasons = [r.reason for r in lake.sql(f"select reason from lake.{table_name}__quarantine").collect()]
        assert len(reasons) == len(case.sections["quarantine"])
        for expected_reason in case.sections["quarantine"]:
            assert any(expected_reason in reason for reason in reasons), (expected_reason, reasons)
