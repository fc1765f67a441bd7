"""Every case of tests/rules, without an engine: observed, planned and converted in memory."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from driftline.convert import Converter, Lost, arrow_schema
from driftline.core.changes import AddColumn, apply
from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.plan import Conflict, Plan, by_name
from driftline.core.schema.text import parse_type
from driftline.core.schema.types import Path, Schema, Struct
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.table import TableSettings
from driftline.core.values import Malformed, parse
from driftline.ingest.accept import accepted
from driftline.ingest.batch import RecentBatches
from driftline.observe.expect import ExpectedField, expect, with_declared_values
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation
from driftline.readers.expectations import ExpectationCheck
from driftline.sources.scan import Observed
from rule_cases import Case, cases, columns, text


@dataclass(frozen=True)
class Lines:
    """A batch of JSON lines in memory, opened for a table."""

    lines: Sequence[bytes]
    schema: Schema
    settings: TableSettings
    check: AdmissionCheck | None = None
    values: ExpectedField | None = None
    repeats: bool = False

    def observer(self) -> JsonObserver:
        return JsonObserver(self.expected, self.settings, self.check)

    def observe(self) -> Observed:
        observer = self.observer()
        observer.feed(self.lines, "batch", 1)
        return Observed(self, observer.result())  # type: ignore[arg-type]

    def with_declared_values(self, schema: Schema) -> Lines | None:
        before = self.expected
        expected = with_declared_values(before, schema.struct, self.settings)
        return None if expected is before else replace(self, values=expected)

    @property
    def expected(self) -> ExpectedField:
        return self.values or expect(self.schema, self.settings)

    def refusing(self, check: AdmissionCheck, conflicts: Sequence[Conflict], _: Observation) -> Lines:
        return replace(self, check=check)

    def records(self) -> tuple[list[dict[str, object]], list[str]]:
        """The accepted records, and the reasons for the others."""
        observer = self.observer()
        records, reasons = [], []
        for number, line in enumerate(self.lines, 1):
            if not line.strip():
                continue
            try:
                record = parse(line)
            except Malformed as error:
                reasons.append(str(error))
                continue
            why = observer.inspect(line, "batch", number) if self.check else None
            if why is None:
                records.append(record)
            else:
                reasons.append(why if isinstance(why, str) else why.why)
        return records, reasons


@dataclass
class Table:
    """A table in memory: its schema, and rows as Arrow."""

    schema: Schema
    rows: list[pa.RecordBatch] = field(default_factory=list)
    violations: dict[str, int] = field(default_factory=dict)  # of the last batch

    def ingest(self, lines: Sequence[bytes], settings: TableSettings) -> list[str]:
        """Takes the batch; returns why records were not taken."""
        lines, self.violations = expected_lines(lines, settings)
        scan: Any = Lines(lines, self.schema, settings)
        observed, planned = accepted(scan, RecentBatches(), lambda _: None, self.lossy)
        scan = observed.scan
        records, reasons = scan.records()
        if not planned.schema.struct.fields:
            return [*reasons, *["no columns yet"] * len(records)]
        made = Converter(planned.schema.struct, planned.route, settings).of_json(records)
        if planned.changes:
            self.rows = [self.rewritten(rows, planned, settings) for rows in self.rows]
        self.schema, self.rows = planned.schema, [*self.rows, made]
        return reasons

    def rewritten(self, rows: pa.RecordBatch, planned: Plan, settings: TableSettings) -> pa.RecordBatch:
        """The old rows in the new schema: what the format does in metadata, and what it takes a rewrite for."""
        before, after = planned.before.struct, planned.schema.struct
        return Converter(after, by_name(before, after), settings).of_arrow(rows, before, json=False)

    def lossy(self, planned: Plan) -> list[Path]:
        out = []
        for change in planned.rewrites:
            try:
                for rows in self.rows:
                    self.rewritten(rows, planned, TableSettings())
            except Lost:
                out.append(change.path)
        return out


def expected_lines(
    lines: Sequence[bytes], settings: TableSettings, deletes: Any = None
) -> tuple[Sequence[bytes], dict[str, int]]:
    """The lines, without the records that expectations set aside; and the violations of each expectation."""
    check = ExpectationCheck(settings.expect)
    kept = check.lines(lines, deletes, "batch", 1) if settings.expect else lines
    found = check.drain()
    return kept, {e.name: found[e.name].count if e.name in found else 0 for e in settings.expect}


@pytest.mark.parametrize("case", cases(keyed=False))
def test_rule(case: Case) -> None:
    settings = from_properties(as_properties(case.settings))
    table = Table(declared(case.declared) if case.declared else Schema())
    reasons: list[str] = []
    for batch in case.batches:
        lines = [line.encode("utf-8", "surrogateescape") for line in batch]
        reasons += table.ingest(lines, settings)
    assert columns(table.schema.struct) == case.sections["schema"]
    if "rows" in case.sections:
        types = arrow_schema(table.schema.struct)
        rows = [row for batch in table.rows for row in batch.to_pylist(maps_as_pydicts="strict")]
        stored = [text(shown(row, types)) for row in rows]
        expected = [text(json.loads(line, parse_float=Decimal)) for line in case.sections["rows"]]
        assert sorted(stored) == sorted(expected)
    if "quarantine" in case.sections:
        assert len(reasons) == len(case.sections["quarantine"])
        for why in case.sections["quarantine"]:
            assert any(why in reason for reason in reasons), (why, reasons)
    if "expect" in case.sections:
        assert [f"{name}: {count}" for name, count in table.violations.items()] == case.sections["expect"]


@pytest.mark.parametrize("case", cases(keyed=False))
def test_declared_columns_get_the_same_values_wherever_batches_are_cut(case: Case) -> None:
    settings = from_properties(as_properties(case.settings))
    before = declared(case.declared) if case.declared else Schema()
    names = {key for key, contract in settings.fields.fields.items() if contract.hint is not None}
    names |= {f.name for f in before.struct.fields}
    lines = [line.encode("utf-8", "surrogateescape") for batch in case.batches for line in batch]
    in_one, one_by_one = Table(before), Table(before)
    in_one.ingest(lines, settings)
    for line in lines:
        one_by_one.ingest([line], settings)

    for name in names:
        # Nothing but [] and {} is no value: it may be null.
        values = [
            [str(row.get(name) or None) for rows in table.rows for row in rows.to_pylist()]
            for table in (in_one, one_by_one)
        ]
        assert values[0] == values[1], name


def declared(ddl: str) -> Schema:
    """A schema of these columns, as Spark's DDL has them."""
    required = set(re.findall(r"(\w+) \w+ not null", ddl))
    struct = parse_type(f"struct<{ddl.replace(' not null', '')}>")
    assert isinstance(struct, Struct)
    return apply(Schema(), [AddColumn((), replace(f, required=f.name in required)) for f in struct.fields])


