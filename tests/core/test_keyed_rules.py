"""Every case of tests/rules of a table with a key, without an engine: from its lines to rows in Parquet files."""

from __future__ import annotations

import json
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

import pytest

from core.test_convert_rules import shown
from core.test_upsert import FilesTable
from driftline.convert import arrow_schema
from driftline.core.schema.naming import is_metadata
from driftline.core.settings.properties import as_properties, from_properties
from rule_cases import Case, cases, columns, text


@pytest.mark.parametrize("case", cases(keyed=True))
def test_rule(case: Case, tmp_path: Path) -> None:
    settings, table = from_properties(as_properties(case.settings)), FilesTable(tmp_path)
    malformed = 0
    for batch in case.batches:
        counts, refused = table.ingest_lines([line.encode() for line in batch], settings)
        malformed += refused
    struct = table.schema.struct
    own = {f.name for f in struct.fields if is_metadata(f.doc)}
    assert columns(struct, own=False) == case.sections["schema"]
    types = arrow_schema(struct)
    rows = [{name: value for name, value in row.items() if name not in own} for row in table.rows()]
    expected = [text(json.loads(line, parse_float=Decimal)) for line in case.sections["rows"]]
    assert sorted(text(shown(row, types)) for row in rows) == sorted(expected)
    assert [f"{n} {name}" for name, n in asdict(counts).items() if n] == case.sections["counts"]
    assert malformed == len(case.sections.get("quarantine", ()))
