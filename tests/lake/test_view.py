"""Views: each drifted field as one column, whatever its names are; the table is not touched."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from driftline.errors import DataError, UsageError
from driftline.lake import Lake, Table
from driftline.operations.view import View
from driftline.runtime.spark_conf import configured
from lake.ducklake_peer import peer, run
from lake.formats import database

IN_SPARK = "Spark reads no view of a DuckLake"


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


def put(table: Table, folder: Path, *texts: str) -> None:
    file = folder / "in.jsonl"
    file.write_text("\n".join(texts))
    table.ingest(file)


def shown(table: Table, view: View) -> list[dict[str, Any]]:
    """The rows of the view; of a DuckLake's as DuckDB reads it, which Spark makes of the query, too."""
    catalog = database(table.lake)
    source = f"lake.{view.name}" if view.in_catalog and catalog is None else f"({view.select})"
    frame = table.lake.sql(f"select * from {source} order by id")
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    if catalog is not None and view.in_catalog:
        names = ".".join(f'"{part}"' for part in view.name.split("."))
        with peer(catalog) as connection:
            by_duckdb = connection.execute(f"SELECT * FROM lk.{names} ORDER BY id").to_arrow_table()
        assert [unspelled(row) for row in by_duckdb.to_pylist()] == [unspelled(row) for row in rows]
    return rows


def unspelled(value: Any) -> Any:
    """A value without what the two engines spell differently: maps, and nulls and blanks in JSON."""
    match value:
        case dict():
            return {key: unspelled(item) for key, item in value.items()}
        case [(str(), _), *_]:
            return unspelled(dict(value))
        case list():
            return [unspelled(item) for item in value]
        case str() if value[:1] in ("{", "["):
            return without_nulls(json.loads(value))
        case datetime():
            return value.replace(tzinfo=None)
    return value


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value.replace(".000000Z", "Z") if isinstance(value, str) else value


def test_each_field_is_one_column(table: Table, tmp_path: Path) -> None:
    put(
        table,
        tmp_path,
        '{"id": 1, "n": 4, "s": {"x": 1}, "l": [{"p": 1}], "t": [1], "o": {"a": 1}, "flag": true}',
    )
    put(
        table,
        tmp_path,
        '{"id": 2, "n": 2.5, "s": {"x": "q"}, "l": [{"p": "z"}, {"p": 3}], "t": "b", "o": "none", "flag": "2026-01-02"}',
        '{"id": 3, "n": 9007199254740993, "s": {"x": null}, "l": [], "t": [[2]], "o": {"a": "c"}}',
    )
    version = table.format.load().version
    view = table.view()
    assert view.in_catalog
    assert view.new is None
    if database(table.lake) is None:  # of a DuckLake the view is a snapshot, as all of its tables share them
        assert table.format.load().version == version
    assert shown(table, view) == [
        {"id": 1, "n": 4.0, "s": {"x": "1"}, "l": [{"p": "1"}], "t": [["1"]], "o": '{"a":"1"}', "flag": "true"},
        {"id": 2, "n": 2.5, "s": {"x": "q"}, "l": [{"p": "z"}, {"p": "3"}], "t": [["b"]], "o": "none", "flag": "2026-01-02"},
        {"id": 3, "n": 9007199254740992.0, "s": {"x": None}, "l": [], "t": [["2"]], "o": '{"a":"c"}', "flag": None},
    ]  # fmt: skip
    fields = {f["field"]: f["type"] for f in view.to_dict()["fields"]}
    assert fields == {
        "n": "double", "s.x": "string", "l.p": "string", "t": "list<list<string>>", "o": "string", "flag": "string",
    }  # fmt: skip
    assert view.to_dict()["not_folded"] == ["o.a"], "o is text in the view"
    assert len(view.drifted) == table.stats().drifted_fields == 7
    assert "6 of 7 drifted fields as one column each" in " ".join(repr(view).split())
    assert "inside a text, or beside a map: o.a" in repr(view)