def shown(value: Any, type_: Any) -> Any:
    """A value as the fixtures write it: without what is null in a record."""
    match value:
        case dict() if isinstance(type_, pa.Schema | pa.StructType):
            return {k: shown(v, type_.field(k).type) for k, v in value.items() if v is not None}
        case dict():
            return {k: shown(v, type_.item_type) for k, v in value.items()}
        case list():
            return [shown(v, type_.value_type) for v in value]
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case float():
            return Decimal(str(np.float32(value)) if pa.types.is_float32(type_) else repr(value))
        case bytes():
            return b64encode(value).decode()
        case _:
            return value


SPELLED = {
    "hint": ("hints.l{}.d", "decimal(9,2)"),
    "hint of text": ("hints.l{}.at", "string"),
    "hint inside a struct": ("hints.s.l{}.d", "int"),
    "hint below two lists": ("hints.ll{}{}.d", "float"),
    "exclusion": ("exclude.l{}.d", "true"),
    "policy": ("policies.l{}.d", "strict"),
    "epoch unit": ("epoch_units.l{}.at", "s"),
    "maps": ("maps.l{}.m", "off"),
    "new fields": ("new_fields.l{}.d", "hold"),
}
RECORD = {"d": 1.5, "at": "2026-01-01T00:00:00Z", "m": {str(n): n for n in range(40)}}
LINES = [
    json.dumps({"l": [RECORD, {"d": 2}], "s": {"l": [{"d": 1}]}, "ll": [[{"d": 1}], [{"d": 2.5}]]}).encode(),
    json.dumps(
        {"l": [{"d": "x", "at": 5}, RECORD], "s": {"l": [{"d": 2.5}]}, "ll": [[{"d": 1e99}]]}
    ).encode(),
]


@pytest.mark.parametrize("name", SPELLED)
def test_step_into_a_list_may_be_named_or_left_out_on_a_new_field_and_an_old_one(name: str) -> None:
    setting, value = SPELLED[name]
    tables = []
    for step in (".element", ""):
        steps = [step] * (setting + value).count("{}")
        properties = {"maps": "auto", setting.format(*steps): value.format(*steps)}
        settings = from_properties(as_properties(properties))
        new, old = Table(Schema()), Table(Schema())
        reasons = [new.ingest([line], settings) for line in LINES]
        old.ingest(LINES[:1], TableSettings())
        reasons.append(old.ingest(LINES, settings))
        rows = [batch.to_pylist() for table in (new, old) for batch in table.rows]
        tables.append((columns(new.schema.struct), columns(old.schema.struct), rows, reasons))

    assert tables[0] == tables[1]
    plain = Table(Schema())
    plain.ingest(LINES, from_properties(as_properties({"maps": "auto"})))
    assert tables[0][0] != columns(plain.schema.struct) or name in ("epoch unit", "hint of text")
