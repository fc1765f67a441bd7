"""`replan` over both formats: rows, the rest and the quarantine, planned as one batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

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
    table.ingest([{"id": 2.5, "size": 1.5, "price": 1.5}])
    assert planned(table.replan()) == {"price": (["price long 1", "price_double double 1"], ["price double"])}
