"""Records of which some fields drifted, taken apart by field: the same rows as one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.core.planning.contract import OfPaths, contract
from driftline.core.planning.exclude import without_excluded
from driftline.core.planning.plan import plan
from driftline.core.planning.routes import Settings
from driftline.core.schema.types import Schema
from driftline.core.values.parse import parse
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.source import json_rows
from driftline.source.json_rows import JsonRows

LEAVES = st.sampled_from(
    [
        None,
        True,
        7,
        2**40,
        2**63,
        1.5,
        0.12345678901234567,
        "x",
        "7",
        "2024-01-31",
        "2024-01-31T10:00:00Z",
        "",
    ]
)
VALUES = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.sampled_from("ab"), LEAVES, max_size=2)
RECORDS = st.fixed_dictionaries({}, optional=dict.fromkeys(["a", "b", "c", 'q"\\', "é"], VALUES))


def rows_of(lines: Sequence[bytes], settings: Settings) -> tuple[list[str], list[str]]:
    """The rows of lines that the decoder has seen before; and the same, each record on its own."""
    known = expect(Schema(), settings)
    observer = JsonObserver(known, settings)
    observer.feed(lines, "batch", 1)
    shape = without_excluded(observer.result().shape, settings.contract)
    planned = plan(Schema(), shape, settings)
    if not planned.schema.struct.fields:
        return [], []
    rows = JsonRows.of(planned, planned.schema.struct, known, observer.result(), settings, None)
    watching = rows.observer()
    watching.feed(lines, "batch", 1)
    looked = watching.feed(lines, "batch", 1 + len(lines))
    by_line: dict[int, str] = {}
    for batch, places in rows.of_lines(lines, looked, watching.fields):
        batch.validate(full=True)
        by_line |= zip(places, map(repr, batch.to_pylist()), strict=True)
    alone = rows.converter.of_json([parse(line) for line in lines]).to_pylist()
    return [by_line[place] for place in range(len(lines))], list(map(repr, alone))


@given(
    st.lists(RECORDS, min_size=1, max_size=8),
    st.sampled_from([Settings(), Settings(contract=contract(paths=OfPaths(exclude=[("a",), ("b", "a")])))]),
)
def test_records_taken_apart_are_as_one_by_one(records: list[dict[str, Any]], settings: Settings) -> None:
    by_field, alone = rows_of([json.dumps(record).encode() for record in records], settings)
    assert by_field == alone


@pytest.mark.parametrize(
    ("usual", "drifted"),
    [
        ('{"n": 1, "s": "x"}', '{"n": "7", "s": "y"}'),
        ('{"n": 1, "s": "x"}', '{"n": 1.5, "s": "y", "n": {"k": 1}}'),
        ('{"n": 1, "s": "x"}', '{"\\u006e": "7", "s": "\\ud83d\\ude00"}'),
        ('{"n": 1, "s": "2024-01-31"}', '{"n": null, "s": "31.1.2024"}'),
    ],
)
def test_what_did_not_drift_is_not_read_one_by_one(
    usual: str, drifted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [usual.encode()] * 50 + [drifted.encode()] * 5

    def never(line: bytes) -> None:
        pytest.fail(f"{line!r} is read whole")

    monkeypatch.setattr(json_rows, "parse", never)
    by_field, alone = rows_of(lines, Settings())
    assert by_field == alone


def test_lines_with_numbers_that_a_double_does_not_tell_are_read_one_by_one() -> None:
    lines = [b'{"d": 0.5, "n": 7}'] * 9 + [b'{"d": 0.123456789012345678, "n": "x"}']
    by_field, alone = rows_of(lines, Settings())
    assert by_field == alone
