"""Rows by key, against a dictionary: whatever drifts, comes late, twice or deleted, in any batches."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from core.test_upsert import Event, Key, Oracle, events, first_of, key_of
from driftline.core.changes import DropColumn, RequireColumn
from driftline.errors import DataError, UsageError
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.keys import remembered as memory
from driftline.keys.settle import KeyCounts
from driftline.lake import Lake, Table
from lake.ducklake_peer import run
from lake.formats import database
from lake.test_row_deletes import compact, held_by_others, moved
from lake.test_task_files import files_of

SETTINGS = {"key": "id", "order_by": "seq", "delete_when": "op = 'd'"}
VERSION_2 = pytest.param("format version 2", marks=pytest.mark.iceberg_only("a DuckLake has one version"))
FIRST = ("inserted", "updated", "duplicate")  # outcomes of records where the first of each key stays


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


@pytest.mark.parametrize("how", ["ordered", "as they come", VERSION_2, "soft"])
def test_a_table_is_what_a_dictionary_says(lake: Lake, table_name: str, tmp_path: Path, how: str) -> None:
    table, chance = lake.table(table_name), random.Random(how)
    oracle = Oracle(ordered=how != "as they come", soft=how == "soft")
    settings = {**SETTINGS, "order_by": SETTINGS["order_by"] if oracle.ordered else ""}
    settings |= {"deletes": "soft"} if oracle.soft else {}
    if how == "format version 2":
        settings["format_version"] = "2" if database(lake) is None else "3"
    stream, files = events(chance, 90), []
    history = stream
    while stream:
        batch, stream = stream[: (size := chance.randrange(10, 40))], stream[size:]
        expected = asdict(oracle.take(batch))
        files.append(put(tmp_path / f"{len(stream)}.jsonl", batch))
        result = table.ingest(files[-1], settings=settings)
        assert {name: result.to_dict()[name] for name in expected} == expected
        assert (result.rows_read, result.rows_quarantined) == (len(batch), 0)
        settings = {}

    assert any(moved(table))  # files were worn
    assert held(table) == {key: event["n"] for key, event in oracle.rows.items()}
    assert {key_of(row): key_of(row, "seq") for row in rows_of(table)} == oracle.seqs()
    assert ("_order" in table.read().columns) == oracle.ordered
    if oracle.soft:
        marked = {key_of(row) for row in rows_of(table) if row["_is_deleted"]}
        assert marked == {key for key, event in oracle.rows.items() if event.get("gone")}
    verdict = table.verify(files, exactly=True)
    assert (verdict.records, verdict.ok, verdict.extra) == (len(history), True, 0)


@pytest.mark.nightly
@pytest.mark.format_has_no_say("the records of a key are settled before a format writes their rows")
def test_rows_that_are_not_the_latest_are_found(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    first = [{"id": i, "seq": 1, "v": "a"} for i in range(6)]
    second = [{"id": 0, "seq": 2, "v": "c"}, {"id": 1, "seq": 2, "op": "d"}, {"id": 2, "seq": 0, "v": "late"}]
    second += [{"id": "0", "seq": 1, "v": "b"}, {"v": "no key"}]
    files = [put(tmp_path / "1.jsonl", first), put(tmp_path / "2.jsonl", second)]
    table.ingest(files[0], settings=SETTINGS)
    table.ingest(files[1])

    fine = table.verify(files, exactly=True)
    assert (fine.ok, fine.records, fine.found, fine.deleted, fine.overtaken, fine.quarantined) == (
        True, 11, 6, 1, 3, 1
    )  # fmt: skip
    made, later = (change["records"] for change in table.history().to_dict()["changes"])
    assert made == {"inserted": 6, "updated": 0, "deleted": 0, "superseded": 0, "late": 0, "ignored": 0}
    assert later == {
        "inserted": 1, "updated": 1, "deleted": 1, "superseded": 0, "late": 1, "ignored": 0, "quarantined": 1,
    }  # fmt: skip
    told = table.stats()  # a third of the first file is gone, so its rows moved
    assert (told.records, told.at_most, told.deleted, told.batches) == (6, False, 0, 2)
    assert [batch.records for batch in told.recent] == [6]
    assert table.verify(files[1:]).missing == 1  # without the history, what came late is taken for the latest
    tamper(table, "update {t} set v = 'a' where id = 0")
    tamper(table, "delete from {t} where id = 3")
    tamper(
        table,
        "insert into {t} (id, seq, v, _order, id_string) values (1, 1, 'a', 'x', null), (99, 1, 'a', 'x', null)",
    )

    wrong = table.verify(files, exactly=True)
    lines = {m.place.rpartition("/")[2]: m.why for m in wrong.mismatches if m.place}
    assert lines == {
        "1.jsonl:4": "its key has no row",
        "2.jsonl:1": "'c' is in no column; column v holds 'a'",
        "2.jsonl:2": "it deletes its row, and the table has one",
    }
    assert (wrong.missing, wrong.extra) == (3, 1)


@pytest.mark.format_has_no_say("the records of a key are settled before a format writes their rows")
@pytest.mark.parametrize("order_by", ["seq", ""], ids=["ordered", "as they come"])
def test_first_record_of_a_key_stays_and_later_ones_are_duplicates(
    lake: Lake, table_name: str, tmp_path: Path, order_by: str
) -> None:
    table = lake.table(table_name)
    files = [
        put(
            tmp_path / "1.jsonl",
            [{"id": 1, "seq": 5, "v": "a"}, {"id": 1, "seq": 6, "v": "b"}, {"id": 2, "seq": 5}],
        ),
        put(
            tmp_path / "2.jsonl",
            [{"id": 1, "seq": 4, "v": 7}, {"id": 2, "seq": 5, "v": "d"}, {"id": 3, "seq": 1}],
        ),
    ]
    first = table.ingest(files[0], settings={"key": "id", "order_by": order_by, "merge": "keep"})
    second = table.ingest(files[1])

    assert first.by_key == KeyCounts(inserted=2, duplicate=1)
    assert second.by_key == KeyCounts(inserted=1, updated=int(bool(order_by)), duplicate=2 - bool(order_by))
    assert second.to_dict()["duplicate"] == 2 - bool(order_by)
    rows = {row["id"]: (row["seq"], row["v"]) for row in rows_of(table)}
    assert rows == {1: (4, "7") if order_by else (5, "a"), 2: (5, None), 3: (1, None)}
    verdict = table.verify(files, exactly=True)
    assert (verdict.ok, verdict.records, verdict.found, verdict.overtaken, verdict.extra) == (
        True,
        6,
        3,
        3,
        0,
    )
    tamper(table, "update {t} set seq = 6 where id = 2")
    assert table.verify(files).missing == 1
    with pytest.raises(UsageError, match="has merge = 'keep', and a batch does not change that"):
        table.ingest([{"id": 4, "seq": 1}], settings={"merge": "replace"})


@pytest.mark.parametrize("layout", [VERSION_2, "partitioned"])
def test_first_record_of_a_key_stays_in_each_layout_until_undone(
    lake: Lake, table_name: str, layout: str
) -> None:
    table, chance = lake.table(table_name), random.Random(layout)
    settings = {"key": "id", "order_by": "seq", "merge": "keep"}
    if layout == "partitioned":
        settings["partition_by"] = "city"  # a lower order may move a row into another partition
    elif database(lake) is None:
        settings["format_version"] = "2"
    stream: list[Event] = [
        {"id": chance.randrange(12), "seq": chance.randrange(50), "city": chance.choice("abc"), "n": n}
        for n in range(60)
    ]
    stream[-1]["new"] = 1
    for at in range(0, 60, 20):
        before = rows_of(table) if at else []
        result = table.ingest(stream[at : at + 20], settings={} if at else settings)
        counts = asdict(result.by_key)
        assert counts == {**asdict(KeyCounts()), **{name: counts[name] for name in FIRST}}
        assert sum(counts.values()) == result.rows_read == 20
        first = first_of(stream[: at + 20], ordered=True)
        assert {key_of(row): (row["n"], row["city"]) for row in rows_of(table)} == {
            key: (n, stream[n]["city"]) for key, n in first.items()
        }

    [*_, last] = table.history().to_dict()["changes"]
    assert last["records"]["duplicate"] == counts["duplicate"] > 0 < counts["updated"]
    table.undo(yes=True)
    assert sorted(rows_of(table), key=str) == sorted(before, key=str)
    assert table.ingest(stream[40:]).by_key == result.by_key


@pytest.mark.format_has_no_say("the records of a key are settled before a format writes their rows")
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("merge", "replace", "has merge = 'keep', which is set when a table is made"),
        ("delete-when", "op = 'd'", "delete_when does not go with merge = keep"),
        ("deletes", "soft", "deletes = soft does not go with merge = keep"),
    ],
)
def test_table_that_keeps_its_first_records_gets_no_deletes(
    lake: Lake, table_name: str, name: str, value: str, says: str
) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "seq": 1}], settings={"key": "id", "merge": "keep"})
    with pytest.raises((DataError, UsageError), match=says):
        lake.alter(f"ALTER TABLE {table_name} SET TBLPROPERTIES ('driftline.{name}' = \"{value}\")")


@pytest.mark.nightly
def test_undo_of_a_batch_brings_the_old_rows_back(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    first = put(tmp_path / "1.jsonl", [{"id": i, "seq": 1, "v": "a"} for i in range(4)])
    second = put(tmp_path / "2.jsonl", [{"id": 0, "seq": 2, "v": "b"}])
    changes = [{"id": 0, "seq": 3, "v": "c", "w": 1}, {"id": 1, "seq": 3, "op": "d"}, {"id": 9, "seq": 1}]
    third = put(tmp_path / "3.jsonl", changes)
    table.ingest(first, settings=SETTINGS)
    table.ingest(second)
    before = {row.id: row.asDict() for row in table.read().collect()}
    taken = table.ingest(third)
    with pytest.raises(DataError, match="would remove 2 rows and restore 2 rows"):
        table.undo()
    undone = table.undo(yes=True)

    assert undone.to_dict()["rows"]["id"] == taken.batch
    assert {row.id: row.asDict() for row in table.read().collect()} == before
    assert held_by_others(table) == {0: "b", 1: "a", 2: "a", 3: "a"}
    assert table.verify([first, second], exactly=True).ok

    again = table.ingest(third)
    assert again.by_key == taken.by_key
    assert table.verify([first, second, third], exactly=True).ok
    tamper(table, "delete from {t} where id = 3")
    with pytest.raises(DataError, match="cannot be undone: rows have changed since"):
        table.undo(yes=True)


def test_undo_after_batches_without_rows_takes_the_last_batch_with_rows_back(
    lake: Lake, table_name: str
) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "seq": 1, "v": "a"}], settings=SETTINGS)
    taken = table.ingest([{"id": 1, "seq": 5, "v": "b"}])
    assert table.ingest([{"seq": 6, "v": "no key"}]).rows_quarantined == 1
    assert table.ingest([{"id": 1, "seq": 4, "v": "late", "w": 1}]).by_key.late == 1
    undone = table.undo(yes=True)

    assert undone.to_dict()["rows"]["id"] == taken.batch
    assert [(row["seq"], row["v"]) for row in rows_of(table)] == [(1, "a")]
    assert table.ingest([{"id": 1, "seq": 4, "v": "late", "w": 1}]).by_key.updated == 1


@pytest.mark.nightly
def test_each_further_undo_takes_the_batch_before_back(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """Batches with new columns and without, behind either, and again once they were ingested anew."""
    table, taken, states = lake.table(table_name), [], []
    files = [
        put(tmp_path / "0.jsonl", [{"id": i, "seq": 1, "v": "a"} for i in range(5)]),
        *(
            put(
                tmp_path / f"{n}.jsonl",
                [
                    {"id": 0, "seq": 1 + n, "v": "bcde"[n - 1], **({f"n{n}": n} if n in (2, 3) else {})},
                    {"id": n, "seq": 9, "op": "d"},
                    {"id": 10 + n, "seq": 1, "v": "new"},
                ],
            )
            for n in (1, 2, 3, 4)
        ),
    ]

    def state() -> tuple[Any, ...]:
        return sorted(map(str, rows_of(table))), held_by_others(table), table.read().columns

    for file in files:
        taken.append(table.ingest(file, settings=SETTINGS).batch)
        states.append(state())
    for anew in (False, True):
        if anew:
            for number in (1, 2, 3, 4):
                taken[number] = table.ingest(files[number]).batch
                assert state() == states[number]
            assert table.verify(files, exactly=True).ok
        for number in (4, 3, 2, 1):
            assert table.undo(yes=True).to_dict()["rows"]["id"] == taken[number]
            assert state() == states[number - 1]
            assert anew or table.verify(files[:number], exactly=True).ok
        with pytest.raises(DataError, match="has not changed since it was created"):
            table.undo(yes=True)


def test_undo_after_an_undone_batch_takes_the_change_before_it_back(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "seq": 1, "v": "a"}], settings=SETTINGS)
    table.ingest([{"id": 1, "seq": 2, "v": "b", "w": 1}])
    lake.alter(f"ALTER TABLE {table.name} ADD COLUMN y string")
    table.ingest([{"id": 1, "seq": 3, "v": "c", "x": 1}])
    table.undo(yes=True)
    undone = table.undo().to_dict()

    assert [change["path"] for change in undone["changes"]] == ["y"]
    assert [(row["v"], row["w"]) for row in rows_of(table)] == [("b", 1)]
    assert not {"x", "y"} & {*table.read().columns}
    table.undo()  # of the undo, which was of the definition alone
    assert "y" in table.read().columns and "x" not in table.read().columns


def test_undo_forgets_the_deletes_of_its_batch(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": i, "seq": 1, "n": i} for i in (1, 2)], settings=SETTINGS)
    table.ingest([{"id": 2, "seq": 3, "op": "d"}])
    table.ingest([{"id": 1, "seq": 3, "op": "d"}])
    table.undo(yes=True)
    result = table.ingest([{"id": i, "seq": 2, "n": 9} for i in (1, 2)]).to_dict()

    assert (result["updated"], result["late"]) == (1, 1)
    assert held(table) == {("number", Decimal(1)): 9}


def tamper(table: Table, statement: str) -> None:
    """Change the rows of a table as others would."""
    if (ducklake := database(table.lake)) is not None:
        run(ducklake, statement.format(t=f"lk.{table.name}"))
    else:
        table.lake.sql(statement.format(t=f"lake.{table.name}"))


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


@pytest.mark.format_has_no_say("the records of a key are settled before a format writes their rows")
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


@pytest.mark.format_has_no_say("the records of a key are settled before a format writes their rows")
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


@pytest.mark.format_has_no_say("the records of a key are settled before a format writes their rows")
def test_a_delete_is_known_by_its_record_and_makes_no_column(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, spark = lake.table(table_name), lake.spark
    first = [{"id": n, "seq": 1, "n": n, "op": "x"} for n in range(4)]
    table.ingest(first, settings={**SETTINGS, "delete_when": "op = 1"})
    columns = table.read().columns
    drifting = [{"id": 0, "seq": 2, "n": 0, "op": "1"}, {"id": 1, "seq": 2, "n": [1], "new": 1, "op": 1}]
    result = table.ingest(put(tmp_path / "drifting.jsonl", drifting))
    assert (result.to_dict()["updated"], result.to_dict()["deleted"]) == (1, 1)
    result = table.ingest(spark.sql("select 2L as id, 2L as seq, array(1) as n, 1.0D as op, 'x' as other"))

    assert (result.to_dict()["deleted"], result.rows_quarantined) == (1, 0)
    assert table.read().columns == columns
    assert held(table) == {("number", Decimal(0)): 0, ("number", Decimal(3)): 3}


def test_others_in_between_and_the_batch_is_settled_anew(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table(table_name)
    unchanged = {("number", Decimal(i)): 0 for i in range(10, 13)}
    first = [{"id": 1, "seq": 1, "n": 1}, {"id": 3, "seq": 1}]
    table.ingest([*first, *({"id": i, "seq": 1, "n": 0} for i in range(10, 13))], settings=SETTINGS)
    table.ingest([{"id": 3, "seq": 2, "op": "d"}])
    others = [
        lambda: compact(table),
        lambda: table.ingest([{"id": 1, "seq": 9, "n": 9}, {"id": 2, "seq": 2, "n": 2}]),
    ]
    for kind in (IcebergTransaction, DuckLakeTransaction):

        def commit(self: Any, *, commit: Any = kind.commit) -> None:
            if others:
                others.pop(0)()
            commit(self)

        monkeypatch.setattr(kind, "commit", commit)
    result = table.ingest([{"id": 1, "seq": 5, "n": 5}, {"id": 2, "seq": 3, "n": 3}])

    assert not others
    assert (result.to_dict()["late"], result.to_dict()["updated"]) == (1, 1)
    assert held(table) == {("number", Decimal(1)): 9, ("number", Decimal(2)): 3, **unchanged}


def test_two_who_make_the_table_and_its_rows_at_once(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    together = Barrier(2)

    def batches(writer: int) -> None:
        for seq in range(3):
            together.wait(60)
            table.ingest(
                [{"id": id_, "seq": seq, "n": writer} for id_ in (1, 2, 10 + writer)], settings=SETTINGS
            )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(batches, range(2)))

    assert len(held(table)) == 4


def test_a_delete_stays_late_for_what_is_older(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    steps: list[tuple[int, str, str]] = [
        (10, "d", "ignored"),  # of a table without rows
        (8, "u", "late"),
        (12, "u", "inserted"),
        (11, "u", "late"),
        (15, "d", "deleted"),
        (14, "u", "late"),
        (13, "d", "late"),
        (15, "u", "inserted"),
        (16, "d", "deleted"),
        (15, "u", "late"),
    ]
    for number, (seq, op, count) in enumerate(steps):
        result = table.ingest(
            [{"a": {"id": 7.0}, "b": "x", "seq": seq, "n": number, "op": op}],
            settings={} if number else {**SETTINGS, "key": "a.id, b"},
        )
        assert (number, result.to_dict()[count]) == (number, 1)

    assert table.read().count() == 0
    assert [t.name for t in lake.tables() if t.name.startswith(table_name)] == [table_name]
    assert table.format.branches() == {}


@pytest.mark.parametrize("later", ["deletes", "writes"])
def test_a_delete_of_nothing_and_a_write_of_the_same_key_do_not_pass_each_other(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    table, left = lake.table(table_name), [1]
    table.ingest([{"id": 1, "seq": 1, "n": 1}], settings=SETTINGS)
    both = [{"id": 2, "seq": 9, "op": "d"}, {"id": 2, "seq": 5, "n": 5}]
    first, second = both if later == "writes" else reversed(both)
    for kind in (IcebergTransaction, DuckLakeTransaction):

        def commit(self: Any, *, commit: Any = kind.commit) -> None:
            if left:
                left.pop()
                table.ingest([first])
            commit(self)

        monkeypatch.setattr(kind, "commit", commit)
    result = table.ingest([second]).to_dict()

    assert result["late" if later == "writes" else "deleted"] == 1
    assert held(table) == {("number", Decimal(1)): 1}


def test_deletes_are_remembered_as_long_as_it_is_said(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, day = lake.table(table_name), 86_400
    table.ingest(
        [{"id": i, "seq": 1, "n": i} for i in range(7)], settings={**SETTINGS, "delete_memory": "3d"}
    )
    monkeypatch.setattr(memory, "_FEW", 2)
    for id_ in range(3):
        table.ingest([{"id": id_, "seq": 9, "op": "d"}])
    with monkeypatch.context() as later:
        later.setattr(memory.time, "time", lambda now=memory.time.time: now() + 2 * day)
        table.ingest([{"id": 3, "seq": 9, "op": "d"}])
        assert table.ingest([{"id": id_, "seq": 8, "n": 8} for id_ in range(4)]).to_dict()["late"] == 4
        assert len(remembered(table)) == 4
        later.setattr(memory.time, "time", lambda now=memory.time.time: now() + 2 * day)
        table.ingest([{"id": 4, "seq": 9, "op": "d"}])

    assert len(remembered(table)) == 2
    result = table.ingest([{"id": id_, "seq": 8, "n": 8} for id_ in range(5)])
    assert (result.to_dict()["late"], result.to_dict()["inserted"]) == (2, 3)


def remembered(table: Table) -> list[Any]:
    """The deletes that a table remembers, as Spark reads them."""
    if database(table.lake) is not None:
        return table.lake.table(f"{table.name}__deletes").read().collect()
    return table.lake.sql(f"select id, _order from lake.{table.name}.branch_driftline_deletes").collect()


@pytest.mark.nightly
def test_deletes_outlive_upkeep_by_others_and_another_name(iceberg: Lake, table_name: str) -> None:
    table = iceberg.table(table_name)
    settings = {**SETTINGS, "partition_by": "v"}
    table.ingest([{"id": i, "seq": 1, "v": i % 2, "n": i} for i in range(4)], settings=settings)
    table.ingest([{"id": 1, "seq": 9, "op": "d"}])
    table.ingest([{"id": 2, "seq": 9, "op": "d"}])
    for call in (
        "rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))",
        "rewrite_manifests('{}')",
        "expire_snapshots(table => '{}', older_than => timestamp '2100-01-01 00:00:00', retain_last => 1)",
    ):
        iceberg.sql(f"call lake.system.{call.format(table_name)}")
    iceberg.clean(0)
    table.format.rename(f"{table_name}_b")
    table = iceberg.table(f"{table_name}_b")

    assert table.ingest([{"id": i, "seq": 8, "n": 8} for i in (1, 2, 3)]).to_dict()["late"] == 2
    assert held(table) == {("number", Decimal(i)): n for i, n in ((0, 0), (3, 8))}
    table.alter(RequireColumn(("n",)))  # which no remembered delete has


def test_a_table_of_deletes_goes_with_its_table(
    ducklake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, names = ducklake.table(table_name), lambda: {t.name for t in ducklake.tables()}
    ducklake.table(f"{table_name}__deletes").ingest([{"x": 1}])
    with pytest.raises(DataError, match="__deletes exists already, and driftline needs this name"):
        table.ingest([{"id": 1, "seq": 9, "op": "d"}], settings=SETTINGS)
    assert table_name not in names()
    run(database(ducklake), f"DROP TABLE lk.{table_name}__deletes")
    table.ingest([{"id": 1, "seq": 9, "op": "d"}], settings=SETTINGS)
    table.format.rename(f"{table_name}_b")
    ducklake.clean(0)
    renamed = ducklake.table(f"{table_name}_b")

    assert renamed.ingest([{"id": 1, "seq": 8, "n": 8}]).to_dict()["late"] == 1
    with pytest.raises(UsageError, match="holds the deletes that"):
        ducklake.table(f"{table_name}_b__deletes").ingest([{"x": 1}])
    run(database(ducklake), f"DROP TABLE lk.{table_name}_b")
    renamed.ingest([{"id": 1, "seq": 8, "n": 8}, {"id": 2, "seq": 8, "op": "d"}], settings=SETTINGS)
    assert held(renamed) == {("number", Decimal(1)): 8}
    assert len(remembered(renamed)) == 1


def test_an_error_leaves_the_table_and_no_file(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, deletes = lake.table(table_name), lake.table(f"{table_name}__deletes")
    table.ingest([{"id": i, "seq": 1, "n": 1} for i in range(3)], settings=SETTINGS)
    before = files_of(lake, table)
    with monkeypatch.context() as patch:
        for kind in (IcebergTransaction, DuckLakeTransaction):
            patch.setattr(kind, "set", lambda *_: (_ for _ in ()).throw(DataError("the end")))
        with pytest.raises(DataError, match="the end"):
            table.ingest([{"id": 1, "seq": 2, "n": 2}, {"id": 2, "seq": 2, "op": "d"}])

    assert files_of(lake, table) == before
    assert database(lake) is None or not files_of(lake, deletes)
    assert held(table) == {("number", Decimal(i)): 1 for i in range(3)}


def test_other_readers_see_the_same(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": i, "v": "a", "seq": 1} for i in range(4)], settings=SETTINGS)
    table.ingest(
        [{"id": 1, "v": "b", "seq": 2}, {"id": 2, "seq": 3, "op": "d"}, {"id": 3, "v": "late", "seq": 0}]
    )

    assert held_by_others(table) == {0: "a", 1: "b", 3: "a"}


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
        (UsageError, lambda: table.resolve("id", "string")),
    ]
    for error, act in refused:
        with pytest.raises(error, match="key"):
            act()
    plain = lake.table(f"{table_name}_plain")
    plain.ingest([{"id": 1}])
    with pytest.raises(UsageError, match="has no key, and a batch does not change that"):
        plain.ingest([{"id": 1}], settings={"key": "id"})

    assert table.read().count() == 2


def test_a_row_that_is_updated_keeps_its_id(iceberg: Lake, table_name: str) -> None:
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
    assert held_by_others(table) == {0: "a", 1: "a", 2: "d", 3: "c", 8: "x", 9: "new"}
