"""Keys that tables get and lose later, and changes of columns in tables with a key, against a dictionary."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from core.test_upsert import Oracle, events, key_of, same_key
from driftline.core.changes import (
    DropColumn,
    MoveColumn,
    Position,
    RenameColumn,
    SetProperties,
    UnsetProperties,
    WidenColumn,
)
from driftline.core.schema.types import LONG
from driftline.core.settings.properties import as_properties
from driftline.errors import DataError, UsageError
from driftline.formats.ducklake.transaction import DuckLakeTransaction
from driftline.formats.iceberg.transaction import IcebergTransaction
from driftline.lake import Lake, Table
from driftline.operations.contract import ReadOptions, breaks, planned
from driftline.operations.odcs import exported, read
from driftline.report.findings import findings
from lake.formats import database
from lake.test_keyed import SETTINGS, VERSION_2, held, put, remembered, rows_of, tamper
from lake.test_task_files import files_of

PLAIN = [{"id": key, "seq": 20 + i, "n": -i - 1} for i, key in enumerate([*range(8), 2.5, 2**60, "1", "x"])]
HOW = ["ordered", "as they come", VERSION_2, "soft"]


def set_(table: Table, **settings: str) -> None:
    """Sets settings of a table later, as `driftline alter` does."""
    table.alter(SetProperties(as_properties(settings)))


def unset(table: Table, *names: str) -> None:
    table.alter(UnsetProperties(tuple(f"driftline.{name}" for name in names)))


def version(lake: Lake, how: str) -> dict[str, str]:
    return {"format_version": "2" if how == "format version 2" and database(lake) is None else "3"}


@pytest.mark.nightly
@pytest.mark.parametrize("how", HOW)
def test_a_table_gets_a_key_and_loses_it_again(lake: Lake, table_name: str, how: str) -> None:
    table, chance = lake.table(table_name), random.Random(how)
    oracle = Oracle(ordered=how != "as they come", soft=how == "soft")
    table.ingest(PLAIN, settings=version(lake, how))
    oracle.rows = {same_key(record["id"]): record for record in PLAIN}
    ids = row_ids_of(table)
    given = {**SETTINGS, "deletes": "soft" if oracle.soft else "hard"}
    set_(table, **{name: value for name, value in given.items() if name != "order_by" or oracle.ordered})

    assert held(table) == {key: record["n"] for key, record in oracle.rows.items()}
    assert row_ids_of(table) == ids
    stream = events(chance, 40)
    while stream:
        batch, stream = stream[:20], stream[20:]
        expected = asdict(oracle.take(batch))
        result = table.ingest(batch).to_dict()
        assert {name: result[name] for name in expected} == expected
    assert held(table) == {key: event["n"] for key, event in oracle.rows.items()}
    deletes = remembered(table) if oracle.deletes and oracle.ordered else []
    assert bool(deletes) == (oracle.ordered and not oracle.soft)

    before = Counter(row["n"] for row in rows_of(table))
    unset(table, "key")
    table.ingest([PLAIN[0], {"id": 1, "op": "d", "n": 99}])
    assert Counter(row["n"] for row in rows_of(table)) == before + Counter([-1, 99])
    assert "_order" not in table.read().columns
    assert not (deletes and database(lake) and remembered(table))
    keys = [entry["key"] for entry in table.history().to_dict()["changes"] if entry["by"] == "alter"]
    assert (keys[0][0], keys[-1]) == ("id", [])
    with pytest.raises(DataError, match=r"cannot have the key id: several rows have the same: .*\(2 rows\)"):
        set_(table, key="id")


@pytest.mark.nightly
@pytest.mark.format_has_no_say("what is refused and settled is decided before a format commits")
def test_rows_that_have_no_key_of_their_own_are_named(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    rows = [
        {"id": key, "b": b, "v": 1} for key, b in [(7, 1), (7.0, 2), ("7", 3), ("x", 4), ("x", 5), ("x", 5)]
    ]
    table.ingest([*rows, {"b": 6, "a": {"k": 1}}, {"id": 5, "b": 7}, {"id": 5, "b": 8}, {"id": 6, "b": 9}])
    more = [{"id": 6, "b": 10}, {"id": 9, "b": 11, "at": "2026-01-01T00:00:00Z"}, {"b": 12, "at": 3}]
    table.ingest(put(tmp_path / "more.jsonl", more))
    before, state = files_of(lake, table), table.state()
    one = r"cannot have the key {}: rows have none: {}"
    several = r"cannot have the key {}: several rows have the same: {}"
    refused = [
        ({"key": "id"}, one.format("id", r"null \(2 rows\)")),
        ({"key": "a.k"}, one.format(r"a\.k", r"null \(12 rows\)")),
        ({"key": "nowhere"}, one.format("nowhere", r"null \(13 rows\)")),
        ({"key": "v, b"}, one.format("v, b", r"\(null, 1[0-2]\) \(1 row\), ")),
        ({"key": "v"}, one.format("v", r"null \(7 rows\)")),
        ({"key": "at"}, "at has numbers that are values of at_timestamp too"),
    ]
    for settings, says in refused:
        with pytest.raises(DataError, match=says):
            set_(table, **settings)
    tamper(table, "delete from {t} where b in (6, 12)")
    with pytest.raises(
        DataError, match=several.format("id", r'"x" \(3 rows\), 5 \(2 rows\), 6 \(2 rows\)\n')
    ):
        set_(table, key="id")
    tamper(table, "delete from {t} where b between 7 and 10")
    with pytest.raises(DataError, match=several.format("id", r'"x" \(3 rows\), 7 \(2 rows\)\n')):
        set_(table, key="id")
    with pytest.raises(DataError, match=several.format("id, b", r'\("x", 5\) \(2 rows\)\n')):
        set_(table, key="id, b")

    assert table.state().properties == state.properties
    assert table.state().schema == state.schema
    assert database(lake) is None or files_of(lake, table) >= before
    tamper(table, "delete from {t} where b = 5")
    tamper(table, "delete from {t} where b = 2")
    set_(table, key="id")
    result = table.ingest([{"id": 7.0, "b": 20}, {"id": "7", "b": 21}, {"id": 8, "b": 22}]).to_dict()
    assert (result["updated"], result["inserted"]) == (2, 1)


@pytest.mark.format_has_no_say("what is refused and settled is decided before a format commits")
def test_what_cannot_be_changed_says_what_to_do(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    rows = [{"id": 1, "seq": 1, "v": 1, "w": 1}, {"id": 2, "seq": 1, "v": "x", "w": "x"}]
    table.ingest(rows, settings=SETTINGS)
    refused: list[tuple[type[Exception], Callable[[], Any], str]] = [
        (DataError, lambda: set_(table, key="v"), "has the key id already"),
        (DataError, lambda: set_(table, order_by="v"), "has the order seq already"),
        (UsageError, lambda: set_(table, delete_when="op = 'd"), "driftline.delete_when|delete_when"),
        (DataError, lambda: table.alter(DropColumn(("id",))), "id cannot be dropped: the table knows its rows by id, seq"),
        (DataError, lambda: table.alter(DropColumn(("seq",))), "seq cannot be dropped"),
        (DataError, lambda: table.alter(DropColumn(("_order",))), "_order cannot be dropped"),
    ]  # fmt: skip
    before = table.state().properties
    for error, act, says in refused:
        with pytest.raises(error, match=says) as caught:
            act()
        assert error is UsageError or "UNSET TBLPROPERTIES ('driftline." in (caught.value.hint or "")
    assert table.state().properties == before

    unset(table, "key")
    assert [name for name in table.state().properties if name.startswith("driftline.de")] == []
    table.alter(DropColumn(("id",)), DropColumn(("seq",)))
    with pytest.raises(UsageError, match="its key is set by itself"):
        table.alter(SetProperties(as_properties({"key": "v"})), RenameColumn(("v",), "x"))
    with pytest.raises(DataError, match="cannot be ordered by w: its values are of several kinds"):
        set_(table, key="v", order_by="w")


@pytest.mark.nightly
@pytest.mark.format_has_no_say("what is refused and settled is decided before a format commits")
def test_an_order_that_comes_later_and_goes(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    first = [{"id": i, "seq": {"a": i, "b": "x"}, "n": i} for i in range(4)]
    table.ingest([*first, {"id": 9, "n": 9}], settings={"key": "id"})
    set_(table, order_by="seq.a, seq.b", delete_when="op = 'd'")
    changes = [{"id": i, "seq": {"a": 2, "b": "w"}, "n": 10 + i} for i in (0, 1, 2, 3, 9)]
    result = table.ingest([*changes, {"id": 5, "seq": {"a": 5, "b": "x"}, "op": "d"}]).to_dict()

    assert (result["updated"], result["late"], result["ignored"]) == (3, 2, 1)
    assert set(held(table).values()) == {10, 11, 2, 3, 19}
    assert table.ingest([{"id": 5, "seq": {"a": 4, "b": "y"}, "n": 5}]).to_dict()["late"] == 1
    unset(table, "order-by")
    result = table.ingest([{"id": 5, "n": 5}, {"id": 3, "n": 33}]).to_dict()
    assert (result["inserted"], result["updated"]) == (1, 1)
    set_(table, order_by="n")
    assert table.ingest([{"id": 5, "n": 4}, {"id": 3, "n": 34}]).to_dict()["late"] == 1


@pytest.mark.parametrize("how", [VERSION_2, "format version 3"])
def test_deletes_that_become_soft_and_hard_again(lake: Lake, table_name: str, how: str) -> None:
    table = lake.table(table_name)
    rows = [{"id": i, "seq": 1, "n": i} for i in range(4)]
    table.ingest(rows, settings={**SETTINGS, **version(lake, how)})
    table.ingest([{"id": 3, "seq": 5, "op": "d"}])
    set_(table, deletes="soft")
    result = table.ingest([{"id": 3, "seq": 4, "n": 9}, {"id": 2, "seq": 5, "op": "d"}]).to_dict()

    assert (result["late"], result["deleted"]) == (1, 1)
    assert {row["id"]: row["_is_deleted"] for row in rows_of(table)} == {0: False, 1: False, 2: True}
    with pytest.raises(DataError, match="1 row with _is_deleted = true would be rows like all others"):
        set_(table, deletes="hard")
    tamper(table, "delete from {t} where _is_deleted")
    set_(table, deletes="hard")
    assert "_is_deleted" not in table.read().columns
    assert table.ingest([{"id": 1, "seq": 5, "op": "d"}]).to_dict()["deleted"] == 1
    assert held(table) == {("number", Decimal(0)): 0}


@pytest.mark.nightly
def test_undo_of_a_key(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{**record, "op": "c"} for record in PLAIN])
    before = rows_of(table)
    set_(table, **SETTINGS)
    taken = table.ingest(
        [{"id": 1, "seq": 99, "n": 5}, {"id": 2, "seq": 99, "op": "d"}, {"id": 50, "seq": 1}]
    )
    assert (taken.to_dict()["updated"], taken.to_dict()["deleted"]) == (1, 1)
    table.undo(yes=True)
    undone = table.undo().to_dict()

    assert undone["layout"] == ["rows known by nothing"]
    assert sorted(map(str, rows_of(table))) == sorted(map(str, before))
    assert not {"driftline.key", "driftline.order-by"} & {k for k, v in table.state().properties.items() if v}
    table.undo()  # of the undo
    result = table.ingest([{"id": 1, "seq": 0, "n": 5}, {"id": 2, "seq": 98, "n": 6}]).to_dict()
    assert (result["late"], result["updated"]) == (1, 1)


@pytest.mark.nightly
def test_undo_of_a_key_that_was_taken_away(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": i, "seq": 5, "n": i} for i in range(4)], settings={**SETTINGS, "deletes": "soft"})
    table.ingest([{"id": 1, "seq": 6, "op": "d"}])
    before = rows_of(table)
    unset(table, "key")
    undone = table.undo()
    assert undone.stays == ("deletes that were remembered before stay forgotten",)
    assert sorted(map(str, rows_of(table))) == sorted(map(str, before))
    assert table.ingest([{"id": 1, "seq": 5, "n": 9}, {"id": 2, "seq": 6, "n": 8}]).to_dict()["late"] == 1

    unset(table, "key")
    table.ingest([{"id": 7, "seq": 5, "n": 7}])
    with pytest.raises(DataError, match="1 row came since, and would have no _is_deleted"):
        table.undo()
    table.ingest([{"id": 7, "seq": 5, "n": 7}])
    with pytest.raises(DataError, match=r"several rows have the same: 7 \(2 rows\)"):
        table.undo()


@pytest.mark.nightly
def test_columns_of_a_table_with_a_key_change(lake: Lake, table_name: str) -> None:
    table, spark = lake.table(table_name), lake.spark
    sql = "select {id} as id, {seq} as seq, struct(1L as x) as w, '{op}' as op, {n} as n, {n} as more"
    rows = " union all ".join(sql.format(id=i, seq=1, op="c", n=i) for i in range(6))
    table.ingest(spark.sql(rows), settings={**SETTINGS, "key": "id, w.x"})
    deletes = " union all ".join(sql.format(id=i, seq=9, op="d", n=i) for i in (4, 5))
    table.ingest(spark.sql(deletes))
    table.alter(RenameColumn(("id",), "key"), RenameColumn(("w", "x"), "y"), RenameColumn(("w",), "v"))
    table.alter(
        RenameColumn(("seq",), "version"), RenameColumn(("_order",), "ord"), RenameColumn(("op",), "action")
    )
    table.alter(
        WidenColumn(("key",), LONG),
        WidenColumn(("version",), LONG),
        MoveColumn(("key",), Position("version")),
    )
    altered = table.alter(DropColumn(("action",)), DropColumn(("more",)))
    assert all("will be refused" not in note for note in altered.notes)
    late = [{"id": i, "w": {"x": 1}, "seq": 8, "n": 9} for i in (4, 5)]
    result = table.ingest([*late, {"id": 3, "w": {"x": 1}, "seq": 2, "op": "d"}]).to_dict()
    assert (result["late"], result["deleted"]) == (2, 1)
    table.ingest([{"id": i, "w": {"x": 1}, "seq": 10 + i, "n": 10 + i} for i in (0, 4)])

    assert {row["key"]: row["n"] for row in rows_of(table)} == {0: 10, 1: 1, 2: 2, 4: 14}
    table.undo(yes=True)
    assert {row["key"]: row["n"] for row in rows_of(table)} == {0: 0, 1: 1, 2: 2}


@pytest.mark.nightly
@pytest.mark.format_has_no_say("what is refused and settled is decided before a format commits")
def test_what_waits_in_the_rest_of_a_table_with_a_key_gets_columns(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    first = [{"id": i, "seq": 1, "a": {"k": i}, "n": i} for i in range(4)]
    table.ingest(first, settings={**SETTINGS, "key": "a.k", "new_fields": "hold"})
    table.ingest(
        [{"a": {"k": 1, "q": 5}, "seq": 2, "n": 11, "more": {"z": 1}}, {"a": {"k": 3}, "seq": 3, "op": "d"}]
    )
    table.promote("a")
    table.promote("more")
    assert [(r["a"]["q"], r["more"]["z"]) for r in rows_of(table) if r["n"] == 11] == [(5, 1)]
    result = table.ingest(
        [{"a": {"k": 1}, "seq": 1}, {"a": {"k": 3}, "seq": 2}, {"a": {"k": 0, "q": 6}, "seq": 2, "n": 10}]
    )
    assert (result.to_dict()["late"], result.to_dict()["updated"]) == (2, 1)
    assert sorted((r["a"]["k"], r["a"]["q"], r["n"]) for r in rows_of(table)) == [
        (0, 6, 10),
        (1, 5, 11),
        (2, None, 2),
    ]
    with pytest.raises(DataError, match=r"nothing in the rest at or below a\.k"):
        table.promote("a.k")


def test_rows_of_others_in_between_are_looked_at_too(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, others = lake.table(table_name), [[{"id": 50, "seq": 1, "n": 50}], [{"id": 50, "seq": 2, "n": 51}]]
    table.ingest(PLAIN)

    def interrupted(settings: Mapping[str, str]) -> None:
        with monkeypatch.context() as patch:
            for kind in (IcebergTransaction, DuckLakeTransaction):
                left = [1]

                def commit(self: Any, *, commit: Any = kind.commit, left: Any = left) -> None:
                    if left and left.pop():
                        table.ingest(others.pop(0))
                    commit(self)

                patch.setattr(kind, "commit", commit)
            set_(table, **settings)

    interrupted({"key": "id"})
    assert held(table)[same_key(50)] == 50
    unset(table, "key")
    with pytest.raises(DataError, match=r"several rows have the same: 50 \(2 rows\)"):
        interrupted(SETTINGS)
    assert "_order" not in table.read().columns


def test_an_error_leaves_the_table_without_a_key_and_no_file(
    lake: Lake, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table(table_name)
    table.ingest(PLAIN)
    before, state = files_of(lake, table), table.state()
    with monkeypatch.context() as patch:
        for kind in (IcebergTransaction, DuckLakeTransaction):
            patch.setattr(kind, "commit", lambda *_: (_ for _ in ()).throw(DataError("the end")))
        with pytest.raises(DataError, match="the end"):
            set_(table, **SETTINGS)

    assert files_of(lake, table) == before
    assert (table.state().schema, table.state().snapshot) == (state.schema, state.snapshot)
    assert {key_of(row): row["n"] for row in rows_of(table)} == {same_key(r["id"]): r["n"] for r in PLAIN}


@pytest.mark.nightly
def test_columns_of_one_kind_of_a_key_become_one(lake: Lake, table_name: str) -> None:
    table, wide = lake.table(table_name), 2**70
    keys: list[Any] = [1, 2, 2.5, 3, "7", 7, wide, 4.25, 5]
    table.ingest(
        [{"a": {"id": key}, "seq": 5, "n": i} for i, key in enumerate(keys)],
        settings={**SETTINGS, "key": "a.id"},
    )
    table.ingest([{"a": {"id": key}, "seq": 5, "op": "d"} for key in (1, 4.25, "x")])
    table.ingest([{"a": {"id": 5.0}, "seq": 5, "op": "d"}])
    before = {text(row): row["n"] for row in rows_of(table)}
    first = row_ids_of(table)
    for path, drop in (("a", False), ("a.id", True)):
        with pytest.raises(DataError, match=r"the table knows its rows by the key a\.id"):
            table.resolve(path, "decimal(38, 2)", drop_rest=drop)
    with pytest.raises(UsageError, match="a key keeps its kind"):
        table.resolve("a.id", "boolean")
    resolved = table.resolve("a.id", "decimal(38, 1)").to_dict()

    assert resolved["not_converted"] == 0
    assert {text(row): row["n"] for row in rows_of(table)} == before
    assert row_ids_of(table) == first
    late = [{"a": {"id": key}, "seq": 4, "n": 99} for key in (1.0, 4.25, "x", 5, 2, 2.5, "7", wide)]
    result = table.ingest(late).to_dict()
    assert (result["late"], result["inserted"]) == (len(late), 0)
    table.ingest([{"a": {"id": 5}, "seq": 9, "op": "d"}, {"a": {"id": 2}, "seq": 9, "n": 22}])
    assert {text(row): row["n"] for row in rows_of(table)} == {**before, "2": 22}


def row_ids_of(table: Table) -> dict[int, int]:
    """The ids of rows, where the format has them."""
    if database(table.lake) is not None or table.format.definition().format_version < 3:
        return {}
    return {row.n: row._row_id for row in table.read().select("n", "_row_id").collect()}


def text(row: Mapping[str, Any]) -> str:
    """The key of a row, a number by its shortest text."""
    key = next(value for value in row["a"].values() if value is not None)
    return repr(key) if isinstance(key, str) else f"{Decimal(str(key)).normalize():f}"


@pytest.mark.nightly
def test_a_resolve_of_the_key_and_of_the_order_is_taken_back(lake: Lake, table_name: str) -> None:
    table = lake.table(table_name)
    rows = [
        {"id": 1, "seq": 1, "n": 1, "op": "c"},
        {"id": 2.5, "seq": 1.5, "n": 2},
        {"id": 2**60 + 1, "seq": 2**60 + 1, "n": 3},
    ]
    table.ingest([*rows, {"id": 4, "seq": 5}], settings=SETTINGS)
    table.ingest([{"id": 4, "seq": 6, "op": "d"}])
    before = sorted(map(str, rows_of(table)))
    late = [
        {"id": 4, "seq": 5.5, "n": 9},
        {"id": 1, "seq": 0, "n": 9},
        {"id": 2**60 + 1, "seq": 2**60, "n": 9},
    ]
    for field in ("id", "seq"):
        table.resolve(field, "decimal(38, 3)")
        table.undo()
        assert sorted(map(str, rows_of(table))) == before
    table.resolve("seq", "decimal(38, 3)")
    assert table.ingest(late).to_dict()["late"] == 3


@pytest.mark.format_has_no_say("what is refused and settled is decided before a format commits")
def test_what_is_told_of_a_table_with_a_key(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": i, "seq": 1, "v": i} for i in range(4)], settings={**SETTINGS, "deletes": "soft"})
    table.ingest(
        [{"id": "1", "seq": 1, "v": "x"}, {"id": 2, "seq": 3, "op": "d"}, {"id": 0, "seq": 3, "v": 7}]
    )
    state = table.state()
    file = tmp_path / "contract.yaml"
    file.write_text(exported(table_name, state.schema, state.properties))
    promise = read(file, table_name)
    assert list(breaks(promise, state.schema, state.properties)) == []
    data = [
        str(
            put(tmp_path / "new.jsonl", [{"id": 1, "seq": 5, "v": 1}, {"id": 1, "seq": 6, "op": "d", "w": 1}])
        )
    ]
    assert list(findings(planned(promise, table.format, data, ReadOptions(), lambda _: None))) == []

    view = table.view(make=database(lake) is None)
    assert "_is_deleted" in view.select
    shown = lake.sql(view.select).collect() if database(lake) is None else rows_of(table)
    assert sorted(row["_is_deleted"] for row in shown) == [False] * 4 + [True]
    assert table.stats(exact=True).records == 5
    assert [t.name for t in lake.tables() if t.name.startswith(f"{table_name}_")] == []


@pytest.mark.parametrize(
    "change",
    [f"DROP COLUMN {column}" for column in ("id", "_order", "_is_deleted")] + ["RENAME COLUMN id TO ident"],
)
def test_a_column_by_which_rows_are_known_that_another_engine_takes_away_stops_batches_until_it_is_back(
    lake: Lake, table_name: str, change: str
) -> None:
    table = lake.table(table_name)
    table.ingest([{"id": 1, "seq": 2, "n": "a"}], key="id", order_by="seq", deletes="soft")
    tamper(table, f"ALTER TABLE {{t}} {change}")
    with pytest.raises(DataError, match="another engine has renamed or dropped that column") as refused:
        table.ingest([{"id": 1, "seq": 1, "n": "late"}])
    assert "Table.undo()" in (refused.value.hint or "")
    table.undo(yes=True)
    assert table.ingest([{"id": 1, "seq": 1, "n": "late"}]).to_dict()["late"] == 1
    assert [row["n"] for row in rows_of(table)] == ["a"]
