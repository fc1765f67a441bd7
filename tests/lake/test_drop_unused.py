"""`compact(drop_unused=True)` drops siblings without a value, in one commit, and never a value with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from driftline.errors import DataError
from driftline.formats.ducklake.alteration import DuckLakeDraft
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.formats.iceberg.alteration import IcebergDraft
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.keys import remembered as memory
from driftline.lake import Lake, Table
from driftline.operations import value_counts
from lake.formats import database
from lake.test_keyed import SETTINGS, put, remembered

KEYED = {"key": "id"}
ROWS, OLD, OBJECT = [(1, 1), (2, 2)], [(1, 1, None), (2, 2, None)], {"x": 7}


def bring(table: Table, file: Path, *records: dict[str, Any], **settings: str) -> None:
    table.ingest(put(file, list(records)), again=True, settings=settings)


def drifted(table: Table, file: Path) -> None:
    """Have a sibling of dates and one of objects, whose only values were updated away, and one of texts."""
    bring(table, file, {"id": 1, "price": True, "size": 1}, **KEYED)
    bring(table, file, {"id": 2, "price": "2026-01-01", "size": {"x": 1}})
    bring(table, file, {"id": 2, "price": False, "size": 2})


def meeting(monkeypatch: pytest.MonkeyPatch, kinds: tuple[Any, ...], between: Callable[[], object]) -> None:
    """Call ``between`` before the next commit of these kinds, once."""
    calls = [between]
    for kind in kinds:

        def commit(self: Any, *, commit: Callable[[Any], None] = kind.commit) -> None:
            if calls:
                calls.pop()()
            commit(self)

        monkeypatch.setattr(kind, "commit", commit)


def sizes(table: Table) -> list[tuple[Any, ...]]:
    """The rows by id: the size, and the one that is an object."""
    columns = [name for name in ("id", "size", "size_record") if name in table.read().columns]
    return sorted(
        tuple(row.asDict() if isinstance(row, Row) else row for row in rows)
        for rows in table.read().select(*columns).collect()
    )


def test_a_sibling_without_a_live_value_goes_in_one_commit_that_undo_takes_back(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, file = lake.table(table_name), tmp_path / "in.jsonl"
    drifted(table, file)
    table.view()
    before, batches, rows = table.state(), table.stats().batches, sizes(table)
    dry = table.compact(drop_unused=True, dry_run=True)
    assert table.state() == before
    compacted = table.compact(drop_unused=True)
    told = compacted.to_dict()
    assert told["dropped"] == dry.to_dict()["dropped"]
    assert {column["path"]: column["then"] for column in told["dropped"]} == {
        "price_date": "the next date of price goes to the columns that remain",
        "size_record": "the next struct<x: long> of size makes size_record struct<x: long>, empty in the rows before",
    }
    assert told["notes"] == [f"view {table_name}_settled was made again"]
    assert sizes(table) == ROWS
    assert [entry.by for entry in table.history().entries][-1] == "compact"
    assert table.stats().batches == batches
    again = table.compact(drop_unused=True)
    assert again.unused.dropped == () and "drift have values: price_string" in repr(again)
    assert "column" not in repr(table.compact())
    assert "size_record" in table.undo().undone
    assert (table.state().schema.struct, sizes(table)) == (before.schema.struct, rows)
    # What a person brought back stays.
    assert table.compact(drop_unused=True).unused.dropped == ()


def test_a_later_object_makes_the_dropped_sibling_anew_and_undo_of_the_drop_hides_no_value(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, file = lake.table(table_name), tmp_path / "in.jsonl"
    drifted(table, file)
    version = table.state().schema.id
    table.compact(drop_unused=True)
    bring(table, file, {"id": 3, "size": OBJECT})
    assert sizes(table) == [*OLD, (3, None, OBJECT)]
    seen = {c["path"]: (c["first_seen"], c["last_seen"]) for c in table.stats().to_dict()["columns"]}
    last = table.stats().recent[-1].id
    assert [moment and moment["batch"] for moment in seen["size_record"]] == [last, last]
    with pytest.raises(DataError, match="would hide values: 1 of size_record"):
        table.undo(to=version)
    assert table.undo(yes=True).batch is not None  # that of the object, with its column
    assert "size_record" in table.undo().undone
    assert sizes(table) == OLD


def test_a_value_that_comes_between_the_look_and_the_commit_keeps_its_column(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other, file = lake.table(table_name), lake.table(table_name), tmp_path / "in.jsonl"
    drifted(table, file)
    meeting(monkeypatch, (IcebergDraft, DuckLakeDraft), lambda: bring(other, file, {"id": 3, "size": OBJECT}))
    compacted = table.compact(drop_unused=True)
    assert [column.path for column in compacted.unused.dropped] == [("price_date",)]
    assert sizes(table) == [*OLD, (3, None, OBJECT)]
    again = table.compact(drop_unused=True)
    assert again.to_dict()["in_use"] == ["price_string", "size_record"]
    assert "no column to drop: those that came with drift have values: price_string, size_record" in repr(
        again
    )


def test_a_batch_that_was_planned_before_the_drop_is_planned_again_and_keeps_its_values(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other, file = lake.table(table_name), lake.table(table_name), tmp_path / "in.jsonl"
    drifted(table, file)
    old = table.state().schema.find(("size_record",))
    dropped: list[Any] = []
    meeting(
        monkeypatch,
        (IcebergTransaction, DuckLakeTransaction),
        lambda: dropped.extend(other.compact(drop_unused=True).unused.dropped),
    )
    bring(table, file, {"id": 3, "size": OBJECT})
    assert [column.path for column in dropped] == [("price_date",), ("size_record",)]
    assert sizes(table) == [*OLD, (3, None, OBJECT)]
    new = table.state().schema.find(("size_record",))
    assert old is not None and new is not None and new.id != old.id


def test_a_field_of_a_closed_struct_goes_and_its_later_values_are_in_the_map(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, file = lake.table(table_name), tmp_path / "in.jsonl"
    days = {f"2026-01-0{day}": day for day in range(2, 8)}
    bring(table, file, {"id": 1, "m": {"total": 9}}, {"id": 3, "m": {"2026-01-01": 1}}, **KEYED)
    bring(table, file, {"id": 2, "m": days})
    bring(table, file, {"id": 1, "m": days})
    compacted = table.compact(drop_unused=True)
    assert [column.path for column in compacted.unused.dropped] == [("m", "total")]
    assert compacted.unused.dropped[0].why == "its struct is closed: a map has the keys of m"
    latest = [{"id": 1, "m": {"total": 5}}, {"id": 2, "m": days}, {"id": 3, "m": {"2026-01-01": 1}}]
    bring(table, file, latest[0])
    rows = {row.id: row.asDict(recursive=True) for row in table.read().collect()}
    assert (rows[1]["m_map_long"], rows[3]["m"]) == ({"total": 5}, {"2026-01-01": 1})
    assert table.verify(put(file, latest)).ok


def test_columns_without_a_value_that_stay_are_told_with_the_reason(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, file = lake.table(table_name), tmp_path / "in.jsonl"
    drifted(table, file)
    lake.alter(f"alter table {table_name} add column size_string string comment 'upsolver_evolved_from:size'")
    if database(lake) is None:
        lake.sql(f"alter table lake.{table_name} create branch kept")
    kept = table.compact(drop_unused=True).to_dict()["kept"]
    assert kept.pop("size_string") == "a person made or changed it"
    branched = dict.fromkeys(["price_date"], "branch kept was written with it")
    assert kept == (branched if database(lake) is None else {})


def test_remembered_deletes_past_their_time_go_in_the_same_commit_and_younger_ones_still_count(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, file, day = lake.table(table_name), tmp_path / "in.jsonl", 86_400
    settings = {**SETTINGS, "delete_memory": "3d"}
    bring(table, file, *({"id": i, "seq": 1, "size": i} for i in range(4)), **settings)
    bring(table, file, {"id": 1, "seq": 2, "size": {"x": 1}}, {"id": 0, "seq": 5, "op": "d"})
    bring(table, file, {"id": 1, "seq": 3, "size": 5})
    entries = len(table.history().entries)
    with monkeypatch.context() as later:
        later.setattr(memory.time, "time", lambda now=memory.time.time: now() + 2 * day)
        bring(table, file, {"id": 2, "seq": 5, "op": "d"})
        assert table.compact(drop_unused=True, dry_run=True).unused.forgotten == 0
        later.setattr(memory.time, "time", lambda now=memory.time.time: now() + 2 * day)
        assert table.compact(drop_unused=True, dry_run=True).unused.forgotten == 1
        compacted = table.compact(drop_unused=True)
        assert (compacted.unused.forgotten, len(remembered(table))) == (1, 1)
        assert [column.path for column in compacted.unused.dropped] == [("size_record",)]
        assert len(table.history().entries) == entries + 1
        assert table.compact(drop_unused=True).unused.forgotten == 0
    assert table.ingest([{"id": 2, "seq": 4, "size": 2}]).to_dict()["late"] == 1
    assert "size_record" in table.undo().undone


def test_deletes_past_their_time_go_where_no_column_does_and_history_tells_of_no_change(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, file = lake.table(table_name), tmp_path / "in.jsonl"
    bring(table, file, {"id": 1, "seq": 1}, {"id": 2, "seq": 1}, **SETTINGS, delete_memory="1d")
    bring(table, file, {"id": 1, "seq": 5, "op": "d"})
    before = table.history().to_dict()
    with monkeypatch.context() as later:
        later.setattr(memory.time, "time", lambda now=memory.time.time: now() + 2 * 86_400)
        assert table.compact(drop_unused=True).unused.forgotten == 1
    assert (table.history().to_dict(), remembered(table)) == (before, [])
    assert table.undo(yes=True).batch is not None
    assert table.read().count() == 2


def test_rows_that_are_appended_between_the_look_and_the_commit_are_counted_alone_and_keep_their_columns(
    lake: Lake, table_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other, file = lake.table(table_name), lake.table(table_name), tmp_path / "in.jsonl"
    bring(table, file, {"id": "a", "price": True, "size": 1})
    drift = {"price": "2026-01-01", "size": OBJECT}
    bring(table, file, {"id": "b", **drift})
    table.format.delete("id", "b")
    read: list[int] = []
    count = value_counts.count_values

    def noted(rows: Any, schema: Any, paths: Any) -> Any:
        values = count(rows, schema, paths)
        read.append(sum(each.count for each in values))
        return values

    monkeypatch.setattr(value_counts, "count_values", noted)
    meeting(monkeypatch, (IcebergDraft, DuckLakeDraft), lambda: bring(other, file, {"id": "c", **drift}))
    compacted = table.compact(drop_unused=True)
    assert compacted.unused.dropped == ()
    assert {row.id: row.price_date is not None for row in table.read().collect()} == {"a": False, "c": True}
    assert read[0] == 0 and sum(read) > 0  # no value was there at first
