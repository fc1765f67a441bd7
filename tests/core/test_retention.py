"""Which snapshots go: the last 100 stay, then one for each ten minutes of five days, and whatever their owner said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.core.history.entries import BATCH, COMPACTED, MOVED, OTHERS
from driftline.core.history.retention import (
    BEHIND,
    DELETES_BRANCH,
    FEW,
    KEEP,
    MAX_AGE,
    MAX_REF_AGE,
    MIN_SNAPSHOTS,
    SLOT,
    SPAN,
    RetentionLimit,
    behind,
    dispensable,
    expirable,
    first_gap,
    main,
    rolled_back,
    worth,
)

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
NOW = 100 * DAY


def table(*snapshots: Mapping[str, Any], current: int | None = None, **more: Any) -> dict[str, Any]:
    """A table's metadata; the last snapshot is the current one."""
    current = current or (snapshots[-1]["snapshot-id"] if snapshots else -1)
    main = {"snapshot-id": current, "type": "branch", **more.pop("main", {})}
    refs = {"main": main, **more.pop("refs", {})} if snapshots else {}
    return {
        "properties": {},
        "snapshots": list(snapshots),
        "current-snapshot-id": current,
        "refs": refs,
        **more,
    }


def snapshot(
    id_: int, at: int, parent: int | None, operation: str = "append", schema: int = 0
) -> dict[str, Any]:
    """An operation in capitals is of somebody else; "marks" has rows deleted by their positions."""
    marked = {"operation": "overwrite", "added-delete-files": "1"}
    summary = marked if operation == "marks" else {"operation": operation.lower()}
    return {
        "snapshot-id": id_,
        **({"parent-snapshot-id": parent} if parent else {}),
        "timestamp-ms": at,
        "schema-id": schema,
        "summary": {**summary, **({BATCH: f"b{id_}"} if operation.islower() else {})},
    }


def every(pause: int, count: int, *operations: str) -> list[dict[str, Any]]:
    """``count`` snapshots, 1, 2, 3 ..., of which the last was made just now; the first ones by these operations."""
    kinds = [*operations, *["append"] * (count - len(operations))]
    return [
        snapshot(i, NOW - (count - i) * pause, i - 1, kind) for i, kind in enumerate(kinds, 1)
    ]  # fmt: skip


def kept(metadata: Mapping[str, Any], now: int = NOW, schemas: int = KEEP) -> list[int]:
    gone = dispensable(metadata, now, schemas)
    return [s["snapshot-id"] for s in metadata["snapshots"] if s["snapshot-id"] not in gone]


def without(metadata: Mapping[str, Any], gone: tuple[int, ...]) -> dict[str, Any]:
    """The table once they are gone."""
    left = [s for s in metadata["snapshots"] if s["snapshot-id"] not in gone]
    text = behind([s for s in main(metadata) if s["snapshot-id"] not in gone])
    return {**metadata, "snapshots": left, "properties": {**metadata["properties"], BEHIND: text}}


# By default -------------------------------------------------------------------------------------------------------


def test_nothing_goes_before_it_is_worth_a_commit() -> None:
    assert dispensable(table(), NOW) == ()
    assert len(kept(table(*every(SECOND, 2 * KEEP - 1)))) == 2 * KEEP - 1


@pytest.mark.parametrize(
    ("pause", "count", "left"),
    [
        (SECOND, 5000, KEEP + 8),  # 83 minutes
        (MINUTE, 10_000, KEEP + 710),  # the last 100 take ten of 720 slots
        (10 * MINUTE, 900, 721),  # one for each slot, both ends of the span among them
        (HOUR, 300, 121),
        (DAY, 300, KEEP),
    ],
)
def test_how_many_stay(pause: int, count: int, left: int) -> None:
    assert len(kept(table(*every(pause, count)))) in (left, left + 1)


