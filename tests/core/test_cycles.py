"""The search for cycles is put off where much is made, and comes back."""

from __future__ import annotations

import gc

import pytest

from driftline.core.planning.planner import plan
from driftline.core.planning.shape import Facet, FieldShape, Profile, RecordShape
from driftline.core.schema.types import LONG, Schema, SourceLocation
from driftline.core.support import gc_paused
from driftline.observe.expect import expect
from driftline.observe.observation import Observation, merge_observations


def _wide(columns: int) -> RecordShape:
    places = [SourceLocation("file", 1, i) for i in range(columns)]
    return RecordShape({f"c{p.position}": FieldShape(p, {Facet(0, LONG): Profile(p)}) for p in places})


def test_a_wide_table_is_planned_without_a_search() -> None:
    shape = _wide(2000)
    searches: list[str] = []

    def watch(phase: str, info: object) -> None:
        searches.append(phase)

    gc.collect()  # what other tests have left would bring a search of its own
    gc.callbacks.append(watch)
    try:
        made = plan(Schema(), shape)
        expect(made.schema)
        whole = merge_observations([Observation(shape), Observation(shape)])
    finally:
        gc.callbacks.remove(watch)
    assert len(made.schema.struct.fields) == len(whole.shape.fields) == 2000
    assert searches.count("start") <= 3, "one may come after each"


def _fails() -> None:
    assert not gc.isenabled()
    raise LookupError


@pytest.mark.parametrize("searched", [True, False])
def test_it_is_afterwards_as_it_was(searched: bool) -> None:
    if not searched:
        gc.disable()
    try:
        with pytest.raises(LookupError), gc_paused():
            _fails()
        assert gc.isenabled() == searched
    finally:
        gc.enable()