def test_fields_of_maps_and_of_words_beside_them_count_as_statistics_count_them(
    table: Table, tmp_path: Path
) -> None:
    put(table, tmp_path, '{"id": 1, "m": {"a": {"x": 1}, "b": {"x": "q"}}, "l": [{"x": 1}], "k": {"x": 1}}')
    put(table, tmp_path, '{"id": 2, "l": {"x": "t"}, "k": [{"x": 2}]}', '{"id": 3, "l": {"x": 5}, "m": {}}')
    view = table.view(make=False)
    assert len(view.drifted) == table.stats().drifted_fields
    assert {*view.not_folded} <= {*view.drifted}


def test_chosen_types_take_what_is_exact(table: Table, tmp_path: Path) -> None:
    put(table, tmp_path, '{"id": 1, "n": 4, "t": [1], "l": [{"p": true}]}')
    put(table, tmp_path, '{"id": 2, "n": "5.50", "t": ["2", "x", 3], "l": [{"p": "false"}, {"p": "yes"}]}')
    view = table.view(types={"n": "decimal(9,2)", "t": "list<long>", "l.p": "boolean"})
    assert [(str(r["n"]), r["t"], [e["p"] for e in r["l"]]) for r in shown(table, view)] == [
        ("4.00", [1], [True]), ("5.50", [2, None, 3], [False, None]),
    ]  # fmt: skip
    assert view.to_dict()["fields"][0]["type"] == "decimal(9, 2)"


def test_made_again_it_shows_what_is_new(table: Table, tmp_path: Path) -> None:
    put(table, tmp_path, '{"id": 1, "n": 4}')
    view = table.view()
    assert view.new is None
    put(table, tmp_path, '{"id": 2, "n": "x", "more": 1}')
    assert [set(row) for row in shown(table, view)] == [{"id", "n"}] * 2
    view = table.view()
    assert view.new == ("more",)
    assert [(row["n"], row["more"]) for row in shown(table, view)] == [("4", None), ("x", 1)]
    assert table.view().new == ()


@pytest.fixture
def space(lake: Lake, table_name: str) -> Iterator[str]:
    """A namespace of the test's own."""
    namespace = table_name.replace(".", "_")
    yield namespace
    for name in lake.format.tables():
        if name.startswith(f"{namespace}."):
            with suppress(UsageError):  # a view
                lake.format.drop(name, purge=False, dry_run=False)


EVENTS = [
    {"id": 1, "event": "push", "n": 1, "by": {"name": "a", "age": 7}, "l": [1], "at": "2026-03-02"},
    {"id": 2, "event": "ping", "n": 2.5, "by": {"name": 3}, "l": ["x"], "_Table": "theirs"},
    {"id": 3, "n": 9007199254740993},
]


def test_rows_of_several_tables_are_united_by_the_names_of_fields(lake: Lake, space: str) -> None:
    lake.fan_out(f"{space}.{{event}}").ingest(EVENTS)
    view = lake.view(f"{space}.all", f"{space}.*")
    names = [f"{space}.{name}" for name in ("_other", "ping", "push")]
    assert view.in_catalog and view.tables == tuple(names) and view.new is None
    assert set(view.to_dict()["fields"][0]["columns"].values()) == {"long, double"}
    empty = dict.fromkeys(("event", "by", "l", "at", "_Table"))
    by = {"name": "a", "age": 7}
    assert shown(lake.table(names[1]), view) == [
        {**empty, "_table_2": names[2], "id": 1, "event": "push", "n": 1.0, "by": by, "l": ["1"], "at": date(2026, 3, 2)},
        {**empty, "_table_2": names[1], "id": 2, "event": "ping", "n": 2.5, "by": {"name": "3", "age": None}, "l": ["x"],
         "_Table": "theirs"},
        {**empty, "_table_2": names[0], "id": 3, "n": 9007199254740992.0},
    ]  # fmt: skip
    assert "3 tables, 3 drifted fields as one column each" in " ".join(repr(view).split())


def test_a_view_of_tables_made_again_shows_newer_ones_and_no_others_that_a_pattern_has_not_made(
    lake: Lake, space: str
) -> None:
    pattern = f"{space}.{{event}}"
    lake.fan_out(pattern).ingest(EVENTS[:1])
    lake.table(f"{space}.by_hand").ingest([{"id": 7}])
    assert lake.view(f"{space}.all", pattern).tables == (f"{space}.push",)
    lake.fan_out(pattern).ingest(EVENTS[1:])
    again = lake.view(f"{space}.all", pattern)
    assert again.new == ("_table_2", "_Table") and len(again.tables) == 3
    assert lake.view(f"{space}.all", pattern, types={"n": "string"}).new == ()
    with pytest.raises(UsageError, match="no table's name is like"):
        lake.view(f"{space}.all", f"{space}.x*")
    with pytest.raises(DataError, match="already exists, and a view of"):
        lake.view(f"{space}.all", f"{space}.*")


