"""Records of a batch under each policy, as properties over random records: judged one by one, cut anywhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from driftline.core.planning.admission import AdmissionCheck
from driftline.core.planning.plan import Conflict
from driftline.core.schema.schema_json import to_json
from driftline.core.schema.types import Schema, SourceLocation, Struct
from driftline.core.settings.fields import OfPaths, field_settings
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError
from driftline.ingest.accept import accepted
from driftline.ingest.batch import RecentBatches
from driftline.ingest.result import result
from driftline.observe.expect import ExpectedField, expect, with_declared_values
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation, merge_observations
from driftline.sources.scan import Observed


@dataclass(frozen=True)
class Lines:
    """A batch of JSON lines, observed in this process, the last of the ``tasks`` first."""

    lines: Sequence[bytes]
    schema: Schema
    settings: TableSettings
    check: AdmissionCheck | None = None
    values: ExpectedField | None = None
    tasks: int = 1
    repeats: bool = False

    def observe(self) -> Observed:
        parts, size = [], -(-len(self.lines) // self.tasks) or 1
        for start in reversed(range(0, max(1, len(self.lines)), size)):
            observer = self.observer()
            observer.feed(self.lines[start : start + size], "lines", start + 1)
            parts.append(observer.result())
        return Observed(self, merge_observations(parts))  # type: ignore[arg-type]

    def with_declared_values(self, schema: Schema) -> Lines | None:
        before = self.expected
        expected = with_declared_values(before, schema.struct, self.settings)
        return None if expected is before else replace(self, values=expected)

    @property
    def expected(self) -> ExpectedField:
        return self.values or expect(self.schema, self.settings)

    def refusing(self, check: AdmissionCheck, conflicts: Sequence[Conflict], _: Observation) -> Lines:
        return replace(self, check=check)

    def observer(self) -> JsonObserver:
        return JsonObserver(self.expected, self.settings, self.check)

    def verdicts(self) -> list[bool]:
        """Which lines the road lets through when it reads them again to write them."""
        observer = self.observer()
        return [observer.inspect(line, "lines", i) is None for i, line in enumerate(self.lines, 1)]


@dataclass(frozen=True)
class Taken:
    schema: Schema
    kept: list[bool]


def take(schema: Schema, lines: Sequence[bytes], given: TableSettings, tasks: int = 1) -> Taken:
    scan: Any = Lines(lines, schema, given, tasks=tasks)
    observed, planned = accepted(scan, RecentBatches(), lambda _: None)
    scan, tally = observed.scan, observed.observation.tally
    kept = scan.verdicts()
    assert sum(kept) == tally.records
    assert tally.records + tally.rejected == len(lines)
    assert bool(planned.conflicts) == (not all(kept))
    return Taken(planned.schema, kept)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 7, 2**53 + 1, 2**62, 10**25]),
    st.sampled_from([0.5, 1.25, 1e300]),
    st.sampled_from(["", "x", "2024-01-02"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["p", "q"]), inner, max_size=2)
    ),
    max_leaves=4,
)
RECORDS = st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES, max_size=3)
BATCHES = st.lists(RECORDS, min_size=1, max_size=6).map(lambda rs: [json.dumps(r).encode() for r in rs])
POLICIES = st.builds(
    lambda policy, inner, rewrite, most: TableSettings(
        dates="off",
        max_columns=most,
        beyond="quarantine",
        allow_rewrite=rewrite,
        fields=field_settings(policy, paths=OfPaths(policies={("a", "*"): inner})),
    ),
    st.sampled_from(["preserve", "widen"]),
    st.sampled_from(["preserve", "widen", "strict"]),
    st.booleans(),
    st.sampled_from([2, 4, 6, 10_000]),
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(first=BATCHES, second=BATCHES, given_settings=POLICIES)
@example(  # an object of nothing but null is none that a list would have to take
    [b"{}"],
    [b'{"c": {"p": null}}', b'{"c": [{"p": false}]}'],
    TableSettings(dates="off", fields=field_settings("widen")),
)
@example(  # a column beyond max_columns whose values another column takes
    [b"{}"],
    [b'{"b": [false, {"p": false}]}', b'{"b": {"p": 0}}'],
    TableSettings(dates="off", max_columns=3, beyond="quarantine"),
)
def test_what_is_accepted_is_accepted_each_time(
    first: list[bytes], second: list[bytes], given_settings: TableSettings
) -> None:
    table = take(Schema(), first, given_settings).schema
    taken = take(table, second, given_settings)
    again = take(taken.schema, second, given_settings)
    alone = [take(taken.schema, [line], given_settings) for line in second]
    for i, kept in enumerate(taken.kept):
        assert not kept or (again.kept[i] and alone[i].kept[0])
        assert not kept or to_json(alone[i].schema) == to_json(taken.schema), "the table takes it as it is"
    if given_settings.fields.policy == "preserve" and not given_settings.fields.fields:
        assert all(taken.kept)


@pytest.mark.slow
@settings(max_examples=70, deadline=None)
@given(batch=BATCHES, cut=st.integers(0, 6), rewrite=st.booleans())
def test_where_batches_are_cut_is_nothing_to_widen(batch: list[bytes], cut: int, rewrite: bool) -> None:
    """Records that are all accepted are so in one micro-batch or in two, and give the same columns.

    A record that is refused may decide the type of a column that its batch makes; then others may be, too.
    """
    widen = TableSettings(dates="off", allow_rewrite=rewrite, fields=field_settings("widen"))
    whole = take(Schema(), batch, widen)
    first = take(Schema(), batch[:cut], widen)
    second = take(first.schema, batch[cut:], widen)
    assert all(first.kept + second.kept) == all(whole.kept)
    assert not all(whole.kept) or _types(second.schema) == _types(whole.schema)


def _types(schema: Schema) -> dict[str, str]:
    return {".".join(path): str(f.type) for path, f in schema.walk() if not isinstance(f.type, Struct)}


NARROW = TableSettings(max_columns=3, beyond="quarantine")


@pytest.mark.parametrize("tasks", [1, 2, 5])
@pytest.mark.parametrize(
    ("records", "columns", "kept"),
    [
        # the second has no room, and takes none from the third
        (['{"a": 1}', '{"b": 1, "c": 1, "d": 1}', '{"e": 1}', '{"a": 2}'], "aea", [1, 0, 1, 1]),
        (['{"b": 1, "c": 1, "d": 1}', '{"a": 1}', '{"e": 1}', '{"a": 2}'], "bcd", [1, 0, 0, 0]),
        # what a record without room shares with others is theirs
        (['{"a": 1}', '{"b": 1, "c": 1, "d": 1}', '{"c": 1, "e": 1}', '{"b": 1}'], "ace", [1, 0, 1, 0]),
        # the third needs less of what the second left
        (['{"a": 1}', '{"b": 1, "c": 1, "d": 1}', '{"b": 1, "c": 1}', '{"b": 1, "d": 1}'], "abc", [1, 0, 1, 0]),
        (['{"p": {"x": 1, "y": 1, "z": 1, "u": 1}}', '{"p": {"x": 1}, "a": 1}'], "pa", [0, 1]),
    ],
)  # fmt: skip
def test_what_has_no_room_takes_none_from_others(
    records: list[str], columns: str, kept: list[int], tasks: int
) -> None:
    taken = take(Schema(), [record.encode() for record in records], NARROW, tasks)
    assert taken.kept == [bool(one) for one in kept]
    assert {f.name for f in taken.schema.struct.fields} == set(columns)


@pytest.mark.parametrize("tasks", [1, 2])
def test_what_a_policy_refuses_has_nothing_go_beyond_a_limit(tasks: int) -> None:
    before = take(Schema(), [b'{"a": 1}'], NARROW).schema
    lines = [b'{"a": "x", "b": 1, "c": 1, "d": 1}', b'{"a": 2, "e": 1}']
    for beyond in ("quarantine", "fail"):
        taken = take(before, lines, replace(NARROW, beyond=beyond, fields=field_settings("widen")), tasks)
        assert taken.kept == [False, True]
        assert [f.name for f in taken.schema.struct.fields] == ["a", "e"]
    with pytest.raises(DataError, match=r"d: .* beyond max_columns = 3"):
        take(before, [b'{"b": 1, "c": 1, "d": 1}', *lines], replace(NARROW, beyond="fail"))


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_conflict_that_no_record_has_alone_keeps_no_batch_from_its_limits(tasks: int) -> None:
    # The long and the text make a column of texts, which takes the decimal; the text goes beyond the limit.
    lines = [b'{"a": 1}', b'{"a": 0.123456789012345678}', b'{"a": "x", "b": 1}', b'{"a": 2}']
    given = TableSettings(
        max_columns=1, beyond="quarantine", allow_rewrite=True, fields=field_settings("widen")
    )
    taken = take(Schema(), lines, given, tasks)
    assert taken.kept == [True, False, False, True]
    assert _types(taken.schema) == {"a": "long"}


STEADY = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys("abc", st.just(1)),
        "p": st.fixed_dictionaries({}, optional=dict.fromkeys("xyz", st.just("text"))),
        "l": st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys("uvw", st.just(0.5))), max_size=2),
    },
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    records=st.lists(STEADY, max_size=9),
    cut=st.integers(0, 9),
    tasks=st.integers(1, 4),
    columns=st.integers(1, 6),
    fields=st.sampled_from([None, 1, 2]),
)
def test_batches_and_tasks_are_nothing_to_limits(
    records: list[object], cut: int, tasks: int, columns: int, fields: int | None
) -> None:
    """Who has no room is refused, each alone or all together, and the columns are those of the others."""
    limits = TableSettings(max_columns=columns, max_fields=fields, beyond="quarantine")
    lines = [json.dumps(record).encode() for record in records]
    alone, kept = Schema(), []
    for line in lines:
        taken = take(alone, [line], limits)
        alone, kept = taken.schema, kept + taken.kept
    whole = take(Schema(), lines, limits, tasks)
    first = take(Schema(), lines[:cut], limits, tasks)
    second = take(first.schema, lines[cut:], limits)
    assert whole.kept == first.kept + second.kept == kept
    assert _types(whole.schema) == _types(second.schema) == _types(alone)


def test_places_of_refused_records_are_the_first_of_each_file() -> None:
    before = take(Schema(), [b'{"a": 1}'], TableSettings()).schema
    strict = TableSettings(fields=field_settings("strict"))
    scan: Any = Lines([b'{"a": 1}', b'{"a": "x"}'], before, strict)
    planned = accepted(scan, RecentBatches(), lambda _: None)[1]
    parts = []
    for file in "fedcba":
        for line in (6, 1):  # two tasks have a share of a file each, and know only the lines in it
            observer = replace(scan, check=AdmissionCheck((before,), (), strict)).observer()
            observer.feed([b'{"a": 1}', b'{"a": "x"}', b'{"a": "y"}', b"no record"], file, 1)
            parts.append(observer.result().shifted(line))
    observation = merge_observations(parts)
    (conflict,) = result("s.t", "b", observation, planned).conflicts
    assert [str(place) for place in conflict.elsewhere] == ["a:3", "b:3", "c:3", "d:3"]
    assert conflict.location.source == "lines"
    (again,) = result(
        "s.t",
        "b",
        observation,
        replace(planned, conflicts=(replace(conflict, location=SourceLocation("a", 3)),)),
    ).conflicts
    assert [str(place) for place in again.elsewhere] == ["b:3", "c:3", "d:3"]
