"""The decoder takes only lines that teach nothing: what is observed with it is what walking every line gives."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.core.planning.planner import plan
from driftline.core.planning.policies import POLICIES
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.naming import mark
from driftline.core.schema.schema_json import to_json
from driftline.core.schema.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UUID,
    Field,
    List,
    Map,
    Schema,
    Struct,
    decimal,
    wrap,
)
from driftline.core.settings.fields import field_settings
from driftline.core.settings.table import TableSettings
from driftline.core.values import Malformed, parse
from driftline.observe import decoder, json_lines
from driftline.observe.decoder import REFUSED, build, doubtful
from driftline.observe.expect import ExpectedField, expect, steady
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation
from driftline.observe.walk import Walker

KEYS = st.sampled_from(["a", "a", "b", "b", "c", "", 'q"', "é"])
NUMBERS = st.one_of(
    st.integers(-3, 3).map(str),
    st.integers(-(2**66), 2**66).map(str),
    st.sampled_from(
        [
            "0.5",
            "1.50",
            "-0",
            "-0.0",
            "1e3",
            "1E-7",
            "1e400",
            "1e-400",
            "5e-324",
            "9007199254740993",
            "-9007199254740992",
            "2147483648",
            "16777217",
            "0.10000000000000001",
            "0.1234567890123456789",
            "12345678901234567890.5",
            "52.520006599999997",
            "12345678901234567e3",
            "19.99",
            "123456789012345678901234567890123456789",
            "1.5e300",
        ]
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
STRINGS = st.sampled_from(
    [
        *(
            "",
            "x",
            "plain",
            "2024-01-31",
            "2024-02-29",
            "2023-02-29",
            "1969-12-31",
            "2024-01-31\n",
            "10:30:00",
        ),
        *("2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00.123456+00:00"),
        *("2024-01-01T00:00:00.000", "2024-01-01T00:00:00", "2500-01-01T00:00:00.1", "2024-01-01T25:00:00"),
        *(
            "2024-01-01T00:00:00+02:00",
            "1970-01-01T00:00:00-05:00",
            "2024-01-01 00:00:00Z",
            "2024-01-01 00:00:00",
            "2024-01-01  00:00:00",
            "2024-01-01T00:00:00z",
        ),
        *(
            "123e4567-e89b-12d3-a456-426614174000",
            "123E4567-e89b-12d3-a456-426614174000",
            "\ud83d\ude00",
            "\x00",
        ),
    ]
).map(lambda s: json.dumps(s, ensure_ascii=len(s) % 2 == 0))
LEAVES = st.one_of(
    STRINGS, NUMBERS, st.sampled_from(["true", "false", "null", "null", "[]", "{}", "[null]", "[{}]"])
)


def _object(pairs: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{json.dumps(k)}: {v}" for k, v in pairs) + "}"


VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: f"[{', '.join(v)}]"),
        st.lists(st.tuples(KEYS, inner), max_size=4).map(_object),
    ),
    max_leaves=6,
)
# Few keys and few values a column, so that lines repeat what was seen: only then the decoder has a say.
RECORDS = st.lists(st.tuples(KEYS, VALUES), max_size=5)
BROKEN = st.sampled_from(
    [b"", b"  ", b"[1]", b"7", b'"x"', b"null", b'{"a": NaN}', b'{"a": 1', b'{"a": "\xff"}', b'{"a": "\\ud800"}',
     b'{"a": 1} x', b'{"a": 01}', b'{"a": "\x01"}', b"\xef\xbb\xbf{}", b'{"a": tru}', b"{'a': 1}"]
)  # fmt: skip


# A field's values: mostly of one kind, at one depth or another, so that they differ in little.
KINDS = st.sampled_from(
    [
        *(STRINGS, NUMBERS, LEAVES, VALUES),
        st.sampled_from(
            ["1", "-2147483649", "9007199254740993", "19.99", "0.125", "0.1234567890123456789", "{}"]
        ),
        st.sampled_from(
            [
                *('"2024-01-31"', '"1969-01-31"', '"2024-01-01T00:00:00Z"', '"2024-01-01T00:00:00.000Z"'),
                *('"2024-01-01T00:00:00.5Z"', '"2024-01-01T00:00:00.1234Z"', '"1960-01-01T00:00:00Z"', "[]"),
                *('"2024-01-01T00:00:00.5"', '"2024-01-01T00:00:00+02:00"', '"1970-01-01T00:00:00+02:00"'),
            ]
        ),
    ]
)
SHELLS = st.sampled_from(
    ["{}", "{}", "[{}]", "[{}, {}]", "[[{}]]", "[{}, [{}]]", '{"a": {}}', '[{"a": {}}, null]']
)


@st.composite
def fields(draw: Any) -> list[str]:
    kind, shells = draw(KINDS), draw(st.lists(SHELLS, min_size=1, max_size=3))
    values = draw(st.lists(st.tuples(kind, st.sampled_from(shells)), min_size=3, max_size=14))
    return [shell.replace("{}", value) for value, shell in values]


@st.composite
def batches(draw: Any) -> list[bytes]:
    pool = draw(st.lists(RECORDS, min_size=1, max_size=8))
    rng = random.Random(draw(st.integers(0, 99)))
    lines = [_object(rng.choice(pool)).encode() for _ in range(draw(st.integers(1, 30)))]
    for _ in range(draw(st.integers(0, 10))):  # mixes: each field's value from another record
        mixed = {k: v for record in rng.sample(pool, min(3, len(pool))) for k, v in record}
        lines.insert(rng.randrange(len(lines) + 1), _object(list(mixed.items())).encode())
    for broken in draw(st.lists(BROKEN, max_size=2)):
        lines.insert(rng.randrange(len(lines) + 1), broken)
    return lines


TYPES = st.sampled_from(
    [
        *(BOOLEAN, INT, LONG, FLOAT, DOUBLE, STRING, DATE, TIMESTAMP, TIMESTAMP_NTZ, UUID, TIME),
        *(decimal(5, 2), decimal(38, 0), decimal(38, 18), decimal(25, 3)),
    ]
)
SCHEMA_KEYS = st.sampled_from(["a", "b", "c", "d", "e e", "é", 'q"'])


def _structs(inner: Any) -> Any:
    return st.dictionaries(SCHEMA_KEYS, st.tuples(inner, st.booleans()), min_size=1, max_size=3).map(
        lambda fields: Struct(tuple(Field(k, t, required=must) for k, (t, must) in fields.items()))
    )


SCHEMAS = st.one_of(
    st.just(Schema()),
    _structs(
        st.recursive(
            TYPES,
            lambda inner: st.one_of(
                st.tuples(inner, st.integers(1, 2)).map(lambda t: wrap(*t)),
                inner.map(lambda t: Map(STRING, t)),
                _structs(inner),
            ),
            max_leaves=4,
        )
    ).map(Schema),
)


def walked(lines: list[bytes], known: ExpectedField, dates: str, begun: RecordShape) -> tuple[Walker, int]:
    walker, malformed = Walker(known, dates, begun), 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                walker.walk(parse(line), "file", number)
            except Malformed:
                malformed += 1
    return walker, malformed


def observed(lines: list[bytes], known: ExpectedField, dates: str) -> Observation:
    observer = JsonObserver(known, TableSettings(dates=dates))
    observer.feed(lines, "file", 1)
    return observer.result()


# What a decoder costs: as it is; nothing, so that every line that teaches builds one; too much for a second one.
COSTS = (json_lines._TO_BUILD, 0, 10**9)


@pytest.mark.slow
@given(batches(), SCHEMAS, st.sampled_from(["on", "off", "instant"]), st.sampled_from(COSTS), st.booleans())
@settings(max_examples=130, deadline=None)
def test_decoding_sees_what_walking_sees(
    lines: list[bytes], schema: Schema, dates: str, cost: int, wide: bool
) -> None:
    known = expect(schema, TableSettings(dates=dates))
    walker, malformed = walked(lines, known, dates, steady(known))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_TO_BUILD", cost)
        patch.setattr(json_lines, "_AT_FIRST", min(cost, json_lines._AT_FIRST))
        if wide:
            patch.setattr(decoder, "_WIDEST", 1)
        seen = observed(lines, known, dates)
    assert seen.shape == (walker.shape if seen.tally.records else RecordShape())
    assert seen.tally.rejected == malformed
    assert seen.tally.records == sum(bool(line.strip()) for line in lines) - malformed
    assert seen.tally.dropped_names == walker.dropped


@pytest.mark.slow
@given(batches(), SCHEMAS, st.sampled_from(["on", "off", "instant"]), st.sampled_from([*POLICIES]))
@settings(max_examples=130, deadline=None)
def test_a_column_that_was_not_seen_changes_no_plan(
    lines: list[bytes], schema: Schema, dates: str, policy: str
) -> None:
    wanted = TableSettings(dates=dates, fields=field_settings(policy))
    known = expect(schema, wanted)
    steadily = observed(lines, known, dates)
    plain, _ = walked(lines, known, dates, RecordShape())
    whole = plan(schema, steadily.shape, wanted)
    other = plan(schema, plain.shape, wanted)
    assert to_json(whole.schema) == to_json(other.schema)
    assert {(c.path, c.incoming_type) for c in whole.conflicts} == {
        (c.path, c.incoming_type) for c in other.conflicts
    }


@pytest.mark.slow
@given(st.data(), fields(), st.sampled_from(["on", "off", "instant"]), st.booleans())
@settings(max_examples=130, deadline=None)
def test_what_is_taken_teaches_nothing(data: Any, values: list[str], dates: str, exact: bool) -> None:
    type_ = data.draw(st.none() | TYPES | TYPES.map(List) | TYPES.map(lambda t: Map(STRING, t)))
    inner = data.draw(st.sampled_from([type_, type_ and Struct((Field("a", type_, required=True),))]))
    also = data.draw(st.none() | TYPES)
    columns = [Field("f", inner, required=data.draw(st.booleans()))] if inner else []
    columns += [Field("f_2", also, doc=mark("f"))] if also else []
    table = Struct(tuple(columns))
    walker = Walker(expect(Schema(table)), dates)
    lines = [f'{{"f": {v}}}'.encode() for v in values] + [b"{}"]
    for number, line in enumerate(lines):
        walker.walk(parse(line), "file", number)
        made = build(walker, exact=exact)
        for other in lines:
            if made.doubles and doubtful([other]):
                continue
            try:
                made.decode(other)
            except REFUSED:
                continue
            knew, dropped = walker.version, walker.dropped.total()
            walker.walk(parse(other), "file", number)
            assert (walker.version, walker.dropped.total()) == (knew, dropped), (lines[: number + 1], other)
