"""A table split by a field: each row is in the table of its value, with all of its values, and once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from driftline.core.settings.properties import from_properties
from driftline.errors import DataError, UsageError
from driftline.lake import Lake, Table
from driftline.operations import split as splitting

RECORDS = [
    {"event": "push", "size": 1, "by": {"name": "a", "tags": [{"k": "x", "n": 1}, {"n": None}]}},
    {"event": "Push", "size": "2 files", "by": {"name": "b", "tags": [{"k": "y"}]}, "late": {"x": [1]}},
    {"event": "ping", "zen": "x", "by": {"id": 7, "tags": [{"n": 2}]}},
    {"event": 7, "list": [[1], []], "size": 5},
    {"event": "7", "list": [[2], None]},
    {"event": 7.0, "amount": 12345678901234567890},
    {"event": {"a": 1}},
    {"event": "", "size": 3},
]


def whole(
    table: Table, folder: Path, records: Sequence[Mapping[str, object]] = RECORDS, **settings: Any
) -> Table:
    """The table with all of the records in one batch."""
    file = folder / "whole.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    table.ingest(file, **settings)
    return table


def without_nulls(value: object) -> object:
    match value:
        case dict():
            return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
        case list():
            return [without_nulls(inner) for inner in value]
        case _:
            return value


def rows(*tables: Table) -> list[str]:
    """The rows of some tables, which may have other columns."""
    frames = [table.read() for table in tables]
    records = [row.asDict(recursive=True) for frame in frames for row in frame.collect()]
    return sorted(json.dumps(without_nulls(record), sort_keys=True, default=str) for record in records)


def columns(table: Table) -> list[str]:
    """The columns, in words, without ids."""
    return [line.rpartition(" #")[0].strip("│├└─ ") for line in str(table.schema()).split("\n")[1:]]


def test_each_row_is_in_the_table_of_its_value_with_all_its_values(
    lake: Lake, space: str, tmp_path: Path
) -> None:
    table = whole(lake.table(f"{space}.all"), tmp_path, metadata="line", max_columns=12)
    before, tables = rows(table), lake.fan_out(f"{space}.{{event}}")
    assert any('"_rest"' in row for row in before)
    planned = tables.split(table.name, dry_run=True)
    assert lake.format.tables().count(f"{space}.ping") == 0
    result = tables.split(table.name)
    assert [(made.table.rpartition(".")[2], made.rows) for made in result.tables] == [
        ("7", 3), ("push", 2), ("ping", 1), ("_other", 2),
    ]  # fmt: skip
    assert [made.columns for made in planned.tables] == [made.columns for made in result.tables]
    assert [made.values for made in result.tables] == [(("7",),), (("Push",), ("push",)), (("ping",),), ()]
    if lake.format.commits_together:
        assert len({made.snapshot for made in result.tables}) == 1
    seven, push, ping, other = (lake.table(made.table) for made in result.tables)
    assert rows(seven, push, ping, other) == rows(table) == before
    assert [len(rows(of_split)) for of_split in (seven, push, ping, other)] == [3, 2, 1, 2]
    of_table = dict.fromkeys(columns(table))
    assert {line for line in columns(push) if "←" in line} <= of_table.keys()
    assert "k string" in columns(push) and "k string" not in columns(ping)
    assert "id long" in columns(ping) and "id long" not in columns(push)
    assert from_properties(push.state().properties).max_columns == 12
    assert [entry.by for entry in push.history().entries] == ["split"]
    again = tables.split(table.name)
    assert again.tables == () and again.passed_over == tuple(made.table for made in result.tables)
    assert f"passed over, as they have their rows: {seven.name}" in repr(again)
    further = tables.ingest([{"event": "push", "size": "4"}, {"event": "7", "list": [3]}], again=True)
    assert [(of.table, of.rows_written) for of in further.results] == [(push.name, 1), (seven.name, 1)]


def test_a_split_that_died_between_two_commits_is_completed_once(
    lake: Lake, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, tables = whole(lake.table(f"{space}.all"), tmp_path), lake.fan_out(f"{space}.{{event}}")
    commit = splitting._SplitRun.committed

    def dies(run: splitting._SplitRun, written: Any) -> Any:
        if f"{space}.push" in [ready.table.name for ready in written]:
            raise DataError("no permission")
        return commit(run, written)

    monkeypatch.setattr(splitting._SplitRun, "committed", dies)
    with pytest.raises(DataError, match="no permission"):
        tables.split(table.name)
    made = {name for name in lake.format.tables() if name.startswith(f"{space}.")} - {table.name}
    # Those of a DuckLake commit at once.
    assert (f"{space}.7" in made) != lake.format.commits_together and f"{space}.push" not in made
    monkeypatch.undo()
    result = tables.split(table.name)
    assert set(result.passed_over) == made
    assert f"{space}.push" in [of.table for of in result.tables]
    assert rows(*(lake.table(f"{space}.{name}") for name in ("7", "push", "ping", "_other"))) == rows(table)


def test_no_table_is_made_whose_values_are_not_those_of_its_rows(
    lake: Lake, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, cut_columns = whole(lake.table(f"{space}.all"), tmp_path), splitting.cut_columns

    def loses(*structs: Any) -> list[str]:
        return [
            "named_struct('id', null, 'tags', by.tags) as by"
            if sql.endswith("as `by`") and "id" in sql
            else sql
            for sql in cut_columns(*structs)
        ]

    monkeypatch.setattr(splitting, "cut_columns", loses)
    with pytest.raises(
        DataError, match=r"ping: its values are not those of its rows: by.id: 1 before, 0 written"
    ):
        lake.fan_out(f"{space}.{{event}}").split(table.name)
    assert [name for name in lake.format.tables() if name.startswith(f"{space}.")] == [table.name]


def test_typed_columns_come_as_they_are(lake: Lake, space: str) -> None:
    table = lake.table(f"{space}.all")
    kind = pa.struct({"on": pa.date32(), "n": pa.float32()})
    table.ingest(
        pa.table({
            "kind": pa.array([{"on": date(2026, 3, 2), "n": 1.5}, {"on": date(2026, 3, 2)}, {"n": 0.1}, None], kind),
            "amount": pa.array([Decimal("1.50"), None, Decimal("-0.01"), None], pa.decimal128(20, 2)),
            "at": pa.array([None, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), None, None], pa.timestamp("us", "UTC")),
            "marks": pa.array([[("a", {"x": 1})], [], None, [("b", {"y": b"\xff"})]],
                pa.map_(pa.string(), pa.struct({"x": pa.int64(), "y": pa.binary()}))),
        })
    )  # fmt: skip
    result = lake.fan_out(f"{space}.d{{kind.on}}").split(table.name)
    day, other = (made.table for made in result.tables)
    assert (day.partition("_03_02_")[0], other) == (f"{space}.d2026", f"{space}._other")
    assert [made.rows for made in result.tables] == [2, 2]
    assert rows(lake.table(day), lake.table(other)) == rows(table)
    assert columns(lake.table(day)) == [
        "kind struct", "on date", "n float", "amount decimal(20, 2)", "at timestamptz", "marks map<string, struct>",
        "x long",
    ]  # fmt: skip
    by_number = lake.fan_out(f"{space}_numbers.n{{kind.n}}").split(table.name, dry_run=True)
    assert [made.values for made in by_number.tables[:2]] == [(("0.10000000149011612",),), (("1.5",),)]


def test_what_is_there_already_is_not_added_to(lake: Lake, space: str, tmp_path: Path) -> None:
    table, tables = whole(lake.table(f"{space}.all"), tmp_path), lake.fan_out(f"{space}.{{event}}")
    with pytest.raises(UsageError, match=r"would make 3 tables of .*all, and at most 2 are allowed"):
        lake.fan_out(f"{space}.{{event}}", max_tables=2).split(table.name)
    with pytest.raises(UsageError, match="no column of values at evnt\ndid you mean event"):
        lake.fan_out(f"{space}.{{evnt}}").split(table.name)
    with pytest.raises(UsageError, match=r"rows of a table have no _file.stem"):
        lake.fan_out(f"{space}.{{_file.stem}}").split(table.name)
    lake.table(f"{space}.none").ingest([{"event": ""}])
    with pytest.raises(DataError, match="no row has a value that names a table"):
        tables.split(f"{space}.none")
    lake.table(f"{space}.ping").ingest([{"event": "ping"}])
    with pytest.raises(UsageError, match=r"\.ping is there already"):
        tables.split(table.name)
    assert f"{space}.push" not in lake.format.tables()
    lake.table(f"{space}.ping").drop()
    tables.split(table.name)
    table.ingest([{"event": "ping"}])
    with pytest.raises(UsageError, match=r"is there already, and its rows are not those of this split"):
        tables.split(table.name)


def test_rows_of_other_without_a_value_stay_there(lake: Lake, space: str, tmp_path: Path) -> None:
    few = lake.fan_out(f"{space}.{{event}}", max_tables=1)
    few.ingest([{"event": "a"}, {"event": "b", "n": 1}, {"event": "c", "n": "x"}, {"n": 2}])
    other = lake.table(f"{space}._other")
    with pytest.raises(UsageError, match="at most 1 are allowed"):
        few.split(other.name)
    result = lake.fan_out(f"{space}.{{event}}").split(other.name)
    assert [(made.table, made.rows) for made in result.tables] == [(f"{space}.b", 1), (f"{space}.c", 1)]
    assert result.stay == 1 and f"1 row without a value stays in {other.name}" in repr(result)
    assert len(rows(other)) == 3
    assert columns(lake.table(f"{space}.c")) == ["event string", "n string"]
    few.ingest([{"event": "b"}], again=True)
    assert len(rows(lake.table(f"{space}.b"))) == 2
