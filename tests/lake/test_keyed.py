"""Rows by key, against a dictionary: whatever drifts, comes late, twice or deleted, in any batches."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from core.test_upsert import Key, Oracle, events, key_of
from driftline.core.changes import DropColumn
from driftline.errors import DataError, UsageError
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.lake import Lake, Table
from lake.formats import database
from lake.test_row_deletes import held_by_others
from lake.test_task_files import files_of

SETTINGS = {"key": "id", "order_by": "seq", "delete_when": "op = 'd'"}


def rows_of(table: Table) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in table.read().collect()]


def held(table: Table) -> dict[Key, int]:
    """The rows by key, each with the number of its event."""
    rows = rows_of(table)
    found = {key_of(row): row["n"] for row in rows}
    assert len(found) == len(rows), rows
    return found


def put(file: Path, records: Sequence[Mapping[str, object]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


@pytest.mark.parametrize("how", ["ordered", "as they come", "format version 2", "soft"])
def test_a_table_is_what_a_dictionary_says(lake: Lake, table_name: str, tmp_path: Path, how: str) -> None:
    table, chance = lake.table(table_name), random.Random(how)
    oracle = Oracle(ordered=how != "as they come", soft=how == "soft")
    settings = {**SETTINGS, "order_by": SETTINGS["order_by"] if oracle.ordered else ""}
    settings |= {"deletes": "soft"} if oracle.soft else {}
    if how == "format version 2":
        settings["format_version"] = "2" if database(lake) is None else "3"
    stream = events(chance, 90)
    while stream:
        batch, stream = stream[: (size := chance.randrange(10, 40))], stream[size:]
        expected = asdict(oracle.take(batch))
        result = table.ingest(put(tmp_path / f"{len(stream)}.jsonl", batch), settings=settings)
        assert {name: result.to_dict()[name] for name in expected} == expected
        assert (result.rows_read, result.rows_quarantined) == (len(batch), 0)
        settings = {}

    assert held(table) == {key: event["n"] for key, event in oracle.rows.items()}
    assert ("_order" in table.read().columns) == oracle.ordered
    if oracle.soft:
        marked = {key_of(row) for row in rows_of(table) if row["_is_deleted"]}
        assert marked == {key for key, event in oracle.rows.items() if event.get("gone")}


def test_a_row_that_is_deleted_keeps_its_values_of_any_type(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    row = {"id": 1, "s": {"a": [1, 2], "b": {"c": "x"}}, "l": [{"d": 1}, None], "t": "2026-01-01T00:00:00Z"}
    deep = "named_struct('id', 2L, 'm', map('k', array(1.5D)), 'dec', cast(1.50 as decimal(9, 2))) as s"
    typed = f"select 2L as id, x'ff00' as bin, date'2026-01-01' as day, 2.5F as f, {deep}"
    table.ingest([row], settings={**SETTINGS, "order_by": "", "deletes": "soft"})
    table.ingest(lake.spark.sql(typed))
    before = {r["id"]: r for r in rows_of(table)}
    result = table.ingest([{"id": key, "op": "d", "new": 1.5} for key in (2, 1, 3)])

    after = {r["id"]: r for r in rows_of(table)}
    assert (result.to_dict()["deleted"], result.to_dict()["ignored"]) == (2, 1)
    assert {key: {k: r[k] for k in before[key]} for key, r in after.items()} == {
        key: {**r, "_is_deleted": True} for key, r in before.items()
    }
    table.ingest([{"id": 1, "op": "c"}])
    assert [(r["_is_deleted"], r["s"], r["l"]) for r in rows_of(table) if r["id"] == 1] == [
        (False, None, None)
    ]


def test_what_has_no_key_or_no_order_waits(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "seq": 5, "n": 1}], settings=SETTINGS)
    bad = [{"id": None, "seq": 6}, {"seq": 6}, {"id": [1], "seq": 6}, {"id": 1, "seq": "x"}, {"id": 1}]
    bad += [{"id": float("nan"), "seq": 6}, {"id": 1, "seq": float("nan")}]
    result = table.ingest([*bad, {"id": 1, "seq": 6, "n": 2}])

    assert (result.rows_quarantined, result.to_dict()["updated"]) == (len(bad), 1)
    assert held(table) == {("number", Decimal(1)): 2}
    reasons = {group.reason for group in table.quarantine().groups}
    assert {reason.partition(":")[0] for reason in reasons} <= {"id", "seq", "key", "order"}


def test_keys_of_typed_rows_and_of_several_fields(lake: Lake, table_name: str) -> None:
    table, spark = lake.table(table_name), lake.spark
    settings = {"key": "a.id, day"}
    first = "named_struct('id', {id}) as a, date'2026-01-0{day}' as day, {n} as n"
    table.ingest(spark.sql(f"select {first.format(id=1, day=1, n=1)}"), settings=settings)
    table.ingest(spark.sql(f"select {first.format(id='2L', day=1, n=2)}"))
    table.ingest(
        [{"a": {"id": 1}, "day": "2026-01-01", "n": 3}, {"a": {"id": "1"}, "day": "2026-01-01", "n": 4}]
    )

    assert sorted(row.n for row in table.read().collect()) == [2, 3, 4]


def test_others_in_between_and_the_batch_is_settled_anew(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, left = lake.table(table_name), [1]
    table.ingest([{"id": 1, "seq": 1, "n": 1}], settings=SETTINGS)
    for kind in (IcebergTransaction, DuckLakeTransaction):

        def commit(self: Any, *, commit: Any = kind.commit) -> None:
            if left:
                left.pop()
                table.ingest([{"id": 1, "seq": 9, "n": 9}, {"id": 2, "seq": 2, "n": 2}])
            commit(self)

        monkeypatch.setattr(kind, "commit", commit)
    result = table.ingest([{"id": 1, "seq": 5, "n": 5}, {"id": 2, "seq": 3, "n": 3}])

    assert (result.to_dict()["late"], result.to_dict()["updated"]) == (1, 1)
    assert held(table) == {("number", Decimal(1)): 9, ("number", Decimal(2)): 3}


def test_an_error_leaves_the_table_and_no_file(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": i, "seq": 1, "n": 1} for i in range(3)], settings=SETTINGS)
    before = files_of(lake, table)
    with monkeypatch.context() as patch:
        for kind in (IcebergTransaction, DuckLakeTransaction):
            patch.setattr(kind, "set", lambda *_: (_ for _ in ()).throw(DataError("the end")))
        with pytest.raises(DataError, match="the end"):
            table.ingest([{"id": 1, "seq": 2, "n": 2}, {"id": 2, "seq": 2, "op": "d"}])

    assert files_of(lake, table) == before
    assert held(table) == {("number", Decimal(i)): 1 for i in range(3)}


def test_other_readers_see_the_same(lake: Lake, table_name: str, folder: Path) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": i, "v": "a", "seq": 1} for i in range(4)], settings=SETTINGS)
    table.ingest(
        [{"id": 1, "v": "b", "seq": 2}, {"id": 2, "seq": 3, "op": "d"}, {"id": 3, "v": "late", "seq": 0}]
    )

    assert held_by_others(table, folder) == {0: "a", 1: "b", 3: "a"}


def test_what_would_lose_track_of_rows_is_refused(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "seq": 1, "v": 1}, {"id": "1", "seq": 1, "v": "x"}], settings=SETTINGS)
    refused: list[tuple[type[Exception], Any]] = [
        (UsageError, lambda: table.ingest([{"id": 1, "seq": 2}], settings={"key": "v"})),
        (
            UsageError,
            lambda: table.ingest(
                [{"id": 1, "seq": 2}], settings={"key": "", "order_by": "", "delete_when": ""}
            ),
        ),
        (DataError, lambda: table.alter(DropColumn(("id",)))),
        (DataError, lambda: table.resolve("id", "string")),
        (DataError, lambda: table.verify([{"id": 1, "seq": 1}])),
    ]
    for error, act in refused:
        with pytest.raises(error, match="key"):
            act()
    plain = lake.table(f"{table_name}_plain")
    plain.ingest([{"id": 1}])
    with pytest.raises(UsageError, match="has no key: key is set when a table is made"):
        plain.ingest([{"id": 1}], settings={"key": "id"})

    assert table.read().count() == 2


def test_a_row_that_is_updated_keeps_its_id(iceberg: Lake, table_name: str, folder: Path) -> None:
    table = iceberg.table(table_name)

    def ids() -> dict[int, tuple[int, int]]:
        rows = table.read().select("id", "_row_id", "_last_updated_sequence_number").collect()
        assert len({row._row_id for row in rows}) == len(rows)
        return {row.id: (row._row_id, row._last_updated_sequence_number) for row in rows}

    table.ingest([{"id": i, "v": "a", "seq": 1} for i in range(4)], settings={**SETTINGS, "deletes": "soft"})
    first = ids()
    table.ingest(
        [{"id": 2, "v": "b", "seq": 2}, {"id": 9, "v": "new", "seq": 2}, {"id": 3, "v": "c", "seq": 2}]
    )
    table.ingest(
        [{"id": 2, "v": "d", "seq": 3}, {"id": 1, "seq": 3, "op": "d"}, {"id": 8, "v": "x", "seq": 3}]
    )
    last = ids()

    assert {key: last[key][0] for key in first} == {key: id_ for key, (id_, _) in first.items()}
    assert {key: number for key, (_, number) in last.items()} == {0: 1, 1: 3, 2: 3, 3: 2, 8: 3, 9: 2}
    assert held_by_others(table, folder) == {0: "a", 1: "a", 2: "d", 3: "c", 8: "x", 9: "new"}
