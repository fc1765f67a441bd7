"""Tables with a key on the other roads of ingest: policies, quarantine and replay, layouts that change, frames."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from driftline.keys.settle import KeyCounts
from driftline.lake import Lake, Table
from lake.formats import database
from lake.test_keyed import SETTINGS
from lake.test_row_deletes import held_by_others

COUNTS = [count.name for count in fields(KeyCounts)]
BY_KIND = {"policies.id": "preserve", "policies.seq": "preserve", "policies.op": "preserve"}


def rows(table: Table, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.read().select(*columns).collect())


@pytest.mark.nightly
def test_a_strict_table_and_the_replay_of_what_it_refused(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": i, "seq": 1, "v": "a"} for i in range(3)], settings=SETTINGS)
    refused = [{"id": 0, "seq": 2, "more": 1}, {"id": 1, "seq": 2, "more": 1}, {"id": None, "seq": 2}]
    result = table.ingest(
        [*refused, {"id": 1, "seq": 3, "v": "b"}, {"id": "x", "seq": 1}],
        settings={**BY_KIND, "policy": "strict"},
    )
    assert (result.rows_quarantined, result.to_dict()["updated"], result.to_dict()["inserted"]) == (3, 1, 1)

    (replayed,) = table.replay(settings={"policy": "preserve"}).results
    counts = {name: replayed.to_dict()[name] for name in ("inserted", "updated", "late")}
    assert counts == {"inserted": 0, "updated": 1, "late": 1}
    assert table.quarantine().waiting == 1
    found = {
        row.id if row.id is not None else row.id_string: (row.seq, row.v, row.more)
        for row in table.read().collect()
    }
    assert found == {"x": (1, None, None), 2: (1, "a", None), 0: (2, None, 1), 1: (3, "b", None)}


@pytest.mark.parametrize("exists", [False, True])
def test_a_batch_that_goes_to_quarantine_as_a_whole_has_all_counts(
    lake: Lake, table_name: str, exists: bool
) -> None:
    table = lake.table(table_name)
    if exists:
        table.ingest([{"id": 1, "seq": 1}], settings=SETTINGS)
    found = table.ingest([{"id": None, "seq": 1}, {"seq": 2}], settings=SETTINGS).to_dict()
    assert {name: found.get(name) for name in COUNTS} == dict.fromkeys(COUNTS, 0)
    assert (found["rows_read"], found["rows_quarantined"]) == (2, 2)


@pytest.mark.nightly
def test_a_table_that_widens(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    spark = lake.spark
    table.ingest(
        spark.sql("select 1 as id, 1 as n, 'a' as v"),
        settings={"key": "id", "policy": "widen", "policies.id": "preserve"},
    )
    table.ingest(spark.sql("select 2L as id, 2L as n, 'b' as v union all select 1L, 3L, 'c'"))
    table.ingest(spark.sql("select cast(1 as smallint) as id, 4L as n, 'd' as v"))

    assert rows(table, "id", "n", "v") == [(1, 4, "d"), (2, 2, "b")]
    assert held_by_others(table) == {1: "d", 2: "b"}


def test_partitions_and_orders_that_change(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    layout = {"partition_by": "v", "sort_by": "seq"}
    table.ingest([{"id": i, "seq": 1, "v": "ab"[i % 2]} for i in range(6)], settings={**SETTINGS, **layout})
    table.ingest([{"id": 0, "seq": 2, "v": "b"}, {"id": 1, "seq": 2, "op": "d"}])
    changed = "SET PARTITIONED BY (bucket(4, id))" if database(lake) else "ADD PARTITION FIELD bucket(4, id)"
    lake.alter(f"ALTER TABLE {table_name} {changed}")
    table.ingest([{"id": i, "seq": 3, "v": "c"} for i in (0, 2, 7)] + [{"id": 3, "seq": 3, "op": "d"}])

    assert held_by_others(table) == {0: "c", 2: "c", 4: "a", 5: "b", 7: "c"}
    assert rows(table, "id", "v") == sorted(held_by_others(table).items())
