"""Audits with `verify` of tables with a key: what a batch leaves, beside what the table had before."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from driftline import AuditError
from driftline.lake import Lake, Table

VERIFY: dict[str, Any] = {"audit": True, "verify": True}
Record = dict[str, Any]


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def put(file: Path, records: Sequence[Record]) -> Path:
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return file


def behind(file: Path, records: Sequence[Record]) -> Callable[[str], None]:
    """Put records into the file after it was written, and before it is checked: as if the batch had lost them."""

    def change(phase: str) -> None:
        if phase == "auditing":
            with file.open("a") as lines:
                lines.writelines(f"{json.dumps(record)}\n" for record in records)

    return change


def lost_lines(table: Table, file: Path, lost: Sequence[Record]) -> list[int]:
    """The lines that an audit of the file misses, if it gets these records behind the batch."""
    with pytest.raises(AuditError) as raised:
        table.ingest(file, **VERIFY, progress=behind(file, lost))
    return sorted({int(found.seen_in.rpartition(":")[2]) for found in raised.value.result.audit})


GONE = {"gone": True}


@pytest.mark.parametrize(
    "settings", [{}, pytest.param({"deletes": "soft"}, marks=pytest.mark.nightly)], ids=["hard", "soft"]
)
def test_batch_with_deletes_and_an_order_is_verified_beside_rows_and_deletes_from_before(
    table: Table, tmp_path: Path, settings: Record
) -> None:
    deleted = [{"id": "c", "at": 5, **GONE}, {"id": 7, "at": 5, **GONE}]
    first = [{"id": 1, "at": 5}, {"id": 2, "at": 5}, *deleted]
    keyed = {"key": "id", "order_by": "at", "delete_when": "gone = true", **settings}
    table.ingest(put(tmp_path / "a.jsonl", first), **VERIFY, **keyed)
    late = [{"id": 1, "at": 4, **GONE}, {"id": "c", "at": 4, "n": 1}, {"id": 7.0, "at": -1, "n": 1}]
    second = [*late, {"id": 2, "at": 6, **GONE}, {"id": 4, "at": 1, "n": 1}, {"id": 4, "at": 2, **GONE}]
    file = put(tmp_path / "b.jsonl", second)
    lost = [
        {"id": 1, "at": 6, **GONE},
        {"id": "c", "at": 6, "n": 2},
        {"id": 4, "at": 3, "n": 1},
        {"id": 9, "at": 1},
    ]
    assert lost_lines(table, file, lost) == [7, 8, 9, 10]
    table.ingest(put(file, second), **VERIFY)
    live = table.read().where("not coalesce(_is_deleted, false)") if settings else table.read()
    assert live.count() == 1


def test_batch_of_a_later_epoch_is_verified_beside_rows_of_an_earlier_one(
    table: Table, tmp_path: Path
) -> None:
    first = [{"id": 1, "at": 5}, {"id": 2, "at": 5}, {"id": 3, "at": 5}]
    table.ingest(put(tmp_path / "a.jsonl", first), key="id", order_by="at", **VERIFY)
    table.lake.alter(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('driftline.epoch' = '1')")
    file = put(tmp_path / "b.jsonl", [{"id": 1, "at": 3, "n": 1}])
    table.ingest(file, **VERIFY)
    second = [{"id": 1, "at": 2, "n": "late"}]
    file = put(tmp_path / "c.jsonl", second)
    assert lost_lines(table, file, [{"id": 2, "at": 4, "n": 1}]) == [2]
    table.ingest(put(file, second), **VERIFY)
    assert sorted(row.n or 0 for row in table.read().collect()) == [0, 0, 1]


def test_batch_of_a_table_that_keeps_first_records_is_verified_beside_those_from_before(
    table: Table, tmp_path: Path
) -> None:
    table.ingest(put(tmp_path / "a.jsonl", [{"id": 1, "n": 1}]), key="id", merge="keep", **VERIFY)
    second = [{"id": 1, "n": "again"}, {"id": 2, "n": 1}, {"id": 2, "n": 2}]
    file = put(tmp_path / "b.jsonl", second)
    assert lost_lines(table, file, [{"id": 3, "n": 1}]) == [4]
    table.ingest(put(file, second), **VERIFY)
    assert sorted(row.n for row in table.read().collect()) == [1, 1]


def test_batch_of_a_key_is_not_verified_by_an_equal_record_that_waits_from_before(
    table: Table, tmp_path: Path
) -> None:
    first = [{"id": 1, "n": 1}, {"id": 2, "n": 2}]
    table.ingest(put(tmp_path / "a.jsonl", first), key="id")
    waits = [{"id": 1, "n": "x"}, {"id": 2, "n": "y"}]
    strict = table.ingest(put(tmp_path / "b.jsonl", waits), policies={"n": "strict"})
    assert strict.rows_quarantined == len(waits)
    table.ingest(put(tmp_path / "now.jsonl", first), policies={"n": "preserve"})
    second = [{"id": 1, "n": 5}, waits[0]]
    file = put(tmp_path / "c.jsonl", second)
    assert lost_lines(table, file, waits[1:]) == [3]
    # Nor does it count as the copy of one that is in the table.
    table.ingest(put(file, second), **VERIFY)
    assert sorted((row.id, row.n, row.n_string) for row in table.read().collect()) == [
        (1, None, "x"),
        (2, 2, None),
    ]


def test_batch_of_patches_is_verified_by_the_fields_that_it_brings(table: Table, tmp_path: Path) -> None:
    first = [{"id": 1, "a": 1, "b": {"c": 1, "d": 2}}, {"id": 2, "a": "x"}, {"id": 3, "a": 1, "e": [1]}]
    keyed = {"key": "id", "merge": "patch", "delete_when": "gone = true"}
    table.ingest(put(tmp_path / "a.jsonl", first), **keyed, **VERIFY)
    again = [{"id": 3, **GONE}, {"id": 3, "b": {"c": 5}}]
    second = [{"id": 1, "b": {"c": "y"}}, {"id": 1, "a": None}, {"id": 2, "b": {"d": 7}}, *again]
    file = put(tmp_path / "b.jsonl", second)
    lost = [{"id": 1, "b": {"d": None}}, {"id": 2, "a": 5}, {"id": 3, **GONE}, {"id": 4}]
    assert lost_lines(table, file, lost) == [6, 7, 8, 9]
    table.ingest(put(file, second), **VERIFY)
    verdict = table.verify([str(tmp_path / "a.jsonl"), str(file)])
    assert (verdict.ok, table.read().count()) == (True, 3)


DELETING = {"key": "id", "delete_when": "gone = true"}
HISTORIES = [
    DELETING | {"order_by": "at"},
    DELETING | {"order_by": "at", "deletes": "soft"},
    DELETING | {"merge": "patch"},
    {"key": "id", "merge": "keep"},
    {"key": "id", "merge": "keep", "order_by": "at"},
]


@pytest.mark.nightly
@pytest.mark.parametrize("settings", HISTORIES, ids=lambda settings: "-".join(map(str, settings.values())))
def test_batches_of_changes_in_any_order_pass(table: Table, tmp_path: Path, settings: Record) -> None:
    chance = Random(7)
    for number in range(6):
        records = []
        for _ in range(12):
            record: Record = {"id": chance.choice([1, 2, 3, "a"]), "at": chance.randrange(-5, 20)}
            record |= {name: chance.choice([None, 1, "x", {"b": 2}]) for name in chance.sample("cde", 2)}
            records.append(record | (GONE if chance.random() < 0.2 else {}))
        file = put(tmp_path / f"{number}.jsonl", records)
        table.ingest(file, **VERIFY, **(settings if number == 0 else {}))
    assert table.verify([str(file) for file in sorted(tmp_path.glob("*.jsonl"))]).ok


# Envelopes -----------------------------------------------------------------------------------------------------


def change(op: str, lsn: int, id_: int, before: int | None = None, **row: Any) -> Record:
    """A message of Debezium's about a row of PostgreSQL's."""
    source = {"connector": "postgresql", "lsn": lsn}
    if op == "d":
        return {"op": op, "before": {"id": id_}, "after": None, "source": source}
    was = None if before is None else {"id": before}
    return {"op": op, "before": was, "after": {"id": id_, **row}, "source": source}


TOAST = "__debezium_unavailable_value"
CHANGES = [
    [change("c", 10, 1, n=1, text="long"), change("c", 11, 2, n=1), change("d", 12, 3)],
    [
        change("u", 13, 1, n=2, text=TOAST),
        change("d", 9, 2),
        change("c", 5, 3, n=1),
        change("c", 14, 4, n=1),
        change("u", 15, 5, 4, n=2),
    ],
    [{"op": "t", "source": {"connector": "postgresql", "lsn": 30}}, change("c", 29, 6), change("c", 31, 7)],
    [change("c", 28, 8), change("u", 32, 7, n=3)],
]
LOST = [change("u", 40, 1, n=9), change("c", 41, 3), change("d", 42, 2), change("c", 43, 9)]


def test_changes_of_a_database_are_verified_beside_those_from_before(table: Table, tmp_path: Path) -> None:
    table.ingest(put(tmp_path / "0.jsonl", CHANGES[0]), key="id", envelope="debezium", **VERIFY)
    file = put(tmp_path / "1.jsonl", CHANGES[1])
    assert lost_lines(table, file, LOST) == [6, 7, 8, 9]
    for number, changes in enumerate(CHANGES[1:], 1):
        table.ingest(put(tmp_path / f"{number}.jsonl", changes), **VERIFY)
        if number == 1:
            rows = {row.id: (row.n, row.text) for row in table.read().collect()}
            assert rows == {1: (2, "long"), 2: (1, None), 5: (2, None)}
    assert [(row.id, row.n) for row in table.read().collect()] == [(7, 3)]


@pytest.mark.nightly
def test_changes_that_count_as_they_arrive_are_verified(table: Table, tmp_path: Path) -> None:
    table.ingest(
        put(tmp_path / "a.jsonl", CHANGES[0]), key="id", envelope="debezium", order_by="_arrival", **VERIFY
    )
    second = [change("u", 1, 1, n=5), change("d", 1, 2)]
    file = put(tmp_path / "b.jsonl", second)
    assert lost_lines(table, file, [change("d", 1, 1), change("c", 1, 4)]) == [3, 4]
    table.ingest(put(file, second), **VERIFY)
    assert [(row.id, row.n) for row in table.read().collect()] == [(1, 5)]


@pytest.mark.nightly
def test_changes_of_a_database_in_any_order_pass(table: Table, tmp_path: Path) -> None:
    chance = Random(3)
    for number in range(6):
        messages = []
        for _ in range(12):
            lsn, id_ = chance.randrange(1, 40), chance.randrange(1, 5)
            before = chance.choice([None, None, None, chance.randrange(1, 5)])
            row = {"n": chance.choice([lsn, "x"]), "text": chance.choice([TOAST, f"text {lsn}"])}
            messages.append(change(chance.choice("cud"), lsn, id_, before, **row))
        if number == 3:
            messages.append({"op": "t", "source": {"connector": "postgresql", "lsn": 15}})
        keyed = {"key": "id", "envelope": "debezium"} if number == 0 else {}
        table.ingest(put(tmp_path / f"{number}.jsonl", messages), **VERIFY, **keyed)
    assert table.verify([str(file) for file in sorted(tmp_path.glob("*.jsonl"))]).ok