def test_tables_whose_marks_differ_are_not_united(lake: Lake, space: str) -> None:
    for name, mark in (("a", "was "), ("b", "became ")):
        table = lake.table(f"{space}.{name}")
        table.ingest([{"id": 1, "n": 1}], mark=mark)
        table.ingest([{"id": 2, "n": "x"}])
    with pytest.raises(UsageError, match=rf"{space}\.b has other settings than {space}\.a"):
        lake.view(f"{space}.all", f"{space}.*")


def test_each_tables_numbers_are_times_by_its_own_unit(lake: Lake, space: str) -> None:
    for name, unit, number in (("s", "s", 1_772_409_600), ("ms", "ms", 1_772_409_600_000)):
        fields = {"id": [number], "at": [number]}
        lake.table(f"{space}.{name}").ingest(pa.table(fields), epoch_units={"at": unit})
    view = lake.view(f"{space}.all", f"{space}.*", types={"at": "timestamp"})
    assert {row["at"].date() for row in shown(lake.table(f"{space}.s"), view)} == {date(2026, 3, 2)}


HOSTILE = "a`) as x, (select 1) from y -- '\\\" \n;"


@pytest.mark.hive_refuses("it does not take the name")
@pytest.mark.iceberg_only(IN_SPARK)
def test_names_are_quoted(lake: Lake, tmp_path: Path, table_name: str) -> None:
    table = lake.table(f'{table_name}\'s "odd" -- one')
    for value in (1, "x", {HOSTILE: 2}):
        put(table, tmp_path, json.dumps({"id": 1, HOSTILE: value, "s": {HOSTILE: [value]}}))
    made = table.view(types={"s.`" + HOSTILE.replace("`", "``") + "`": "list<string>"})
    rows = [
        row.asDict(recursive=True) for row in lake.sql(f"select * from lake.t.`{made.name[2:]}`").collect()
    ]
    (column,) = set(rows[0]) - {"id", "s"}
    texts = {row[column] for row in rows}
    assert {"1", "x"} < texts
    assert [2] in [list(json.loads(text).values()) for text in texts if text.startswith("{")]
    assert sorted(str(next(iter(row["s"].values()))) for row in rows) == ["None", "['1']", "['x']"]


@pytest.mark.iceberg_only(IN_SPARK)
def test_what_is_not_ours_stays(table: Table, tmp_path: Path) -> None:
    put(table, tmp_path, '{"id": 1}')
    table.lake.sql(f"create view lake.{table.name}_settled as select 1 as one")
    with pytest.raises(DataError, match="not a view that driftline made"):
        table.view()
    with pytest.raises(DataError, match="already exists"):
        table.view(table.name)
    other = table.lake.table(f"{table.name}_2")
    put(other, tmp_path, '{"id": 2}')
    view = table.view(f"{table.name}_other")
    with pytest.raises(DataError, match=f"already exists, and a view of {table.name}\n"):
        other.view(f"{table.name}_other")
    assert shown(table, view) == [{"id": 1}]


