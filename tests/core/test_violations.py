"""Counts of records that are not as expected, as a table's properties keep them."""

from __future__ import annotations

import json

from driftline.core.columns.statistics import (
    VIOLATIONS,
    CommittedBatch,
    CountedBatch,
    ViolationCounts,
    violated,
    violations,
)
from driftline.core.history.batch_properties import without_batch
from driftline.stats.build import expectations

DAY = 86_400_000


def counted(*batches: CountedBatch) -> ViolationCounts:
    counts = ViolationCounts()
    for batch in batches:
        counts = counts.added(batch)
    return counts


def test_the_last_batches_are_kept_one_by_one_and_those_before_by_day() -> None:
    # Five batches a day, each of ten records; of the fiftieth day and later ones twelve batches are left.
    counts = counted(*(CountedBatch(DAY * (n // 5) + n, f"b{n}", 10, 1) for n in range(260)))

    assert (counts.violations, counts.records) == (260, 2600)
    days, batches = counts.batches[:30], counts.batches[30:]
    assert [b.batch for b in batches] == [f"b{n}" for n in range(248, 260)]
    assert {b.batch for b in days} == {""}
    assert [b.at // DAY for b in days] == list(range(20, 50))
    assert [(b.records, b.violations) for b in days] == [(50, 5)] * 29 + [(30, 3)]
    assert ViolationCounts.of(counts.properties("price")[f"{VIOLATIONS}price"]) == counts


def test_a_property_has_a_bound_whatever_the_batches_are_called() -> None:
    counts = counted(*(CountedBatch(n, f"{n}-" + "é" * 900, 10, 1) for n in range(20)))

    text = counts.properties("price")[f"{VIOLATIONS}price"]

    assert len(text) <= 4000
    kept = json.loads(text)
    assert (kept["violations"], kept["records"], len(kept["batches"])) == (20, 200, 4)
    assert kept["batches"][-1][1].startswith("19-")


def test_a_batch_without_violations_sets_nothing() -> None:
    before = violated({}, "a", 10, {"price": 1})

    assert violated(before, "b", 10, {}) == {}
    assert set(violated(before, "b", 10, {"id": 2})) == {f"{VIOLATIONS}id"}


def test_another_attempt_at_a_batch_counts_once_and_an_undone_batch_not_at_all() -> None:
    first = violated({"other": "1"}, "a", 10, {"price": 2})
    again = first | violated(first, "a", 12, {"price": 3})

    assert violations(again)["price"].batches[0].violations == 3
    assert (violations(again)["price"].violations, violations(again)["price"].records) == (3, 12)
    assert without_batch({"other": "1", **again}, "a") == {"other": "1"}


def test_batches_without_violations_are_told_from_the_first_that_had_some_on() -> None:
    properties = {"driftline.expect.a-b": "x > 0 else quarantine", "driftline.expect.y": ""}
    properties |= ViolationCounts().added(CountedBatch(100, "b", 10, 4)).properties("a-b")
    recent = [
        CommittedBatch(50, "a", 10), CommittedBatch(101, "b", 6), CommittedBatch(200, "c", 10),
        CommittedBatch(300, None, 10), CommittedBatch(400, "replay:0a1b2c3d-1-0a1b2c3d", 4),
    ]  # fmt: skip

    (one,) = expectations(properties, recent)

    assert (one.name, one.condition, one.action) == ("a-b", "x > 0", "quarantine")
    assert [(b.batch, b.violations) for b in one.batches] == [("b", 4), ("c", 0)]
    assert one.trend == (1.0, 0.0)
    assert one.last is not None and one.last.batch == "b"
    (never,) = expectations({"driftline.expect.y": "y is null"}, recent)
    assert (never.violations, never.share, never.batches, never.last) == (0, None, (), None)
