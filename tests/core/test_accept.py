"""What a batch's records become under each policy, as properties over random records: judged one by one, cut anywhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from driftline.core.planning.admission import Judge
from driftline.core.planning.contract import OfPaths, contract
from driftline.core.planning.routes import Conflict, Settings
from driftline.core.schema.schema_json import to_json
from driftline.core.schema.types import Schema, Struct
from driftline.ingest.accept import accepted
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation


@dataclass
class Lines:
    """A batch of JSON lines, observed in this process."""

    lines: Sequence[bytes]
    judge: Judge | None = None

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        self.observer = JsonObserver(expect(schema, settings), settings, self.judge)
        self.observer.feed(self.lines, "lines", 1)
        return self.observer.result()

    def refuse(self, judge: Judge, conflicts: Sequence[Conflict]) -> None:
        self.judge = judge

    def verdicts(self) -> list[bool]:
        """Which lines the road lets through when it reads them again to write them."""
        return [self.observer.look(line, "lines", i) is None for i, line in enumerate(self.lines, 1)]


@dataclass(frozen=True)
class Taken:
    schema: Schema
    kept: list[bool]


def take(schema: Schema, lines: Sequence[bytes], given: Settings) -> Taken:
    source = Lines(lines)
    seen, planned = accepted(source, schema, given, lambda _: None)  # type: ignore[arg-type]
    kept = source.verdicts()
    assert sum(kept) == seen.tally.records
    assert seen.tally.records + seen.tally.malformed == len(lines)
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
    lambda policy, inner, rewrite, most: Settings(
        dates="off",
        max_columns=most,
        allow_rewrite=rewrite,
        contract=contract(policy, paths=OfPaths(policies={("a", "*"): inner})),
    ),
    st.sampled_from(["preserve", "widen"]),
    st.sampled_from(["preserve", "widen", "strict"]),
    st.booleans(),
    st.sampled_from([2, 4, 6, 10_000]),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(first=BATCHES, second=BATCHES, given_settings=POLICIES)
@example(  # an object of nothing but null is none that a list would have to take
    [b"{}"],
    [b'{"c": {"p": null}}', b'{"c": [{"p": false}]}'],
    Settings(dates="off", contract=contract("widen")),
)
@example(  # a column beyond max_columns whose values another column takes
    [b"{}"], [b'{"b": [false, {"p": false}]}', b'{"b": {"p": 0}}'], Settings(dates="off", max_columns=3)
)
def test_what_is_accepted_is_accepted_each_time(
    first: list[bytes], second: list[bytes], given_settings: Settings
) -> None:
    table = take(Schema(), first, given_settings).schema
    taken = take(table, second, given_settings)
    again = take(taken.schema, second, given_settings)
    alone = [take(taken.schema, [line], given_settings) for line in second]
    for i, kept in enumerate(taken.kept):
        assert not kept or (again.kept[i] and alone[i].kept[0])
        assert not kept or to_json(alone[i].schema) == to_json(taken.schema), "the table takes it as it is"
    if given_settings.contract.policy == "preserve" and not given_settings.contract.fields:
        assert all(taken.kept)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(batch=BATCHES, cut=st.integers(0, 6), rewrite=st.booleans())
def test_where_batches_are_cut_is_nothing_to_widen(batch: list[bytes], cut: int, rewrite: bool) -> None:
    """Records that are all accepted are so in one micro-batch or in two, and give the same columns.

    A record that is refused may decide the type of a column that its batch makes; then others may be, too.
    """
    widen = Settings(dates="off", allow_rewrite=rewrite, contract=contract("widen"))
    whole = take(Schema(), batch, widen)
    first = take(Schema(), batch[:cut], widen)
    second = take(first.schema, batch[cut:], widen)
    assert all(first.kept + second.kept) == all(whole.kept)
    assert not all(whole.kept) or _types(second.schema) == _types(whole.schema)


def _types(schema: Schema) -> dict[str, str]:
    return {".".join(path): str(f.type) for path, f in schema.walk() if not isinstance(f.type, Struct)}
