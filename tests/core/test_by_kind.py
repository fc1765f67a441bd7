"""Fields by which rows are known and ordered: a column for each kind of value, and what is no key or order."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.shapes import show
from core.test_accept import take
from driftline.core.planning.planner import lacking
from driftline.core.planning.policies.by_kind import ROLES
from driftline.core.planning.policies.policy import FieldState
from driftline.core.planning.shape import Facet, Profile
from driftline.core.schema.types import LONG, STRING, Field, Schema, SourceLocation, Struct
from driftline.core.settings.fields import OfPaths, field_settings
from driftline.core.settings.table import TableSettings
from driftline.observe.arrow import ArrowObserver
from driftline.observe.expect import expect
from driftline.readers.columnar.rows import first_conflicts


def keyed(*paths: str, order: Iterable[str] = (), **more: object) -> TableSettings:
    roles = {tuple(path.split(".")): "key" for path in paths}
    roles |= {tuple(path.split(".")): "order" for path in order}
    return TableSettings(fields=field_settings(paths=OfPaths(roles=roles)), **more)  # type: ignore[arg-type]


def lines(*values: object, key: str = "id") -> list[bytes]:
    return [json.dumps({key: value, "v": 1}).encode() for value in values]


KEYED = keyed("id")
COLUMNS = [
    ("numbers and texts", [7, "7"], "id: string; id_long@id: long"),
    ("texts are no dates", ["2026-01-01", "2026-01-02"], "id: string"),
    ("nor moments", ["2026-01-01T00:00:00Z", "x"], "id: string"),
    ("three kinds", [True, 1, "true"], "id: string; id_boolean@id: boolean; id_long@id: long"),
    ("numbers share what holds them", [7, 7.5], "id: double"),
    ("a large number beside", [2**63 - 1, 7.5], "id: double; id_long@id: long"),
    ("beyond a long", [7, 10**30], "id: decimal(38, 0); id_long@id: long"),
]


@pytest.mark.parametrize(("values", "columns"), [c[1:] for c in COLUMNS], ids=[c[0] for c in COLUMNS])
def test_each_kind_of_a_key_has_columns_of_its_own(values: list[object], columns: str) -> None:
    taken = take(Schema(), lines(*values), KEYED)

    assert all(taken.kept)
    found = (f"{show(Schema(Struct((f,))))}" for f in taken.schema.struct.fields)
    assert sorted(found) == sorted(f"{columns}; v: long".split("; "))


def test_another_kind_gets_a_column_later_too() -> None:
    first = take(Schema(), lines("7"), KEYED).schema
    second = take(first, lines(7, True), KEYED).schema

    assert show(second) == "id: string, v: long, id_long@id: long, id_boolean@id: boolean"
    assert take(second, lines(7, "7", False, "2026-01-01"), KEYED).schema == second


def test_a_column_of_another_kind_is_a_sibling() -> None:
    text = FieldState([Facet(0, LONG)], {Facet(0, STRING): Profile(SourceLocation(), "7")}, [False])
    (new,) = ROLES["key"].decide(text).new

    assert (new.rule, new.why) == ("sibling", "string does not fit the field's columns: long")


REFUSED = [None, [], [1], {}, {"a": 1}, [[]]]


@pytest.mark.parametrize("value", REFUSED, ids=json.dumps)
@pytest.mark.parametrize("known", [True, False])
def test_what_is_no_key_is_refused(value: object, known: bool) -> None:
    table = take(Schema(), lines(1), KEYED).schema if known else Schema()
    taken = take(table, [*lines(value, 5), b'{"v": 1}', b"{}"], KEYED)

    assert taken.kept == [False, True, False, False]
    assert show(taken.schema) == "id: long, v: long"


def test_a_number_that_no_type_holds_is_no_key() -> None:
    taken = take(Schema(), [b'{"id": 1e400}', b'{"id": 1}', b'{"id": "1e400"}'], KEYED)

    assert taken.kept == [False, True, True]


def test_a_key_in_objects() -> None:
    settings = keyed("a.id", "b")
    good = b'{"a": {"id": 1}, "b": "x"}'
    bad = [b'{"a": 1, "b": "x"}', b'{"a": [{"id": 1}], "b": "x"}', b'{"a": null, "b": "x"}', b'{"a": {}, "b": "x"}',
           b'{"a": {"id": null}, "b": "x"}', b'{"b": "x"}', b'{"a": {"id": 1}}']  # fmt: skip
    taken = take(Schema(), [good, *bad], settings)

    assert taken.kept == [True, *[False] * len(bad)]
    assert show(taken.schema) == "a: {id: long}, b: string"
    assert take(taken.schema, [good, *bad], settings).kept == taken.kept


ORDERS = [
    ("numbers", [1, 2.5], ["x", True, "2026-01-01T00:00:00Z", None]),
    ("moments", ["2026-01-01T00:00:00Z", "2026-01-02"], [1, "x", None, []]),
    ("texts", ["a", "b"], [1, None, {"a": 1}]),
]


@pytest.mark.parametrize(("good", "bad"), [c[1:] for c in ORDERS], ids=[c[0] for c in ORDERS])
def test_an_order_of_another_kind_than_the_tables_is_refused(good: list[object], bad: list[object]) -> None:
    settings = keyed("id", order=["v"])
    records = [{"id": 1, "v": value} for value in good]
    table = take(Schema(), [json.dumps(r).encode() for r in records], settings).schema
    more = [json.dumps({"id": 1, "v": value}).encode() for value in [*bad, *good]]
    taken = take(table, more, settings)

    assert taken.kept == [*[False] * len(bad), *[True] * len(good)]
    assert taken.schema == table


def test_texts_like_dates_are_texts_where_a_table_is_ordered_by_texts() -> None:
    settings = keyed("id", order=["v"])
    table = take(Schema(), [b'{"id": 1, "v": "a"}'], settings).schema
    taken = take(table, [b'{"id": 1, "v": "2026-01-01"}'], settings)

    assert taken.kept == [True]
    assert taken.schema == table


KEYS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["7", "true", "2026-01-01", "2026-01-01T00:00:00Z", "x"]),
    st.sampled_from([[], {}, [1], {"a": 1}]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@example([[7], ["7"]], 2)
@given(st.lists(st.lists(KEYS, min_size=1, max_size=6), min_size=1, max_size=3), st.integers(1, 3))
def test_whatever_comes_keys_are_kept_and_others_refused(batches: list[list[object]], tasks: int) -> None:
    table = Schema()
    for batch in batches:
        taken = take(table, lines(*batch), KEYED, tasks)
        assert taken.kept == [not (value is None or isinstance(value, (list, dict))) for value in batch]
        table = taken.schema


def test_typed_rows_without_a_key_are_found_by_columns() -> None:
    schema = Schema(Struct((Field("id", LONG, 1),)))
    struct = Struct((Field("id", LONG), Field("v", LONG)))
    batch = pa.record_batch({"id": pa.array([1, None, 3]), "v": pa.array([1, 1, None])})
    observer = ArrowObserver(struct, expect(schema, KEYED), "batch")
    observer.feed(batch)
    conflicts = list(lacking(observer.result().shape, KEYED.fields))

    assert [str(c) for c in conflicts] == ["id: key: no value"]
    assert np.array_equal(first_conflicts(batch, struct, conflicts), [-1, 0, -1])
