"""Every case of tests/rules, over every table format. The fixtures say what; this file only compares."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from driftline.core.naming import marked_key
from driftline.core.schema_json import type_name
from driftline.core.types import Struct, peel
from driftline.lake import Lake
from lake.formats import declare

RULES = Path(__file__).parents[1] / "rules"
ISO = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX"
SECTIONS = ("batch:", "schema:", "rows:", "untyped:", "converted:", "quarantine:")


@dataclass
class Case:
    title: str
    declared: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    batches: list[list[str]] = field(default_factory=list)
    sections: dict[str, list[str]] = field(default_factory=dict)


def cases() -> list[Any]:
    out = []
    for file in sorted(RULES.glob("*.txt")):
        for case in read(file):
            out.append(pytest.param(case, id=f"{file.stem}: {case.title}"))
    return out


def read(file: Path) -> list[Case]:
    found: list[Case] = []
    into: list[str] = []
    for line in file.read_text().splitlines():
        if line.startswith("# "):
            found.append(Case(line[2:].strip()))
        elif line.startswith("table: "):
            found[-1].declared = line[7:]
        elif line.startswith("set: "):
            key, value = line[5:].split(" = ")
            found[-1].settings[key.strip()] = value.strip()
        elif line in SECTIONS:
            into = []
            if line == "batch:":
                found[-1].batches.append(into)
            else:
                found[-1].sections[line[:-1]] = into
        elif line.strip():
            into.append(line)
    return found


@pytest.mark.parametrize("case", cases())
def test_rule(case: Case, either: Lake, table_name: str, tmp_path: Path) -> None:
    lake = either
    table = lake.table(table_name)
    if case.declared:
        declare(table, case.declared)
    for i, batch in enumerate(case.batches):
        file = tmp_path / f"batch{i}.jsonl"
        file.write_bytes(("\n".join(batch) + "\n").encode("utf-8", "surrogateescape"))
        result = table.ingest(file, settings=case.settings if i == 0 else None)
        assert result.rows_written + result.rows_quarantined == result.rows_read
        again = table.ingest(file, dry_run=True)
        assert not again.changes, "the same batch again must bring nothing new"
    said = result.to_dict()
    assert columns(table.schema().schema.struct) == case.sections["schema"]
    if "rows" in case.sections:
        rows = (
            table.read().selectExpr(f'to_json(struct(*), map("timestampFormat", "{ISO}")) as row').collect()
        )
        stored = [json.loads(row.row, parse_float=Decimal) for row in rows]
        expected = [json.loads(line, parse_float=Decimal) for line in case.sections["rows"]]
        assert sorted(map(text, stored)) == sorted(map(text, expected))
    if "untyped" in case.sections:
        assert said["untyped"] == case.sections["untyped"]
    if "converted" in case.sections:
        got = [f"{c['path']}: {c['from']} -> {c['to']}" for c in said["converted"]]
        assert sorted(got) == sorted(case.sections["converted"])
    if "quarantine" in case.sections:
        reasons = [r.reason for r in lake.sql(f"select reason from lake.{table_name}__quarantine").collect()]
        assert len(reasons) == len(case.sections["quarantine"])
        for expected_reason in case.sections["quarantine"]:
            assert any(expected_reason in reason for reason in reasons), (expected_reason, reasons)


def columns(struct: Struct, prefix: str = "") -> list[str]:
    """A struct's columns as ``name: type``, nested ones dotted below, with ``<- key`` where evolved."""
    out = []
    for column in struct.fields:
        key = marked_key(column.doc)
        dim, inner = peel(column.type)
        shown = "list<" * dim + ("record" if isinstance(inner, Struct) else type_name(inner)) + ">" * dim
        out.append(f"{prefix}{column.name}: {shown}" + (f" <- {key}" if key is not None else ""))
        if isinstance(inner, Struct):
            out += columns(inner, f"{prefix}{column.name}.")
    return out


def text(value: Any) -> str:
    """One spelling for equal values, so that rows can be sorted."""
    match value:
        case dict():
            return "{" + ", ".join(f"{k!r}: {text(v)}" for k, v in sorted(value.items())) + "}"
        case list():
            return "[" + ", ".join(map(text, value)) + "]"
        case str() if re.fullmatch(r"[0-9]{4}-[0-9-]{5}T[0-9:.]+Z?", value):
            return repr(re.sub(r"(\.[0-9]*?)0+(Z?)$", r"\1\2", value).replace(".Z", "Z").removesuffix("."))
        case bool() | None | str():
            return repr(value)
        case _:
            # Equal numbers, one spelling; doubles as the nearest double.
            number = Decimal(value).normalize()
            if number == number.to_integral_value():
                return str(int(number))
            return str(float(number)) if len(number.as_tuple().digits) <= 17 else str(number.normalize())