def test_the_last_of_each_ten_minutes_stays() -> None:
    found = every(4 * MINUTE, 400)
    left = set(kept(table(*found)))
    assert left >= set(range(301, 401)), "the last 100"
    slots: dict[int, int] = {}
    for s in found:
        slots[s["timestamp-ms"] // SLOT] = s["snapshot-id"]
    assert left == set(range(301, 401)) | set(slots.values())


def test_compactions_between_batches_are_thinned_as_they_are() -> None:
    found = every(SECOND, 5000)
    for s in found[14::15]:
        s["summary"] = {"operation": "replace", COMPACTED: "15", MOVED: "75", "deleted-data-files": "15"}
    assert len(kept(table(*found))) in (KEEP + 8, KEEP + 9)
    found[4004]["summary"][OTHERS] = "true"  # of what others wrote nobody else would take care
    assert {4004, 4005} <= set(kept(table(*found)))


def test_what_is_older_than_five_days_goes() -> None:
    found = every(4 * MINUTE, 400)
    half = kept(table(*found), NOW + SPAN - 800 * MINUTE)
    assert 200 <= half[0] < 205
    assert len(half) == 100 + 40
    assert kept(table(*found), NOW + SPAN) == list(range(301, 401))


def test_thinned_again_and_again_it_is_as_if_thinned_once() -> None:
    """Batches come, and the oldest of the thinned ones go, over gaps."""
    metadata = table()
    for i in range(1, 1501):
        at = NOW + i * 6 * MINUTE
        before = metadata["snapshots"]
        metadata = {**table(*before, snapshot(i, at, i - 1)), "properties": metadata["properties"]}
        if gone := dispensable(metadata, at):
            metadata = without(metadata, gone)
    at = NOW + 1500 * 6 * MINUTE
    whole = table(*(snapshot(i, NOW + i * 6 * MINUTE, i - 1) for i in range(1, 1501)))
    left = {s["snapshot-id"] for s in metadata["snapshots"]}
    assert left >= set(kept(whole, at))
    assert len(left) < len(kept(whole, at)) + worth(KEEP)
    assert [s["snapshot-id"] for s in main(metadata)] == sorted(left, reverse=True)


def test_thinned_snapshots_keep_no_more_schemas_than_they_may() -> None:
    found = [{**s, "schema-id": s["snapshot-id"]} for s in every(HOUR, 250)]
    found[129]["schema-id"] = 201
    assert kept(table(*found), schemas=0) == [130, *range(151, 251)], "201 has it too"
    assert kept(table(*found), schemas=10) == [130, *range(141, 251)]


# What its owner said ----------------------------------------------------------------------------------------------


def test_as_many_stay_as_the_table_says() -> None:
    few = {"properties": {MIN_SNAPSHOTS: "3"}}
    old = NOW + 10 * DAY
    assert len(kept(table(*every(SECOND, 12), **few), old)) == 12, "not worth a commit"
    assert kept(table(*every(SECOND, 13), **few), old) == [11, 12, 13]
    assert kept(table(*every(SECOND, 13), properties={MIN_SNAPSHOTS: "0"}), old) == [13]
    assert len(kept(table(*every(SECOND, 1199), properties={MIN_SNAPSHOTS: "1000"}), old)) == 1000
    assert len(kept(table(*every(SECOND, 1099), properties={MIN_SNAPSHOTS: "1000"}), old)) == 1099


def test_an_age_is_kept_whole() -> None:
    aged = {"properties": {MIN_SNAPSHOTS: "3", MAX_AGE: str(5 * SECOND)}}
    assert kept(table(*every(SECOND, 20), **aged)) == [15, 16, 17, 18, 19, 20]
    days = {"properties": {MAX_AGE: str(30 * DAY)}}
    assert len(kept(table(*every(MINUTE, 20_000), **days))) == 20_000


def test_main_has_its_own_retention() -> None:
    old = NOW + 10 * DAY
    found = every(SECOND, 1500)
    assert len(kept(table(*found, main={"min-snapshots-to-keep": 1000}), old)) == 1000
    assert (
        len(kept(table(*found, main={"min-snapshots-to-keep": 1000}, properties={MIN_SNAPSHOTS: "2"}), old))
        == 1000
    )
    assert len(kept(table(*found, main={"max-snapshot-age-ms": 600_000}))) == 601
    assert len(kept(table(*found, main={"max-snapshot-age-ms": 600_000}, properties={MAX_AGE: "1"}))) == 601


def branch(at: int, **more: Any) -> dict[str, Any]:
    return {"snapshot-id": at, "type": "branch", **more}


@pytest.mark.parametrize(
    ("ref", "properties", "stay"),
    [
        (branch(500), {}, [500]),  # five days are over
        (branch(500, **{"min-snapshots-to-keep": 4}), {}, [497, 498, 499, 500]),
        (branch(500, **{"max-snapshot-age-ms": 10 * DAY + 502 * SECOND}), {}, [498, 499, 500]),
        (branch(500, **{"min-snapshots-to-keep": 4, "max-ref-age-ms": DAY}), {}, [500]),
        (branch(500, **{"min-snapshots-to-keep": 4}), {MAX_REF_AGE: str(DAY)}, [500]),
        (branch(500), {MIN_SNAPSHOTS: "3"}, [498, 499, 500]),
        ({"snapshot-id": 500, "type": "tag"}, {}, [500]),
        (branch(7000), {}, []),  # of a snapshot that is gone
    ],
)
def test_what_a_branch_or_tag_needs_stays(ref: Any, properties: Any, stay: list[int]) -> None:
    of = table(
        *every(SECOND, 1000), refs={"b": ref}, main={"min-snapshots-to-keep": 100}, properties=properties
    )
    assert kept(of, NOW + 10 * DAY) == [*stay, *range(901, 1001)]


def test_a_branch_keeps_five_days_unless_it_says_otherwise() -> None:
    of = table(*every(SECOND, 1000), refs={"b": branch(500)})
    assert set(kept(of)) >= set(range(1, 501))


FAR = NOW + 10 * DAY


def test_those_of_others_stay_and_those_before_what_takes_files_away() -> None:
    operations = ["append", "APPEND", "append", "OVERWRITE", "append", "delete", "append", "REPLACE"]
    of = table(*every(SECOND, 20, *operations), properties={MIN_SNAPSHOTS: "2"})
    # 3, 5 and 7 have files that 4, 6 and 8 have not.
    assert kept(of, FAR) == [2, 3, 4, 5, 6, 7, 8, 19, 20]


def test_batches_of_changes_by_key_go_as_appends_do() -> None:
    of = table(*every(SECOND, 20, "append", *["marks"] * 7, "append"), properties={MIN_SNAPSHOTS: "2"})
    assert kept(of, FAR) == [19, 20]
    takes_files = {"operation": "overwrite", "added-delete-files": "1", "deleted-data-files": "1", BATCH: "b"}
    of["snapshots"][9]["summary"] = takes_files
    assert kept(of, FAR) == [9, 10, 19, 20]
    of["snapshots"][9]["summary"] |= {MOVED: "7"}  # out of files that driftline wrote
    assert kept(of, FAR) == [19, 20]
    of["snapshots"][9]["summary"] |= {OTHERS: "true"}
    assert kept(of, FAR) == [9, 10, 19, 20]


def test_what_is_referred_to_stays() -> None:
    of = table(
        *every(SECOND, 24), snapshot(100, 0, 5), current=24, refs={"audit": branch(100)},
        properties={MIN_SNAPSHOTS: "2"},
        **{"statistics": [{"snapshot-id": 7}], "partition-statistics": [{"snapshot-id": 9}]},
    )  # fmt: skip
    assert kept(of, FAR) == [5, 7, 9, 23, 24, 100]


def test_snapshots_that_tell_nothing_stay() -> None:
    found = every(SECOND, 24)
    for s in found[:4]:
        del s["summary"]
    assert kept(table(*found, properties={MIN_SNAPSHOTS: "2"}), FAR) == [1, 2, 3, 4, 23, 24]


# Gaps -------------------------------------------------------------------------------------------------------------


def test_what_is_behind_a_gap() -> None:
    of = table(snapshot(1, 1, None), snapshot(3, 3, 2), snapshot(5, 5, 4), snapshot(6, 6, 5))
    assert [s["snapshot-id"] for s in main(of)] == [6, 5]
    of["properties"] = {BEHIND: "5 3 1"}
    branch = main(of)
    assert [s["snapshot-id"] for s in branch] == [6, 5, 3, 1]
    assert first_gap(branch) == 1
    assert behind(branch) == "5 3 1"
    assert behind(branch[:2]) == "" == behind([])


@pytest.mark.parametrize("text", ["5 3 1 5", "5 5", "5 x 3", "1 3 5", "5 4 3 1", "5 9 1", ", ;"])
def test_a_property_that_makes_no_sense_leads_nowhere_twice(text: str) -> None:
    """Somebody else expired what it lists, or wrote into it."""
    of = table(snapshot(1, 1, None), snapshot(3, 3, 2), snapshot(5, 5, 4), properties={BEHIND: text})
    found = [s["snapshot-id"] for s in main(of)]
    assert found[0] == 5
    assert len(found) == len(set(found))
    if text in ("5 4 3 1", "5 9 1"):
        assert found == [5], "what was in between may have taken files away"


# The rule in words ------------------------------------------------------------------------------------------------


def by_iceberg(
    metadata: Mapping[str, Any], ref: Mapping[str, Any], now: int, least: int, age: int
) -> set[int]:
    """The snapshots that `expire_snapshots` keeps for a branch: going back from it, as many as it is to keep, and all that are young
    enough, up to the first that is neither."""
    by_id = {s["snapshot-id"]: s for s in metadata["snapshots"]}
    found: set[int] = set()
    at = ref["snapshot-id"]
    while at in by_id:
        s = by_id[at]
        if len(found) >= ref.get("min-snapshots-to-keep", least) and s["timestamp-ms"] < now - ref.get(
            "max-snapshot-age-ms", age
        ):
            break
        found.add(at)
        at = s.get("parent-snapshot-id")
    return found


own = st.fixed_dictionaries(
    {},
    optional={
        "min-snapshots-to-keep": st.integers(1, 40),
        "max-snapshot-age-ms": st.sampled_from([1, MINUTE, HOUR, DAY, 9 * DAY]),
    },
)
said = st.fixed_dictionaries(
    {},
    optional={
        MIN_SNAPSHOTS: st.integers(0, 40).map(str),
        MAX_AGE: st.sampled_from(["1", str(HOUR), str(DAY)]),
    },
)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Tables whose snapshots come from any earlier one: main, branches, and what was rolled back."""
    count = draw(st.integers(1, 60))
    at, snapshots = NOW - 12 * DAY, []
    for i in range(1, count + 1):
        at += draw(st.sampled_from([SECOND, MINUTE, 3 * MINUTE, HOUR, DAY]))
        parent = i - 1 if draw(st.integers(0, 9)) else draw(st.integers(0, i - 1))
        kind = draw(st.sampled_from([*["append"] * 12, *["marks"] * 3, "APPEND", "OVERWRITE", "delete"]))
        snapshots.append(snapshot(i, at, parent, kind, schema=draw(st.integers(0, 3))))
    ids = st.integers(1, count)
    refs = draw(
        st.dictionaries(
            st.sampled_from("abc"),
            st.builds(lambda i, type_, more: {"snapshot-id": i, "type": type_, **more}, ids,
                      st.sampled_from(["branch", "tag"]), own),
        )
    )  # fmt: skip
    return table(*snapshots, current=draw(ids), refs=refs, main=draw(own), properties=draw(said))


@pytest.mark.slow
@given(tables(), st.sampled_from([0, HOUR, DAY, 6 * DAY]))
def test_nothing_goes_that_somebody_asked_for(metadata: dict[str, Any], later: int) -> None:
    now = max(s["timestamp-ms"] for s in metadata["snapshots"]) + later
    properties = metadata["properties"]
    gone = dispensable(metadata, now, schemas=2)
    again = without(metadata, gone)
    for ids, of in ((gone, metadata), (dispensable(again, now + DAY, schemas=2), again)):
        refs, at = of["refs"], now if of is metadata else now + DAY
        needed = {ref["snapshot-id"] for ref in refs.values()}
        for name, ref in refs.items():
            if ref["type"] == "branch" and (name != "main" or "min-snapshots-to-keep" in ref):
                # Nobody asked for an age: what the main branch then keeps is driftline's own rule.
                silent = name == "main" and MAX_AGE not in properties
                age = int(properties.get(MAX_AGE, 0 if silent else SPAN))
                needed |= by_iceberg(of, ref, at, int(properties.get(MIN_SNAPSHOTS, 1)), age)
        assert needed.isdisjoint(ids)
        _only_what_the_next_one_has(of, set(ids))


def _only_what_the_next_one_has(metadata: Mapping[str, Any], gone: set[int]) -> None:
    branch = main(metadata)
    place = {s["snapshot-id"]: i for i, s in enumerate(branch)}
    for id_ in gone:
        assert id_ in place, "what is beside the main branch stays"
        child, s = branch[place[id_] - 1], branch[place[id_]]
        assert BATCH in s["summary"]
        for summary in (s["summary"], child["summary"]):
            assert summary["operation"] == "append" or "added-delete-files" in summary


@pytest.mark.slow
@given(tables(), st.sampled_from([0, HOUR, DAY]))
def test_by_default_each_ten_minutes_of_five_days_have_one(metadata: dict[str, Any], later: int) -> None:
    metadata = {**metadata, "properties": {MIN_SNAPSHOTS: "3"}, "refs": {}}
    now = max(s["timestamp-ms"] for s in metadata["snapshots"]) + later
    gone = dispensable(metadata, now)
    assert not gone or len(gone) >= FEW
    left = [s for s in main(metadata) if s["snapshot-id"] not in gone]
    slots = {s["timestamp-ms"] // SLOT for s in main(metadata) if s["timestamp-ms"] >= now - SPAN}
    assert slots <= {s["timestamp-ms"] // SLOT for s in left}
    assert main(metadata)[:3] == left[:3]


def test_a_snapshot_is_rolled_back_where_the_branch_is_known_without_it() -> None:
    one, two, beside = snapshot(1, 10, None), snapshot(2, 20, 1), snapshot(3, 30, 2)
    after = snapshot(4, 40, 2)

    assert rolled_back(table(one, two, beside, current=2), {1, 2, 3}) == {3}
    assert rolled_back(table(one, two, beside, after), {1, 2, 3, 4}) == {3}
    assert rolled_back(table(one, two, beside, after), {9}) == set(), "one that has expired"
    assert rolled_back(table(one, two, snapshot(5, 50, None)), {1, 5}) == {1}, "the table was made anew"


def test_nothing_is_said_of_snapshots_from_behind_a_gap() -> None:
    tagged, young, older = snapshot(1, 10, None), snapshot(9, 90, 8), snapshot(7, 95, 6)

    assert rolled_back(table(tagged, young), {1, 9}) == set()
    assert rolled_back(table(tagged, young, older, current=9), {1, 7, 9}) == {7}
    over = table(tagged, young)
    over["properties"] = {BEHIND: "9 1"}
    assert rolled_back(over, {1, 9}) == set()


def test_of_remembered_deletes_the_last_snapshot_stays_and_what_replaced_files() -> None:
    deletes = [snapshot(1000 + i, NOW - 500 + i, 999 + i if i else 2, "APPEND") for i in range(200)]
    deletes[150]["summary"]["operation"] = "overwrite"
    refs = {DELETES_BRANCH: {"snapshot-id": 1199, "type": "branch"}}
    gone = dispensable({**table(*every(SECOND, 3), *deletes, current=3, refs=refs)}, NOW)

    assert sorted(gone) == [1000 + i for i in range(199) if i not in (149, 150)]


def ref(id_: int, kind: str = "branch", **own: int) -> dict[str, Any]:
    return {"snapshot-id": id_, "type": kind, **{key.replace("_", "-"): value for key, value in own.items()}}


AGED = every(DAY, 6)  # 1 to 6, of which the last was made just now
BESIDE = snapshot(7, NOW - 5 * DAY, 1)


@pytest.mark.parametrize(
    ("metadata", "limit", "ended", "held"),
    [
        (table(), RetentionLimit(NOW), (), {}),
        (table(*AGED), None, (1, 2, 3, 4, 5), {}),
        (table(*AGED), RetentionLimit(NOW - 3 * DAY), (1, 2), {}),
        (table(*AGED), RetentionLimit(NOW + DAY), (1, 2, 3, 4, 5), {}),
        (table(*AGED), RetentionLimit(NOW + DAY, 4), (1, 2), {}),
        (table(*AGED), RetentionLimit(NOW - 3 * DAY, 2), (1, 2), {}),
        (table(*AGED), RetentionLimit(NOW, 100), (), {}),
        (table(*AGED, main={"min-snapshots-to-keep": 3}), RetentionLimit(NOW + DAY), (1, 2, 3), {}),
        (table(*AGED, main={"min-snapshots-to-keep": 3}), None, (1, 2, 3, 4, 5), {}),
        (table(*AGED, main={"max-snapshot-age-ms": 4 * DAY}), RetentionLimit(NOW), (1,), {}),
        (table(*AGED, refs={"v1": ref(2, "tag")}), RetentionLimit(NOW), (1, 3, 4, 5), {"tag v1": 1}),
        (table(*AGED, refs={"v1": ref(6, "tag")}), RetentionLimit(NOW), (1, 2, 3, 4, 5), {}),
        (table(*AGED, refs={DELETES_BRANCH: ref(2)}), RetentionLimit(NOW), (1, 3, 4, 5), {}),
        (table(*AGED, BESIDE, current=6), RetentionLimit(NOW), (1, 2, 3, 4, 5, 7), {}),
        (
            table(*AGED, BESIDE, current=6, refs={"audit": ref(7, min_snapshots_to_keep=2)}),
            RetentionLimit(NOW),
            (2, 3, 4, 5),
            {"branch audit": 2},
        ),
        (
            table(*AGED, BESIDE, current=6, refs={"audit": ref(7, max_snapshot_age_ms=9 * DAY)}),
            RetentionLimit(NOW),
            (2, 3, 4, 5),
            {"branch audit": 2},
        ),
    ],
)
def test_snapshots_beyond_the_limit_can_end_but_for_those_that_a_branch_or_tag_needs(
    metadata: Mapping[str, Any], limit: RetentionLimit | None, ended: tuple[int, ...], held: dict[str, int]
) -> None:
    selected = expirable(metadata, NOW, limit)

    assert (selected.ids, selected.held) == (ended, held)
    assert selected.remaining == len(metadata["snapshots"]) - len(ended)


def test_time_from_which_on_snapshots_stay_is_one_of_the_main_branch() -> None:
    metadata = table(*AGED, BESIDE, current=6, refs={"audit": ref(7)})

    assert expirable(metadata, NOW, RetentionLimit(NOW, 2)).since == NOW - DAY
    assert expirable(table(), NOW, RetentionLimit(NOW)).since is None
