"""Observing lines: counts, merging, bad input of every kind, time and space."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Sequence
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import Schema, SourceLocation
from driftline.core.settings.table import TableSettings
from driftline.observe.expect import ExpectedField
from driftline.observe.json_lines import JsonObserver, reason
from driftline.observe.observation import Observation, RejectSample, merge_observations


def observe(lines: Sequence[bytes], source: str = "f", first: int = 1) -> Observation:
    observer = JsonObserver(ExpectedField(), TableSettings())
    observer.feed(lines, source, first)
    return observer.result()


def columns(seen: Observation) -> str:
    return str(plan(Schema(), seen.shape).schema.struct)


def test_counts() -> None:
    seen = observe([b'{"a": 1}', b"", b" \t\r", b"[1]", b'{"a": 2, "": 1}', b'{"a": ', b'{"a": "x"}\r'])
    tally = seen.tally
    assert (tally.records, tally.rejected, seen.lines, dict(tally.dropped_names)) == (3, 2, 7, {(): 1})
    assert tally.reasons == (
        RejectSample(SourceLocation("f", 4), "not an object but a list", "[1]"),
        RejectSample(SourceLocation("f", 6), "invalid JSON: Expecting value at character 6", '{"a": '),
    )
    assert str(tally.reasons[0]) == "f:4: not an object but a list: [1]"


def test_empty_keys_that_are_kept_are_not_counted_and_the_decoder_takes_them() -> None:
    lines = [b'{"": 1, "a": [{"": "x"}]}', b'{"": null}', b'{"": 2, "a": [{"": "y"}, {}]}']
    for kept, dropped in ((True, {}), (False, {(): 3, ("a",): 2})):
        observer = JsonObserver(ExpectedField(), TableSettings(keep_empty_names=kept))
        observer.feed([line for line in lines for _ in range(2_000)], "f", 1)
        looked = observer.feed(lines, "f", 6_001)
        tally = observer.result().tally
        assert {path: n // 2_000 for path, n in tally.dropped_names.items()} == dropped
        assert len(looked) == (0 if kept else 3)


def test_only_some_malformed_lines_are_kept() -> None:
    tally = observe([b"\xff" * 1000] * 20 + [b"{}"]).tally
    assert (tally.rejected, len(tally.reasons), len(tally.reasons[0].sample)) == (20, 5, 80)


LINES = [
    *(
        b'{"a": 1, "b": {"c": [1, 2]}}',
        b'{"a": "x"}',
        b'{"a": "2024-01-31"}',
        b'{"b": {"c": 2.5}}',
        b'{"a": 9007199254740993}',
    ),
    *(
        b'{"b": [{"c": "2024-01-01T00:00:00.123456Z"}]}',
        b'{"a": "2024-01-01T00:00:00Z", "": 1}',
        b'{"d": []}',
        b"oops",
    ),
    *(
        b'{"d": [[]]}',
        b'{"d": {}}',
        b"",
        b'{"a": [1, [2]]}',
        b'{"b": {"c": ["1960-01-01", true, null]}}',
        b"[1]",
    ),
]


@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=12), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_merging_in_any_order(lines: list[bytes], rng: random.Random) -> None:
    cuts = sorted(rng.choices(range(len(lines) + 1), k=3))
    parts = [observe(lines[a:b], "f", a + 1) for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    merged = merge_observations(parts)
    rng.shuffle(parts)
    left = merge_observations([merge_observations(parts[:2]), merge_observations(parts[2:])])
    right = merge_observations([parts[0], merge_observations(parts[1:])])
    assert merged.tally == left.tally == right.tally
    assert merged.shape == left.shape == right.shape
    assert all(merged.shape.covers(part.shape) for part in parts)
    whole = observe(lines)
    assert whole.tally == merged.tally
    # What one pass leaves out, because it is implied, changes no plan.
    assert plan(Schema(), whole.shape).schema == plan(Schema(), merged.shape).schema


@pytest.mark.parametrize(
    "more",
    [
        b'{"new": null}',
        b'{"n": "x"}',
        b'{"n": 9007199254740993}',
        b'{"n": [1]}',
        b'{"n": {}}',
        b'{"n": []}',
        b'{"at": "2024-01-01T00:00:00.5Z"}',
        b'{"at": "1905-01-01T00:00:00Z"}',
        b'{"r": {"new": 1}}',
        b'{"l": [1, [2]]}',
    ],
)
def test_what_a_shape_covers(more: bytes) -> None:
    usual = [b'{"n": 1, "at": "2024-01-01T00:00:00Z", "r": {"a": 1}, "l": [[1]]}']
    known = observe(usual).shape
    assert known.covers(observe([*usual, b"{}", b'{"r": {"a": 7}}'], "other").shape)
    assert not known.covers(observe([*usual, more]).shape)


def test_order_of_feeding_does_not_matter() -> None:
    lines = [*LINES * 3]
    forth, back = (
        JsonObserver(ExpectedField(), TableSettings()),
        JsonObserver(ExpectedField(), TableSettings()),
    )
    for name in ("a", "b"):
        forth.feed(lines, name, 1)
    for name in ("b", "a"):
        back.feed(lines, name, 1)
    assert (
        forth.result().shape.fields["a"].location
        == back.result().shape.fields["a"].location
        == SourceLocation("a", 1)
    )
    assert forth.result().tally == back.result().tally


def test_shifted() -> None:
    seen = observe([b'{"a": {"b": [1]}}', b"x"]).shifted(100)
    (a,) = seen.shape.fields.values()
    (record,) = a.facets.values()
    assert record.record is not None
    (inner,) = record.record.fields["b"].facets.values()
    assert [
        a.location.line,
        record.location.line,
        inner.location.line,
        seen.tally.reasons[0].location.line,
    ] == [
        101,
        101,
        101,
        102,
    ]
    assert seen.lines == 2


def test_a_shape_of_any_depth_can_be_sent() -> None:
    line = b'{"a":' * 100 + b"1" + b"}" * 100
    seen = observe([line, b'{"a": [{"b": 1}], "c": 1.5}', b"x"])
    sent = pickle.loads(pickle.dumps(seen))
    assert (str(sent.tally), sent.lines) == (str(seen.tally), 3)
    a, b = seen.shape, sent.shape
    for _ in range(99):
        assert list(a.fields) == list(b.fields)
        assert list(a.fields["a"].facets) == list(b.fields["a"].facets)
        a, b = (next(iter(shape.fields["a"].facets.values())).record for shape in (a, b))
        assert a is not None
        assert b is not None
    assert a == b


def test_keys_of_every_kind() -> None:
    keys = [
        "a\nb",
        'q"',
        "back\\slash",
        "\x00",
        "é",
        "\u2028",
        "😀",
        "a.b",
        " ",
        "1",
        "\x7f",
        "k" * 300,
        "`",
        "A",
        "a",
    ]
    lines = [
        json.dumps({key: i, "in": {key: "x"}}, ensure_ascii=i % 2 == 0).encode()
        for i, key in enumerate(keys * 50)
    ]
    seen = observe(lines)
    assert set(seen.shape.fields) == {*keys, "in"}
    assert seen.tally.records == len(lines)


@pytest.mark.slow
def test_many_keys_are_no_trouble() -> None:
    lines = [b'{"id%d": {"n": %d}, "x": 1}' % (i, i) for i in range(10_000)]
    start = process_time()
    seen = observe(lines * 2)
    assert process_time() - start < 20
    assert len(seen.shape.fields) == 10_001


@pytest.mark.slow
def test_a_long_line() -> None:
    text = b'{"s": "' + b"x" * 30_000_000 + b'", "n": [' + b", ".join([b"1.5"] * 500_000) + b"]}"
    start = process_time()
    seen = observe([b'{"s": "a"}', text, b'{"n": 1}'])
    assert process_time() - start < 20
    assert columns(seen) == "struct<s: string, n: list<double>, n_long: long>"
    assert len(next(iter(seen.shape.fields["s"].facets.values())).sample) <= 80


def test_deep_lines_do_not_harm() -> None:
    deep = b'{"a":' * 5000 + b"1" + b"}" * 5000
    good = b'{"a":' * 90 + b"1" + b"}" * 90
    tally = observe(
        [good, deep, b'{"b": ' + b"[" * 100_000, good, b'{"c": ' + b"[" * 950 + b"]" * 950 + b"}"] * 3
    ).tally
    assert (tally.records, tally.rejected) == (6, 9)


def test_numbers_of_any_length() -> None:
    lines = [
        b'{"a": %s, "b": %s}' % (n, n)
        for n in (b"1", b"9" * 5000, b"0." + b"1" * 5000, b"1e" + b"9" * 5000, b"1.5")
    ]
    seen = observe(lines * 10)
    facets = sorted(str(f) for f in seen.shape.fields["a"].facets)
    assert facets == ["double", "long", "number_text"]


BYTES = b'{"a": [1, "2024-01-31", {"b": null, "\xc3\xa9": -1.5e3}], "c": "\\ud83d\\ude00 x\\n", "d": true}'


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(0, len(BYTES)), st.integers(0, 2), st.binary(max_size=2)),
        min_size=1,
        max_size=3,
    )
)
@settings(max_examples=170, deadline=None)
def test_no_broken_line_counts_as_a_record(edits: list[tuple[int, int, bytes]]) -> None:
    line = BYTES
    for at, cut, put in edits:
        line = (line[:at] + put + line[at + cut :]).replace(b"\n", b"")
    observer = JsonObserver(ExpectedField(), TableSettings())
    observer.feed([BYTES, b'{"c": 1, "d": "x", "a": null}', line, line], "f", 1)
    tally = observer.result().tally
    bad = 2 * (reason(line) is not None and bool(line.strip()))
    assert tally.rejected == bad


def test_drift_is_learnt_once() -> None:
    """The time for lines like those before does not depend on how much was learnt."""
    lines = [b'{"a": 1, "b": "x"}'] * 50_000
    lines[1000::1000] = [b'{"a": "s", "b": {"c": %d}}' % i for i in range(49)]
    start = process_time()
    observe(lines)
    assert process_time() - start < 3


@pytest.mark.parametrize("empty", [[], [b""], [b"", b"  "]])
def test_nothing_at_all(empty: list[bytes]) -> None:
    seen = observe(empty)
    assert (seen.shape, seen.tally.records, seen.lines) == (RecordShape(), 0, len(empty))


def test_reject_of_rows_in_memory_names_no_place() -> None:
    assert str(RejectSample(SourceLocation("a.json", 2), "not UTF-8", "x")) == "a.json:2: not UTF-8: x"
    assert str(RejectSample(SourceLocation(), "not UTF-8", "x")) == "not UTF-8: x"
