"""Records of which some fields drifted, taken apart by field: the same rows as one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.table_in_memory import by_whole_columns
from driftline.convert import Converter
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import without_excluded
from driftline.core.schema.types import LONG, STRING, Field, Primitive, Schema, Struct
from driftline.core.settings.fields import OfPaths, field_settings
from driftline.core.settings.table import TableSettings
from driftline.core.values import parse, parse_values
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation, merge_observations
from driftline.readers.json import rows as json_rows
from driftline.readers.json.rows import JsonRows
from driftline.readers.task import AdmissionTerms

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
LISTS = LEAVES | st.lists(LEAVES, max_size=3)
OBJECTS = st.dictionaries(st.sampled_from("ab"), LISTS, max_size=2)
VALUES = (
    LISTS
    | st.dictionaries(st.sampled_from("abc"), LISTS | OBJECTS, max_size=3)
    | st.lists(st.dictionaries(st.sampled_from("ab"), st.just(True) | st.just("x"), min_size=1), max_size=2)
)
RECORDS = st.fixed_dictionaries({}, optional=dict.fromkeys(["a", "b", "c", 'q"\\', "é"], VALUES))


def rows_of(lines: Sequence[bytes], settings: TableSettings) -> tuple[list[str], list[str]]:
    """The rows of lines that the decoder has seen before; and the same, each record on its own."""
    known = expect(Schema(), settings)
    observer = JsonObserver(known, settings)
    observer.feed(lines, "batch", 1)
    shape = without_excluded(observer.result().shape, settings.fields)
    planned = plan(Schema(), shape, settings)
    if not planned.schema.struct.fields:
        return [], []
    rows = JsonRows.of(planned, planned.schema.struct, AdmissionTerms(known, settings), observer.result())
    alone = rows.converter.of_json([parse(line) for line in lines])
    return by_whole_columns(rows, lines, shown), shown(alone)


def shown(rows: pa.RecordBatch) -> list[str]:
    """The rows as text; the entries of the rest are in no order."""
    return [repr({**row, "_rest": sorted(row.get("_rest") or [])}) for row in rows.to_pylist()]


@pytest.mark.slow
@given(
    st.lists(RECORDS, min_size=1, max_size=8),
    st.sampled_from(
        [
            TableSettings(),
            TableSettings(fields=field_settings(paths=OfPaths(exclude=[("a",), ("b", "a")]))),
            TableSettings(max_columns=3, beyond="rest"),
            TableSettings(max_fields=1, beyond="rest"),
            TableSettings(fields=field_settings(paths=OfPaths(hints={("a", "b"): Primitive("variant")}))),
        ]
    ),
)
def test_records_taken_apart_are_as_one_by_one(
    records: list[dict[str, Any]], settings: TableSettings
) -> None:
    by_field, alone = rows_of([json.dumps(record).encode() for record in records], settings)
    assert by_field == alone


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        ('{"n": 1, "s": "x"}', '{"n": "7", "s": "y"}'),
        ('{"n": 1, "s": "x"}', '{"n": 1.5, "s": "y", "n": {"k": 1}}'),
        ('{"n": 1, "s": "x"}', '{"\\u006e": "7", "s": "\\ud83d\\ude00"}'),
        ('{"n": 1, "s": "2024-01-31"}', '{"n": null, "s": "31.1.2024"}'),
    ],
)
def test_what_did_not_drift_is_not_read_one_by_one(
    usual: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [usual.encode()] * 50 + [other.encode()] * 5

    def never(line: bytes) -> None:
        pytest.fail(f"{line!r} is read whole")

    monkeypatch.setattr(json_rows, "parse", never)
    by_field, alone = rows_of(lines, TableSettings())
    assert by_field == alone


def test_a_line_with_a_number_that_a_double_does_not_tell_is_read_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    doubtful = b'{"d": 0.123456789012345678, "n": "x"}'
    lines = [b'{"d": 0.5, "n": 7}'] * 9 + [b'{"d": 0.5, "n": "x"}', doubtful]
    read: list[bytes] = []
    monkeypatch.setattr(json_rows, "parse", lambda line: read.append(line) or parse(line))
    by_field, alone = rows_of(lines, TableSettings())
    assert by_field == alone
    assert read == [doubtful]


def test_lines_that_the_parser_would_misread_are_read_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    misread = [b'{"n": -0, "s": "x"}', b'{"n": 7, "t": "a\\u0000"}']
    hunk = b'{"n": 3, "t": "@@ -0,0 +1 @@"}'
    # A text takes whole numbers, so that a zero's sign counts.
    settings = TableSettings(fields=field_settings(paths=OfPaths(hints={("s",): STRING})))
    lines = [b'{"n": 2, "s": 1}', *[b'{"n": 7, "t": "y"}'] * 9, misread[0], hunk, b'{"n": 8}', misread[1]]
    read: list[bytes] = []
    monkeypatch.setattr(json_rows, "parse", lambda line: read.append(line) or parse(line))
    by_field, alone = rows_of(lines, settings)
    assert by_field == alone
    assert read == misread


def test_of_records_in_records_only_the_value_that_drifted_is_read_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [b'{"a": {"b": {"n": %d, "s": "x"}, "l": [1]}}' % i for i in range(9)]
    lines += [
        b'{"a": {"b": {"n": "7", "s": "y"}, "l": [2]}}',
        b'{"a": {"b": {"n": [8], "s": "z"}, "l": null}}',
        b'{"a": "text"}',
        b'{"a": {"b": {"n": {"k": {}}}, "l": ["q"]}}',
    ]
    read: list[bytes] = []
    monkeypatch.setattr(
        json_rows, "parse_values", lambda texts: read.extend(map(bytes, texts)) or parse_values(texts)
    )
    by_field, alone = rows_of(lines, TableSettings())
    assert by_field == alone
    assert sorted(read) == [b'"7"', b'"text"', b'["q"]', b"[8]", b'{"k": {}}']


@pytest.mark.slow
@given(st.lists(RECORDS, min_size=2, max_size=8), st.integers(1, 8), st.integers(1, 7))
def test_what_the_first_lines_hold_need_not_be_looked_at_again(
    records: list[dict[str, Any]], first: int, cut: int
) -> None:
    """Two parts of a file, in one task: as if each was observed by an observer of its own."""
    lines = [json.dumps(record).encode() for record in records]
    known = expect(Schema(), TableSettings())

    def seen_in(lines: Sequence[bytes], line: int) -> Observation:
        observer = JsonObserver(known, TableSettings())
        observer.feed(lines, "batch", line)
        return observer.result()

    whole = seen_in(lines, 1)
    planned = plan(Schema(), whole.shape)
    rows = JsonRows.of(planned, planned.schema.struct, AdmissionTerms(known, TableSettings()), whole)
    again = rows.beginning_with(seen_in(lines[:first], 1).shape).observer()
    parts = []
    for number, part in ((0, lines[:cut]), (cut, lines[cut:])):
        again.feed(part, "batch", 1)
        parts.append(again.drain().shifted(number))
    merged = merge_observations(parts)
    assert merged.tally == whole.tally
    assert merged.lines == whole.lines
    again_planned = plan(Schema(), merged.shape)
    assert again_planned.changes == planned.changes
    assert again_planned.converted == planned.converted


def test_what_was_null_when_the_decoder_was_built_is_not_usual_later() -> None:
    """A key with a quote has all of its record checked in Python, by what was learnt of the others."""
    lines = [b'{"a": null, "q\\"": null, "c": true}', b'{"a": 9223372036854775808}']
    by_field, alone = rows_of(lines, TableSettings())
    assert by_field == alone


def test_what_drifts_builds_no_decoder_of_usual_values_anew() -> None:
    lines = [b'{"n": %d, "s": "x"}' % i for i in range(5)]
    lines += [b'{"n": "7", "s": "x"}', b'{"n": {"k": 1}, "s": "x"}', b'{"n": [1], "s": "x"}'] * 200
    known = expect(Schema(), TableSettings())
    observer = JsonObserver(known, TableSettings())
    observer.feed(lines, "batch", 1)
    planned = plan(Schema(), observer.result().shape, TableSettings())
    rows = JsonRows.of(
        planned, planned.schema.struct, AdmissionTerms(known, TableSettings()), observer.result()
    )
    watching = rows.observer()
    watching.feed(lines[:5], "batch", 1)
    usual = watching.fields
    watching.feed(lines[5:], "batch", 6)
    assert watching.fields is usual


def test_numbers_and_strings_keep_their_places_whatever_their_types() -> None:
    records = [{"n": [-1, 7, 1.5, 0]}, {"s": ["2024-01-31", "x", "7"]}]
    lines = [json.dumps(record).encode() for record in records]
    observer = JsonObserver(expect(Schema(), TableSettings()), TableSettings())
    observer.feed(lines, "batch", 1)
    planned = plan(Schema(), observer.result().shape)
    rows = Converter(planned.schema.struct, planned.route, TableSettings())
    made = rows.of_json([parse(line) for line in lines]).to_pylist()
    assert made == [{"n": [-1.0, 7.0, 1.5, 0.0], "s": None}, {"n": None, "s": ["2024-01-31", "x", "7"]}]
    alone = b'{"n": [-1, 7, -3]}'
    observer = JsonObserver(expect(Schema(), TableSettings()), TableSettings())
    observer.feed([alone], "batch", 1)
    planned = plan(Schema(), observer.result().shape)
    assert Converter(planned.schema.struct, planned.route, TableSettings()).of_json(
        [parse(alone)]
    ).to_pylist() == [{"n": [-1, 7, -3]}]


def test_a_drifted_value_is_no_default() -> None:
    table = Schema(Struct((Field("n", LONG, 1, write_default=5),)))
    lines = [b'{"n": 1}'] * 3 + [b'{"n": "x"}', b"{}"]
    known = expect(table, TableSettings())
    observer = JsonObserver(known, TableSettings())
    observer.feed(lines, "batch", 1)
    planned = plan(table, observer.result().shape)
    terms = AdmissionTerms(known, TableSettings())
    rows = JsonRows.of(planned, planned.schema.struct, terms, observer.result())
    made = by_whole_columns(rows, lines, pa.RecordBatch.to_pylist)
    assert [row["n"] for row in made] == [1, 1, 1, None, 5]
    assert [row["n_string"] for row in made] == ["1", "1", "1", "x", None]
