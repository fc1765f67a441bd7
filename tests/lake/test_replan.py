"""`replan` over both formats: rows, the rest and the quarantine, planned as one batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from driftline.convert.replanner import ColumnSwap
from driftline.core.planning.own_columns import REST
from driftline.core.schema.types import Schema
from driftline.lake import Lake, Table
from driftline.operations.replan import CountedField, Replan


def planned(replan: Replan) -> dict[str, tuple[list[str], list[str]]]:
    """The columns of now and then, by field, with the number of values of each of now."""
    return {field["field"]: shown(field) for field in json.loads(json.dumps(replan.to_dict()))["fields"]}


def shown(field: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    now = [f"{column['path']} {column['type']} {column['values']}" for column in field["now"]]
    return now, [f"{column['path']} {column['type']}" for column in field["then"]]


def stays(held: CountedField) -> tuple[str, str]:
    return ".".join(held.field.path), held.field.why


def columns(table: Table) -> set[str]:
    """The columns, in words, without ids."""
    return {line.rpartition(" #")[0].strip("│├└─ ") for line in str(table.schema()).split("\n")[1:]}


def test_replan_shows_what_one_batch_of_rows_rest_and_quarantine_would_make(
    lake: Lake, table_name: str
) -> None:
    table = lake.table(table_name)
    batches = [
        [{"id": 1, "size": 1, "day": "2026-01-01", "by": {"id": 7}, "list": [1, 2]}],
        [{"id": 2, "size": 2.5, "day": "n/a", "by": {"id": "u8"}, "list": [{"x": None}, "a"]}],
        [{"id": 3, "size": 3, "day": "2026-01-03", "late": {"x": [1, "y"]}, "by": {"id": "u9"}}],
    ]
    for batch in batches[:2]:
        table.ingest(batch)
    table.ingest(batches[2], settings={"new_fields": "hold"})
    table.ingest([{"id": "x", "size": 4}], settings={"policies": {"id": "strict"}})
    assert table.quarantine().waiting == 1
    before = table.state()
    found = table.replan()
    assert planned(found) == {
        "size": (["size long 2", "size_double double 2"], ["size double"]),
        "day": (["day date 2", "day_string string 2"], ["day string"]),
        "by.id": (["by.id long 1", "by.id_string string 2"], ["by.id string", "by.id_long long"]),
        "list": (["list list<long> 1", "list_array_string list<string> 1"], ["list list<string>", "list_array_long list<long>"]),
        "late": ([], ["late struct<x_array_long: list<long>, x: list<string>>"]),
    }  # fmt: skip
    assert (found.rows, found.quarantined, found.fields[-1].waiting) == (3, 1, 1)
    assert "would refuse: id: string into long" in found.notes[0]
    assert table.state() == before
    assert [field.field.path for field in table.replan("by").fields] == [("by", "id")]
    assert "5 fields would have other columns, had 3 rows and 1 record in quarantine" in repr(found)


def test_replan_leaves_out_records_that_an_expectation_of_today_would_set_aside(
    lake: Lake, table_name: str
) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "n": 1}, {"id": 2, "n": -1, "m": "x"}], expect={"n": "n >= 0 else quarantine"})
    found = table.replan()
    assert (found.fields, found.quarantined) == ((), 1)
    lake.alter(f"ALTER TABLE {table_name} UNSET TBLPROPERTIES ('driftline.expect.n')")
    assert planned(table.replan()) == {"m": ([], ["m string"])}


def test_replan_of_one_batch_finds_nothing(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"a": 1, "b": ["x", 2]}, {"a": "z", "c": {"d": 2.5}}, {"a": "2026-01-01T00:00:00Z"}])
    found = table.replan()
    assert (found.fields, found.stay, found.rows) == ((), (), 3)
    assert "the same columns, had 3 rows come in one batch" in repr(found)


def test_replan_keeps_declared_types_and_narrows_only_if_asked(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    day = pa.array(["2026-01-01", "2026-01-02"])
    table.ingest(
        pa.table(
            {"n": pa.array([1, 2], pa.int32()), "raw": [b"x", b"y"], "day": day, "f": [0.5, float("nan")]}
        )
    )
    table.ingest([{"n": 1.5, "day": "2026-01-03"}])
    found = table.replan()
    assert planned(found) == {}
    assert [stays(field) for field in found.stay] == [("day", "the type would be narrower")]
    assert "day stays, not date: the type would be narrower" in repr(found)
    assert planned(table.replan(narrow=True)) == {"day": (["day string 3"], ["day date"])}


def test_replan_leaves_fields_of_the_key_and_of_the_layout(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    settings = {"key": "id", "partition_by": "size"}
    table.ingest([{"id": 1, "size": 1, "price": 1}], settings=settings)
    table.ingest([{"id": 2.5, "size": 1.5, "price": 1.5}, {"id": 3, "price": 2, "note": "x"}])
    lake.alter(f"ALTER TABLE {table_name} ALTER COLUMN note COMMENT 'ours'")
    table.ingest([{"id": 4, "note": 7}])
    price = (["price long 2", "price_double double 2"], ["price double"])
    assert planned(table.replan()) == {"price": price}
    assert planned(table.replan(apply=True)) == {"price": price}
    table.ingest([{"id": 1, "price": 9}, {"id": 4, "note": "z"}])
    assert sorted(row.price or 0 for row in table.read().collect()) == [0, 1.5, 2, 9]


def rows(table: Table, *ignored: str) -> list[str]:
    """The rows as JSON, without nulls."""
    records = (row.asDict(recursive=True) for row in table.read().drop(*ignored).collect())
    return sorted(json.dumps(without_nulls(record), sort_keys=True, default=str) for record in records)


def file_of(file: Path, records: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(file)


def seen(table: Table) -> dict[str, tuple[Any, Any]]:
    """The batches in which columns of plain values, outside lists, were first and last seen."""
    return {
        column["path"]: (column["first_seen"], column["last_seen"])
        for column in table.stats().to_dict()["columns"]
        if column["type"] in ("boolean", "long", "double", "date", "string")
        and not {"element", "_rest"} & {*column["path"].split(".")}
    }


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


DRIFTING = [
    [{"id": 1, "size": 1, "day": "2026-01-01", "by": {"id": 7, "tags": [{"n": 1}]}, "list": [1, 2]}],
    [{"id": 2, "size": 2.5, "day": "n/a", "by": {"id": "u8", "tags": [{"n": 2.5}, None, {"n": 3}]}}],
    [{"id": 3, "size": 3, "day": "2026-01-03", "list": [{"x": "y"}], "by": {"id": "u9"}}],
]


def test_replan_applied_makes_the_table_of_one_batch_and_undo_the_one_before(
    lake: Lake, table_name: str
) -> None:
    table, whole = lake.table(table_name), lake.table(f"{table_name}_whole")
    late: dict[str, Any] = {"id": 4, "late": {"x": [1, 2.5]}}
    whole.ingest([*(record for batch in DRIFTING for record in batch), late])
    for batch in DRIFTING:
        table.ingest(batch)
    table.ingest([late], settings={"new_fields": "hold"})
    before, columns_before, seen_before = rows(table), columns(table), seen(table)
    assert any('"_rest"' in row for row in before)
    applied = table.replan(apply=True)
    assert not applied.dry_run and len(applied.fields) == 6
    assert columns(table) - columns(whole) == {line for line in columns_before if "rest" in line}
    assert columns(whole) <= columns(table)
    assert rows(table, "_rest") == rows(whole)
    assert table.replan().fields == ()
    assert table.verify([*(record for batch in DRIFTING for record in batch), late], exactly=True).ok
    assert table.history().entries[-1].by == "replan"
    seen_after = seen(table)
    assert seen_after["id"] == seen_before["id"]
    assert (seen_after["size"], seen_after["day"]) == (seen_before["size"], seen_before["day"])
    assert seen_after["by.id"] == (seen_before["by.id"][0], seen_before["by.id_string"][1])
    table.undo()
    assert (rows(table), columns(table)) == (before, columns_before)
    assert seen(table) == seen_before


def test_replan_applied_to_some_fields_leaves_the_others_and_what_waits(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    for batch in DRIFTING:
        table.ingest(batch)
    table.ingest([{"id": 4, "late": {"x": 1}, "by": {"late": 2}}], settings={"new_fields": "hold"})
    assert [field.field.path for field in table.replan("size", "by.tags", apply=True).fields] == [
        ("size",), ("by", "tags", "n"),
    ]  # fmt: skip
    assert {"size double", "day date"} <= columns(table) and "size_double" not in str(table.schema())
    (rest_column,) = [f for f in table.state().schema.struct.fields if f.name == REST.name]
    assert rest_column.doc == REST.doc
    (waits,) = [json.loads(row)["_rest"] for row in rows(table) if "_rest" in row]
    assert waits == {"late": '{"x":1}', "by.late": "2"}
    assert [field.field.path for field in table.replan().fields] == [
        ("day",),
        ("by", "id"),
        ("by", "late"),
        ("list",),
        ("late",),
    ]


def test_replan_applied_replays_what_fits_the_new_columns(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "n": 1, "m": 1}])
    table.ingest([{"id": 2, "n": "x", "m": 2.5}], settings={"policies": {"n": "strict"}})
    assert table.quarantine().waiting == 1
    table.ingest([{"id": 3, "m": 1.5}], settings={"policies": {"n": "preserve"}})
    applied = table.replan(apply=True)
    assert (applied.replayed, table.quarantine().waiting) == (1, 0)
    assert rows(table) == [
        '{"id": 1, "m": 1.0, "n": "1", "n_long": 1}', '{"id": 2, "m": 2.5, "n": "x"}', '{"id": 3, "m": 1.5}',
    ]  # fmt: skip


def test_replan_applied_keeps_bytes_numbers_that_are_none_and_what_a_person_declared(
    lake: Lake, table_name: str
) -> None:
    table = lake.table(table_name)
    table.ingest(pa.table({"f": [0.5, float("nan")], "s": [{"raw": b"x", "n": 1}, {"raw": b"y", "n": 2}]}))
    table.ingest([{"f": "x", "s": {"n": 2.5}}])
    before = rows(table)
    applied = table.replan(apply=True)
    assert [field.field.path for field in applied.fields] == [("s", "n")]
    assert [stays(field) for field in applied.stay] == [("f", "a value would not read back as it is")]
    after = [json.loads(row) for row in rows(table)]
    assert sorted(str(row["s"].get("raw")) for row in after) == sorted(
        str(json.loads(row)["s"].get("raw")) for row in before
    )
    assert sorted(row["s"]["n"] for row in after) == [1.0, 2.0, 2.5]


def test_replan_applied_to_rows_of_patches_keeps_the_order_of_each_field(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, settings = lake.table(table_name), {"key": "id", "order_by": "at", "merge": "patch"}
    patches: list[list[dict[str, Any]]] = [
        [{"id": 1, "at": 1, "size": 1, "by": {"id": 7, "x": 1}}, {"id": 2, "at": 1, "size": 2, "note": 1}],
        [{"id": 1, "at": 5, "size": 2.5, "by": {"id": "u8"}}, {"id": 2, "at": 6, "note": None}],
        [{"id": 1, "at": 3, "by": {"y": "z", "id": 9}, "size": 9, "note": "n"}],
    ]
    later = [
        [
            {"id": 1, "at": 4, "size": 100, "by": {"id": 10, "x": 2, "y": 1}},
            {"id": 2, "at": 5, "note": "late"},
        ],
        [{"id": 1, "at": 2, "by": {"y": "old", "z": 1}}, {"id": 2, "at": 9, "size": "big", "by": {"id": 3}}],
    ]
    files = [file_of(tmp_path / f"{number}.jsonl", batch) for number, batch in enumerate([*patches, *later])]
    for file in files[:3]:
        table.ingest(file, settings=settings)
    assert {field.field.path for field in table.replan(apply=True).fields} >= {("size",), ("by", "id")}
    assert table.verify(files[:3], exactly=True).ok
    for file in files[3:]:
        table.ingest(file)
    assert table.verify(files, exactly=True).ok
    (first, second) = (json.loads(row) for row in rows(table))
    assert (first["size"], first["by"]["id"], first["by"]["x"], first["note"]) == (2.5, "u8", 2, "n")
    assert second["size_string"] == "big" and "note" not in second


def test_replan_applied_beside_a_writer_takes_in_its_rows_or_plans_again(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = lake.table(table_name), lake.table(table_name)
    for batch in DRIFTING:
        table.ingest(batch)
    late = [[{"id": 5, "size": 7}], [{"id": 6, "size": "much", "day": "n/a"}]]
    made = ColumnSwap.after

    def meanwhile(swap: ColumnSwap, between: Schema) -> Schema:
        """Another batch comes before the commit of each attempt, as long as there is one."""
        if late:
            other.ingest(late.pop(0))
        return made(swap, between)

    monkeypatch.setattr(ColumnSwap, "after", meanwhile)
    applied = table.replan(apply=True)
    assert not late and applied.rows in (4, 5)
    assert table.read().count() == 5 and table.replan().fields == ()
    assert {row.size for row in table.read().collect()} == {"1", "2.5", "3", "7", "much"}
