"""Objects whose keys are data, in tables of both formats: what is made of them, and what everything else then sees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drifting_data import telemetry
from driftline.core.schema.types import Map, leaves, peel
from driftline.lake import Lake, Table
from lake.ducklake_peer import run
from lake.formats import by_pyiceberg, database
from lake.proof import proven


def put(table: Table, file: Path, *records: Any, **settings: str) -> tuple[str, ...]:
    """Takes records as one batch; the hints of its report."""
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return table.ingest(file, settings=settings).hints


def types(table: Table) -> dict[str, str]:
    return {column.name: str(column.type) for column in table.state().schema.struct.fields}


def maps_by_another_reader(table: Table) -> dict[int, dict[str, Any] | None]:
    """The maps ``m`` by ``id``, as pyiceberg reads them, or DuckDB."""
    if (ducklake := database(table.lake)) is not None:
        return dict(run(ducklake, f"SELECT id, m FROM lk.{table.name}"))
    rows = by_pyiceberg(table).to_pylist(maps_as_pydicts="strict")
    return {row["id"]: row["m"] for row in rows}


def test_random_keys_leave_one_column(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    for batch in range(2):
        file = tmp_path / f"{batch}.jsonl"
        ids = [f"{batch}b9e3a52-2d1c-4a5e-9a67-{n:012x}" for n in range(50)]
        hints = put(table, file, *({"id": {key: {"n": n}}} for n, key in enumerate(ids)))
        assert len(hints) == (1 if batch == 0 else 0)
        proven(table, file)

    assert types(table) == {"id": "map<string, struct<n: long>>"}
    assert table.state().properties["driftline.maps"] == "auto"
    assert len(table.history().entries) == 1


def test_a_table_made_before_stays_on_hints_until_it_is_told(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table, file = lake.table(table_name), tmp_path / "in.jsonl"
    put(table, file, {"id": 1}, maps="")
    days = [f"2026-01-0{n}" for n in range(1, 6)]

    (hint,) = put(table, tmp_path / "days.jsonl", {"by_day": dict.fromkeys(days, 1)})
    assert hint.startswith(
        'hints.by_day = "map<string, long>"  # makes by_day a map, its keys look like data: '
    )
    assert types(table)["by_day"].startswith("struct")

    put(table, file, {"by_day": {"2026-01-06": 2}}, maps="auto")
    assert types(table)["by_day_map_long"] == "map<string, long>"


def test_a_struct_that_turns_out_to_be_a_map(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, first, second = lake.table(table_name), tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    put(table, first, {"id": 1, "m": {"7": 1}})
    put(table, second, {"id": 2, "m": {"7": 2, "8": 3}}, {"id": 3, "m": {"9": "x"}})

    assert types(table)["m"] == "struct<7: long>"
    rows = [row.asDict(recursive=True) for row in table.read().orderBy("id").collect()]
    assert [row["m"] for row in rows] == [{"7": 1}, {"7": 2}, {"7": None}]
    assert [row["m_map_string"] for row in rows] == [None, {"7": "2", "8": "3"}, {"9": "x"}]
    verdict = table.verify([str(first), str(second)], "json", exactly=True)
    assert verdict.ok, verdict.to_dict()


def test_a_view_shows_one_map(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, file = lake.table(table_name), tmp_path / "in.jsonl"
    put(table, file, {"id": 1, "m": {"7": {"a": 1}}})
    put(table, file, {"id": 2, "m": {"8": {"a": 2, "b": "x"}, "9": {"b": "y"}}})
    view = table.view()

    source = f"lake.{table_name}_settled" if database(lake) is None else f"({view.select})"
    rows = lake.sql(f"select m from {source} order by id").collect()
    assert [row.asDict(recursive=True)["m"] for row in rows] == [
        {"7": {"a": 1, "b": None}},
        {"8": {"a": 2, "b": "x"}, "9": {"a": None, "b": "y"}},
    ]


def test_a_struct_is_folded_into_the_map_beside_it(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, first, second = lake.table(table_name), tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    put(table, first, {"id": 1, "m": {"7": 1}})
    put(table, second, {"id": 2, "m": {"7": 2, "8": 3}}, {"id": 3, "m": {"9": "x"}}, {"id": 4})

    looked = table.resolve("m", "map<string, string>", dry_run=True)
    assert (looked.values, looked.rest) == (3, 0)
    table.resolve("m", "map<string, string>")

    assert types(table) == {"id": "long", "m": "map<string, string>"}
    rows = [row.asDict() for row in table.read().orderBy("id").collect()]
    assert [row["m"] for row in rows] == [{"7": "1"}, {"7": "2", "8": "3"}, {"9": "x"}, None]
    assert table.verify([str(first), str(second)], "json", exactly=True).ok

    table.undo()
    assert set(types(table)) == {"id", "m", "m_map_long", "m_map_string"}


def test_a_struct_is_folded_into_a_map_of_records(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """Which has all fields that either has, those that drifted in their columns as they are."""
    table, first, second = lake.table(table_name), tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    put(table, first, {"id": 1, "m": {"7": {"a": 1, "old": True}}})
    put(table, second, {"id": 2, "m": {"7": {"a": 2}, "8": {"a": "x", "b": [1]}}}, {"id": 3})
    before = types(table)

    looked = table.resolve("m", "map<string, record>", dry_run=True)
    assert (looked.values, looked.rest) == (2, 0)
    table.resolve("m", "map<string, record>")

    assert types(table) == {
        "id": "long",
        "m": "map<string, struct<a_long: long, a: string, old: boolean, b: list<long>>>",
    }
    rows = {row.id: row.asDict(recursive=True)["m"] for row in table.read().collect()}
    nothing = dict.fromkeys(("a_long", "a", "b", "old"))
    assert rows == {
        1: {"7": {**nothing, "a_long": 1, "old": True}},
        2: {"7": {**nothing, "a_long": 2, "a": "2"}, "8": {**nothing, "a": "x", "b": [1]}},
        3: None,
    }
    assert table.verify([str(first), str(second)], "json", exactly=True).ok
    assert maps_by_another_reader(table)[1] == rows[1]

    table.undo()
    assert types(table) == before
    assert table.verify([str(first), str(second)], "json", exactly=True).ok

    table.resolve("m", "map<string, record>")
    third = tmp_path / "3.jsonl"
    put(table, third, {"id": 4, "m": {"name": {"a": 3, "new": 1}}})
    assert set(types(table)) == {"id", "m"}
    assert table.verify([str(first), str(second), str(third)], "json", exactly=True).ok


def test_words_and_data_together(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, first, second = lake.table(table_name), tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    days = [f"2026-01-{day:02}" for day in range(1, 21)]
    (hint,) = put(table, first, {"id": 1, "m": {"name": "x", **dict.fromkeys(days, 1)}})
    told = (
        "keeps a struct: it is a struct of words and a map of its other keys, 20 of its keys look like data"
    )
    assert hint.startswith(f'maps.m = "off"  # {told}: ')
    put(table, second, {"id": 2, "m": {"name": "y", "2026-02-01": 2}}, {"id": 3, "m": {"new": True}})

    assert types(table) == {
        "id": "long",
        "m": "struct<name: string, new: boolean>",
        "m_map_long": "map<string, long>",
    }
    assert table.verify([str(first), str(second)], "json", exactly=True).ok
    shown = table.view(make=False)
    assert "m_map_long" in shown.select
    table.resolve("m", "map<string, string>")
    assert types(table) == {"id": "long", "m": "map<string, string>"}
    rows = {row.id: row.m for row in table.read().collect()}
    assert rows[2] == {"name": "y", "2026-02-01": "2"}
    assert rows[3] == {"new": "true"}


def test_what_does_not_convert_stays_in_the_struct(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, file = lake.table(table_name), tmp_path / "in.jsonl"
    put(table, file, {"id": 1, "m": {"7": "x", "name": 1}})

    resolved = table.resolve("m", "map<string, long>")
    assert (resolved.values, resolved.rest) == (1, 1)
    row = table.read().first()
    assert row is not None
    assert row.asDict(recursive=True) == {
        "id": 1,
        "m": {"name": 1},
        "m_record": {"7": "x", "name": 1},
    }


@pytest.mark.hive_refuses("structs inside others have fields that it does not know the names of")
def test_telemetry_goes_in_whole(lake: Lake, table_name: str, tmp_path: Path) -> None:
    telemetry_in(lake.table(table_name), tmp_path, batches=1)


@pytest.mark.ducklake_only("what batches do to columns is planned without a format")
def test_telemetry_goes_in_whole_in_four_batches(lake: Lake, table_name: str, tmp_path: Path) -> None:
    telemetry_in(lake.table(table_name), tmp_path, batches=4)


def telemetry_in(table: Table, tmp_path: Path, batches: int) -> None:
    pings = telemetry(tmp_path / "telemetry.jsonl")
    lines = pings.read_text().splitlines(keepends=True)
    size = -(-len(lines) // batches)
    for start in range(0, len(lines), size):
        part = tmp_path / f"{start}.jsonl"
        part.write_text("".join(lines[start : start + size]))
        assert table.ingest(part).rows_quarantined == 0

    struct = table.state().schema.struct
    assert leaves(struct) < 2_500
    assert sum(isinstance(peel(f.type)[1], Map) for _, f in table.state().schema.walk()) > 50
    proven(table, pings)
