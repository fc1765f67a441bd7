"""What was observed and planned, converts: the rows hold every value of every record, by the check that knows no routes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from core.test_observe_sound import SCHEMAS, batches, observed
from driftline.convert import Converter
from driftline.core.plan import plan
from driftline.core.routes import Plan, Settings
from driftline.core.types import List, Map, Primitive, Schema, Struct, Type
from driftline.observe.parse import Malformed, parse
from driftline.observe.walk import expect
from driftline.verify.files import parse as parse_apart
from driftline.verify.match import Record, differences
from driftline.verify.values import Pairs, Reading, Single

DATES = st.sampled_from(["on", "off", "instant"])


def records_of(lines: list[bytes]) -> tuple[list[dict[str, object]], list[dict[str, Any]]]:
    """The records of some lines, as driftline parses them, and as its check does."""
    records, others = [], []
    for line in lines:
        if b'"": ' in line:  # a key of a map to the rules, none to the check
            continue
        try:
            record = parse(line)
        except Malformed:
            continue
        records.append(record)
        others.append(parse_apart(line))
    return records, others


def planned_of(lines: list[bytes], schema: Schema, wanted: Settings) -> Plan | None:
    seen = observed(lines, expect(schema, wanted), wanted.dates)
    planned = plan(schema, seen.shape, wanted)
    return planned if planned.schema.struct.fields and not planned.conflicts else None


@given(batches(), SCHEMAS, DATES)
@settings(max_examples=150, deadline=None)
def test_rows_hold_their_records(lines: list[bytes], schema: Schema, dates: str) -> None:
    wanted = Settings(dates=dates)
    planned = planned_of(lines, schema, wanted)
    if planned is None:
        return
    records, others = records_of(lines)
    rows = Converter(planned.schema.struct, planned.route, wanted).of_json(records)
    rows.validate(full=True)
    columns, reading = Record.of(planned.schema.struct), Reading(offsets=dates == "instant")
    for row, record in zip(plain(rows, planned.schema.struct), others, strict=True):
        assert differences(columns, row, record, reading) == []


def plain(rows: pa.RecordBatch, struct: Struct) -> list[dict[str, Any]]:
    """Rows as a plain reader gives them."""
    return [_plain(row, struct) for row in rows.to_pylist()]


def _plain(value: Any, type_: Type) -> Any:
    match type_:
        case _ if value is None:
            return None
        case Struct(fields):
            return {f.name: _plain(value[f.name], f.type) for f in fields}
        case List(element):
            return [_plain(item, element) for item in value]
        case Map():
            return Pairs({key: _plain(item, type_.value) for key, item in value})
        case Primitive("float"):
            return Single(value)
        case Primitive("uuid"):
            return UUID(bytes=value)
        case _:
            return value
