"""What was observed and planned, converts: every value of every record is in a column that keeps it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.test_observe_sound import SCHEMAS, batches, observed
from driftline.convert import Converter
from driftline.core.plan import plan
from driftline.core.routes import Settings
from driftline.core.types import Schema
from driftline.observe.parse import Malformed, parse
from driftline.observe.walk import expect


def records_of(lines: list[bytes]) -> list[dict[str, object]]:
    out = []
    for line in lines:
        if line.strip():
            try:
                out.append(parse(line))
            except Malformed:
                continue
    return out


@given(batches(), SCHEMAS, st.sampled_from(["on", "off", "instant"]))
@settings(max_examples=400, deadline=None)
def test_no_value_is_lost(lines: list[bytes], schema: Schema, dates: str) -> None:
    wanted = Settings(dates=dates)
    planned = plan(schema, observed(lines, expect(schema, wanted), dates).shape, wanted)
    if not planned.schema.struct.fields or planned.conflicts:
        return
    records = records_of(lines)
    rows = Converter(planned.schema.struct, planned.route, wanted).of_json(records)
    rows.validate(full=True)
    assert rows.num_rows == len(records)
