"""Data files that changes by key wear out: their rows move in the same commit, and are the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from driftline.errors import DataError
from driftline.lake import Lake, Table
from lake.ducklake_peer import run
from lake.formats import database
from lake.test_keyed import SETTINGS, put, tamper
from lake.test_row_deletes import held, held_by_others, moved
from lake.test_task_files import files_of

Rows = list[dict[str, Any]]


def rows(ids: range, seq: int, v: str) -> Rows:
    return [{"id": i, "seq": seq, "v": v} for i in ids]


def live_files(table: Table) -> int:
    """The number of data files that the table has now."""
    return sum(spec.files for spec in table.format.laid())


@pytest.mark.nightly
@pytest.mark.parametrize("layout", [{}, {"partition_by": "v", "sort_by": "seq"}], ids=["", "laid out"])
def test_a_file_is_written_anew_when_a_third_is_gone(
    lake: Lake, table_name: str, tmp_path: Path, layout: dict[str, str]
) -> None:
    table, files = lake.table(table_name), [tmp_path / f"{n}.jsonl" for n in range(4)]
    table.ingest(put(files[0], rows(range(9), 1, "a")), settings={**SETTINGS, **layout})
    table.ingest(put(files[1], rows(range(2), 2, "b")))
    assert moved(table) == []
    result = table.ingest(put(files[2], [*rows(range(2, 3), 2, "b"), {"id": 20, "seq": 1, "v": "c"}]))

    assert (moved(table), result.rows_written, result.to_dict()["updated"]) == ([6], 2, 1)
    expected = {**dict.fromkeys(range(3, 9), "a"), **dict.fromkeys(range(3), "b"), 20: "c"}
    assert held(table) == expected == held_by_others(table)
    assert table.stats().records == 10
    table.ingest(put(files[3], [{"id": i, "seq": 9, "op": "d"} for i in expected]))
    assert (moved(table), live_files(table)) == ([6, 0], 0)
    assert table.verify(files, exactly=True).ok
    undone = table.undo(yes=True)
    assert (undone.batch.added, undone.batch.removed) == (0, 10)
    assert held(table) == expected == held_by_others(table)
    undone = table.undo(yes=True) if database(lake) is None else None
    assert undone is None or (undone.batch.added, undone.batch.removed) == (2, 1)
    before = files_of(lake, table)
    if (ducklake := database(lake)) is not None:
        run(ducklake, "CALL ducklake_flush_inlined_data('lk')")  # reads the statistics of all tables
    lake.clean(0)
    assert files_of(lake, table) <= before
    table.ingest(put(files[3], rows(range(9), 10, "z")))
    assert {key: v for key, v in held(table).items() if key < 9} == dict.fromkeys(range(9), "z")


@pytest.mark.iceberg_only("a DuckLake tells rows apart by their files")
def test_rows_that_only_move_keep_their_ids_and_the_commit_that_changed_them(
    lake: Lake, table_name: str
) -> None:
    table = lake.table(table_name)

    def ids() -> dict[int, tuple[int, int]]:
        read = table.read().select("id", "_row_id", "_last_updated_sequence_number")
        return {row[0]: (row[1], row[2]) for row in read.collect()}

    table.ingest(rows(range(6), 1, "a"), settings=SETTINGS)
    table.ingest(rows(range(1), 2, "b"))
    before = ids()
    table.ingest(rows(range(1, 2), 2, "b"))
    after = ids()
    assert moved(table) == [4]
    assert {i: after[i] for i in after if i != 1} == {i: before[i] for i in before if i != 1}
    assert after[1][0] == before[1][0] and after[1][1] > before[1][1]
    table.ingest(rows(range(2, 4), 3, "c"))  # of rows that have moved
    last = ids()
    assert len(moved(table)) == 2
    assert {i: row_id for i, (row_id, _) in last.items()} == {i: row_id for i, (row_id, _) in before.items()}
    assert {i for i in last if last[i] == before[i]} == {0, 4, 5}


@pytest.mark.ducklake_only("deletes that the catalog keeps")
def test_deletes_that_duckdb_keeps_in_the_catalog_come_back_with_their_file(
    lake: Lake, table_name: str
) -> None:
    table, ducklake = lake.table(table_name), database(lake)
    table.ingest(rows(range(9), 1, "a"), settings=SETTINGS)
    tamper(table, "delete from {t} where id in (7, 8)")
    table.ingest(rows(range(3), 2, "b"))
    assert moved(table) == [4]
    table.undo(yes=True)
    assert held(table) == dict.fromkeys(range(7), "a") == held_by_others(table)
    table.ingest(rows(range(3), 2, "b"))
    before = table.format.load().snapshot - 1
    run(ducklake, f"CALL ducklake_expire_snapshots('lk', versions => [{before}])")
    with pytest.raises(DataError, match="was expired"):
        table.undo(yes=True)
    run(ducklake, "CALL ducklake_cleanup_old_files('lk', cleanup_all => true)")
    expected = {**dict.fromkeys(range(3), "b"), **dict.fromkeys(range(3, 7), "a")}
    assert held(table) == expected == held_by_others(table)


def test_files_of_others_and_rows_in_the_catalog(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest(rows(range(1), 1, "a"), settings=SETTINGS)
    more = ", ".join(f"({i}, 1, 'a', '+')" for i in range(1, 7))
    tamper(table, f"insert into {{t}} (id, seq, v, _order) values {more}")
    changed = rows(range(4), 2, "b")
    table.ingest(changed)
    expected = {**dict.fromkeys(range(4), "b"), **dict.fromkeys(range(4, 7), "a")}
    assert held(table) == expected == held_by_others(table)
    table.undo(yes=True)
    assert held(table) == dict.fromkeys(range(7), "a") == held_by_others(table)


@pytest.mark.nightly
def test_first_and_last_seen_stay_when_files_are_written_anew(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)

    def seen() -> dict[str, tuple[str | None, ...]]:
        numbers = {
            ".".join(c.path): c.numbers for c in table.stats().columns if c.path[0] not in ("_order", "l")
        }
        return {name: tuple(s and s.batch for s in (n.first, n.last)) for name, n in numbers.items()}

    def ingest(ids: range, field: str) -> str:
        file = put(
            tmp_path / f"{field}.jsonl",
            [{"id": i, "seq": ord(field), "o": {field: 1}, "l": [1]} for i in ids],
        )
        return str(table.ingest(file, settings=SETTINGS if field == "a" else {}).batch)

    a, b = ingest(range(9), "a"), ingest(range(4), "b")
    assert len(moved(table)) == 1
    before = {**dict.fromkeys(("id", "seq", "o"), (a, b)), "o.a": (a, a), "o.b": (b, b)}
    assert seen() == before
    c = ingest(range(3), "c")
    d = ingest(range(100, 101), "d")
    assert len(moved(table)) == 2
    lake.clean(0)
    after = {**before, **dict.fromkeys(("id", "seq", "o"), (a, d)), "o.c": (c, c), "o.d": (d, d)}
    assert seen() == after
    table.undo(yes=True)
    del after["o.d"]
    assert seen() == {**after, **dict.fromkeys(("id", "seq", "o"), (a, c))}
    table.undo(yes=True)
    assert seen() == before
