"""Patches of one row: the same row in any order and any batches, as a fold by order makes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.keys.patch_fields import (
    NULL,
    ROW,
    VALUE,
    PatchedField,
    Patches,
    Presence,
    StoredRow,
    kept_orders,
    latest_order,
    merged,
)

Record = dict[str, Any]


def patched(target: Any, patch: Any) -> Any:
    """RFC 7396, but for null, which stays as such."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        made[key] = patched(made.get(key), value)
    return made


def presence(value: Any) -> Presence:
    if isinstance(value, dict):
        return {key: presence(inner) for key, inner in value.items()}
    return NULL if value is None else VALUE


def not_null(value: Any) -> Any:
    """A value as columns hold it: null as if the key were absent."""
    if not isinstance(value, dict):
        return value
    return {key: not_null(inner) for key, inner in value.items() if inner is not None}


def taken(node: PatchedField, sources: dict[int, Any]) -> Any:
    """The values of a merged field."""
    if not node.objects:
        return sources.get(node.source)

    def inside(source: Any, key: str) -> Any:
        return source.get(key) if isinstance(source, dict) else None

    return {
        key: taken(inner, {number: inside(source, key) for number, source in sources.items()})
        for key, inner in node.fields.items()
    }


class Row:
    """A table of one row; ``forgotten``: the order of its last delete."""

    def __init__(self) -> None:
        self.values: Record | None = None
        self.order, self.forgotten = "", ""
        self.orders: dict[str, str] = {}

    def take(self, batch: list[tuple[str, Record | None]]) -> None:
        batch = sorted(batch, key=lambda change: change[0])
        if batch[-1][0] < self.forgotten:
            return
        row = None if self.values is None else StoredRow(presence(self.values), self.order, self.orders)
        changes = [None if record is None else presence(record) for _, record in batch]
        patches = Patches(changes, [order for order, _ in batch], self.forgotten or None)
        deletes = [order for order, record in batch if record is None]
        self.forgotten = max([self.forgotten, *deletes])
        if batch[-1][1] is None and (row is None or row.order <= batch[-1][0]):
            self.values, self.order, self.orders = None, "", {}
            return
        made = merged(row, patches)
        sources = {ROW: self.values, **{n: record for n, (_, record) in enumerate(batch, 1)}}
        self.orders = kept_orders(list(made.orders()), row, patches)
        self.order = latest_order(row, patches)
        self.values = not_null(taken(made, sources))


def folded(changes: list[tuple[str, Record | None]]) -> Any:
    made: Any = None
    for _, record in sorted(changes, key=lambda change: change[0]):
        made = None if record is None else patched(made, record)
    return not_null(made)


KEYS = st.sampled_from(["a", "b", "c.`", ""])
LEAVES = st.none() | st.integers(0, 9) | st.lists(st.integers(0, 3), max_size=1)
RECORDS = st.dictionaries(
    KEYS,
    st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=5),
    max_size=3,
)


@settings(max_examples=130)
@given(st.data(), st.lists(RECORDS | st.none(), min_size=1, max_size=7))
def test_any_order_and_any_batches_make_the_row_of_the_fold(
    data: st.DataObject, records: list[Record | None]
) -> None:
    changes = [(f"{number:02}", record) for number, record in enumerate(records)]
    arrived = data.draw(st.permutations(changes))
    row = Row()
    while arrived:
        size = data.draw(st.integers(1, len(arrived)))
        row.take(arrived[:size])
        arrived = arrived[size:]

    assert row.values == folded(changes)


@pytest.mark.parametrize(
    ("changes", "values", "orders"),
    [
        ([("5", {"b": 2}), ("3", {"a": 1})], {"a": 1, "b": 2}, {"a": "3"}),
        ([("3", {"a": 1, "b": 1}), ("5", {"b": 2})], {"a": 1, "b": 2}, {"a": "3"}),
        ([("3", {"a": 1}), ("5", {"a": 2, "b": [1]})], {"a": 2, "b": [1]}, {}),
        ([("5", {"a": None}), ("3", {"a": 1})], {}, {"a": "5"}),
        ([("5", {"a": {"x": 1}}), ("3", {"a": {"y": 2}})], {"a": {"x": 1, "y": 2}}, {"a.y": "3"}),
        ([("5", {"a": {"x": 1}}), ("3", {"a": 7}), ("1", {"a": {"y": 2}})], {"a": {"x": 1}}, {"a": "3"}),
        ([("5", {"a": {}}), ("6", {"b": 1}), ("3", {"a": 7})], {"a": {}, "b": 1}, {"a": "3", "a.": "5"}),
        ([("1", {"a": 1}), ("3", {"b": 2}), ("2", None)], {"b": 2}, {}),
        ([("3", {"b": 2}), ("2", None), ("1", {"a": 1})], {"b": 2}, {}),
    ],
)
def test_a_row_keeps_the_orders_of_its_older_fields(
    changes: list[tuple[str, Record | None]], values: Record, orders: dict[str, str]
) -> None:
    row = Row()
    for change in changes:
        row.take([change])

    assert (row.values, row.orders, row.order) == (values, orders, max(order for order, _ in changes))


def test_without_an_order_the_last_to_arrive_counts() -> None:
    made = merged(StoredRow({"a": 1, "b": {"x": 1}}), Patches([{"a": 0}, {"b": {"y": 1}}]))

    assert (made.fields["a"].source, made.fields["b"].objects) == (1, {ROW: 2, 2: 5})