def test_wrong_wishes(table: Table, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no table"):
        table.view()
    put(table, tmp_path, '{"id": 1}')
    with pytest.raises(UsageError, match="has no field b"):
        table.view(types={"b": "long"})
    with pytest.raises(UsageError, match="not a type"):
        table.view(types={"id": "lung"})
    with pytest.raises(UsageError, match="not a view name"):
        table.view("settled")


@pytest.mark.nightly
def test_a_ducklake_keeps_a_view_that_any_duckdb_reads(
    ducklake: Lake, table_name: str, tmp_path: Path
) -> None:
    catalog = database(ducklake)
    assert catalog is not None
    table = ducklake.table(table_name)
    put(table, tmp_path, json.dumps({"id": 1, HOSTILE: 4, "m": {"2024-01-01": 1, "2024-01-02": 2}}))
    put(table, tmp_path, json.dumps({"id": 2, HOSTILE: "x", "m": {"2024-01-03": "y"}}))
    made = table.view()
    assert made.in_catalog
    assert made.statement.startswith("CREATE OR REPLACE VIEW lake.")
    assert [[v for k, v in row.items() if k not in ("id", "m")] for row in shown(table, made)] == [
        ["4"],
        ["x"],
    ]
    with pytest.raises(DataError, match="already exists, and not a view that driftline made"):
        table.view(table.name)
    namespace = table_name.partition(".")[0]
    run(catalog, f"CREATE VIEW lk.{namespace}.theirs AS SELECT 1 AS one")
    with pytest.raises(DataError, match="already exists, and not a view that driftline made"):
        table.view(f"{namespace}.theirs")
    other = ducklake.table(f"{table_name}_2")
    put(other, tmp_path, '{"id": 2}')
    with pytest.raises(DataError, match="already exists, and a view of"):
        other.view(made.name)

    # It follows the table: a resolve, and another name.
    notes = table.resolve(f"`{HOSTILE.replace('`', '``')}`", "string").notes
    assert any("was made again" in note for note in notes), notes
    ducklake.alter(f"ALTER TABLE {table_name} RENAME TO {table_name}_renamed")
    assert run(catalog, f"SELECT id FROM lk.{table_name}_renamed_settled ORDER BY id") == [(1,), (2,)]
    with pytest.raises(duckdb.Error, match="does not exist"):
        run(catalog, f"SELECT * FROM lk.{made.name}")


def test_bytes_beside_objects_are_base64(table: Table) -> None:
    """As those inside the objects are, in JSON: only some bytes are UTF-8, and no value is null in a view."""
    long = bytes(range(200, 256)) * 2
    table.ingest(pa.table({"id": [1, 2, 3], "b": [b"\xff\x00", b"ab", long]}))
    table.ingest(pa.table({"id": [4], "b": [{"in": b"\xff\x00"}]}))
    assert shown(table, table.view()) == [
        {"id": 1, "b": "/wA="},
        {"id": 2, "b": "YWI="},
        {"id": 3, "b": base64.b64encode(long).decode()},
        {"id": 4, "b": '{"in":"/wA="}'},
    ]


def test_moments_in_objects_keep_their_microseconds(table: Table, tmp_path: Path) -> None:
    """Spark writes milliseconds into JSON, by the session's time zone."""
    moment = {"at": "2026-01-02T03:04:05.000006Z", "local": "2026-01-02T03:04:05.123456"}
    put(table, tmp_path, json.dumps({"id": 1, "m": moment}), '{"id": 2, "m": "none"}')
    put(table, tmp_path, json.dumps({"id": 3, "m": [moment["at"]]}))
    with configured(table.lake.spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        rows = shown(table, table.view())
    assert json.loads(rows[0]["m"]) == moment
    assert json.loads(rows[2]["m"]) == [moment["at"]]


def test_lists_of_several_types_beside_objects_are_whole(table: Table, tmp_path: Path) -> None:
    """A list's values stand in several columns of the field; the first of these alone hid the others."""
    values: list[Any] = [
        [1, "x"],
        {"a": 1},
        [1.5, {"a": 2}, None, "y", True],
        [],
        [None],
        7,
        [[1], ["x", {"a": 3}], None, [], [None]],
    ]
    put(table, tmp_path, *(json.dumps({"id": i, "l": value}) for i, value in enumerate(values)))
    texts = [row["l"] for row in shown(table, table.view())]
    assert [json.loads(text) for text in texts] == values


def test_numbers_in_lists_beside_instants_and_objects_are_shown(table: Table, tmp_path: Path) -> None:
    """A number stands in a list of instants too, where the view leaves it out."""
    put(table, tmp_path, '{"id": 1, "l": ["2026-01-02T03:04:05Z"]}', '{"id": 2, "l": {"a": 1}}')
    put(table, tmp_path, '{"id": 3, "l": [1767225600000, 5]}')
    texts = [row["l"] for row in shown(table, table.view())]
    assert json.loads(texts[2]) == [1767225600000, 5]
